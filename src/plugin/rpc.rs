//! JSON-RPC 2.0 as MCP's stdio transport has it: one message a line, both
//! sides ask and answer. Pure: what a line says, and how a message is written.
//! What comes in is a plugin's and is read leniently; what is no message is
//! told apart from one, and never stops the rest.
//!
//! Source: the JSON-RPC 2.0 specification; MCP 2025-06-18, "Transports".

pub(super) mod lines;
pub(super) mod weight;

use serde::Serialize;
use serde_json::{Value, json};

/// Longest message either way, in bytes, without its newline.
pub const LONGEST: usize = 16 * 1024 * 1024;

/// Longest reason of a refusal that is kept, in characters.
const LONGEST_REASON: usize = 16 * 1024;

/// The method does not exist.
pub const NO_SUCH_METHOD: i64 = -32601;

/// The request makes no sense.
pub const BAD_PARAMS: i64 = -32602;

/// It could not be done.
pub const FAILED: i64 = -32000;

/// One message of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// It asks for something; the answer carries the same id.
    Request {
        /// A number or a text of the plugin's own choice.
        id: Value,
        /// What is asked for.
        method: String,
        /// With what; `null` if it says nothing.
        params: Value,
    },
    /// It tells something.
    Notice {
        /// What it tells.
        method: String,
        /// With what.
        params: Value,
    },
    /// It answers.
    Answer {
        /// Of our request.
        id: u64,
        /// What came of it.
        outcome: Result<Value, Refusal>,
    },
}

/// A request that was answered by an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of error it is.
    pub code: i64,
    /// In words.
    pub message: String,
}

impl Refusal {
    /// One in our words.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The messages of a line: one, or those of a batch; an error says why it is
/// none.
pub fn parse(line: &[u8]) -> Result<Vec<Message>, &'static str> {
    match document(line) {
        Ok(Value::Array(batch)) => batch.into_iter().map(message).collect(),
        Ok(value) => message(value).map(|it| vec![it]),
        Err(_) => Err("it is not JSON"),
    }
}

/// A document of JSON. Programs in JavaScript and Python can have half a
/// character in a text, cut off behind 4,000 units, and write it down; here that
/// becomes U+FFFD, for without the message somebody would wait for it.
fn document(json: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(json).or_else(|error| match with_whole_characters(json) {
        Some(mended) => serde_json::from_slice(&mended),
        None => Err(error),
    })
}

/// `None` if no half of a character stands in it.
fn with_whole_characters(json: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut mended: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(step) = json.get(at..)?.iter().position(|it| *it == b'\\') {
        at += step;
        let is_low = |it: u16| (0xDC00..0xE000).contains(&it);
        at += match unit(at) {
            Some(0xD800..0xDC00) if unit(at + 6).is_some_and(is_low) => 12,
            Some(0xD800..0xE000) => {
                let whole = mended.get_or_insert_with(|| json.to_vec());
                whole[at..at + 6].copy_from_slice(b"\\ufffd");
                6
            }
            _ => 2,
        };
    }
    mended
}

fn message(mut value: Value) -> Result<Message, &'static str> {
    let Some(fields) = value.as_object_mut() else { return Err("it is no object") };
    let id = fields.remove("id").filter(|it| !it.is_null());
    let method = match fields.remove("method") {
        Some(Value::String(method)) => Some(method),
        _ => None,
    };
    let params = fields.remove("params").unwrap_or_default();
    match (method, id) {
        (Some(method), Some(id)) => Ok(Message::Request { id, method, params }),
        (Some(method), None) => Ok(Message::Notice { method, params }),
        (None, Some(id)) => {
            let id = id.as_u64().ok_or("it answers what was never asked")?;
            let outcome = match (fields.remove("result"), fields.remove("error")) {
                (_, Some(error)) if !error.is_null() => Err(refusal(&error)),
                (Some(result), _) => Ok(result),
                (None, _) => return Err("it has neither `result` nor `error`"),
            };
            Ok(Message::Answer { id, outcome })
        }
        (None, None) => Err("it has neither `method` nor `id`"),
    }
}

fn refusal(error: &Value) -> Refusal {
    let message = error["message"].as_str().or(error.as_str()).unwrap_or("no reason was given");
    let mut rest = message.chars();
    let mut kept: String = rest.by_ref().take(LONGEST_REASON).collect();
    if rest.next().is_some() {
        kept.push('\u{2026}');
    }
    Refusal::new(error["code"].as_i64().unwrap_or(FAILED), kept)
}

/// A request of ours, as a line.
pub fn request(id: u64, method: &str, params: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    line(&Outgoing { jsonrpc: "2.0", id: Some(id), method, params })
}

/// A notice of ours, as a line.
pub fn notice(method: &str, params: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    line(&Outgoing { jsonrpc: "2.0", id: None, method, params })
}

/// Our answer to a request of the plugin, as a line.
pub fn answer(id: &Value, outcome: &Result<Value, Refusal>) -> serde_json::Result<Vec<u8>> {
    line(&match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(Refusal { code, message }) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    })
}

/// The same, where one that is too long becomes an error that says so.
pub(super) fn bounded_answer(id: &Value, outcome: &Result<Value, Refusal>) -> Vec<u8> {
    match answer(id, outcome) {
        Ok(line) if line.len() <= LONGEST => line,
        _ => {
            let what = format!("the answer is longer than {LONGEST} bytes");
            answer(id, &Err(Refusal::new(FAILED, what))).unwrap_or_default()
        }
    }
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a T,
}

fn line(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, want: Result<Message, &'static str>) {
        assert_eq!(parse(line.as_bytes()), want.map(|it| vec![it]), "{line}");
    }

    fn answered(id: u64, outcome: Result<Value, Refusal>) -> Result<Message, &'static str> {
        Ok(Message::Answer { id, outcome })
    }

    #[test]
    fn the_three_kinds_are_told_apart() {
        let (method, params) = ("a/b".to_owned(), json!({"x": 1}));
        check(
            r#"{"jsonrpc":"2.0","id":"q","method":"a/b","params":{"x":1}}"#,
            Ok(Message::Request { id: json!("q"), method: method.clone(), params: params.clone() }),
        );
        check(
            r#"{"jsonrpc":"2.0","method":"a/b","params":{"x":1}}"#,
            Ok(Message::Notice { method: method.clone(), params }),
        );
        check(r#"{"id":null,"method":"a/b"}"#, Ok(Message::Notice { method, params: Value::Null }));
        check(r#"{"id":3,"result":{"y":2}}"#, answered(3, Ok(json!({"y": 2}))));
        check(r#"{"id":3,"result":null}"#, answered(3, Ok(Value::Null)));
    }

    #[test]
    fn errors_are_read_however_they_are_said() {
        let refused = |code, message: &str| answered(3, Err(Refusal::new(code, message)));
        check(r#"{"id":3,"error":{"code":-1,"message":"no"}}"#, refused(-1, "no"));
        check(r#"{"id":3,"result":{},"error":"broken"}"#, refused(FAILED, "broken"));
        check(r#"{"id":3,"error":{}}"#, refused(FAILED, "no reason was given"));
        check(r#"{"id":3,"result":1,"error":null}"#, answered(3, Ok(json!(1))));
    }

    #[test]
    fn of_a_long_reason_the_beginning_is_kept() {
        let said = "\u{e4}".repeat(LONGEST / 4);
        let kept = refusal(&json!({"code": 1, "message": said})).message;
        assert_eq!(kept.chars().count(), LONGEST_REASON + 1);
        assert!(kept.ends_with("\u{e4}\u{2026}"));
        let said = "x".repeat(LONGEST_REASON);
        assert_eq!(refusal(&json!(said)).message, said);
    }

    #[test]
    fn what_is_no_message_says_why() {
        check("listening on port 3000", Err("it is not JSON"));
        check("17", Err("it is no object"));
        check("{}", Err("it has neither `method` nor `id`"));
        check(r#"{"id":1}"#, Err("it has neither `result` nor `error`"));
        check(r#"{"id":"mine","result":1}"#, Err("it answers what was never asked"));
        let deep = "[".repeat(100_000);
        check(&deep, Err("it is not JSON"));
    }

    #[test]
    fn half_a_character_costs_nobody_the_message() {
        let said = |text: &str, want: &str| {
            let line = format!(r#"{{"id":3,"result":{{"output":"{text}"}}}}"#);
            check(&line, answered(3, Ok(json!({"output": want}))));
        };
        said(r"a\ud83d", "a\u{fffd}");
        said(r"\ude00b\uD83D\uDE00", "\u{fffd}b\u{1f600}");
        said(r"\ud83d\ud83d\ude00\n", "\u{fffd}\u{1f600}\n");
        said(r"\\ud83d \udc00", "\\ud83d \u{fffd}");
        check(r#"{"id":3,"result":"\ud83"#, Err("it is not JSON"));
        check(r#"{"id":3,"result":"\ud83d\"#, Err("it is not JSON"));
    }

    #[test]
    fn a_batch_is_its_messages() {
        let batch = parse(br#"[{"id":1,"result":1},{"method":"m"}]"#);
        assert_eq!(batch.map(|it| it.len()), Ok(2));
        assert_eq!(parse(b"[]"), Ok(Vec::new()));
    }

    #[test]
    fn what_we_write_is_a_line_and_no_more() -> serde_json::Result<()> {
        let text = |it: Vec<u8>| String::from_utf8_lossy(&it).into_owned();
        let params = json!({"text": "a\nb"});
        assert_eq!(
            text(request(1, "m", &params)?),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"text\":\"a\\nb\"}}\n"
        );
        assert_eq!(
            text(notice("m", &json!({}))?),
            "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{}}\n"
        );
        let refused = answer(&json!("q"), &Err(Refusal::new(FAILED, "no")))?;
        assert_eq!(
            parse(&refused).map_err(|_| ()),
            Err(()),
            "an id of the plugin's is none of ours"
        );
        Ok(())
    }
}
