//! What a request of a test is made of, in short forms, and what is sent of it.

use serde_json::{Value, json};

use crate::config::{ModelFacts, ModelRef, ThinkingLevel};
use crate::message::Message;
use crate::provider::{Origin, Provider, Request, ToolDefinition, Wire};

/// Where a model is asked.
pub(in crate::provider) const HERE: &str = "https://here";

/// A dialect, and what its tests want of every body.
#[derive(Clone, Copy)]
pub(in crate::provider) struct Form {
    /// The protocol's name.
    pub(in crate::provider) api: &'static str,
    /// The dialect of the provider of that name.
    pub(in crate::provider) dialect: fn(&str) -> Box<dyn Provider>,
    /// Refuses what the strictest server of that model would.
    pub(in crate::provider) check: fn(&Value, &ModelRef) -> Result<(), String>,
    /// The conversation in a body.
    pub(in crate::provider) conversation: fn(Value) -> Value,
}

/// A request without its conversation.
pub(in crate::provider) struct Asked {
    pub(in crate::provider) form: Form,
    pub(in crate::provider) model: ModelRef,
    pub(in crate::provider) facts: ModelFacts,
    pub(in crate::provider) system: &'static str,
    pub(in crate::provider) tools: Vec<ToolDefinition>,
    pub(in crate::provider) thinking: ThinkingLevel,
    pub(in crate::provider) max_tokens: Option<u64>,
    pub(in crate::provider) temperature: Option<f64>,
    /// Whether it takes nothing back that is opaque.
    pub(in crate::provider) is_stripped: bool,
}

impl Asked {
    pub(in crate::provider) fn of(form: Form, provider: &str, model: &str) -> Self {
        Self {
            form,
            model: ModelRef { provider: provider.into(), model: model.into() },
            facts: ModelFacts::default(),
            system: "",
            tools: Vec::new(),
            thinking: ThinkingLevel::Off,
            max_tokens: None,
            temperature: None,
            is_stripped: false,
        }
    }

    /// The same of a model that sees images.
    pub(in crate::provider) fn seeing(mut self) -> Self {
        self.facts.images = Some(true);
        self
    }

    /// The whole request, to that endpoint.
    pub(in crate::provider) fn wire(&self, conversation: &Value, endpoint: &str) -> Wire {
        let messages: Vec<Message> = serde_json::from_value(conversation.clone()).unwrap();
        let request = Request {
            system: self.system,
            tools: &self.tools,
            thinking: self.thinking,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            ..Request::new(&self.model, &self.facts, &messages)
        };
        let origin = Origin::new(&self.model, endpoint).speaking(self.form.api);
        let origin = if self.is_stripped { origin.without_opaque() } else { origin };
        (self.form.dialect)(&self.model.provider).encode(&request, &origin).unwrap()
    }

    /// Its body, which is sound.
    #[track_caller]
    pub(in crate::provider) fn body(&self, conversation: &Value) -> Value {
        let body = serde_json::from_slice(&self.wire(conversation, HERE).body).unwrap();
        assert_eq!((self.form.check)(&body, &self.model), Ok(()), "{body:#}\n{conversation:#}");
        body
    }

    /// The conversation as it is sent.
    #[track_caller]
    pub(in crate::provider) fn sent(&self, conversation: Value) -> Value {
        (self.form.conversation)(self.body(&conversation))
    }
}

pub(in crate::provider) fn user(content: Value) -> Value {
    json!({"role": "user", "content": content})
}

/// An answer that came from [`HERE`].
pub(in crate::provider) fn answer(provider: &str, model: &str, content: Value) -> Value {
    json!({"role": "assistant", "provider": provider, "model": model, "content": content,
        "stopReason": "stop", "beige": {"endpoint": HERE}})
}

pub(in crate::provider) fn call(id: &str) -> Value {
    json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {"command": "ls"}})
}

pub(in crate::provider) fn result(id: &str, content: Value) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "exec", "content": content})
}

pub(in crate::provider) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(in crate::provider) fn thought(text: &str, signature: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "thinkingSignature": signature})
}

pub(in crate::provider) fn image(kind: &str) -> Value {
    json!({"type": "image", "data": "aGk=", "mimeType": kind})
}

pub(in crate::provider) fn exec() -> ToolDefinition {
    ToolDefinition {
        name: "exec".into(),
        description: "Runs.".into(),
        parameters: json!({"type": "object", "properties": {}}),
    }
}

/// Refuses an object with any other field.
pub(in crate::provider) fn fields(value: &Value, known: &[&str]) -> Result<(), String> {
    let fields = value.as_object().ok_or_else(|| format!("no object: {value}"))?;
    let unknown = fields.keys().find(|it| !known.contains(&it.as_str()));
    unknown.map_or(Ok(()), |it| Err(format!("field {it} in {value}")))
}

/// Refuses what is no text or an empty one.
pub(in crate::provider) fn filled(text: &Value) -> Result<(), String> {
    match text.as_str() {
        Some(it) if !it.is_empty() => Ok(()),
        _ => Err(format!("no text: {text}")),
    }
}
