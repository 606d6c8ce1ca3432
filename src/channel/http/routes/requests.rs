//! What callers send, as typed values: JSON bodies and the query of the audit
//! route. Pure; every refusal names the field. A field that is `null` is not
//! given; one that is not known is refused, so that a typing mistake is seen.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::channel::http::engine::AuditFilter;
use crate::clock::Time;
use crate::config::ModelRef;
use crate::tool::CommandCall;

/// Why a request is wrong, for the caller: 400.
pub(super) type Checked<T> = Result<T, String>;

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
        let mut fields = Fields::parse(body)?;
        let tool = fields.required("tool", text)?;
        let params = fields.required("params", object)?;
        let session_key = fields.optional("sessionKey", text)?;
        // Which model asks changes nothing yet; it must be well-formed.
        fields.optional("activeModel", model)?;
        fields.nothing_else()?;
        Ok(Self { tool, params: Value::Object(params), session_key })
    }
}

impl CommandRequest {
    pub(in crate::channel::http) fn parse(body: &[u8]) -> Checked<Self> {
        let mut fields = Fields::parse(body)?;
        let call = CommandCall {
            argv: fields.required("argv", argv)?,
            cwd: fields.optional("cwd", text)?.unwrap_or_default(),
            env: fields.optional("env", env)?.unwrap_or_default(),
            timeout: fields.optional("timeoutSeconds", seconds)?,
        };
        let session_key = fields.optional("sessionKey", text)?;
        fields.nothing_else()?;
        Ok(Self { call, session_key })
    }
}

impl PromptBody {
    pub(super) fn parse(body: &[u8]) -> Checked<Self> {
        let mut fields = Fields::parse(body)?;
        let message = fields.required("message", text)?;
        let session_key = fields.optional("sessionKey", text)?;
        let model = fields.optional("model", model)?;
        fields.nothing_else()?;
        Ok(Self { message, session_key, model })
    }
}

/// The filters of `GET /api/audit`, as on the command line.
pub(super) fn audit_filter(query: Vec<(String, String)>, now: Time) -> Checked<AuditFilter> {
    let mut filter = AuditFilter::default();
    for (name, value) in query {
        match name.as_str() {
            "agent" => filter.agent = Some(value),
            "tool" => filter.tool = Some(value),
            "denied" => filter.denied = flag(&value)?,
            "since" => filter.since = Some(now.before(span(&value)?)),
            other => return Err(format!("`{other}` is no filter: agent, tool, denied, since are")),
        }
    }
    Ok(filter)
}

fn flag(value: &str) -> Checked<bool> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("`denied` must be true or false".into()),
    }
}

/// `30s`, `10m`, `1h`, `7d`.
fn span(text: &str) -> Checked<Duration> {
    let wrong = || "`since` must be a span such as 30s, 10m, 1h or 7d".to_owned();
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    let count = digits.parse::<u32>().ok().filter(|_| is_number).ok_or_else(wrong)?;
    Ok(Duration::from_secs(u64::from(count) * seconds))
}

/// The fields of a JSON object, taken out one by one.
struct Fields(Map<String, Value>);

impl Fields {
    fn parse(body: &[u8]) -> Checked<Self> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err("the body must be a JSON object".into()),
            Err(error) => Err(format!("the body is not JSON: {error}")),
        }
    }

    fn optional<T>(&mut self, name: &str, read: fn(Value) -> Checked<T>) -> Checked<Option<T>> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).map_err(|it| format!("`{name}` {it}")),
        }
    }

    fn required<T>(&mut self, name: &str, read: fn(Value) -> Checked<T>) -> Checked<T> {
        self.optional(name, read)?.ok_or_else(|| format!("`{name}` is missing"))
    }

    fn nothing_else(self) -> Checked<()> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("`{name}` is not a field of this request")),
        }
    }
}

fn text(value: Value) -> Checked<String> {
    match value {
        Value::String(text) if !text.contains('\0') => Ok(text),
        Value::String(_) => Err("must not hold a NUL".into()),
        _ => Err("must be a string".into()),
    }
}

fn object(value: Value) -> Checked<Map<String, Value>> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err("must be an object".into()),
    }
}

fn model(value: Value) -> Checked<ModelRef> {
    let mut fields = Fields(object(value)?);
    let provider = fields.required("provider", text)?;
    let model = fields.required("modelId", text)?;
    fields.nothing_else()?;
    Ok(ModelRef { provider, model })
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
        check(PromptBody::parse, r#"{"message":"a","model":{"provider":"p"}}"#, "`modelId`");
    }

    #[test]
    fn audit_filters_are_those_of_the_command_line() {
        let parse = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            audit_filter(pairs.collect(), Time::from_unix_millis(3_600_000))
        };
        let want = AuditFilter {
            agent: Some("a".into()),
            tool: None,
            denied: true,
            since: Some(Time::from_unix_millis(0)),
        };
        assert_eq!(parse(&[("agent", "a"), ("denied", ""), ("since", "1h")]), Ok(want));
        for wrong in ["", "h", "1", "1x", "-1h", "1é", "99999999999d"] {
            assert!(parse(&[("since", wrong)]).is_err(), "{wrong}");
        }
        assert!(parse(&[("agnt", "a")]).is_err());
    }
}
