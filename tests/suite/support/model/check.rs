//! What is wrong with a request, whatever protocol it is in.

use super::dialect::Dialect;
use super::wire::Head;

/// All that is wrong with a request's head.
pub(super) fn head(head: &Head) -> Vec<String> {
    let mut found = Vec::new();
    let mut unless = |is_sound: bool, what: String| {
        if !is_sound {
            found.push(what);
        }
    };
    unless(head.method == "POST", format!("the method is {}", head.method));
    let kind = head.all("content-type");
    unless(
        kind.len() == 1 && kind[0].starts_with("application/json"),
        format!("content-type is {kind:?}"),
    );
    // Nothing here could unpack another coding.
    let codings = head.all("accept-encoding");
    unless(
        codings.is_empty() || codings == ["identity"],
        format!("accept-encoding is {codings:?}"),
    );
    match Dialect::of(head) {
        Some(dialect) => found.extend(dialect.head(head)),
        None => found.push(format!("the path is {}", head.path)),
    }
    found
}
