//! One request line of an agent's socket and its response, as JSON. Strict:
//! what is not known is refused, and a line takes no more memory than a call
//! that can be run. Knows no connection and no session.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::plugin::run::MAX_ARGS;
use crate::tool::Answer;

/// What an argument costs beside its bytes, for a process that gets it: its
/// end mark and its pointer.
const ARG_COST: usize = 9;

/// A request line, strictly.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Request {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    pub(super) tool: String,
    #[serde(deserialize_with = "arguments")]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) cwd: Option<String>,
    #[serde(default)]
    pub(super) stdin: Option<String>,
    #[serde(default)]
    pub(super) call: Option<String>,
    #[serde(default)]
    session_context: Option<SessionContext>,
}

/// What a client claims; all else in it is ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionContext {
    #[serde(default)]
    session_key: Option<String>,
}

impl Request {
    /// Reads a line into its fields and nothing else: what a line holds beside
    /// them takes no memory.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
        Typed::check(text)?;
        serde_json::from_str::<Self>(text).map_err(|it| it.to_string())?.checked()
    }

    /// The session that the client says it belongs to.
    pub(super) fn claimed_session(&self) -> Option<&str> {
        self.session_context.as_ref()?.session_key.as_deref()
    }

    fn checked(mut self) -> Result<Self, String> {
        if let Some(name) = self.field_with_nul() {
            return Err(format!("`{name}` holds a NUL character"));
        }
        if let Some(cwd) = &self.cwd {
            let relative = crate::tool::below_workspace(cwd);
            let relative = relative.ok_or_else(|| "`cwd` leaves /workspace".to_owned())?;
            self.cwd = Some(relative.to_owned());
        }
        Ok(self)
    }

    fn field_with_nul(&self) -> Option<&'static str> {
        let named = [("tool", Some(&self.tool)), ("cwd", self.cwd.as_ref())];
        let mut all = named.into_iter().chain(self.args.iter().map(|it| ("args", Some(it))));
        let found = all.find(|(_, text)| text.is_some_and(|it| it.contains('\0')));
        found.map(|(name, _)| name)
    }
}

/// The field that says how the others are to be read.
#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
}

impl Typed<'_> {
    fn check(text: &str) -> Result<(), String> {
        let typed: Typed<'_> = match text.trim_ascii_start().as_bytes().first() {
            Some(b'{') => serde_json::from_str(text).map_err(|it| it.to_string())?,
            _ => {
                serde_json::from_str::<IgnoredAny>(text).map_err(|it| it.to_string())?;
                return Err("a request is a JSON object".to_owned());
            }
        };
        match typed.kind.as_deref() {
            Some("tool_request") => Ok(()),
            Some(other) => {
                let shown: String = other.chars().take(100).collect();
                Err(format!("unknown type `{shown}`; it must be `tool_request`"))
            }
            None => Err("`type` is missing; it must be `tool_request`".to_owned()),
        }
    }
}

/// The arguments, as long as they are within [`MAX_ARGS`]: a list of a million
/// empty ones is a short line and much memory.
fn arguments<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Bounded;
    impl<'de> Visitor<'de> for Bounded {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of strings")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let (mut args, mut bytes) = (Vec::new(), 0);
            while let Some(arg) = list.next_element::<String>()? {
                bytes += arg.len() + ARG_COST;
                if bytes > MAX_ARGS {
                    return Err(de::Error::custom("`args` are over 1 MiB together"));
                }
                args.push(arg);
            }
            Ok(args)
        }
    }
    from.deserialize_seq(Bounded)
}

/// A response line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Response {
    #[serde(rename = "type")]
    kind: &'static str,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    exit_code: i32,
}

impl Response {
    pub(super) fn failure(error: impl Into<String>) -> Self {
        Self {
            kind: "tool_response",
            success: false,
            output: None,
            error: Some(error.into()),
            exit_code: 1,
        }
    }

    pub(super) fn of(answer: &Answer) -> Self {
        let text = answer.plain_text();
        let exit_code = answer.exit_code().unwrap_or(i32::from(answer.is_error));
        Self {
            kind: "tool_response",
            success: !answer.is_error,
            error: answer.is_error.then(|| text.clone()),
            output: Some(text),
            exit_code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(line: &str, want: &str) {
        match Request::parse(line.as_bytes()) {
            Ok(request) => panic!("took {request:?}"),
            Err(wrong) => assert!(wrong.contains(want), "{wrong:?} does not say {want:?}"),
        }
    }

    #[test]
    fn requests_are_read_strictly() {
        refused("{nope", "key must be a string");
        refused("[]", "a JSON object");
        refused("null", "a JSON object");
        refused(r#"{"type":"hello"}"#, "unknown type `hello`");
        refused(r#"{"tool":"a","args":[]}"#, "`type` is missing");
        refused(r#"{"type":"tool_request","args":[]}"#, "missing field `tool`");
        refused(r#"{"type":"tool_request","tool":"a"}"#, "missing field `args`");
        refused(r#"{"type":"tool_request","tool":"a","args":"x"}"#, "invalid type");
        refused(r#"{"type":"tool_request","tool":"a","args":[1]}"#, "invalid type");
        refused(r#"{"type":"tool_request","tool":"a","args":["\u0000"]}"#, "NUL");
        refused(r#"{"type":"tool_request","tool":"a","args":[],"cwd":"../../etc"}"#, "leaves");
        refused(r#"{"type":"tool_request","tool":"a","args":[],"agentName":"b"}"#, "unknown field");
        refused(r#"{"type":"tool_request","tool":"a\u0000","args":[]}"#, "`tool` holds a NUL");
        refused(r#"{"type":"tool_request","tool":"a","args":[],"cwd":"b\u0000"}"#, "`cwd` holds");
        refused(r#"{"type":7,"tool":"a","args":[]}"#, "invalid type");
        assert!(Request::parse(b"\xff\xfe").is_err());
    }

    #[test]
    fn many_small_arguments_are_refused_before_they_take_memory() {
        let many = vec![r#""""#; 200_000].join(",");
        refused(&format!(r#"{{"type":"tool_request","tool":"a","args":[{many}]}}"#), "over 1 MiB");
    }

    #[test]
    fn a_request_may_leave_out_all_but_three() {
        assert!(Request::parse(br#"{"type":"tool_request","tool":"a","args":["b"]}"#).is_ok());
    }
}
