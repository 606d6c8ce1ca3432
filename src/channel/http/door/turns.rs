//! Large bodies one after another: what waits behind the door lies in files,
//! but whoever works on a body holds it in memory, more than once. So only a
//! few large ones are worked on at a time; further ones wait in their files.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, select};

use super::End;
use crate::channel::http::answer::Answer;
use crate::worker::Cancel;

/// A body is large from so many bytes on.
pub(super) const LARGE: u64 = 1024 * 1024;

/// As many turns as may be taken at a time.
#[derive(Debug)]
pub(super) struct Turns {
    take: Sender<()>,
    give_back: Receiver<()>,
}

/// One's turn; given back on drop.
#[derive(Debug)]
pub(super) struct Turn {
    give_back: Receiver<()>,
}

impl Turns {
    /// So many at a time.
    pub(super) fn new(many: usize) -> Self {
        let (take, give_back) = bounded(many);
        Self { take, give_back }
    }

    /// Waits for a turn, up to `patience`: then 503.
    pub(super) fn wait(&self, patience: Duration, closing: &Cancel) -> Result<Turn, End> {
        select! {
            send(self.take, ()) -> _ => Ok(Turn { give_back: self.give_back.clone() }),
            recv(closing.gone()) -> _ => Err(End::Gone),
            recv(after(patience)) -> _ => {
                Err(Answer::error(503, "too many large requests at a time; try again").into())
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = self.give_back.try_recv();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_had_once_another_is_given_back() {
        let turns = Turns::new(1);
        let wait = || turns.wait(Duration::ZERO, &Cancel::never());
        let first = wait();
        assert!(first.is_ok());
        assert!(matches!(wait(), Err(End::Refused(Answer { status: 503, .. }))));
        drop(first);
        assert!(wait().is_ok());
    }
}
