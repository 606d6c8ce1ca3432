//! The queue, its workers and the end of calls, over carriers that tell when
//! they begin and wait until they are let go.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::bounded;

use super::*;
use crate::message::StopReason;
use crate::provider::LargePlace;
use crate::provider::large::LARGE;

/// Longest time that anything here may take; reached by a fault only.
const PATIENT: Duration = Duration::from_secs(60);

const PATIENCE: Patience = Patience {
    connection: None,
    first_byte: None,
    idle: None,
    refusal: PATIENT,
    inactivity: PATIENT,
};

/// Every byte is text; `.` is the end mark, and `!` begins an error.
#[derive(Default)]
pub(in crate::provider) struct Plain {
    is_done: bool,
}

impl Decoder for Plain {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let text = String::from_utf8_lossy(bytes);
        if let Some(error) = text.strip_prefix('!') {
            return Err(Fault::Unavailable(format!("`p`: {error}")));
        }
        match text.split_once('.') {
            Some((text, _)) => {
                deltas.push(Delta::Text(text.to_owned()));
                deltas.push(Delta::Stop(StopReason::Stop));
                self.is_done = true;
            }
            None if text.starts_with(':') => (),
            None => deltas.push(Delta::Text(text.into_owned())),
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), Fault> {
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}

/// Tells that a call has begun, and waits until it is let go or cut.
struct Gate {
    begun: Sender<u8>,
    go: Receiver<()>,
    cut: Sender<u8>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Carrier for Gate {
    fn carry(&mut self, wire: &Wire, exchange: &mut Exchange) -> Result<(), Fault> {
        let number = wire.body.first().copied().unwrap_or_default();
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let (canceller, cancel) = Cancel::pair();
        exchange.arm(Box::new(move || canceller.cancel()))?;
        let _ = self.begun.send(number);
        let was_cut = select! {
            recv(self.go) -> _ => false,
            recv(cancel.gone()) -> _ => true,
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        if was_cut {
            let _ = self.cut.send(number);
            return Err(Fault::Cut("was cut".into()));
        }
        exchange.heard(&[number])?;
        exchange.end()
    }
}

/// A pool of gates, and the test's ends of them.
struct Case {
    pool: Pool,
    begun: Receiver<u8>,
    cut: Receiver<u8>,
    go: Sender<()>,
    most: Arc<AtomicUsize>,
}

impl Case {
    fn new(limit: usize) -> Self {
        let (begun, has_begun) = unbounded();
        let (cut, was_cut) = unbounded();
        let (go, may_go) = unbounded();
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&most);
        let make = move || {
            Box::new(Gate {
                begun: begun.clone(),
                go: may_go.clone(),
                cut: cut.clone(),
                running: Arc::clone(&running),
                most: Arc::clone(&most),
            }) as Box<dyn Carrier>
        };
        let pool =
            Pool::new("p", NonZeroUsize::new(limit), LargeAnswers::default(), Box::new(make));
        Self { pool, begun: has_begun, cut: was_cut, go, most: seen }
    }

    #[track_caller]
    fn enter(&self, number: u8) -> Caller<'_> {
        enter(&self.pool, number)
    }

    #[track_caller]
    fn check_load(&self, running: usize, queued: usize, workers: usize) {
        let load = self.pool.load();
        assert_eq!((load.running, load.queued, load.workers), (running, queued, workers));
    }
}

#[track_caller]
fn enter(pool: &Pool, number: u8) -> Caller<'_> {
    let wire = Wire { body: vec![number], ..Wire::default() };
    match pool.enter(wire, Box::<Plain>::default()) {
        Ok(caller) => caller,
        Err(fault) => panic!("{fault}"),
    }
}

/// Each byte is a delta of its own.
struct Bytewise;

impl Decoder for Bytewise {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        deltas.extend(bytes.iter().map(|it| Delta::Text(char::from(*it).into())));
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), Fault> {
        Ok(())
    }
}

/// Says all at once.
struct AtOnce;

impl Carrier for AtOnce {
    fn carry(&mut self, wire: &Wire, exchange: &mut Exchange) -> Result<(), Fault> {
        exchange.heard(&wire.body)
    }
}

#[test]
fn nothing_is_told_after_the_abort_also_of_what_came_at_once() {
    let pool = Pool::new("p", None, LargeAnswers::default(), Box::new(|| Box::new(AtOnce)));
    let (canceller, cancel) = Cancel::pair();
    let wire = Wire { body: b"abcdef".to_vec(), ..Wire::default() };
    let mut told = Vec::new();
    let ended = pool.call(wire, Box::new(Bytewise), PATIENCE, &cancel, &mut |it| {
        told.push(it);
        canceller.cancel();
    });
    assert_eq!((ended, told.len()), (Err(Fault::Cancelled), 1));
}

fn follow(caller: &Caller<'_>, cancel: &Cancel) -> (Result<(), Fault>, String) {
    let mut text = String::new();
    let ended = caller.follow(PATIENCE, cancel, &mut |it| {
        if let Delta::Text(it) = it {
            text.push_str(&it);
        }
    });
    (ended, text)
}

#[track_caller]
fn next<T>(from: &Receiver<T>) -> T {
    match from.recv_timeout(PATIENT) {
        Ok(it) => it,
        Err(error) => panic!("nothing came: {error}"),
    }
}

#[test]
fn calls_are_answered_first_come_first_served() {
    let case = Case::new(1);
    let callers: Vec<_> = (b'0'..b'5').map(|it| case.enter(it)).collect();
    let mut order = vec![next(&case.begun)];
    case.check_load(1, 4, 1);
    for caller in &callers {
        let _ = case.go.send(());
        let (ended, _) = follow(caller, &Cancel::never());
        assert_eq!(ended, Ok(()));
    }
    order.extend((1..5).map(|_| next(&case.begun)));
    assert_eq!(order, b"01234");
    case.check_load(0, 0, 1);
    let load = case.pool.load();
    assert_eq!(load.calls, 5);
    assert!(load.longest_wait <= load.waited && load.waited > Duration::ZERO, "{load:?}");
    assert_eq!(load.oldest_wait, Duration::ZERO);
}

#[test]
fn the_limit_is_reached_and_never_passed() {
    let case = Case::new(2);
    let callers: Vec<_> = (b'0'..b'8').map(|it| case.enter(it)).collect();
    next(&case.begun);
    next(&case.begun);
    case.check_load(2, 6, 2);
    for _ in &callers {
        let _ = case.go.send(());
    }
    let texts: String = callers.iter().map(|it| follow(it, &Cancel::never()).1).collect();
    assert_eq!(texts, "01234567");
    assert_eq!(case.most.load(Ordering::SeqCst), 2);
}

#[test]
fn without_a_limit_nobody_waits() {
    let case = Case::new(0);
    let callers: Vec<_> = (b'0'..b'4').map(|it| case.enter(it)).collect();
    let mut begun: Vec<u8> = callers.iter().map(|_| next(&case.begun)).collect();
    begun.sort_unstable();
    assert_eq!(begun, b"0123");
    case.check_load(4, 0, 4);
}

#[test]
fn a_call_that_is_called_off_while_it_waits_is_never_begun() {
    let case = Case::new(1);
    let first = case.enter(b'0');
    assert_eq!(next(&case.begun), b'0');
    let second = case.enter(b'1');
    let third = case.enter(b'2');
    let (canceller, cancel) = Cancel::pair();
    canceller.cancel();
    assert_eq!(follow(&second, &cancel).0, Err(Fault::Cancelled));
    drop(second);
    case.check_load(1, 1, 1);
    let _ = case.go.send(());
    let _ = case.go.send(());
    assert_eq!(follow(&first, &Cancel::never()), (Ok(()), "0".into()));
    assert_eq!(follow(&third, &Cancel::never()), (Ok(()), "2".into()));
    assert_eq!(next(&case.begun), b'2');
}

#[test]
fn a_call_that_is_called_off_while_it_runs_is_cut_and_its_worker_takes_the_next() {
    let case = Case::new(1);
    let first = case.enter(b'0');
    let second = case.enter(b'1');
    assert_eq!(next(&case.begun), b'0');
    let (canceller, cancel) = Cancel::pair();
    canceller.cancel();
    assert_eq!(follow(&first, &cancel).0, Err(Fault::Cancelled));
    drop(first);
    assert_eq!(next(&case.cut), b'0');
    assert_eq!(next(&case.begun), b'1');
    let _ = case.go.send(());
    assert_eq!(follow(&second, &Cancel::never()), (Ok(()), "1".into()));
    case.check_load(0, 0, 1);
}

#[test]
fn a_caller_that_only_goes_away_is_cut_too() {
    let case = Case::new(1);
    let first = case.enter(b'0');
    assert_eq!(next(&case.begun), b'0');
    drop(first);
    assert_eq!(next(&case.cut), b'0');
}

#[test]
fn a_call_that_nothing_happens_in_ends_and_is_cut() {
    let case = Case::new(1);
    let caller = case.enter(b'0');
    let patience = Patience { inactivity: Duration::from_millis(20), ..PATIENCE };
    let got = caller.follow(patience, &Cancel::never(), &mut |_| ());
    assert!(
        matches!(&got, Err(Fault::Inactive(it)) if it.contains("limits.inactivitySeconds")),
        "{got:?}"
    );
    drop(caller);
    assert_eq!(next(&case.cut), b'0');
}

#[test]
fn a_worker_that_is_needed_does_not_leave() {
    let case = Case::new(1);
    let shared = &case.pool.shared;
    let seat = |shared| Seat { shared, number: 1, is_taken: true, runs: false };
    for (queued, idle, leaves) in [(0, 1, true), (1, 1, false), (1, 2, true), (2, 2, false)] {
        *shared.books() = Books { queued, idle, ..Books::default() };
        let mut seat = seat(Arc::clone(shared));
        assert_eq!(seat.leave(), leaves, "{queued} wait, {idle} are free");
        seat.is_taken = false;
    }
}

/// A carrier that does what it is told.
struct Told(fn(&mut Exchange) -> Result<(), Fault>);

impl Carrier for Told {
    fn carry(&mut self, wire: &Wire, exchange: &mut Exchange) -> Result<(), Fault> {
        match wire.body.first() {
            Some(b'x') => (self.0)(exchange),
            _ => exchange.end(),
        }
    }
}

fn told(act: fn(&mut Exchange) -> Result<(), Fault>) -> Pool {
    Pool::new(
        "p",
        NonZeroUsize::new(1),
        LargeAnswers::default(),
        Box::new(move || Box::new(Told(act))),
    )
}

#[test]
fn an_answer_that_is_whole_does_not_wait_for_its_worker() {
    let pool = told(|exchange| {
        let (canceller, cancel) = Cancel::pair();
        exchange.arm(Box::new(move || canceller.cancel()))?;
        exchange.heard(b"all.")?;
        assert_eq!(exchange.is_whole(), Ok(true));
        // Until it is cut.
        let _ = cancel.gone().recv();
        Ok(())
    });
    let caller = enter(&pool, b'x');
    assert_eq!(follow(&caller, &Cancel::never()), (Ok(()), "all".into()));
}

#[test]
fn a_refusal_whose_text_takes_too_long_is_told_as_far_as_it_came() {
    let pool = told(|exchange| {
        let (canceller, cancel) = Cancel::pair();
        exchange.arm(Box::new(move || canceller.cancel()))?;
        exchange.refused()?;
        let _ = cancel.gone().recv();
        Err(Fault::Refused("half of it".into()))
    });
    let caller = enter(&pool, b'x');
    let patience = Patience { refusal: Duration::from_millis(20), ..PATIENCE };
    let got = caller.follow(patience, &Cancel::never(), &mut |_| ());
    assert_eq!(got, Err(Fault::Refused("half of it".into())));
}

/// Lets the worker go once it was told twice that it is waited: at first, and
/// in the silence after.
struct Patient<'a> {
    go: &'a Sender<()>,
    waits: usize,
    heard: Vec<Delta>,
}

impl Listener<Delta> for Patient<'_> {
    fn hears(&mut self, delta: Delta) {
        self.heard.push(delta);
    }

    fn waits(&mut self) {
        self.waits += 1;
        if self.waits == 2 {
            let _ = self.go.send(());
        }
    }
}

#[test]
fn who_listens_is_told_that_it_is_waited() {
    let case = Case::new(1);
    let caller = case.enter(b'0');
    let mut patient = Patient { go: &case.go, waits: 0, heard: Vec::new() };
    // It looks as often as its shortest limit asks for.
    let patience = Patience { idle: Some(Duration::from_millis(5)), ..PATIENCE };
    assert_eq!(caller.follow(patience, &Cancel::never(), &mut patient), Ok(()));
    assert_eq!(patient.heard, [Delta::Text("0".into())]);
}

/// A step that was only noted counts from when it was taken.
#[test]
fn a_limit_begins_with_the_step_that_nobody_was_told_of() {
    let pool = told(|exchange| {
        let (canceller, cancel) = Cancel::pair();
        exchange.arm(Box::new(move || canceller.cancel()))?;
        exchange.sent()?;
        let _ = cancel.gone().recv();
        Err(Fault::Cancelled)
    });
    let caller = enter(&pool, b'x');
    let first_byte = Some(Duration::from_millis(20));
    let patience = Patience { first_byte, ..PATIENCE };
    let got = caller.follow(patience, &Cancel::never(), &mut |_| ());
    assert!(matches!(got, Err(Fault::Slow(_))), "{got:?}");
}

#[test]
fn bytes_without_meaning_are_told_as_well() {
    let work = Work { wire: Wire::default(), decoder: Box::<Plain>::default() };
    let (job, _ticket, events) = Job::new(work);
    let Some((_, mut exchange)) = job.begin(&LargeAnswers::default()) else { panic!("it waits") };
    assert_eq!(exchange.heard(b": keep-alive\n\n"), Ok(()));
    assert!(matches!(events.try_recv(), Ok(Event::Heard(deltas)) if deltas.is_empty()));
}

#[test]
fn what_is_called_off_and_what_has_ended_is_not_cut() {
    let (cut, was_cut) = bounded::<()>(1);
    let work = Work { wire: Wire::default(), decoder: Box::<Plain>::default() };
    let (job, ticket, _events) = Job::new(work);
    let Some((_, exchange)) = job.begin(&LargeAnswers::default()) else { panic!("it waits") };
    let arm = |exchange: &Exchange| {
        let cut = cut.clone();
        exchange.arm(Box::new(move || {
            let _ = cut.send(());
        }))
    };
    assert_eq!(arm(&exchange), Ok(()));
    assert!(exchange.disarm());
    assert!(!ticket.call_off());
    assert!(!exchange.disarm());
    assert_eq!(arm(&exchange), Err(Fault::Cancelled));
    assert!(was_cut.is_empty());
}

/// Keeps the place of what it hears.
#[derive(Default)]
struct Keeping {
    heard: usize,
    place: Option<LargePlace>,
}

impl Listener<Delta> for Keeping {
    fn hears(&mut self, delta: Delta) {
        if let Delta::Text(it) = delta {
            self.heard += it.len();
        }
    }

    fn holds(&mut self, place: LargePlace) {
        self.place = Some(place);
    }
}

#[test]
fn a_large_answer_waits_until_others_are_held_no_more() {
    let pool = told(|exchange| {
        let (canceller, cancel) = Cancel::pair();
        exchange.arm(Box::new(move || canceller.cancel()))?;
        let all = exchange.heard(&vec![b'x'; LARGE]).and_then(|()| exchange.heard(b"y."));
        // Its own cut is there beside that of the wait.
        assert!(all.is_ok() || cancel.is_cancelled());
        all
    });
    let ask = || {
        let mut keeping = Keeping::default();
        let came = enter(&pool, b'x').follow(PATIENCE, &Cancel::never(), &mut keeping);
        assert_eq!((came, keeping.heard), (Ok(()), LARGE + 1));
        keeping.place
    };
    let held = [ask(), ask()];
    assert!(held.iter().all(Option::is_some));
    let (canceller, cancel) = Cancel::pair();
    let caller = enter(&pool, b'x');
    let came = caller.follow(PATIENCE, &cancel, &mut |_| canceller.cancel());
    assert_eq!(came, Err(Fault::Cancelled));
    drop((caller, held));
    assert!(ask().is_some());
}

#[test]
fn who_waits_for_others_is_cut_when_its_caller_leaves_and_takes_no_place() {
    let large = LargeAnswers::default();
    let act = |exchange: &mut Exchange| {
        exchange.arm(Box::new(|| ()))?;
        exchange.heard(&vec![b'x'; LARGE]).and_then(|()| exchange.heard(b"y."))
    };
    let make = Box::new(move || Box::new(Told(act)) as Box<dyn Carrier>);
    let pool = Pool::new("p", NonZeroUsize::new(1), large.clone(), make);
    let held: Vec<_> = std::iter::from_fn(|| large.try_take()).collect();
    let (canceller, cancel) = Cancel::pair();
    let caller = enter(&pool, b'x');
    let came = caller.follow(PATIENCE, &cancel, &mut |_| canceller.cancel());
    assert_eq!(came, Err(Fault::Cancelled));
    drop(caller);
    drop(held);
    // The one worker is free for the next call.
    let caller = enter(&pool, b'x');
    assert_eq!(caller.follow(PATIENCE, &Cancel::never(), &mut |_| ()), Ok(()));
}
