//! What a server may say against its protocol, of every dialect alike: what
//! comes of it is held here, how it is said is the dialect's own test's.

use serde_json::{Value, json};

use crate::message::Usage;
use crate::provider::Failure;
use crate::provider::assemble::Answer;

/// What is stored of a stream.
type Stored = Result<Answer, Box<Failure>>;

/// In a stream, where [`check_too_deep`] puts the arguments of its one call.
pub(in crate::provider) const ARGUMENTS: &str = "ARGUMENTS";

/// Arguments of a call that are nested too deep are told of, and empty: as text
/// in the first of these streams, and as an object in the second.
#[track_caller]
pub(in crate::provider) fn check_too_deep(streams: [&str; 2], read: impl Fn(&str) -> Stored) {
    for levels in [65, 114, 120, 127, 128, 200, 1_000] {
        let deep = "{\"a\":".repeat(levels - 1) + "{}" + &"}".repeat(levels - 1);
        let forms = [json!(deep).to_string(), deep];
        for (stream, form) in streams.iter().zip(&forms) {
            let stream = stream.replace(&json!(ARGUMENTS).to_string(), form);
            let answer = read(&stream).unwrap_or_else(|it| panic!("{}", it.fault));
            let calls: Vec<&Value> = answer.message.tool_calls().map(|it| &it.arguments).collect();
            assert_eq!(calls, [&json!({})], "{levels} levels");
            assert!(answer.broken[0].why.contains("64 levels"), "{}", answer.broken[0].why);
        }
    }
}

/// A number of tokens that cannot be, in any of these fields, makes all of them
/// unknown; `read` gives what is stored if that field says that.
#[track_caller]
pub(in crate::provider) fn check_odd_tokens(
    fields: &[&str],
    read: impl Fn(&str, &Value) -> Stored,
) {
    for odd in [json!(1e19), json!(-1), json!(0.5), json!("NaN"), json!("9".repeat(400))] {
        for field in fields {
            let answer = read(field, &odd).unwrap_or_else(|it| panic!("{}", it.fault));
            assert_eq!(answer.message.usage, Usage::default(), "{field}: {odd}");
        }
    }
}
