//! What is chosen and noted for single sessions: `beige/session/settings.*`,
//! `metadata.*`, `model.*`. A session need not exist yet.

use serde_json::{Map, Value, json};

use super::prompt::reply_to;
use super::{Answered, Asked, Method};
use crate::clock::now;
use crate::config::ModelRef;
use crate::error::{Error, Kind, Result};
use crate::gateway::fields::{
    Checked, Fields, any, key, level, model, name, object, within, yes_or_no,
};
use crate::gateway::turns::from_choice;
use crate::session::LARGEST_OF_ONE;

pub(super) const METHODS: &[Method] = &[
    Method { name: "session/settings.get", fields: &["sessionKey"], answer: get },
    Method { name: "session/settings.update", fields: &["sessionKey", "settings"], answer: update },
    Method { name: "session/settings.clear", fields: &["sessionKey"], answer: clear },
    Method { name: "session/metadata.get", fields: &["sessionKey", "key"], answer: get_metadata },
    Method {
        name: "session/metadata.set",
        fields: &["sessionKey", "key", "value"],
        answer: set_metadata,
    },
    Method { name: "session/model.get", fields: &["sessionKey"], answer: get_model },
    Method {
        name: "session/model.set",
        fields: &["sessionKey", "agentName", "provider", "modelId"],
        answer: set_model,
    },
    Method { name: "session/model.clear", fields: &["sessionKey"], answer: clear_model },
];

/// Refuses what a session has no room for.
pub(super) fn check_length(metadata: Option<&Map<String, Value>>) -> Result<()> {
    let length = metadata.map_or(0, |it| Value::Object(it.clone()).to_string().len());
    if length <= LARGEST_OF_ONE {
        return Ok(());
    }
    let what = format!("`metadata` has {length} bytes, and may have {LARGEST_OF_ONE}");
    Err(Error::new(Kind::TooLarge, what))
}

fn get(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    Ok(json!({"settings": asked.engine().store.settings(&session)?}))
}

fn update(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let settings = fields.required("settings", settings)?;
    if let Some(wanted) = settings.get("model").filter(|it| !it.is_null()) {
        // Chosen as any front end chooses it: only among the agent's models.
        choose(asked, &session, None, &model(wanted.clone())?)?;
    }
    let now = asked.engine().store.change_own_settings(&session, settings, now())?;
    Ok(json!({"settings": now}))
}

/// Settings that beige knows are checked; others are a plugin's own.
fn settings(value: Value) -> Checked<Map<String, Value>> {
    let settings = object(value)?;
    for (name, value) in settings.iter().filter(|(_, it)| !it.is_null()) {
        let value = value.clone();
        let checked = match name.as_str() {
            "verbose" | "streaming" => yes_or_no(value).map(drop),
            "thinkingLevel" => level(value).map(drop),
            "model" => model(value).map(drop),
            "replyTo" => reply_to(value).map(drop),
            "channel" => self::name(value).map(drop),
            "metadata" => object(value).map(drop),
            _ => self::name(name.as_str().into()).map(drop),
        };
        within(name, checked)?;
    }
    Ok(settings)
}

fn clear(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    asked.engine().store.clear_settings(&fields.required("sessionKey", key)?, now())?;
    Ok(json!({}))
}

/// What was noted for a session, else what it was made with.
fn get_metadata(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let wanted = fields.required("key", name)?;
    let mut noted = asked.engine().store.settings(&session)?;
    let noted = noted.get_mut("metadata").and_then(|it| it.as_object_mut()?.remove(&wanted));
    let value = match noted {
        Some(value) => Some(value),
        None => {
            let keyed = asked.engine().store.keyed(&session)?;
            keyed.and_then(|mut it| it.metadata.remove(&wanted))
        }
    };
    Ok(json!({"value": value}))
}

fn set_metadata(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let wanted = fields.required("key", name)?;
    let value = fields.optional("value", any)?;
    let mut noted = match asked.engine().store.settings(&session)?.remove("metadata") {
        Some(Value::Object(noted)) => noted,
        _ => Map::new(),
    };
    match value {
        Some(value) => drop(noted.insert(wanted, value)),
        None => drop(noted.remove(&wanted)),
    }
    let changed = [("metadata".to_owned(), Value::Object(noted))].into_iter().collect();
    asked.engine().store.change_own_settings(&session, changed, now())?;
    Ok(json!({}))
}

/// The model that answers next: the chosen one, else the agent's first.
fn get_model(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let (engine, chosen) = (asked.engine(), asked.engine().store.chosen_model(&session)?);
    let owner = engine.store.owner(&session)?;
    let agent = owner.and_then(|it| engine.config.agents.get(&it));
    let model = match agent {
        Some(agent) => Some(from_choice(agent, chosen.as_ref())[0].model.clone()),
        None => chosen,
    };
    let told = |it: ModelRef| json!({"provider": it.provider, "modelId": it.model});
    Ok(json!({"model": model.map(told)}))
}

fn set_model(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let agent = fields.optional("agentName", name)?;
    choose(asked, &session, agent, &fields.model()?)?;
    Ok(json!({}))
}

fn choose(
    asked: &Asked<'_>,
    session: &str,
    agent: Option<String>,
    model: &ModelRef,
) -> Result<(), super::Trouble> {
    let agent = match agent {
        Some(agent) => agent,
        None => asked.owner(session)?,
    };
    Ok(asked.handle.choose_model_by(Some(asked.plugin()), &agent, session, model)?)
}

fn clear_model(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let session = fields.required("sessionKey", key)?;
    let changed = [("model".to_owned(), Value::Null)].into_iter().collect();
    asked.engine().store.change_own_settings(&session, changed, now())?;
    Ok(json!({}))
}
