//! Ids and names of tool calls that the other side takes. Pure. A model gets
//! its own ids back as they are, since some were trained on their form. All
//! others are written anew as nine letters and digits: Mistral's models take
//! nothing else, wherever they are served, and everyone takes that. The same
//! history gives the same ids, so that its beginning stays in the provider's
//! cache.

use std::collections::HashSet;

use ring::digest::{SHA256, digest};

use crate::message::ToolCall;

const LENGTH: usize = 9;

/// Longest id that OpenAI takes.
const LONGEST: usize = 40;

/// The ids of one request.
#[derive(Debug, Default)]
pub(super) struct Ids {
    taken: HashSet<String>,
}

impl Ids {
    /// The id to send for a call that is stored under this one, and that the
    /// other side knows by the other, if it knows it.
    pub(super) fn of_call(&mut self, stored: &str, known: Option<&str>) -> String {
        let kept = known.or(fits_all(stored).then_some(stored));
        let kept = kept.filter(|it| !self.taken.contains(*it)).map(str::to_owned);
        let id = kept.unwrap_or_else(|| self.anew(stored));
        self.taken.insert(id.clone());
        id
    }

    fn anew(&self, stored: &str) -> String {
        let mut attempts = (0_u32..).map(|attempt| short(&format!("{attempt} {stored}")));
        attempts.find(|it| !self.taken.contains(it)).unwrap_or_default()
    }
}

/// The id that a model gave to a call, if it is of a form that OpenAI, and those
/// like it, take.
pub(super) fn own_id(call: &ToolCall) -> Option<&str> {
    let id = call.id.as_str();
    let is_sound = (1..=LONGEST).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_graphic());
    is_sound.then_some(id)
}

/// A tool's name as it may stand in a call: models make some up that their own
/// server then refuses.
pub(super) fn sound_name(name: &str) -> String {
    let sound = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let name: String = name.chars().take(64).map(|it| if sound(it) { it } else { '_' }).collect();
    if name.is_empty() { "unnamed".into() } else { name }
}

/// What even the strictest take.
fn fits_all(id: &str) -> bool {
    id.len() == LENGTH && id.bytes().all(|it| it.is_ascii_alphanumeric())
}

/// Nine letters and digits that stand for a text.
fn short(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let alphabet = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let letters = hash.as_ref().iter().map(|it| alphabet[usize::from(*it) % alphabet.len()]);
    letters.take(LENGTH).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn sent(ids: &mut Ids, id: &str, is_own: bool) -> String {
        let call = ToolCall { id: id.into(), ..ToolCall::default() };
        ids.of_call(id, own_id(&call).filter(|_| is_own))
    }

    #[test]
    fn the_models_own_ids_stay_as_they_are() {
        let mut ids = Ids::default();
        for id in ["functions.exec:0", "call_abc-1", &"x".repeat(40)] {
            assert_eq!(sent(&mut ids, id, true), id);
        }
    }

    #[test]
    fn what_the_other_side_may_refuse_is_written_anew() {
        let mut ids = Ids::default();
        for (id, own) in
            [("toolu_01", false), ("fc|a b", true), ("é", true), ("", true), ("", true)]
        {
            assert!(fits_all(&sent(&mut ids, id, own)), "{id}");
        }
        assert_eq!(sent(&mut ids, "aB3xK9mP2", false), "aB3xK9mP2");
        assert!(fits_all(&sent(&mut ids, &"x".repeat(41), true)));
    }

    #[test]
    fn an_id_is_sent_once() {
        let mut ids = Ids::default();
        assert_ne!(sent(&mut ids, "x", true), sent(&mut ids, "x", true));
    }

    #[test]
    fn the_same_history_gives_the_same_ids() {
        let sent = || {
            let mut ids = Ids::default();
            ["a", "a", "toolu_01"].map(|it| sent(&mut ids, it, false))
        };
        assert_eq!(sent(), sent());
    }
}
