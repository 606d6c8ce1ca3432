//! The resource limits that a sandbox began with. Whatever runs in it under the
//! same user may lower those of any other process from outside (`prlimit`), and
//! what that one starts inherits them; so they are held against the first ones
//! before a call is taken. What only got less room is given it back; where the
//! kernel allows that no more, the call is for somebody else.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// In the environment of a supervisor that is started ahead.
pub(crate) const VARIABLE: &str = "BEIGE_LIMITS";

/// All that Linux knows.
const ALL: [Resource; 16] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

/// The limits of a process, in the order of [`ALL`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Limits(Vec<Rlimit>);

impl Limits {
    /// Those of this process now.
    pub(crate) fn now() -> Self {
        Self(ALL.into_iter().map(getrlimit).collect())
    }

    /// Those that [`Limits::to_text`] gave; `None` if it is no such text.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let limits: Option<Vec<Rlimit>> = text.split(' ').map(limit_of).collect();
        limits.filter(|it| it.len() == ALL.len()).map(Self)
    }

    /// As a word for another process.
    pub(crate) fn to_text(&self) -> String {
        let each = |it: &Rlimit| format!("{}:{}", number(it.current), number(it.maximum));
        self.0.iter().map(each).collect::<Vec<_>>().join(" ")
    }

    /// Whether this process has no less than these, or could be given them
    /// back. More is nobody's harm.
    pub(crate) fn hold(&self) -> bool {
        ALL.into_iter().zip(&self.0).all(|(resource, first)| {
            !is_less(getrlimit(resource), *first) || setrlimit(resource, *first).is_ok()
        })
    }
}

fn is_less(now: Rlimit, first: Rlimit) -> bool {
    number(now.current) < number(first.current) || number(now.maximum) < number(first.maximum)
}

/// No limit is the highest, as the kernel has it.
fn number(limit: Option<u64>) -> u64 {
    limit.unwrap_or(u64::MAX)
}

fn limit_of(text: &str) -> Option<Rlimit> {
    let (current, maximum) = text.split_once(':')?;
    let limit =
        |it: &str| Some(it.parse().ok()?).map(|it: u64| Some(it).filter(|it| *it < u64::MAX));
    Some(Rlimit { current: limit(current)?, maximum: limit(maximum)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_arrive_as_they_were_and_nothing_else_is_taken() {
        let now = Limits::now();
        let text = now.to_text();
        assert_eq!(Limits::from_text(&text), Some(now));
        assert_eq!(Limits::from_text(&format!("{text} 1:1")), None);
        for text in ["", "1:2", "1", "-1:2"] {
            assert_eq!(Limits::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn less_of_either_is_less_and_more_is_not() {
        let limit = |current, maximum| Rlimit { current, maximum };
        let first = limit(Some(5), None);
        assert!(!is_less(first, first));
        assert!(!is_less(limit(Some(6), None), first));
        assert!(is_less(limit(Some(4), None), first));
        assert!(is_less(limit(Some(5), Some(5)), first));
    }
}
