//! How an answer ends by its server's word, which holds as long as nothing comes
//! behind it: who goes on after it needs the end mark, or says it again. Pure.

use super::{Delta, Fault};
use crate::message::StopReason;

/// A server's word for the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Stop,
    /// The answer ran into its limit.
    Length,
    /// The answer, or the rest of it, is withheld. The call fails once it has
    /// ended: what it cost may still come.
    Withheld(Fault),
}

/// The end of an answer on its way.
#[derive(Debug, Default)]
pub(super) struct Ending {
    word: Option<Word>,
    goes_on: bool,
    /// Why a call of it is not whole.
    cut_call: Option<Fault>,
}

/// An answer that calls itself whole, of that provider, holds a call that is not.
pub(super) fn cut_call(provider: &str, why: &str) -> Fault {
    Fault::Cut(format!(
        "the provider `{provider}` sent a tool call that is not whole ({why}); nothing of the \
         answer was run"
    ))
}

impl Ending {
    /// The server says how it ends. What was cut or withheld does not become
    /// whole by another word.
    pub(super) fn hear(&mut self, word: Word) {
        self.goes_on = false;
        if matches!(self.word, None | Some(Word::Stop)) {
            self.word = Some(word);
        }
    }

    /// More of the answer has come.
    pub(super) fn go_on(&mut self) {
        self.goes_on = true;
    }

    /// A call is not whole. The answer has failed, unless its limit cut it: then
    /// that is why.
    pub(super) fn miss(&mut self, fault: Fault) {
        self.cut_call.get_or_insert(fault);
    }

    /// Whether the answer is whole if its bytes end here.
    pub(super) fn may_be_here(&self) -> bool {
        self.word.is_some() && !self.goes_on
    }

    /// The answer is whole, if there was a word for its end. Whether it waits for
    /// results hangs on its calls, as servers differ in the word for it.
    pub(super) fn tell(&mut self, has_calls: bool, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let reason = match (self.word.take(), self.cut_call.take()) {
            (None, _) => return Ok(()),
            (Some(Word::Withheld(fault)), _) => return Err(fault),
            (Some(Word::Length), _) => StopReason::Length,
            (Some(Word::Stop), Some(fault)) => return Err(fault),
            (Some(Word::Stop), None) if has_calls => StopReason::ToolUse,
            (Some(Word::Stop), None) => StopReason::Stop,
        };
        deltas.push(Delta::Stop(reason));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[Word], has_calls: bool, want: Result<&[StopReason], Fault>) {
        let (mut ending, mut deltas) = (Ending::default(), Vec::new());
        words.iter().for_each(|it| ending.hear(it.clone()));
        let told = ending.tell(has_calls, &mut deltas);
        let want = want.map(|it| it.iter().cloned().map(Delta::Stop).collect::<Vec<Delta>>());
        assert_eq!(told.map(|()| deltas), want);
        assert!(!ending.may_be_here(), "it is told once");
    }

    #[test]
    fn what_was_cut_or_withheld_stays_so() {
        let withheld = || Word::Withheld(Fault::Refused("no".into()));
        check(&[], true, Ok(&[]));
        check(&[Word::Stop], false, Ok(&[StopReason::Stop]));
        check(&[Word::Stop], true, Ok(&[StopReason::ToolUse]));
        check(&[Word::Stop, Word::Length, Word::Stop], true, Ok(&[StopReason::Length]));
        check(&[withheld(), Word::Length], true, Err(Fault::Refused("no".into())));
    }

    #[test]
    fn a_call_that_is_not_whole_fails_an_answer_that_its_limit_did_not_cut() {
        let fault = || cut_call("acme", "why");
        for (word, want) in [(Word::Stop, Err(fault())), (Word::Length, Ok(()))] {
            let mut ending = Ending::default();
            ending.miss(fault());
            ending.hear(word);
            assert_eq!(ending.tell(true, &mut Vec::new()), want);
        }
    }

    #[test]
    fn who_goes_on_has_to_say_it_again() {
        let mut ending = Ending::default();
        ending.go_on();
        assert!(!ending.may_be_here());
        ending.hear(Word::Stop);
        assert!(ending.may_be_here());
        ending.go_on();
        assert!(!ending.may_be_here());
        ending.hear(Word::Stop);
        assert!(ending.may_be_here());
    }
}
