//! Memory after ten thousand connections that come and go: to the API, and to
//! the sockets that an agent's sandbox has.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::Line;
use crate::Result;
use crate::arguments::Options;
use crate::crowd::in_turns;
use crate::house::{House, Runtime};
use crate::http::{self, Reply};
use crate::process;

const WORKERS: usize = 4;
const WARM_UP: usize = 500;

/// How long the gateway may take to close a connection that says nothing.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn check(options: &Options) -> Result<Vec<Line>> {
    let count = if options.quick { 1000 } else { 10_000 };
    let house = House::started(options, Runtime::Bubblewrap, 1)?;
    let (pid, api) = (house.pid()?, house.api());
    let agent = house.home().join("sockets/a1/gateway.sock");
    let mut lines = Vec::new();
    let mut growth = |what: &str, connect: &(dyn Fn() -> Result<Reply> + Sync)| -> Result<()> {
        in_turns(WORKERS, WARM_UP, |_, _| connect())?;
        let before = process::when_quiet(pid)?;
        in_turns(WORKERS, count, |_, _| connect())?;
        let after = process::when_quiet(pid)?;
        let what = format!("growth after {count} {what}");
        lines.push(Line::growth(what, before.resident, after.resident, 1.0));
        Ok(())
    };
    growth("requests, each with its connection", &|| http::get(&api, "/api/health"))?;
    growth("connections to the API that say nothing", &|| hang_up(&api))?;
    growth("connections to an agent's socket", &|| hang_up(&agent))?;
    Ok(lines)
}

/// Connects, ends its sending side, and waits until the gateway has closed.
fn hang_up(socket: &Path) -> Result<Reply> {
    let mut stream = UnixStream::connect(socket)
        .map_err(|it| format!("connect to {}: {it}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    Ok(Reply { status: 200, body: said })
}
