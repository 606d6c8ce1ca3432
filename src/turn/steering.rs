//! What a person says to a turn that is running. It is heard between two tool
//! calls and before the turn ends, and nothing that was taken is lost: once the
//! turn has listened for the last time, nothing more is taken.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Kind, Result};

/// Messages that may wait for one turn.
const MOST_WAITING: usize = 100;

/// Bytes that they may have together, so that memory is bounded.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// The messages that wait for a turn; `None` once it listens no more.
#[derive(Debug)]
pub struct Steering(Mutex<Option<Vec<String>>>);

impl Steering {
    /// Of a turn that listens.
    pub fn open() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }

    /// Of work that nobody can say anything to.
    pub fn closed() -> Self {
        Self(Mutex::new(None))
    }

    /// Says something to the turn. [`Kind::Conflict`] if it does not listen
    /// any more, [`Kind::Busy`] if too much waits already.
    pub fn say(&self, message: String) -> Result<()> {
        let mut waiting = self.waiting();
        let Some(waiting) = waiting.as_mut() else {
            return Err(Error::new(Kind::Conflict, "no turn is running in this session"));
        };
        let bytes: usize = waiting.iter().map(String::len).sum();
        if waiting.len() >= MOST_WAITING || bytes.saturating_add(message.len()) > MOST_BYTES {
            let what = "too many messages wait for the turn in this session already";
            return Err(Error::new(Kind::Busy, what));
        }
        waiting.push(message);
        Ok(())
    }

    /// Whether anything that is said can still be heard: not of a turn that is
    /// about to end.
    pub fn listens(&self) -> bool {
        self.waiting().is_some()
    }

    /// What was said since it was asked last.
    pub(super) fn heard(&self) -> Vec<String> {
        self.waiting().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The same, of a turn that ends unless something was said.
    pub(super) fn heard_or_close(&self) -> Vec<String> {
        let mut waiting = self.waiting();
        match waiting.as_mut() {
            Some(it) if !it.is_empty() => std::mem::take(it),
            _ => {
                *waiting = None;
                Vec::new()
            }
        }
    }

    /// The same, of a turn that ends whatever was said.
    pub fn close(&self) -> Vec<String> {
        self.waiting().take().unwrap_or_default()
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Vec<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(said: Result<()>) -> Option<Kind> {
        said.err().map(|it| it.kind())
    }

    #[test]
    fn what_is_taken_is_heard_and_nothing_is_taken_in_vain() {
        let steering = Steering::open();
        assert_eq!(kind(steering.say("a".into())), None);
        assert_eq!(kind(steering.say("b".into())), None);
        assert_eq!(steering.heard(), ["a", "b"]);
        assert_eq!(kind(steering.say("c".into())), None);
        assert_eq!(steering.heard_or_close(), ["c"]);
        assert_eq!(kind(steering.say("d".into())), None, "it listens on");
        assert_eq!(steering.close(), ["d"]);
        assert_eq!(kind(steering.say("e".into())), Some(Kind::Conflict));
        assert!(!steering.listens() && Steering::open().listens());
        let steering = Steering::open();
        assert!(steering.heard_or_close().is_empty());
        assert_eq!(kind(steering.say("f".into())), Some(Kind::Conflict));
        assert_eq!(kind(Steering::closed().say("g".into())), Some(Kind::Conflict));
    }

    #[test]
    fn what_waits_is_bounded() {
        let steering = Steering::open();
        for _ in 0..MOST_WAITING {
            assert_eq!(kind(steering.say("x".into())), None);
        }
        assert_eq!(kind(steering.say("x".into())), Some(Kind::Busy));
        let steering = Steering::open();
        assert_eq!(kind(steering.say("x".repeat(MOST_BYTES))), None);
        assert_eq!(kind(steering.say("x".into())), Some(Kind::Busy));
    }
}
