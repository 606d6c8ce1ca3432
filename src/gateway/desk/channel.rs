//! `beige/channels/*`: messages to people by the channels of plugins.

use serde_json::{Value, json};

use super::{Answered, Asked, Method};
use crate::gateway::fields::{Checked, Fields, name, text};
use crate::plugin::channels::ChannelMessage;

/// Longest message, in bytes.
const LONGEST: usize = 1024 * 1024;

pub(super) const METHODS: &[Method] = &[
    Method { name: "channels/list", fields: &[], answer: list },
    Method {
        name: "channels/send",
        fields: &["channel", "chatId", "threadId", "text", "parseMode"],
        answer: send,
    },
];

fn list(asked: &Asked<'_>, _: &mut Fields) -> Answered {
    Ok(json!({"channels": asked.engine().toolbox.plugins().channels()}))
}

fn send(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let channel = fields.required("channel", name)?;
    let message = ChannelMessage {
        chat_id: fields.required("chatId", address)?,
        thread_id: fields.optional("threadId", address)?,
        text: asked.handle.mask(&fields.required("text", words)?),
        parse_mode: fields.optional("parseMode", parse_mode)?,
    };
    let plugins = asked.engine().toolbox.plugins();
    plugins.send(&channel, &message, asked.request.cancel)?;
    Ok(json!({}))
}

/// Some know their chats by number.
fn address(value: Value) -> Checked<String> {
    match value {
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        value => name(value),
    }
}

fn words(value: Value) -> Checked<String> {
    let text = text(value)?;
    match text.len() {
        0 => Err("is empty".into()),
        1..=LONGEST => Ok(text),
        length => Err(format!("has {length} bytes, and may have {LONGEST}")),
    }
}

fn parse_mode(value: Value) -> Checked<String> {
    let mode = text(value)?;
    match mode.as_str() {
        "html" | "markdown" => Ok(mode),
        _ => Err("must be html or markdown".into()),
    }
}
