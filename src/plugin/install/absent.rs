//! Plugins that the configuration says were installed, and whose folder is not
//! there: as on a new host that got the configuration alone. A gateway installs
//! them when it starts, asks nobody, and changes no entry. What fails is told,
//! and left out.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use super::{Net, Shelf, Source, Staged};
use crate::config::{Home, Plugin, PluginSource};
use crate::error::{Error, Kind, Result};

/// How what is said of such a plugin begins.
pub const NOT_INSTALLED: &str = "it is not installed";

/// The folder of a plugin that was installed and is not there.
pub fn folder(entry: &Plugin) -> Option<&Path> {
    match &entry.source {
        PluginSource::Folder(folder) => {
            let is_gone = folder
                .symlink_metadata()
                .is_err_and(|it| it.kind() == std::io::ErrorKind::NotFound);
            (entry.installed_from.is_some() && is_gone).then_some(folder)
        }
        PluginSource::Command(_) | PluginSource::Builtin(_) => None,
    }
}

/// Installs those that are absent, and tells the log of each.
pub fn install(plugins: &[Plugin], home: &Home, net: &Net<'_>) {
    let mut sources: BTreeMap<&str, Vec<&Plugin>> = BTreeMap::new();
    for entry in plugins.iter().filter(|it| folder(it).is_some()) {
        sources.entry(entry.installed_from.as_deref().unwrap_or_default()).or_default().push(entry);
    }
    let mut sources = sources.into_iter();
    while let Some((source, entries)) = sources.next() {
        // One that does not answer costs the others nothing.
        let share = u32::try_from(sources.len() + 1).unwrap_or(u32::MAX);
        let left = net.deadline.saturating_duration_since(Instant::now());
        let net = &Net { deadline: Instant::now() + left / share, ..*net };
        let names: Vec<&str> = entries.iter().map(|it| it.name.as_str()).collect();
        log::info!("{}: not installed yet, so it is installed from {source}", names.join(", "));
        if let Err(error) = install_from(source, &entries, home, net) {
            entries.iter().for_each(|it| leave_out(it, &error));
        }
    }
}

fn install_from(source: &str, entries: &[&Plugin], home: &Home, net: &Net<'_>) -> Result<()> {
    let shelf = Shelf::open(home)?;
    let staged = shelf.stage(Source::parse(source)?, net)?;
    let mut fitting = Vec::new();
    for entry in entries {
        match check(&staged, entry) {
            Ok(()) => fitting.push(entry.name.as_str()),
            Err(error) => leave_out(entry, &error),
        }
    }
    if !fitting.is_empty() {
        staged.place()?.keep();
        log::info!("{}: installed from {source}", fitting.join(", "));
    }
    Ok(())
}

fn leave_out(entry: &Plugin, error: &Error) {
    let name = &entry.name;
    log::error!(
        "{name}: left out, since it could not be installed: {error}; `beige plugins update {name}` \
         tries again, and the next start does"
    );
}

/// Refuses what would not lie where the entry has it, and to replace anything.
fn check(staged: &Staged, entry: &Plugin) -> Result<()> {
    let plugin = staged.plugins.iter().find(|it| it.manifest.name == entry.name);
    let path = folder(entry).unwrap_or(Path::new(""));
    let why = match plugin {
        None => format!("it holds no plugin `{}` any more", entry.name),
        Some(it) if it.folder != path => {
            format!("it belongs at {}, and `path` says {}", it.folder.display(), path.display())
        }
        Some(_) => match staged.replaces() {
            Some(there) => format!("{} is there and would be replaced", there.display()),
            None => return Ok(()),
        },
    };
    Err(Error::new(Kind::Conflict, why))
}
