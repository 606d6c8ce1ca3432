//! The way of one prompt through its models: which is asked next, when it is
//! paused, what is waited for, and when there is nothing left to try. Pure:
//! time and chance are handed in, nothing is asked here. A fallback is for one
//! prompt alone, so each prompt has a [`Course`] of its own.

use std::time::Duration;

/// How often all models are gone through for one answer.
const MOST_PASSES: u32 = 3;

/// Failures of a model in one prompt after which it is left out.
const MOST_FAILURES: u32 = 3;

/// The pause before the second pass; it doubles from there.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest wait for a model that cools down; for a longer one nobody waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Waits for one answer: other sessions may let a model cool down again and
/// again while this one waits for it.
const MOST_WAITS: u32 = 6;

/// One prompt on its way.
#[derive(Clone, Debug)]
pub struct Course {
    models: Vec<Standing>,
    /// The model that is tried first: the first choice, then whoever answered.
    preferred: usize,
    pass: u32,
    waits: u32,
}

/// How a model stands in this prompt.
#[derive(Clone, Debug, Default)]
struct Standing {
    failures: u32,
    is_out: bool,
    /// Whether it has had its turn in this pass.
    was_asked: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This model is asked.
    Ask(usize),
    /// Nothing for so long; then there is another step.
    Wait(Duration),
    /// No model is left.
    GiveUp,
}

/// What a failure means for its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setback {
    /// It may do better in a moment, or once it has cooled down.
    Passing,
    /// Asking it again in this prompt is of no use.
    Lasting,
}

impl Course {
    /// A prompt with so many models, in their order; the first is the first
    /// choice.
    pub fn new(count: usize) -> Self {
        Self { models: vec![Standing::default(); count], preferred: 0, pass: 1, waits: 0 }
    }

    /// Another answer of this prompt is wanted: passes are counted anew. What
    /// is out stays out.
    pub fn begin_answer(&mut self) {
        (self.pass, self.waits) = (1, 0);
        self.models.iter_mut().for_each(|it| it.was_asked = false);
    }

    /// What comes next. `cooling` says of each model how long it still cools
    /// down; `chance` is from 0 to 1.
    pub fn next(&mut self, cooling: &[Option<Duration>], chance: f64) -> Step {
        let cools = |index: usize| cooling.get(index).copied().flatten();
        let open = |it: &&usize| !self.models[**it].is_out && cools(**it).is_none();
        let order = self.order();
        let free = order.iter().filter(open).find(|it| !self.models[**it].was_asked);
        if let Some(index) = free.copied() {
            self.models[index].was_asked = true;
            return Step::Ask(index);
        }
        if order.iter().any(|it| open(&it)) && self.pass < MOST_PASSES {
            return Step::Wait(self.next_pass(chance));
        }
        let shortest = order.iter().filter(|it| !self.models[**it].is_out);
        let shortest = shortest.filter_map(|it| cools(*it)).min();
        match shortest.filter(|it| *it <= LONGEST_WAIT && self.waits < MOST_WAITS) {
            Some(wait) => Step::Wait(self.wait_out(wait, cooling, chance)),
            None => Step::GiveUp,
        }
    }

    /// That model answered: it is asked first from now on.
    pub fn answered(&mut self, index: usize) {
        self.preferred = index;
        self.models[index].failures = 0;
    }

    /// That model failed.
    pub fn failed(&mut self, index: usize, setback: Setback) {
        let model = &mut self.models[index];
        model.failures += 1;
        model.is_out |= setback == Setback::Lasting || model.failures >= MOST_FAILURES;
    }

    /// That model is asked again at once, since something else was put right.
    pub fn ask_again(&mut self, index: usize) {
        self.models[index].was_asked = false;
    }

    /// The model that goes first, then the others in their order.
    fn order(&self) -> Vec<usize> {
        let others = (0..self.models.len()).filter(|it| *it != self.preferred);
        std::iter::once(self.preferred).chain(others).collect()
    }

    /// Begins another pass; how long to pause before it: a quarter more or less
    /// than the even time, so that not all come back at once.
    fn next_pass(&mut self, chance: f64) -> Duration {
        let pause = PAUSE * 2_u32.pow(self.pass - 1);
        self.pass += 1;
        self.models.iter_mut().for_each(|it| it.was_asked = false);
        pause.mul_f64(0.75 + 0.5 * chance.clamp(0.0, 1.0))
    }

    /// Waits for a model: as long as it asks for, or a tenth more.
    fn wait_out(&mut self, wait: Duration, cooling: &[Option<Duration>], chance: f64) -> Duration {
        self.waits += 1;
        for (model, _) in self.models.iter_mut().zip(cooling).filter(|it| it.1.is_some()) {
            model.was_asked = false;
        }
        wait + wait.mul_f64(0.1 * chance.clamp(0.0, 1.0))
    }
}
