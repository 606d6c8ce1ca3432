//! `beige gateway`: starts, stops and looks at the daemon.

mod logs;
mod serve;
mod status;

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{after, bounded, select};
use lexopt::Arg::{Long, Short, Value as Positional};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::client::{self, Api};
use super::table::{NOTHING, Word, action, flag, valued};
use super::{Command, Invocation, print, setup, tell, tidy, unknown, unknown_action};
use crate::config::Home;
use crate::error::{During, Error, Kind, Result};
use crate::gateway::ConfigInUse;
use crate::gateway::daemon::{Holder, HomeLock, Role};
use crate::worker::Worker;

/// Exit code of a configuration that is wrong.
const BAD_CONFIG: u8 = 78;

/// What the daemon writes once it answers, before its address.
const READY: &str = "ready ";

/// How long a start may take: a prompt that holds the home is waited for.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long a stop may take: 30 s for what runs, then what is called off.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// How long a gateway may take to say how it is.
const STATUS_LIMIT: Duration = Duration::from_secs(8);

/// Whoever waits for longer is told for what.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// How long a gateway may hold the home without having written who it is.
const NAME_LIMIT: Duration = Duration::from_secs(5);

/// Largest refusal that is read, in bytes.
const MAX_REFUSAL: u64 = 64 * 1024;

/// Pause between two looks at a process or a file of others.
const PAUSE: Duration = Duration::from_millis(25);

/// `beige gateway`.
pub(super) const COMMAND: Command = Command {
    name: "gateway",
    summary: "Start, stop and look at the daemon",
    help: "\
Usage: beige gateway start [--foreground]
       beige gateway stop
       beige gateway restart
       beige gateway status [--json]
       beige gateway logs [-f] [-n LINES]

start     starts the daemon; returns when it answers or says why it does not.
          The first start makes ~/.beige.
            --foreground  stay, and log to standard error (systemd)
stop      lets what runs end (30 s, then it is called off), then stops
restart   stop, then start; a broken configuration stops nothing. A gateway
          that runs in the foreground, as under systemd, takes the
          configuration over and starts afresh by itself
status    whether it runs, what waits, and which models cool down; exit 0 if it
          runs, 1 if not
            --json        one JSON document
logs      the newest lines of the gateway's log
            -n LINES      so many (default 50)
            -f            go on as they come

  --config FILE   use this configuration (start, restart, logs)

Exit code 78: a restart cannot cure it (bad configuration, port taken, another
gateway on this home).
",
    takes: NOTHING,
    actions: &[
        action("start", &[flag(&["--foreground"])]),
        action("stop", &[]),
        action("restart", &[]),
        action("status", &[flag(&["--json"])]),
        action("logs", &[valued(&["-n"], Word::Any), flag(&["-f"])]),
    ],
    run,
};

#[derive(Default)]
struct Options {
    action: Option<String>,
    foreground: bool,
    /// Started by `start` without `--foreground`.
    daemon: bool,
    json: bool,
    follow: bool,
    lines: Option<usize>,
}

fn run(invocation: &mut Invocation) -> Result<u8> {
    let options = parse(invocation)?;
    match options.action.as_deref() {
        Some("start") if options.foreground => serve::serve(invocation, options.daemon),
        Some("start") => start(invocation),
        Some("stop") => stop(&invocation.home()?),
        Some("restart") => restart(invocation),
        Some("status") => status::status(invocation, options.json),
        Some("logs") => logs::logs(invocation, options.lines.unwrap_or(50), options.follow),
        Some(other) => Err(unknown_action(&COMMAND, other)),
        None => Err(Error::new(Kind::Usage, "say start, stop, restart, status or logs")),
    }
}

fn parse(invocation: &mut Invocation) -> Result<Options> {
    let mut options = Options::default();
    while let Some(argument) = invocation.next()? {
        match argument {
            Long("foreground") => options.foreground = true,
            Long("daemon") => options.daemon = true,
            Long("json") => options.json = true,
            Short('f') => options.follow = true,
            Short('n') => options.lines = Some(number(&invocation.text()?)?),
            Positional(action) if options.action.is_none() => {
                options.action = Some(action.to_string_lossy().into_owned());
            }
            other => return Err(unknown(&COMMAND, &other)),
        }
    }
    options.check()?;
    Ok(options)
}

impl Options {
    /// Each flag belongs to one action.
    fn check(&self) -> Result<()> {
        let flags = [
            (self.foreground, "--foreground", "start"),
            (self.json, "--json", "status"),
            (self.follow, "-f", "logs"),
            (self.lines.is_some(), "-n", "logs"),
        ];
        let action = self.action.as_deref().unwrap_or_default();
        match flags.into_iter().find(|(given, _, of)| *given && *of != action) {
            Some((_, flag, of)) => {
                let what = format!("{flag} belongs to `beige gateway {of}`");
                Err(Error::new(Kind::Usage, what))
            }
            None => Ok(()),
        }
    }
}

fn number(text: &str) -> Result<usize> {
    text.parse().map_err(|_| Error::new(Kind::Usage, format!("-n takes a number, not `{text}`")))
}

/// The first start makes the home.
fn first_start(invocation: &Invocation, home: &Home) -> Result<()> {
    if invocation.config_file()? == home.config_file() && !home.config_file().exists() {
        setup::create(home)?;
        tell(&format!("made {} with a first configuration", tidy(home.root())));
    }
    Ok(())
}

/// Starts a daemon and waits for its word.
fn start(invocation: &Invocation) -> Result<u8> {
    let home = invocation.home()?;
    first_start(invocation, &home)?;
    // A configuration that is wrong is told here, with all of its findings.
    super::config::check_start(invocation)?;
    launch(invocation)
}

/// Stops and starts, if what is to be started can be: a configuration that is
/// wrong ends no gateway that works. A gateway that somebody else started, such
/// as systemd, stays that one's and starts afresh by itself.
fn restart(invocation: &Invocation) -> Result<u8> {
    let home = invocation.home()?;
    first_start(invocation, &home)?;
    if let Err(findings) = super::config::check_start(invocation) {
        return refused(findings, running(&home)?.is_some());
    }
    // Nothing is compared where none runs, so one that runs is left alone.
    let left_alone = |it: Error| it.within("the running gateway was left alone");
    check_place(invocation, &home).map_err(left_alone)?;
    let in_use = ConfigInUse::of_gateway(&home).filter(ConfigInUse::is_in_foreground);
    if running(&home)?.is_some() && in_use.is_some() {
        invocation.tell_of_other_config("gateway");
        return start_afresh(&home);
    }
    stop(&home)?;
    launch(invocation)
}

/// Says why nothing is stopped, and below it what is wrong, as `config check`
/// does: places that an editor opens stand first in their lines.
fn refused(findings: Error, runs: bool) -> Result<u8> {
    if findings.kind() != Kind::Config {
        return Err(findings);
    }
    let left_alone = if runs { "; the running gateway was left alone" } else { "" };
    tell(&format!("beige gateway: the configuration is not sound{left_alone}"));
    tell(&findings.to_string());
    Ok(BAD_CONFIG)
}

/// An error ([`Kind::Config`]) if the configuration names another place than
/// that of the gateway that runs, and nobody could listen there.
fn check_place(invocation: &Invocation, home: &Home) -> Result<()> {
    if running(home)?.is_none() {
        return Ok(());
    }
    let Some(config) = super::config::sound(invocation)? else { return Ok(()) };
    // A gateway that does not answer has its place all the same; without it
    // nothing can be compared.
    let health = Api::with_limit(home, STATUS_LIMIT).get("/api/health");
    let Some(own) = health.ok().and_then(|it| it["address"].as_str()?.parse().ok()) else {
        return Ok(());
    };
    let (host, port) = (config.gateway.host.as_str(), config.gateway.port);
    let what = format!(
        "listen on {host}:{port} (set gateway.host to an address of this machine and gateway.port \
         to a free port, or end what uses this one)"
    );
    let places = (host, port).to_socket_addrs().during(Kind::Config, what.clone())?;
    let places: Vec<SocketAddr> = places.map(|it| trial(it, own)).collect();
    TcpListener::bind(&places[..]).map(drop).during(Kind::Config, what)
}

/// Where to try whether a place can be had: at any port of the address if the
/// gateway that makes way is what uses this one.
fn trial(mut place: SocketAddr, own: SocketAddr) -> SocketAddr {
    let is_any = place.ip().is_unspecified() || own.ip().is_unspecified();
    if place.port() == own.port() && (is_any || place.ip() == own.ip()) {
        place.set_port(0);
    }
    place
}

/// Has the gateway that runs start afresh and waits until it answers again.
fn start_afresh(home: &Home) -> Result<u8> {
    let api = Api::new(home);
    let before = api.get("/api/health")?["startedAt"].clone();
    let reply = api.post("/api/gateway/restart", &json!({}))?;
    if reply.status != 202 {
        let mut body = Vec::new();
        reply.body.take(MAX_REFUSAL).read_to_end(&mut body).during(Kind::Internal, "read")?;
        return Err(client::refusal(reply.status, &body));
    }
    let started = Instant::now();
    while started.elapsed() < STOP_LIMIT + START_LIMIT {
        select! { recv(after(PAUSE)) -> _ => {} }
        match api.get("/api/health") {
            Ok(health) if health["startedAt"] != before => return afresh(&health),
            Ok(health) if health["reloadError"].is_string() => return afresh(&health),
            // It waits for what runs, or does not listen for a moment.
            _ => {}
        }
    }
    Err(Error::new(Kind::Timeout, "the gateway did not start afresh; its log says more"))
}

fn afresh(health: &Value) -> Result<u8> {
    match health["reloadError"].as_str() {
        Some(error) => Err(Error::new(Kind::Config, error)),
        None => {
            let place = place(health["address"].as_str());
            print(&format!("the gateway has started afresh{place}\n"))?;
            tell("its process is the same: who started it starts a new program");
            Ok(0)
        }
    }
}

fn launch(invocation: &Invocation) -> Result<u8> {
    super::process::lay_client(&invocation.home()?);
    let mut daemon = spawn_daemon(invocation)?;
    let stdout = daemon.stdout.take().ok_or_else(|| Error::new(Kind::Internal, "no pipe"))?;
    let (said, heard) = bounded(1);
    let reader = Worker::spawn("daemon-word", move || {
        let mut line = String::new();
        // At most one short line; an error is silence.
        let _ = BufReader::new(stdout).take(64).read_line(&mut line);
        let _ = said.send(line);
    })?;
    let (deadline, soon) = (after(START_LIMIT), after(TELL_AFTER));
    let mut word = select! {
        recv(heard) -> line => Some(line.unwrap_or_default()),
        recv(soon) -> _ => None,
    };
    if word.is_none() {
        tell_of_prompt(&invocation.home()?);
        word = select! {
            recv(heard) -> line => Some(line.unwrap_or_default()),
            recv(deadline) -> _ => None,
        };
    }
    let Some(word) = word else {
        let _ = daemon.kill();
        let what = format!("the gateway did not answer within {} s", START_LIMIT.as_secs());
        return Err(Error::new(Kind::Timeout, what));
    };
    drop(reader);
    if let Some(address) = word.strip_prefix(READY) {
        let place = place(Some(address.trim_end()));
        print(&format!("the gateway runs (pid {}){place}\n", daemon.id()))?;
        return Ok(0);
    }
    failed_start(daemon)
}

/// Says so if a prompt holds the home, for which a start waits.
fn tell_of_prompt(home: &Home) {
    let holder = HomeLock::holder(home).ok().flatten().filter(|it| it.role == Role::Prompt);
    if let Some(pid) = holder.and_then(|it| it.pid) {
        tell(&format!("waiting for a prompt without a gateway (pid {pid}), at most 30 s …"));
    }
}

fn spawn_daemon(invocation: &Invocation) -> Result<Child> {
    let mut command = Process::new(super::this_program()?);
    command.arg("--config").arg(invocation.config_file()?);
    command.args(["gateway", "start", "--foreground", "--daemon"]);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("BEIGE_HOME", invocation.home()?.root()).envs(super::process::frugal());
    command.spawn().during(Kind::Internal, "start the gateway")
}

/// Passes on what the daemon said before it ended, and its exit code.
fn failed_start(mut daemon: Child) -> Result<u8> {
    let mut words = String::new();
    if let Some(stderr) = daemon.stderr.take() {
        // It has closed its pipes: it is ending.
        let _ = stderr.take(64 * 1024).read_to_string(&mut words);
    }
    let status = daemon.wait().during(Kind::Internal, "wait for the gateway")?;
    tell(words.trim_end());
    Ok(status.code().and_then(|it| u8::try_from(it).ok()).filter(|it| *it != 0).unwrap_or(1))
}

/// Where it is reached.
fn place(address: Option<&str>) -> String {
    let address = address.filter(|it| !it.is_empty());
    address.map_or_else(String::new, |it| format!(" on http://{it}"))
}

/// Asks the daemon to stop and waits until it has let go of the home.
fn stop(home: &Home) -> Result<u8> {
    let Some(pid) = named(home)? else {
        print("no gateway is running\n")?;
        return Ok(0);
    };
    match kill_process(pid, Signal::TERM) {
        // It was ending already.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => {
            let what = format!("send SIGTERM to the gateway (pid {})", pid.as_raw_nonzero());
            return Err(error).during(Kind::Internal, what);
        }
    }
    let started = Instant::now();
    let mut told = false;
    // At its very end it holds the home and has no name any more.
    while running(home)?.is_some_and(|it| it.pid.is_none_or(|it| it == pid_number(pid))) {
        if started.elapsed() > STOP_LIMIT {
            return Err(still_runs(pid));
        }
        if !told && started.elapsed() > TELL_AFTER {
            tell(&format!(
                "waiting for what runs: after 30 s it is called off, after {} s given up …",
                STOP_LIMIT.as_secs()
            ));
            told = true;
        }
        select! { recv(after(PAUSE)) -> _ => {} }
    }
    print("the gateway has stopped\n")?;
    Ok(0)
}

fn still_runs(pid: Pid) -> Error {
    let what = format!(
        "the gateway (pid {pid}) still runs after {} s; it stops once what it waits for lets go, \
         or end it with `kill -9 {pid}`",
        STOP_LIMIT.as_secs(),
        pid = pid.as_raw_nonzero(),
    );
    Error::new(Kind::Timeout, what)
}

/// Process id of the gateway that holds the home, if any. One that has none
/// is about to write it, or at its very end.
fn named(home: &Home) -> Result<Option<Pid>> {
    let started = Instant::now();
    while let Some(holder) = running(home)? {
        let pid = holder.pid.and_then(|it| Pid::from_raw(i32::try_from(it).ok()?));
        if pid.is_some() {
            return Ok(pid);
        }
        if started.elapsed() > NAME_LIMIT {
            let what = "another process holds the home and does not say which it is; try again";
            return Err(Error::new(Kind::Conflict, what));
        }
        select! { recv(after(PAUSE)) -> _ => {} }
    }
    Ok(None)
}

fn pid_number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// The gateway that holds the home, if any.
fn running(home: &Home) -> Result<Option<Holder>> {
    Ok(HomeLock::holder(home)?.filter(|it| it.role == Role::Gateway))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_does_not_stop_is_told_with_what_to_do() {
        let pid = Pid::from_raw(4711).expect("a process id");
        let told = still_runs(pid).to_string();
        assert!(told.contains("after 60 s") && told.contains("`kill -9 4711`"), "{told}");
    }

    #[test]
    fn a_place_of_the_gateway_that_makes_way_is_not_tried() {
        let check = |place: &str, own: &str, want: &str| {
            let address = |it: &str| it.parse::<SocketAddr>().expect("an address");
            assert_eq!(trial(address(place), address(own)), address(want), "{place} {own}");
        };
        check("127.0.0.1:80", "127.0.0.1:80", "127.0.0.1:0");
        check("0.0.0.0:80", "127.0.0.1:80", "0.0.0.0:0");
        check("127.0.0.2:80", "0.0.0.0:80", "127.0.0.2:0");
        check("127.0.0.2:80", "127.0.0.1:80", "127.0.0.2:80");
        check("127.0.0.1:81", "127.0.0.1:80", "127.0.0.1:81");
    }
}
