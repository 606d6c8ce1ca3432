//! `beige/config/get`: what a plugin may know of the configuration. Its own part,
//! which it was started with, and of the rest what is no secret.

use serde_json::{Value, json};

use super::{Answered, Asked, Method};
use crate::gateway::fields::Fields;
use crate::secret::Redactor;

pub(super) const METHODS: &[Method] = &[Method { name: "config/get", fields: &[], answer: get }];

fn get(asked: &Asked<'_>, _: &mut Fields) -> Answered {
    let engine = asked.engine();
    let mut config = serde_json::to_value(asked.handle.config()).unwrap_or_default();
    mask(&mut config, &engine.redactor);
    let own = engine.toolbox.registry().config_of(asked.plugin());
    config["plugins"] = json!({asked.plugin(): {"config": own}});
    let names: Vec<&String> = engine.config.agents.keys().collect();
    Ok(json!({"config": config, "agentNames": names}))
}

/// Known secrets in texts; names are the keys of objects and stay.
fn mask(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => *text = redactor.mask(text).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(|it| mask(it, redactor)),
        Value::Object(fields) => fields.values_mut().for_each(|it| mask(it, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
