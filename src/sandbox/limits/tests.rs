//! What is written into a cgroup, on folders that stand in for the kernel's.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const BOUNDS: Bounds = Bounds { memory_bytes: 4096, pids: 7, cpus: Some(1.5) };

/// A hierarchy of plain files; our folder in it has those given.
struct Scratch(PathBuf);

impl Scratch {
    fn new(files: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("beige-limits-{}-{count}", std::process::id());
        let base = std::env::temp_dir().join(name);
        fs::create_dir_all(base.join("beige-i/a")).unwrap();
        fs::write(base.join("cgroup.procs"), "").unwrap();
        for file in files {
            fs::write(base.join("beige-i/a").join(file), "").unwrap();
        }
        Self(base)
    }

    fn cgroup(&self, version: Version) -> Cgroup {
        let (controllers, bases) = (Controller::ALL.to_vec(), vec![self.0.clone()]);
        Cgroup {
            bounds: BOUNDS,
            name: PathBuf::from("beige-i/a"),
            places: vec![Place { version, controllers, bases }],
            settled: OnceLock::new(),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes the cgroup over those files; compares what stands in them then, and
/// what is left to tool-client.
#[track_caller]
fn check(version: Version, want: &[(&str, &str)], left: InnerLimits) {
    let files: Vec<_> = want.iter().map(|(file, _)| *file).collect();
    let scratch = Scratch::new(&files);
    let cgroup = scratch.cgroup(version);
    cgroup.make();
    for (file, want) in want {
        let got = fs::read_to_string(scratch.0.join("beige-i/a").join(file)).unwrap();
        assert_eq!(&got, want, "{file}");
    }
    assert_eq!(cgroup.inner_limits(), left);
}

const ALL_LEFT: InnerLimits = InnerLimits { processes: Some(7), data_bytes: Some(4096) };

#[test]
fn the_unified_form_is_written() {
    check(
        Version::V2,
        &[
            ("memory.max", "4096"),
            ("memory.swap.max", "0"),
            ("pids.max", "7"),
            ("cpu.max", "150000 100000"),
        ],
        InnerLimits::default(),
    );
}

#[test]
fn the_first_form_is_written() {
    check(
        Version::V1,
        &[
            ("memory.limit_in_bytes", "4096"),
            ("memory.memsw.limit_in_bytes", "4096"),
            ("pids.max", "7"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "150000"),
        ],
        InnerLimits::default(),
    );
}

#[test]
fn what_a_cgroup_does_not_give_is_left_to_the_client() {
    check(Version::V2, &[("memory.max", "4096")], InnerLimits { data_bytes: None, ..ALL_LEFT });
    check(Version::V2, &[("pids.max", "7")], InnerLimits { processes: None, ..ALL_LEFT });
    check(Version::V1, &[], ALL_LEFT);
}

#[test]
fn folders_that_give_nothing_are_not_left_behind() {
    let scratch = Scratch::new(&[]);
    let cgroup = scratch.cgroup(Version::V2);
    cgroup.admit(1).unwrap();
    assert!(!scratch.0.join("beige-i").exists());
    assert!(scratch.0.exists());
}

#[test]
fn what_is_in_force_is_told_for_each() {
    let scratch = Scratch::new(&["pids.max"]);
    let text = scratch.cgroup(Version::V1).describe();
    let folder = scratch.0.join("beige-i/a");
    assert_eq!(
        text,
        format!(
            "memory: RLIMIT_DATA, each process for itself (no cgroup); pids: cgroup {}; \
             cpu: not limited (no cgroup)",
            folder.display()
        )
    );
}

#[test]
fn kills_for_want_of_memory_are_counted() {
    assert_eq!(counted("low 1\noom 3\noom_kill 2\n", "oom_kill"), 2);
    assert_eq!(counted("oom_kill_disable 1\nunder_oom 0\noom_kill 9", "oom_kill"), 9);
    assert_eq!(counted("", "oom_kill"), 0);
}

#[test]
fn a_share_of_a_processor_is_never_too_small_for_the_kernel() {
    assert_eq!(
        (quota(2.0), quota(0.5), quota(0.000_1), quota(-1.0)),
        (200_000, 50_000, 1000, 1000)
    );
}
