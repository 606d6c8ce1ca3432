//! `plugin.json` as typed values. What a plugin may be called, what its tools
//! may be called and what they may start is decided here, once, at load. Keys
//! that nobody knows are warnings.

mod entry;
mod folderless;
mod glance;
mod program;
mod provides;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

pub use folderless::{of_builtin, of_command, of_url};
pub use glance::{has_channel, version};
pub(super) use glance::{read_json, version_said};
use program::{argv, find_program, flags};
pub use provides::SkillEntry;
use provides::{check_provides, gives_skills, promised};

use crate::plugin::builtins;
use crate::plugin::fields::{Fields, Findings, kind_of};
use crate::plugin::hooks::Hook;
use crate::plugin::settings::Schema;

/// Largest `plugin.json`, in bytes.
pub const MAX_BYTES: u64 = 1024 * 1024;

/// The tools that every agent has.
pub const CORE_TOOLS: [&str; 4] = ["read", "write", "patch", "exec"];

/// Names that would shadow what a sandbox itself needs.
const RESERVED: [&str; 6] = ["read", "write", "patch", "exec", "tool-client", "sh"];

const DEFAULT_TIMEOUT_SECONDS: u64 = 300;
const MAX_TIMEOUT_SECONDS: u64 = 86_400;

/// A sound `plugin.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The plugin's name.
    pub name: String,
    /// Its folder, links resolved.
    pub folder: PathBuf,
    /// Its tools.
    pub tools: Vec<ToolEntry>,
    /// The server that gives them, if one does.
    pub server: Option<Server>,
    /// Hooks that the server is always asked for.
    pub hooks: Vec<Hook>,
    /// Skills in its folder.
    pub skills: Vec<SkillEntry>,
    /// Files that its package must not hold, as globs.
    pub private: Vec<String>,
    /// What its configuration must look like.
    pub schema: Option<Schema>,
    /// Configuration under that of the entry.
    pub default_config: Value,
    /// Oddities that stop nothing.
    pub warnings: Vec<String>,
}

/// A tool, as the manifest describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolEntry {
    /// The plugin's name, or `plugin.part`.
    pub name: String,
    /// What it does, for the agent.
    pub description: String,
    /// How it is called, a line each.
    pub commands: Vec<String>,
    /// Who does what a call asks for.
    pub way: Way,
    /// After which a call is ended.
    pub timeout: Duration,
}

/// Who does what a call of a tool asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// A process that is started for it.
    Run(Run),
    /// The plugin's server.
    Server,
}

/// What is started for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The program.
    pub program: Program,
    /// Arguments before those of the call.
    pub args: Vec<String>,
    /// Arguments beginning with `-` that a call may give; `None`: all.
    pub flags: Option<Vec<String>>,
    /// Further environment.
    pub env: BTreeMap<String, String>,
}

/// A program that speaks the protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Program and arguments; a name is looked up in PATH. Empty with `entry`.
    pub argv: Vec<OsString>,
    /// First file of a plugin of the TypeScript gateway, inside its folder,
    /// links resolved; what runs it is found when it is started.
    pub entry: Option<PathBuf>,
    /// Further environment.
    pub env: BTreeMap<String, String>,
}

/// What a call of a tool starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A file inside the plugin's folder, links resolved.
    Inside(PathBuf),
    /// A name that is looked up in PATH at each call.
    OnPath(String),
}

/// Reads and checks the `plugin.json` of a folder; the error is all that is
/// wrong with it, a line each.
pub fn read(folder: &Path) -> Result<Manifest, Vec<String>> {
    let value = read_json(folder).map_err(|it| vec![it])?;
    let folder = folder.canonicalize().map_err(|it| vec![format!("{}: {it}", folder.display())])?;
    let mut findings = Findings::default();
    let value = builtins::completed(value).map_err(|it| in_file(vec![it]))?;
    let manifest = parse(folder, &value, &mut findings);
    match manifest {
        Some(manifest) if findings.errors.is_empty() => {
            Ok(Manifest { warnings: in_file(findings.warnings), ..manifest })
        }
        _ => Err(in_file(findings.errors)),
    }
}

/// Which form the plugin of a folder has, in a word, also where it is not sound.
pub fn form(folder: &Path) -> &'static str {
    let Ok(value) = read_json(folder) else { return "unknown" };
    match ["command", "builtin", "entry", "tools"].into_iter().find(|it| value.get(it).is_some()) {
        Some("command") => "server",
        Some("builtin") => "builtin",
        Some("tools") => "run",
        Some(_) => "typescript",
        None if folder.join(entry::INDEX).exists() => "typescript",
        None if value["provides"]["skills"].is_array() => "skills",
        None => "unknown",
    }
}

/// Whether it is `[a-z0-9][a-z0-9_-]{0,39}`.
pub fn is_name(name: &str) -> bool {
    let plain = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    name.len() <= 40
        && name.starts_with(plain)
        && name.chars().all(|it| plain(it) || it == '_' || it == '-')
}

/// Whether no plugin may be called so.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Adds a line to `wrong` for each variable that a process cannot be given or
/// that is beige's to set.
pub fn check_env(at: &str, env: &BTreeMap<String, String>, wrong: &mut Vec<String>) {
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            wrong.push(format!("{at}: {name:?} is not a name of a variable"));
        } else if name.starts_with("BEIGE_") {
            wrong.push(format!("{at}.{name}: names that begin with BEIGE_ are beige's own"));
        } else if value.contains('\0') {
            wrong.push(format!("{at}.{name}: a value cannot hold a NUL byte"));
        }
    }
}

fn in_file(findings: Vec<String>) -> Vec<String> {
    findings.into_iter().map(|it| format!("plugin.json: {it}")).collect()
}

fn parse(folder: PathBuf, value: &Value, findings: &mut Findings) -> Option<Manifest> {
    let fields = Fields::of("", value, findings)?;
    fields.warn_of_unknown(
        &[
            "name",
            "description",
            "commands",
            "provides",
            "tools",
            "private",
            "configSchema",
            "defaultConfig",
            "command",
            "timeoutSeconds",
            "env",
            "builtin",
            "entry",
            // Said by many who write packages; they mean nothing here.
            "version",
            "$schema",
        ],
        findings,
    );
    let name = plugin_name(&fields, findings);
    refuse_other_forms(&folder, &fields, findings);
    let shared = Shared {
        plugin: name.clone().unwrap_or_default(),
        description: fields.text("description", findings),
        commands: fields.texts("commands", findings).unwrap_or_default(),
        folder: folder.clone(),
    };
    // Also where the server is wrong: nothing more is told for that.
    let is_server = is_server(&folder, &fields);
    let server = server(&folder, &fields, findings);
    let tools = match is_server {
        true => server_tools(&shared, &fields, findings),
        false => tools(&shared, &fields, findings),
    };
    let (hooks, skills) = check_provides(&fields, is_server, findings);
    Some(Manifest {
        name: name?,
        folder,
        tools,
        server,
        hooks,
        skills,
        private: private(&fields, findings),
        schema: schema(&fields, findings),
        default_config: default_config(&fields, findings),
        warnings: Vec::new(),
    })
}

fn plugin_name(fields: &Fields<'_>, findings: &mut Findings) -> Option<String> {
    if fields.get("name").is_none() {
        findings.errors.push("name: is required".into());
    }
    let name = fields.text("name", findings)?;
    if !is_name(&name) {
        findings.errors.push(format!("name: {name:?} is not [a-z0-9][a-z0-9_-]{{0,39}}"));
    } else if RESERVED.contains(&name.as_str()) {
        findings.errors.push(format!("name: `{name}` is reserved"));
    }
    Some(name)
}

fn is_server(folder: &Path, fields: &Fields<'_>) -> bool {
    let has = |key: &str| fields.get(key).is_some();
    has("command") || has("builtin") || entry::is_there(folder, fields)
}

/// A plugin of a form that is not built would be loaded and do nothing.
fn refuse_other_forms(folder: &Path, fields: &Fields<'_>, findings: &mut Findings) {
    let has = |key: &str| fields.get(key).is_some();
    let is_typescript = entry::is_there(folder, fields);
    if has("builtin") && (has("tools") || has("command") || has("entry")) {
        let what = "builtin: a plugin of beige's own has neither `command`, `entry` nor `tools`";
        findings.errors.push(what.into());
    }
    match (has("tools") && !has("builtin"), is_server(folder, fields)) {
        (true, true) if !is_typescript => findings.errors.push(
            "command: a plugin has either `command` or `tools` with `run`; the server of \
             `command` tells its tools itself, and `provides.tools` names them"
                .into(),
        ),
        (_, true) => {}
        (_, false) => {
            for key in ["timeoutSeconds", "env"].into_iter().filter(|it| has(it)) {
                findings.errors.push(format!("{key}: belongs into an entry of `tools`"));
            }
        }
    }
    if has("tools") || has("command") || has("builtin") || is_typescript {
        return;
    }
    if !gives_skills(fields) {
        findings.errors.push("tools: is required, or `command`, or an index.ts".into());
    }
}

/// The server of a plugin, if it has one.
fn server(folder: &Path, fields: &Fields<'_>, findings: &mut Findings) -> Option<Server> {
    if let Some(name) = fields.text("builtin", findings) {
        let argv = builtins::argv(&name);
        return Some(Server { argv, entry: None, env: env(fields, findings) });
    }
    if entry::is_there(folder, fields) {
        let entry = entry::entry(folder, fields, findings)?;
        return Some(Server { argv: Vec::new(), entry: Some(entry), env: env(fields, findings) });
    }
    fields.get("command")?;
    let argv = argv(fields, "command", findings)?;
    let (program, args) = argv.split_first()?;
    match find_program(folder, program, true) {
        Ok(program) => {
            let program = match program {
                Program::Inside(path) => path.into(),
                Program::OnPath(name) => name.into(),
            };
            let args = args.iter().map(OsString::from);
            let argv = std::iter::once(program).chain(args).collect();
            Some(Server { argv, entry: None, env: env(fields, findings) })
        }
        Err(why) => {
            findings.errors.push(format!("{}: {why}", fields.path("command")));
            None
        }
    }
}

/// The tools that a server promises: those of `provides.tools`, else one that
/// is named as the plugin.
fn server_tools(shared: &Shared, fields: &Fields<'_>, findings: &mut Findings) -> Vec<ToolEntry> {
    let timeout = timeout(fields, findings);
    let mut names = promised(fields).unwrap_or_else(|| vec![shared.plugin.clone()]);
    for name in &names {
        check_tool_name(shared, "provides.tools", name, findings);
    }
    names.sort_unstable();
    names.dedup();
    let tools = names.into_iter().map(|name| ToolEntry {
        description: shared.description.clone().unwrap_or_default(),
        commands: if name == shared.plugin { shared.commands.clone() } else { Vec::new() },
        name,
        way: Way::Server,
        timeout,
    });
    tools.collect()
}

/// What a tool takes from its plugin where it says nothing itself.
struct Shared {
    plugin: String,
    description: Option<String>,
    commands: Vec<String>,
    folder: PathBuf,
}

fn tools(shared: &Shared, fields: &Fields<'_>, findings: &mut Findings) -> Vec<ToolEntry> {
    let Some(list) = fields.list("tools", findings) else { return Vec::new() };
    if list.is_empty() {
        findings.errors.push("tools: must name at least one tool".into());
    }
    let mut tools: Vec<ToolEntry> = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let at = format!("tools[{index}]");
        let Some(tool) =
            Fields::of(&at, value, findings).and_then(|it| tool(shared, &it, findings))
        else {
            continue;
        };
        if tools.iter().any(|it| it.name == tool.name) {
            findings.errors.push(format!("{at}.name: `{}` is there twice", tool.name));
        }
        tools.push(tool);
    }
    tools
}

fn tool(shared: &Shared, fields: &Fields<'_>, findings: &mut Findings) -> Option<ToolEntry> {
    fields.warn_of_unknown(
        &["name", "description", "commands", "run", "flags", "timeoutSeconds", "env"],
        findings,
    );
    let name = tool_name(shared, fields, findings);
    let flags = flags(fields, findings);
    let timeout = timeout(fields, findings);
    let env = env(fields, findings);
    let program = run(shared, fields, flags.is_some(), findings);
    let own_commands = fields.texts("commands", findings);
    let description = fields.text("description", findings);
    let name = name?;
    let shared_commands = if name == shared.plugin { &shared.commands[..] } else { &[] };
    let (program, args) = program?;
    Some(ToolEntry {
        description: description.or_else(|| shared.description.clone()).unwrap_or_default(),
        commands: own_commands.unwrap_or_else(|| shared_commands.to_vec()),
        name,
        way: Way::Run(Run { program, args, flags, env }),
        timeout,
    })
}

fn tool_name(shared: &Shared, fields: &Fields<'_>, findings: &mut Findings) -> Option<String> {
    if fields.get("name").is_none() {
        findings.errors.push(format!("{}: is required", fields.path("name")));
    }
    let name = fields.text("name", findings)?;
    check_tool_name(shared, &fields.path("name"), &name, findings);
    Some(name)
}

fn check_tool_name(shared: &Shared, at: &str, name: &str, findings: &mut Findings) {
    let plugin = &shared.plugin;
    let part = name.strip_prefix(plugin.as_str()).and_then(|it| it.strip_prefix('.'));
    if name != *plugin && !part.is_some_and(is_name) {
        findings.errors.push(format!("{at}: {name:?} must be `{plugin}` or `{plugin}.PART`"));
    }
}

fn run(
    shared: &Shared,
    fields: &Fields<'_>,
    has_flags: bool,
    findings: &mut Findings,
) -> Option<(Program, Vec<String>)> {
    let at = fields.path("run");
    if fields.get("run").is_none() {
        findings.errors.push(format!("{at}: is required"));
    }
    let argv = argv(fields, "run", findings)?;
    let (program, args) = argv.split_first()?;
    match find_program(&shared.folder, program, has_flags) {
        Ok(program) => Some((program, args.to_vec())),
        Err(why) => {
            findings.errors.push(format!("{at}: {why}"));
            None
        }
    }
}

fn timeout(fields: &Fields<'_>, findings: &mut Findings) -> Duration {
    let seconds = fields.whole("timeoutSeconds", findings).unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    if !(1..=MAX_TIMEOUT_SECONDS).contains(&seconds) {
        let at = fields.path("timeoutSeconds");
        findings.errors.push(format!("{at}: must be from 1 to {MAX_TIMEOUT_SECONDS}"));
    }
    Duration::from_secs(seconds)
}

fn env(fields: &Fields<'_>, findings: &mut Findings) -> BTreeMap<String, String> {
    let env = fields.text_map("env", findings).unwrap_or_default();
    check_env(&fields.path("env"), &env, &mut findings.errors);
    env
}

fn private(fields: &Fields<'_>, findings: &mut Findings) -> Vec<String> {
    let private = fields.texts("private", findings).unwrap_or_default();
    for glob in &private {
        let leads_out = glob.split('/').any(|it| it == "..");
        if glob.trim_matches(['/', '.']).is_empty() || leads_out || glob.starts_with('!') {
            findings.errors.push(format!("private: {glob:?} names no file of the plugin"));
        }
    }
    private
}

fn schema(fields: &Fields<'_>, findings: &mut Findings) -> Option<Schema> {
    match Schema::parse("configSchema", fields.get("configSchema")?) {
        Ok(schema) => Some(schema),
        Err(wrong) => {
            findings.errors.extend(wrong);
            None
        }
    }
}

fn default_config(fields: &Fields<'_>, findings: &mut Findings) -> Value {
    let empty = Value::Object(serde_json::Map::new());
    match fields.get("defaultConfig") {
        None => empty,
        Some(value) if value.is_object() => value.clone(),
        Some(other) => {
            let is = kind_of(other);
            findings.errors.push(format!("defaultConfig: must be an object, is {is}"));
            empty
        }
    }
}

#[cfg(test)]
mod tests;
