//! `beige/prompt`: a whole turn, as any front end asks for one. It is called off
//! when its plugin takes its word back or dies.

use serde_json::{Value, json};

use super::{Answered, Asked, Method, Trouble};
use crate::error::{Error, Kind};
use crate::gateway::fields::{Checked, Fields, any, key, model, name, object, text, yes_or_no};
use crate::gateway::{Detail, PromptRequest};
use crate::plugin::connection::Matter;
use crate::turn::TurnEvent;

pub(super) const METHODS: &[Method] = &[Method {
    name: "prompt",
    fields: &[
        "sessionKey",
        "agentName",
        "message",
        "channel",
        "replyTo",
        "model",
        "stream",
        "parentSessionKey",
    ],
    answer: prompt,
}];

fn prompt(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let channel = fields.optional("channel", name)?;
    let reply_to = fields.optional("replyTo", reply_to)?;
    let is_streamed = fields.optional("stream", yes_or_no)?.unwrap_or(false);
    let parent = fields.optional("parentSessionKey", key)?;
    let request = PromptRequest {
        agent: fields.required("agentName", name)?,
        message: fields.required("message", text)?,
        session_key: Some(session.clone()),
        model: fields.optional("model", model)?,
        channel: channel.clone().unwrap_or_else(|| asked.plugin().to_owned()),
        parent: parent.clone(),
    };
    asked.handle.require_agent(&request.agent)?;
    if let Some(parent) = &parent {
        believe(asked, parent)?;
    }
    let circle = || waits_for_itself(asked, &session);
    if asked.is_waited_for(&session) {
        return Err(circle());
    }
    let bills = &asked.engine().bills;
    let wait = parent.as_ref().map(|it| bills.wait(it, &session).ok_or_else(circle));
    let _wait = wait.transpose()?;
    // Whose key it is, before anything is noted under it.
    asked.engine().store.key_of(&request.agent, &session)?;
    keep_places(asked, &session, channel, reply_to)?;
    let detail = if is_streamed { Detail::All } else { Detail::End };
    let mut is_heard = is_streamed;
    let mut tell = |event: &TurnEvent| {
        let params = json!({"requestId": asked.request.id, "event": event});
        // Who takes none of it for so long is told the end alone.
        is_heard = is_heard && asked.request.connection.tell("beige/promptEvent", &params);
    };
    let mut each = |event: TurnEvent| tell(&event);
    let last = asked.handle.prompt_through(request, detail, &mut each, asked.request.cancel)?;
    tell(&last);
    response(last)
}

/// The answer to a prompt whose turn ended like that.
fn response(last: TurnEvent) -> Answered {
    match last {
        TurnEvent::Done { response, .. } | TurnEvent::Blocked { reason: response } => {
            Ok(json!({"response": response}))
        }
        TurnEvent::Error { message, .. } => Err(Error::new(Kind::Internal, message).into()),
        _ => Err(Error::new(Kind::Internal, "the turn broke off without an answer").into()),
    }
}

/// Only the call of a tool makes one session pay for another.
fn believe(asked: &Asked<'_>, parent: &str) -> Result<(), Trouble> {
    if asked.request.connection.works_on(&Matter::Tool(parent.to_owned())) {
        return Ok(());
    }
    let what = format!(
        "`parentSessionKey` is `{parent}`, and no call of a tool of this plugin runs in that \
         session: only such a call can have it pay"
    );
    Err(Error::new(Kind::Denied, what).into())
}

fn waits_for_itself(asked: &Asked<'_>, session: &str) -> Trouble {
    let plugin = asked.plugin();
    let what = format!(
        "what runs in the session `{session}` waits for the plugin '{plugin}' itself, and a \
         prompt would wait for its end; say it to that turn by beige/session/steer, or take \
         another session"
    );
    Error::new(Kind::Conflict, what).into()
}

/// Notes where the conversation takes place, for who looks at its settings.
fn keep_places(
    asked: &Asked<'_>,
    session: &str,
    channel: Option<String>,
    reply_to: Option<Value>,
) -> Result<(), Trouble> {
    let places = [("channel", channel.map(Value::from)), ("replyTo", reply_to)];
    let places = places.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?)));
    let places: serde_json::Map<_, _> = places.collect();
    if !places.is_empty() {
        asked.engine().store.change_own_settings(session, places, crate::clock::now())?;
    }
    Ok(())
}

/// `{channel, address}`; an address is a channel's own affair.
pub(super) fn reply_to(value: Value) -> Checked<Value> {
    let mut fields = Fields::of(object(value)?, &["channel", "address"])?;
    let channel = fields.required("channel", name)?;
    let address = fields.optional("address", any)?.unwrap_or_default();
    Ok(json!({"channel": channel, "address": address}))
}
