//! What a gateway does with its sandboxes once it answers, on a thread of its
//! own: takes over and starts those there are, and looks whether the others
//! could be made, so that an agent that cannot work is told before its first
//! call fails. Those that were never used are made by their first call.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Engine, runtime};
use crate::config::by_name;
use crate::error::{Error, Result};
use crate::sandbox::{Runtime, bubblewrap, containers};
use crate::tool::Equipment;
use crate::worker::Worker;

/// Sandboxes that cannot be used, by agent.
#[derive(Debug, Default)]
pub(super) struct Troubles(Mutex<BTreeMap<String, Trouble>>);

/// Why one cannot be used.
#[derive(Clone, Debug)]
struct Trouble {
    text: String,
    /// Whether it was there and did not start: only a start cures that.
    is_made: bool,
}

/// Looks whether runtimes work here, once each.
#[derive(Default)]
struct Look {
    docker: OnceCell<Result<()>>,
    podman: OnceCell<Result<()>>,
    bubblewrap: OnceCell<Result<()>>,
}

impl Troubles {
    fn add(&self, agent: &str, is_made: bool, error: &Error) {
        let text = format!("the sandbox of `{agent}` cannot be used: {error}");
        log::warn!("{text}");
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(agent.to_owned(), Trouble { text, is_made });
    }

    /// Those that nothing has cured since: agent and sentence.
    pub(super) fn told(&self, equipment: &BTreeMap<String, Equipment>) -> BTreeMap<String, String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let look = Look::default();
        let is_cured = |(agent, trouble): &(String, Trouble)| {
            equipment.get(agent).is_some_and(|it| {
                (!trouble.is_made || it.sandbox.seems_up()) && look.can_be_made(it).is_ok()
            })
        };
        let lasting = all.into_iter().filter(|it| !is_cured(it));
        by_name(lasting.map(|(agent, trouble)| (agent, trouble.text)))
    }
}

/// Starts the thread; dropping what it gives waits for its end.
pub(super) fn start(engine: &Arc<Engine>) -> Result<Worker> {
    let engine = Arc::clone(engine);
    Worker::spawn("sandbox-wake", move || wake_all(&engine))
}

fn wake_all(engine: &Engine) {
    let is_bubblewrap = |it: &Equipment| it.sandbox.runtime() == Runtime::Bubblewrap.name();
    let equipment = engine.toolbox.equipment().iter();
    let of_bubblewrap: Vec<String> =
        equipment.filter(|(_, it)| is_bubblewrap(it)).map(|(name, _)| name.clone()).collect();
    let known = runtime::reap(&engine.config, &of_bubblewrap).unwrap_or_else(|error| {
        log::warn!("look for the sandboxes there are: {error}");
        Vec::new()
    });
    let look = Look::default();
    for (name, equipment) in engine.toolbox.equipment() {
        if engine.running.is_draining() {
            return;
        }
        let is_made = known.contains(name);
        let woken = match is_made {
            true => equipment.sandbox.wake(),
            false => look.can_be_made(equipment).map(|()| true),
        };
        match woken {
            // A resident that has dialled knows so that somebody is here.
            Ok(true) => equipment.sandbox.take_link(),
            // Who is in it has brought it up as wanted, or is about to.
            Ok(false) => log::debug!("the sandbox of `{name}` is in use, so no look at it is due"),
            Err(error) => engine.troubles.add(name, is_made, &error),
        }
    }
}

impl Look {
    /// Whether a sandbox's runtime works here and has what it starts from.
    fn can_be_made(&self, equipment: &Equipment) -> Result<()> {
        let runtime = equipment.sandbox.runtime();
        let (engine, looked) = if runtime == Runtime::Bubblewrap.name() {
            return again(self.bubblewrap.get_or_init(bubblewrap::available));
        } else if runtime == Runtime::Podman.name() {
            (containers::Engine::podman(), &self.podman)
        } else {
            (containers::Engine::Docker, &self.docker)
        };
        again(looked.get_or_init(|| engine.available()))?;
        // The default image is built by the first call that needs it.
        runtime::has_image(engine, &equipment.agent.sandbox.image)
    }
}

fn again(looked: &Result<()>) -> Result<()> {
    match looked {
        Ok(()) => Ok(()),
        Err(error) => Err(Error::new(error.kind(), error.to_string())),
    }
}
