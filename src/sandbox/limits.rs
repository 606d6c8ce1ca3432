//! Bounds on memory, processes and processor time of one agent's processes,
//! by a cgroup of its own: the unified hierarchy, or those of version 1, per
//! controller whatever the host has. Plain folders and files; made as root,
//! or where the gateway's user was delegated a part of the tree. What no
//! cgroup gives is left to tool-client ([`InnerLimits`]), and
//! [`Cgroup::describe`] says which is which.

mod left;
mod places;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;

pub use self::left::{Left, left_of};
use self::places::{Controller, Place, Version, own_path, places};
use super::{InnerLimits, process};
use crate::error::{During, Kind, Result};

/// Microseconds in which a processor quota counts.
const CPU_PERIOD: u64 = 100_000;

/// What an agent may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Bytes, swap included.
    pub memory_bytes: u64,
    /// Processes at a time.
    pub pids: u64,
    /// Processors; `None` is no bound.
    pub cpus: Option<f64>,
}

/// Bounds as they will be in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// Which by what, for a person.
    pub text: String,
    /// Whether a cgroup holds all of them that are wanted.
    pub are_held: bool,
}

/// The cgroup of one agent, in as many hierarchies as it takes.
#[derive(Debug)]
pub struct Cgroup {
    bounds: Bounds,
    /// `beige-INSTANCE/AGENT`.
    name: PathBuf,
    places: Vec<Place>,
    settled: OnceLock<Vec<Settled>>,
}

/// A hierarchy in which our folder could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settled {
    version: Version,
    base: PathBuf,
    /// What is bounded there.
    controllers: Vec<Controller>,
}

impl Cgroup {
    /// The cgroup that an agent has on this host; nothing is made yet.
    pub fn new(instance: &str, agent: &str, bounds: Bounds) -> Self {
        Self {
            bounds,
            name: group(instance).join(agent),
            places: places_here(),
            settled: OnceLock::new(),
        }
    }

    /// Makes it where it is missing and writes the bounds anew.
    pub fn make(&self) {
        for it in self.settled() {
            self.make_below(&it.base, it.version, &it.controllers);
        }
    }

    /// Puts a process and all below it into the bounds. They may start what
    /// starts nothing itself meanwhile: a child of one that was moved is in
    /// already, and one that was forked before that is seen by a second look.
    pub fn admit(&self, top: u32) -> Result<()> {
        self.make();
        if self.settled().is_empty() || self.holds(top) {
            return Ok(());
        }
        let first = process::process_tree(Path::new("/proc"), top);
        self.move_all(&first)?;
        let mut second = process::process_tree(Path::new("/proc"), top);
        second.retain(|it| !first.contains(it));
        self.move_all(&second)
    }

    fn move_all(&self, processes: &[u32]) -> Result<()> {
        let moves = processes.iter().flat_map(|it| self.folders().map(move |at| (at, *it)));
        moves.into_iter().try_for_each(|(folder, process)| move_into(&folder, process))
    }

    /// Whether a process is under every bound that is in force here; `true`
    /// where none is.
    pub fn holds(&self, process: u32) -> bool {
        let text = groups_of(process);
        self.settled().iter().all(|it| {
            let path = match it.version {
                Version::V2 => own_path(&text, str::is_empty),
                Version::V1 => own_path(&text, |names| {
                    it.controllers.iter().all(|it| names.split(',').any(|on| on == it.name()))
                }),
            };
            path.is_some_and(|path| Path::new(path).ends_with(&self.name))
        })
    }

    /// What tool-client must bound itself, since no cgroup here does.
    ///
    /// `RLIMIT_NPROC` counts all processes of that user id on the host, also
    /// those of other agents that run under it, and `RLIMIT_DATA` one process,
    /// not their sum: weaker than a cgroup.
    pub fn inner_limits(&self) -> InnerLimits {
        let missing = |controller| !self.gives(controller);
        InnerLimits {
            processes: missing(Controller::Pids).then_some(self.bounds.pids),
            data_bytes: missing(Controller::Memory).then_some(self.bounds.memory_bytes),
        }
    }

    /// Which bounds are in force and by what, for a person.
    pub fn describe(&self) -> String {
        self.describe_as(self.settled())
    }

    /// What [`Cgroup::describe`] will say, as far as it can be seen without
    /// making anything.
    pub fn foresee(&self) -> Foreseen {
        let settled: Vec<Settled> = self.places.iter().filter_map(foresee_at).collect();
        let given = |controller| settled.iter().any(|it| it.controllers.contains(&controller));
        let are_held = given(Controller::Memory)
            && given(Controller::Pids)
            && (given(Controller::Cpu) || self.bounds.cpus.is_none());
        Foreseen { text: self.describe_as(&settled), are_held }
    }

    fn describe_as(&self, settled: &[Settled]) -> String {
        let words = Controller::ALL.map(|controller| {
            let settled = settled.iter().find(|it| it.controllers.contains(&controller));
            let name = controller.name();
            match (settled, controller) {
                (Some(it), _) => format!("{name}: cgroup {}", it.base.join(&self.name).display()),
                (None, Controller::Memory) => {
                    format!("{name}: RLIMIT_DATA, each process for itself (no cgroup)")
                }
                (None, Controller::Pids) => {
                    format!("{name}: RLIMIT_NPROC, all processes of the user together (no cgroup)")
                }
                (None, Controller::Cpu) if self.bounds.cpus.is_none() => {
                    format!("{name}: no limit")
                }
                (None, Controller::Cpu) => format!("{name}: not limited (no cgroup)"),
            }
        });
        words.join("; ")
    }

    /// How many processes of the agent the kernel has killed so far since
    /// there was no memory left.
    pub fn out_of_memory_kills(&self) -> u64 {
        let settled = self.settled().iter().find(|it| it.controllers.contains(&Controller::Memory));
        let Some(it) = settled else { return 0 };
        let file = match it.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = fs::read_to_string(it.base.join(&self.name).join(file)).unwrap_or_default();
        counted(&text, "oom_kill")
    }

    /// Whether there is none: nothing here bounds or counts processes.
    pub fn is_absent(&self) -> bool {
        self.settled().is_empty()
    }

    /// Kills every process in it and waits until they are gone.
    pub fn kill(&self) -> Result<()> {
        left::kill(&self.all_folders())
    }

    /// Kills every process in it and removes it.
    pub fn remove(&self) -> Result<()> {
        left::remove(&self.all_folders())
    }

    fn gives(&self, controller: Controller) -> bool {
        self.settled().iter().any(|it| it.controllers.contains(&controller))
    }

    /// The folders in use.
    fn folders(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.settled().iter().map(|it| it.base.join(&self.name))
    }

    /// The folders that a gateway of this home may ever have used.
    fn all_folders(&self) -> Vec<PathBuf> {
        self.places.iter().flat_map(|it| &it.bases).map(|it| it.join(&self.name)).collect()
    }

    /// Decided once: where it can be made and what is bounded there.
    fn settled(&self) -> &[Settled] {
        self.settled.get_or_init(|| self.places.iter().filter_map(|it| self.settle(it)).collect())
    }

    fn settle(&self, place: &Place) -> Option<Settled> {
        place.bases.iter().find_map(|base| {
            if place.version == Version::V2 && !may_move_from(base) {
                return None;
            }
            let controllers = self.make_below(base, place.version, &place.controllers);
            if controllers.is_empty() {
                // Leaves no empty folders in trees that give nothing.
                let folder = base.join(&self.name);
                let _ = fs::remove_dir(&folder);
                let _ = folder.parent().map(fs::remove_dir);
                return None;
            }
            Some(Settled { version: place.version, base: base.clone(), controllers })
        })
    }

    /// Makes the folder, as far as the kernel lets us, and sets the bounds;
    /// answers which of them took.
    fn make_below(&self, base: &Path, version: Version, wanted: &[Controller]) -> Vec<Controller> {
        let folder = base.join(&self.name);
        let group = folder.parent().unwrap_or(base);
        if version == Version::V2 {
            enable(base, wanted);
        }
        if make_folder(group).is_err() {
            return Vec::new();
        }
        if version == Version::V2 {
            enable(group, wanted);
        }
        if make_folder(&folder).is_err() {
            return Vec::new();
        }
        let took = |it: &Controller| self.bound(&folder, version, *it).is_ok();
        wanted.iter().copied().filter(took).collect()
    }

    fn bound(&self, folder: &Path, version: Version, controller: Controller) -> io::Result<()> {
        let Bounds { memory_bytes, pids, cpus } = self.bounds;
        let memory = memory_bytes.to_string();
        match (controller, version) {
            (Controller::Pids, _) => set(folder, "pids.max", &pids.to_string()),
            (Controller::Memory, Version::V1) => bound_memory_v1(folder, &memory),
            (Controller::Memory, Version::V2) => {
                set(folder, "memory.max", &memory)?;
                // Absent where the kernel does not count swap.
                optional(set(folder, "memory.swap.max", "0"))
            }
            (Controller::Cpu, Version::V1) => {
                let quota = cpus.map_or("-1".to_owned(), |it| quota(it).to_string());
                set(folder, "cpu.cfs_period_us", &CPU_PERIOD.to_string())?;
                set(folder, "cpu.cfs_quota_us", &quota)
            }
            (Controller::Cpu, Version::V2) => {
                let quota = cpus.map_or("max".to_owned(), |it| quota(it).to_string());
                set(folder, "cpu.max", &format!("{quota} {CPU_PERIOD}"))
            }
        }
    }
}

/// Whether a process is in a cgroup of that agent of that home.
pub(in crate::sandbox) fn is_in(instance: &str, agent: &str, process: u32) -> bool {
    let name = group(instance).join(agent);
    let text = groups_of(process);
    let mut paths = text.lines().filter_map(|it| it.splitn(3, ':').nth(2));
    paths.any(|it| Path::new(it).ends_with(&name))
}

/// The cgroups of a process, a line for each hierarchy; empty if unseen.
fn groups_of(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default()
}

/// Where our folder could be made, by what the files of the place say.
fn foresee_at(place: &Place) -> Option<Settled> {
    place.bases.iter().find_map(|base| {
        let writable = access(base, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        let movable = place.version == Version::V1 || may_move_from(base);
        let listed = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
        let gives = |it: &Controller| {
            place.version == Version::V1 || listed.split_whitespace().any(|on| on == it.name())
        };
        let controllers: Vec<_> = place.controllers.iter().copied().filter(gives).collect();
        let serves = writable && movable && !controllers.is_empty();
        serves.then(|| Settled { version: place.version, base: base.clone(), controllers })
    })
}

/// Memory may never exceed memory and swap together, so the order depends on
/// whether the bound grows or shrinks.
fn bound_memory_v1(folder: &Path, bytes: &str) -> io::Result<()> {
    let shrunk = set(folder, "memory.limit_in_bytes", bytes);
    optional(set(folder, "memory.memsw.limit_in_bytes", bytes))?;
    shrunk.or_else(|_| set(folder, "memory.limit_in_bytes", bytes))
}

fn optional(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The folder of a home's cgroups, below a base.
fn group(instance: &str) -> PathBuf {
    PathBuf::from(format!("beige-{instance}"))
}

fn places_here() -> Vec<Place> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (mountinfo, own) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
    places(&mountinfo, &own, geteuid().is_root())
}

/// Microseconds of processor time in a period; the kernel takes no less than
/// a thousand.
fn quota(cpus: f64) -> u64 {
    let micros = (cpus * CPU_PERIOD as f64).round();
    // A float that is out of bounds becomes the nearest bound.
    (micros as u64).max(1_000)
}

/// Whether this user may move its processes between folders below `base`:
/// they come from there, and the kernel asks for the folder above both.
fn may_move_from(base: &Path) -> bool {
    geteuid().is_root() || access(base.join("cgroup.procs"), Access::WRITE_OK).is_ok()
}

/// Hands controllers down to the folders below; each for itself, since one
/// that is refused would take the others with it.
fn enable(folder: &Path, controllers: &[Controller]) {
    for controller in controllers {
        // Refused where processes live in that folder; what then is missing
        // below shows when the bounds are set.
        let _ = set(folder, "cgroup.subtree_control", &format!("+{}", controller.name()));
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn set(folder: &Path, file: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(folder.join(file))?.write_all(value.as_bytes())
}

fn move_into(folder: &Path, process: u32) -> Result<()> {
    match set(folder, "cgroup.procs", &process.to_string()) {
        // It ended meanwhile: whoever waits for it sees that.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(()),
        other => other.during(
            Kind::Sandbox,
            format!("put process {process} under the limits of {}", folder.display()),
        ),
    }
}

/// The number after a name in a file of lines `name number`.
fn counted(text: &str, name: &str) -> u64 {
    let mut pairs = text.lines().filter_map(|it| it.split_once(' '));
    pairs.find(|(it, _)| *it == name).and_then(|(_, it)| it.parse().ok()).unwrap_or(0)
}
