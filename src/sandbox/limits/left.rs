//! The end of cgroups: kills what is in their folders and removes them, also
//! those of agents that are in no configuration any more.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{group, places_here, set};
use crate::error::{During, Error, Kind, Result};

/// How long killed processes may take to be gone: the last one of a sandbox
/// waits for all others that mount on a busy host.
const END_LIMIT: Duration = Duration::from_secs(30);

/// What there is of one agent's cgroup, whoever made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The agent.
    pub agent: String,
    folders: Vec<PathBuf>,
}

/// All that there is of a home, by agent.
pub fn left_of(instance: &str) -> Vec<Left> {
    let places = places_here();
    let bases = places.iter().flat_map(|it| &it.bases);
    below(bases.map(|it| it.join(group(instance))))
}

impl Left {
    /// Kills every process in it and removes it.
    pub fn remove(&self) -> Result<()> {
        remove(&self.folders)
    }

    /// Removes it if no process is in it.
    pub fn remove_if_idle(&self) {
        for folder in &self.folders {
            // Busy, or gone already.
            let _ = remove_idle(folder);
        }
    }
}

fn below(groups: impl Iterator<Item = PathBuf>) -> Vec<Left> {
    let mut found = BTreeMap::<String, Vec<PathBuf>>::new();
    for entry in groups.filter_map(|it| fs::read_dir(it).ok()).flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|it| it.is_dir());
        if let (true, Ok(agent)) = (is_folder, entry.file_name().into_string()) {
            found.entry(agent).or_default().push(entry.path());
        }
    }
    found.into_iter().map(|(agent, folders)| Left { agent, folders }).collect()
}

/// Kills every process in those folders and waits until they are gone.
pub(super) fn kill(folders: &[PathBuf]) -> Result<()> {
    let deadline = Instant::now() + END_LIMIT;
    for folder in folders.iter().filter(|it| it.is_dir()) {
        // Whichever of these exists keeps it from forking meanwhile.
        let _ = set(folder, "pids.max", "0");
        let _ = set(folder, "cgroup.kill", "1");
        kill_members(folder, deadline)?;
    }
    Ok(())
}

/// The same, and removes the folders.
pub(super) fn remove(folders: &[PathBuf]) -> Result<()> {
    kill(folders)?;
    for folder in folders {
        match remove_idle(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error)
                    .during(Kind::Sandbox, format!("remove the cgroup {}", folder.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn remove_idle(folder: &Path) -> std::io::Result<()> {
    let removed = fs::remove_dir(folder);
    // Fails while the home has other agents.
    let _ = folder.parent().map(fs::remove_dir);
    removed
}

/// Kills round by round until the list is empty.
fn kill_members(folder: &Path, deadline: Instant) -> Result<()> {
    let what = || format!("end the processes in {}", folder.display());
    loop {
        let list = fs::read_to_string(folder.join("cgroup.procs")).during(Kind::Sandbox, what())?;
        let members: Vec<_> =
            list.lines().filter_map(|it| it.parse().ok()).filter_map(Pid::from_raw).collect();
        if members.is_empty() {
            return Ok(());
        }
        for member in members {
            // A descriptor first: the number could be another's by now, but
            // what the descriptor holds can be seen to be a member still.
            let Ok(process) = pidfd_open(member, PidfdFlags::empty()) else { continue };
            if !is_member(folder, member) {
                continue;
            }
            pidfd_send_signal(&process, Signal::KILL)
                .or_else(|error| if error == Errno::SRCH { Ok(()) } else { Err(error) })
                .during(Kind::Sandbox, what())?;
            let left = deadline.saturating_duration_since(Instant::now());
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let gone = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left));
            if gone != Ok(1) && Instant::now() >= deadline {
                return Err(Error::new(Kind::Timeout, what()));
            }
        }
        if Instant::now() >= deadline {
            return Err(Error::new(Kind::Timeout, what()));
        }
    }
}

fn is_member(folder: &Path, process: Pid) -> bool {
    let number = process.as_raw_nonzero().to_string();
    fs::read_to_string(folder.join("cgroup.procs"))
        .is_ok_and(|it| it.lines().any(|line| line == number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_found_by_agent_in_every_hierarchy() {
        let base = std::env::temp_dir().join(format!("beige-left-{}", std::process::id()));
        for folder in ["memory/beige-i/a", "pids/beige-i/a", "pids/beige-i/b"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        fs::write(base.join("pids/beige-i/cgroup.procs"), "").unwrap();
        let groups = ["cpu", "memory", "pids"].map(|it| base.join(it).join("beige-i"));
        let found = below(groups.into_iter());
        let agents: Vec<&str> = found.iter().map(|it| it.agent.as_str()).collect();
        assert_eq!(agents, ["a", "b"]);
        assert_eq!(found[0].folders.len(), 2);
        found.iter().for_each(Left::remove_if_idle);
        assert!(!base.join("pids/beige-i/a").exists() && !base.join("memory/beige-i").exists());
        fs::remove_dir_all(base).unwrap();
    }
}
