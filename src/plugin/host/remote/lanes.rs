//! The connections to a server that runs elsewhere: who uses which, so that each
//! can be cut alone, and the few that are kept for the next. A connection is used
//! for one thing at a time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ureq::Agent;

use crate::provider::Client;

/// Connections that are kept without being used.
const MOST_IDLE: usize = 4;

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A request of ours, by its id.
    Request(u64),
    /// Anything else, by a number of its own.
    Other(u64),
}

/// All connections to one server.
pub(super) struct Lanes {
    pub(super) client: Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    has_ended: bool,
    idle: Vec<Agent>,
    /// Nothing yet where a thread is still to take it up.
    used: HashMap<Key, Option<Agent>>,
    next: u64,
}

/// One that is used.
pub(super) struct Lane<'a> {
    lanes: &'a Lanes,
    key: Key,
    pub(super) agent: Agent,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum NoLane {
    /// It was cut before it was begun.
    Cut,
    /// What is wrong with the configuration.
    Wrong(String),
}

impl Lanes {
    pub(super) fn to(client: Client) -> Self {
        Self { client, state: Mutex::default() }
    }

    /// Notes that it is about to be used, so that a cut can come before.
    pub(super) fn reserve(&self, key: Key) {
        self.locked().used.insert(key, None);
    }

    /// A connection for what was reserved.
    pub(super) fn enter(&self, key: Key) -> Result<Lane<'_>, NoLane> {
        let idle = self.locked().idle.pop();
        let agent = idle.map_or_else(|| self.client.agent(), Ok).map_err(NoLane::Wrong);
        // From here on whoever is not let in is not noted any more either.
        let mut state = self.locked();
        let is_wanted = state.used.remove(&key).is_some() && !state.has_ended;
        let agent = agent?;
        if !is_wanted {
            return Err(NoLane::Cut);
        }
        state.used.insert(key, Some(agent.clone()));
        Ok(Lane { lanes: self, key, agent })
    }

    /// A connection for something that has no id.
    pub(super) fn enter_any(&self) -> Result<Lane<'_>, NoLane> {
        let key = {
            let mut state = self.locked();
            state.next += 1;
            let key = Key::Other(state.next);
            state.used.insert(key, None);
            key
        };
        self.enter(key)
    }

    /// Ends what it is used for.
    pub(super) fn cut(&self, key: Key) {
        let agent = self.locked().used.remove(&key).flatten();
        if let Some(agent) = agent {
            agent.shutdown();
        }
    }

    /// Ends everything; nothing is begun any more.
    pub(super) fn end(&self) {
        let used = {
            let mut state = self.locked();
            state.has_ended = true;
            state.idle.clear();
            std::mem::take(&mut state.used)
        };
        used.into_values().flatten().for_each(Agent::shutdown);
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane<'_> {
    /// Whether it was cut.
    pub(super) fn is_cut(&self) -> bool {
        !self.lanes.locked().used.contains_key(&self.key)
    }

    /// Keeps the connection for the next, if it was not cut.
    pub(super) fn keep(self) {
        let mut state = self.lanes.locked();
        let is_whole = state.used.contains_key(&self.key);
        if is_whole && !state.has_ended && state.idle.len() < MOST_IDLE {
            state.idle.push(self.agent.clone());
        }
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.lanes.locked().used.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Endpoint, Timeouts};

    fn lanes() -> Lanes {
        let second = Duration::from_secs(1);
        Lanes::to(Client::new(&Endpoint {
            base_url: "http://127.0.0.1:9/mcp".into(),
            api_key: None,
            headers: Vec::new(),
            ca_file: None,
            proxy: None,
            timeouts: Timeouts { connect: second, first_byte: second, idle: second },
        }))
    }

    #[test]
    fn what_is_cut_before_it_begins_does_not_begin() {
        let lanes = lanes();
        let key = Key::Request(1);
        assert!(matches!(lanes.enter(key), Err(NoLane::Cut)), "nobody reserved it");
        lanes.reserve(key);
        lanes.cut(key);
        assert!(matches!(lanes.enter(key), Err(NoLane::Cut)));
        lanes.reserve(key);
        assert!(lanes.enter(key).is_ok_and(|it| !it.is_cut()));
        lanes.end();
        assert!(matches!(lanes.enter_any(), Err(NoLane::Cut)));
    }

    #[test]
    fn a_few_are_kept_and_none_that_was_cut() {
        let lanes = lanes();
        let many: Vec<_> = (0..2 * MOST_IDLE).filter_map(|_| lanes.enter_any().ok()).collect();
        many.into_iter().for_each(Lane::keep);
        assert_eq!(lanes.locked().idle.len(), MOST_IDLE);
        lanes.reserve(Key::Request(7));
        let Ok(lane) = lanes.enter(Key::Request(7)) else { panic!("it is let in") };
        lanes.cut(Key::Request(7));
        assert!(lane.is_cut());
        lane.keep();
        let state = lanes.locked();
        assert_eq!((state.idle.len(), state.used.len()), (MOST_IDLE - 1, 0));
    }
}
