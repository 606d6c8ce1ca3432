//! `beige/session/*`: sessions made, found, listed, and the turn that runs in one.

use serde_json::{Value, json};

use super::{Answered, Asked, Method};
use crate::error::{Error, Kind, Result};
use crate::gateway::SessionChange;
use crate::gateway::fields::{Fields, key, name, object, text, yes_or_no};
use crate::message::{Message, Usage};
use crate::plugin::hooks::Hook;
use crate::session::{Found, Listed, Page, Which};
use crate::turn::TurnEvent;
use crate::worker::Cancel;

/// Sessions in a list, and messages that are looked at for what they took.
const MOST: usize = 10_000;

pub(super) const METHODS: &[Method] = &[
    Method { name: "session/new", fields: &["sessionKey", "agentName"], answer: new },
    Method {
        name: "session/create",
        fields: &["sessionKey", "agentName", "metadata"],
        answer: create,
    },
    Method { name: "session/list", fields: &["agentName", "includeToolSessions"], answer: list },
    Method {
        name: "session/listKeys",
        fields: &["agentName", "includeToolSessions"],
        answer: list_keys,
    },
    Method { name: "session/get", fields: &["sessionKey"], answer: get },
    Method { name: "session/usage", fields: &["sessionKey"], answer: usage },
    Method { name: "session/isActive", fields: &["sessionKey"], answer: is_active },
    Method { name: "session/abort", fields: &["sessionKey"], answer: abort },
    Method { name: "session/steer", fields: &["sessionKey", "text"], answer: steer },
    Method { name: "session/compact", fields: &["sessionKey"], answer: compact },
    Method { name: "session/dispose", fields: &["sessionKey"], answer: dispose },
];

fn new(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    begin(asked, fields).map(|_| json!({}))
}

fn create(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let listed = begin(asked, fields)?;
    Ok(json!({"sessionFile": listed.session_file.display().to_string()}))
}

fn begin(asked: &Asked<'_>, fields: &mut Fields) -> Result<Listed, super::Trouble> {
    let key = fields.required("sessionKey", key)?;
    let agent = fields.required("agentName", name)?;
    let metadata = fields.optional("metadata", object)?;
    super::settings::check_length(metadata.as_ref())?;
    let change = SessionChange::New { key, metadata };
    Ok(asked.handle.change_session_by(Some(asked.plugin()), &agent, &change)?)
}

/// Whose sessions, and which of them.
fn which(asked: &Asked<'_>, fields: &mut Fields) -> Result<(String, bool), super::Trouble> {
    let agent = fields.required("agentName", name)?;
    asked.handle.require_agent(&agent)?;
    Ok((agent, fields.optional("includeToolSessions", yes_or_no)?.unwrap_or(false)))
}

fn list(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let (agent, of_agents_too) = which(asked, fields)?;
    let which = Which { agent: Some(agent), of_agents_too };
    let mut sessions = Vec::new();
    asked.handle.sessions(&which, &mut |it| {
        sessions.push(json!({
            "sessionId": it.session_id,
            "sessionFile": it.session_file.display().to_string(),
            "agentName": it.agent_name,
            "createdAt": it.created_at,
            "firstMessage": asked.handle.mask(&it.first_message),
        }));
        Ok(sessions.len() < MOST)
    })?;
    Ok(json!({"sessions": sessions}))
}

fn list_keys(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let (agent, of_agents_too) = which(asked, fields)?;
    let keys = asked.engine().store.keys_of(&agent, of_agents_too)?;
    let key = |(key, path): (String, std::path::PathBuf)| json!({"key": key, "sessionFile": path.display().to_string()});
    Ok(json!({"keys": keys.into_iter().map(key).collect::<Vec<Value>>()}))
}

fn get(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let keyed = asked.engine().store.keyed(&fields.required("sessionKey", key)?)?;
    let entry = keyed.map(|it| {
        let mut entry = json!({
            "agentName": it.agent,
            "sessionFile": it.path.display().to_string(),
            "createdAt": it.created_at,
        });
        if !it.metadata.is_empty() {
            entry["metadata"] = Value::Object(it.metadata);
        }
        entry
    });
    Ok(json!({"entry": entry}))
}

/// What the answers that stand in the session took, the newest of a long one.
fn usage(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    if asked.engine().store.owner(&session)?.is_none() {
        return Ok(json!({"usage": null}));
    }
    let mut sum = Usage::default();
    history(asked, &session, MOST, &mut |message| {
        if let Message::Assistant(it) = message {
            sum.input = sum.input.saturating_add(it.usage.input);
            sum.output = sum.output.saturating_add(it.usage.output);
            sum.cache_read = sum.cache_read.saturating_add(it.usage.cache_read);
            sum.cache_write = sum.cache_write.saturating_add(it.usage.cache_write);
        }
    })?;
    Ok(json!({"usage": {
        "inputTokens": sum.input,
        "outputTokens": sum.output,
        "cacheReadTokens": sum.cache_read,
        "cacheWriteTokens": sum.cache_write,
    }}))
}

fn is_active(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    // A one-shot has no hub that would be busy.
    let runs = asked.engine().bills.is_waited_for(&session, |_| true);
    Ok(json!({"active": runs || asked.handle.is_busy(&session)}))
}

fn abort(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let agent = asked.owner(&session)?;
    Ok(json!({"aborted": asked.handle.abort(&agent, &session)?}))
}

fn steer(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let said = fields.required("text", text)?;
    let agent = asked.owner(&session)?;
    asked.handle.steer(&agent, &session, &said)?;
    Ok(json!({}))
}

fn compact(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let agent = asked.owner(&session)?;
    let (mut before, mut why) = (0, None);
    let running = asked.handle.compact(&agent, &session)?;
    let mut each = |event| {
        if let TurnEvent::CompactionEnd { compacted, tokens_before, reason, .. } = event {
            before = tokens_before;
            why = (!compacted).then(|| reason.unwrap_or_else(|| "there is no summary".into()));
        }
    };
    match running.follow(&mut each, asked.request.cancel) {
        Some(TurnEvent::Done { .. }) => {}
        Some(TurnEvent::Error { message, .. }) => return Err(failed(&message).into()),
        _ => return Err(failed("it was called off").into()),
    }
    if let Some(why) = why {
        return Err(failed(&why).into());
    }
    let mut summary = String::new();
    history(asked, &session, 1, &mut |message| {
        if let Message::CompactionSummary(it) = message {
            summary = asked.handle.mask(&it.summary);
        }
    })?;
    Ok(json!({"tokensBefore": before, "summary": summary}))
}

fn failed(why: &str) -> Error {
    Error::new(Kind::Internal, format!("the session was not compacted: {why}"))
}

/// Nothing of a session is in memory but the turn that runs; its file stays.
fn dispose(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let agent = asked.owner(&session)?;
    if asked.handle.is_busy(&session) {
        asked.handle.abort(&agent, &session)?;
    }
    let (hook, by, cancel) = (Hook::SessionDisposed, Some(asked.plugin()), Cancel::never());
    asked.engine().tell_of_session(hook, &agent, &session, by, &cancel);
    Ok(json!({}))
}

/// The newest messages of the session that a key means.
fn history(
    asked: &Asked<'_>,
    key: &str,
    limit: usize,
    each: &mut dyn FnMut(Message),
) -> Result<()> {
    let found: Found = asked.engine().store.find(None, key)?;
    asked.engine().store.history(&found, &Page { limit, before: None }, &mut |told| {
        each(told.message);
        Ok(true)
    })?;
    Ok(())
}
