//! What plugins ask of the gateway, answered on behalf of the plugin that asks.
//! It translates and nothing more: each method reads its fields, strictly, has
//! the engine do what front ends have it do, and says what came of it, with no
//! known secret in an error. What it must never do is let a plugin wait for
//! itself: a turn that waits for a plugin's answer is not waited for by it.

mod channel;
mod model;
mod overview;
mod prompt;
mod session;
mod settings;
mod tools;

use std::sync::{Arc, Weak};

use serde_json::{Value, json};

use super::fields::{Checked, Fields};
use super::{Engine, Handle};
use crate::config::nearest;
use crate::error::{Error, Kind};
use crate::plugin::connection::{Connection, Matter};
use crate::plugin::desk::{Desk, Request};
use crate::plugin::rpc::{BAD_PARAMS, FAILED, NO_SUCH_METHOD, Refusal};
use crate::secret::Redactor;

/// Longest text of a plugin that goes into the log, in characters.
const LONGEST_LOG: usize = 4096;

/// Answers the plugins of one engine.
pub(super) struct PluginDesk {
    /// It owns the plugins, so that they do not own it.
    engine: Weak<Engine>,
    redactor: Redactor,
}

/// What a plugin may ask for.
struct Method {
    /// Behind `beige/`.
    name: &'static str,
    fields: &'static [&'static str],
    answer: fn(&Asked<'_>, &mut Fields) -> Answered,
}

/// A request with the engine that it is asked of.
struct Asked<'a> {
    handle: Handle,
    request: &'a Request<'a>,
}

/// An answer is always an object.
type Answered = Result<Value, Trouble>;

/// Why there is none.
enum Trouble {
    /// The request makes no sense.
    Wrong(String),
    /// It could not be done.
    Failed(Error),
}

impl PluginDesk {
    /// For an engine with these secrets.
    pub(super) fn new(engine: &Weak<Engine>, redactor: Redactor) -> Self {
        Self { engine: Weak::clone(engine), redactor }
    }

    fn answer(&self, request: &Request<'_>) -> Result<Value, Refusal> {
        let Some(name) = request.method.strip_prefix("beige/") else {
            return Err(no_method(request.method));
        };
        let mut rooms = ROOMS.iter().flat_map(|it| it.iter());
        let method = rooms.find(|it| it.name == name).ok_or_else(|| no_method(request.method))?;
        let engine = self.engine.upgrade();
        let engine: Arc<Engine> =
            engine.ok_or_else(|| Refusal::new(FAILED, "the gateway is stopping"))?;
        let asked = Asked { handle: Handle { engine }, request };
        let answered = fields_of(request.params, method.fields)
            .map_err(Trouble::Wrong)
            .and_then(|mut fields| (method.answer)(&asked, &mut fields));
        answered.map_err(|trouble| {
            let (code, what) = trouble.told();
            Refusal::new(code, self.redactor.mask(&what))
        })
    }

    fn log(&self, plugin: &str, params: &Value) {
        let text = params["text"].as_str().or(params["message"].as_str()).unwrap_or_default();
        let text = self.short(text);
        let level = match params["level"].as_str() {
            Some("error") => log::Level::Error,
            Some("warn" | "warning") => log::Level::Warn,
            Some("debug") => log::Level::Debug,
            _ => log::Level::Info,
        };
        log::log!(target: "plugin", level, "{plugin}: {text}");
    }

    /// That a call of a tool has something done within it. A call that does not
    /// run is none.
    fn tool_starts(&self, plugin: &str, connection: &Connection, params: &Value) {
        let call = params["requestId"].as_u64();
        let Some(session) = call.and_then(|it| connection.session_of_call(it)) else { return };
        let tool = self.short(params["tool"].as_str().unwrap_or_default());
        log::debug!(target: "plugin", "{plugin}: `{tool}` starts within a call in `{session}`");
    }

    /// A plugin's words for the log.
    fn short(&self, text: &str) -> String {
        let text = self.redactor.mask(text).replace(char::is_control, " ");
        text.chars().take(LONGEST_LOG).collect()
    }
}

impl Desk for PluginDesk {
    fn request(&self, request: &Request<'_>) -> Result<Value, Refusal> {
        match request.method {
            "beige/log" => {
                self.log(request.plugin, request.params);
                Ok(json!({}))
            }
            "beige/toolStart" => {
                self.tool_starts(request.plugin, request.connection, request.params);
                Ok(json!({}))
            }
            _ => self.answer(request),
        }
    }

    fn notice(&self, plugin: &str, connection: &Connection, method: &str, params: &Value) {
        match method {
            "beige/log" => self.log(plugin, params),
            "beige/toolStart" => self.tool_starts(plugin, connection, params),
            _ => log::debug!(target: "plugin", "{plugin}: the notice `{method}` is not heard"),
        }
    }
}

/// All methods, by what they are about.
const ROOMS: [&[Method]; 7] = [
    prompt::METHODS,
    session::METHODS,
    settings::METHODS,
    tools::METHODS,
    channel::METHODS,
    model::METHODS,
    overview::METHODS,
];

fn no_method(method: &str) -> Refusal {
    let names = || ROOMS.iter().flat_map(|it| it.iter()).map(|it| it.name);
    let meant = nearest(method.strip_prefix("beige/").unwrap_or(method), names());
    let hint = meant.map_or_else(String::new, |it| format!("; did you mean `beige/{it}`?"));
    let method: String = method.chars().take(100).collect();
    Refusal::new(NO_SUCH_METHOD, format!("beige has no method `{method}`{hint}"))
}

fn fields_of(params: &Value, known: &[&str]) -> Checked<Fields> {
    match params {
        Value::Object(fields) => Fields::of(fields.clone(), known),
        Value::Null => Fields::of(serde_json::Map::new(), known),
        _ => Err("`params` must be an object".into()),
    }
}

impl Asked<'_> {
    fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    /// The plugin that asks.
    fn plugin(&self) -> &str {
        self.request.plugin
    }

    /// The agent whose session a key means; [`Kind::Missing`], with the nearest
    /// there is, if it means none.
    fn owner(&self, key: &str) -> Result<String, Trouble> {
        match self.engine().store.owner(key)? {
            Some(agent) => Ok(agent),
            None => Ok(self.engine().store.find(None, key)?.agent),
        }
    }

    /// Whether a turn in that session waits for this very plugin, so that it
    /// must not wait for that turn.
    fn is_waited_for(&self, key: &str) -> bool {
        let connection = self.request.connection;
        let works = |key: &str| connection.works_on(&Matter::Tool(key.to_owned()));
        let hears = || connection.works_on(&Matter::Hook(key.to_owned()));
        self.engine().bills.is_waited_for(key, works) || self.handle.is_busy(key) && hears()
    }
}

impl Trouble {
    fn told(&self) -> (i64, String) {
        match self {
            Self::Wrong(what) => (BAD_PARAMS, what.clone()),
            Self::Failed(error) if error.kind() == Kind::Usage => (BAD_PARAMS, error.to_string()),
            Self::Failed(error) => (FAILED, error.to_string()),
        }
    }
}

impl From<String> for Trouble {
    fn from(wrong: String) -> Self {
        Self::Wrong(wrong)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As plugins are told; what is heard as a notice is not among them.
    const TOLD: [&str; 30] = [
        "prompt",
        "session/new",
        "session/create",
        "session/list",
        "session/listKeys",
        "session/get",
        "session/usage",
        "session/isActive",
        "session/abort",
        "session/steer",
        "session/compact",
        "session/dispose",
        "session/settings.get",
        "session/settings.update",
        "session/settings.clear",
        "session/metadata.get",
        "session/metadata.set",
        "session/model.get",
        "session/model.set",
        "session/model.clear",
        "tools/invoke",
        "tools/list",
        "channels/list",
        "channels/send",
        "llm/prompt",
        "model/get",
        "model/health",
        "model/clearHealth",
        "config/get",
        "log",
    ];

    #[test]
    fn every_method_that_plugins_are_told_of_is_there_once() {
        let mut names: Vec<&str> =
            ROOMS.iter().flat_map(|it| it.iter()).map(|it| it.name).collect();
        // The log needs no engine.
        names.push("log");
        assert_eq!(names, TOLD);
    }

    #[test]
    fn an_unknown_method_names_the_one_that_may_be_meant() {
        let told = |method: &str| no_method(method).message;
        assert!(told("beige/session/lst").ends_with("did you mean `beige/session/list`?"));
        assert_eq!(told("tools/call"), "beige has no method `tools/call`");
        assert!(told(&"x".repeat(1_000)).len() < 200);
    }
}
