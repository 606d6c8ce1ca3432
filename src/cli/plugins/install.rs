//! `beige plugins install` and `update`: says what a plugin is, asks where
//! something is replaced, puts it in its place, and writes its entry.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use serde_json::Value;

use super::{Place, entry};
use crate::cli::{complain, counted, in_words, inert, present, print, tidy, write_through};
use crate::config::{amend, as_written, folder_of};
use crate::error::{Error, Kind, Result};
use crate::plugin::install::{self, Shelf, Source, Staged, StagedPlugin};
use crate::plugin::manifest::{Program, Run, Server, Way};

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
    let staged = shelf.stage(source)?;
    present(&description(&staged))?;
    ask(&staged, &replaced(&staged, &written), consent)?;
    let names = put(place, staged, |_| true)?;
    print(&format!("installed {}\n", names.join(", ")))?;
    print(&next_steps(place, &names)?)?;
    Ok(names)
}

/// Installs plugins anew from where they came from: that one, or all.
pub(super) fn update(place: &Place, name: Option<&str>) -> Result<Vec<String>> {
    let written = as_written(&place.file, &place.home)?;
    let shelf = Shelf::open(&place.home)?;
    let mut updated = Vec::new();
    let mut failed = None;
    for (source, names) in sources(place, &shelf, &written, name)? {
        match update_from(place, &shelf, &source, &names) {
            Ok(()) => updated.extend(names),
            Err(error) if name.is_some() => return Err(error),
            Err(error) => {
                complain("beige plugins", &error.within(format!("update {}", names.join(", "))));
                failed = Some(Error::new(Kind::Internal, "not all plugins could be updated"));
            }
        }
    }
    match failed {
        Some(error) => Err(error),
        None if updated.is_empty() => {
            print("no plugin here was installed from elsewhere\n").map(|()| updated)
        }
        None => Ok(updated),
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
    let mut sources: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (plugin, it) in written["plugins"].as_object().into_iter().flatten() {
        if let Some(source) = it["_source"].as_str() {
            sources.entry(source.replace("$${", "${")).or_default().push(plugin.clone());
        }
    }
    let Some(name) = name else { return Ok(sources) };
    let of_name = entry(written, name)?;
    if of_name["_source"].is_null() {
        let what = format!("`{name}` was not installed: its entry has no `_source`");
        return Err(Error::new(Kind::Missing, what));
    }
    let folder = of_name["path"].as_str().and_then(|it| folder_of(&place.file, it));
    if folder.is_none_or(|it| shelf.installed(&it).is_none() && it.exists()) {
        let what =
            format!("the `path` of `{name}` is none that was installed; it is left as it is");
        return Err(Error::new(Kind::Conflict, what));
    }
    sources.retain(|_, names| names.iter().any(|it| it == name));
    Ok(sources)
}

fn update_from(place: &Place, shelf: &Shelf, source: &str, names: &[String]) -> Result<()> {
    let staged = shelf.stage(Source::parse(source)?)?;
    let has = |name: &&String| !staged.plugins.iter().any(|it| it.manifest.name == **name);
    if let Some(missing) = names.iter().find(has) {
        let what = format!("{source} holds no plugin `{missing}` any more; remove that one first");
        return Err(Error::new(Kind::Missing, what));
    }
    put(place, staged, |it| names.contains(&it.manifest.name))?;
    print(&format!("updated {} from {source}\n", names.join(", ")))
}

/// Puts it in its place and writes the entries of the plugins that are `meant`;
/// gives their names. Both or neither.
fn put(
    place: &Place,
    staged: Staged,
    meant: impl Fn(&StagedPlugin) -> bool,
) -> Result<Vec<String>> {
    let source = staged.source.path().to_string_lossy().into_owned();
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

/// What the plugins are and may do, for who decides.
fn description(staged: &Staged) -> String {
    let mut text = String::new();
    for plugin in &staged.plugins {
        let manifest = &plugin.manifest;
        text.push_str(&format!("{}\n", manifest.name));
        for tool in &manifest.tools {
            text.push_str(&format!("  tool {}: {}\n", tool.name, tool.description));
            if let Way::Run(run) = &tool.way {
                text.push_str(&format!("    {}\n", program(plugin, run)));
            }
        }
        if let Some(it) = &manifest.server {
            text.push_str(&format!("  {}\n", server(plugin, it)));
        }
        if let Value::Object(defaults) = &manifest.default_config
            && !defaults.is_empty()
        {
            text.push_str(&format!("  settings: {}\n", manifest.default_config));
        }
        let mut references = Vec::new();
        install::entry::references(&manifest.default_config, "config", &mut references);
        for at in references {
            text.push_str(&format!(
                "  {at} names a variable or file of yours, and is written as plain text; write it \
                 yourself if the plugin may have it\n"
            ));
        }
        for warning in &manifest.warnings {
            text.push_str(&format!("  {warning}\n"));
        }
    }
    let files = counted(staged.files as u64, "file");
    let size = staged.bytes.div_ceil(1024);
    let (from, to) = (tidy(staged.source.path()), tidy(staged.target()));
    text + &format!(
        "It runs on this host as you ({}), outside every sandbox: it can do what you can.\n\
         {files}, {size} KiB, from {from} to {to}\n",
        user()
    )
}

fn program(plugin: &StagedPlugin, run: &Run) -> String {
    let program = match &run.program {
        Program::Inside(path) => inside(plugin, path),
        Program::OnPath(name) => format!("{name} (from PATH)"),
    };
    let args: String = run.args.iter().map(|it| format!(" {it}")).collect();
    let flags = match &run.flags {
        Some(flags) if flags.is_empty() => "no options".into(),
        Some(flags) => format!("of options {}", flags.join(" ")),
        None => "any options".into(),
    };
    format!("runs {program}{args} with an agent's arguments, {flags}{}", sets(&run.env))
}

fn server(plugin: &StagedPlugin, server: &Server) -> String {
    let words: Vec<String> = server.argv.iter().map(|it| inside(plugin, Path::new(it))).collect();
    if let Some(entry) = &server.entry {
        let (entry, sets) = (inside(plugin, entry), sets(&server.env));
        return format!("keeps {entry} running under node, deno or bun, beside the gateway{sets}");
    }
    format!("keeps {} running, beside the gateway{}", words.join(" "), sets(&server.env))
}

/// As the manifest says it, for a file in the plugin's folder.
fn inside(plugin: &StagedPlugin, path: &Path) -> String {
    match path.strip_prefix(&plugin.manifest.folder) {
        Ok(inside) => format!("./{}", inside.display()),
        Err(_) => path.display().to_string(),
    }
}

fn sets(env: &BTreeMap<String, String>) -> String {
    let names: Vec<&str> = env.keys().map(String::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; sets {}", names.join(", ")) }
}

fn user() -> String {
    let uid = rustix::process::geteuid();
    if uid.is_root() { "root".into() } else { format!("user {}", uid.as_raw()) }
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
