//! Where plugins are asked outside of tool calls: about prompts, sessions,
//! models, and the gateway's own life; and on behalf of clients that run their
//! turns themselves. Nothing is held while they are asked but the place among
//! what runs, and in a turn its session's file.

use std::sync::Arc;

use super::turns::{PromptRequest, from_choice};
use super::{ChatRequest, Engine, Handle, session_ref};
use crate::config::{Agent, ModelRef};
use crate::error::Result;
use crate::message::{Assistant, Block, Content, Message};
use crate::plugin::hooks::{Halt, Hook, ModelSwitch, Occasion, Prompted, SwitchReason};
use crate::session::Conversation;
use crate::worker::{Cancel, Canceller, Worker};

/// What a client tells of a turn that it runs itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRequest {
    /// The agent.
    pub agent: String,
    /// The session; the API's default one if none is named.
    pub session_key: Option<String>,
    /// Where the conversation takes place; as the key says if it is not named.
    pub channel: Option<String>,
    /// What is told.
    pub what: Said,
}

/// What a client tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// This is about to be asked.
    Prompt(String),
    /// This is the answer.
    Response(String),
    /// The session was made.
    Created,
    /// The session was removed.
    Disposed,
}

/// What plugins make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// Of a prompt; its message may be another one.
    Prompt(Prompted),
    /// Of an answer.
    Response(String),
    /// They were told.
    Nothing,
    /// The prompt is refused.
    Refused {
        /// As it came.
        message: String,
        /// Why.
        reason: String,
    },
    /// The answer is withheld.
    Withheld {
        /// As it came.
        response: String,
        /// Why.
        reason: String,
    },
}

impl Handle {
    /// Asks the plugins on behalf of a client. [`crate::error::Kind::Missing`]
    /// without such an agent, [`crate::error::Kind::Conflict`] for another
    /// agent's session.
    pub fn run_hook(&self, request: HookRequest, cancel: &Cancel) -> Result<Made> {
        let HookRequest { agent, session_key, channel, what } = request;
        self.require_agent(&agent)?;
        let key = session_key.unwrap_or_else(|| format!("api:{agent}:default"));
        let key = self.engine.store.key_of(&agent, &key)?;
        let _entered = self.engine.running.enter(cancel)?;
        let mut at = occasion(&agent, &key);
        at.channel = channel.unwrap_or(at.channel);
        let plugins = self.engine.toolbox.plugins();
        match what {
            Said::Prompt(message) => {
                let made = refusal_apart(plugins.pre_prompt(message.clone(), &at, cancel))?;
                Ok(match made {
                    Err(reason) => Made::Refused { message, reason },
                    Ok(made) => Made::Prompt(self.without_secrets(made, &message)),
                })
            }
            Said::Response(response) => {
                let made = refusal_apart(plugins.post_response(response.clone(), &at, cancel))?;
                Ok(match made {
                    Err(reason) => Made::Withheld { response, reason },
                    Ok(made) => Made::Response(self.mask(&made)),
                })
            }
            Said::Created => {
                plugins.tell_of_session(Hook::SessionCreated, &at, None, cancel);
                Ok(Made::Nothing)
            }
            Said::Disposed => {
                plugins.tell_of_session(Hook::SessionDisposed, &at, None, cancel);
                Ok(Made::Nothing)
            }
        }
    }

    /// What a client said itself stays as it is.
    fn without_secrets(&self, made: Prompted, said: &str) -> Prompted {
        let Prompted { message, context } = made;
        let message = if message == said { message } else { self.mask(&message) };
        Prompted { message, context: self.mask(&context) }
    }
}

impl Engine {
    /// What plugins make of a prompt; the inner error is why it is refused.
    pub(super) fn guarded(
        &self,
        request: &PromptRequest,
        key: &str,
        cancel: &Cancel,
    ) -> Result<Result<Prompted, String>> {
        let at = occasion(&request.agent, key);
        let plugins = self.toolbox.plugins();
        refusal_apart(plugins.pre_prompt(request.message.clone(), &at, cancel))
    }

    /// The same for the conversation of a client: where its last message is
    /// what a person says, that message, and the system prompt. Gives the reason
    /// if it is refused.
    pub(super) fn guard_chat(
        &self,
        request: &mut ChatRequest,
        at: &Occasion,
        cancel: &Cancel,
    ) -> Result<Option<String>> {
        let Some(Message::User(last)) = request.messages.last_mut() else { return Ok(None) };
        let message = last.content.text();
        let plugins = self.toolbox.plugins();
        match refusal_apart(plugins.pre_prompt(message.clone(), at, cancel))? {
            Err(reason) => Ok(Some(reason)),
            Ok(prompted) => {
                if prompted.message != message {
                    put_text(&mut last.content, prompted.message);
                }
                if !prompted.context.is_empty() {
                    request.system.push_str("\n\n");
                    request.system.push_str(&prompted.context);
                }
                Ok(None)
            }
        }
    }

    /// Tells of a session that this prompt begins, and of the prompt's own model
    /// where that is another than the session's.
    pub(super) fn tell_of_beginning(
        &self,
        request: &PromptRequest,
        agent: &Agent,
        conversation: &Conversation,
        cancel: &Cancel,
    ) -> Result<()> {
        let key = request.session_key.as_deref().unwrap_or_default();
        if conversation.is_new() {
            self.tell_of_session(Hook::SessionCreated, &agent.name, key, None, cancel);
        }
        let Some(wanted) = &request.model else { return Ok(()) };
        let chosen = self.store.chosen_model(key)?;
        let usual = &from_choice(agent, chosen.as_ref())[0].model;
        let before = conversation.session().model().unwrap_or(usual);
        if before != wanted && chosen.as_ref() != Some(wanted) {
            self.tell_of_choice(&agent.name, key, (before, wanted), None, cancel);
        }
        Ok(())
    }

    /// Tells that a session was made or removed; not the plugin by which it was.
    pub(super) fn tell_of_session(
        &self,
        hook: Hook,
        agent: &str,
        key: &str,
        by: Option<&str>,
        cancel: &Cancel,
    ) {
        self.toolbox.plugins().tell_of_session(hook, &occasion(agent, key), by, cancel);
    }

    /// Tells that another model was chosen, from the first to the second; not
    /// the plugin by which it was.
    pub(super) fn tell_of_choice(
        &self,
        agent: &str,
        key: &str,
        (from, to): (&ModelRef, &ModelRef),
        by: Option<&str>,
        cancel: &Cancel,
    ) {
        let switch = ModelSwitch { from, to, reason: SwitchReason::User };
        self.toolbox.plugins().tell_of_switch(&switch, &occasion(agent, key), by, cancel);
    }
}

/// Tells the plugins that the gateway runs, once they do; dropping it ends that.
pub(super) struct Starting {
    // Dropped first: that calls it off.
    _canceller: Canceller,
    _thread: Option<Worker>,
}

impl Starting {
    /// Where there is a plugin to tell, a thread that does.
    pub(super) fn begin(engine: &Arc<Engine>) -> Result<Self> {
        let (canceller, cancel) = Cancel::pair();
        let toolbox = Arc::clone(&engine.toolbox);
        let has_servers = toolbox.plugins().has_servers();
        let tell = move || toolbox.plugins().tell_of_start(&cancel);
        let thread = has_servers.then(|| Worker::spawn("plug-started", tell)).transpose()?;
        Ok(Self { _canceller: canceller, _thread: thread })
    }
}

fn occasion(agent: &str, key: &str) -> Occasion {
    Occasion {
        session_key: key.to_owned(),
        agent_name: agent.to_owned(),
        channel: session_ref(key).channel.unwrap_or_default(),
    }
}

fn refusal_apart<T>(made: Result<T, Halt>) -> Result<Result<T, String>> {
    match made {
        Err(Halt::CalledOff) => Err(Halt::CalledOff.into()),
        other => Ok(other.map_err(|it| it.reason())),
    }
}

/// Puts a text in the place of that of a message; images stay.
fn put_text(content: &mut Content, text: String) {
    match content {
        Content::Text(it) => *it = text,
        Content::Blocks(blocks) => {
            blocks.retain(|it| !matches!(it, Block::Text(_)));
            blocks.insert(0, Block::text(text));
        }
    }
}

/// The answer with that text in place of its own. Its blocks keep their number,
/// by which a client knows them.
pub(super) fn with_text(mut answer: Assistant, text: String) -> Assistant {
    let mut text = Some(text);
    for block in &mut answer.content {
        if let Block::Text(it) = block {
            it.text = text.take().unwrap_or_default();
            it.text_signature = None;
        }
    }
    answer.content.extend(text.map(Block::text));
    answer
}
