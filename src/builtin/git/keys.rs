//! An agent's keys: they lie in a folder that no sandbox sees, and are read
//! here, given to an `ssh-agent` in a box of its own, and offered to ssh by its
//! socket alone. It lives as long as one call.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::confine::Cell;
use crate::error::{During, Error, Kind, Result};
use crate::plugin::child::{self, Asker, Bounds};

/// Where the socket lies inside.
pub(super) const SOCKET: &str = "/run/beige/agent/agent.sock";

/// Programs of openssh-client.
const AGENT: &str = "/usr/bin/ssh-agent";
const ADD: &str = "/usr/bin/ssh-add";
const SSH: &str = "/usr/bin/ssh";

/// Bytes of a key or of the list of known hosts.
const LARGEST: u64 = 256 * 1024;

/// How long starting it, or a key of it, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// An ssh-agent that holds keys; dropping it ends it.
#[derive(Debug)]
pub(super) struct SshAgent {
    child: Child,
}

/// What an agent has for ssh.
#[derive(Debug)]
pub(super) struct Keys {
    keys: Vec<Vec<u8>>,
    /// Lines of `known_hosts`.
    pub(super) known_hosts: String,
}

impl Keys {
    /// Reads the keys of that folder: its files `id_…` without an ending.
    pub(super) fn read(folder: &Path, agent: &str) -> Result<Self> {
        for program in [AGENT, ADD, SSH] {
            if !Path::new(program).is_file() {
                let what =
                    format!("{program} is not on the gateway's host (package openssh-client)");
                return Err(Error::new(Kind::Missing, what));
            }
        }
        let mut keys = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("id_") && !name.contains('.') {
                keys.push(bounded(&entry.path()).during(Kind::Internal, "read a key for ssh")?);
            }
        }
        if keys.is_empty() {
            let what = format!(
                "this agent has no key for ssh; a person can put one into agents/{agent}/ssh of the \
                 gateway's state folder (`ssh-keygen -t ed25519 -N '' -f id_ed25519`)"
            );
            return Err(Error::new(Kind::Missing, what));
        }
        let known_hosts = bounded(&folder.join("known_hosts")).unwrap_or_default();
        Ok(Self { keys, known_hosts: String::from_utf8_lossy(&known_hosts).into_owned() })
    }
}

fn bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl SshAgent {
    /// Starts one in that box and gives it the keys. Waited for by the thread
    /// that started it: with that, the box ends.
    pub(super) fn start(cell: &Cell<'_>, keys: &Keys, asker: Asker<'_>) -> Result<Self> {
        let words = [AGENT, "-D", "-a", SOCKET].map(str::to_owned);
        let mut command = cell.command(&words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut agent = Self { child: command.spawn().during(Kind::Internal, "start ssh-agent")? };
        agent.await_socket()?;
        for key in &keys.keys {
            let mut command = cell.command(&[ADD, "-q", "-"].map(str::to_owned));
            let bounds = Bounds { timeout: PATIENCE, stdout: 1024, stderr: 1024 };
            let added = child::run(&mut command, Some(key), bounds, asker)?;
            if added.code != 0 {
                let what = "a key of this agent cannot be used: it is none, or has a passphrase";
                return Err(Error::new(Kind::Config, what));
            }
        }
        Ok(agent)
    }

    /// It says where its socket is once it listens.
    fn await_socket(&mut self) -> Result<()> {
        let stdout = self.child.stdout.as_mut();
        let limit = Timespec::try_from(PATIENCE).during(Kind::Internal, "wait for ssh-agent")?;
        let said = stdout.is_some_and(|it| {
            let is_ready = poll(&mut [PollFd::new(it, PollFlags::IN)], Some(&limit)) == Ok(1);
            is_ready && it.read(&mut [0; 256]).is_ok_and(|it| it > 0)
        });
        if said { Ok(()) } else { Err(Error::new(Kind::Internal, "ssh-agent did not start")) }
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
