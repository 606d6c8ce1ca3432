//! What callers send, as typed values: JSON bodies and the query of the audit
//! route. Pure; every refusal names the field. A field that is `null` is not
//! given; one that is not known is refused with the one that may be meant, so
//! that a typing mistake is seen.

mod chat;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::audit::{Filter, parse_since};
use crate::clock::Time;
use crate::config::ModelRef;
use crate::gateway::Detail;
pub(super) use crate::gateway::fields::{Checked, Fields, checked_key, key, text};
use crate::gateway::fields::{MODEL, model, object, yes_or_no};
use crate::tool::CommandCall;
use crate::usage::{By, Query};
pub(super) use chat::ChatBody;

/// Values that a body may hold: a short body of many small ones would take
/// many times its size in memory. As many as a command line can have words.
const MOST_VALUES: usize = 512 * 1024;

/// Body of `POST …/exec`.
#[derive(Debug, PartialEq)]
pub(super) struct ToolRequest {
    pub(super) tool: String,
    pub(super) params: Value,
    pub(super) session_key: Option<String>,
}

/// Body of `POST …/exec/stream`, and the request frame of an upgrade.
#[derive(Debug, PartialEq)]
pub(in crate::channel::http) struct CommandRequest {
    pub(in crate::channel::http) call: CommandCall,
    pub(in crate::channel::http) session_key: Option<String>,
}

/// Body of `POST …/prompt`.
#[derive(Debug, PartialEq)]
pub(super) struct PromptBody {
    pub(super) message: String,
    pub(super) session_key: Option<String>,
    pub(super) model: Option<ModelRef>,
}

impl ToolRequest {
    pub(super) fn parse(body: &[u8]) -> Checked<Self> {
        let known = &["tool", "params", "sessionKey", "activeModel"];
        let mut fields = fields_of(body, known)?;
        let tool = fields.required("tool", text)?;
        let params = fields.required("params", object)?;
        let session_key = fields.optional("sessionKey", text)?;
        // Which model asks changes nothing yet; it must be well-formed.
        fields.optional("activeModel", model)?;
        Ok(Self { tool, params: Value::Object(params), session_key })
    }
}

impl CommandRequest {
    pub(in crate::channel::http) fn parse(body: &[u8]) -> Checked<Self> {
        let known = &["argv", "cwd", "env", "timeoutSeconds", "sessionKey"];
        let mut fields = fields_of(body, known)?;
        let call = CommandCall {
            argv: fields.required("argv", argv)?,
            cwd: fields.optional("cwd", text)?.unwrap_or_default(),
            env: fields.optional("env", env)?.unwrap_or_default(),
            timeout: fields.optional("timeoutSeconds", seconds)?,
        };
        let session_key = fields.optional("sessionKey", text)?;
        Ok(Self { call, session_key })
    }
}

impl PromptBody {
    pub(super) fn parse(body: &[u8]) -> Checked<Self> {
        Self::of(&mut fields_of(body, &["message", "sessionKey", "model"])?)
    }

    /// The same of a stream, and what of the turn it is told.
    pub(super) fn parse_of_stream(body: &[u8]) -> Checked<(Self, Detail)> {
        let mut fields = fields_of(body, &["message", "sessionKey", "model", "deltas"])?;
        let detail = match fields.optional("deltas", yes_or_no)? {
            Some(false) => Detail::Steps,
            _ => Detail::All,
        };
        Ok((Self::of(&mut fields)?, detail))
    }

    fn of(fields: &mut Fields) -> Checked<Self> {
        let message = fields.required("message", text)?;
        let session_key = fields.optional("sessionKey", text)?;
        let model = fields.optional("model", model)?;
        Ok(Self { message, session_key, model })
    }
}

/// Body of `POST …/sessions/new`.
pub(super) fn session_key(body: &[u8]) -> Checked<String> {
    fields_of(body, &["sessionKey"])?.required("sessionKey", key)
}

/// Body of `POST …/sessions/resume`.
pub(super) fn key_and_id(body: &[u8]) -> Checked<(String, String)> {
    let mut fields = fields_of(body, &["sessionKey", "sessionId"])?;
    Ok((fields.required("sessionKey", key)?, fields.required("sessionId", text)?))
}

/// Body of `PATCH …/sessions/:key/name`.
pub(super) fn session_name(body: &[u8]) -> Checked<String> {
    fields_of(body, &["name"])?.required("name", text)
}

/// Body of `POST …/sessions/:key/steer`.
pub(super) fn steering(body: &[u8]) -> Checked<String> {
    fields_of(body, &["message"])?.required("message", text)
}

/// Body of what takes none, such as `POST …/sessions/:key/abort`: empty, or an
/// object without fields.
pub(super) fn nothing(body: &[u8]) -> Checked<()> {
    match body.trim_ascii().is_empty() {
        true => Ok(()),
        false => fields_of(body, &[]).map(drop),
    }
}

/// Body of `PATCH …/sessions/:key/model`.
pub(super) fn model_choice(body: &[u8]) -> Checked<ModelRef> {
    fields_of(body, MODEL)?.model()
}

/// The filters of `GET /api/audit`, as on the command line.
pub(super) fn audit_filter(query: Vec<(String, String)>, now: Time) -> Checked<Filter> {
    let mut filter = Filter::default();
    for (name, value) in query {
        match name.as_str() {
            "agent" => filter.agent = Some(value),
            "tool" => filter.tool = Some(value),
            "denied" => filter.denied = flag(&value)?,
            "since" => filter.since = Some(since(&value, now)?),
            other => return Err(format!("`{other}` is no filter: agent, tool, denied, since are")),
        }
    }
    Ok(filter)
}

/// The query of `GET /api/usage`, as on the command line.
pub(super) fn usage_query(pairs: Vec<(String, String)>, now: Time) -> Checked<Query> {
    let mut query = Query::default();
    for (name, value) in pairs {
        match name.as_str() {
            "agent" => query.agent = Some(value),
            "since" => query.since = Some(since(&value, now)?),
            "by" => {
                query.by = By::named(&value).ok_or("`by` must be agent, model, day or session")?
            }
            other => return Err(format!("`{other}` is no filter: agent, since, by are")),
        }
    }
    Ok(query)
}

fn since(value: &str, now: Time) -> Checked<Time> {
    parse_since(value, now).map_err(|error| format!("`since`: {error}"))
}

fn flag(value: &str) -> Checked<bool> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("`denied` must be true or false".into()),
    }
}

/// The fields of a body, none of which is unknown.
pub(super) fn fields_of(body: &[u8], known: &[&str]) -> Checked<Fields> {
    bounded(body)?;
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Fields::of(fields, known),
        Ok(_) => Err("the body must be a JSON object".into()),
        Err(error) => Err(format!("the body is not JSON: {error}")),
    }
}

/// Refuses a body of more than [`MOST_VALUES`] before any of them is made, and
/// one in which an object has a field twice: programs disagree on which counts.
/// What is not JSON is left for the reading to say.
fn bounded(body: &[u8]) -> Checked<()> {
    let mut count = Counted::default();
    let counted = Count(&mut count).deserialize(&mut serde_json::Deserializer::from_slice(body));
    match (counted, count.twice) {
        (Err(_), Some(name)) => Err(format!("`{name}` is given twice in one object")),
        (Err(_), None) if count.values > MOST_VALUES => {
            Err(format!("the body holds more than {MOST_VALUES} values; pass large data as text"))
        }
        _ => Ok(()),
    }
}

/// What is seen of a document.
#[derive(Default)]
struct Counted {
    values: usize,
    /// A field that an object has twice.
    twice: Option<String>,
}

/// Counts the values of a document and keeps none; of an object that it is in,
/// the names.
struct Count<'a>(&'a mut Counted);

impl Count<'_> {
    fn add<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.0.values += 1;
        if self.0.values > MOST_VALUES {
            return Err(E::custom("too many values"));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Count<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, from: D) -> Result<(), D::Error> {
        self.add()?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Count<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Count(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            self.add()?;
            if let Some(twice) = names.replace(name) {
                self.0.twice = Some(twice);
                return Err(A::Error::custom("a field twice"));
            }
            fields.next_value_seed(Count(self.0))?;
        }
        Ok(())
    }
}

fn argv(value: Value) -> Checked<Vec<OsString>> {
    match value {
        Value::Array(words) if !words.is_empty() => words.into_iter().map(word).collect(),
        _ => Err("must be a list of at least one word".into()),
    }
}

/// A string, or a list of bytes for what is not UTF-8.
fn word(value: Value) -> Checked<OsString> {
    let bytes = match value {
        Value::String(text) => text.into_bytes(),
        Value::Array(bytes) => bytes.iter().map(byte).collect::<Checked<_>>()?,
        _ => return Err("must hold strings".into()),
    };
    match bytes.contains(&0) {
        true => Err("must not hold a NUL".into()),
        false => Ok(OsString::from_vec(bytes)),
    }
}

fn byte(value: &Value) -> Checked<u8> {
    let number = value.as_u64().and_then(|it| u8::try_from(it).ok());
    number.ok_or_else(|| "must hold strings, or lists of bytes".into())
}

fn env(value: Value) -> Checked<BTreeMap<String, String>> {
    let pairs = object(value)?.into_iter().map(|(name, value)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err("must have names without `=` and NUL".to_owned());
        }
        Ok((name, text(value)?))
    });
    pairs.collect()
}

fn seconds(value: Value) -> Checked<Duration> {
    let number = value.as_f64().and_then(|it| Duration::try_from_secs_f64(it).ok());
    number.filter(|it| !it.is_zero()).ok_or_else(|| "must be a number above 0".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: std::fmt::Debug + PartialEq>(
        parse: fn(&[u8]) -> Checked<T>,
        body: &str,
        want: &str,
    ) {
        assert_eq!(parse(body.as_bytes()).map_err(|it| it.contains(want)), Err(true), "{body}");
    }

    #[test]
    fn what_is_wrong_with_a_tool_request_is_named() {
        check(ToolRequest::parse, "{nope", "JSON");
        check(ToolRequest::parse, "", "JSON");
        check(ToolRequest::parse, "null", "object");
        check(ToolRequest::parse, "[]", "object");
        check(ToolRequest::parse, &"[".repeat(100_000), "JSON");
        check(ToolRequest::parse, r#"{"params":{}}"#, "`tool`");
        check(ToolRequest::parse, r#"{"tool":"exec"}"#, "`params`");
        check(ToolRequest::parse, r#"{"tool":7,"params":{}}"#, "`tool`");
        check(ToolRequest::parse, r#"{"tool":"exec","params":[]}"#, "`params`");
        check(ToolRequest::parse, r#"{"tool":"exec","params":{},"sessionKey":1}"#, "`sessionKey`");
        check(
            ToolRequest::parse,
            r#"{"tool":"exec","params":{},"activeModel":"m"}"#,
            "`activeModel`",
        );
        check(ToolRequest::parse, r#"{"tool":"exec","params":{},"parms":1}"#, "`parms`");
    }

    #[test]
    fn what_is_wrong_with_a_command_is_named() {
        for (field, value) in [
            ("argv", "[]"),
            ("argv", r#""ls""#),
            ("argv", "[1]"),
            ("argv", "[[256]]"),
            ("argv", "[[-1]]"),
            ("argv", r#"["a\u0000"]"#),
            ("cwd", "1"),
            ("env", r#"{"A=B":"c"}"#),
            ("env", r#"{"A":1}"#),
            ("timeoutSeconds", "0"),
            ("timeoutSeconds", "-1"),
            ("timeoutSeconds", "1e300"),
            ("timeoutSeconds", r#""1""#),
        ] {
            let body = match field {
                "argv" => format!(r#"{{"argv":{value}}}"#),
                _ => format!(r#"{{"argv":["ls"],"{field}":{value}}}"#),
            };
            check(CommandRequest::parse, &body, &format!("`{field}`"));
        }
        check(
            CommandRequest::parse,
            r#"{"argv":["a"],"conversation":"include"}"#,
            "`conversation`",
        );
    }

    #[test]
    fn a_body_of_too_many_values_is_refused_unmade() {
        let list =
            |count| format!(r#"{{"tool":"exec","params":{{"x":[{}0]}}}}"#, "0,".repeat(count));
        check(ToolRequest::parse, &list(MOST_VALUES), "more than");
        assert!(ToolRequest::parse(list(MOST_VALUES - 10).as_bytes()).is_ok());
        let fields: String = (0..MOST_VALUES).map(|it| format!("\"{it}\":0,")).collect();
        check(PromptBody::parse, &format!("{{{fields}\"message\":\"x\"}}"), "more than");
    }

    #[test]
    fn words_are_bytes_and_null_is_not_given() {
        let body = br#"{"argv":["a b",[255]],"cwd":"x","timeoutSeconds":0.5,"sessionKey":null}"#;
        let call = CommandCall {
            argv: vec!["a b".into(), OsString::from_vec(vec![255])],
            cwd: "x".into(),
            env: BTreeMap::new(),
            timeout: Some(Duration::from_millis(500)),
        };
        assert_eq!(CommandRequest::parse(body), Ok(CommandRequest { call, session_key: None }));
    }

    #[test]
    fn what_is_wrong_with_a_prompt_is_named() {
        check(PromptBody::parse, "x", "JSON");
        check(PromptBody::parse, "{}", "`message`");
        check(PromptBody::parse, r#"{"message":["a"]}"#, "`message`");
        check(PromptBody::parse, r#"{"message":"a","model":{"provider":"p"}}"#, "`model.modelId`");
    }

    #[test]
    fn a_stream_can_do_without_pieces() {
        let detail = |body: &str| PromptBody::parse_of_stream(body.as_bytes()).map(|it| it.1);
        assert_eq!(detail(r#"{"message":"a"}"#), Ok(Detail::All));
        assert_eq!(detail(r#"{"message":"a","deltas":true}"#), Ok(Detail::All));
        assert_eq!(detail(r#"{"message":"a","deltas":false}"#), Ok(Detail::Steps));
        assert!(detail(r#"{"message":"a","deltas":0}"#).is_err_and(|it| it.contains("`deltas`")));
        check(PromptBody::parse, r#"{"message":"a","deltas":false}"#, "`deltas`");
    }

    #[test]
    fn what_is_wrong_with_a_change_of_sessions_is_named() {
        check(session_key, "{}", "`sessionKey`");
        check(session_key, r#"{"sessionKey":7}"#, "`sessionKey`");
        check(session_key, r#"{"sessionKey":""}"#, "`sessionKey`");
        check(session_key, r#"{"sessionKey":"a\nb"}"#, "`sessionKey`");
        check(session_key, r#"{"sessionKey":"a","x":1}"#, "`x`");
        check(key_and_id, r#"{"sessionKey":"a"}"#, "`sessionId`");
        check(key_and_id, r#"{"sessionId":"a"}"#, "`sessionKey`");
        check(session_name, r#"{"name":null}"#, "`name`");
        check(model_choice, "{}", "`provider`");
        check(model_choice, r#"{"provider":"p"}"#, "`modelId` is missing");
        check(model_choice, r#"{"provider":"p","modelId":7}"#, "`modelId`");
        check(model_choice, r#"{"provider":"p","modelId":"m","x":1}"#, "`x`");
        let pair = Ok(("k".to_owned(), "i".to_owned()));
        assert_eq!(key_and_id(br#"{"sessionKey":"k","sessionId":"i"}"#), pair);
    }

    #[test]
    fn a_field_that_is_not_known_is_named_with_the_one_that_is_meant() {
        let of = |wrong: &str, meant: &str| {
            format!("`{wrong}` is not a field of this request; did you mean `{meant}`?")
        };
        check(steering, r#"{"mesage":"a"}"#, &of("mesage", "message"));
        check(steering, r#"{"message":"a","Message":"b"}"#, &of("Message", "message"));
        check(steering, r#"{"message":"a","x":1}"#, "`x` is not a field of this request, which");
        check(steering, r#"{"message":"a","":1}"#, "which takes `message`");
        check(session_key, r#"{"sesionKey":"a"}"#, &of("sesionKey", "sessionKey"));
        check(model_choice, r#"{"provider":"p","model":"m"}"#, &of("model", "modelId"));
        let body = r#"{"message":"a","model":{"provider":"p","model":"m"}}"#;
        check(PromptBody::parse, body, &of("model.model", "modelId"));
        check(
            CommandRequest::parse,
            r#"{"argv":[],"timeout":1}"#,
            &of("timeout", "timeoutSeconds"),
        );
    }

    #[test]
    fn a_field_that_is_given_twice_is_refused() {
        let twice = "`provider` is given twice";
        check(model_choice, r#"{"provider":"p","provider":"q","modelId":"m"}"#, twice);
        let body = r#"{"message":"a","model":{"provider":"p","provider":"p","modelId":"m"}}"#;
        check(PromptBody::parse, body, twice);
        check(steering, r#"{"message":"a","messag\u0065":"b"}"#, "`message` is given twice");
        let two = br#"{"tool":"exec","params":{"a":{"x":1},"b":{"x":1}}}"#;
        assert!(ToolRequest::parse(two).is_ok(), "in two objects it is two fields");
    }

    #[test]
    fn what_takes_no_field_is_given_none() {
        for body in ["", " \r\n", "{}"] {
            assert_eq!(nothing(body.as_bytes()), Ok(()), "{body:?}");
        }
        let named = "`force` is not a field of this request, which takes none";
        check(nothing, r#"{"force":true}"#, named);
        check(nothing, "{nope", "JSON");
        check(nothing, "[]", "object");
    }

    #[test]
    fn audit_filters_are_those_of_the_command_line() {
        let parse = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            audit_filter(pairs.collect(), Time::from_unix_millis(3_600_000))
        };
        let want = Filter {
            agent: Some("a".into()),
            tool: None,
            denied: true,
            since: Some(Time::from_unix_millis(0)),
        };
        assert_eq!(parse(&[("agent", "a"), ("denied", ""), ("since", "1h")]), Ok(want));
        assert!(parse(&[("since", "1é")]).is_err_and(|it| it.contains("`since`")));
        assert!(parse(&[("agnt", "a")]).is_err());
    }

    #[test]
    fn a_query_of_usage_is_that_of_the_command_line() {
        let parse = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            usage_query(pairs.collect(), Time::from_unix_millis(3_600_000))
        };
        let since = Some(Time::from_unix_millis(0));
        let want = Query { agent: Some("a".into()), since, by: By::Session };
        assert_eq!(parse(&[("agent", "a"), ("by", "session"), ("since", "1h")]), Ok(want));
        assert_eq!(parse(&[]), Ok(Query::default()));
        assert!(parse(&[("by", "tool")]).is_err_and(|it| it.contains("`by`")));
        assert!(parse(&[("since", "soon")]).is_err_and(|it| it.contains("`since`")));
        assert!(parse(&[("denied", "")]).is_err_and(|it| it.contains("`denied`")));
    }
}
