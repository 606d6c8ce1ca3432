//! One prompt over the models that may answer it. The one place where a call
//! is followed by another: what a caller does at each step it does by
//! [`Steps`], which model comes next is for `fallback` to say, and who cools
//! down is known to [`Health`]. Nothing but a model's own failure gets here.

use std::time::Duration;

use crossbeam_channel::{after, select};
use ring::rand::{SecureRandom, SystemRandom};

use super::fallback::{Course, Setback, Step};
use super::{Answer, Fault, Health};
use crate::clock;
use crate::config::{ModelChoice, ModelRef};
use crate::worker::Cancel;

/// How often the conversation is made shorter for one model's answer, whatever
/// a caller thinks of it.
const MOST_SHRINKS: u32 = 6;

/// How often a caller is told that it is waited.
const SILENCE: Duration = Duration::from_secs(1);

/// What a caller does on the way to an answer.
pub trait Steps {
    /// Why the caller itself ends the course: no failure of a model.
    type Halt;

    /// Asks that model once: whatever bounds and records a model call belongs
    /// in here, since it is called for each of them.
    fn ask(&mut self, choice: &ModelChoice) -> Result<Attempt, Self::Halt>;

    /// Another try is on its way: told before the wait for it. What was told
    /// of the answer so far is no part of what comes.
    fn retries(&mut self, retry: &Retry);

    /// Nothing happens: told after each second of a wait between two calls.
    fn waits(&mut self) {}

    /// Another model than before is asked; `why` says what the one before it
    /// failed of, or that it cools down.
    fn falls_back(&mut self, choice: &ModelChoice, why: &str);

    /// The conversation is too long for that model: makes it shorter, if it
    /// can, and the model is asked once more. `before`: how often that was
    /// done for this answer.
    fn shrink(&mut self, _choice: &ModelChoice, _before: u32) -> Result<bool, Self::Halt> {
        Ok(false)
    }

    /// Whether a failure may be followed by another call.
    fn may_go_on(&self) -> bool {
        true
    }
}

/// What came of one call.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is moved on")]
pub enum Attempt {
    /// A whole answer.
    Answered(Answer),
    /// None; what had come by then is the caller's.
    Failed {
        /// Why.
        fault: Fault,
        /// Whether a person has seen some of it.
        is_seen: bool,
    },
}

/// A try that is on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Which one it is for this answer, from 1.
    pub attempt: u32,
    /// How long it is waited before.
    pub wait: Duration,
    /// Why there is one, as a sentence: what failed just now, and for a wait
    /// for another model what is wrong with that one.
    pub reason: String,
    /// The model that is asked, where it is another than the one that failed.
    pub model: Option<ModelRef>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum End<H> {
    /// The caller ended it.
    Halted(H),
    /// A call ended in a way that no other call puts right, or after which
    /// there may be none.
    Failed(Fault),
    /// It was called off between two calls.
    CalledOff,
    /// Every model failed.
    Exhausted(Exhausted),
}

/// Every model failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The word for the failure of the first choice.
    pub category: &'static str,
    /// Each model with why it did not answer.
    pub reasons: Vec<(String, String)>,
}

/// One prompt's way over its models.
#[derive(Debug)]
pub struct Chain<'a> {
    choices: &'a [&'a ModelChoice],
    health: &'a Health,
    course: Course,
    /// The model that was asked last; the first choice before any.
    current: usize,
    /// What each failed of last.
    whys: Vec<Option<Fault>>,
    /// Who refused since the last answer: a person should hear of it, since
    /// another one's answer hides it.
    hidden: Vec<usize>,
}

/// How far an answer is.
#[derive(Default)]
struct Tries {
    retries: u32,
    shrinks: u32,
    /// Which call failed last, and why.
    last: Option<(usize, String)>,
    /// Whether a person has seen some of its answer and was told of no retry.
    is_untold: bool,
}

impl Tries {
    fn note(&mut self, index: usize, fault: &Fault, is_seen: bool) {
        self.last = Some((index, fault.to_string()));
        self.is_untold = is_seen;
    }

    /// Whether the conversation has been made shorter.
    fn shrink<S: Steps>(
        &mut self,
        choice: &ModelChoice,
        steps: &mut S,
    ) -> Result<bool, End<S::Halt>> {
        let may = self.shrinks < MOST_SHRINKS && steps.may_go_on();
        let has_shrunk = may && steps.shrink(choice, self.shrinks).map_err(End::Halted)?;
        self.shrinks += u32::from(has_shrunk);
        Ok(has_shrunk)
    }

    fn next(&mut self, wait: Duration, reason: String, model: Option<ModelRef>) -> Retry {
        self.is_untold = false;
        self.retries += 1;
        Retry { attempt: self.retries, wait, reason, model }
    }
}

impl<'a> Chain<'a> {
    /// A prompt that these models may answer, the first choice first; never
    /// empty.
    pub fn new(choices: &'a [&'a ModelChoice], health: &'a Health) -> Self {
        let course = Course::new(choices.len());
        let whys = vec![None; choices.len()];
        Self { choices, health, course, current: 0, whys, hidden: Vec::new() }
    }

    /// The model that was asked last; the first choice before any was.
    pub fn current(&self) -> &'a ModelChoice {
        self.choices[self.current]
    }

    /// One answer, by whichever model gives it. Waits end at once when it is
    /// called off.
    pub fn answer<S: Steps>(
        &mut self,
        steps: &mut S,
        cancel: &Cancel,
    ) -> Result<Answer, End<S::Halt>> {
        self.course.begin_answer();
        let mut tries = Tries::default();
        loop {
            match self.course.next(&self.cooling(), chance()) {
                Step::Ask(index) => {
                    if let Some(answer) = self.ask(index, steps, &mut tries)? {
                        return Ok(answer);
                    }
                }
                Step::Pause(index, wait) | Step::CoolDown(index, wait) => {
                    steps.retries(&self.retry(index, wait, &mut tries));
                    pause(wait, steps, cancel)?;
                }
                Step::GiveUp => return Err(End::Exhausted(self.exhausted())),
            }
        }
    }

    fn ask<S: Steps>(
        &mut self,
        index: usize,
        steps: &mut S,
        tries: &mut Tries,
    ) -> Result<Option<Answer>, End<S::Halt>> {
        let choice = self.announce(index, steps, tries);
        let began = clock::now();
        let (fault, is_seen) = match steps.ask(choice).map_err(End::Halted)? {
            Attempt::Answered(answer) => {
                self.course.answered(index);
                self.health.answered(&choice.model, began);
                self.uncover(choice);
                return Ok(Some(answer));
            }
            Attempt::Failed { fault, is_seen } => (fault, is_seen),
        };
        tries.note(index, &fault, is_seen);
        if matches!(fault, Fault::TooLong(_)) && tries.shrink(choice, steps)? {
            self.course.ask_again(index);
            return Ok(None);
        }
        self.fail(index, fault, steps.may_go_on())
    }

    /// Says what a person must know before that model is asked.
    fn announce<S: Steps>(
        &mut self,
        index: usize,
        steps: &mut S,
        tries: &mut Tries,
    ) -> &'a ModelChoice {
        if tries.is_untold {
            steps.retries(&self.retry(index, Duration::ZERO, tries));
        }
        let choice = self.choices[index];
        let before = std::mem::replace(&mut self.current, index);
        if before != index {
            tries.shrinks = 0;
            steps.falls_back(choice, &self.why_not(before));
        }
        choice
    }

    /// The next try, by that model. A person has just seen another one fail,
    /// perhaps: then that is why, and for a wait what it is for.
    fn retry(&self, index: usize, wait: Duration, tries: &mut Tries) -> Retry {
        let model = &self.choices[index].model;
        let reason = match &tries.last {
            Some((last, why)) if *last == index || wait.is_zero() => why.clone(),
            Some((_, why)) => format!("{why}; {model}: {}", self.why(index)),
            None => self.why(index),
        };
        let last = tries.last.as_ref().map_or(self.current, |it| it.0);
        tries.next(wait, reason, (last != index).then(|| model.clone()))
    }

    /// Notes a failure; an error if it is the end.
    fn fail<H>(
        &mut self,
        index: usize,
        fault: Fault,
        may_go_on: bool,
    ) -> Result<Option<Answer>, End<H>> {
        let Some(setback) = setback(&fault) else {
            return Err(End::Failed(self.with_reasons(index, fault)));
        };
        // How long a conversation is says nothing of a model's health.
        if !matches!(fault, Fault::TooLong(_)) {
            self.health.failed(&self.choices[index].model, &fault, clock::now());
        }
        if !may_go_on {
            return Err(End::Failed(fault));
        }
        self.course.failed(index, setback);
        if matches!(fault, Fault::Refused(_)) {
            self.hidden.push(index);
        }
        self.whys[index] = Some(fault);
        Ok(None)
    }

    /// A failure of ours, with why it was come to that model at all.
    fn with_reasons(&self, index: usize, fault: Fault) -> Fault {
        let whys =
            self.choices.iter().zip(&self.whys).filter_map(|(it, why)| Some((it, why.as_ref()?)));
        let reasons: String = whys.map(|(it, why)| format!("\n- {}: {why}", it.model)).collect();
        match fault {
            Fault::Ours(what) if !reasons.is_empty() => {
                let model = &self.choices[index].model;
                Fault::Ours(format!("{model}: {what}\nBefore it failed:{reasons}"))
            }
            other => other,
        }
    }

    /// Tells the log who refused, now that this model has answered instead.
    fn uncover(&mut self, answered: &ModelChoice) {
        for index in std::mem::take(&mut self.hidden) {
            let (model, why) = (&self.choices[index].model, self.why(index));
            self.health.tell_hidden(model, &why, &answered.model, clock::now());
        }
    }

    /// How long each model still cools down.
    fn cooling(&self) -> Vec<Option<Duration>> {
        let now = clock::now();
        let models = self.choices.iter().map(|it| &it.model);
        models.map(|it| self.health.cooling(it, now).map(|it| it.rest)).collect()
    }

    fn exhausted(&self) -> Exhausted {
        let first = self.whys.first().and_then(Option::as_ref);
        let choices = self.choices.iter().enumerate();
        Exhausted {
            category: first.map_or("rate_limit", Fault::category),
            reasons: choices.map(|(index, it)| (it.model.to_string(), self.why(index))).collect(),
        }
    }

    /// Why another model is asked; what it failed of names its provider.
    fn why_not(&self, index: usize) -> String {
        match self.whys[index] {
            Some(_) => self.why(index),
            None => format!("{}: {}", self.choices[index].model, self.why(index)),
        }
    }

    /// Why a model has not answered.
    fn why(&self, index: usize) -> String {
        if let Some(fault) = &self.whys[index] {
            return fault.to_string();
        }
        let cooling = self.health.cooling(&self.choices[index].model, clock::now());
        cooling.map_or_else(|| "it was not asked".into(), |it| it.to_string())
    }
}

impl Exhausted {
    /// The sentence for people, with a line a model.
    pub fn told(&self, agent: &str) -> String {
        let lines = self.reasons.iter().map(|(model, why)| format!("\n- {model}: {why}"));
        format!("All models failed for agent '{agent}'{}", lines.collect::<String>())
    }
}

/// What a failure means for its model; `None` if no other call is to follow.
fn setback(fault: &Fault) -> Option<Setback> {
    match fault {
        Fault::RateLimited(..) | Fault::Unavailable(_) | Fault::Cut(_) => Some(Setback::Passing),
        Fault::Refused(_) | Fault::TooLong(_) | Fault::Stale(_) => Some(Setback::Lasting),
        Fault::Cancelled | Fault::Inactive(_) | Fault::Ours(_) => None,
    }
}

/// Waits, or ends at once when it is called off.
fn pause<S: Steps>(mut wait: Duration, steps: &mut S, cancel: &Cancel) -> Result<(), End<S::Halt>> {
    while !wait.is_zero() {
        let step = wait.min(SILENCE);
        select! {
            recv(after(step)) -> _ => steps.waits(),
            recv(cancel.gone()) -> _ => return Err(End::CalledOff),
        }
        wait -= step;
    }
    Ok(())
}

/// A number from 0 to 1. Without one from the system the middle has to do.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::config::{Home, ModelRef, ThinkingLevel};
    use crate::message::Assistant;
    use crate::secret::Redactor;
    use crate::worker::Canceller;

    /// A caller whose models do what is told, and that notes what it is told.
    #[derive(Default)]
    struct Script {
        /// What comes of each call, and whether some of it is seen.
        calls: VecDeque<Result<(), (Fault, bool)>>,
        told: Vec<String>,
        waits: u32,
        shrinks: u32,
        is_final: bool,
        /// Called off when a retry is told.
        canceller: Option<Canceller>,
    }

    impl Steps for Script {
        type Halt = String;

        fn ask(&mut self, choice: &ModelChoice) -> Result<Attempt, String> {
            self.told.push(choice.model.model.clone());
            match self.calls.pop_front() {
                None => Err("no more".into()),
                Some(Ok(())) => {
                    let (message, broken) = (Assistant::default(), Vec::new());
                    Ok(Attempt::Answered(Answer { message, broken, large: None }))
                }
                Some(Err((fault, is_seen))) => Ok(Attempt::Failed { fault, is_seen }),
            }
        }

        fn retries(&mut self, retry: &Retry) {
            let wait = if retry.wait.is_zero() { "now" } else { "later" };
            let by = retry.model.as_ref().map_or_else(String::new, |it| format!(" {}", it.model));
            self.told.push(format!("retry {} {wait}{by}: {}", retry.attempt, retry.reason));
            if let Some(it) = &self.canceller {
                it.cancel();
            }
        }

        fn waits(&mut self) {
            self.waits += 1;
        }

        fn falls_back(&mut self, choice: &ModelChoice, why: &str) {
            self.told.push(format!("to {} ({why})", choice.model.model));
        }

        fn shrink(&mut self, _: &ModelChoice, before: u32) -> Result<bool, String> {
            self.told.push(format!("shrink {before}"));
            Ok(before < self.shrinks)
        }

        fn may_go_on(&self) -> bool {
            !self.is_final
        }
    }

    /// A home of its own that is never made: what cannot be written is kept.
    fn health() -> Health {
        Health::new(&Home::new("/nonexistent/beige-chain"), Redactor::new())
    }

    fn choice(id: &str) -> ModelChoice {
        let model = ModelRef { provider: "p".into(), model: id.into() };
        ModelChoice { model, thinking: ThinkingLevel::Off, compaction_threshold: None }
    }

    fn unavailable(is_seen: bool) -> Result<(), (Fault, bool)> {
        Err((Fault::Unavailable("down".into()), is_seen))
    }

    fn refused() -> Result<(), (Fault, bool)> {
        Err((Fault::Refused("no".into()), false))
    }

    fn too_long() -> Result<(), (Fault, bool)> {
        Err((Fault::TooLong("long".into()), false))
    }

    type Calls = Vec<Result<(), (Fault, bool)>>;

    /// Runs one answer of the models `a` and `b`.
    fn run(mut script: Script, calls: Calls, cancel: &Cancel) -> (Option<End<String>>, String) {
        let (health, models) = (health(), [choice("a"), choice("b")]);
        let choices: Vec<&ModelChoice> = models.iter().collect();
        script.calls = calls.into();
        let mut chain = Chain::new(&choices, &health);
        let end = chain.answer(&mut script, cancel).err();
        (end, script.told.join(", "))
    }

    #[track_caller]
    fn check(script: Script, calls: Calls, want: &str) -> Option<End<String>> {
        let (end, told) = run(script, calls, &Cancel::never());
        assert_eq!(told, want);
        end
    }

    #[test]
    fn the_next_model_is_told_and_a_retry_where_something_was_seen() {
        let script = Script::default;
        assert_eq!(check(script(), vec![Ok(())], "a"), None);
        assert_eq!(check(script(), vec![refused(), Ok(())], "a, to b (no), b"), None);
        let seen = vec![unavailable(true), Ok(())];
        assert_eq!(check(script(), seen, "a, retry 1 now b: down, to b (down), b"), None);
    }

    #[test]
    fn a_retry_tells_what_failed_just_now_and_who_is_asked() {
        let (canceller, cancel) = Cancel::pair();
        let script = Script { canceller: Some(canceller), ..Script::default() };
        let cut = Err((Fault::Cut("b broke".into()), true));
        let (_, told) = run(script, vec![unavailable(false), cut], &cancel);
        assert_eq!(told, "a, to b (down), b, retry 1 later a: b broke; p/a: down");
    }

    #[test]
    fn a_wait_is_told_while_it_lasts() {
        let mut script = Script::default();
        let wait = SILENCE + Duration::from_millis(1);
        assert_eq!(pause(wait, &mut script, &Cancel::never()), Ok(()));
        assert_eq!(script.waits, 2);
    }

    #[test]
    fn when_all_fail_each_says_why() {
        let end =
            check(Script::default(), vec![refused(), too_long()], "a, to b (no), b, shrink 0");
        let Some(End::Exhausted(exhausted)) = end else { panic!("{end:?}") };
        assert_eq!(exhausted.category, "refused");
        let want = "All models failed for agent 'x'\n- p/a: no\n- p/b: long";
        assert_eq!(exhausted.told("x"), want);
    }

    #[test]
    fn who_cools_down_from_the_start_is_named_where_nobody_answers() {
        let (health, models) = (health(), [choice("a"), choice("b")]);
        let choices: Vec<&ModelChoice> = models.iter().collect();
        let wait = Fault::RateLimited(Some(300_000), "slowly".into());
        health.failed(&models[0].model, &wait, clock::now());
        let mut script = Script { calls: [refused()].into(), ..Script::default() };
        let end = Chain::new(&choices, &health).answer(&mut script, &Cancel::never());
        let Err(End::Exhausted(exhausted)) = end else { panic!("{end:?}") };
        let why = "p/a: it cools down for 300 s more (slowly)";
        assert_eq!(script.told.join(", "), format!("to b ({why}), b"));
        assert_eq!(exhausted.category, "rate_limit");
        let told = exhausted.told("x");
        let part = "- p/a: it cools down for 300 s more (slowly)\n- p/b: no";
        assert!(told.ends_with(part), "{told}");
    }

    #[test]
    fn a_conversation_that_is_too_long_is_made_shorter_so_often() {
        let script = |shrinks| Script { shrinks, ..Script::default() };
        let once = vec![too_long(), Ok(())];
        assert_eq!(check(script(9), once, "a, shrink 0, a"), None);
        let many: Vec<_> = (0..=MOST_SHRINKS).map(|_| too_long()).chain([Ok(())]).collect();
        let shrinks: String = (0..MOST_SHRINKS).map(|it| format!("shrink {it}, a, ")).collect();
        assert_eq!(check(script(9), many, &format!("a, {shrinks}to b (long), b")), None);
        let in_vain = vec![too_long(), too_long(), Ok(())];
        assert_eq!(check(script(1), in_vain, "a, shrink 0, a, shrink 1, to b (long), b"), None);
    }

    #[test]
    fn what_is_no_models_fault_is_the_end() {
        for fault in [Fault::Cancelled, Fault::Inactive("late".into()), Fault::Ours("ours".into())]
        {
            let end = check(Script::default(), vec![Err((fault.clone(), false))], "a");
            assert_eq!(end, Some(End::Failed(fault)));
        }
        // It hides nothing of why it was come to.
        let ours = Err((Fault::Ours("ours".into()), false));
        let end = check(Script::default(), vec![refused(), ours], "a, to b (no), b");
        let told = "p/b: ours\nBefore it failed:\n- p/a: no";
        assert_eq!(end, Some(End::Failed(Fault::Ours(told.into()))));
        assert_eq!(check(Script::default(), vec![], "a"), Some(End::Halted("no more".into())));
    }

    #[test]
    fn a_caller_that_may_not_go_on_gets_the_failure() {
        let script = Script { is_final: true, ..Script::default() };
        let end = check(script, vec![unavailable(true)], "a");
        assert_eq!(end, Some(End::Failed(Fault::Unavailable("down".into()))));
        let script = Script { is_final: true, ..Script::default() };
        let end = check(script, vec![too_long()], "a");
        assert_eq!(end, Some(End::Failed(Fault::TooLong("long".into()))));
    }

    #[test]
    fn a_pause_ends_when_it_is_called_off() {
        let (canceller, cancel) = Cancel::pair();
        let script = Script { canceller: Some(canceller), ..Script::default() };
        let (end, told) = run(script, vec![unavailable(true), unavailable(true)], &cancel);
        assert_eq!(end, Some(End::CalledOff));
        assert_eq!(
            told,
            "a, retry 1 now b: down, to b (down), b, retry 2 later a: down; p/a: down"
        );
    }
}
