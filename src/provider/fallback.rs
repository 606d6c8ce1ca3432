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
pub(super) struct Course {
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
pub(super) enum Step {
    /// This model is asked.
    Ask(usize),
    /// Nothing for so long; then another pass begins, with this model.
    Pause(usize, Duration),
    /// Nothing for so long; then this model has cooled down.
    CoolDown(usize, Duration),
    /// No model is left.
    GiveUp,
}

/// What a failure means for its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setback {
    /// It may do better in a moment, or once it has cooled down.
    Passing,
    /// Asking it again in this prompt is of no use.
    Lasting,
}

impl Course {
    /// A prompt with so many models, in their order; the first is the first
    /// choice.
    pub(super) fn new(count: usize) -> Self {
        Self { models: vec![Standing::default(); count], preferred: 0, pass: 1, waits: 0 }
    }

    /// Another answer of this prompt is wanted: passes are counted anew. What
    /// is out stays out.
    pub(super) fn begin_answer(&mut self) {
        (self.pass, self.waits) = (1, 0);
        self.models.iter_mut().for_each(|it| it.was_asked = false);
    }

    /// What comes next. `cooling` says of each model how long it still cools
    /// down; `chance` is from 0 to 1.
    pub(super) fn next(&mut self, cooling: &[Option<Duration>], chance: f64) -> Step {
        let cools = |index: usize| cooling.get(index).copied().flatten();
        let open = |it: &&usize| !self.models[**it].is_out && cools(**it).is_none();
        let order = self.order();
        let free = order.iter().filter(open).find(|it| !self.models[**it].was_asked);
        if let Some(index) = free.copied() {
            self.models[index].was_asked = true;
            return Step::Ask(index);
        }
        if let Some(index) = order.iter().find(open).filter(|_| self.pass < MOST_PASSES) {
            return Step::Pause(*index, self.next_pass(chance));
        }
        let left = order.into_iter().filter(|it| !self.models[*it].is_out);
        let shortest = left.filter_map(|it| Some((it, cools(it)?))).min_by_key(|it| it.1);
        match shortest.filter(|it| it.1 <= LONGEST_WAIT && self.waits < MOST_WAITS) {
            Some((index, wait)) => Step::CoolDown(index, self.wait_out(wait, cooling, chance)),
            None => Step::GiveUp,
        }
    }

    /// That model answered: it is asked first from now on.
    pub(super) fn answered(&mut self, index: usize) {
        self.preferred = index;
        self.models[index].failures = 0;
    }

    /// That model failed.
    pub(super) fn failed(&mut self, index: usize, setback: Setback) {
        let model = &mut self.models[index];
        model.failures += 1;
        model.is_out |= setback == Setback::Lasting || model.failures >= MOST_FAILURES;
    }

    /// That model is asked again at once, since something else was put right.
    pub(super) fn ask_again(&mut self, index: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a model does when it is asked.
    #[derive(Clone, Copy)]
    enum Does {
        Answer,
        Fail,
        Refuse,
        /// Fails, and cools down for so many seconds.
        Cool(u64),
    }
    use Does::{Answer, Cool, Fail, Refuse};

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// A prompt in a world in which time passes only by waiting.
    struct World {
        course: Course,
        now: Duration,
        cool_until: Vec<Duration>,
        told: Vec<String>,
    }

    impl World {
        /// With models that cool down for so many seconds from the start.
        fn new(cooling: &[u64]) -> Self {
            let cool_until = cooling.iter().copied().map(seconds).collect();
            let course = Course::new(cooling.len());
            Self { course, now: Duration::ZERO, cool_until, told: Vec::new() }
        }

        /// One answer; of each model what it does when it is asked, the last of
        /// it for ever.
        fn answer(&mut self, does: &[&[Does]]) -> String {
            self.course.begin_answer();
            let mut asked = vec![0; does.len()];
            for _ in 0..100 {
                let rests = self.cool_until.iter().map(|it| it.saturating_sub(self.now));
                let cooling: Vec<_> = rests.map(|it| (!it.is_zero()).then_some(it)).collect();
                match self.course.next(&cooling, 0.5) {
                    Step::GiveUp => {
                        self.told.push("give up".into());
                        return std::mem::take(&mut self.told).join(" ");
                    }
                    Step::Pause(_, wait) | Step::CoolDown(_, wait) => {
                        self.told.push(format!("({})", wait.as_secs_f64()));
                        self.now += wait;
                    }
                    Step::Ask(index) => {
                        self.told.push(["a", "b", "c"][index].into());
                        let place = asked[index].min(does[index].len() - 1);
                        asked[index] += 1;
                        match does[index][place] {
                            Answer => {
                                self.course.answered(index);
                                return std::mem::take(&mut self.told).join(" ");
                            }
                            Fail => self.course.failed(index, Setback::Passing),
                            Refuse => self.course.failed(index, Setback::Lasting),
                            Cool(count) => {
                                self.cool_until[index] = self.now + seconds(count);
                                self.course.failed(index, Setback::Passing);
                            }
                        }
                    }
                }
            }
            panic!("no end: {:?}", self.told)
        }
    }

    #[track_caller]
    fn check(cooling: &[u64], does: &[&[Does]], want: &str) {
        assert_eq!(World::new(cooling).answer(does), want);
    }

    #[test]
    fn the_first_choice_answers_if_it_can() {
        check(&[0], &[&[Answer]], "a");
        check(&[0, 0], &[&[Answer], &[Answer]], "a");
    }

    #[test]
    fn what_may_pass_is_tried_in_three_passes_with_growing_pauses() {
        check(&[0], &[&[Fail]], "a (1) a (2) a give up");
        check(&[0], &[&[Fail, Answer]], "a (1) a");
        check(&[0], &[&[Fail, Fail, Answer]], "a (1) a (2) a");
        check(&[0, 0], &[&[Fail], &[Answer]], "a b");
        check(&[0, 0], &[&[Fail], &[Fail]], "a b (1) a b (2) a b give up");
        check(&[0, 0], &[&[Fail, Fail, Answer], &[Fail]], "a b (1) a b (2) a");
        check(&[0, 0, 0], &[&[Fail], &[Fail], &[Fail, Answer]], "a b c (1) a b c");
    }

    #[test]
    fn what_stays_is_tried_once() {
        check(&[0], &[&[Refuse]], "a give up");
        check(&[0, 0], &[&[Refuse], &[Refuse]], "a b give up");
        check(&[0, 0], &[&[Refuse], &[Fail]], "a b (1) b (2) b give up");
        check(&[0, 0], &[&[Fail], &[Refuse]], "a b (1) a (2) a give up");
        check(&[0, 0], &[&[Fail, Refuse], &[Fail]], "a b (1) a b (2) b give up");
    }

    #[test]
    fn who_cools_down_is_left_out() {
        check(&[300, 0], &[&[Answer], &[Answer]], "b");
        check(&[300, 0], &[&[Answer], &[Fail]], "b (1) b (2) b give up");
        check(&[0, 0], &[&[Cool(300)], &[Answer]], "a b");
        check(&[0, 0], &[&[Cool(300)], &[Cool(300)]], "a b give up");
        check(&[300], &[&[Answer]], "give up");
        check(&[300, 400], &[&[Answer], &[Answer]], "give up");
    }

    /// It cools down for a second of the pauses of 1 and 2.
    #[test]
    fn who_has_cooled_down_is_asked_again_in_its_place() {
        check(&[0, 0], &[&[Cool(1), Answer], &[Fail]], "a b (1) a");
        check(&[0, 0], &[&[Cool(3), Answer], &[Fail]], "a b (1) b (2) a");
        check(&[2, 0], &[&[Answer], &[Fail]], "b (1) b (2) a");
    }

    /// The half of a tenth more than asked is by chance.
    #[test]
    fn a_short_cool_down_is_waited_for_where_nothing_else_is_left() {
        check(&[20], &[&[Answer]], "(21) a");
        check(&[60], &[&[Answer]], "(63) a");
        check(&[61], &[&[Answer]], "give up");
        check(&[40, 20], &[&[Answer], &[Answer]], "(21) b");
        check(&[0], &[&[Cool(10), Answer]], "a (10.5) a");
        check(&[0, 0], &[&[Cool(10), Answer], &[Refuse]], "a b (10.5) a");
        check(&[0, 0], &[&[Cool(10), Answer], &[Fail]], "a b (1) b (2) b (7.35) a");
        check(&[0], &[&[Cool(10)]], "a (10.5) a (10.5) a give up");
        check(&[0], &[&[Cool(10), Cool(300)]], "a (10.5) a give up");
    }

    #[test]
    fn within_a_prompt_who_answered_is_asked_first() {
        let mut world = World::new(&[0, 0, 0]);
        assert_eq!(world.answer(&[&[Fail], &[Answer], &[Answer]]), "a b");
        assert_eq!(world.answer(&[&[Answer], &[Answer], &[Answer]]), "b");
        assert_eq!(world.answer(&[&[Answer], &[Fail], &[Answer]]), "b a");
        assert_eq!(world.answer(&[&[Answer], &[Answer], &[Answer]]), "a");
    }

    #[test]
    fn what_is_out_stays_out_for_the_prompt_and_success_clears_the_rest() {
        let mut world = World::new(&[0, 0]);
        assert_eq!(world.answer(&[&[Refuse], &[Answer]]), "a b");
        assert_eq!(world.answer(&[&[Answer], &[Fail]]), "b (1) b (2) b give up");
        let mut world = World::new(&[0]);
        for _ in 0..5 {
            assert_eq!(world.answer(&[&[Fail, Fail, Answer]]), "a (1) a (2) a");
        }
        assert_eq!(World::new(&[0, 0]).answer(&[&[Answer], &[Answer]]), "a");
    }

    #[test]
    fn three_failures_of_a_prompt_are_all_there_are() {
        let mut world = World::new(&[0, 0]);
        assert_eq!(world.answer(&[&[Fail], &[Fail, Answer]]), "a b (1) a b");
        assert_eq!(world.answer(&[&[Fail], &[Fail, Answer]]), "b a (1) b");
        assert_eq!(world.answer(&[&[Answer], &[Fail]]), "b (1) b (2) b give up");
    }

    #[test]
    fn nobody_waits_for_ever_for_a_model_that_others_keep_hot() {
        let mut course = Course::new(1);
        let cooling = [Some(seconds(1))];
        let waits = (0..100).take_while(|_| course.next(&cooling, 0.5) != Step::GiveUp).count();
        assert_eq!(waits, 6);
    }

    #[track_caller]
    fn check_chance(chance: f64, pause: f64, wait: f64) {
        let mut course = Course::new(1);
        assert_eq!(course.next(&[None], chance), Step::Ask(0));
        course.failed(0, Setback::Passing);
        assert_eq!(course.next(&[None], chance), Step::Pause(0, Duration::from_secs_f64(pause)));
        let mut course = Course::new(1);
        let cooling = [Some(seconds(10))];
        let wait = Duration::from_secs_f64(wait);
        assert_eq!(course.next(&cooling, chance), Step::CoolDown(0, wait));
    }

    #[test]
    fn chance_shifts_a_pause_and_never_shortens_what_is_asked_for() {
        check_chance(0.0, 0.75, 10.0);
        check_chance(0.5, 1.0, 10.5);
        check_chance(1.0, 1.25, 11.0);
        check_chance(-7.0, 0.75, 10.0);
        check_chance(7.0, 1.25, 11.0);
    }

    #[test]
    fn who_is_asked_again_is_the_next() {
        let mut course = Course::new(2);
        assert_eq!(course.next(&[None, None], 0.5), Step::Ask(0));
        course.ask_again(0);
        assert_eq!(course.next(&[None, None], 0.5), Step::Ask(0));
        course.failed(0, Setback::Lasting);
        assert_eq!(course.next(&[None, None], 0.5), Step::Ask(1));
    }
}
