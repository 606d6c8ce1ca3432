//! What of this host a bubblewrap sandbox is made from, looked up once; and
//! whether this host lets one be made at all. Where it does not, the error
//! says what is missing and what a person can do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::geteuid;

use super::argv;
use crate::error::{Error, Kind, Result};
use crate::sandbox::oneshot;

/// The oldest bwrap with `--disable-userns` and `--size`.
const LEAST_VERSION: (u32, u32) = (0, 8);

/// How long a trial may take.
const TRIAL_LIMIT: Duration = Duration::from_secs(10);

/// Lets bwrap make user namespaces where AppArmor restricts them.
const APPARMOR_PROFILE: &str = include_str!("../../../sandbox/apparmor-bwrap");

/// Folders of programs that are links into /usr where the two are merged.
const PROGRAM_FOLDERS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Of /etc: what programs of /usr need, and nothing that names users, keys or
/// other hosts.
const PUBLIC_FILES: [&str; 9] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// How the host finds other hosts; shown only to an open network.
const RESOLVER_FILES: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/gai.conf"];

/// The parts of this host: a value, so that the argv is a pure function of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLayout {
    /// The bwrap program.
    pub bwrap: PathBuf,
    /// The setpriv program, needed and present only where the gateway is root.
    pub setpriv: Option<PathBuf>,
    /// Who the gateway is.
    pub uid: u32,
    /// Mounted read-only where they are: /usr, certificates.
    pub shown: Vec<PathBuf>,
    /// Mounted read-only where they are if the network is open.
    pub resolver: Vec<PathBuf>,
    /// Links as they are on the host, name and target: `/bin` to `usr/bin`.
    pub links: Vec<(PathBuf, PathBuf)>,
}

impl HostLayout {
    /// Looks at the host's files; starts nothing. An error says what to
    /// install.
    pub fn look() -> Result<Self> {
        let uid = geteuid().as_raw();
        let mut layout = Self {
            bwrap: program("bwrap").ok_or_else(|| absent("is not installed"))?,
            setpriv: if uid == 0 { Some(setpriv()?) } else { None },
            uid,
            shown: vec![PathBuf::from("/usr")],
            resolver: existing(&RESOLVER_FILES),
            links: Vec::new(),
        };
        for folder in PROGRAM_FOLDERS.map(PathBuf::from) {
            match fs::read_link(&folder) {
                Ok(target) => layout.links.push((folder, target)),
                Err(_) if folder.is_dir() => layout.shown.push(folder),
                Err(_) => {}
            }
        }
        layout.shown.extend(existing(&PUBLIC_FILES));
        Ok(layout)
    }

    /// Tries the real walls around nothing. An error says what stands in the
    /// way and how it is removed.
    pub fn check(&self) -> Result<()> {
        let mut version = Command::new(&self.bwrap);
        version.arg("--version").env_clear();
        judge_version(&oneshot::run(version, TRIAL_LIMIT)?.stdout)?;
        let trial = oneshot::run(argv::trial(self), TRIAL_LIMIT)?;
        if trial.status.success() {
            return Ok(());
        }
        Err(Error::new(Kind::Sandbox, Obstacles::look().explain(&trial.stderr)))
    }
}

fn existing(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).filter(|it| it.exists()).collect()
}

/// A program by name, from PATH and the usual places.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/local/bin", "/bin"].map(PathBuf::from);
    // A relative entry would mean whatever folder beige was started in.
    let folders = std::env::split_paths(&path).filter(|it| it.is_absolute()).chain(usual);
    folders.map(|it| it.join(name)).find(|it| it.is_file())
}

fn setpriv() -> Result<PathBuf> {
    program("setpriv").ok_or_else(|| {
        Error::new(
            Kind::Sandbox,
            "a gateway that runs as root needs `setpriv` (package util-linux) to start a \
             bubblewrap sandbox; install it, or run the gateway as an ordinary user",
        )
    })
}

fn absent(why: &str) -> Error {
    let (major, minor) = LEAST_VERSION;
    Error::new(
        Kind::Sandbox,
        format!(
            "bubblewrap {why}; beige needs {major}.{minor} or newer (package `bubblewrap` of \
             Debian 12, Ubuntu 24.04 and later)"
        ),
    )
}

/// `bubblewrap 0.8.0`.
fn judge_version(output: &str) -> Result<()> {
    let version = output.trim().strip_prefix("bubblewrap ").unwrap_or_default();
    let mut numbers = version.split('.').map(|it| it.parse::<u32>().ok());
    let found = numbers.next().flatten().zip(numbers.next().flatten());
    match found {
        Some(found) if found >= LEAST_VERSION => Ok(()),
        Some(_) => Err(absent(&format!("{version} is too old"))),
        None => Err(absent("does not say its version")),
    }
}

/// What a host may forbid ordinary processes.
#[derive(Debug, Default)]
struct Obstacles {
    apparmor: bool,
    no_namespaces: bool,
    no_unprivileged: bool,
}

impl Obstacles {
    fn look() -> Self {
        Self {
            apparmor: sysctl_is("kernel/apparmor_restrict_unprivileged_userns", "1"),
            no_namespaces: sysctl_is("user/max_user_namespaces", "0"),
            no_unprivileged: sysctl_is("kernel/unprivileged_userns_clone", "0"),
        }
    }

    fn explain(&self, complaint: &str) -> String {
        let complaint = complaint.trim();
        let start = format!("bubblewrap cannot make a sandbox on this host ({complaint})");
        if self.no_namespaces {
            return format!("{start}: run `sysctl -w user.max_user_namespaces=15000` as root");
        }
        if self.no_unprivileged {
            return format!("{start}: run `sysctl -w kernel.unprivileged_userns_clone=1` as root");
        }
        if self.apparmor {
            return format!(
                "{start}: AppArmor restricts user namespaces \
                 (kernel.apparmor_restrict_unprivileged_userns = 1); install this profile as \
                 /etc/apparmor.d/bwrap and load it:\n\n{APPARMOR_PROFILE}"
            );
        }
        format!(
            "{start}: user namespaces, mounting or /proc are restricted here, as in a container \
             without privileges; install Docker, or run beige on the host itself"
        )
    }
}

fn sysctl_is(name: &str, value: &str) -> bool {
    fs::read_to_string(Path::new("/proc/sys").join(name)).is_ok_and(|it| it.trim() == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_version(output: &str, want: Option<&str>) {
        let text = judge_version(output).err().map(|it| it.to_string());
        match (text, want) {
            (None, None) => {}
            (Some(text), Some(want)) => assert!(text.contains(want), "{text}"),
            (text, _) => assert_eq!(text.as_deref(), want),
        }
    }

    #[test]
    fn an_older_bwrap_counts_as_absent_and_both_versions_are_named() {
        check_version("bubblewrap 0.8.0\n", None);
        check_version("bubblewrap 0.11.0\n", None);
        check_version("bubblewrap 1.0\n", None);
        check_version("bubblewrap 0.4.1\n", Some("0.4.1 is too old; beige needs 0.8 or newer"));
        check_version("", Some("does not say its version; beige needs 0.8"));
    }

    #[track_caller]
    fn check_cure(obstacles: &Obstacles, want: &str) {
        let text = obstacles.explain("No permission");
        assert!(text.contains("No permission") && text.contains(want), "{text}");
    }

    #[test]
    fn each_obstacle_is_named_with_its_cure() {
        let none = Obstacles::default;
        check_cure(&Obstacles { apparmor: true, ..none() }, "profile bwrap /usr/bin/bwrap");
        check_cure(&Obstacles { no_namespaces: true, ..none() }, "max_user_namespaces=15000");
        check_cure(&Obstacles { no_unprivileged: true, ..none() }, "userns_clone=1");
        check_cure(&none(), "install Docker");
    }
}
