//! Sandboxes by bubblewrap, with the host's /usr as their image. A sandbox is
//! there as long as its first process, the resident, which is started here and
//! lives on when the starter ends; the agent's state file says which it is, and
//! whoever comes next takes it over. Where it cannot be seen, each call has a
//! sandbox of its own. It refuses to be uid 0, and to be anybody but the
//! gateway's own user where the gateway is not root.

mod argv;
mod birth;
mod end;
mod host;
mod left;
#[cfg(test)]
mod tests;
mod trial;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use end::adopt_children;
pub use host::HostLayout;
pub use left::{Listed, agents, is_known, list, lives, make_way, reap, remove_agent};

use super::limits::{Bounds, Cgroup, Foreseen};
use super::state::{Known, State};
use super::{InnerLimits, Resident, Role, Runtime, Sandbox, Spec};
use crate::config::{Home, MountConfig};
use crate::error::{Error, Kind, Result};
use birth::{Failure, Newborn};

/// How often a start is tried: a mount of somebody else that goes away
/// meanwhile fails one; it does not fail three.
const STARTS: usize = 3;

/// How long the end of a sandbox may take to be seen, once a call in it broke.
const ENDS_WITHIN: Duration = Duration::from_millis(500);

/// The sandbox of one agent.
#[derive(Debug)]
pub struct Bubblewrap {
    spec: Spec,
    host: HostLayout,
    cgroup: Cgroup,
    state: State,
    /// The resident that was last seen to be ours and under our limits.
    trusted: Mutex<Option<Resident>>,
    /// Processes killed for want of memory before the last call.
    kills_before: AtomicU64,
}

/// What is seen of a resident that a state file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// It lives, and is this agent's.
    is_ours: bool,
    /// It is under all limits that this gateway can hold.
    is_bound: bool,
}

/// What is to be done for a sandbox as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is there.
    Keep,
    /// This one must end first.
    Replace(Resident),
    /// There is none.
    Make,
}

/// Whether this host can make bubblewrap sandboxes at all; an error says what
/// to install or to allow. Starts two short programs.
pub fn available() -> Result<()> {
    try_out().map(drop)
}

/// The same; answers with the version of bubblewrap.
pub fn try_out() -> Result<String> {
    trial::check(&HostLayout::look()?)
}

impl Bubblewrap {
    /// The sandbox that the spec wants on that host; nothing is started.
    pub fn new(spec: Spec, host: HostLayout) -> Result<Self> {
        check_user(&spec, &host)?;
        check_mounts(&spec)?;
        let bounds = Bounds { memory_bytes: spec.memory_bytes, pids: spec.pids, cpus: spec.cpus };
        let cgroup = Cgroup::new(&spec.instance, &spec.agent, bounds);
        let state = state_of(&Home::new(&spec.home), &spec.agent);
        let (trusted, kills_before) = (Mutex::default(), AtomicU64::new(0));
        Ok(Self { spec, host, cgroup, state, trusted, kills_before })
    }

    /// Which limits are in force and by what, for a person.
    pub fn describe_limits(&self) -> String {
        self.cgroup.describe()
    }

    /// Which limits will be in force; makes nothing for it.
    pub fn foresee_limits(&self) -> Foreseen {
        self.cgroup.foresee()
    }

    fn spec_hash(&self) -> String {
        argv::spec_hash(&self.spec, &self.host)
    }

    fn next_step(&self, spec_hash: &str) -> Step {
        decide(self.state.known().as_ref(), spec_hash, |it| Seen {
            is_ours: self.is_ours(it),
            is_bound: self.cgroup.holds(it.pid) && it.serves(),
        })
    }

    fn is_ours(&self, it: Resident) -> bool {
        end::is_ours(it, &self.spec.sockets, &self.spec.instance, &self.spec.agent)
    }

    /// Whether that one lives and is ours and bound. All but the first is
    /// looked at once: it stays so.
    fn is_trusted(&self, it: Resident) -> bool {
        if !it.serves() {
            end::reap_ended();
            return false;
        }
        let mut trusted = self.trusted.lock().unwrap_or_else(PoisonError::into_inner);
        if *trusted != Some(it) && self.is_ours(it) && self.cgroup.holds(it.pid) {
            *trusted = Some(it);
        }
        *trusted == Some(it)
    }

    /// Waits for one that was killed and is not gone: what is left of it still
    /// has the workspace, and nobody can tell any more whose it is.
    fn await_the_dying(&self) -> Result<()> {
        self.state.ending().filter(|it| it.lives()).map_or(Ok(()), end::await_end)
    }

    /// Makes it. In its limits before anybody is told of it, so that nothing
    /// ever runs outside of them.
    fn make(&self, spec_hash: &str) -> Result<()> {
        self.cgroup.make();
        let newborn = self.start()?;
        newborn.top().map_or(Ok(()), |it| self.cgroup.admit(it))?;
        let resident = newborn.resident();
        self.state.write(&Known {
            spec_hash: spec_hash.to_owned(),
            resident,
            ..Known::default()
        })?;
        let agent = &self.spec.agent;
        match resident {
            Some(it) => log::info!("made the bubblewrap sandbox of `{agent}`: process {}", it.pid),
            None => log::warn!(
                "the first process of the bubblewrap sandbox of `{agent}` is not seen in /proc, so \
                 each call gets a sandbox of its own"
            ),
        }
        newborn.keep();
        Ok(())
    }

    /// What the kernel kills from now on is a call's.
    fn note_kills(&self) {
        self.kills_before.store(self.cgroup.out_of_memory_kills(), Ordering::Relaxed);
    }

    fn start(&self) -> Result<Newborn> {
        let mut complaint = String::new();
        for _ in 0..STARTS {
            match Newborn::start(argv::resident(&self.spec, &self.host), &self.spec) {
                Ok(newborn) => return Ok(newborn),
                Err(Failure::Ended(said)) => complaint = said,
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        // What stands in the way of any sandbox is said with its cure.
        trial::check(&self.host)?;
        let what = format!("start the bubblewrap sandbox of `{}`: {complaint}", self.spec.agent);
        Err(Error::new(Kind::Sandbox, what))
    }
}

impl Sandbox for Bubblewrap {
    fn runtime(&self) -> Runtime {
        Runtime::Bubblewrap
    }

    fn seems_up(&self) -> bool {
        let wanted = self.state.known().filter(|it| it.spec_hash == self.spec_hash());
        // Without a resident each call makes its own.
        let seems_up = wanted.is_some_and(|it| it.resident.is_none_or(|it| self.is_trusted(it)));
        if seems_up {
            self.note_kills();
        }
        seems_up
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn is_up(&self) -> Result<bool> {
        Ok(self.next_step(&self.spec_hash()) == Step::Keep)
    }

    fn up(&self) -> Result<()> {
        self.await_the_dying()?;
        let spec_hash = self.spec_hash();
        match self.next_step(&spec_hash) {
            Step::Keep => {
                self.cgroup.make();
                return Ok(());
            }
            Step::Replace(resident) => {
                log::info!("the bubblewrap sandbox of `{}` is made anew", self.spec.agent);
                end::end(resident)?;
            }
            Step::Make => {}
        }
        // Also one of which nobody knows any more: never two on a workspace.
        self.cgroup.kill()?;
        if self.cgroup.is_absent() {
            end::end_all_that_show(&self.spec.sockets)?;
        }
        end::reap_ended();
        self.make(&spec_hash)
    }

    fn command(&self, role: Role) -> Command {
        argv::command(&self.spec, &self.host, role)
    }

    fn admit(&self, child: u32) -> Result<()> {
        self.cgroup.admit(child)?;
        self.note_kills();
        Ok(())
    }

    fn inner_limits(&self) -> InnerLimits {
        self.cgroup.inner_limits()
    }

    /// Not if it came in by [`Sandbox::command`], which makes a sandbox of its
    /// own for it.
    fn keeps_background(&self) -> bool {
        false
    }

    fn resident(&self) -> Option<Resident> {
        self.state.known()?.resident.filter(|it| self.is_trusted(*it))
    }

    fn resident_has_ended(&self) -> bool {
        self.state.ending().is_some()
    }

    /// A call sees its end before the process table does; a sandbox that still
    /// lives after a while has only lost the call.
    fn fate(&self) -> Option<String> {
        let resident = self.state.known().and_then(|it| it.resident);
        if resident.is_some_and(|it| !end::is_gone_within(it, ENDS_WITHIN)) {
            return None;
        }
        if self.cgroup.out_of_memory_kills() > self.kills_before.load(Ordering::Relaxed) {
            return Some(format!("out of memory: its limit is {} bytes", self.spec.memory_bytes));
        }
        resident.map(|_| "its first process has ended".to_owned())
    }

    fn stop(&self) -> Result<()> {
        left::stop(&self.state, |it| self.is_ours(it))?;
        self.cgroup.kill()
    }

    fn remove(&self) -> Result<()> {
        self.stop()?;
        self.cgroup.remove()
    }
}

/// What follows from what is known and seen. `see` is asked of a resident only.
fn decide(known: Option<&Known>, spec_hash: &str, see: impl FnOnce(Resident) -> Seen) -> Step {
    let Some(known) = known else { return Step::Make };
    let is_wanted = known.spec_hash == spec_hash;
    let Some(resident) = known.resident else {
        return if is_wanted { Step::Keep } else { Step::Make };
    };
    match see(resident) {
        Seen { is_ours: false, .. } => Step::Make,
        Seen { is_ours: true, is_bound: true } if is_wanted => Step::Keep,
        Seen { is_ours: true, .. } => Step::Replace(resident),
    }
}

/// What is known of an agent's sandbox, if it is bubblewrap's.
fn state_of(home: &Home, agent: &str) -> State {
    State::new(home.sandbox_state(agent), Runtime::Bubblewrap)
}

fn check_user(spec: &Spec, host: &HostLayout) -> Result<()> {
    let agent = &spec.agent;
    if spec.uid == 0 || spec.gid == 0 {
        return Err(Error::new(
            Kind::Config,
            format!(
                "agent `{agent}` would run as {}:{}: a bubblewrap sandbox never runs as user or \
                 group 0; run `chown -R 10000:10000 {}`, or take Docker",
                spec.uid,
                spec.gid,
                spec.workspace.display()
            ),
        ));
    }
    if host.uid != 0 && spec.uid != host.uid {
        return Err(Error::new(
            Kind::Config,
            format!(
                "agent `{agent}` is to run as user {}, but the gateway is user {} and bubblewrap \
                 gives it no other; leave `sandbox.user` out and own the workspace {}, run the \
                 gateway as root, or take Docker",
                spec.uid,
                host.uid,
                spec.workspace.display()
            ),
        ));
    }
    Ok(())
}

/// bwrap makes a mount point by its name, and below a folder that the agent
/// writes a name may be a link: a file made through one would be made on the
/// host. A folder right in the workspace is safe, since making a folder never
/// follows a link.
fn check_mounts(spec: &Spec) -> Result<()> {
    let writable = spec.mounts.iter().filter(|it| !it.read_only).map(|it| it.container.as_path());
    let unsafe_pair = writable.chain([Path::new("/workspace")]).find_map(|above| {
        let mount = spec.mounts.iter().find(|it| is_unsafe_below(above, it))?;
        Some((above, mount))
    });
    let Some((above, mount)) = unsafe_pair else { return Ok(()) };
    Err(Error::new(
        Kind::Config,
        format!(
            "agent `{}` mounts {} at {}, below {}, which the agent writes: bubblewrap cannot do \
             that safely; mount it at a place of its own, or take Docker",
            spec.agent,
            mount.host.display(),
            mount.container.display(),
            above.display()
        ),
    ))
}

fn is_unsafe_below(above: &Path, mount: &MountConfig) -> bool {
    let Ok(below) = mount.container.strip_prefix(above) else { return false };
    let safe = above == Path::new("/workspace") && below.iter().count() == 1 && mount.host.is_dir();
    below.iter().count() > 0 && !safe
}
