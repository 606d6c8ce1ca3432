//! The output of an answer as it stands at its end, held against what has come
//! of it before: what is there and never came is taken, and nothing twice. An
//! item is known by its id; where a server makes ids up anew each time, a call by
//! what it says, anything else by its order.

use serde_json::Value;

use super::heard::Heard;
use super::{Excess, Item, Items, Kind, arguments, text};
use crate::provider::Delta;

/// An item of the output.
struct Told<'a> {
    item: &'a Value,
    kind: Kind,
    id: &'a str,
    call_id: &'a str,
    name: &'a str,
    arguments: Heard,
}

/// How an item can be known for one that came, the surest way first.
const WAYS: [fn(&Item, &Told<'_>) -> bool; 3] = [has_its_id, says_the_same, has_its_place];

impl Items {
    /// The answer has ended, and its output stands here as a whole: what of it
    /// did not come before.
    pub(in super::super) fn complete(
        &mut self,
        output: &[Value],
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Excess> {
        let output: Vec<Told<'_>> = output.iter().map(Told::of).collect();
        let known = self.known_in(&output);
        let is_late = self.items.iter().any(|it| it.is_told || !it.heard.is_empty());
        for (told, known) in output.iter().zip(known) {
            let number = match known {
                Some(number) => number,
                None => self.add(told.kind, told.id, None, deltas)?,
            };
            let is_last = self.touched == Some(number);
            match told.kind {
                Kind::Reasoning if is_late && !is_last => self.think_late(number, told, deltas)?,
                _ => self.end_item(number, told.item, deltas)?,
            }
        }
        for number in 0..self.items.len() {
            self.spend_spare(number, deltas)?;
        }
        Ok(())
    }

    /// Which of the items that came each one of the output is.
    fn known_in(&self, output: &[Told<'_>]) -> Vec<Option<usize>> {
        let mut known = vec![None; output.len()];
        let mut is_free = vec![true; self.items.len()];
        for way in WAYS {
            for (told, known) in output.iter().zip(&mut known).filter(|it| it.1.is_none()) {
                let fits = |number: &usize| {
                    let came = &self.items[*number];
                    is_free[*number] && came.kind == told.kind && way(came, told)
                };
                *known = (0..self.items.len()).find(fits);
                if let Some(number) = *known {
                    is_free[number] = false;
                }
            }
        }
        known
    }

    /// A thought whose place is before what has been told already: it is shown,
    /// but not kept to be sent back from where it does not belong.
    fn think_late(
        &mut self,
        number: usize,
        told: &Told<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Excess> {
        if std::mem::replace(&mut self.items[number].has_ended, true) {
            return Ok(());
        }
        self.lacks = true;
        self.show_reasoning(number, told.item, deltas)
    }
}

impl<'a> Told<'a> {
    fn of(item: &'a Value) -> Self {
        let mut said = Heard::default();
        said.add(&arguments(item));
        Self {
            item,
            kind: Kind::of(item),
            id: text(item, "id"),
            call_id: text(item, "call_id"),
            name: text(item, "name"),
            arguments: said,
        }
    }
}

fn has_its_id(came: &Item, told: &Told<'_>) -> bool {
    if !told.call_id.is_empty() && !came.own_call_id().is_empty() {
        return told.call_id == came.call_id;
    }
    !told.id.is_empty() && [&came.id, &came.call_id].into_iter().any(|it| it == told.id)
}

fn says_the_same(came: &Item, told: &Told<'_>) -> bool {
    let says_no_other = came.heard.is_empty() || came.heard == told.arguments;
    came.kind == Kind::Call && came.name == told.name && says_no_other
}

/// A call that has another id and says something else is another one.
fn has_its_place(came: &Item, told: &Told<'_>) -> bool {
    came.kind != Kind::Call || came.own_call_id().is_empty() || told.call_id.is_empty()
}
