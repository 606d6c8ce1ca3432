//! The life of a gateway process: lock the home, bind, build, serve, drain,
//! end. What a front end needs is bound before the first sandbox is made, so
//! that a port in use harms nothing.

use std::cell::Cell;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use signal_hook::consts::SIGTERM;

use super::daemon::{HomeLock, Role, SignalThread, notify_systemd};
use super::handle::Handle;
use super::hooked::Starting;
use super::hub::{Ended, Event, Fresh, Hub};
use super::socket::Reception;
use super::{Engine, Only, Sockets, wake};
use crate::config::Config;
use crate::error::{During, Error, Kind, Result};
use crate::plugin::install::{Net, absent};
use crate::worker::{self, Cancel};

/// How long a start waits for a prompt that holds the home.
const HOME_LIMIT: Duration = Duration::from_secs(30);

/// How long all plugins together may take to be installed at a start: half of
/// what is waited for one.
const INSTALL_LIMIT: Duration = Duration::from_secs(30);

/// Name of an agent's socket in its folder.
const SOCKET: &str = "gateway.sock";

/// Name of the socket there that its sandbox dials.
const LINK: &str = "link.sock";

/// How a gateway ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By SIGTERM: as it should.
    Stopped,
    /// By another signal.
    Signal(i32),
}

/// Where front ends listen.
pub struct Doors {
    /// `gateway.host:gateway.port`.
    pub tcp: TcpListener,
    /// `api.sock`.
    pub unix: UnixListener,
}

/// Starts the front ends; what it gives is dropped to end them.
pub type StartFrontEnds<'a> = dyn Fn(Handle, Doors, &Config) -> Result<Box<dyn Send>> + 'a;

/// What the program above puts in front of the engine.
pub struct FrontEnds<'a> {
    /// Starts the front ends.
    pub start: &'a StartFrontEnds<'a>,
    /// Called once the gateway answers.
    pub ready: &'a dyn Fn() -> Result<()>,
    /// Reads the configuration again.
    pub reload: &'a dyn Fn() -> Result<Fresh>,
}

/// Runs a gateway until it is told to stop.
pub fn serve(fresh: Fresh, front: &FrontEnds<'_>) -> Result<End> {
    let home = &fresh.config.home;
    home.create()?;
    let lock = HomeLock::take(home, Role::Gateway, HOME_LIMIT, &Cancel::never())?;
    let (events, inbox) = unbounded();
    let _signals = SignalThread::start(events.clone())?;
    let end = serve_rounds(fresh, front, &events, &inbox)?;
    // Whoever waits for the lock waits for the end of this process.
    lock.keep();
    Ok(end)
}

/// Serves one configuration after the other. One with which the gateway never
/// answered makes way for the one before it.
fn serve_rounds(
    first: Fresh,
    front: &FrontEnds<'_>,
    events: &Sender<Event>,
    inbox: &Receiver<Event>,
) -> Result<End> {
    let (mut current, mut before) = (first, None);
    let mut trouble = None;
    let said = Cell::new(false);
    loop {
        let answered = Cell::new(false);
        let ready = || {
            answered.set(true);
            notify_systemd("READY=1");
            if said.replace(true) { Ok(()) } else { (front.ready)() }
        };
        let round = Round { front, ready: &ready, events, inbox, trouble: trouble.take() };
        match round.run(current.clone()) {
            Ok(Ended::Stop(SIGTERM | 0)) => return Ok(End::Stopped),
            Ok(Ended::Stop(signal)) => return Ok(End::Signal(signal)),
            Ok(Ended::Reload(fresh)) => before = Some(std::mem::replace(&mut current, *fresh)),
            Err(error) => match before.take() {
                Some(old) if !answered.get() => {
                    trouble = Some(error);
                    current = old;
                }
                _ => return Err(error),
            },
        }
    }
}

/// From one configuration to the next.
struct Round<'a> {
    front: &'a FrontEnds<'a>,
    ready: &'a dyn Fn() -> Result<()>,
    events: &'a Sender<Event>,
    inbox: &'a Receiver<Event>,
    /// What the configuration before this one failed with.
    trouble: Option<Error>,
}

impl Round<'_> {
    fn run(&self, fresh: Fresh) -> Result<Ended> {
        let Fresh { config, redactor, in_use } = fresh;
        let doors = bind(&config)?;
        let api_socket = config.home.api_socket();
        install_absent(&config);
        let hub_sender = Some(self.events.clone());
        let engine = Engine::build(config, &Only::All, redactor, None, hub_sender)?;
        if let Some(error) = &self.trouble {
            engine.keep_old(error);
        }
        if let Ok(address) = doors.tcp.local_addr() {
            // Set once, right here.
            let _ = engine.address.set(address);
        }
        let sockets = listen_for_agents(&engine)?;
        let handle = Handle { engine: Arc::clone(&engine) };
        let front = (self.front.start)(handle, doors, &engine.config)?;
        let waking = wake::start(&engine)?;
        engine.toolbox.plugins().start();
        let _plugins = StopPlugins(&engine);
        let starting = Starting::begin(&engine)?;
        if let Err(error) = in_use.leave(&engine.config.home) {
            log::warn!("one-shots cannot see which configuration is served: {error}");
        }
        // First, so that whoever hears that it is ready finds it in the log.
        log::info!("{}", engine.greeting());
        (self.ready)()?;
        let (inbox, back) = (self.inbox.clone(), self.events.clone());
        let ended = Hub::new(Arc::clone(&engine), inbox, back, self.front.reload).run();
        let is_reload = matches!(ended, Ended::Reload(_));
        notify_systemd(if is_reload { "RELOADING=1" } else { "STOPPING=1" });
        drop(front);
        drop(sockets);
        drop(waking);
        drop(starting);
        engine.toolbox.plugins().tell_of_shutdown();
        engine.toolbox.plugins().stop();
        stop_sandboxes(&engine);
        let _ = fs::remove_file(api_socket);
        engine.audit.flush()?;
        log::info!("the gateway has stopped");
        Ok(ended)
    }
}

/// Stops the plugins, whatever way a round ends: what one of them asks holds the
/// engine meanwhile, and must not be the last to.
struct StopPlugins<'a>(&'a Engine);

impl Drop for StopPlugins<'_> {
    fn drop(&mut self) {
        self.0.toolbox.plugins().stop();
    }
}

/// Installs the plugins that were installed once and are not there. Where that
/// fails the gateway starts without them.
fn install_absent(config: &Config) {
    let environment = |name: &str| std::env::var_os(name);
    let deadline = Instant::now() + INSTALL_LIMIT;
    let net = Net { environment: &environment, deadline, progress: &|_| () };
    absent::install(&config.plugins, &config.home, &net);
}

/// Binds the port and `api.sock`; an old `api.sock` is nobody's, since the
/// home is locked.
fn bind(config: &Config) -> Result<Doors> {
    let address = (config.gateway.host.as_str(), config.gateway.port);
    let tcp = TcpListener::bind(address).during(
        Kind::Config,
        format!(
            "listen on {}:{} (set gateway.port to a free port, or end what uses this one)",
            config.gateway.host, config.gateway.port
        ),
    )?;
    let path = config.home.api_socket();
    super::socket::check_path_length(&path)?;
    let what = format!("listen on {}", path.display());
    let _ = fs::remove_file(&path);
    let unix = UnixListener::bind(&path).during(Kind::Internal, what.clone())?;
    // The home is 0700: nobody else gets near it before this.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).during(Kind::Internal, what)?;
    Ok(Doors { tcp, unix })
}

impl Engine {
    /// What the log says once it answers.
    fn greeting(&self) -> String {
        let place = self.address.get().map_or_else(String::new, |it| format!(" on http://{it}"));
        let agents = self.config.agents.len();
        let plural = if agents == 1 { "" } else { "s" };
        format!("the gateway answers{place} for {agents} agent{plural}")
    }
}

fn listen_for_agents(engine: &Engine) -> Result<Vec<Sockets>> {
    let reception = Reception::open()?;
    let agents = engine.config.agents.keys();
    agents.map(|it| engine.listen(&reception, it, SOCKET, LINK)).collect()
}

/// Stops them side by side; one in which a one-shot has a call is left alone.
fn stop_sandboxes(engine: &Engine) {
    thread::scope(|scope| {
        for (name, equipment) in engine.toolbox.equipment() {
            let stop = move || match equipment.sandbox.stop() {
                Ok(true) => {}
                Ok(false) => log::info!("the sandbox of `{name}` is in use and stays"),
                Err(error) => log::warn!("stop the sandbox of `{name}`: {error}"),
            };
            if let Err(error) = worker::scoped(scope, "sandbox-stop", stop) {
                log::warn!("{error}");
            }
        }
    });
}
