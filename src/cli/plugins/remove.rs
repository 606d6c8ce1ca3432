//! `beige plugins remove`: the entry out of the configuration, the folder away
//! if it was installed.

use std::path::PathBuf;

use serde_json::Value;

use super::{Place, entry};
use crate::cli::{in_words, print, tell, tidy};
use crate::config::{amend, as_written, folder_of};
use crate::error::{Error, Kind, Result};
use crate::plugin::install::{Shelf, tools_of};
use crate::plugin::manifest::{self, SkillEntry};
use crate::plugin::package;

/// Removes a plugin; refuses while an agent names it, unless `force`d.
pub(super) fn remove(place: &Place, name: &str, force: bool) -> Result<()> {
    let written = as_written(&place.file, &place.home)?;
    entry(&written, name)?;
    let users = places_of_use(&written, name);
    if !users.is_empty() && !force {
        let what = format!(
            "`{name}` is still named in {}; take it out there first, since a gateway does not start \
             with a tool that is missing (--force removes it all the same)",
            in_words(&users.iter().map(String::as_str).collect::<Vec<_>>())
        );
        return Err(Error::new(Kind::Conflict, what));
    }
    let shelf = Shelf::open(&place.home)?;
    // Read again under the lock: others may have changed it meanwhile.
    let (folder, others) = amend(&place.file, &place.home, |draft| {
        let folder = folder(place, entry(draft.value(), name)?);
        draft.remove(&["plugins", name])?;
        let others = draft.value()["plugins"].as_object().into_iter().flatten();
        let others: Vec<PathBuf> = others.filter_map(|(_, it)| self::folder(place, it)).collect();
        Ok((folder, others))
    })?;
    let file = tidy(&place.file);
    let manifest = folder.as_deref().and_then(|it| manifest::read(it).ok());
    let skills = manifest.map(|it| it.skills).unwrap_or_default();
    match folder {
        Some(it) if shelf.discard(&it, &others)? => {
            print(&format!("removed {name}: its entry in {file}, and {}\n", tidy(&it)))?;
        }
        Some(it) if it.exists() => {
            print(&format!("removed {name}: its entry in {file}; {} stays\n", tidy(&it)))?;
        }
        _ => print(&format!("removed {name}: its entry in {file}\n"))?,
    }
    clear(place, name, &skills)?;
    for user in users {
        tell(&format!(
            "beige plugins: {user} still names `{name}`: a gateway does not start with it"
        ));
    }
    Ok(())
}

/// Takes away the copies that sandboxes were shown, and says what else there is.
fn clear(place: &Place, name: &str, skills: &[SkillEntry]) -> Result<()> {
    package::remove(&place.home.package(name))?;
    skills.iter().try_for_each(|it| package::remove(&place.home.skill(&it.name)))?;
    let kept = place.home.plugin_files(name);
    if kept.exists() {
        print(&format!("What it has stored stays, in {}\n", tidy(&kept)))?;
    }
    Ok(())
}

fn folder(place: &Place, entry: &Value) -> Option<PathBuf> {
    folder_of(&place.file, entry["path"].as_str()?)
}

/// The keys of agents under which a plugin is named.
fn places_of_use(written: &Value, name: &str) -> Vec<String> {
    let mut places = Vec::new();
    for (agent, it) in written["agents"].as_object().into_iter().flatten() {
        if !tools_of(it, name).is_empty() {
            places.push(format!("agents.{agent}.tools"));
        }
        if it["pluginConfigs"].get(name).is_some() {
            places.push(format!("agents.{agent}.pluginConfigs"));
        }
    }
    places
}
