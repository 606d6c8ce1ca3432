//! What is asked of the gateway itself and answered on the spot: how it is,
//! what it is configured with, what it has counted, and that it start afresh.

use serde_json::json;

use crate::channel::http::answer::Answer;
use crate::channel::http::engine::Engine;
use crate::channel::http::failure::refusal;
use crate::channel::http::metrics;

/// A route of the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::channel::http) enum Quick {
    /// `GET /api/health`
    Health,
    /// `GET /api/agents`
    Agents,
    /// `GET /api/config`
    Config,
    /// `GET /api/agents/:name/models`
    Models(String),
    /// `GET /metrics`
    Metrics,
    /// `POST /api/gateway/restart`
    Restart,
}

impl Quick {
    /// The answer.
    pub(super) fn answer(&self, engine: &impl Engine) -> Answer {
        match self {
            Self::Health => Answer::json(&engine.health()),
            Self::Agents => Answer::json(&json!({ "agents": engine.agents() })),
            Self::Config => Answer::json(&engine.config()),
            Self::Models(agent) => match engine.models(agent) {
                Ok(models) => Answer::json(&json!({ "models": models })),
                Err(error) => refusal(engine, &error),
            },
            Self::Metrics => Answer {
                content_type: metrics::CONTENT_TYPE,
                body: metrics::text(&engine.figures()),
                ..Answer::json(&())
            },
            Self::Restart => match engine.restart() {
                Ok(()) => Answer { status: 202, ..Answer::json(&restarting()) },
                Err(error) => refusal(engine, &error),
            },
        }
    }
}

fn restarting() -> serde_json::Value {
    let message = "what runs has 30 s to end, then the gateway starts afresh; \
                   follow it with `beige gateway logs -f`";
    json!({ "status": "restarting", "message": message })
}
