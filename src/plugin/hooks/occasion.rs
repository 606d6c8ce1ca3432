//! What a hook is told, and what comes of it, as typed values.

use serde::Serialize;
use serde_json::{Value, json};

use crate::config::ModelRef;
use crate::provider::Fault;
use crate::provider::chain::Switch;

/// Where something happens: whose session it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Occasion {
    /// The session's key; empty where there is none.
    pub session_key: String,
    /// The agent.
    pub agent_name: String,
    /// Where the conversation takes place; empty without a session.
    pub channel: String,
}

impl Occasion {
    /// It with a text under that name.
    pub(super) fn with(&self, name: &str, text: &str) -> Value {
        let mut event = self.event();
        event[name] = text.into();
        event
    }

    /// The event of a hook that is told nothing else.
    pub fn event(&self) -> Value {
        json!({
            "sessionKey": self.session_key,
            "agentName": self.agent_name,
            "channel": self.channel,
        })
    }
}

/// What plugins made of a person's message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompted {
    /// The message, as the model is to see it.
    pub message: String,
    /// What is added to the system prompt of this turn; may be empty.
    pub context: String,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCalled<'a> {
    /// The tool.
    pub tool_name: &'a str,
    /// Its arguments, as the audit log names them.
    pub args: &'a [String],
    /// The session; empty where there is none.
    pub session_key: &'a str,
    /// The agent.
    pub agent_name: &'a str,
}

/// What came of a call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// What it printed or answered.
    pub output: String,
    /// 0 if it went well.
    pub exit_code: i32,
}

/// Another model than before answers in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSwitch<'a> {
    /// The model before.
    pub from: &'a ModelRef,
    /// The model from now on.
    pub to: &'a ModelRef,
    /// Why.
    pub reason: SwitchReason,
}

impl<'a> ModelSwitch<'a> {
    /// By itself, since the one before does not answer.
    pub fn of(switch: &Switch<'a>) -> Self {
        let reason = SwitchReason::of(switch.fault);
        Self { from: &switch.from.model, to: &switch.to.model, reason }
    }
}

/// Why another model answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchReason {
    /// The one before was asked too often.
    RateLimit,
    /// The one before failed.
    Error,
    /// The one before took too long.
    Timeout,
    /// A person chose it.
    User,
}

impl SwitchReason {
    /// Why another model is asked than the one that failed like that; `None`
    /// for one that was not asked, since it cools down.
    pub fn of(fault: Option<&Fault>) -> Self {
        match fault {
            None | Some(Fault::RateLimited(..)) => Self::RateLimit,
            Some(Fault::Slow(_)) => Self::Timeout,
            Some(_) => Self::Error,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::RateLimit => "fallback_rate_limit",
            Self::Error => "fallback_error",
            Self::Timeout => "fallback_timeout",
            Self::User => "user_override",
        }
    }
}

impl ModelSwitch<'_> {
    /// The event of its hook.
    pub fn event(&self, at: &Occasion) -> Value {
        let model = |it: &ModelRef| json!({"provider": it.provider, "modelId": it.model});
        let mut event = at.event();
        event["previousModel"] = model(self.from);
        event["newModel"] = model(self.to);
        event["reason"] = self.reason.name().into();
        event
    }
}
