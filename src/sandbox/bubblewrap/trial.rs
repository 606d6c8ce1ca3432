//! Whether this host lets a bubblewrap sandbox be made at all: the version,
//! and the real walls around nothing. Where it does not, the error says what
//! stands in the way and how it is removed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::argv;
use super::host::{HostLayout, LEAST_VERSION, absent};
use crate::error::{Error, Kind, Result};
use crate::sandbox::oneshot;

/// How long a trial may take.
const TRIAL_LIMIT: Duration = Duration::from_secs(10);

/// How often it is tried.
const TRIALS: usize = 3;

/// Lets bwrap make user namespaces where AppArmor restricts them.
const APPARMOR_PROFILE: &str = include_str!("../../../sandbox/apparmor-bwrap");

/// Tries it; answers with the version. Starts two short programs.
pub(super) fn check(host: &HostLayout) -> Result<String> {
    let mut version = Command::new(&host.bwrap);
    version.arg("--version").env_clear();
    let version = oneshot::run(version, TRIAL_LIMIT)?.stdout;
    judge_version(&version)?;
    let mut complaint = String::new();
    // A mount of somebody else that goes away meanwhile fails a trial; it does
    // not fail three.
    for _ in 0..TRIALS {
        let trial = oneshot::run(argv::trial(host), TRIAL_LIMIT)?;
        if trial.status.success() {
            return Ok(version.trim_start_matches("bubblewrap ").to_owned());
        }
        complaint = trial.stderr;
    }
    Err(Error::new(Kind::Sandbox, Obstacles::look().explain(&complaint)))
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
