//! Which session a running call belongs to: 128 random bits in the call's
//! environment (`BEIGE_CALL`), known here for as long as the call runs. What
//! comes back over the agent's socket is looked up, never believed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ring::rand::{SecureRandom, SystemRandom};

use super::SessionRef;
use crate::error::{Error, Kind, Result};

/// The calls that run now.
#[derive(Clone, Debug, Default)]
pub struct CallTable {
    running: Arc<Mutex<HashMap<String, RunningCall>>>,
}

#[derive(Clone, Debug)]
struct RunningCall {
    agent: String,
    session: Option<SessionRef>,
}

/// A call in the table; leaves it when dropped.
#[derive(Debug)]
pub(super) struct Registration {
    table: CallTable,
    token: String,
}

impl CallTable {
    /// The session of a call that runs now, if this agent made it: outer
    /// `None` where the token is unknown, inner `None` where the call has no
    /// session.
    pub fn session_of(&self, agent: &str, token: &str) -> Option<Option<SessionRef>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.get(token).filter(|it| it.agent == agent).map(|it| it.session.clone())
    }

    pub(super) fn register(
        &self,
        agent: &str,
        session: Option<&SessionRef>,
    ) -> Result<Registration> {
        let token = random_token()?;
        let call = RunningCall { agent: agent.to_owned(), session: session.cloned() };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(token.clone(), call);
        Ok(Registration { table: self.clone(), token })
    }
}

impl Registration {
    /// The value of `BEIGE_CALL`.
    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut running = self.table.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.token);
    }
}

/// 128 random bits, as text.
pub(super) fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Error::new(Kind::Internal, "the system gave no random numbers"))?;
    Ok(bytes.iter().map(|it| format!("{it:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_to_its_agent_while_it_runs() -> Result<()> {
        let table = CallTable::default();
        let session = SessionRef {
            session_key: "tui:a:default".into(),
            channel: Some("tui".into()),
            chat_id: None,
            thread_id: None,
        };
        let call = table.register("a", Some(&session))?;
        let token = call.token().to_owned();
        assert_eq!(table.session_of("a", &token), Some(Some(session)));
        assert_eq!(table.session_of("b", &token), None);
        drop(call);
        assert_eq!(table.session_of("a", &token), None);
        Ok(())
    }
}
