//! Plugins that the configuration says were installed, and whose folder is not
//! there: as on a new host that got the configuration alone. A gateway installs
//! them when it starts, asks nobody, and changes no entry. What fails is told,
//! and left out.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Net, Shelf, Source, Staged};
use crate::config::{Home, Plugin, PluginSource};
use crate::error::{Error, Kind, Result};

/// The folder of a plugin that was installed and is not there.
pub fn folder(entry: &Plugin) -> Option<&Path> {
    match &entry.source {
        PluginSource::Folder(folder) => {
            let is_gone = folder
                .symlink_metadata()
                .is_err_and(|it| it.kind() == std::io::ErrorKind::NotFound);
            (entry.installed_from.is_some() && is_gone).then_some(folder)
        }
        PluginSource::Command(_) => None,
    }
}

/// Installs those that are absent, and tells the log of each.
pub fn install(plugins: &[Plugin], home: &Home, net: &Net<'_>) {
    let mut sources: BTreeMap<&str, Vec<&Plugin>> = BTreeMap::new();
    for entry in plugins.iter().filter(|it| folder(it).is_some()) {
        sources.entry(entry.installed_from.as_deref().unwrap_or_default()).or_default().push(entry);
    }
    for (source, entries) in sources {
        let names: Vec<&str> = entries.iter().map(|it| it.name.as_str()).collect();
        let names = names.join(", ");
        log::info!("{names}: not installed yet, so it is installed from {source}");
        match install_from(source, &entries, home, net) {
            Ok(()) => log::info!("{names}: installed from {source}"),
            Err(error) => log::error!(
                "{names}: left out, since it could not be installed: {error}; `beige plugins \
                 update` tries again, and the next start does"
            ),
        }
    }
}

fn install_from(source: &str, entries: &[&Plugin], home: &Home, net: &Net<'_>) -> Result<()> {
    let shelf = Shelf::open(home)?;
    let staged = shelf.stage(Source::parse(source)?, net)?;
    for entry in entries {
        check(&staged, entry)?;
    }
    staged.place()?.keep();
    Ok(())
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
