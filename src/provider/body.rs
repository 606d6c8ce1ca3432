//! The body of an answer, from bytes cut anywhere: a stream of events, or JSON
//! where a server sends none. Pure. Its first byte tells which of the two it is;
//! a page of a proxy is neither, and told as such.

use super::objects::ObjectReader;
use super::sse::{Event, EventReader};
use super::{Fault, failure};

/// Largest answer that is not streamed, in bytes.
const LARGEST_BODY: usize = 32 * 1024 * 1024;

/// A body on its way.
#[derive(Debug)]
pub(super) struct Body {
    provider: String,
    streams_json: bool,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Nothing but white space yet.
    Unknown,
    Events(EventReader),
    /// One JSON value, which is read when it has ended.
    Whole(Vec<u8>),
    /// JSON objects, each read as an event without a name.
    Objects(ObjectReader),
}

/// What was left when a body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    /// The last event.
    Event(Event),
    /// All of it: it is one JSON value.
    Whole(Vec<u8>),
    /// The beginning of an object, or of a list of them.
    Cut,
}

impl Body {
    /// The body of an answer of that provider, which faults name; whether JSON is
    /// a row of objects in it, or one value.
    pub(super) fn new(provider: &str, streams_json: bool) -> Self {
        Self { provider: provider.to_owned(), streams_json, form: Form::Unknown }
    }

    /// Adds the events that these bytes complete, also those before a fault.
    pub(super) fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Fault> {
        let bytes = self.begin(bytes)?;
        let fed = match &mut self.form {
            Form::Unknown => Ok(()),
            Form::Events(reader) => reader.feed(bytes, events).map_err(|it| it.to_string()),
            Form::Objects(reader) => reader.feed(bytes, events).map_err(|it| it.to_string()),
            Form::Whole(body) if body.len() + bytes.len() > LARGEST_BODY => {
                Err(format!("more than {LARGEST_BODY} bytes in one piece"))
            }
            Form::Whole(body) => {
                body.extend_from_slice(bytes);
                Ok(())
            }
        };
        fed.map_err(|it| broken(&self.provider, &it))
    }

    /// The bytes have ended.
    pub(super) fn end(&mut self) -> Rest {
        match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Unknown => Rest::Nothing,
            Form::Whole(body) => Rest::Whole(body),
            Form::Objects(reader) if reader.is_at_end() => Rest::Nothing,
            Form::Objects(_) => Rest::Cut,
            Form::Events(reader) => reader.end().map_or(Rest::Nothing, Rest::Event),
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
            Some(b'{' | b'[') if self.streams_json => Form::Objects(ObjectReader::default()),
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
            let (mut body, mut events) = (Body::new("acme", false), Vec::new());
            bytes.chunks(size).for_each(|it| body.feed(it, &mut events).unwrap());
            let got: Vec<&str> = events.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(got, names, "pieces of {size}");
            assert_eq!(body.end(), want, "pieces of {size}");
        }
    }

    #[test]
    fn the_first_byte_tells_how_it_is_written() {
        let last = Event { name: "b".into(), data: b"2".into() };
        let events = b" \r\nevent: a\ndata: 1\n\nevent: b\ndata: 2";
        check(events, &["a"], Rest::Event(last));
        check(b"\n{\"a\":1}", &[], Rest::Whole(b"{\"a\":1}".into()));
        check(b"[1]\n", &[], Rest::Whole(b"[1]\n".into()));
        check(b" ", &[], Rest::Nothing);
    }

    #[test]
    fn a_page_is_told_as_such() {
        let fault = Body::new("acme", false).feed(b"\n<!doctype html>", &mut Vec::new());
        assert!(matches!(&fault, Err(Fault::Refused(it)) if it.contains("llm.providers.acme")));
    }

    #[test]
    fn one_piece_without_end_is_refused() {
        let mut body = Body::new("acme", false);
        let piece = vec![b'['; 1024 * 1024];
        let fed = (0..33).map(|_| body.feed(&piece, &mut Vec::new()));
        assert_eq!(fed.filter(Result::is_err).count(), 1);
    }
}
