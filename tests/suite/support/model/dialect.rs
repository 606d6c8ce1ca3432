//! The protocols that a test model speaks, told apart by the path of a request.
//! For each there is one file that holds requests against it and puts neutral
//! answers in its words.

use serde_json::Value;

use super::script::{Answer, Said};
use super::wire::Head;
use super::{KEY, anthropic, chat, google, responses};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Chat,
    Responses,
    Anthropic,
    Google,
}

impl Dialect {
    /// All that there are.
    pub(crate) const ALL: [Self; 4] = [Self::Chat, Self::Responses, Self::Anthropic, Self::Google];

    /// Its name in configuration and session files.
    pub(crate) fn api(self) -> &'static str {
        match self {
            Self::Chat => "openai-completions",
            Self::Responses => "openai-responses",
            Self::Anthropic => "anthropic-messages",
            Self::Google => "google-generative-ai",
        }
    }

    /// What stands in a configuration below the server's address.
    pub(crate) fn base(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "/v1",
            Self::Anthropic => "",
            Self::Google => "/v1beta",
        }
    }

    /// The one that a request is in, by its path.
    pub(super) fn of(head: &Head) -> Option<Self> {
        let path = head.path.split('?').next().unwrap_or_default();
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/responses" => Some(Self::Responses),
            "/v1/messages" => Some(Self::Anthropic),
            it if it.starts_with("/v1beta/models/") => Some(Self::Google),
            _ => None,
        }
    }

    /// All that is wrong with a request's head, but for what `check::head` sees.
    pub(super) fn head(self, head: &Head) -> Vec<String> {
        match self {
            Self::Chat | Self::Responses => chat::head(head, KEY),
            Self::Anthropic => anthropic::head(head, KEY),
            Self::Google => google::head(head, KEY),
        }
    }

    /// All that is wrong with a request's body.
    pub(super) fn body(self, body: &Value) -> Vec<String> {
        match self {
            Self::Chat => chat::body(body),
            Self::Responses => responses::body(body),
            Self::Anthropic => anthropic::body(body),
            Self::Google => google::body(body),
        }
    }

    /// The texts of a request's messages, each after its role (`user`,
    /// `assistant`, `tool`; the system prompt is `system`); calls as
    /// `<tool arguments>`.
    pub(super) fn said(self, body: &Value) -> Vec<String> {
        match self {
            Self::Chat => chat::said(body),
            Self::Responses => responses::said(body),
            Self::Anthropic => anthropic::said(body),
            Self::Google => google::said(body),
        }
    }

    /// A whole answer in its words.
    pub(crate) fn answer(self, said: &Said) -> Answer {
        match self {
            Self::Chat => chat::answer(said),
            Self::Responses => responses::answer(said),
            Self::Anthropic => anthropic::answer(said),
            Self::Google => google::answer(said),
        }
    }
}
