//! The audit log: one line before each act and one after it, in files that are
//! only ever appended to. A call whose first line cannot be written is
//! refused. [`Audit`] writes, [`read()`] and [`follow`] read, [`verify`] proves
//! that no line was changed or lost.
//!
//! Refuses: judging (that is `policy`), and writing what is not bounded and
//! masked.

mod lock;
mod log;
mod read;
mod record;
mod tail;
mod verify;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use serde::Serialize;

pub use self::read::{Filter, follow, parse_since, read};
pub use self::record::{escaped_as_json, is_active};
pub use self::tail::{Head, head};
pub use self::verify::{Finding, KeptHead, Place, Report, verify};

use self::lock::{LONGEST_WAIT, Lock};
use self::log::Log;
use self::record::Record;
use crate::clock;
use crate::config::Home;
use crate::config::home::create_private;
use crate::error::{Error, Kind, Result};
use crate::secret::Redactor;

/// The log, for writing. Clones write the same log; so may other processes.
#[derive(Clone)]
pub struct Audit {
    shared: Arc<Shared>,
}

/// What is about to be done, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The agent whose rights count.
    pub agent: String,
    /// What sort of act it is.
    pub act: Act,
    /// The tool's name; `provider/model` for [`Act::Llm`].
    pub tool: String,
    /// What it is called with: exec `[command]` (`beige exec`: its argv), read
    /// and patch `[path]`, write `[path, "(N bytes)"]`, tools their arguments.
    /// Secrets in it are masked; more than 8 KiB an argument, 32 KiB or 256
    /// arguments is cut, with length and SHA-256 noted.
    pub args: Vec<String>,
    /// Where it runs.
    pub target: Option<Target>,
    /// The verified session.
    pub session: Option<String>,
    /// A session that was claimed and is not the caller's.
    pub claimed_session: Option<String>,
    /// `tui`, `api`, `cli`, `socket`, ….
    pub channel: Option<String>,
    /// `provider/model` that asked.
    pub model: Option<String>,
}

/// The sort of an act: the field `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// read, write, patch, exec.
    CoreTool,
    /// A plugin's tool.
    Tool,
    /// A call to a model.
    Llm,
    /// A connection out of a sandbox.
    Egress,
    /// A person's answer.
    Approval,
}

/// Where an act happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// On the host, by the gateway.
    Gateway,
    /// In the agent's sandbox.
    Sandbox,
}

/// How an act ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finish {
    /// Exit code, where there was one.
    pub exit_code: Option<i32>,
    /// Length of the output in bytes.
    pub output_bytes: Option<u64>,
    /// What went wrong; masked, at most 8 KiB of it.
    pub error: Option<String>,
}

/// A call that has begun. [`Pending::finish`] writes its second line; dropped
/// without, it writes that the call was abandoned.
#[must_use = "a call that has begun must be finished"]
pub struct Pending {
    audit: Audit,
    begun: Instant,
    /// Taken by whatever finishes the call.
    record: Option<Record>,
}

struct Shared {
    redactor: Redactor,
    /// The desk goes from thread to thread: a mutex whose wait has a deadline.
    give: Sender<Desk>,
    take: Receiver<Desk>,
    /// Second lines that could not be written; they go before any other line,
    /// so nothing begins before they stand.
    owed: Mutex<VecDeque<Record>>,
}

/// What it takes to write.
struct Desk {
    lock: Lock,
    log: Log,
}

impl Audit {
    /// Opens the log of a home, making its folder if need be. A file of
    /// `max_bytes` is rotated; besides the newest, `max_files` (at least one)
    /// are kept.
    pub fn open(home: &Home, max_bytes: u64, max_files: u32, redactor: Redactor) -> Result<Self> {
        create_private(&home.logs())?;
        let mut lock = Lock::open(home.audit_lock())?;
        let held = lock.hold(Instant::now() + LONGEST_WAIT)?;
        let log = Log::open(home, max_bytes, max_files)?;
        drop(held);
        let (give, take) = bounded(1);
        let shared = Shared { redactor, give, take, owed: Mutex::default() };
        shared.put_back(Desk { lock, log });
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Writes a call's first line; the act may begin only after it. An error
    /// means that the call is refused: [`Kind::Busy`] if others kept the log
    /// locked for ten seconds.
    pub fn begin(&self, entry: &Entry) -> Result<Pending> {
        let record = Record::started(entry, &self.shared.redactor, clock::now())?;
        let synced = self.shared.append(&record).map_err(refused)?;
        let audit = self.clone();
        let pending = Pending { audit, begun: Instant::now(), record: Some(record) };
        // The line stands, so a refusal now is an abandoned call.
        synced.map_err(refused)?;
        Ok(pending)
    }

    /// Writes the one line of a call that policy, a person or a hook refused.
    pub fn deny(&self, entry: &Entry, reason: &str) -> Result<()> {
        let record = Record::denied(entry, reason, &self.shared.redactor, clock::now())?;
        self.shared.append(&record)?
    }

    /// Waits until all that was written is on the disk, and notes the log's
    /// head. Lines of the last second may be neither; an owner that stays idle
    /// calls this, and dropping the last clone does. Costs nothing if nothing
    /// was written.
    pub fn flush(&self) -> Result<()> {
        self.shared.flush()
    }
}

impl Pending {
    /// Writes the call's second line. The result of the call stands even if
    /// that fails: the line is kept, and nothing new begins before it is
    /// written.
    pub fn finish(mut self, finish: &Finish) {
        self.close(finish);
    }

    fn close(&mut self, finish: &Finish) {
        let Some(record) = self.record.take() else { return };
        let shared = &self.audit.shared;
        let duration = self.begun.elapsed();
        let record = record.finished(finish, &shared.redactor, clock::now(), duration);
        match shared.append(&record) {
            Ok(Ok(())) => (),
            Ok(Err(error)) => ::log::error!("{error}"),
            Err(error) => {
                ::log::error!("the end of a call is not in the audit log yet: {error}");
                shared.owe(record);
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.close(&Finish { error: Some("abandoned".into()), ..Finish::default() });
    }
}

impl Shared {
    /// Writes what is owed, then the record. The inner result is that of the
    /// sync after it: the line stands already.
    fn append(&self, record: &Record) -> Result<Result<()>> {
        self.at_desk(|desk, deadline| {
            let _held = desk.lock.hold(deadline)?;
            self.pay(&mut desk.log)?;
            desk.log.append(record)?;
            Ok(desk.log.sync_if_due())
        })
    }

    fn flush(&self) -> Result<()> {
        self.at_desk(|desk, deadline| {
            if desk.log.is_clean() && self.owes_nothing() {
                return Ok(());
            }
            let _held = desk.lock.hold(deadline)?;
            let paid = self.pay(&mut desk.log);
            desk.log.sync()?;
            paid
        })
    }

    /// Only who has the desk takes from what is owed.
    fn pay(&self, log: &mut Log) -> Result<()> {
        loop {
            let owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner).front().cloned();
            let Some(record) = owed else { return Ok(()) };
            log.append(&record)?;
            self.owed.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        }
    }

    fn owes_nothing(&self) -> bool {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn owe(&self, record: Record) {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner).push_back(record);
    }

    fn at_desk<T>(&self, work: impl FnOnce(&mut Desk, Instant) -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + LONGEST_WAIT;
        let Ok(mut desk) = self.take.recv_deadline(deadline) else {
            return Err(Error::new(Kind::Busy, "wait for the audit log: other calls hold it"));
        };
        let result = work(&mut desk, deadline);
        self.put_back(desk);
        result
    }

    /// There is one desk and room for one, so this neither waits nor fails.
    fn put_back(&self, desk: Desk) {
        let _ = self.give.send(desk);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            ::log::error!("close the audit log: {error}");
        }
    }
}

fn refused(error: Error) -> Error {
    error.within("the call is refused, since it cannot be written to the audit log")
}

#[cfg(test)]
mod tests;
