//! What this host lacks for plugins to be started, for who wants to know before
//! they are: programs that are not there. Of plugins nothing is run, and what
//! runs elsewhere is not asked.

use std::env;
use std::path::Path;

use rustix::fs::{Access, access};

use super::builtins::THIS_PROGRAM;
use super::host::Start;
use super::launch::Launch;
use super::manifest::{Program, Way};
use super::run::{self, Asker};
use super::{Registry, Tool, typescript};

impl Registry {
    /// Plugins that cannot be started here and now, in the order of the
    /// configuration, and why. A node is asked for its version. Those of beige's
    /// own are none: their program is this one.
    pub fn lacking(&self, asker: Asker<'_>) -> Vec<(&str, String)> {
        let order = self.order.iter();
        order.filter_map(|it| Some((it.as_str(), self.lack_of(it, asker)?))).collect()
    }

    fn lack_of(&self, plugin: &str, asker: Asker<'_>) -> Option<String> {
        match self.plugins.get(plugin)?.server.as_ref() {
            Some(Start::Process(launch)) => lack(launch, asker),
            Some(Start::Remote { .. }) => None,
            None => self.tools().filter(|it| it.plugin == plugin).find_map(lack_of_tool),
        }
    }
}

fn lack(launch: &Launch, asker: Asker<'_>) -> Option<String> {
    if launch.typescript.is_some() {
        return typescript::find(launch, asker).err().map(|it| it.to_string());
    }
    let program = launch.argv.first()?;
    let (path, name) = (Path::new(program), program.display());
    if program == THIS_PROGRAM {
        return None;
    }
    if path.components().count() > 1 {
        let path = launch.folder.join(path);
        let is_there = path.is_file() && access(&path, Access::EXEC_OK).is_ok();
        let what = || format!("its program `{name}` is not there, or may not be executed");
        return (!is_there).then(what);
    }
    let plain = program.to_string_lossy();
    let found = run::on_path(&plain, launch.variable("PATH"), &launch.folder).next();
    found.is_none().then(|| format!("its program `{name}` is not on PATH"))
}

fn lack_of_tool(tool: &Tool) -> Option<String> {
    let Way::Run(run) = &tool.way else { return None };
    let Program::OnPath(name) = &run.program else { return None };
    let of_gateway = env::var_os("PATH").unwrap_or_default();
    let folders = run.env.get("PATH").map_or(&*of_gateway, |it| it.as_ref());
    let found = run::on_path(name, folders, &tool.folder).next();
    found.is_none().then(|| format!("its program `{name}` is not on PATH"))
}
