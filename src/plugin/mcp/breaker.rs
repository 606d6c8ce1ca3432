//! Whether a server that keeps failing is asked at all. Pure: moments come
//! from outside. After three failures in a row nobody asks it for a minute;
//! then one call is the try on which the rest depends.

use std::time::{Duration, Instant};

/// Failures in a row after which it is left alone.
const MOST_FAILURES: u32 = 3;

/// For how long.
const PAUSE: Duration = Duration::from_secs(60);

/// What is known of a server's failures.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// In a row.
    failures: u32,
    open_until: Option<Instant>,
    is_trying: bool,
    /// The process whose end was counted; many calls end with one process.
    counted_end: Option<u64>,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// An answer, even if it refuses.
    Answered,
    /// No answer in time, or one that is none.
    Failed,
    /// That process ended.
    Ended(u64),
    /// Nobody waited for it, or it was never sent.
    Unknown,
}

impl Breaker {
    /// May it be asked now? The error is how long it is still left alone;
    /// zero while a try is under way.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        let Some(until) = self.open_until else { return Ok(()) };
        if now < until {
            return Err(until - now);
        }
        if self.is_trying {
            return Err(Duration::ZERO);
        }
        self.is_trying = true;
        Ok(())
    }

    /// What came of a request that was admitted.
    pub(super) fn heard(&mut self, outcome: Outcome, now: Instant) {
        let was_try = std::mem::take(&mut self.is_trying);
        match outcome {
            Outcome::Answered => (self.failures, self.open_until) = (0, None),
            Outcome::Unknown => {}
            Outcome::Ended(process) if self.counted_end == Some(process) => {}
            Outcome::Ended(_) | Outcome::Failed => self.failures += 1,
        }
        if let Outcome::Ended(process) = outcome {
            self.counted_end = Some(process);
        }
        let has_failed = matches!(outcome, Outcome::Failed | Outcome::Ended(_));
        if has_failed && (was_try || self.failures == MOST_FAILURES) {
            self.open_until = Some(now + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a breaker says `after` seconds after these outcomes, a second
    /// apart.
    #[track_caller]
    fn check(outcomes: &[Outcome], after: u64, want: Result<(), u64>) {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        for outcome in outcomes {
            breaker.heard(*outcome, start);
        }
        let got = breaker.admit(start + Duration::from_secs(after));
        assert_eq!(got.map_err(|it| it.as_secs()), want, "{outcomes:?}");
    }

    #[test]
    fn three_failures_in_a_row_close_the_door_for_a_minute() {
        use Outcome::{Answered, Ended, Failed, Unknown};
        check(&[], 0, Ok(()));
        check(&[Failed, Failed], 0, Ok(()));
        check(&[Failed, Failed, Failed], 0, Err(60));
        check(&[Failed, Failed, Failed], 59, Err(1));
        check(&[Failed, Failed, Failed], 60, Ok(()));
        check(&[Failed, Failed, Answered, Failed, Failed], 0, Ok(()));
        check(&[Failed, Unknown, Failed, Unknown, Failed], 0, Err(60));
        check(&[Ended(1), Ended(2), Ended(3)], 0, Err(60));
    }

    #[test]
    fn one_death_under_many_calls_counts_once() {
        check(&[Outcome::Ended(1); 100], 0, Ok(()));
    }

    #[test]
    fn one_try_decides_about_the_rest() {
        let start = Instant::now();
        let opened = || {
            let mut breaker = Breaker::default();
            (0..3).for_each(|_| breaker.heard(Outcome::Failed, start));
            assert_eq!(breaker.admit(start + PAUSE), Ok(()));
            assert_eq!(breaker.admit(start + PAUSE), Err(Duration::ZERO), "one at a time");
            breaker
        };
        let mut breaker = opened();
        breaker.heard(Outcome::Answered, start + PAUSE);
        assert_eq!(breaker.admit(start + PAUSE), Ok(()));
        let mut breaker = opened();
        breaker.heard(Outcome::Ended(1), start + PAUSE);
        assert_eq!(breaker.admit(start + PAUSE), Err(PAUSE));
        let mut breaker = opened();
        breaker.heard(Outcome::Unknown, start + PAUSE);
        assert_eq!(breaker.admit(start + PAUSE), Ok(()), "the next one tries");
    }
}
