//! `beige plugins install` and `update`: asks where something is replaced, puts
//! it in its place, and writes its entry.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::describe::description;
use super::{Place, entry};
use crate::cli::{
    complain, in_words, inert, is_watched, present, print, tell, tidy, write_through,
};
use crate::config::{amend, as_written, folder_of};
use crate::error::{Error, Kind, Result};
use crate::plugin::install::{self, Net, Shelf, Source, Staged, StagedPlugin, node};

/// How long all downloads of one command may take.
const DOWNLOADS: Duration = Duration::from_secs(600);

/// How long nothing is said of a download.
const SILENT: Duration = Duration::from_secs(1);

/// How often it is said how far one is.
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// Longest answer that is read.
const LONGEST_ANSWER: u64 = 1024;

/// What a person has agreed to beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consent {
    /// To replace what is there.
    pub(super) force: bool,
    /// To whatever is asked on a terminal.
    pub(super) yes: bool,
}

/// Installs all plugins of a source; gives their names.
pub(super) fn install(place: &Place, source: &str, consent: Consent) -> Result<Vec<String>> {
    let source = Source::parse(source)?;
    let written = as_written(&place.file, &place.home)?;
    let shelf = Shelf::open(&place.home)?;
    let staged = downloading(|net| shelf.stage(source, net))?;
    present(&description(&staged))?;
    ask(&staged, &replaced(&staged, &written), consent)?;
    let names = put(place, staged, |_| true)?;
    print(&format!("installed {}\n", names.join(", ")))?;
    tell_of_packages(place, &names)?;
    print(&next_steps(place, &names)?)?;
    Ok(names)
}

/// Installs plugins anew from where they came from: that one, or all.
pub(super) fn update(place: &Place, name: Option<&str>) -> Result<Vec<String>> {
    let written = as_written(&place.file, &place.home)?;
    let shelf = Shelf::open(&place.home)?;
    let mut updated = Vec::new();
    let mut failed = None;
    let sources = sources(place, &shelf, &written, name)?;
    if sources.is_empty() {
        print("no plugin here was installed from elsewhere\n")?;
    }
    for (source, names) in sources {
        match update_from(place, &shelf, &source, &names) {
            Ok(it) => updated.extend(it),
            Err(error) if name.is_some() => return Err(error),
            Err(error) => {
                complain("beige plugins", &error.within(format!("update {}", names.join(", "))));
                failed = Some(Error::new(Kind::Internal, "not all plugins could be updated"));
            }
        }
    }
    match failed {
        Some(error) => Err(error),
        None => {
            tell_of_packages(place, &updated)?;
            Ok(updated)
        }
    }
}

/// The sources of what is to be updated, each with the plugins that came from
/// it: those of one package go together.
fn sources(
    place: &Place,
    shelf: &Shelf,
    written: &Value,
    name: Option<&str>,
) -> Result<BTreeMap<String, Vec<String>>> {
    if let Some(name) = name {
        check_named(place, shelf, name, entry(written, name)?)?;
    }
    let mut sources: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (plugin, it) in written["plugins"].as_object().into_iter().flatten() {
        let Some(source) = it["_source"].as_str() else { continue };
        if lies_elsewhere(place, shelf, it) {
            // Nobody who is named comes so far.
            if name.is_none() {
                tell(&format!("beige plugins: {}", left_alone(plugin)));
            }
            continue;
        }
        sources.entry(source.replace("$${", "${")).or_default().push(plugin.clone());
    }
    if let Some(name) = name {
        sources.retain(|_, names| names.iter().any(|it| it == name));
    }
    Ok(sources)
}

fn check_named(place: &Place, shelf: &Shelf, name: &str, entry: &Value) -> Result<()> {
    if entry["_source"].is_null() {
        let what = format!("`{name}` was not installed: its entry has no `_source`");
        return Err(Error::new(Kind::Missing, what));
    }
    match lies_elsewhere(place, shelf, entry) {
        true => Err(Error::new(Kind::Conflict, left_alone(name))),
        false => Ok(()),
    }
}

/// Whether an entry leads to what is a person's own: no update puts another
/// folder in its place.
fn lies_elsewhere(place: &Place, shelf: &Shelf, entry: &Value) -> bool {
    let folder = entry["path"].as_str().and_then(|it| folder_of(&place.file, it));
    folder.is_none_or(|it| shelf.installed(&it).is_none() && it.exists())
}

fn left_alone(name: &str) -> String {
    format!("the `path` of `{name}` is none that was installed; it is left as it is")
}

/// Gives the names of what was updated: none if nothing is new.
fn update_from(
    place: &Place,
    shelf: &Shelf,
    source: &str,
    names: &[String],
) -> Result<Vec<String>> {
    let from = Source::parse(source)?;
    let staged = downloading(|net| shelf.stage(from, net))?;
    let has = |name: &&String| !staged.plugins.iter().any(|it| it.manifest.name == **name);
    if let Some(missing) = names.iter().find(has) {
        let what = format!("{source} holds no plugin `{missing}` any more; remove that one first");
        return Err(Error::new(Kind::Missing, what));
    }
    let all = names.join(", ");
    let version = staged.version().map_or_else(String::new, |it| format!(" {it}"));
    if staged.is_there()? {
        present(&format!("{all}{version}: nothing new in {source}\n"))?;
        return Ok(Vec::new());
    }
    put(place, staged, |it| names.contains(&it.manifest.name))?;
    present(&format!("updated {all} from {source}{version}\n"))?;
    Ok(names.to_vec())
}

/// Does what may have to download something; a person who watches is told how
/// far that is.
fn downloading<T>(act: impl FnOnce(&Net<'_>) -> Result<T>) -> Result<T> {
    let (begun, told) = (Instant::now(), Cell::new(None::<Instant>));
    let progress = |bytes: u64| {
        let is_time = told.get().map_or(begun.elapsed() > SILENT, |it| it.elapsed() > TOLD_EVERY);
        if is_time && is_watched() {
            told.set(Some(Instant::now()));
            let line = format!("\rdownloading … {:.1} MiB ", bytes as f64 / f64::from(1 << 20));
            // Nobody is left to be told where standard error is gone.
            let _ = write_through(io::stderr(), line.as_bytes());
        }
    };
    let environment = |name: &str| std::env::var_os(name);
    let deadline = begun + DOWNLOADS;
    let done = act(&Net { environment: &environment, deadline, progress: &progress });
    if told.get().is_some() {
        let _ = write_through(io::stderr(), b"\r\x1b[K");
    }
    done
}

/// Says whose packages are still missing: beige runs no package manager.
fn tell_of_packages(place: &Place, names: &[String]) -> Result<()> {
    let written = as_written(&place.file, &place.home)?;
    let folders = names.iter().filter_map(|it| written["plugins"][it]["path"].as_str());
    for folder in folders.filter_map(|it| folder_of(&place.file, it)) {
        if node::lacks_packages(&folder) {
            tell(&format!(
                "beige plugins: its package.json names packages that are not there; install them \
                 yourself: cd {} && npm install --omit=dev --ignore-scripts",
                tidy(&folder)
            ));
        }
    }
    Ok(())
}

/// Puts it in its place and writes the entries of the plugins that are `meant`;
/// gives their names. Both or neither.
fn put(
    place: &Place,
    staged: Staged,
    meant: impl Fn(&StagedPlugin) -> bool,
) -> Result<Vec<String>> {
    let source = staged.source.text();
    let placed = staged.place()?;
    let names = amend(&place.file, &place.home, |draft| {
        let plugins = placed.staged().plugins.iter().filter(|it| meant(it));
        let mut names = Vec::new();
        for plugin in plugins {
            install::entry::write(draft, &place.file, plugin, &source)?;
            names.push(plugin.manifest.name.clone());
        }
        Ok(names)
    })?;
    placed.keep();
    Ok(names)
}

/// What would be replaced: entries of the configuration, and a folder.
fn replaced(staged: &Staged, written: &Value) -> Vec<String> {
    let names = staged.plugins.iter().map(|it| &it.manifest.name);
    let entries = names.filter(|it| written["plugins"].get(it.as_str()).is_some());
    let mut replaced: Vec<String> = entries.map(|it| format!("the entry plugins.{it}")).collect();
    replaced.extend(staged.replaces().map(tidy));
    replaced
}

fn ask(staged: &Staged, replaced: &[String], consent: Consent) -> Result<()> {
    let has_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    let words: Vec<&str> = replaced.iter().map(String::as_str).collect();
    if consent.force || (replaced.is_empty() && !has_terminal) || (consent.yes && has_terminal) {
        return Ok(());
    }
    if !has_terminal {
        let list = words.join(" and ");
        let what = format!("{list} would be replaced; --force does so (settings and secrets stay)");
        return Err(Error::new(Kind::Conflict, what));
    }
    let question = match words.is_empty() {
        true => format!("Install into {}? [y/N] ", tidy(staged.target())),
        false => format!("Replace {}? Settings and secrets stay. [y/N] ", words.join(" and ")),
    };
    match is_yes(&question)? {
        true => Ok(()),
        false => Err(Error::new(Kind::Denied, "nothing was changed")),
    }
}

fn is_yes(question: &str) -> Result<bool> {
    // Nobody is left to be asked where standard error is gone.
    let _ = write_through(io::stderr(), inert(question).as_bytes());
    let mut answer = String::new();
    let mut stdin = io::stdin().lock().take(LONGEST_ANSWER);
    // What cannot be read is no consent.
    let _ = io::BufRead::read_line(&mut io::BufReader::new(&mut stdin), &mut answer);
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// What is left to do: tools that no agent may use yet.
fn next_steps(place: &Place, names: &[String]) -> Result<String> {
    let written = as_written(&place.file, &place.home)?;
    let is_used = |name: &&String| {
        let mut agents = written["agents"].as_object().into_iter().flatten();
        !agents.any(|(_, it)| !install::tools_of(it, name).is_empty())
    };
    let unused: Vec<&str> = names.iter().filter(is_used).map(String::as_str).collect();
    let mut text = String::from("A gateway that runs takes it over by `beige gateway restart`.\n");
    if !unused.is_empty() {
        text = format!(
            "No agent may use {} yet: add the tools to `agents.NAME.tools` in {}.\n{text}",
            in_words(&unused).replace(" or ", " and "),
            tidy(&place.file)
        );
    }
    Ok(text)
}
