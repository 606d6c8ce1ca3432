//! `git`: the host's git for agents, whose own boxes have none. What is asked is
//! held against a table first; then git runs in a box of bubblewrap that shows
//! the workspace and nothing else of the host, without a network. Where a remote
//! is spoken with, that is done in another box, which has the network, the key
//! and the token, and in which nothing that an agent wrote is configuration
//! ([`transfer`]). So nothing that a repository brings about can reach a key, a
//! token or another host, whatever it makes git run.

mod arguments;
mod commands;
mod confine;
mod harmless;
mod keys;
mod remotes;
mod scratch;
mod settings;
#[cfg(test)]
mod tests;
mod transfer;
mod work;

use std::path::Path;
use std::sync::OnceLock;

use super::{Answer, Builtin, Call};
use crate::error::{Error, Kind, Result};
use crate::sandbox::bubblewrap::{self, HostLayout};
use commands::Effect;
use settings::Settings;
use work::{NO_TRANSPORT, Printed, Work};

/// The plugin.
#[derive(Debug, Default)]
pub(super) struct Git {
    host: OnceLock<Host>,
}

/// What of this host is needed, looked up once.
#[derive(Debug)]
struct Host {
    layout: HostLayout,
    git: &'static str,
}

/// Where git may lie: the box shows /usr.
const PLACES: [&str; 2] = ["/usr/bin/git", "/usr/local/bin/git"];

impl Builtin for Git {
    fn call(&self, call: &Call<'_>) -> Answer {
        let settings = Settings::read(call.config, &call.context.agent_name);
        let answer = self.answer(call, &settings).unwrap_or_else(|it| it);
        Answer { output: masked(answer.output, &settings), ..answer }
    }
}

impl Git {
    fn answer(&self, call: &Call<'_>, settings: &Settings) -> Result<Answer, Answer> {
        let asked = arguments::read(call.args, settings).map_err(Answer::wrong)?;
        let host = self.host().map_err(failed)?;
        let work = Work::begin(host, call, settings, &asked).map_err(failed)?;
        let printed = match asked.command.effect {
            Effect::Transfers => transfer::run(&work)?,
            Effect::Reads | Effect::Changes => {
                work.refuse_programs()?;
                work.asked(NO_TRANSPORT)?
            }
        };
        Ok(answer(asked.command.effect, printed))
    }

    /// Only what serves is kept: what is missing may be installed meanwhile.
    fn host(&self) -> Result<&Host> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let host = Host::look()?;
        Ok(self.host.get_or_init(|| host))
    }
}

/// What this host lacks for it.
pub(super) fn lack() -> Option<String> {
    Host::look().err().map(|it| it.to_string())
}

impl Host {
    fn look() -> Result<Self> {
        let layout = HostLayout::look()?;
        bubblewrap::available()?;
        let git = PLACES.into_iter().find(|it| Path::new(it).is_file()).ok_or_else(|| {
            Error::new(Kind::Missing, "git is not installed on the gateway's host (package git)")
        })?;
        Ok(Self { layout, git })
    }
}

fn failed(error: Error) -> Answer {
    Answer::failed(error.to_string())
}

/// What is told. Of a call that went well, complaints only where there is
/// nothing that a script may want to read.
fn answer(effect: Effect, printed: Printed) -> Answer {
    let Printed { code, mut out, err } = printed;
    let is_said = match effect {
        Effect::Reads => code != 0,
        Effect::Changes => code != 0 || out.is_empty(),
        Effect::Transfers => true,
    };
    if is_said {
        out.push_str(&err);
    }
    Answer { output: out, exit_code: code }
}

fn masked(text: String, settings: &Settings) -> String {
    settings.secrets().fold(text, |text, it| text.replace(it, "***"))
}
