//! What an engine's client says of a world's containers, and what the host's
//! process list shows of a sandbox.

use std::fs;
use std::process::Command;

use super::{Runtime, World, runtimes};

/// Runs the client of an engine; its answer, trimmed.
#[track_caller]
pub(crate) fn ask(engine: &str, arguments: &[&str]) -> String {
    let output = Command::new(engine).args(arguments).output().expect("the client runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{engine} {arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Ids of the host's processes whose arguments hold that text.
pub(crate) fn processes_with(text: &str) -> Vec<u32> {
    let line = |id: &u32| fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let holds = |line: Vec<u8>| line.windows(text.len()).any(|it| it == text.as_bytes());
    processes().filter(|it| holds(line(it))).collect()
}

/// Ids of a process's children.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let line = format!("PPid:\t{parent}\n");
    // What has ended meanwhile has no status, and is no child.
    let status = |id: &u32| fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    processes().filter(|it| status(it).contains(&line)).collect()
}

/// Ids of the host's processes.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("a process list").flatten();
    entries.filter_map(|it| it.file_name().to_str()?.parse().ok())
}

impl World {
    /// A world on that runtime, if it is here; where it must be, `runtimes`
    /// fails.
    pub(crate) fn on(runtime: Runtime) -> Option<Self> {
        runtimes().contains(&runtime).then(|| Self::new(runtime))
    }

    /// What the client of this world's engine says.
    #[track_caller]
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        ask(self.runtime.name(), arguments)
    }

    /// `running`, `exited`, `paused`, ….
    #[track_caller]
    pub(crate) fn state_of(&self, container: &str) -> String {
        self.ask(&["inspect", "--format", "{{.State.Status}}", container])
    }

    /// Ids of all containers of this world's home, running or not.
    #[track_caller]
    pub(crate) fn containers(&self) -> Vec<String> {
        let home = self.home();
        let filter = format!("label=beige.home={}", home.display());
        let ids = self.ask(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
        ids.lines().map(str::to_owned).collect()
    }

    /// Id of the one container of this world's home.
    #[track_caller]
    pub(crate) fn container(&self) -> String {
        let mut ids = self.containers();
        assert_eq!(ids.len(), 1, "{ids:?}");
        ids.remove(0)
    }
}
