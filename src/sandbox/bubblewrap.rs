//! Sandboxes by bubblewrap: a namespace a call, made in a few milliseconds
//! and gone with it, with the host's /usr as its image. Nothing runs between
//! calls; what stays is the agent's cgroup. It refuses to be uid 0, and to be
//! anybody but the gateway's own user where the gateway is not root.

mod argv;
mod host;
#[cfg(test)]
mod tests;
mod trial;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

pub use host::HostLayout;

use super::limits::{self, Bounds, Cgroup, Foreseen};
use super::{InnerLimits, Role, Runtime, Sandbox, Spec};
use crate::config::MountConfig;
use crate::error::{Error, Kind, Result};

/// The sandbox of one agent.
#[derive(Debug)]
pub struct Bubblewrap {
    spec: Spec,
    host: HostLayout,
    cgroup: Cgroup,
    /// Set once the host was seen to let a sandbox be made.
    checked: OnceLock<()>,
    /// Processes killed for want of memory before the last call was admitted.
    kills_before: AtomicU64,
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

/// The agents of a home for which this host still bounds something.
pub fn agents(instance: &str) -> Vec<String> {
    limits::left_of(instance).into_iter().map(|it| it.agent).collect()
}

/// Ends and removes what there is of one agent of one home.
pub fn remove_agent(instance: &str, agent: &str) -> Result<()> {
    let mut left = limits::left_of(instance).into_iter().filter(|it| it.agent == agent);
    left.try_for_each(|it| it.remove())
}

/// Removes what there is of agents that are not among those that are to have
/// one, unless a call is in it.
pub fn reap(instance: &str, known_agents: &[String]) {
    let left = limits::left_of(instance).into_iter();
    left.filter(|it| !known_agents.contains(&it.agent)).for_each(|it| it.remove_if_idle());
}

impl Bubblewrap {
    /// The sandbox that the spec wants on that host; nothing is started.
    pub fn new(spec: Spec, host: HostLayout) -> Result<Self> {
        check_user(&spec, &host)?;
        check_mounts(&spec)?;
        let bounds = Bounds { memory_bytes: spec.memory_bytes, pids: spec.pids, cpus: spec.cpus };
        let cgroup = Cgroup::new(&spec.instance, &spec.agent, bounds);
        Ok(Self { spec, host, cgroup, checked: OnceLock::new(), kills_before: AtomicU64::new(0) })
    }

    /// Which limits are in force and by what, for a person.
    pub fn describe_limits(&self) -> String {
        self.cgroup.describe()
    }

    /// Which limits will be in force; makes nothing for it.
    pub fn foresee_limits(&self) -> Foreseen {
        self.cgroup.foresee()
    }
}

impl Sandbox for Bubblewrap {
    fn runtime(&self) -> Runtime {
        Runtime::Bubblewrap
    }

    /// There is nothing to start; where the host does not let it be made, the
    /// call does not begin and [`Sandbox::up`] says why.
    fn seems_up(&self) -> bool {
        true
    }

    /// There is nothing in it that could be disturbed.
    fn is_up(&self) -> Result<bool> {
        self.up().map(|()| true)
    }

    fn up(&self) -> Result<()> {
        if self.checked.get().is_none() {
            trial::check(&self.host)?;
            // Another thread may have been faster; it saw the same.
            let _ = self.checked.set(());
        }
        self.cgroup.make();
        Ok(())
    }

    fn command(&self, role: Role) -> Command {
        argv::command(&self.spec, &self.host, role)
    }

    fn admit(&self, child: u32) -> Result<()> {
        self.cgroup.admit(child)?;
        self.kills_before.store(self.cgroup.out_of_memory_kills(), Ordering::Relaxed);
        Ok(())
    }

    fn inner_limits(&self) -> InnerLimits {
        self.cgroup.inner_limits()
    }

    fn keeps_background(&self) -> bool {
        false
    }

    fn fate(&self) -> Option<String> {
        let killed = self.cgroup.out_of_memory_kills() > self.kills_before.load(Ordering::Relaxed);
        killed.then(|| format!("out of memory: its limit is {} bytes", self.spec.memory_bytes))
    }

    fn stop(&self) -> Result<()> {
        self.cgroup.kill()
    }

    fn remove(&self) -> Result<()> {
        self.cgroup.remove()
    }
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
