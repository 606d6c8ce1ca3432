//! Body of `POST /api/chat/stream`: a conversation in pi's form. Its own fields
//! are read strictly, those of the SDK (context, options, messages, tools)
//! leniently: what is not known of these is passed over, as an SDK adds some.
//! A message that does not read is refused, since a model would miss it.

use serde_json::{Map, Value};

use super::{Checked, Fields, fields_of, key, object, text};
use crate::config::ThinkingLevel;
use crate::gateway::ChatRequest;
use crate::gateway::fields::{count, each, level, list, message, string, within, yes_or_no};
use crate::message::Message;
use crate::provider::ToolDefinition;

/// What a body has.
const FIELDS: &[&str] = &["agentName", "provider", "modelId", "context", "options", "sessionKey"];

/// What is asked, and how it is to be told.
#[derive(Debug, PartialEq)]
pub(in crate::channel::http) struct ChatBody {
    pub(in crate::channel::http) request: ChatRequest,
    /// Whether each event has the message so far.
    pub(in crate::channel::http) has_partial: bool,
}

/// `context`.
struct Context {
    system: String,
    messages: Vec<Message>,
    tools: Vec<ToolDefinition>,
}

/// `options`.
struct Options {
    thinking: ThinkingLevel,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    has_partial: bool,
}

impl ChatBody {
    pub(in crate::channel::http) fn parse(body: &[u8]) -> Checked<Self> {
        let mut fields = fields_of(body, FIELDS)?;
        let agent = fields.required("agentName", text)?;
        let model = fields.model()?;
        let context = fields.required("context", object)?;
        let options = fields.optional("options", object)?.unwrap_or_default();
        let session_key = fields.optional("sessionKey", key)?;
        let Context { system, messages, tools } = within("context", Context::of(context))?;
        let options = within("options", Options::of(options))?;
        let Options { thinking, max_tokens, temperature, has_partial } = options;
        let request = ChatRequest {
            agent,
            session_key,
            model,
            system,
            messages,
            tools,
            thinking,
            max_tokens,
            temperature,
            // With the whole message in each, fewer say as much.
            every_piece: !has_partial,
        };
        Ok(Self { request, has_partial })
    }
}

impl Context {
    fn of(fields: Map<String, Value>) -> Checked<Self> {
        let mut fields = Fields::any(fields);
        let system = fields.optional("systemPrompt", string)?.unwrap_or_default();
        let messages = each("messages", fields.required("messages", list)?, message)?;
        if messages.is_empty() {
            return Err("`messages` is empty: there is nothing to answer".into());
        }
        let tools = fields.optional("tools", list)?.unwrap_or_default();
        Ok(Self { system, messages, tools: each("tools", tools, tool)? })
    }
}

impl Options {
    fn of(fields: Map<String, Value>) -> Checked<Self> {
        let mut fields = Fields::any(fields);
        Ok(Self {
            thinking: fields.optional("reasoning", level)?.unwrap_or_default(),
            max_tokens: fields.optional("maxTokens", count)?,
            temperature: fields.optional("temperature", temperature)?,
            has_partial: fields.optional("partial", yes_or_no)?.unwrap_or(true),
        })
    }
}

fn tool(value: Value) -> Checked<ToolDefinition> {
    let mut fields = Fields::any(object(value)?);
    let name = fields.required("name", text)?;
    if name.is_empty() {
        return Err("`name` is empty".into());
    }
    let description = fields.optional("description", string)?.unwrap_or_default();
    let parameters = fields.optional("parameters", object)?.unwrap_or_else(no_parameters);
    Ok(ToolDefinition { name, description, parameters: Value::Object(parameters) })
}

fn no_parameters() -> Map<String, Value> {
    let empty = Value::Object(Map::new());
    [("type".to_owned(), "object".into()), ("properties".to_owned(), empty)].into_iter().collect()
}

fn temperature(value: Value) -> Checked<f64> {
    value.as_f64().filter(|it| *it >= 0.0).ok_or_else(|| "must be a number from 0 on".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::ModelRef;

    /// A sound body with this in place of its field at that pointer.
    fn body(pointer: &str, value: Value) -> Value {
        let mut body = json!({"provider": "p", "modelId": "m", "agentName": "a",
            "sessionKey": "tui:a:1", "options": {}, "context": {
                "systemPrompt": "s", "tools": [{"name": "exec", "description": "d",
                    "parameters": {"type": "object"}, "label": "passed over"}],
                "messages": [
                    {"role": "user", "content": "go", "timestamp": 1},
                    {"role": "assistant", "content": [{"type": "toolCall", "id": "c",
                        "name": "exec", "arguments": {}}]},
                    {"role": "toolResult", "toolCallId": "c", "toolName": "exec",
                        "content": [{"type": "text", "text": "ok"}]}]}});
        let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
        match body.pointer_mut(parent) {
            Some(Value::Object(fields)) => drop(fields.insert(name.to_owned(), value)),
            Some(Value::Array(list)) => list[name.parse::<usize>().unwrap_or(0)] = value,
            other => panic!("{pointer}: {other:?}"),
        }
        body
    }

    #[track_caller]
    fn parse(body: &Value) -> Checked<ChatBody> {
        ChatBody::parse(body.to_string().as_bytes())
    }

    #[track_caller]
    fn check(pointer: &str, value: Value, want: &str) {
        let parsed = parse(&body(pointer, value.clone()));
        assert!(
            parsed.as_ref().is_err_and(|it| it.contains(want)),
            "{pointer} {value}: {parsed:?}"
        );
    }

    #[test]
    fn a_conversation_reads() {
        let body = parse(&body("/options/reasoning", "high".into())).expect("sound");
        assert!(body.has_partial && !body.request.every_piece);
        let request = body.request;
        assert_eq!((request.messages.len(), request.tools.len()), (3, 1));
        assert_eq!(request.thinking, ThinkingLevel::High);
        assert_eq!(request.session_key.as_deref(), Some("tui:a:1"));
        assert_eq!(request.model, ModelRef { provider: "p".into(), model: "m".into() });
    }

    #[test]
    fn options_are_those_of_the_sdk_and_partial() {
        let given = json!({"partial": false, "maxTokens": 7, "temperature": 0, "apiKey": "x"});
        let body = parse(&body("/options", given)).expect("sound");
        assert!(!body.has_partial && body.request.every_piece);
        assert_eq!((body.request.max_tokens, body.request.temperature), (Some(7), Some(0.0)));
        for (name, value) in [
            ("reasoning", json!("most")),
            ("reasoning", json!(1)),
            ("maxTokens", json!(0)),
            ("maxTokens", json!(1.5)),
            ("maxTokens", json!("7")),
            ("temperature", json!(-1)),
            ("partial", json!("no")),
        ] {
            check(&format!("/options/{name}"), value, &format!("`options.{name}` must be"));
        }
        check("/options", json!([]), "`options` must be an object");
    }

    #[test]
    fn what_is_missing_is_named() {
        for name in ["provider", "modelId", "agentName", "context"] {
            check(&format!("/{name}"), Value::Null, &format!("`{name}` is missing"));
            check(&format!("/{name}"), json!(7), &format!("`{name}` must be"));
        }
        check("/context/messages", Value::Null, "`context.messages` is missing");
        check("/context/messages", json!([]), "`context.messages` is empty");
        check("/context/messages", json!("x"), "`context.messages` must be a list");
        check("/context/systemPrompt", json!(1), "`context.systemPrompt` must be");
        check("/sessionKey", json!("a\nb"), "`sessionKey`");
        check("/agent", json!("a"), "`agent` is not a field");
    }

    #[test]
    fn a_message_that_does_not_read_is_named() {
        let at = |number: usize| format!("/context/messages/{number}");
        for value in [
            json!({"role": "oracle", "content": "x"}),
            json!({"content": "x"}),
            json!({"role": "user", "content": 7}),
            json!({"role": "user", "content": "x", "timestamp": "now"}),
            json!({"role": "assistant", "content": "x", "provider": 7}),
        ] {
            check(&at(1), value, "`context.messages[1]` does not read");
        }
        check(&at(0), json!("hi"), "`context.messages[0]` must be an object");
        for role in ["user", "assistant", "toolResult"] {
            check(&at(0), json!({"role": role}), "`context.messages[0].content` is missing");
        }
        let result = json!({"role": "toolResult", "content": "x"});
        check(&at(2), result, "`context.messages[2].toolCallId` is missing");
    }

    #[test]
    fn a_block_that_does_not_read_is_named() {
        let content = |block: Value| json!([{"type": "text", "text": "x"}, block]);
        for (block, want) in [
            (json!({"type": "video"}), "` does not read"),
            (json!({"type": "text", "text": 7}), "` does not read"),
            (json!({"type": "toolCall", "name": "exec"}), ".id` is missing"),
            (json!({"type": "toolCall", "id": "c"}), ".name` is missing"),
            (json!({"type": "image", "mimeType": "image/png"}), ".data` is missing"),
            (json!({"type": "image", "data": "aGk="}), ".mimeType` is missing"),
        ] {
            let message = json!({"role": "assistant", "content": content(block)});
            let want = format!("`context.messages[1].content[1]{want}");
            check("/context/messages/1", message, &want);
        }
    }

    #[test]
    fn an_image_that_is_no_base64_is_named() {
        let message = |data: &str| {
            let image = json!({"type": "image", "data": data, "mimeType": "image/png"});
            json!({"role": "user", "content": [{"type": "text", "text": "x"}, image]})
        };
        let url = "data:image/png;base64,aGk=";
        for data in ["!!notbase64", "aGk", "aGkx=", "a===", "====", "aG=k", "aGk=aGk=", "aGk-", url]
        {
            let want = "`context.messages[0].content[1].data` is not base64";
            check("/context/messages/0", message(data), want);
        }
        for data in ["aGk=", "aA==", "aGkx", "+/+/", "aGkxaGk="] {
            let parsed = parse(&body("/context/messages/0", message(data)));
            assert!(parsed.is_ok(), "{data}: {parsed:?}");
        }
    }

    #[test]
    fn a_tool_that_does_not_read_is_named() {
        let at = "/context/tools/0";
        check(at, json!("exec"), "`context.tools[0]` must be an object");
        check(at, json!({}), "`context.tools[0].name` is missing");
        check(at, json!({"name": ""}), "`context.tools[0].name` is empty");
        check(at, json!({"name": "x", "parameters": 1}), "`context.tools[0].parameters` must be");
        let parsed = parse(&body(at, json!({"name": "x"}))).expect("sound");
        let parameters = &parsed.request.tools[0].parameters;
        assert_eq!(*parameters, json!({"type": "object", "properties": {}}));
    }
}
