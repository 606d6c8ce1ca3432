//! What front ends ask about stored sessions. The files are the truth: nothing
//! of them is held here, and whoever works on one has it locked.

use serde_json::{Map, Value};

use super::Handle;
use super::turns::from_choice;
use crate::clock::now;
use crate::config::ModelRef;
use crate::error::Result;
use crate::plugin::hooks::Hook;
use crate::session::{Listed, Page, Told, Which};
use crate::turn::masked_message;
use crate::worker::Cancel;

/// A change to the sessions of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// A key gets a fresh session; what it meant before stays.
    New {
        /// The key.
        key: String,
        /// What programs note with it; what is noted already stays without.
        metadata: Option<Map<String, Value>>,
    },
    /// A key gets one of the agent's older sessions.
    Resume {
        /// The key.
        key: String,
        /// The older session.
        id: String,
    },
    /// A session is named.
    Name {
        /// Its key or id.
        session: String,
        /// What it is called from now on.
        name: String,
    },
    /// A session is removed, its file and its key.
    Remove {
        /// Its key or id.
        session: String,
    },
}

impl Handle {
    /// Lists sessions, the one that was written last first; `each` says
    /// whether to go on.
    pub fn sessions(
        &self,
        which: &Which,
        each: &mut dyn FnMut(Listed) -> Result<bool>,
    ) -> Result<()> {
        self.engine.store.list(which, each)
    }

    /// Tells an agent's session, by key or id: what it is, then its messages,
    /// the oldest of the page first, with no known secret in what a model said.
    /// Answers whether there are older ones.
    pub fn session_history(
        &self,
        agent: &str,
        session: &str,
        page: &Page,
        first: &mut dyn FnMut(Listed),
        each: &mut dyn FnMut(Told) -> Result<bool>,
    ) -> Result<bool> {
        self.require_agent(agent)?;
        let found = self.engine.store.find(Some(agent), session)?;
        first(self.engine.store.listed(&found));
        self.engine.store.history(&found, page, &mut |mut told| {
            told.message = masked_message(told.message, &self.engine.redactor);
            each(told)
        })
    }

    /// Changes an agent's sessions; answers the session as it then is, or as
    /// it was before it was removed.
    pub fn change_session(&self, agent: &str, change: &SessionChange) -> Result<Listed> {
        self.change_session_by(None, agent, change)
    }

    /// The same by a plugin, which is not told of it.
    pub(super) fn change_session_by(
        &self,
        by: Option<&str>,
        agent: &str,
        change: &SessionChange,
    ) -> Result<Listed> {
        self.require_agent(agent)?;
        let _entered = self.engine.running.enter(&Cancel::never())?;
        let store = &self.engine.store;
        let found = match change {
            SessionChange::New { key, metadata } => {
                let fresh = store.start_with(key, agent, metadata.clone(), now())?;
                store.clear_settings(key, now())?;
                let cancel = Cancel::never();
                self.engine.tell_of_session(Hook::SessionCreated, agent, key, by, &cancel);
                fresh
            }
            SessionChange::Resume { key, id } => store.resume(key, agent, id, now())?,
            SessionChange::Name { session, name } => {
                store.rename(Some(agent), session, name, now())?
            }
            SessionChange::Remove { session } => {
                let before = store.listed(&store.find(Some(agent), session)?);
                store.remove(Some(agent), session, now())?;
                if let Some(key) = &before.key {
                    store.clear_settings(key, now())?;
                }
                let (key, cancel) = (before.key.as_deref().unwrap_or_default(), Cancel::never());
                self.engine.tell_of_session(Hook::SessionDisposed, agent, key, by, &cancel);
                return Ok(before);
            }
        };
        Ok(store.listed(&found))
    }

    /// Chooses the model that an agent's session begins with from now on. What
    /// calls the session is taken as by [`crate::session::Store::key_of`]; the
    /// model must be one that the agent may use.
    pub fn choose_model(&self, agent: &str, session_key: &str, model: &ModelRef) -> Result<()> {
        self.choose_model_by(None, agent, session_key, model)
    }

    /// The same by a plugin, which is not told of it.
    pub(super) fn choose_model_by(
        &self,
        by: Option<&str>,
        agent: &str,
        session_key: &str,
        model: &ModelRef,
    ) -> Result<()> {
        self.require_agent(agent)?;
        let _entered = self.engine.running.enter(&Cancel::never())?;
        let key = self.engine.store.key_of(agent, session_key)?;
        self.engine.check_model(agent, model)?;
        let before = self.engine.store.chosen_model(&key)?;
        self.engine.store.choose_model(&key, model, now())?;
        let agent = self.engine.config.agents.get(agent);
        let usual = agent.map(|it| (it, &from_choice(it, before.as_ref())[0].model));
        if let Some((agent, before)) = usual.filter(|(_, it)| *it != model) {
            let cancel = Cancel::never();
            self.engine.tell_of_choice(&agent.name, &key, (before, model), by, &cancel);
        }
        Ok(())
    }
}
