//! What plugins ask of the gateway, answered on behalf of the plugin that asks.

use serde_json::Value;

use crate::plugin::host::{Desk, Request};
use crate::plugin::rpc::{NO_SUCH_METHOD, Refusal};
use crate::secret::Redactor;

/// Longest text of a plugin that goes into the log, in characters.
const LONGEST_LOG: usize = 4096;

/// Answers the plugins of one engine.
pub(super) struct PluginDesk {
    redactor: Redactor,
}

impl PluginDesk {
    /// For an engine with these secrets.
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor }
    }

    fn log(&self, plugin: &str, params: &Value) {
        let text = params["text"].as_str().or(params["message"].as_str()).unwrap_or_default();
        let text = self.redactor.mask(text).replace(char::is_control, " ");
        let text: String = text.chars().take(LONGEST_LOG).collect();
        let level = match params["level"].as_str() {
            Some("error") => log::Level::Error,
            Some("warn" | "warning") => log::Level::Warn,
            Some("debug") => log::Level::Debug,
            _ => log::Level::Info,
        };
        log::log!(target: "plugin", level, "{plugin}: {text}");
    }
}

impl Desk for PluginDesk {
    fn request(&self, request: &Request<'_>) -> Result<Value, Refusal> {
        match request.method {
            "beige/log" => {
                self.log(request.plugin, request.params);
                Ok(Value::Null)
            }
            method => Err(Refusal::new(NO_SUCH_METHOD, format!("beige has no method `{method}`"))),
        }
    }

    fn notice(&self, plugin: &str, method: &str, params: &Value) {
        match method {
            "beige/log" => self.log(plugin, params),
            _ => log::debug!(target: "plugin", "{plugin}: the notice `{method}` is not heard"),
        }
    }
}
