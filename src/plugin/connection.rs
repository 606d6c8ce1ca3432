//! The conversation with a plugin that runs: requests both ways, many at a
//! time, each of ours with a deadline and an end. Who asks waits on a
//! descriptor of its own, so that its caller's hang-up is heard in the same
//! wait and no thread watches. The two threads that move the bytes are the
//! host's; here is what passes between them and who asks.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, after, bounded, select};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde::Serialize;
use serde_json::{Value, json};

use super::rpc::{self, LONGEST, Refusal};
use super::run::Asker;

/// Messages that may wait to be written; who has a further one waits.
const MOST_WAITING: usize = 16;

/// How long a notice may wait for its place.
const NOTICE_PATIENCE: Duration = Duration::from_secs(5);

/// The conversation, from our side.
#[derive(Debug)]
pub struct Connection {
    outbox: Sender<Vec<u8>>,
    next_id: AtomicU64,
    asked: Mutex<Asked>,
}

/// What was asked and is not answered.
#[derive(Debug)]
struct Asked {
    slots: HashMap<u64, Arc<Slot>>,
    /// Why nothing more will be answered.
    ended: Option<String>,
}

/// What a request of ours is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matter {
    /// A call of a tool, in that session; empty without one.
    Tool(String),
    /// A hook, in that session.
    Hook(String),
    /// Anything else.
    Other,
}

/// Where one answer goes.
#[derive(Debug)]
struct Slot {
    matter: Matter,
    outcome: Mutex<Option<Result<Value, Unanswered>>>,
    /// Readable once there is an outcome.
    bell: OwnedFd,
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The plugin says so.
    Refused(Refusal),
    /// It has ended, and why.
    Ended(String),
    /// It did not answer within that time.
    Late(Duration),
    /// Nobody waits for the answer any more.
    CalledOff,
    /// The message is longer than [`LONGEST`].
    TooLong,
    /// The system gave no descriptor.
    System(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{}", refusal.message),
            Self::Ended(why) => write!(f, "the plugin {why}"),
            Self::Late(patience) => write!(f, "no answer within {} s", patience.as_secs()),
            Self::CalledOff => write!(f, "called off"),
            Self::TooLong => write!(f, "the message is longer than {LONGEST} bytes"),
            Self::System(why) => write!(f, "wait for the answer: {why}"),
        }
    }
}

impl Connection {
    /// A conversation, and what is to be written to the plugin; that ends with
    /// the conversation.
    pub fn open() -> (Arc<Self>, Receiver<Vec<u8>>) {
        let (outbox, lines) = bounded(MOST_WAITING);
        let asked = Mutex::new(Asked { slots: HashMap::new(), ended: None });
        (Arc::new(Self { outbox, next_id: AtomicU64::new(1), asked }), lines)
    }

    /// Asks and waits for the answer.
    pub fn ask(
        &self,
        method: &str,
        params: &impl Serialize,
        patience: Duration,
        asker: Asker<'_>,
    ) -> Result<Value, Unanswered> {
        self.ask_about(Matter::Other, method, params, patience, asker)
    }

    /// The same, and as long as it waits it is known what the plugin works on.
    pub fn ask_about(
        &self,
        matter: Matter,
        method: &str,
        params: &impl Serialize,
        patience: Duration,
        asker: Asker<'_>,
    ) -> Result<Value, Unanswered> {
        let until = Instant::now() + patience;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = rpc::request(id, method, params).map_err(|_| Unanswered::TooLong)?;
        if line.len() > LONGEST {
            return Err(Unanswered::TooLong);
        }
        let place = self.take_place(id, matter)?;
        select! {
            send(self.outbox, line) -> sent => {
                if sent.is_err() {
                    return place.slot.take().unwrap_or_else(|| Err(self.why_ended()));
                }
            }
            recv(asker.cancel.gone()) -> _ => return Err(Unanswered::CalledOff),
            recv(after(patience)) -> _ => return Err(Unanswered::Late(patience)),
        }
        let outcome = place.slot.wait(until, asker).map_err(system)?;
        match outcome {
            Waited::Outcome(outcome) => outcome,
            Waited::TimeIsUp => Err(self.give_up(id, "timed out", Unanswered::Late(patience))),
            Waited::HungUp => Err(self.give_up(id, "nobody waits", Unanswered::CalledOff)),
        }
    }

    /// Tells something; `false` if the plugin took it not in time, or has
    /// ended.
    pub fn tell(&self, method: &str, params: &impl Serialize) -> bool {
        match rpc::notice(method, params) {
            Ok(line) if line.len() <= LONGEST => {
                self.outbox.send_timeout(line, NOTICE_PATIENCE).is_ok()
            }
            _ => false,
        }
    }

    /// Answers a request of the plugin; a result that is too long becomes an
    /// error that says so.
    pub(super) fn answer(&self, id: &Value, outcome: &Result<Value, Refusal>) {
        let _ = self.outbox.send_timeout(rpc::bounded_answer(id, outcome), NOTICE_PATIENCE);
    }

    /// An answer has come; one that nobody waits for is left.
    pub(super) fn answered(&self, id: u64, outcome: Result<Value, Refusal>) {
        let slot = self.locked().slots.remove(&id);
        match slot {
            Some(slot) => slot.put(outcome.map_err(Unanswered::Refused)),
            None => log::debug!("a plugin answers request {id}, which nobody waits for"),
        }
    }

    /// Nothing more will be answered: everybody who waits is told why.
    pub(super) fn end(&self, why: &str) {
        let slots = {
            let mut asked = self.locked();
            asked.ended.get_or_insert_with(|| why.to_owned());
            std::mem::take(&mut asked.slots)
        };
        for slot in slots.into_values() {
            slot.put(Err(Unanswered::Ended(why.to_owned())));
        }
    }

    /// Whether the plugin works on something of that kind now.
    pub fn works_on(&self, matter: &Matter) -> bool {
        self.locked().slots.values().any(|it| it.matter == *matter)
    }

    /// The session of the call of a tool that we asked for under that id, while
    /// it runs.
    pub fn session_of_call(&self, id: u64) -> Option<String> {
        match &self.locked().slots.get(&id)?.matter {
            Matter::Tool(session) => Some(session.clone()),
            Matter::Hook(_) | Matter::Other => None,
        }
    }

    /// Number of requests that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.locked().slots.len()
    }

    fn take_place(&self, id: u64, matter: Matter) -> Result<Place<'_>, Unanswered> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|it| system(it.into()))?;
        let slot = Arc::new(Slot { matter, outcome: Mutex::new(None), bell });
        let mut asked = self.locked();
        if let Some(why) = &asked.ended {
            return Err(Unanswered::Ended(why.clone()));
        }
        asked.slots.insert(id, Arc::clone(&slot));
        Ok(Place { connection: self, id, slot })
    }

    /// Nobody waits for that answer any more; the plugin is told, if it takes
    /// the word at once.
    fn give_up(&self, id: u64, reason: &str, told: Unanswered) -> Unanswered {
        let params = json!({"requestId": id, "reason": reason});
        if let Ok(line) = rpc::notice("notifications/cancelled", &params)
            && let Err(TrySendError::Full(_)) = self.outbox.try_send(line)
        {
            log::debug!("a plugin is not told that request {id} is called off: it reads nothing");
        }
        told
    }

    fn why_ended(&self) -> Unanswered {
        Unanswered::Ended(self.locked().ended.clone().unwrap_or_default())
    }

    fn locked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among those who wait; given back when dropped.
struct Place<'a> {
    connection: &'a Connection,
    id: u64,
    slot: Arc<Slot>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.connection.locked().slots.remove(&self.id);
    }
}

/// How a wait ended.
enum Waited {
    Outcome(Result<Value, Unanswered>),
    TimeIsUp,
    HungUp,
}

impl Slot {
    fn put(&self, outcome: Result<Value, Unanswered>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        // It counts to far more than the one that is written.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> Option<Result<Value, Unanswered>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn wait(&self, until: Instant, asker: Asker<'_>) -> io::Result<Waited> {
        let hang_up = asker.cancel.hang_up()?;
        let askers = asker.line.into_iter().chain(hang_up.as_ref().map(AsFd::as_fd));
        let askers: Vec<BorrowedFd<'_>> = askers.collect();
        loop {
            let mut polled = vec![PollFd::new(&self.bell, PollFlags::IN)];
            let quiet = PollFlags::empty();
            polled.extend(askers.iter().map(|it| PollFd::from_borrowed_fd(*it, quiet)));
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut polled, Some(&left)) {
                Ok(0) => return Ok(self.take().map_or(Waited::TimeIsUp, Waited::Outcome)),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if let Some(outcome) = self.take() {
                return Ok(Waited::Outcome(outcome));
            }
            if polled[1..].iter().any(|it| !it.revents().is_empty()) {
                return Ok(Waited::HungUp);
            }
        }
    }
}

fn system(error: io::Error) -> Unanswered {
    Unanswered::System(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Cancel, scoped};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn ask(connection: &Connection, cancel: &Cancel) -> Result<Value, Unanswered> {
        connection.ask("m", &json!({}), PATIENCE, Asker { cancel, line: None })
    }

    /// The id of the next line that is to be written.
    fn next_id(lines: &Receiver<Vec<u8>>) -> Option<u64> {
        let line: Value = serde_json::from_slice(&lines.recv().ok()?).ok()?;
        line["id"].as_u64()
    }

    #[test]
    fn answers_find_who_asked_in_any_order() {
        let (connection, lines) = Connection::open();
        std::thread::scope(|scope| {
            let ask = |name: &'static str| {
                let connection = &connection;
                let body = move || {
                    let params = json!({"name": name});
                    let cancel = Cancel::never();
                    let asker = Asker { cancel: &cancel, line: None };
                    connection.ask("m", &params, PATIENCE, asker)
                };
                scoped(scope, "ask", body).ok()
            };
            let asked = [ask("a"), ask("b"), ask("c")];
            let mut requests: Vec<Value> = Vec::new();
            for line in lines.iter().take(3) {
                requests.push(serde_json::from_slice(&line).unwrap_or_default());
            }
            for request in requests.iter().rev() {
                let id = request["id"].as_u64().unwrap_or_default();
                connection.answered(id, Ok(request["params"]["name"].clone()));
                // A second answer is nobody's.
                connection.answered(id, Ok(json!("again")));
            }
            let got = asked.into_iter().map(|it| it.and_then(|it| it.join().ok()));
            let got: Vec<_> = got.map(|it| it.and_then(Result::ok)).collect();
            assert_eq!(got, [Some(json!("a")), Some(json!("b")), Some(json!("c"))]);
        });
        assert_eq!(connection.waiting(), 0);
    }

    #[test]
    fn the_end_is_told_to_all_who_wait_and_to_who_asks_later() {
        let (connection, lines) = Connection::open();
        let cancel = Cancel::never();
        std::thread::scope(|scope| {
            let asked = scoped(scope, "ask", || ask(&connection, &cancel)).ok();
            assert_eq!(next_id(&lines), Some(1));
            connection.end("killed");
            let got = asked.and_then(|it| it.join().ok());
            assert_eq!(got, Some(Err(Unanswered::Ended("killed".into()))));
        });
        assert_eq!(ask(&connection, &cancel), Err(Unanswered::Ended("killed".into())));
    }

    #[test]
    fn who_is_called_off_leaves_and_the_plugin_is_told() {
        let (connection, lines) = Connection::open();
        let (canceller, cancel) = Cancel::pair();
        std::thread::scope(|scope| {
            let asked = scoped(scope, "ask", || ask(&connection, &cancel)).ok();
            assert_eq!(next_id(&lines), Some(1));
            canceller.cancel();
            let got = asked.and_then(|it| it.join().ok());
            assert_eq!(got, Some(Err(Unanswered::CalledOff)));
        });
        let told = lines.recv().map(|it| String::from_utf8_lossy(&it).into_owned());
        assert!(told.is_ok_and(
            |it| it.contains("notifications/cancelled") && it.contains("\"requestId\":1")
        ));
        assert_eq!(connection.waiting(), 0);
    }

    #[test]
    fn what_a_plugin_works_on_is_known_until_it_has_answered() {
        let (connection, lines) = Connection::open();
        let matter = Matter::Tool("s".into());
        std::thread::scope(|scope| {
            let ask = || {
                let cancel = Cancel::never();
                let asker = Asker { cancel: &cancel, line: None };
                connection.ask_about(matter.clone(), "m", &json!({}), PATIENCE, asker)
            };
            let asked = scoped(scope, "ask", ask).ok();
            assert_eq!(next_id(&lines), Some(1));
            assert!(connection.works_on(&matter));
            assert!(!connection.works_on(&Matter::Hook("s".into())));
            assert_eq!(connection.session_of_call(1).as_deref(), Some("s"));
            assert_eq!(connection.session_of_call(2), None);
            connection.answered(1, Ok(json!(1)));
            assert!(asked.and_then(|it| it.join().ok()).is_some_and(|it| it.is_ok()));
        });
        assert!(!connection.works_on(&matter));
        assert_eq!(connection.session_of_call(1), None);
    }

    #[test]
    fn a_request_has_a_deadline_and_a_size() {
        let (connection, _lines) = Connection::open();
        let cancel = Cancel::never();
        let asker = Asker { cancel: &cancel, line: None };
        let none = Duration::ZERO;
        assert_eq!(connection.ask("m", &json!({}), none, asker), Err(Unanswered::Late(none)));
        let long = json!("x".repeat(LONGEST));
        assert_eq!(connection.ask("m", &long, PATIENCE, asker), Err(Unanswered::TooLong));
        assert_eq!(connection.waiting(), 0);
    }
}
