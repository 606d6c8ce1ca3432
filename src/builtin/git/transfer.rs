//! What speaks with a remote: clone, fetch, pull, push, ls-remote. Each is
//! split. A step with the network exchanges objects and refs between the remote
//! and a mirror that is ours, with a URL that was checked; a step without it
//! lets git do what was asked, with the mirror in the remote's place. What would
//! be pushed is told by git, and looked at, before it goes out.

mod fetch;
mod push;

use ring::rand::{SecureRandom, SystemRandom};

use super::arguments::{Parsed, parse};
use super::confine::{Bind, Cell};
use super::failed;
use super::keys::{Keys, SOCKET, SshAgent};
use super::remotes::Remote;
use super::scratch::{MIRROR, inside};
use super::work::{NO_TRANSPORT, Printed, Work};
use crate::builtin::Answer;
use crate::error::{Error, Kind, Result};

/// Runs a call that transfers.
pub(super) fn run(work: &Work<'_>) -> Result<Printed, Answer> {
    let parsed = parse(work.asked.command, &work.asked.rest).map_err(Answer::wrong)?;
    if work.asked.command.name == "clone" {
        return fetch::clone(work, &parsed);
    }
    work.refuse_programs()?;
    match work.asked.command.name {
        "push" => push::push(work, &parsed),
        "ls-remote" => list(work, &parsed),
        _ => fetch::fetch(work, &parsed),
    }
}

fn list(work: &Work<'_>, parsed: &Parsed<'_>) -> Result<Printed, Answer> {
    if parsed.has(&["--get-url"]) {
        return work.asked(NO_TRANSPORT);
    }
    let remote = fetch::remote(work, parsed.operands.first().copied())?;
    let options: Vec<&str> = parsed.options.iter().map(|(it, _)| it.as_str()).collect();
    let mut words = vec!["ls-remote".to_owned()];
    words.extend(parsed.only(&options));
    words.extend(["--".to_owned(), remote.url.clone()]);
    words.extend(parsed.operands.iter().skip(1).map(|it| (*it).to_owned()));
    work.scratch.place_mirror().map_err(failed)?;
    Link::open(work, &remote)?.git(&words)
}

/// The way to one remote: the box with the network.
struct Link<'a> {
    work: &'a Work<'a>,
    remote: &'a Remote,
    /// Ends with it.
    agent: Option<SshAgent>,
    credential: Option<Credential>,
}

/// What is given to a remote.
struct Credential {
    /// Where it lies inside, for as long as a step runs: a name that nobody can
    /// guess, so that no link among the objects of a workspace leads there.
    place: String,
    text: String,
}

impl Credential {
    fn of(user: &str, word: &str) -> Result<Self> {
        let mut name = [0; 16];
        let filled = SystemRandom::new().fill(&mut name);
        filled.map_err(|_| Error::new(Kind::Internal, "the system gives no random numbers"))?;
        let place = inside(&format!("credential-{:032x}", u128::from_be_bytes(name)));
        Ok(Self { place, text: format!("username={user}\npassword={word}\n") })
    }
}

impl<'a> Link<'a> {
    fn open(work: &'a Work<'a>, remote: &'a Remote) -> Result<Self, Answer> {
        let agent = if remote.is_ssh { Some(ssh_agent(work).map_err(failed)?) } else { None };
        let credential = work.settings.credential(remote);
        let credential = credential.map(|(user, word)| Credential::of(user, word));
        let credential = credential.transpose().map_err(failed)?;
        Ok(Self { work, remote, agent, credential })
    }

    /// Runs git with these words, next to the remote.
    fn git(&self, words: &[String]) -> Result<Printed, Answer> {
        let more = self.config();
        let transport = self.remote.scheme;
        let mut env = self.work.network_environment(transport, &more);
        env.push(("GIT_SSH_VARIANT".into(), "ssh".into()));
        env.push(("GIT_SSH_COMMAND".into(), ssh_command()));
        let is_made = words.first().is_some_and(|it| it != "clone" && it != "ls-remote");
        if is_made {
            env.push(("GIT_DIR".into(), MIRROR.into()));
        }
        let cell = Cell {
            binds: self.binds(),
            network: true,
            input_at: self.credential.as_ref().map(|it| &*it.place),
            env,
            ..self.work.cell()
        };
        let program = [self.work.host.git.to_owned()].into_iter().chain(words.iter().cloned());
        let program: Vec<String> = program.collect();
        let input = self.credential.as_ref().map(|it| it.text.as_bytes());
        self.work.run(&cell, &program, input).map_err(failed)
    }

    fn config(&self) -> Vec<(String, String)> {
        // What the repository of the objects has is told by us.
        let mut more = vec![("core.alternateRefsCommand".to_owned(), ":".to_owned())];
        if let Some(Credential { place, .. }) = &self.credential {
            let helper = format!("!cat {place} #");
            more.push(("credential.helper".to_owned(), helper));
        }
        more
    }

    fn binds(&self) -> Vec<Bind> {
        let scratch = &self.work.scratch;
        let mut binds = vec![self.work.workspace(false)];
        binds.extend(scratch.accounts());
        binds.extend(scratch.mirror(true));
        if self.agent.is_some() {
            binds.push(scratch.bind("agent", &inside("agent"), false));
            binds.push(scratch.bind("known_hosts", &inside("known_hosts"), false));
        }
        binds
    }
}

fn ssh_agent(work: &Work<'_>) -> Result<SshAgent> {
    let context = &work.call.context;
    let keys = Keys::read(&context.agent_dir.join("ssh"), &context.agent_name)?;
    work.scratch.file("known_hosts", &keys.known_hosts)?;
    work.scratch.folder("agent")?;
    let mut binds = vec![work.scratch.bind("agent", &inside("agent"), true)];
    binds.extend(work.scratch.accounts());
    let env = [("SSH_AUTH_SOCK", SOCKET), ("SSH_ASKPASS_REQUIRE", "never"), ("HOME", "/tmp")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    SshAgent::start(&Cell { binds, env, ..work.cell() }, &keys, work.asker())
}

/// ssh with no file of the host's and nothing but the agent's keys; a host that
/// is not known is refused.
fn ssh_command() -> String {
    let known = inside("known_hosts");
    format!(
        "/usr/bin/ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=yes \
         -o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null \
         -o IdentityAgent={SOCKET} -o IdentityFile=none -o ForwardAgent=no -o ConnectTimeout=30"
    )
}

/// What was printed next to a remote, with its URL where the mirror's folder
/// stands.
fn told(printed: Printed, remote: &Remote) -> Printed {
    let tell = |text: String| text.replace(MIRROR, &remote.url);
    Printed { code: printed.code, out: tell(printed.out), err: tell(printed.err) }
}
