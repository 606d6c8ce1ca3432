//! How a call enters an agent's sandbox, and what its end means: by the link
//! where there is one, else by the runtime's own program. What never began is
//! tried again, what had begun never is. After a call that was called off the
//! word of the sandbox does not count: what ran must be seen to be gone, or
//! everything in the sandbox is ended.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::child::Entered;
use super::lock::{Hold, Lock};
use super::process;
use super::pump::CalledOff;
use super::talk::{self, End, Over, Talk};
use super::{AgentSandbox, Feed, Output, Resident, Role};
use crate::error::{Error, Kind, Result};
use crate::worker::Cancel;

/// How long a call waits for others to make, stop or leave the sandbox.
pub(super) const LOCK_LIMIT: Duration = Duration::from_secs(90);

/// How often a sandbox is brought up for one call: between that and the call
/// another process may stop or replace it, such as a gateway that ends, and
/// what is known of it by then may be older.
const MOST_STARTS: usize = 5;

/// How long what was killed may take to be gone from the process table.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// How long a call may wait until its command begins, also where its own time is
/// shorter: that of a machine with much to do.
const LEAST_PATIENCE: Duration = Duration::from_secs(5);

/// How long a look whether a sandbox is up is good for further calls.
const LOOK_LASTS: Duration = Duration::from_secs(2);

/// What is to be done inside.
pub(super) struct Errand<'a> {
    pub(super) role: Role,
    /// A JSON object for tool-client.
    pub(super) request: &'a [u8],
    pub(super) feed: &'a Feed,
    pub(super) output: &'a mut dyn Output,
    pub(super) timeout: Option<Duration>,
    pub(super) cancel: &'a Cancel,
}

/// Which way was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the resident.
    Link,
    /// By a program of the runtime.
    Program,
}

/// How one try went.
enum Try {
    /// Nothing was begun, and why not.
    Never(String),
    /// Nothing was begun in all the time that the call has.
    Late,
    /// Nothing was begun before a signal came that ends what does not begin.
    Signalled(u8),
    /// It had begun; with what the entering program complained of.
    Over(Over, Way, String),
}

impl AgentSandbox {
    /// One errand under the shared lock. What never began is tried again after
    /// the sandbox was brought up; what had begun never is.
    pub(super) fn talk(&self, mut errand: Errand<'_>) -> Result<(Value, Way)> {
        let cancel = errand.cancel;
        let (mut starts, mut waited) = (0, Duration::ZERO);
        let signals = errand.feed.signals.clone();
        let is_signalled = || !signals.is_empty();
        if !self.sandbox.seems_up() {
            starts = 1;
            self.bring_up(cancel, &is_signalled)?;
        }
        loop {
            let (path, settled) = (&self.lock_file, || Ok(is_signalled()));
            let held = Lock::wait_unless(path, Hold::Shared, LOCK_LIMIT, cancel, &settled)?;
            let Some(together) = held else {
                match signals.try_iter().find(|it| talk::ends(*it)) {
                    Some(number) => return Ok((never_began(number), Way::Link)),
                    None => continue,
                }
            };
            match self.enter(&mut errand, &mut waited)? {
                Try::Signalled(number) => return Ok((never_began(number), Way::Link)),
                Try::Over(over, way, complaint) => {
                    return Ok((self.judge(errand.role, over, way, &complaint)?, way));
                }
                Try::Never(_) if cancel.is_cancelled() => {
                    return Err(Error::new(Kind::Cancelled, "called off before it began"));
                }
                Try::Late => return Ok((errand.late()?, Way::Link)),
                Try::Never(complaint) if starts == MOST_STARTS => {
                    return Err(self.closed(&complaint));
                }
                Try::Never(_) => {
                    drop(together);
                    starts += 1;
                    self.bring_up(cancel, &is_signalled)?;
                }
            }
        }
    }

    /// One try; what it waited for nothing is added to `waited`.
    fn enter(&self, errand: &mut Errand<'_>, waited: &mut Duration) -> Result<Try> {
        let mut why = "it has not dialled the link".to_owned();
        if let Some(call) = self.link.call(errand.role, &|| self.sandbox.resident()) {
            let is_up = || self.is_still_up();
            let tried = Instant::now();
            match talk::talk(&call, errand.as_talk(&is_up, *waited))? {
                End::Over(over) => {
                    self.detours.none();
                    return Ok(Try::Over(over, Way::Link, String::new()));
                }
                End::Signalled(number) => return Ok(Try::Signalled(number)),
                End::NeverBegan(why) if errand.cancel.is_cancelled() => return Ok(Try::Never(why)),
                End::NeverBegan(said) if said.is_empty() => why = "it said nothing".to_owned(),
                End::NeverBegan(said) => why = said,
            }
            log::debug!("a call by the link never began: {why}");
            *waited += tried.elapsed();
            if errand.is_late(*waited) {
                return Ok(Try::Late);
            }
        }
        if self.sandbox.resident_has_ended() {
            return Ok(Try::Never("its first process has ended".into()));
        }
        let admit = |pid| self.sandbox.admit(pid);
        let mut entered = Entered::start(self.sandbox.command(errand.role), &admit)?;
        let tried = Instant::now();
        let ended = talk::talk(&entered, errand.as_talk(&|| true, *waited))?;
        *waited += tried.elapsed();
        Ok(match ended {
            End::Over(over) => {
                self.note_detour(&why);
                Try::Over(over, Way::Program, entered.complaint())
            }
            End::Signalled(number) => Try::Signalled(number),
            End::NeverBegan(_) if errand.is_late(*waited) && !errand.cancel.is_cancelled() => {
                Try::Late
            }
            End::NeverBegan(why) => {
                let complaint = entered.complaint();
                Try::Never(if complaint.is_empty() { why } else { complaint })
            }
        })
    }

    /// A call was let in past the link. Where its first process is not seen, or
    /// has ended, that is as it must be.
    fn note_detour(&self, why: &str) {
        let resident = self.sandbox.resident().filter(|it| it.serves());
        if resident.is_some_and(|it| self.detours.one(it, why))
            && let Some(trouble) = self.trouble()
        {
            log::warn!("{trouble}");
        }
    }

    /// Whether the sandbox is up, asked for by many calls at once and looked
    /// for by one of them.
    fn is_still_up(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, was_up)) = *looked
            && at.elapsed() < LOOK_LASTS
        {
            return was_up;
        }
        let is_up = self.sandbox.is_up().unwrap_or(false);
        *looked = Some((Instant::now(), is_up));
        is_up
    }

    /// What the end of a call that had begun comes to.
    fn judge(&self, role: Role, over: Over, way: Way, complaint: &str) -> Result<Value> {
        let Over { report, called_off, is_silent, ran } = over;
        let (report, why) = match (report, called_off) {
            // It may have ended by itself just before.
            (Some(report), _) if !says_killed(&report) => return checked(report),
            (Some(report), None) if !is_flagged(&report, "timedOut") => return checked(report),
            (None, None) if !is_silent => return Err(self.lost(complaint)),
            (report, why) => (report, why.unwrap_or(CalledOff::Timeout)),
        };
        if role == Role::File {
            return Err(unfinished(why));
        }
        // Nobody kills for one that is silent: what it started is not waited for.
        let patience = if is_silent { Duration::ZERO } else { GONE_WITHIN };
        let deadline = Instant::now() + patience;
        let is_gone = ran.map(|it| process::have_ended(&it, deadline));
        match (is_gone, report) {
            (Some(true), Some(report)) if left_alive(&report) => {
                self.cut_off(way, why, "not all that it started could be killed")
            }
            (Some(true), Some(report)) => Ok(as_called_off(Some(report), why)),
            // What it started after that look was the supervisor's to kill.
            (Some(true), None) if self.is_running() => {
                self.cut_off(way, why, "its supervisor was killed before it had killed all")
            }
            (Some(true), None) => Ok(as_called_off(None, why)),
            (Some(false), _) => self.cut_off(way, why, "what it started was not gone"),
            (None, None) if is_silent => {
                self.cut_off(way, why, "its supervisor no longer answered")
            }
            (None, None) if why == CalledOff::Cancelled => Err(self.lost(complaint)),
            (None, Some(report)) if why == CalledOff::Cancelled || !self.outlives(way) => {
                Ok(as_called_off(Some(report), why))
            }
            (None, _) => self.cut_off(way, why, "it cannot be seen from here what it left"),
        }
    }

    /// Whether anything can still run in there.
    fn is_running(&self) -> bool {
        self.sandbox.resident().is_some_and(Resident::lives)
    }

    /// Whether what a call starts can live on after the call.
    pub(super) fn outlives(&self, way: Way) -> bool {
        way == Way::Link || self.sandbox.keeps_background()
    }

    /// Only the end of everything in there is sure to end what a call started.
    fn cut_off(&self, way: Way, why: CalledOff, reason: &str) -> Result<Value> {
        if self.outlives(way) {
            let doing = format!("end the sandbox, since {reason}");
            self.sandbox.stop().map_err(|it| it.within(doing))?;
        }
        let note = format!("{reason}, so the whole sandbox was ended");
        Ok(as_called_off(Some(json!({ "note": note })), why))
    }

    /// It had begun, and its supervisor or the sandbox ended under it.
    fn lost(&self, complaint: &str) -> Error {
        let why = match self.sandbox.fate() {
            Some(fate) => format!("the sandbox ended under the command ({fate})"),
            None if complaint.is_empty() => "the command's supervisor was killed in the sandbox, \
                                             and all that it ran with it"
                .to_owned(),
            None => format!("the way into the sandbox broke under the command ({complaint})"),
        };
        Error::new(Kind::Sandbox, format!("{why}; it is not repeated"))
    }

    /// It could not be entered, also after it was brought up.
    fn closed(&self, complaint: &str) -> Error {
        Error::new(Kind::Sandbox, format!("enter the {} sandbox: {complaint}", self.runtime()))
    }
}

impl Errand<'_> {
    fn as_talk<'a>(
        &'a mut self,
        is_up: &'a (dyn Fn() -> bool + Sync),
        waited: Duration,
    ) -> Talk<'a> {
        Talk {
            ready_within: self.patience().saturating_sub(waited).min(talk::READY_LIMIT),
            request: self.request,
            feed: self.feed,
            output: &mut *self.output,
            timeout: self.timeout,
            cancel: self.cancel,
            is_up,
        }
    }

    /// How long it may take until it begins; a call without a time of its own is
    /// tried as often as it may be.
    fn patience(&self) -> Duration {
        self.timeout.map_or(Duration::MAX, |it| it.max(LEAST_PATIENCE))
    }

    fn is_late(&self, waited: Duration) -> bool {
        waited >= self.patience()
    }

    /// The end of one that never began in its time.
    fn late(&self) -> Result<Value> {
        if self.role == Role::File {
            return Err(unfinished(CalledOff::Timeout));
        }
        let note = "the command never began: something in the sandbox keeps it from starting any";
        Ok(as_called_off(Some(json!({ "note": note })), CalledOff::Timeout))
    }
}

/// The end of one that a signal came for before it had begun: that of a command
/// that the signal ends.
fn never_began(signal: u8) -> Value {
    let code = 128 + i32::from(signal);
    json!({ "exitCode": code, "cancelled": true, "note": "the command never began" })
}

/// tool-client refuses a request it cannot read; that is our fault, or the
/// image brought another program.
fn checked(report: Value) -> Result<Value> {
    match report.get("error").and_then(Value::as_str) {
        Some(error) if report.get("code").is_none() => {
            Err(Error::new(Kind::Sandbox, format!("the supervisor refused: {error}")))
        }
        _ => Ok(report),
    }
}

fn is_flagged(report: &Value, name: &str) -> bool {
    report.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// Whether the supervisor gave up before all was dead.
fn left_alive(report: &Value) -> bool {
    report.get("notKilled").is_some()
}

fn says_killed(report: &Value) -> bool {
    is_flagged(report, "timedOut") || is_flagged(report, "cancelled")
}

/// The report of a command that was called off: we know why, and whoever
/// killed it does not.
fn as_called_off(report: Option<Value>, why: CalledOff) -> Value {
    let mut report = report.filter(Value::is_object).unwrap_or_else(|| json!({}));
    let timed_out = why == CalledOff::Timeout;
    report["exitCode"] = json!(if timed_out { 124 } else { 137 });
    report["timedOut"] = json!(timed_out);
    report["cancelled"] = json!(!timed_out);
    report
}

fn unfinished(why: CalledOff) -> Error {
    match why {
        CalledOff::Timeout => {
            Error::new(Kind::Timeout, "the sandbox did not do a file operation in time")
        }
        CalledOff::Cancelled => Error::new(Kind::Cancelled, "a file operation was called off"),
    }
}
