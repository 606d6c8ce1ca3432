//! `beige plugins import`: servers of an `mcp.json` as entries of the
//! configuration, all of them or none.

use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::Place;
use crate::cli::{print, tell, tidy};
use crate::config::amend;
use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};
use crate::plugin::install::import::{Imported, servers};

/// Largest file that is taken, in bytes.
const LARGEST: u64 = 1 << 20;

/// Writes an entry for each server; gives their names. Entries that are there
/// are replaced only if `force`d.
pub(super) fn import(place: &Place, file: &str, force: bool) -> Result<Vec<String>> {
    let what = || format!("import {file}");
    let imported = servers(&read(file)?).map_err(|it| it.within(what()))?;
    amend(&place.file, &place.home, |draft| {
        for server in &imported {
            if draft.value()["plugins"].get(&server.name).is_some() && !force {
                let what = format!(
                    "plugins.{} is there already and would be replaced; --force does so",
                    server.name
                );
                return Err(Error::new(Kind::Conflict, what));
            }
            draft.set(&["plugins", &server.name], server.entry.clone())?;
        }
        Ok(())
    })?;
    for Imported { name, notes, .. } in &imported {
        notes.iter().for_each(|it| tell(&format!("beige plugins: {name}: {it}")));
    }
    let names: Vec<String> = imported.into_iter().map(|it| it.name).collect();
    print(&format!("imported {} into {}\n", names.join(", "), tidy(&place.file)))?;
    Ok(names)
}

fn read(file: &str) -> Result<Value> {
    let what = || format!("read {file}");
    let path = Path::new(file).canonicalize().during(Kind::Missing, what())?;
    let opened = open_own(&path, OpenOptions::new().read(true)).during(Kind::Missing, what())?;
    let mut bytes = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut bytes).during(Kind::Missing, what())?;
    if bytes.len() as u64 > LARGEST {
        return Err(Error::new(Kind::TooLarge, format!("{file} is larger than 1 MiB")));
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
    serde_json::from_slice(bytes).during(Kind::Usage, format!("{file} is not JSON"))
}
