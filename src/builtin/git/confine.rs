//! The box in which git runs, as an argv of bubblewrap: pure. It shows the
//! host's /usr, certificates, and what it is told to show, and never runs as
//! root. There are three: one for the workspace, without a network; one that
//! speaks with a remote, in which the workspace can only be read and nothing of
//! it is configuration; and one for the keys, which sees neither.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sandbox::bubblewrap::HostLayout;

/// Where what is ours lies inside.
pub(super) const OURS: &str = "/run/beige";

/// The workspace inside.
pub(super) const WORKSPACE: &str = "/workspace";

/// Where the outer bwrap of a root gateway puts what the inner one mounts.
const REACHABLE: &str = "/mnt";

/// Bytes of memory of a process of git.
const MEMORY: u64 = 4 << 30;

const WALLS: [&str; 10] = [
    "--new-session",
    "--unshare-user",
    "--disable-userns",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
];

/// A folder or file of the host as the box sees it.
#[derive(Clone, Debug)]
pub(super) struct Bind {
    pub(super) source: PathBuf,
    pub(super) inside: String,
    pub(super) writable: bool,
}

/// One box and what runs in it.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) host: &'a HostLayout,
    /// Who it runs as: the workspace's owner.
    pub(super) owner: (u32, u32),
    pub(super) binds: Vec<Bind>,
    /// Whether other hosts are reached.
    pub(super) network: bool,
    /// Where standard input is shown as a file, instead of being one's input.
    pub(super) input_at: Option<&'a str>,
    /// Where it stands inside.
    pub(super) folder: String,
    pub(super) env: Vec<(String, String)>,
}

impl Cell<'_> {
    /// The command that runs these words in it.
    pub(super) fn command(&self, program: &[String]) -> Command {
        let mut binds = self.binds.clone();
        let mut words = Vec::new();
        if let Some(setpriv) = &self.host.setpriv {
            self.outer(&mut words, &mut binds, setpriv);
        }
        self.inner(&mut words, &binds);
        words.extend(program.iter().map(OsString::from));
        let mut command = Command::new(&self.host.bwrap);
        let env = self.env.iter().map(|(name, value)| (name, value));
        command.args(words).env_clear().envs(env).current_dir("/");
        command
    }

    /// Makes every source reachable for one who may not walk to it, and gives
    /// up root for good.
    fn outer(&self, words: &mut Vec<OsString>, binds: &mut [Bind], setpriv: &Path) {
        extend(words, &["--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/"]);
        extend(words, &["--tmpfs", REACHABLE]);
        for (number, bind) in binds.iter_mut().enumerate() {
            let reachable = format!("{REACHABLE}/{number}");
            push(words, &Bind { inside: reachable.clone(), ..bind.clone() });
            bind.source = reachable.into();
        }
        words.push("--".into());
        words.push(setpriv.into());
        let (uid, gid) = self.owner;
        extend(words, &[&format!("--reuid={uid}"), &format!("--regid={gid}")]);
        extend(words, &["--clear-groups", "--no-new-privs", "--inh-caps=-all"]);
        extend(words, &["--bounding-set=-all", "--"]);
        words.push(self.host.bwrap.clone().into());
    }

    fn inner(&self, words: &mut Vec<OsString>, binds: &[Bind]) {
        extend(words, &WALLS);
        if !self.network {
            extend(words, &["--unshare-net"]);
        }
        let resolver = self.host.resolver.iter().filter(|_| self.network);
        for path in self.host.shown.iter().chain(resolver) {
            words.extend(["--ro-bind".into(), path.into(), path.into()]);
        }
        for (name, target) in &self.host.links {
            words.extend(["--symlink".into(), target.into(), name.into()]);
        }
        extend(words, &["--perms", "1777", "--size", "268435456", "--tmpfs", "/tmp"]);
        binds.iter().for_each(|it| push(words, it));
        if let Some(at) = self.input_at {
            extend(words, &["--perms", "0400", "--ro-bind-data", "0", at]);
        }
        extend(words, &["--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]);
        extend(
            words,
            &["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", &self.folder, "--"],
        );
        // Of util-linux, as setpriv is; a host without it has no such bound.
        if Path::new(LIMITS).exists() {
            extend(words, &[LIMITS, &format!("--data={MEMORY}"), "--core=0", "--nproc=1024"]);
        }
    }
}

/// Sets limits and becomes another program.
const LIMITS: &str = "/usr/bin/prlimit";

fn push(words: &mut Vec<OsString>, bind: &Bind) {
    words.push(if bind.writable { "--bind" } else { "--ro-bind" }.into());
    words.extend([bind.source.clone().into(), OsString::from(&bind.inside)]);
}

fn extend(words: &mut Vec<OsString>, more: &[&str]) {
    words.extend(more.iter().map(OsString::from));
}
