//! Large answers, a few at a time over all calls of all providers: whoever reads,
//! stores and tells one holds it in memory several times over. A call whose
//! answer gets larger than [`LARGE`] waits until it may; nothing more of it is
//! read meanwhile, so that its server waits, too.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::worker::Cancel;

/// An answer is large from so many bytes on, told and not told yet together.
pub(super) const LARGE: usize = 1024 * 1024;

/// How many may be held at a time.
const AT_A_TIME: usize = 2;

/// The places for large answers.
#[derive(Clone, Debug)]
pub(super) struct LargeAnswers {
    take: Sender<()>,
    give_back: Receiver<()>,
}

/// A place for one, which goes with the answer; given back once nobody has it.
#[derive(Clone, Debug)]
pub struct LargePlace(#[expect(dead_code, reason = "held for its drop")] Arc<Taken>);

#[derive(Debug)]
struct Taken {
    give_back: Receiver<()>,
}

impl Default for LargeAnswers {
    fn default() -> Self {
        let (take, give_back) = bounded(AT_A_TIME);
        Self { take, give_back }
    }
}

impl LargeAnswers {
    /// A place, if there is one now.
    pub(super) fn try_take(&self) -> Option<LargePlace> {
        self.take.try_send(()).ok().map(|()| self.taken())
    }

    /// Waits for a place; nothing, if it is called off. Whoever waits is cut by
    /// who keeps the call's time.
    pub(super) fn take(&self, cancel: &Cancel) -> Option<LargePlace> {
        select! {
            send(self.take, ()) -> _ => Some(self.taken()),
            recv(cancel.gone()) -> _ => None,
        }
    }

    fn taken(&self) -> LargePlace {
        LargePlace(Arc::new(Taken { give_back: self.give_back.clone() }))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = self.give_back.try_recv();
    }
}

/// What an answer says does not hang on the place that it has.
impl PartialEq for LargePlace {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_had_once_nobody_has_another_any_more() {
        let answers = LargeAnswers::default();
        let mut places: Vec<_> = (0..AT_A_TIME).map(|_| answers.try_take()).collect();
        assert!(places.iter().all(Option::is_some));
        let again = places[0].clone();
        places.remove(0);
        assert!(answers.try_take().is_none());
        let (canceller, cancel) = Cancel::pair();
        canceller.cancel();
        assert!(answers.take(&cancel).is_none());
        drop(again);
        assert!(answers.take(&Cancel::never()).is_some());
    }
}
