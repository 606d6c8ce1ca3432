//! What can be run, on whose behalf, and what comes back: plain values, the
//! same for every front end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plugin::hooks::{Occasion, Outcome};
use crate::sandbox::{Exit, Feed, Output};

/// On whose behalf something runs; set by the gateway, never by a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The agent whose rights count.
    pub agent: String,
    /// The verified session, if any.
    pub session: Option<SessionRef>,
    /// A session that was claimed and is not the caller's.
    pub claimed_session: Option<String>,
    /// `provider/model` that asked, in a turn.
    pub model: Option<String>,
}

impl Caller {
    /// Where it stands, as plugins are told.
    pub fn occasion(&self) -> Occasion {
        let session = self.session.as_ref();
        Occasion {
            session_key: session.map(|it| it.session_key.clone()).unwrap_or_default(),
            agent_name: self.agent.clone(),
            channel: session.and_then(|it| it.channel.clone()).unwrap_or_default(),
        }
    }
}

/// The conversation a call belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRef {
    /// `channel:id[:thread]`.
    pub session_key: String,
    /// `tui`, `api`, `cli`, `socket`, …, where the key names one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub channel: Option<String>,
    /// Chat, where the channel has them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub chat_id: Option<String>,
    /// Thread, where the channel has them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_id: Option<String>,
}

/// A core tool call, as a model or `POST …/exec` makes it: arguments are
/// checked by the toolbox, which answers what is wrong with them.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreCall {
    /// `read`, `write`, `patch`, `exec`; anything else is answered by an error.
    pub tool: String,
    /// The arguments, an object.
    pub params: Value,
    /// Time limit of `exec` where the arguments give none.
    pub default_timeout: Duration,
}

/// A plugin tool call, as it comes over an agent's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Below `/workspace`, checked.
    pub cwd: String,
    /// Its standard input, if any was piped.
    pub stdin: Option<String>,
}

/// A command as `beige exec` and `…/exec/stream` run it.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandCall {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Below `/workspace`.
    pub cwd: String,
    /// Set for this call.
    pub env: BTreeMap<String, String>,
    /// Time limit; none unless given.
    pub timeout: Option<Duration>,
}

/// Everything that can be run.
pub enum Call<'a> {
    /// read, write, patch, exec; and who is told what a command prints, while
    /// it runs, known secrets masked.
    Core(CoreCall, &'a mut dyn FnMut(String)),
    /// A tool of a plugin, and the line of whoever asked by one: once it hangs
    /// up both ways, nobody waits for the answer and the call is called off.
    Plugin(PluginCall, Option<BorrowedFd<'a>>),
    /// A command with its streams.
    Command(CommandCall, Streams<'a>),
}

/// The streams of a command.
pub struct Streams<'a> {
    /// What is fed in.
    pub feed: &'a Feed,
    /// Who takes what comes out.
    pub output: &'a mut dyn Output,
}

/// One part of a tool's answer to a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Content {
    /// Text.
    Text {
        /// UTF-8; what was not is marked.
        text: String,
    },
    /// An image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// Base64.
        data: String,
        /// `image/png`, ….
        mime_type: String,
    },
}

/// A tool's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What the model, or the client, gets.
    pub content: Vec<Content>,
    /// Whether it failed: exit code not 0, bad arguments, refused.
    pub is_error: bool,
    /// How the command ended, where there was one.
    #[serde(skip)]
    pub exit: Option<Exit>,
    /// Bytes that came out, before anything was left out.
    #[serde(skip)]
    pub bytes: u64,
    /// Those of them that nobody was told while the command ran, since they
    /// were beyond the bound of its answer.
    #[serde(skip)]
    pub untold: u64,
}

impl Answer {
    /// A success in words.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        let bytes = text.len() as u64;
        Self {
            content: vec![Content::Text { text }],
            is_error: false,
            exit: None,
            bytes,
            untold: 0,
        }
    }

    /// A failure in words.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// All text of it.
    pub fn plain_text(&self) -> String {
        let texts = self.content.iter().filter_map(|it| match it {
            Content::Text { text } => Some(text.as_str()),
            Content::Image { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// In short, as plugins are told.
    pub(super) fn outcome(&self) -> Outcome {
        let exit_code = self.exit_code().unwrap_or(i32::from(self.is_error));
        Outcome { output: self.plain_text(), exit_code }
    }

    /// With what a plugin made of text and exit code; images stay.
    pub(super) fn with(mut self, outcome: Outcome) -> Self {
        let before = self.outcome();
        if outcome.exit_code != before.exit_code {
            self.is_error = outcome.exit_code != 0;
            if let Some(exit) = &mut self.exit {
                exit.code = outcome.exit_code;
            }
        }
        if outcome.output != before.output {
            self.content.retain(|it| matches!(it, Content::Image { .. }));
            self.content.insert(0, Content::Text { text: outcome.output });
        }
        self
    }

    /// Exit code where a command ran.
    pub fn exit_code(&self) -> Option<i32> {
        self.exit.as_ref().map(|it| it.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Content {
        Content::Image { data: "x".into(), mime_type: "image/png".into() }
    }

    #[track_caller]
    fn check(answer: &Answer, output: &str, exit_code: i32, want: (&[Content], bool)) {
        let outcome = Outcome { output: output.into(), exit_code };
        let changed = answer.clone().with(outcome);
        assert_eq!((&changed.content[..], changed.is_error), want);
        assert_eq!(changed.exit_code(), answer.exit.as_ref().map(|_| exit_code));
    }

    #[test]
    fn what_a_plugin_changes_is_changed_and_nothing_else() {
        let text = |text: &str| Content::Text { text: text.into() };
        let told = Answer::text("a");
        check(&told, "b", 0, (&[text("b")], false));
        check(&told, "a", 3, (&[text("a")], true));
        let failed = Answer::error("a");
        check(&failed, "b", 1, (&[text("b")], true));
        check(&failed, "a", 0, (&[text("a")], false));
        let shown = Answer { content: vec![picture()], ..Answer::text("") };
        check(&shown, "", 0, (&[picture()], false));
        check(&shown, "b", 0, (&[text("b"), picture()], false));
        let exit = Exit {
            code: 0,
            timed_out: false,
            cancelled: true,
            note: None,
            saved: None,
            duration: Duration::ZERO,
        };
        // Called off, though it ended by itself: it stays a failure.
        let called_off = Answer { exit: Some(exit), is_error: true, ..Answer::text("a") };
        check(&called_off, "b", 0, (&[text("b")], true));
        check(&called_off, "b", 7, (&[text("b")], true));
    }
}
