//! Ids and names of tool calls that the other side takes. Pure. A model gets
//! its own ids back as they are, since some were trained on their form. All
//! others are written anew as nine letters and digits: Mistral's models take
//! nothing else, wherever they are served, and everyone takes that. The same
//! history gives the same ids, so that its beginning stays in the provider's
//! cache.

use std::collections::{HashSet, VecDeque};

use ring::digest::{SHA256, digest};

use crate::message::ToolCall;

const LENGTH: usize = 9;

/// Longest id that OpenAI takes.
const LONGEST: usize = 40;

/// The ids of one request.
#[derive(Debug, Default)]
pub(in crate::provider) struct Ids {
    taken: HashSet<String>,
    /// Calls of the last answer that wait for their results: as they are
    /// stored, and as they are sent.
    open: VecDeque<(String, String)>,
}

impl Ids {
    /// A new answer begins.
    pub(in crate::provider) fn begin_answer(&mut self) {
        self.open.clear();
    }

    /// The id to send for a call; `own` says whether the model that is asked
    /// gave it.
    pub(in crate::provider) fn of_call(&mut self, call: &ToolCall, own: bool) -> String {
        let is_kept = if own { is_sound(&call.id) } else { fits_all(&call.id) };
        self.of_known_call(call, is_kept.then_some(&call.id))
    }

    /// The id to send for a call that the other side knows by this one, if it
    /// knows it.
    pub(in crate::provider) fn of_known_call(
        &mut self,
        call: &ToolCall,
        known: Option<&str>,
    ) -> String {
        let kept = known.filter(|it| !self.taken.contains(*it)).map(str::to_owned);
        let id = kept.unwrap_or_else(|| self.anew(&call.id));
        self.taken.insert(id.clone());
        self.open.push_back((call.id.clone(), id.clone()));
        id
    }

    /// The id to send with the result of a call; none if no call of the last
    /// answer waits for it.
    pub(in crate::provider) fn of_result(&mut self, stored: &str) -> Option<String> {
        let place = self.open.iter().position(|(it, _)| it == stored)?;
        self.open.remove(place).map(|(_, sent)| sent)
    }

    fn anew(&self, stored: &str) -> String {
        let mut attempts = (0_u32..).map(|attempt| short(&format!("{attempt} {stored}")));
        attempts.find(|it| !self.taken.contains(it)).unwrap_or_default()
    }
}

/// A tool's name as it may stand in a call: models make some up that their own
/// server then refuses.
pub(in crate::provider) fn sound_name(name: &str) -> String {
    let sound = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let name: String = name.chars().take(64).map(|it| if sound(it) { it } else { '_' }).collect();
    if name.is_empty() { "unnamed".into() } else { name }
}

/// What OpenAI and those like it take.
fn is_sound(id: &str) -> bool {
    (1..=LONGEST).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_graphic())
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

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), ..ToolCall::default() }
    }

    #[test]
    fn the_models_own_ids_stay_as_they_are() {
        let mut ids = Ids::default();
        for id in ["functions.exec:0", "call_abc-1", &"x".repeat(40)] {
            assert_eq!(ids.of_call(&call(id), true), id);
        }
    }

    #[test]
    fn what_the_other_side_may_refuse_is_written_anew() {
        let mut ids = Ids::default();
        for (id, own) in
            [("toolu_01", false), ("fc|a b", true), ("é", true), ("", true), ("", true)]
        {
            assert!(fits_all(&ids.of_call(&call(id), own)), "{id}");
        }
        assert_eq!(ids.of_call(&call("aB3xK9mP2"), false), "aB3xK9mP2");
        assert!(fits_all(&ids.of_call(&call(&"x".repeat(41)), true)));
    }

    #[test]
    fn an_id_is_sent_once_and_its_result_has_the_same() {
        let mut ids = Ids::default();
        let first = ids.of_call(&call("x"), true);
        let second = ids.of_call(&call("x"), true);
        assert_ne!(first, second);
        assert_eq!(ids.of_result("y"), None);
        assert_eq!(ids.of_result("x"), Some(first));
        assert_eq!(ids.of_result("x"), Some(second));
        assert_eq!(ids.of_result("x"), None);
    }

    #[test]
    fn the_same_history_gives_the_same_ids() {
        let sent = || {
            let mut ids = Ids::default();
            ["a", "a", "toolu_01"].map(|it| ids.of_call(&call(it), false))
        };
        assert_eq!(sent(), sent());
    }
}
