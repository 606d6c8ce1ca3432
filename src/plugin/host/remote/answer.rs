//! What an HTTP answer of an MCP server means: one message, a stream of them, or
//! a refusal in the server's words. Its bytes are a stranger's: each message has
//! its bound, and what is neither is said to be so.

use std::io::{self, ErrorKind, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use ureq::Body;
use ureq::http::header::{AsHeaderName, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use ureq::http::{Response, StatusCode};

use crate::plugin::rpc::LONGEST;
use crate::plugin::rpc::weight::is_bearable;
use crate::provider::{Client, EventReader};

/// Bytes of a refusal that are read.
const LARGEST_REFUSAL: u64 = 8 * 1024;

/// How much of the server's words is told, in characters.
const TOLD: usize = 300;

/// Bytes of a message of which there may be many at a time.
const SMALL: usize = 1024 * 1024;

/// Bytes that are read at a time.
const PIECE: usize = 8 * 1024;

/// Why a message of ours has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nobody wants it any more.
    Cut,
    /// The server does not know the session, and has done nothing.
    Expired,
    /// The server says no, by this status.
    Refused(u16, String),
    /// Anything else, as what the plugin does.
    Lost(String),
}

/// How hearing ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The answer was one message.
    Whole,
    /// There is more, and nobody wants it.
    Enough,
    /// The stream has ended.
    Ended,
}

/// Lets an answer that is one through; `has_session`: the request named one.
pub(super) fn check(
    response: Response<Body>,
    client: &Client,
    has_session: bool,
) -> Result<Response<Body>, Trouble> {
    let status = response.status();
    if status.is_success() {
        let coding = header(response.headers(), CONTENT_ENCODING);
        if !coding.is_empty() && !coding.eq_ignore_ascii_case("identity") {
            let what = "sends an answer that is packed, which was not asked for and is not read";
            return Err(Trouble::Lost(what.into()));
        }
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    if status.is_redirection() {
        let place = told(&client.mask(header(&head.headers, LOCATION)));
        let what = format!(
            "HTTP {status}, a redirect to `{place}`, which is not followed, since the headers \
             would go with it; `url` must be the right address itself"
        );
        return Err(Trouble::Refused(status.as_u16(), what));
    }
    let mut text = Vec::new();
    // What breaks off is better than nothing.
    let _ = body.into_reader().take(LARGEST_REFUSAL).read_to_end(&mut text);
    let text = client.mask(&String::from_utf8_lossy(&text));
    Err(refused(status, &text, has_session))
}

/// What a refusal means. A server that has lost its sessions may say so by 400
/// as well as by the 404 of the standard.
fn refused(status: StatusCode, text: &str, has_session: bool) -> Trouble {
    let says_session = || text.to_ascii_lowercase().contains("session");
    let code = status.as_u16();
    match code {
        404 if has_session => return Trouble::Expired,
        400 if has_session && says_session() => return Trouble::Expired,
        _ => {}
    }
    let words = words(text);
    let what = if words.is_empty() { String::new() } else { format!(": {words}") };
    match code {
        408 | 429 | 500.. => Trouble::Lost(format!("answers HTTP {status}{what}")),
        _ => Trouble::Refused(code, format!("HTTP {status}{what}")),
    }
}

/// The server's words: those of an error in JSON, or a plain text; of a page for
/// people nothing.
fn words(text: &str) -> String {
    let text = text.trim();
    match serde_json::from_str::<Value>(text) {
        Ok(value) => {
            let error = &value["error"];
            let description = &value["error_description"];
            let words = [&error["message"], description, error, &value["message"], &value];
            told(words.into_iter().find_map(Value::as_str).unwrap_or_default())
        }
        Err(_) if text.starts_with('<') => String::new(),
        Err(_) => told(text),
    }
}

/// Who hears an answer.
pub(super) struct Ear<'a> {
    /// Whether nothing more is wanted.
    pub(super) is_enough: &'a dyn Fn() -> bool,
    /// Gets each message.
    pub(super) take: &'a dyn Fn(&[u8]),
    /// Held by whoever has a large message, so that there is one at a time.
    pub(super) large: &'a Mutex<()>,
}

/// Hears the answer of a server, until there is no more or it is enough. `last_id`
/// becomes what the rest of a stream can be asked for by.
pub(super) fn hear(
    response: Response<Body>,
    ear: &Ear<'_>,
    last_id: &mut Option<String>,
) -> Result<Heard, Trouble> {
    let media = header(response.headers(), CONTENT_TYPE);
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let status = response.status();
    let reader = response.into_body().into_reader();
    match media.as_str() {
        "application/json" => ear.whole(reader),
        "text/event-stream" => ear.events(reader, last_id),
        "" if status != StatusCode::OK => {
            Err(Trouble::Lost(format!("answers a request by HTTP {status} and no message")))
        }
        other => {
            let what = "and not by `application/json` or `text/event-stream`";
            Err(Trouble::Lost(format!("answers by `{}` {what}", told(other))))
        }
    }
}

/// Whether it is a stream of events.
pub(super) fn is_stream(response: &Response<Body>) -> bool {
    header(response.headers(), CONTENT_TYPE).to_ascii_lowercase().starts_with("text/event-stream")
}

impl Ear<'_> {
    fn whole(&self, mut reader: impl Read) -> Result<Heard, Trouble> {
        let (mut message, mut piece) = (Vec::new(), vec![0; PIECE]);
        let mut held = None;
        loop {
            let count = read(&mut reader, &mut piece).map_err(|it| {
                Trouble::Lost(format!("broke off in the middle of its answer: {it}"))
            })?;
            message.extend_from_slice(&piece[..count]);
            if message.len() > LONGEST {
                return Err(too_long());
            }
            if count == 0 {
                bearable(&message)?;
                (self.take)(&message);
                return Ok(Heard::Whole);
            }
            if message.len() > SMALL {
                held.get_or_insert_with(|| self.place());
            }
        }
    }

    fn events(
        &self,
        mut reader: impl Read,
        last_id: &mut Option<String>,
    ) -> Result<Heard, Trouble> {
        let mut events = EventReader::default();
        let mut piece = vec![0; PIECE];
        // How much came since the last event, at most, and the place for it.
        let (mut begun, mut held) = (0, None);
        loop {
            // How a stream breaks off matters to nobody: it may be taken up again.
            let count = read(&mut reader, &mut piece).unwrap_or(0);
            if count == 0 {
                return Ok(Heard::Ended);
            }
            let mut found = Vec::new();
            let fed = events.feed(&piece[..count], &mut found);
            begun += count;
            let has_ended = !found.is_empty();
            // Other names are none of the protocol's, and no data is a sign of life.
            found.retain(|it| matches!(it.name.as_str(), "" | "message"));
            for event in found.iter().filter(|it| !it.data.trim_ascii().is_empty()) {
                bearable(&event.data)?;
                (self.take)(&event.data);
            }
            if let Some(id) = events.last_id() {
                *last_id = Some(id.to_owned());
            }
            if (self.is_enough)() {
                return Ok(Heard::Enough);
            }
            fed.map_err(|_| too_long())?;
            if has_ended {
                (begun, held) = (0, None);
            }
            if begun > SMALL {
                held.get_or_insert_with(|| self.place());
            }
        }
    }

    /// Waits until no other large message is held. Whoever has one reads it within
    /// the time of its call.
    fn place(&self) -> MutexGuard<'_, ()> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(reader: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn bearable(message: &[u8]) -> Result<(), Trouble> {
    let what = || Trouble::Lost("sent a message that takes too much memory to read".into());
    is_bearable(message).then_some(()).ok_or_else(what)
}

fn too_long() -> Trouble {
    Trouble::Lost(format!("sent a message of more than {LONGEST} bytes"))
}

/// A header that is text; else nothing.
pub(super) fn header(headers: &HeaderMap, name: impl AsHeaderName) -> &str {
    headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default()
}

fn told(text: &str) -> String {
    text.replace(char::is_control, " ").chars().take(TOLD).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[track_caller]
    fn check_refused(status: u16, text: &str, has_session: bool, want: &Trouble) {
        let status = StatusCode::from_u16(status).unwrap_or_default();
        assert_eq!(refused(status, text, has_session), *want, "{text}");
    }

    #[test]
    fn a_refusal_is_the_servers_words_and_no_page() {
        let refused = |code, text: &str| Trouble::Refused(code, text.into());
        check_refused(401, "", false, &refused(401, "HTTP 401 Unauthorized"));
        let page = "<!doctype html><h1>401</h1>";
        check_refused(401, page, false, &refused(401, "HTTP 401 Unauthorized"));
        let json = r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"no\nway"},"id":null}"#;
        check_refused(403, json, false, &refused(403, "HTTP 403 Forbidden: no way"));
        let oauth = r#"{"error":"invalid_token","error_description":"it has expired"}"#;
        check_refused(401, oauth, true, &refused(401, "HTTP 401 Unauthorized: it has expired"));
        let long = "x".repeat(9_000);
        let want = format!("HTTP 410 Gone: {}", &long[..TOLD]);
        check_refused(410, &long, true, &refused(410, &want));
        let lost = "answers HTTP 503 Service Unavailable: busy";
        check_refused(503, "busy", true, &Trouble::Lost(lost.into()));
    }

    #[test]
    fn a_session_that_is_over_is_told_from_what_is_not_there() {
        check_refused(404, "", true, &Trouble::Expired);
        check_refused(404, "", false, &Trouble::Refused(404, "HTTP 404 Not Found".into()));
        check_refused(400, "Bad Request: No valid session ID provided", true, &Trouble::Expired);
        let text = "HTTP 400 Bad Request: odd";
        check_refused(400, "odd", true, &Trouble::Refused(400, text.into()));
    }

    #[track_caller]
    fn check_events(stream: &str, enough: usize, want: &[&str], heard: Heard, id: Option<&str>) {
        let taken = RefCell::new(Vec::new());
        let take = |it: &[u8]| taken.borrow_mut().push(String::from_utf8_lossy(it).into_owned());
        let mut last_id = None;
        let is_enough = || taken.borrow().len() >= enough;
        let ear = Ear { is_enough: &is_enough, take: &take, large: &Mutex::default() };
        let got = ear.events(stream.as_bytes(), &mut last_id);
        assert_eq!((got, last_id.as_deref()), (Ok(heard), id), "{stream}");
        assert_eq!(*taken.borrow(), want);
    }

    #[test]
    fn a_stream_gives_its_messages() {
        let stream = "id: 1\ndata\n\n: ping\n\nevent: message\nid: 2\ndata: {}\n\n";
        check_events(stream, 9, &["{}"], Heard::Ended, Some("2"));
        check_events("event: endpoint\ndata: /sse\n\ndata: a\n\n", 1, &["a"], Heard::Enough, None);
        check_events("data: cut", 9, &[], Heard::Ended, None);
    }

    #[test]
    fn a_message_without_end_is_cut() {
        let ear = Ear { is_enough: &|| false, take: &|_| (), large: &Mutex::default() };
        assert_eq!(ear.whole(io::repeat(b'x')), Err(too_long()));
        assert_eq!(ear.events(io::repeat(b'x'), &mut None), Err(too_long()));
        assert!(ear.large.try_lock().is_ok(), "its place is given back");
    }
}
