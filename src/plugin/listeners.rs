//! Who is asked for a hook, and how. A plugin whose manifest names a hook is
//! always asked for it: one that is down has failed. One that only says so in
//! its greeting is asked while it runs. What is in a manifest is known at load;
//! where no plugin is a server, nothing at all is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::connection::{Matter, Unanswered};
use super::hooks::{
    self, Halt, Hook, Listener, ModelSwitch, Occasion, Outcome, Prompted, ToolCalled, Unheard,
};
use super::host::{Host, Session};
use super::run::Asker;
use super::{Plugins, Registry};
use crate::config::OnHookFailure;
use crate::error::Kind;
use crate::worker::Cancel;

/// How long a plugin may take for a hook, its start included.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same once what it is told about was called off.
const LATE_PATIENCE: Duration = Duration::from_secs(1);

/// What a plugin is asked for.
pub(super) struct Hears {
    promised: Vec<Hook>,
    is_lenient: bool,
    /// Whether it was told that it asks for more than its manifest says.
    is_warned: AtomicBool,
}

/// A plugin that is asked for one hook.
struct Asked<'a> {
    host: &'a Host,
    is_lenient: bool,
    /// `None` if it has yet to be seen whether it runs.
    session: Option<Arc<Session>>,
    asker: Asker<'a>,
    patience: Duration,
}

impl Plugins {
    /// Asks about a person's message before a model sees it.
    pub fn pre_prompt(
        &self,
        message: String,
        at: &Occasion,
        cancel: &Cancel,
    ) -> Result<Prompted, Halt> {
        let asker = Asker { cancel, line: None };
        hooks::pre_prompt(self.asked(Hook::PrePrompt, asker), message, at)
    }

    /// Asks about a model's answer before a person sees it; an error if it is
    /// withheld.
    pub fn post_response(
        &self,
        response: String,
        at: &Occasion,
        cancel: &Cancel,
    ) -> Result<String, Halt> {
        let asker = Asker { cancel, line: None };
        hooks::post_response(self.asked(Hook::PostResponse, asker), response, at)
    }

    /// Asks whether a tool may run.
    pub fn pre_tool(&self, call: &ToolCalled<'_>, asker: Asker<'_>) -> Result<(), Halt> {
        hooks::pre_tool(self.asked(Hook::PreToolExec, asker), call)
    }

    /// Tells what came of a tool; what a plugin puts in its place, if one does.
    /// It is told also of what was called off, with less patience.
    pub fn post_tool(
        &self,
        call: &ToolCalled<'_>,
        result: impl FnOnce() -> Outcome,
        cancel: &Cancel,
    ) -> Option<Outcome> {
        if self.hosts.is_empty() {
            return None;
        }
        let (never, is_over) = (Cancel::never(), cancel.is_cancelled());
        let (cancel, patience) = if is_over { (&never, LATE_PATIENCE) } else { (cancel, PATIENCE) };
        let asked = self.asked(Hook::PostToolExec, Asker { cancel, line: None });
        let mut asked = asked.map(|it| Asked { patience, ..it }).peekable();
        asked.peek()?;
        let before = result();
        let after = hooks::post_tool(asked, call, before.clone());
        (after != before).then_some(after)
    }

    /// Tells that a session was made or removed; not the plugin `by` which it
    /// was done: that one knows, and may hear nothing until it has its answer.
    pub fn tell_of_session(&self, hook: Hook, at: &Occasion, by: Option<&str>, cancel: &Cancel) {
        let asked = self.asked(hook, Asker { cancel, line: None });
        hooks::tell(asked.filter(|it| by != Some(it.host.plugin())), hook, &at.event());
    }

    /// Tells that another model answers in a session; not the plugin `by` which
    /// it was chosen.
    pub fn tell_of_switch(
        &self,
        switch: &ModelSwitch<'_>,
        at: &Occasion,
        by: Option<&str>,
        cancel: &Cancel,
    ) {
        let hook = Hook::ModelSwitched;
        let asked = self.asked(hook, Asker { cancel, line: None });
        hooks::tell(asked.filter(|it| by != Some(it.host.plugin())), hook, &switch.event(at));
    }

    /// Tells that the gateway runs, once every plugin does or has failed.
    pub fn tell_of_start(&self, cancel: &Cancel) {
        self.hosts.iter().for_each(|it| it.settle(cancel));
        self.hosts.iter().for_each(|it| self.look_at_skills(it));
        if !cancel.is_cancelled() {
            let (hook, asker) = (Hook::GatewayStarted, Asker { cancel, line: None });
            hooks::tell(self.asked(hook, asker), hook, &json!({}));
        }
    }

    /// Tells that plugins are about to be stopped.
    pub fn tell_of_shutdown(&self) {
        let cancel = Cancel::never();
        let (hook, asker) = (Hook::GatewayShutdown, Asker { cancel: &cancel, line: None });
        hooks::tell(self.asked(hook, asker), hook, &json!({}));
    }

    /// Sandboxes may run already when a plugin names its skills, so that those
    /// that its manifest does not name are shown to nobody.
    fn look_at_skills(&self, host: &Host) {
        let Ok(Some(session)) = host.look() else { return };
        let known = |name: &String| {
            let mut skills = self.registry().skills();
            skills.any(|(plugin, it)| plugin == host.plugin() && it.name == *name)
        };
        let told = session.greeting.beige.iter().flat_map(|it| &it.skills);
        for name in told.filter(|it| !known(it)) {
            log::warn!(
                "plugin '{}' gives the skill `{name}`, which `provides.skills` of its plugin.json \
                 does not name: no agent is shown it",
                host.plugin()
            );
        }
    }

    /// Whether any of them is a server, which alone is asked.
    pub fn has_servers(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Whom to ask, in the order of the configuration.
    fn asked<'a>(&'a self, hook: Hook, asker: Asker<'a>) -> impl Iterator<Item = Asked<'a>> {
        let pairs = self.hosts.iter().zip(&self.hears);
        pairs.filter_map(move |(host, hears)| hears.asked(hook, host, asker))
    }
}

impl Hears {
    /// What the configuration says of that plugin.
    pub(super) fn of(registry: &Registry, plugin: &str) -> Self {
        let (promised, on_failure) = registry.hooks_of(plugin);
        Self {
            promised: promised.to_vec(),
            is_lenient: on_failure == OnHookFailure::Allow,
            is_warned: AtomicBool::new(false),
        }
    }

    fn asked<'a>(&self, hook: Hook, host: &'a Host, asker: Asker<'a>) -> Option<Asked<'a>> {
        let is_lenient = self.is_lenient;
        let asked = Asked { host, is_lenient, session: None, asker, patience: PATIENCE };
        if self.promised.contains(&hook) {
            return Some(asked);
        }
        let session = host.look().ok()??;
        if !announces(&session, hook) {
            return None;
        }
        if !self.is_warned.swap(true, Ordering::Relaxed) {
            log::warn!(
                "plugin '{}' asks for the hook {}, which `provides.hooks` of its plugin.json does \
                 not name: it guards nothing while the plugin does not run",
                host.plugin(),
                hook.name()
            );
        }
        Some(Asked { session: Some(session), ..asked })
    }
}

fn announces(session: &Session, hook: Hook) -> bool {
    let beige = session.greeting.beige.as_ref();
    beige.is_some_and(|it| it.hooks.iter().any(|name| name == hook.name()))
}

impl Asked<'_> {
    fn session(&self) -> Result<Arc<Session>, Unheard> {
        match &self.session {
            Some(session) => Ok(Arc::clone(session)),
            None => {
                self.host.session_within(self.asker, self.patience).map_err(|error| {
                    match error.kind() {
                        Kind::Cancelled => Unheard::CalledOff,
                        _ => Unheard::Failed(error.to_string()),
                    }
                })
            }
        }
    }
}

impl Listener for Asked<'_> {
    fn plugin(&self) -> &str {
        self.host.plugin()
    }

    fn is_lenient(&self) -> bool {
        self.is_lenient
    }

    fn ask(&self, hook: Hook, event: &Value) -> Result<Value, Unheard> {
        let until = Instant::now() + self.patience;
        let session = self.session()?;
        let params = json!({"hook": hook.name(), "event": event});
        let left = until.saturating_duration_since(Instant::now());
        let at = event["sessionKey"].as_str().unwrap_or_default();
        let matter = Matter::Hook(at.to_owned());
        let asked = session.connection.ask_about(matter, "beige/hook", &params, left, self.asker);
        asked.map_err(|it| match it {
            Unanswered::CalledOff => Unheard::CalledOff,
            Unanswered::Late(_) => {
                Unheard::Failed(format!("no answer within {} s", self.patience.as_secs()))
            }
            other => Unheard::Failed(other.to_string()),
        })
    }
}
