//! What plugins are and may do, in words for who decides whether to install
//! them. Nothing of a plugin is run for it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::columns::in_one_line;
use crate::cli::{counted, tidy};
use crate::plugin::install::{self, Source, Staged, StagedPlugin, node};
use crate::plugin::manifest::{self, Program, Run, Server, Way};

/// What the plugins are and may do.
pub(super) fn description(staged: &Staged) -> String {
    let mut text = String::new();
    for plugin in &staged.plugins {
        let manifest = &plugin.manifest;
        let version = manifest::version(&manifest.folder).or_else(|| staged.version());
        let version = version.map_or_else(String::new, |it| format!(" {it}"));
        let form = manifest::form(&manifest.folder);
        text.push_str(&format!("{}{version} ({form})\n", manifest.name));
        // So that nothing of it passes for a line of ours.
        let lines = lines(plugin);
        lines.iter().for_each(|it| text.push_str(&format!("  {}\n", in_one_line(it))));
    }
    let files = counted(staged.files as u64, "file");
    let size = staged.bytes.div_ceil(1024);
    text + &format!(
        "It runs on this host as you ({}), outside every sandbox: it can do what you can.\n\
         {files}, {size} KiB, from {} to {}\n",
        user(),
        shown(&staged.source),
        tidy(staged.target())
    )
}

fn lines(plugin: &StagedPlugin) -> Vec<String> {
    let manifest = &plugin.manifest;
    let mut lines = Vec::new();
    for tool in &manifest.tools {
        lines.push(format!("tool {}: {}", tool.name, tool.description));
        if let Way::Run(run) = &tool.way {
            lines.push(format!("  {}", program(plugin, run)));
        }
    }
    for hook in &manifest.hooks {
        let guards = if hook.guards() { ", and may refuse it" } else { "" };
        lines.push(format!("hook {}: is asked each time{guards}", hook.name()));
    }
    if manifest::has_channel(&manifest.folder) {
        lines.push("channel: sends and takes messages of people".into());
    }
    for skill in &manifest.skills {
        lines.push(format!("skill {}: is told to agents that have the plugin", skill.name));
    }
    lines.extend(manifest.server.iter().map(|it| server(plugin, it)));
    if manifest.default_config.as_object().is_some_and(|it| !it.is_empty()) {
        lines.push(format!("settings: {}", manifest.default_config));
    }
    let mut references = Vec::new();
    install::entry::references(&manifest.default_config, "config", &mut references);
    lines.extend(references.iter().map(|at| {
        format!(
            "{at} names a variable or file of yours, and is written as plain text; write it \
             yourself if the plugin may have it"
        )
    }));
    if node::lacks_packages(&manifest.folder) {
        lines.push("needs packages of npm, which beige does not install".into());
    }
    lines.extend(manifest.warnings.iter().cloned());
    lines
}

/// Where something comes from, for people.
fn shown(source: &Source) -> String {
    source.path().map_or_else(|| source.text(), tidy)
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
    if let Some(entry) = &server.entry {
        let (entry, sets) = (inside(plugin, entry), sets(&server.env));
        return format!("keeps {entry} running under node, deno or bun, beside the gateway{sets}");
    }
    let words: Vec<String> = server.argv.iter().map(|it| inside(plugin, Path::new(it))).collect();
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
