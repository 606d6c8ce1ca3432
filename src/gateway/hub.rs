//! The one loop of a gateway: takes events, keeps one turn at a time in a
//! session and the rest in line, and sees a stop through. It owns the session
//! table and the turns' threads; nobody else knows them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, after, select};

use super::running::Entered;
use super::turns::{PromptRequest, run_turn};
use super::{ConfigInUse, Engine};
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::secret::Redactor;
use crate::turn::TurnEvent;
use crate::worker::{Cancel, Worker};

/// Events of a turn that may wait for a slow subscriber.
pub(super) const EVENTS_AHEAD: usize = 1024;

/// How often what can wait is seen to; nothing is done when nothing is due.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// How long a stop waits for what runs.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// How long a stop waits for what it has called off.
const CALL_OFF_LIMIT: Duration = Duration::from_secs(12);

/// What can happen.
pub enum Event {
    /// A front end asks an agent.
    Prompt(Box<Prompt>),
    /// The turn in that session has ended.
    TurnDone {
        /// The session's key.
        session: String,
    },
    /// Stop, by a signal.
    Stop {
        /// Its number.
        signal: i32,
    },
    /// Read the configuration again and start afresh.
    Reload,
    /// Nothing runs any more.
    Drained,
}

/// A prompt on its way.
pub struct Prompt {
    pub(super) request: PromptRequest,
    pub(super) cancel: Cancel,
    pub(super) events: Sender<TurnEvent>,
    pub(super) _entered: Entered,
}

/// Why the loop ended.
pub(super) enum Ended {
    /// By a signal.
    Stop(i32),
    /// To start afresh with this.
    Reload(Box<Fresh>),
}

/// A configuration that was just read.
#[derive(Clone)]
pub struct Fresh {
    /// What it says.
    pub config: Config,
    /// What knows its secrets.
    pub redactor: Redactor,
    /// How its file looked before.
    pub in_use: ConfigInUse,
}

/// Reads the configuration again.
pub(super) type Reload<'a> = dyn Fn() -> Result<Fresh> + 'a;

/// The hub of one engine.
pub(super) struct Hub<'a> {
    engine: Arc<Engine>,
    inbox: Receiver<Event>,
    back: Sender<Event>,
    reload: &'a Reload<'a>,
    /// A session is in here while a turn runs in it; behind it what waits.
    sessions: HashMap<String, Line>,
    ending: Option<(Ended, Worker)>,
}

struct Line {
    turn: Worker,
    waiting: VecDeque<Prompt>,
}

impl<'a> Hub<'a> {
    /// `back` sends to `inbox`.
    pub(super) fn new(
        engine: Arc<Engine>,
        inbox: Receiver<Event>,
        back: Sender<Event>,
        reload: &'a Reload<'a>,
    ) -> Self {
        Self { engine, inbox, back, reload, sessions: HashMap::new(), ending: None }
    }

    /// Takes events until a stop is through.
    pub(super) fn run(mut self) -> Ended {
        loop {
            let event = select! {
                recv(self.inbox) -> event => event,
                recv(after(TIDY_EVERY)) -> _ => {
                    self.tidy();
                    continue;
                }
            };
            // `back` keeps the channel open.
            let Ok(event) = event else { return Ended::Stop(0) };
            match event {
                Event::Prompt(prompt) => self.take(*prompt),
                Event::TurnDone { session } => self.next_in_line(&session),
                Event::Stop { signal } => self.end(Ended::Stop(signal)),
                Event::Reload => self.read_anew(),
                Event::Drained => {
                    if let Some((ended, _)) = self.ending.take() {
                        return ended;
                    }
                }
            }
        }
    }

    /// The audit log's last lines reach the disk also when no more follow.
    fn tidy(&self) {
        // Health tells of a log that cannot be written.
        let _ = self.engine.audit.flush();
    }

    fn take(&mut self, prompt: Prompt) {
        let session = prompt.request.session_key.clone().unwrap_or_default();
        if let Some(line) = self.sessions.get_mut(&session) {
            line.waiting.push_back(prompt);
            return;
        }
        self.start(session, prompt, VecDeque::new());
    }

    fn next_in_line(&mut self, session: &str) {
        let Some(mut line) = self.sessions.remove(session) else { return };
        // Its last act was to say so: joining takes no time.
        drop(line.turn);
        if let Some(prompt) = line.waiting.pop_front() {
            self.start(session.to_owned(), prompt, line.waiting);
        }
    }

    fn start(&mut self, session: String, prompt: Prompt, waiting: VecDeque<Prompt>) {
        let (engine, back) = (Arc::clone(&self.engine), self.back.clone());
        let name = format!("turn-{session}");
        let key = session.clone();
        let events = prompt.events.clone();
        let turn = Worker::spawn(name.replace('\0', ""), move || {
            // Told last of all, also when the turn panics: the line goes on.
            let _done = TellDone { back, session: key };
            // All of it: its place among what runs is kept until the end.
            let prompt = prompt;
            let mut subscriber = Some(&prompt.events);
            run_turn(
                &engine,
                &prompt.request,
                &mut |event| tell(&mut subscriber, event),
                &prompt.cancel,
            );
        });
        match turn {
            Ok(turn) => drop(self.sessions.insert(session, Line { turn, waiting })),
            Err(error) => {
                refuse(&events, &error);
                waiting.iter().for_each(|it| refuse(&it.events, &error));
            }
        }
    }

    /// Nothing that runs is touched unless the new configuration is sound.
    fn read_anew(&mut self) {
        match (self.reload)() {
            Ok(fresh) => self.end(Ended::Reload(Box::new(fresh))),
            Err(error) => log::error!("the old configuration stays: {error}"),
        }
    }

    /// Lets nothing new in and waits, on a thread, for what runs. A second
    /// stop calls it off at once; a stop overrules a reload.
    fn end(&mut self, ended: Ended) {
        let running = self.engine.running.clone();
        if let Some((before, _)) = &mut self.ending {
            match (&*before, ended) {
                (Ended::Stop(_), Ended::Stop(_)) => running.call_off(),
                (Ended::Stop(_), Ended::Reload(_)) => {}
                (Ended::Reload(_), latest) => *before = latest,
            }
            return;
        }
        running.close();
        for line in self.sessions.values_mut() {
            for prompt in line.waiting.drain(..) {
                let error = Error::new(Kind::Busy, "the gateway is stopping; nothing was begun");
                refuse(&prompt.events, &error);
            }
        }
        let back = self.back.clone();
        let drain = Worker::spawn("drain", move || {
            let left = running.drain(DRAIN_LIMIT, CALL_OFF_LIMIT);
            if left > 0 {
                log::error!("{left} calls could not be ended");
            }
            let _ = back.send(Event::Drained);
        });
        match drain {
            Ok(drain) => self.ending = Some((ended, drain)),
            Err(error) => log::error!("{error}"),
        }
    }
}

/// Says that a session is free again, when dropped.
struct TellDone {
    back: Sender<Event>,
    session: String,
}

impl Drop for TellDone {
    fn drop(&mut self) {
        // The hub outlives its turns.
        let _ = self.back.send(Event::TurnDone { session: std::mem::take(&mut self.session) });
    }
}

/// Passes an event on; a subscriber that is gone or too slow gets no more.
fn tell(subscriber: &mut Option<&Sender<TurnEvent>>, event: TurnEvent) {
    let Some(sender) = subscriber else { return };
    match sender.try_send(event) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            log::warn!("a subscriber of a turn is too slow and was dropped");
            *subscriber = None;
        }
        Err(TrySendError::Disconnected(_)) => *subscriber = None,
    }
}

fn refuse(events: &Sender<TurnEvent>, error: &Error) {
    let _ = events.try_send(TurnEvent::Error {
        category: "gateway",
        message: error.to_string(),
        partial: None,
    });
}
