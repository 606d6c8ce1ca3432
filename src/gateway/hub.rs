//! The one loop of a gateway: takes events, keeps one turn at a time in a
//! session and the rest in line, and sees a stop through. It owns the session
//! table and the turns' threads; nobody else knows them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, select};

use super::running::Entered;
use super::subscription::Subscriber;
use super::turns::{self, Work};
use super::{ConfigInUse, Engine};
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::secret::Redactor;
use crate::turn::{Steering, TurnEvent};
use crate::worker::{Cancel, Canceller, Worker, give_memory_back};

/// Prompts that may wait for one session.
const MOST_WAITING: usize = 100;

/// How often what can wait is seen to; nothing is done when nothing is due.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// How long a stop waits for what runs.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// How long a stop waits for what it has called off.
const CALL_OFF_LIMIT: Duration = Duration::from_secs(12);

/// What can happen.
pub enum Event {
    /// A front end wants something done in a session.
    Begin(Box<Begin>),
    /// The turn in that session has ended.
    TurnDone {
        /// The session's key.
        session: String,
    },
    /// The turn that runs in a session of an agent is called off; what waits
    /// behind it goes on.
    Abort {
        /// The agent.
        agent: String,
        /// The session's key.
        session: String,
        /// Told whether there was one.
        reply: Sender<bool>,
    },
    /// A person says something to the turn that runs in a session of an agent.
    Steer {
        /// The agent.
        agent: String,
        /// The session's key.
        session: String,
        /// What is said.
        message: String,
        /// Told whether the turn will hear it.
        reply: Sender<Result<()>>,
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

/// What is to be done in a session, on its way.
pub struct Begin {
    pub(super) work: Work,
    pub(super) cancel: Cancel,
    /// Who asked may go away without calling it off.
    pub(super) canceller: Canceller,
    pub(super) subscriber: Subscriber,
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

/// The turn of a session, and what waits for its end.
struct Line {
    turn: Worker,
    agent: String,
    canceller: Canceller,
    steering: Arc<Steering>,
    waiting: VecDeque<Begin>,
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
                Event::Begin(begin) => self.take(*begin),
                Event::TurnDone { session } => self.next_in_line(&session),
                Event::Abort { agent, session, reply } => {
                    let _ = reply.send(self.abort(&agent, &session));
                }
                Event::Steer { agent, session, message, reply } => {
                    let _ = reply.send(self.steer(&agent, &session, message));
                }
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

    /// The audit log's last lines reach the disk also when no more follow, and
    /// prompts that nobody waits for any more leave their lines.
    fn tidy(&mut self) {
        // Health tells of a log that cannot be written.
        let _ = self.engine.audit.flush();
        for (session, line) in &mut self.sessions {
            line.let_go();
            self.engine.busy.set(session, line.waiting.len());
        }
    }

    fn take(&mut self, begin: Begin) {
        let session = begin.work.session.clone();
        let Some(line) = self.sessions.get_mut(&session) else {
            return self.start(session, begin, VecDeque::new());
        };
        line.let_go();
        // Of a turn that listens no more the end may have been told already.
        if !begin.work.waits_in_line() && line.steering.listens() {
            let what = format!("a turn is running in the session `{session}`; wait for its end");
            refuse(begin, &Error::new(Kind::Conflict, what));
        } else if line.waiting.len() < MOST_WAITING {
            line.waiting.push_back(begin);
        } else {
            let what = format!("{MOST_WAITING} prompts wait for the session `{session}` already");
            refuse(begin, &Error::new(Kind::Busy, what));
        }
        self.engine.busy.set(&session, line.waiting.len());
    }

    fn abort(&self, agent: &str, session: &str) -> bool {
        let line = self.sessions.get(session).filter(|it| it.agent == agent);
        if let Some(line) = line {
            line.canceller.cancel();
        }
        line.is_some()
    }

    fn steer(&self, agent: &str, session: &str, message: String) -> Result<()> {
        match self.sessions.get(session).filter(|it| it.agent == agent) {
            Some(line) => line.steering.say(message),
            None => Steering::closed().say(message),
        }
    }

    fn next_in_line(&mut self, session: &str) {
        let Some(mut line) = self.sessions.remove(session) else { return };
        line.let_go();
        // Its last act was to say so: joining takes no time.
        drop(line.turn);
        match line.waiting.pop_front() {
            Some(next) => self.start(session.to_owned(), next, line.waiting),
            None => self.engine.busy.clear(session),
        }
    }

    fn start(&mut self, session: String, begin: Begin, waiting: VecDeque<Begin>) {
        self.engine.busy.set(&session, waiting.len());
        let (engine, back) = (Arc::clone(&self.engine), self.back.clone());
        let name = format!("turn-{session}");
        let key = session.clone();
        let (agent, canceller) = (begin.work.agent.clone(), begin.canceller.clone());
        let steering = Arc::clone(&begin.work.steering);
        let (to_turn, begun) = bounded(1);
        // It comes back if there is no thread for it.
        let _ = to_turn.send(begin);
        let beginning = begun.clone();
        let turn = Worker::spawn(name.replace('\0', ""), move || {
            // Told last of all, whatever way the turn ends: the line goes on.
            let _done = TellDone { back, session: key };
            // All of it: its place among what runs is kept until the end.
            let Ok(mut begun) = beginning.recv() else { return };
            let subscriber = &mut begun.subscriber;
            let mut tell = |event| subscriber.tell(event);
            turns::run(&engine, &begun.work, &mut tell, &begun.cancel);
            give_memory_back();
        });
        match turn {
            Ok(turn) => {
                let line = Line { turn, agent, canceller, steering, waiting };
                self.sessions.insert(session, line);
            }
            Err(error) => {
                self.engine.busy.clear(&session);
                begun.try_iter().chain(waiting).for_each(|it| refuse(it, &error));
            }
        }
    }

    /// Nothing that runs is touched unless the new configuration is sound.
    fn read_anew(&mut self) {
        match (self.reload)() {
            Ok(fresh) => self.end(Ended::Reload(Box::new(fresh))),
            Err(error) => self.engine.keep_old(&error),
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
        for (session, line) in &mut self.sessions {
            for begin in line.waiting.drain(..) {
                let error = Error::new(Kind::Busy, "the gateway is stopping; nothing was begun");
                refuse(begin, &error);
            }
            self.engine.busy.set(session, 0);
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

impl Line {
    /// Drops prompts that were called off before they began.
    fn let_go(&mut self) {
        self.waiting.retain(Begin::is_wanted);
    }
}

impl Begin {
    fn is_wanted(&self) -> bool {
        !self.cancel.is_cancelled()
    }
}

fn refuse(mut begin: Begin, error: &Error) {
    begin.subscriber.tell(TurnEvent::refused(error));
}
