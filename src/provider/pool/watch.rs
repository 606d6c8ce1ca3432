//! How long a caller waits for what. Pure: it is told when something happened,
//! and says until when nothing need happen. Any byte of the other side counts,
//! whatever it says. The wait for a worker is bounded by the calls before it.

use std::time::{Duration, Instant};

use super::super::Fault;
use super::exchange::Event;

/// How long a whole answer waits for the end of its connection's part, so that
/// the connection can be used again.
const TAIL: Duration = Duration::from_millis(100);

/// How often a caller looks at least, and tells who listens that nothing comes.
const SILENCE: Duration = Duration::from_secs(1);

/// It looks no more often, however short a limit is.
const SHORTEST_LOOK: Duration = Duration::from_millis(5);

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub(in crate::provider) struct Patience {
    /// Until a connection stands over which the request can go; `None` is no
    /// limit.
    pub(in crate::provider) connection: Option<Duration>,
    /// From the request to the first byte of the answer; `None` is no limit.
    pub(in crate::provider) first_byte: Option<Duration>,
    /// Between two bytes of the answer; `None` is no limit.
    pub(in crate::provider) idle: Option<Duration>,
    /// From the head of a refusal to the end of its text; then what has come
    /// is enough.
    pub(in crate::provider) refusal: Duration,
    /// How long nothing at all may happen.
    pub(in crate::provider) inactivity: Duration,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Connecting,
    Asking,
    Answering,
    /// Its answer is large, and others are, too.
    Crowded,
    Refusing,
    /// It has been cut, and its worker says what it has.
    Closing,
    Whole,
}

/// What has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// The provider's time, or the turn's.
    Late(Limit),
    /// The time for a refusal's text: what came is enough.
    Refusal,
    /// The time for an end that nobody needs.
    Tail,
}

/// A limit that a person sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Connection(Duration),
    FirstByte(Duration),
    Idle(Duration),
    /// The wait of a large answer for others to be done.
    Crowded(Duration),
    Inactivity(Duration),
}

/// The clock of one call.
#[derive(Debug)]
pub(super) struct Watch {
    patience: Patience,
    phase: Phase,
    since: Instant,
    late: Option<Limit>,
}

impl Patience {
    /// How often a caller looks for what was noted and not told, so that it
    /// finds each step before the limit that begins with it can have run out.
    pub(super) fn look(&self) -> Duration {
        let limits = [self.connection, self.first_byte, self.idle, Some(self.inactivity)];
        let shortest = limits.into_iter().flatten().min().unwrap_or(SILENCE);
        shortest.clamp(SHORTEST_LOOK, SILENCE)
    }
}

impl Watch {
    pub(super) fn new(patience: Patience, now: Instant) -> Self {
        Self { patience, phase: Phase::Queued, since: now, late: None }
    }

    /// Something happened.
    pub(super) fn saw(&mut self, event: &Event, now: Instant) {
        self.since = now;
        self.phase = match event {
            Event::Begun => Phase::Connecting,
            Event::Sent => Phase::Asking,
            Event::Answered | Event::Heard(_) | Event::Large(_) => Phase::Answering,
            Event::Crowded => Phase::Crowded,
            Event::Refused => Phase::Refusing,
            Event::Whole => Phase::Whole,
        };
    }

    /// The time that the caller itself took does not count.
    pub(super) fn resume(&mut self, now: Instant) {
        self.since = now;
    }

    /// See [`Patience::look`].
    pub(super) fn look(&self) -> Duration {
        self.patience.look()
    }

    /// So long it was the caller that took its time.
    pub(super) fn forgive(&mut self, took: Duration) {
        self.since += took;
    }

    /// The call was cut, and what its worker has is awaited.
    pub(super) fn cut(&mut self, now: Instant) {
        self.since = now;
        self.phase = Phase::Closing;
    }

    /// The call was cut since it took too long.
    pub(super) fn cut_late(&mut self, limit: Limit, now: Instant) {
        self.late = Some(limit);
        self.cut(now);
    }

    /// The limit that it was cut for.
    pub(super) fn late(&self) -> Option<Limit> {
        self.late
    }

    /// Whether the answer is whole.
    pub(super) fn is_whole(&self) -> bool {
        self.phase == Phase::Whole
    }

    /// When something must have happened, and what has run out if not.
    pub(super) fn due(&self) -> Option<(Instant, Expired)> {
        let inactivity = Limit::Inactivity(self.patience.inactivity);
        let (first, idle) = (self.patience.first_byte, self.patience.idle);
        let limit = match self.phase {
            Phase::Queued => return None,
            Phase::Refusing => return self.at(self.patience.refusal, Expired::Refusal),
            Phase::Whole => return self.at(TAIL, Expired::Tail),
            Phase::Closing => None,
            Phase::Connecting => self.patience.connection.map(Limit::Connection),
            Phase::Asking => first.map(Limit::FirstByte),
            Phase::Answering => idle.map(Limit::Idle),
            Phase::Crowded => idle.map(Limit::Crowded),
        };
        let shortest = limit.filter(|it| it.length() <= inactivity.length()).unwrap_or(inactivity);
        self.at(shortest.length(), Expired::Late(shortest))
    }

    /// A time too far away to be told never comes.
    fn at(&self, length: Duration, expired: Expired) -> Option<(Instant, Expired)> {
        Some((self.since.checked_add(length)?, expired))
    }
}

impl Limit {
    fn length(self) -> Duration {
        match self {
            Self::Connection(it)
            | Self::FirstByte(it)
            | Self::Idle(it)
            | Self::Crowded(it)
            | Self::Inactivity(it) => it,
        }
    }

    /// What it means for the call.
    pub(super) fn fault(self, provider: &str) -> Fault {
        let seconds = self.length().as_secs_f64();
        let setting = format!("llm.providers.{provider}.timeouts");
        match self {
            Self::Connection(_) => Fault::Slow(format!(
                "no connection to the provider `{provider}` came about within {seconds} s, though \
                 somebody answers there (`{setting}.connectSeconds` for each step); check what \
                 stands before it, such as a proxy"
            )),
            Self::FirstByte(_) => Fault::Slow(format!(
                "the provider `{provider}` did not begin to answer within {seconds} s \
                 (`{setting}.firstByteSeconds`)"
            )),
            Self::Idle(_) => Fault::Slow(format!(
                "the provider `{provider}` fell silent for {seconds} s in the middle of its \
                 answer (`{setting}.idleSeconds`)"
            )),
            Self::Crowded(_) => Fault::Ours(format!(
                "an answer of the provider `{provider}` is large, and for {seconds} s others were, \
                 of which only a few are held at a time (`{setting}.idleSeconds`); try again, or \
                 let fewer calls run at a time (`llm.providers.{provider}.concurrency`)"
            )),
            Self::Inactivity(_) => Fault::Inactive(format!(
                "nothing came from the provider `{provider}` for {seconds} s, so the turn was \
                 ended (`limits.inactivitySeconds`)"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[track_caller]
    fn check(inactivity: u64, events: &[Event], want: Option<Expired>) {
        let patience = Patience {
            connection: Some(seconds(40)),
            first_byte: Some(seconds(20)),
            idle: Some(seconds(10)),
            refusal: seconds(3),
            inactivity: seconds(inactivity),
        };
        let start = Instant::now();
        let mut watch = Watch::new(patience, start);
        let mut now = start;
        for event in events {
            now += seconds(1);
            watch.saw(event, now);
        }
        let got = watch.due();
        assert_eq!(got.map(|it| it.1), want);
        if let (Some((at, _)), Some(Expired::Late(limit))) = (got, want) {
            assert_eq!(at, now + limit.length());
        }
    }

    #[test]
    fn each_phase_has_its_limit_and_each_event_begins_it_anew() {
        let late = |it| Some(Expired::Late(it));
        let heard = || Event::Heard(Vec::new());
        check(60, &[], None);
        check(60, &[Event::Begun], late(Limit::Connection(seconds(40))));
        check(30, &[Event::Begun], late(Limit::Inactivity(seconds(30))));
        check(60, &[Event::Begun, Event::Sent], late(Limit::FirstByte(seconds(20))));
        check(15, &[Event::Begun, Event::Sent], late(Limit::Inactivity(seconds(15))));
        check(60, &[Event::Sent, heard(), heard()], late(Limit::Idle(seconds(10))));
        check(60, &[heard(), Event::Crowded], late(Limit::Crowded(seconds(10))));
        check(5, &[heard()], late(Limit::Inactivity(seconds(5))));
        let crowded = Limit::Crowded(seconds(10)).fault("p");
        let part = "`llm.providers.p.concurrency`";
        assert!(matches!(&crowded, Fault::Ours(it) if it.contains(part)), "{crowded:?}");
        check(5, &[heard(), Event::Refused], Some(Expired::Refusal));
        check(5, &[heard(), Event::Whole], Some(Expired::Tail));
    }

    #[test]
    fn what_was_cut_is_awaited_no_longer_than_a_turn_may_be_silent() {
        let now = Instant::now();
        let patience = Patience {
            connection: None,
            first_byte: None,
            idle: None,
            refusal: seconds(3),
            inactivity: seconds(60),
        };
        let mut watch = Watch::new(patience, now);
        watch.saw(&Event::Refused, now);
        watch.cut(now + seconds(3));
        let late = Expired::Late(Limit::Inactivity(seconds(60)));
        assert_eq!(watch.due(), Some((now + seconds(63), late)));
    }
}
