//! With what the process of a plugin that is a server is started. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::builtins::THIS_PROGRAM;
use crate::error::{Error, Kind, Result};

/// How a plugin's process is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The plugin's name.
    pub plugin: String,
    /// Program and arguments; a name is looked up in PATH. Empty for a plugin in
    /// TypeScript.
    pub argv: Vec<OsString>,
    /// Its working folder.
    pub folder: PathBuf,
    /// All of its environment.
    pub env: Vec<(String, OsString)>,
    /// Of a plugin in TypeScript: what makes it a server.
    pub typescript: Option<TypeScript>,
}

impl Launch {
    /// The command, without its streams. Pure.
    pub fn command(&self) -> Result<Command> {
        let Some((program, args)) = self.argv.split_first() else {
            return Err(Error::new(Kind::Config, "its command is empty"));
        };
        let mut command = Command::new(program);
        if program == THIS_PROGRAM {
            command.arg0("beige");
        }
        command.args(args).current_dir(&self.folder).env_clear();
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// A variable of its environment; empty if there is none.
    pub(in crate::plugin) fn variable(&self, name: &str) -> &OsStr {
        let found = self.env.iter().rev().find(|(it, _)| it == name);
        found.map(|(_, it)| it.as_os_str()).unwrap_or_default()
    }
}

/// What the host of a plugin needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeScript {
    /// The plugin's first file.
    pub entry: PathBuf,
    /// Its configuration, as JSON.
    pub config: String,
    /// A private folder, where the host and the FIFOs are laid.
    pub place: PathBuf,
    /// The folder in which plugins keep their files.
    pub data: PathBuf,
}
