//! What a turn has asked its tools before. Pure. Nothing is answered from
//! memory: a file may change by a process in the sandbox or by a person at any
//! time, so that only a new look is never wrong. Where the look shows the same
//! as the one before, and nothing but looks was between, the model is told that
//! it has it already; and told as well when one call fails again and again.

use std::collections::VecDeque;

use ring::digest::{SHA256, digest};

use crate::message::{Block, ToolCall};

/// The one tool that changes nothing, whatever its arguments are. A command of
/// `exec` may do anything.
const READS: &str = "read";

/// Most calls that are remembered of each kind.
const MOST: usize = 64;

/// From this failure of one call on, the model is told how often it was.
const TOO_OFTEN: usize = 3;

type Hash = [u8; 32];

/// The calls of a turn, as far as they are remembered.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// Calls that only looked, since anything else was called, and what they
    /// saw.
    looks: VecDeque<(Hash, Hash)>,
    /// Calls that failed, and how often since they last did not.
    failures: VecDeque<(Hash, usize)>,
}

impl Repeats {
    /// Remembers a call and its result; what the model is to be told of it
    /// beside the result.
    pub(super) fn note(
        &mut self,
        call: &ToolCall,
        result: &[Block],
        is_error: bool,
    ) -> Option<String> {
        let key = hash(&(&call.name, &call.arguments));
        if call.name != READS {
            self.looks.clear();
        }
        let place = self.failures.iter().position(|it| it.0 == key);
        let before = place.and_then(|it| self.failures.remove(it)).map_or(0, |it| it.1);
        if is_error {
            push(&mut self.failures, (key, before + 1));
            return (before + 1 >= TOO_OFTEN).then(|| failed(before + 1));
        }
        (call.name == READS && self.has_seen(key, hash(&result))).then(|| SEEN.to_owned())
    }

    /// Whether the last look of this kind saw the same; it is remembered.
    fn has_seen(&mut self, key: Hash, result: Hash) -> bool {
        let place = self.looks.iter().position(|it| it.0 == key);
        let before = place.and_then(|it| self.looks.remove(it));
        push(&mut self.looks, (key, result));
        before.is_some_and(|it| it.1 == result)
    }
}

const SEEN: &str = "[You have called this before with the same arguments, and nothing has changed \
    since: this is the same result. Go on with it instead of asking again.]";

fn failed(times: usize) -> String {
    format!(
        "[This very call has failed {times} times in this turn. Do not repeat it: look at what it \
         says, and try another way or say what is in the way.]"
    )
}

fn push<T>(remembered: &mut VecDeque<T>, it: T) {
    if remembered.len() == MOST {
        remembered.pop_front();
    }
    remembered.push_back(it);
}

fn hash(value: &impl serde::Serialize) -> Hash {
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, &text).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(Default)]
    struct Turn(Repeats);

    impl Turn {
        /// The first word of the note on a call.
        fn call(&mut self, name: &str, arguments: Value, result: &str) -> Option<String> {
            let call = ToolCall { name: name.into(), arguments, ..ToolCall::default() };
            let is_error = result.starts_with("Error");
            self.0.note(&call, &[Block::text(result)], is_error)
        }

        #[track_caller]
        fn read(&mut self, path: &str, result: &str, is_noted: bool) {
            let note = self.call("read", json!({"path": path}), result);
            assert_eq!(note.is_some(), is_noted, "{note:?}");
        }
    }

    #[test]
    fn a_file_that_reads_the_same_again_is_noted() {
        let mut turn = Turn::default();
        turn.read("a", "one", false);
        turn.read("a", "one", true);
        turn.read("b", "one", false);
        turn.read("a", "one", true);
        turn.read("a", "two", false);
        turn.read("a", "one", false);
        let limited = turn.call("read", json!({"path": "a", "limit": 1}), "one");
        assert_eq!(limited, None, "the arguments differ");
    }

    #[test]
    fn behind_anything_that_may_have_changed_it_nothing_is_noted() {
        for other in ["exec", "write", "patch", "zap", ""] {
            let mut turn = Turn::default();
            turn.read("a", "one", false);
            turn.call(other, json!({}), "ok");
            turn.read("a", "one", false);
        }
    }

    #[test]
    fn a_command_is_never_taken_for_a_look() {
        let mut turn = Turn::default();
        for _ in 0..9 {
            assert_eq!(turn.call("exec", json!({"command": "cat a"}), "one"), None);
        }
    }

    #[test]
    fn what_fails_again_and_again_is_counted() {
        let mut turn = Turn::default();
        let mut fails = |result: &str| turn.call("exec", json!({"command": "x"}), result);
        assert_eq!((fails("Error 1"), fails("Error 2")), (None, None));
        assert!(fails("Error 3").is_some_and(|it| it.contains(" 3 times")));
        assert!(fails("Error").is_some_and(|it| it.contains(" 4 times")));
        assert_eq!((fails("ok"), fails("Error"), fails("Error")), (None, None, None));
        turn.read("a", "Error: no file", false);
        turn.read("a", "Error: no file", false);
        turn.read("b", "Error: no file", false);
        turn.read("a", "Error: no file", true);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut turn = Turn::default();
        for number in 0..3 * MOST {
            turn.read(&number.to_string(), "one", false);
            turn.call("read", json!({"path": number, "x": 1}), "Error");
        }
        assert_eq!((turn.0.looks.len(), turn.0.failures.len()), (MOST, MOST));
        turn.read("0", "one", false);
    }
}
