//! The life of one plugin that is a server: its process is started, greeted,
//! spoken to, started again when it dies, and ended; or where it runs elsewhere
//! ([`remote`]), it is greeted and tried again until it answers. [`Host`] is what the rest
//! of the house sees of it. A crash costs the calls that were under way, each
//! of which ends with an error that says what the plugin printed last.
//!
//! Threads, per plugin: its life, and while a process runs one that reads what
//! it prints and one that writes to it; of one in TypeScript one more, which
//! answers what it waits for. Those of a remote one stand there.

pub(super) mod complaints;
mod greeting;
pub(super) mod hearing;
mod process;
mod remote;
mod start;
mod streams;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, after, bounded, select};
use serde_json::{Value, json};

use complaints::Complaints;
pub(super) use greeting::PROTOCOL;
pub use greeting::{AnnouncedTool, Greeting};
use hearing::Hearing;
use process::{Pipes, Process};
use remote::Remote;
pub use start::Start;
use streams::{Over, Streams};

use super::connection::{Connection, Letter, Unanswered};
use super::desk::Desk;
use super::launch::Launch;
use super::mcp::server::Server;
use super::run::Asker;
use super::typescript::{self, Served};
use crate::error::{Error, Kind, Result};
use crate::secret::Redactor;
use crate::worker::{Cancel, Canceller, Worker};

/// How long a plugin may take to answer `initialize`.
const GREETING: Duration = Duration::from_secs(30);

/// How long it may take to answer `beige/start` and `beige/stop`.
const WORD: Duration = Duration::from_secs(5);

/// How long a process may take to end by itself once nothing more is said.
const LEAVING: Duration = Duration::from_secs(2);

/// The first pause before a plugin that died is started again; each further one
/// is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// One plugin that is a server.
pub struct Host {
    shared: Arc<Shared>,
    /// Dropped first: that ends the life.
    stop: Mutex<Option<Canceller>>,
    life: Mutex<Option<Worker>>,
}

/// What a life and those who call have in common.
struct Shared {
    start: Start,
    desk: Arc<dyn Desk>,
    redactor: Redactor,
    /// `None` where no background work begins, as in a one-shot.
    data_dir: Option<PathBuf>,
    stopped: Cancel,
    state: Mutex<State>,
    mcp: Arc<Server>,
}

/// Where a plugin stands.
enum State {
    /// It was not asked for yet.
    Idle,
    /// A process is being started and greeted. The channel is cut at the end
    /// of that, whatever came of it.
    Starting(Receiver<()>),
    /// It answers.
    Up(Arc<Session>),
    /// It does not run, why, and when it is started again.
    Down { why: String, again: Option<Instant> },
}

/// A plugin that runs and has answered the greeting.
#[derive(Debug)]
pub struct Session {
    /// The conversation with it.
    pub connection: Arc<Connection>,
    /// What it says of itself.
    pub greeting: Greeting,
    /// What is kept of it as a plain MCP server.
    pub mcp: Arc<Server>,
    /// Unlike that of every other process of this plugin.
    pub process: u64,
}

impl Host {
    /// A plugin that is started when it is asked for. Its requests go to
    /// `desk`; with a `data_dir` it is told to begin its work in the
    /// background.
    pub fn new(
        start: Start,
        desk: Arc<dyn Desk>,
        redactor: Redactor,
        data_dir: Option<PathBuf>,
    ) -> Self {
        let (stop, stopped) = Cancel::pair();
        let state = Mutex::new(State::Idle);
        let mcp = Arc::default();
        let shared = Arc::new(Shared { start, desk, redactor, data_dir, stopped, state, mcp });
        Self { shared, stop: Mutex::new(Some(stop)), life: Mutex::new(None) }
    }

    /// The plugin's name.
    pub fn plugin(&self) -> &str {
        self.shared.start.plugin()
    }

    /// What is kept of it as a plain MCP server.
    pub fn mcp(&self) -> &Server {
        &self.shared.mcp
    }

    /// Has it started, if it was not yet; does not wait for it. Once it is
    /// stopped, it stays so.
    pub fn start(&self) -> Result<()> {
        let mut life = locked(&self.life);
        if life.is_some() || locked(&self.stop).is_none() {
            return Ok(());
        }
        let (starting, started) = bounded(0);
        *self.shared.locked() = State::Starting(started);
        let shared = Arc::clone(&self.shared);
        let name = format!("plug-{}", shared.start.plugin());
        let spawned = Worker::spawn(name, move || shared.live(starting));
        if let Err(error) = &spawned {
            *self.shared.locked() = State::Down { why: error.to_string(), again: None };
        }
        *life = Some(spawned?);
        Ok(())
    }

    /// The plugin, once it runs: starts it and waits for its greeting where
    /// that is still to come. [`Kind::Busy`] if it does not run.
    pub fn session(&self, asker: Asker<'_>) -> Result<Arc<Session>> {
        self.session_within(asker, GREETING + WORD)
    }

    /// The same for who waits so long at most.
    pub fn session_within(&self, asker: Asker<'_>, patience: Duration) -> Result<Arc<Session>> {
        self.start()?;
        let deadline = after(patience);
        loop {
            let started = match &*self.shared.locked() {
                State::Up(session) => return Ok(Arc::clone(session)),
                State::Down { why, again } => return Err(self.not_running(why, *again)),
                State::Starting(started) => started.clone(),
                State::Idle => return Err(self.not_running(STOPPING, None)),
            };
            select! {
                recv(started) -> _ => {}
                recv(asker.cancel.gone()) -> _ => {
                    return Err(Error::new(Kind::Cancelled, "called off before the plugin ran"));
                }
                recv(deadline) -> _ => return Err(self.not_running("it is still starting", None)),
            }
        }
    }

    /// Whether it runs, without waiting; the error says why it does not.
    pub fn look(&self) -> Result<Option<Arc<Session>>, String> {
        match &*self.shared.locked() {
            State::Up(session) => Ok(Some(Arc::clone(session))),
            State::Down { why, .. } => Err(why.clone()),
            State::Starting(_) | State::Idle => Ok(None),
        }
    }

    /// Waits until it runs or does not, if it was started.
    pub fn settle(&self, cancel: &Cancel) {
        let deadline = after(GREETING + WORD);
        loop {
            let started = match &*self.shared.locked() {
                State::Starting(started) => started.clone(),
                _ => return,
            };
            select! {
                recv(started) -> _ => {}
                recv(cancel.gone()) -> _ => return,
                recv(deadline) -> _ => return,
            }
        }
    }

    /// Ends it: it is told, then its input is closed, then it is killed.
    pub fn stop(&self) {
        // The life that waits for a process hears it, and ends it in order.
        locked(&self.stop).take();
        let life = locked(&self.life).take();
        drop(life);
        self.shared.rest(STOPPING, None);
    }

    fn not_running(&self, why: &str, again: Option<Instant>) -> Error {
        let name = self.shared.start.plugin();
        let how = self.shared.start.again();
        let again = again.map_or_else(String::new, |it| {
            let seconds = it.saturating_duration_since(Instant::now()).as_secs() + 1;
            format!("; it is {how} again in {seconds} s")
        });
        Error::new(Kind::Busy, format!("plugin '{name}' is not running: {why}{again}"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Why a process is no more.
enum Ended {
    /// The gateway stops it.
    Stopped,
    /// It never took part in the conversation: another try would be no better.
    LeftOut(String),
    /// It died, why, and how long it had answered.
    Died(String, Duration),
}

impl Shared {
    /// One process after another, until the plugin is stopped or left out.
    fn live(&self, starting: Sender<()>) {
        let mut starting = Some(starting);
        let mut pause = FIRST_PAUSE;
        loop {
            let name = self.start.plugin();
            match self.one_process(&mut starting) {
                Ended::Stopped => return self.rest(STOPPING, None),
                Ended::LeftOut(why) => {
                    log::error!("plugin '{name}' is left out: {why}");
                    return self.rest(&why, None);
                }
                Ended::Died(why, lived) => {
                    // One that ran for a while died of something else.
                    pause = if lived > LONGEST_PAUSE { FIRST_PAUSE } else { pause };
                    let how = self.start.again();
                    log::warn!("plugin '{name}' {why}; it is {how} again in {} s", pause.as_secs());
                    self.rest(&why, Some(Instant::now() + pause));
                }
            }
            // Who waited for the start looks at the state now.
            drop(starting);
            select! {
                recv(self.stopped.gone()) -> _ => return self.rest(STOPPING, None),
                recv(after(pause)) -> _ => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            let (next, started) = bounded(0);
            *self.locked() = State::Starting(started);
            starting = Some(next);
        }
    }

    /// From a process's start to its end; `starting` is cut once it answers.
    fn one_process(&self, starting: &mut Option<Sender<()>>) -> Ended {
        let (connection, lines) = Connection::open();
        let launch = match &self.start {
            Start::Process(launch) => launch,
            Start::Remote { plugin, endpoint } => {
                let remote = Remote::start(plugin, endpoint, &connection, lines, self);
                return self.one_remote(remote, &connection, starting);
            }
        };
        let (mut process, mut streams, _served) =
            match self.start_process(launch, &connection, lines) {
                Ok(started) => started,
                Err(error) => {
                    return Ended::Died(format!("cannot be started: {error}"), Duration::ZERO);
                }
            };
        let ended = self.converse(&connection, &streams.over, starting);
        process.note_descendants();
        // That its input is closed is how a server hears of the end.
        streams.close_input();
        let how = process.end(LEAVING);
        let words = streams.end();
        match ended {
            End::Stopped => Ended::Stopped,
            End::LeftOut(why) => Ended::LeftOut(Over::Breach(why).told(&how, &words)),
            End::Over(over, lived) => Ended::Died(over.told(&how, &words), lived),
        }
    }

    /// The same of a server that runs elsewhere, which is tried again whatever
    /// it failed of: nobody here can say that it stays so.
    fn one_remote(
        &self,
        remote: Result<Remote>,
        connection: &Arc<Connection>,
        starting: &mut Option<Sender<()>>,
    ) -> Ended {
        let remote = match remote {
            Ok(remote) => remote,
            Err(error) => {
                return Ended::Died(format!("cannot be asked: {error}"), Duration::ZERO);
            }
        };
        let ended = self.converse(connection, &crossbeam_channel::never(), starting);
        remote.end();
        match ended {
            End::Stopped => Ended::Stopped,
            End::LeftOut(why) => Ended::Died(why, Duration::ZERO),
            End::Over(over, lived) => Ended::Died(over.told("has ended", ""), lived),
        }
    }

    fn start_process(
        &self,
        launch: &Launch,
        connection: &Arc<Connection>,
        lines: Receiver<Letter>,
    ) -> Result<(Process, Streams, Option<Served>)> {
        let (plugin, redactor) = (&launch.plugin, &self.redactor);
        let (process, pipes, served) = self.start_launch(launch, connection)?;
        let (talk, desk) = (Arc::clone(connection), Arc::clone(&self.desk));
        let hearing = Hearing::of(plugin, redactor, talk, desk, Arc::clone(&self.mcp));
        let complaints = Complaints::of(plugin, redactor);
        let streams = Streams::start(plugin, &process, pipes, lines, hearing, complaints)?;
        Ok((process, streams, served))
    }

    /// A plugin in TypeScript has more to it than its process.
    fn start_launch(
        &self,
        launch: &Launch,
        connection: &Arc<Connection>,
    ) -> Result<(Process, Pipes, Option<Served>)> {
        let Some(plugin) = &launch.typescript else {
            let (process, pipes) = Process::start(launch)?;
            return Ok((process, pipes, None));
        };
        let asker = Asker { cancel: &self.stopped, line: None };
        let (launch, fifos) = typescript::prepare(launch, plugin, asker)?;
        let (talk, desk) = (Arc::clone(connection), Arc::clone(&self.desk));
        let served = fifos.serve(&launch.plugin, desk, talk)?;
        let (process, pipes) = Process::start(&launch)?;
        Ok((process, pipes, Some(served)))
    }

    /// The conversation, from the greeting to its end.
    fn converse(
        &self,
        connection: &Arc<Connection>,
        over: &Receiver<Over>,
        starting: &mut Option<Sender<()>>,
    ) -> End {
        let greeting = match self.greet(connection, over) {
            Ok(greeting) => greeting,
            Err(end) => return end,
        };
        let since = Instant::now();
        let works_on = greeting.beige.as_ref().and(self.data_dir.as_ref());
        let session = Session {
            connection: Arc::clone(connection),
            greeting,
            mcp: Arc::clone(&self.mcp),
            process: self.mcp.outdate(),
        };
        *self.locked() = State::Up(Arc::new(session));
        starting.take();
        if let Some(folder) = works_on {
            self.say(connection, "beige/start", &json!({"dataDir": folder}));
        }
        let end = select! {
            recv(over) -> over => End::over(over.ok(), since.elapsed()),
            recv(self.stopped.gone()) -> _ => End::Stopped,
        };
        if works_on.is_some() && matches!(end, End::Stopped) {
            self.say(connection, "beige/stop", &json!({}));
        }
        end
    }

    fn greet(&self, connection: &Connection, over: &Receiver<Over>) -> Result<Greeting, End> {
        let asker = Asker { cancel: &self.stopped, line: None };
        match connection.ask("initialize", &self.start.greeting(), GREETING, asker) {
            Ok(answer) => {
                connection.tell("notifications/initialized", &json!({}));
                Ok(self.start.heard(Greeting::read(&answer)))
            }
            Err(Unanswered::CalledOff) => Err(End::Stopped),
            Err(Unanswered::Late(it)) => {
                let why = format!("does not answer `initialize` within {} s", it.as_secs());
                Err(End::LeftOut(why))
            }
            Err(Unanswered::Refused(it)) => {
                Err(End::LeftOut(format!("refuses `initialize`: {}", it.message)))
            }
            Err(Unanswered::Lost(why)) => Err(End::LeftOut(why)),
            Err(_) => Err(End::over(over.recv_timeout(WORD).ok(), Duration::ZERO)),
        }
    }

    /// Says something that the plugin should answer soon. That it begins or
    /// ends is its own affair: a failure is told in the log.
    fn say(&self, connection: &Connection, method: &str, params: &Value) {
        let asker = Asker { cancel: &Cancel::never(), line: None };
        if let Err(error) = connection.ask(method, params, WORD, asker) {
            log::warn!("plugin '{}': `{method}`: {error}", self.start.plugin());
        }
    }

    fn rest(&self, why: &str, again: Option<Instant>) {
        *self.locked() = State::Down { why: why.to_owned(), again };
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

/// How a conversation came to its end.
enum End {
    Stopped,
    LeftOut(String),
    Over(Over, Duration),
}

impl End {
    fn over(over: Option<Over>, lived: Duration) -> Self {
        Self::Over(over.unwrap_or(Over::Unheard), lived)
    }
}

const STOPPING: &str = "the gateway is stopping";

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
