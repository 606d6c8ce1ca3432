//! The body of an answer, from bytes cut anywhere: a stream of events, or one
//! JSON value where a server does not stream. Pure. Its first byte tells which
//! of the two it is; a page of a proxy is neither, and told as such.

use super::sse::{Event, EventReader};
use super::{Fault, failure};

/// Largest answer that is not streamed, in bytes.
const LARGEST_BODY: usize = 32 * 1024 * 1024;

/// A body on its way.
#[derive(Debug)]
pub(super) struct Body {
    provider: String,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Nothing but white space yet.
    Unknown,
    Events(EventReader),
    /// One JSON value, which is read when it has ended.
    Whole(Vec<u8>),
}

/// What was left when a body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The last events.
    Events(Vec<Event>),
    /// All of it: it is one JSON value.
    Whole(Vec<u8>),
}

impl Body {
    /// The body of an answer of that provider, which faults name.
    pub(super) fn new(provider: &str) -> Self {
        Self { provider: provider.to_owned(), form: Form::Unknown }
    }

    /// The events that these bytes complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Fault> {
        let bytes = self.begin(bytes)?;
        let mut events = Vec::new();
        match &mut self.form {
            Form::Unknown => (),
            Form::Events(reader) => reader
                .feed(bytes, &mut events)
                .map_err(|it| broken(&self.provider, &it.to_string()))?,
            Form::Whole(body) if body.len() + bytes.len() > LARGEST_BODY => {
                let what = format!("more than {LARGEST_BODY} bytes in one piece");
                return Err(broken(&self.provider, &what));
            }
            Form::Whole(body) => body.extend_from_slice(bytes),
        }
        Ok(events)
    }

    /// The bytes have ended.
    pub(super) fn end(&mut self) -> Rest {
        match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Unknown => Rest::Events(Vec::new()),
            Form::Whole(body) => Rest::Whole(body),
            Form::Events(mut reader) => {
                let mut events = Vec::new();
                reader.end(&mut events);
                Rest::Events(events)
            }
        }
    }

    /// Tells by the first byte how the body is written; hands on the bytes from
    /// there on.
    fn begin<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Fault> {
        if !matches!(self.form, Form::Unknown) {
            return Ok(bytes);
        }
        let bytes = bytes.trim_ascii_start();
        self.form = match bytes.first() {
            None => Form::Unknown,
            Some(b'{' | b'[') => Form::Whole(Vec::new()),
            Some(b'<') => return Err(page(&self.provider)),
            Some(_) => Form::Events(EventReader::default()),
        };
        Ok(bytes)
    }
}

fn page(provider: &str) -> Fault {
    Fault::Refused(format!(
        "the provider `{provider}` answered with an HTML page instead of a stream of events. \
         Check `llm.providers.{provider}.baseUrl`."
    ))
}

/// The fault of an answer that cannot be read on.
pub(super) fn broken(provider: &str, what: &str) -> Fault {
    let what = failure::one_line(what);
    Fault::Unavailable(format!("the answer of the provider `{provider}` broke: {what}"))
}

/// What a person sees of a piece; `…` says that it was cut, perhaps in the
/// middle of a secret.
pub(super) fn beginning(piece: &[u8]) -> String {
    let (shown, rest) = piece.split_at(piece.len().min(100));
    let mark = if rest.is_empty() { "" } else { "…" };
    format!("{}{mark}", String::from_utf8_lossy(shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], names: &[&str], want: Rest) {
        for size in 1..=bytes.len() {
            let mut body = Body::new("acme");
            let fed = bytes.chunks(size).flat_map(|it| body.feed(it).unwrap_or_default());
            let got: Vec<String> = fed.map(|it| it.name).collect();
            assert_eq!(got, names, "pieces of {size}");
            assert_eq!(body.end(), want, "pieces of {size}");
        }
    }

    #[test]
    fn the_first_byte_tells_how_it_is_written() {
        let last = Event { name: "b".into(), data: b"2".into() };
        let events = b" \r\nevent: a\ndata: 1\n\nevent: b\ndata: 2";
        check(events, &["a"], Rest::Events(vec![last]));
        check(b"\n{\"a\":1}", &[], Rest::Whole(b"{\"a\":1}".into()));
        check(b"[1]\n", &[], Rest::Whole(b"[1]\n".into()));
        check(b" ", &[], Rest::Events(Vec::new()));
    }

    #[test]
    fn a_page_is_told_as_such() {
        let fault = Body::new("acme").feed(b"\n<!doctype html>");
        assert!(matches!(&fault, Err(Fault::Refused(it)) if it.contains("llm.providers.acme")));
    }

    #[test]
    fn one_piece_without_end_is_refused() {
        let mut body = Body::new("acme");
        let piece = vec![b'['; 1024 * 1024];
        let fed = (0..33).map(|_| body.feed(&piece));
        assert_eq!(fed.filter(Result::is_err).count(), 1);
    }
}
