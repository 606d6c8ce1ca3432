//! What the topics share: a world (a home, a configuration, the binary), the
//! runtimes that are here, a plain HTTP client, and a model to ask.

mod containers;
mod conversation;
mod http;
mod model;
mod process;
mod stream;
mod world;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::OnceLock;

pub(crate) use containers::{ask, children_of, processes_with};
pub(crate) use http::{Reply, request};
pub(crate) use model::{
    Answer, Asked, Dialect, KEY, ModelServer, Part, Said, Stop, call_item, calls, chunk,
    google_end, google_piece, google_signature, message_item, reasoning_item, runs, says,
    says_and_calls, says_in,
};
pub(crate) use process::{end, memory, threads, wait_at_rest};
pub(crate) use stream::Stream;
pub(crate) use world::{
    Finished, World, is_alive, peak_memory, provider_at, provider_in, read_until, signal,
    wait_until,
};

/// A runtime that every sandbox test is run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    Docker,
    Podman,
    Bubblewrap,
}

impl Runtime {
    /// All that there are, the cheapest last.
    pub(crate) const ALL: [Self; 3] = [Self::Docker, Self::Podman, Self::Bubblewrap];

    /// Whether its sandboxes are containers, which stay between calls.
    pub(crate) fn makes_containers(self) -> bool {
        self != Self::Bubblewrap
    }

    /// The name in configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Bubblewrap => "bubblewrap",
        }
    }
}

/// The runtimes of this machine. CI has all, or the test fails.
pub(crate) fn runtimes() -> &'static [Runtime] {
    static FOUND: OnceLock<Vec<Runtime>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let found: Vec<Runtime> = Runtime::ALL
            .into_iter()
            .filter(|it| match it {
                Runtime::Docker => answers("docker", &["version"]),
                Runtime::Podman => answers("podman", &["info"]),
                Runtime::Bubblewrap => answers("bwrap", &["--version"]),
            })
            .collect();
        if std::env::var_os("CI").is_some() {
            assert_eq!(found, Runtime::ALL, "CI must have all runtimes");
        }
        assert!(!found.is_empty(), "no runtime is here: `make demo` says how");
        found
    })
}

/// User and group of an agent: those of who runs the gateway, or 10000 where
/// that is root.
pub(crate) fn agent_ids() -> (u32, u32) {
    let own = fs::metadata("/proc/self").expect("a process list");
    if own.uid() == 0 { (10_000, 10_000) } else { (own.uid(), own.gid()) }
}

/// A world on the cheapest runtime, for what does not depend on it.
pub(crate) fn some_world() -> World {
    World::new(*runtimes().last().expect("a runtime"))
}

/// Runs a check in a world of its own on each runtime.
#[track_caller]
pub(crate) fn on_each_runtime(check: impl Fn(&World)) {
    for runtime in runtimes() {
        eprintln!("on {}", runtime.name());
        check(&World::new(*runtime));
    }
}

/// The same on one engine of containers and on bubblewrap, for what no two
/// engines differ in.
#[track_caller]
pub(crate) fn on_either_kind(check: impl Fn(&World)) {
    let here = runtimes();
    let engine = here.iter().find(|it| it.makes_containers());
    let bubblewrap = here.iter().find(|it| !it.makes_containers());
    for runtime in engine.into_iter().chain(bubblewrap) {
        eprintln!("on {}", runtime.name());
        check(&World::new(*runtime));
    }
}

/// On each runtime, in a world whose gateway runs and in one without.
#[track_caller]
pub(crate) fn with_and_without_gateway(check: impl Fn(&World)) {
    on_each_runtime(|world| {
        eprintln!("without a gateway");
        check(world);
        eprintln!("with a gateway");
        world.start_gateway();
        check(world);
    });
}

fn answers(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|it| it.status.success())
}
