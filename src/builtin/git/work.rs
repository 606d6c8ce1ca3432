//! One call at work: where it stands, who it runs as, and the boxes in which
//! its steps run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use super::arguments::Asked;
use super::commands::LOOK_INTO_SUBMODULES;
use super::confine::{Bind, Cell, WORKSPACE};
use super::harmless::{self, LIST, environment, program_key};
use super::scratch::{BIN, Scratch};
use super::settings::Settings;
use super::{Host, failed};
use crate::builtin::{Answer, Call};
use crate::error::{During, Error, Kind, Result};
use crate::plugin::child::{self, Asker, Bounds, Captured, Ended};
use crate::plugin::run::{MAX_OUTPUT, MAX_STDERR};

/// How long a step may take; the gateway ends a call before that, by its own
/// limit.
const LONGEST: Duration = Duration::from_secs(3600);

/// The transport of a step that has none.
pub(super) const NO_TRANSPORT: &str = "none";

/// A call and all that its steps need.
pub(super) struct Work<'a> {
    pub(super) host: &'a Host,
    pub(super) call: &'a Call<'a>,
    pub(super) settings: &'a Settings,
    pub(super) asked: &'a Asked<'a>,
    pub(super) scratch: Scratch,
    pub(super) owner: (u32, u32),
    workspace: PathBuf,
}

/// What a step printed and how it ended.
#[derive(Debug, Default)]
pub(super) struct Printed {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl<'a> Work<'a> {
    /// Looks whose workspace it is, and makes the folder of the call.
    pub(super) fn begin(
        host: &'a Host,
        call: &'a Call<'a>,
        settings: &'a Settings,
        asked: &'a Asked<'a>,
    ) -> Result<Self> {
        let workspace = call.context.workspace_dir.clone();
        let seen = fs::metadata(&workspace).during(Kind::Internal, "look at the workspace")?;
        let owner = (seen.uid(), seen.gid());
        if owner.0 == 0 || owner.1 == 0 {
            let what = "the workspace belongs to root, and git never runs as root here; a person \
                        can give it to a user of its own (`chown -R 10000:10000`)";
            return Err(Error::new(Kind::Config, what));
        }
        let scratch = Scratch::new(&call.context.agent_dir, owner, host.git)?;
        Ok(Self { host, call, settings, asked, scratch, owner, workspace })
    }

    /// Refuses a repository whose configuration runs programs that nothing
    /// overrides, or sends git to other places. Who changes it while git runs
    /// has them run in a box that has nothing which the agent has not.
    pub(super) fn refuse_programs(&self) -> Result<(), Answer> {
        let listed = self.quietly(&LIST)?;
        if listed.code != 0 {
            return Err(listed.into());
        }
        if let Some(key) = program_key(&listed.out) {
            return Err(Answer::failed(format!(
                "this repository's configuration has `{key}`, which is not allowed here: take it \
                 out of its .git/config to go on"
            )));
        }
        if self.asked.command.name == "rebase" { self.refuse_todo() } else { Ok(()) }
    }

    /// A rebase that was begun goes on by a list, which may have been written by
    /// anyone.
    fn refuse_todo(&self) -> Result<(), Answer> {
        let path = self.quietly(&["rev-parse", "--git-path", "rebase-merge/git-rebase-todo"])?;
        let todo = self.file(path.out.trim_end_matches('\n'))?;
        let runs = |it: &str| matches!(it.split_whitespace().next(), Some("exec" | "x"));
        if todo.lines().any(runs) {
            let what = "the list of this rebase runs programs (`exec`), which is not allowed here: \
                        take them out of .git/rebase-merge/git-rebase-todo to go on";
            return Err(Answer::failed(what));
        }
        Ok(())
    }

    /// Runs what was asked, as it was asked, in the box of the workspace.
    pub(super) fn asked(&self, transport: &str) -> Result<Printed, Answer> {
        let rest = self.asked.rest.iter().copied();
        let name = self.asked.command.name;
        let over = ["--ignore-submodules=dirty"].into_iter();
        let over = over.filter(|_| LOOK_INTO_SUBMODULES.contains(&name));
        let words: Vec<&str> = [name].into_iter().chain(over).chain(rest).collect();
        self.local(&words, self.call.stdin, transport)
    }

    /// Runs git in the box of the workspace, for its answer.
    pub(super) fn quietly(&self, words: &[&str]) -> Result<Printed, Answer> {
        self.local(words, None, NO_TRANSPORT)
    }

    /// Runs git in the box of the workspace; a transport leads to the mirror.
    pub(super) fn local(
        &self,
        words: &[&str],
        stdin: Option<&str>,
        transport: &str,
    ) -> Result<Printed, Answer> {
        let mut env = environment(self.settings, transport, &[]);
        // These are scripts, of git's own folder.
        if !["bisect", "submodule"].contains(&self.asked.command.name) {
            env.push(("GIT_EXEC_PATH".into(), BIN.into()));
        }
        if transport != NO_TRANSPORT {
            env.push(("GIT_SSH_COMMAND".into(), format!("{BIN}/ssh")));
            env.push(("GIT_SSH_VARIANT".into(), "ssh".into()));
        }
        let words = self.asked.folders.iter().chain(words).map(|it| (*it).to_owned());
        let program: Vec<String> = [self.host.git.to_owned()].into_iter().chain(words).collect();
        self.in_workspace(&program, stdin, env)
    }

    /// Reads a file of the workspace, as the box sees it; empty if it is not
    /// there.
    pub(super) fn file(&self, path: &str) -> Result<String, Answer> {
        let program = ["/usr/bin/cat", "--", path].map(str::to_owned);
        let env = environment(self.settings, NO_TRANSPORT, &[]);
        let read = self.in_workspace(&program, None, env)?;
        Ok(if read.code == 0 { read.out } else { String::new() })
    }

    fn in_workspace(
        &self,
        program: &[String],
        stdin: Option<&str>,
        env: Vec<(String, String)>,
    ) -> Result<Printed, Answer> {
        let mut binds = vec![self.workspace(true)];
        binds.extend(self.scratch.accounts());
        binds.push(self.scratch.bind("bin", BIN, false));
        binds.extend(self.scratch.mirror(false));
        let cell = Cell {
            binds,
            folder: format!("{WORKSPACE}/{}", self.call.context.cwd),
            env,
            ..self.cell()
        };
        self.run(&cell, program, stdin.map(str::as_bytes)).map_err(failed)
    }

    /// The workspace as a box sees it.
    pub(super) fn workspace(&self, writable: bool) -> Bind {
        Bind { source: self.workspace.clone(), inside: WORKSPACE.to_owned(), writable }
    }

    /// A box that shows nothing yet.
    pub(super) fn cell(&self) -> Cell<'_> {
        Cell {
            host: &self.host.layout,
            owner: self.owner,
            binds: Vec::new(),
            network: false,
            input_at: None,
            folder: "/".to_owned(),
            env: Vec::new(),
        }
    }

    /// Runs these words in that box to their end; a call that is called off
    /// ends with all that it started.
    pub(super) fn run(
        &self,
        cell: &Cell<'_>,
        program: &[String],
        stdin: Option<&[u8]>,
    ) -> Result<Printed> {
        let bounds = Bounds { timeout: LONGEST, stdout: MAX_OUTPUT, stderr: MAX_STDERR };
        let ended = child::run(&mut cell.command(program), stdin, bounds, self.asker())
            .map_err(|it| it.within("run git"))?;
        if ended.killed.is_some() {
            return Err(Error::new(Kind::Cancelled, "git was ended"));
        }
        Ok(ended.into())
    }

    pub(super) fn asker(&self) -> Asker<'_> {
        Asker { cancel: self.call.cancel, line: None }
    }

    /// The environment of a step that speaks with a remote.
    pub(super) fn network_environment(
        &self,
        transport: &str,
        more: &[(String, String)],
    ) -> Vec<(String, String)> {
        let mut env = harmless::environment(self.settings, transport, more);
        for name in ["https_proxy", "http_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY"] {
            env.extend(std::env::var(name).ok().map(|it| (name.to_owned(), it)));
        }
        env
    }
}

impl From<Ended> for Printed {
    fn from(ended: Ended) -> Self {
        Self { code: ended.code, out: text(&ended.stdout), err: text(&ended.stderr) }
    }
}

impl From<Printed> for Answer {
    fn from(printed: Printed) -> Self {
        Self { output: printed.out + &printed.err, exit_code: printed.code }
    }
}

fn text(captured: &Captured) -> String {
    let mut text = String::from_utf8_lossy(&captured.bytes).into_owned();
    if captured.dropped > 0 {
        text.push_str(&format!("\n[{} more bytes are left out]\n", captured.dropped));
    }
    text
}
