//! One call of a `run` tool: a process on the gateway's host, in the plugin's
//! folder, with a cleared environment. [`call`] checks what an agent gives,
//! [`command`] is the pure function to the argv, and the answer is what the
//! process printed. Nothing here asks whether the agent may: the toolbox did.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{During, Error, Kind, Result};
use crate::plugin::Tool;
pub use crate::plugin::child::Asker;
use crate::plugin::child::{self, Bounds, Captured, Ended, Reason};
use crate::plugin::manifest::{Program, Run};
use crate::secret::Redactor;

/// Bytes of standard output that are kept unless the caller wants fewer.
pub const MAX_OUTPUT: usize = 4 * 1024 * 1024;

/// Bytes of standard error that are kept.
pub const MAX_STDERR: usize = 64 * 1024;

/// Most bytes of all arguments of a call.
pub const MAX_ARGS: usize = 1024 * 1024;

/// Most bytes of one argument or variable, its end mark included: Linux takes
/// no more (`MAX_ARG_STRLEN`).
const MAX_ONE: usize = 128 * 1024;

/// Exit code of a call that is refused for its flags before anything runs.
const REFUSED: i32 = 2;

/// Exit code of a call whose time was up.
pub(super) const TIMED_OUT: i32 = 124;

/// What of the gateway's own environment a plugin gets.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// A call, as it comes from an agent.
#[derive(Clone, Debug)]
pub struct RunCall<'a> {
    /// Follow the arguments of the manifest.
    pub args: &'a [String],
    /// Standard input, if any was piped.
    pub stdin: Option<&'a str>,
    /// On whose behalf; verified by the caller.
    pub context: Context,
    /// The merged configuration ([`Tool::config_for`]).
    pub config: &'a Value,
    /// Knows the secrets of which no half is left where the output is cut. It
    /// masks none of it.
    pub redactor: &'a Redactor,
}

/// The context that a plugin is given with each call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Context {
    /// The agent.
    pub agent_name: String,
    /// `channel:id[:thread]`.
    pub session_key: String,
    /// `tui`, `api`, `cli`, `socket`, ….
    pub channel: String,
    /// Chat, where the channel has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<String>,
    /// Thread, where the channel has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The agent's folder on the host; a plugin may keep its files there.
    pub agent_dir: PathBuf,
    /// The agent's workspace on the host. Its content is the agent's: names in
    /// it may be links.
    pub workspace_dir: PathBuf,
    /// Below `/workspace`; empty is the workspace itself.
    pub cwd: String,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Standard output, and after a failure standard error too; UTF-8, and
    /// what was not is marked.
    pub text: String,
    /// 128+n after signal n; 124 after the time limit; 2 for a refused flag.
    pub exit_code: i32,
    /// Whether something was left out; the text says how much.
    pub truncated: bool,
    /// What is no text: to be saved where the agent finds it.
    pub files: Vec<SavedFile>,
}

/// A file that a tool answers with. It has no name: that is made where it is
/// saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedFile {
    /// What it is, for who cannot have it.
    pub what: String,
    /// How its name ends, without the dot.
    pub ending: &'static str,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Output {
    /// All of a text, and nothing else.
    pub(super) fn of(text: impl Into<String>, exit_code: i32) -> Self {
        Self { text: text.into(), exit_code, truncated: false, files: Vec::new() }
    }
}

/// Runs a call to its end and keeps at most `cap` bytes of its output.
///
/// Errors: [`Kind::Usage`] (a NUL), [`Kind::TooLarge`] (arguments over their
/// bound), [`Kind::Busy`] (the program is just being written),
/// [`Kind::Cancelled`] (the tree was killed), [`Kind::Internal`] (it could not
/// be started).
pub fn call(
    tool: &Tool,
    run: &Run,
    call: &RunCall<'_>,
    asker: Asker<'_>,
    cap: usize,
) -> Result<Output> {
    if let Some(flag) = refused_flag(run.flags.as_deref(), call.args) {
        return Ok(refusal(tool, run, flag));
    }
    check_args(call.args)?;
    let inherited = inherited();
    let mut command = command(tool, run, &program(tool, run, &inherited), call, &inherited)?;
    check_env(&command)?;
    let bounds = Bounds { timeout: tool.timeout, stdout: cap, stderr: MAX_STDERR };
    let stdin = call.stdin.map(str::as_bytes);
    let ended = child::run(&mut command, stdin, bounds, asker)
        .map_err(|it| it.within(format!("run the tool `{}`", tool.name)))?;
    answer(tool, ended, call.redactor)
}

/// The process of a call. Pure: `program` is where the tool's was found, and
/// `inherited` what it gets of the gateway's environment; whatever else that
/// holds is not passed on.
pub fn command(
    tool: &Tool,
    run: &Run,
    program: &Path,
    call: &RunCall<'_>,
    inherited: &[(String, OsString)],
) -> Result<Command> {
    let mut command = Command::new(program);
    if let Program::OnPath(name) = &run.program {
        command.arg0(name);
    }
    command.args(&run.args).args(call.args).current_dir(&tool.folder).env_clear();
    command.envs(inherited.iter().map(|(name, value)| (name, value)));
    // Last, so that nothing a manifest or configuration says stands over them.
    command.envs(&run.env).envs(context_env(tool, call)?);
    Ok(command)
}

/// `BEIGE_CONTEXT`: the context's own fields, and beside them the tool and its
/// configuration.
#[derive(Serialize)]
struct WholeContext<'a> {
    tool: &'a str,
    config: &'a Value,
    #[serde(flatten)]
    context: &'a Context,
}

fn context_env(tool: &Tool, call: &RunCall<'_>) -> Result<Vec<(&'static str, OsString)>> {
    let context = &call.context;
    let whole = WholeContext { tool: &tool.name, config: call.config, context };
    let json = serde_json::to_string(&whole).during(Kind::Internal, "write BEIGE_CONTEXT")?;
    let text = |it: &str| Some(OsString::from(it));
    let path = |it: &Path| Some(it.as_os_str().to_owned());
    let variables = [
        ("BEIGE_AGENT_NAME", text(&context.agent_name)),
        ("BEIGE_SESSION_KEY", text(&context.session_key)),
        ("BEIGE_CHANNEL", text(&context.channel)),
        ("BEIGE_CHAT_ID", context.chat_id.as_deref().and_then(text)),
        ("BEIGE_THREAD_ID", context.thread_id.as_deref().and_then(text)),
        ("BEIGE_AGENT_DIR", path(&context.agent_dir)),
        ("BEIGE_WORKSPACE_DIR", path(&context.workspace_dir)),
        ("BEIGE_CWD", text(&context.cwd)),
        ("BEIGE_TOOL", text(&tool.name)),
        ("BEIGE_CONTEXT", text(&json)),
    ];
    Ok(variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// What a plugin gets of the gateway's own environment.
pub(super) fn inherited() -> Vec<(String, OsString)> {
    INHERITED.into_iter().filter_map(|it| Some((it.to_owned(), env::var_os(it)?))).collect()
}

/// Where the program of a tool is. A name is looked up here and not by the
/// start, which would have to copy the gateway first to look as the plugin;
/// one that is not found is left to it, which says why.
fn program(tool: &Tool, run: &Run, inherited: &[(String, OsString)]) -> PathBuf {
    let name = match &run.program {
        Program::Inside(path) => return path.clone(),
        Program::OnPath(name) => name,
    };
    let of_tool = run.env.get("PATH").map(OsStr::new);
    let of_gateway = || inherited.iter().find(|(it, _)| *it == "PATH").map(|(_, it)| &**it);
    let folders = of_tool.or_else(of_gateway).unwrap_or_default();
    on_path(name, folders, &tool.folder).next().unwrap_or(name.into())
}

/// The programs of that name in these folders, as a plugin would see them, which
/// starts in its own.
pub(super) fn on_path(name: &str, folders: &OsStr, own: &Path) -> impl Iterator<Item = PathBuf> {
    let places = env::split_paths(folders).map(move |it| own.join(it).join(name));
    places.filter(|it| it.is_file() && access(it, Access::EXEC_OK).is_ok())
}

/// The first argument that begins with `-` and is not on the list. Programs
/// differ in what ends their options, so `--`, `-` and all that follows `--`
/// must be on the list like any other; `--x=value` is compared up to the `=`.
fn refused_flag<'a>(flags: Option<&[String]>, args: &'a [String]) -> Option<&'a str> {
    let flags = flags?;
    args.iter().map(String::as_str).filter(|it| it.starts_with('-')).find(|it| {
        let name = it.split_once('=').map_or(*it, |(name, _)| name);
        !flags.iter().any(|flag| flag == name)
    })
}

fn refusal(tool: &Tool, run: &Run, flag: &str) -> Output {
    let allowed = run.flags.as_deref().unwrap_or_default();
    let allowed = match allowed.is_empty() {
        true => "no argument may begin with `-`".to_owned(),
        false => format!("allowed are {}", allowed.join(", ")),
    };
    let shown: String = flag.chars().take(200).collect();
    let text = format!("`{}` does not take {shown:?}: {allowed}\n", tool.name);
    Output::of(text, REFUSED)
}

pub(super) fn check_args(args: &[String]) -> Result<()> {
    if args.iter().any(|it| it.contains('\0')) {
        return Err(Error::new(Kind::Usage, "an argument cannot hold a NUL byte"));
    }
    if args.iter().map(|it| it.len() + 1).sum::<usize>() > MAX_ARGS {
        let text = "the arguments are longer than 1 MiB; long text can come on standard input";
        return Err(Error::new(Kind::TooLarge, text));
    }
    if args.iter().any(|it| it.len() >= MAX_ONE) {
        let text = "an argument is longer than 128 KiB; long text can come on standard input";
        return Err(Error::new(Kind::TooLarge, text));
    }
    Ok(())
}

/// Names the variable that cannot be passed, where the system would only say
/// that something is too long.
fn check_env(command: &Command) -> Result<()> {
    for (name, value) in command.get_envs() {
        let bytes = value.unwrap_or_default().as_encoded_bytes();
        let name = name.display();
        if bytes.contains(&0) {
            return Err(Error::new(Kind::Usage, format!("{name} cannot hold a NUL byte")));
        }
        if bytes.len() + 64 >= MAX_ONE {
            let text = format!("{name} is longer than 128 KiB, and Linux passes on no more");
            return Err(Error::new(Kind::TooLarge, text));
        }
    }
    Ok(())
}

fn answer(tool: &Tool, ended: Ended, redactor: &Redactor) -> Result<Output> {
    if ended.killed == Some(Reason::Cancelled) {
        let text = format!("the tool `{}` was called off and killed", tool.name);
        return Err(Error::new(Kind::Cancelled, text));
    }
    let timed_out = ended.killed == Some(Reason::Timeout);
    let exit_code = if timed_out { TIMED_OUT } else { ended.code };
    let mut truncated = ended.stdout.dropped > 0;
    let mut text = text_of(&ended.stdout, redactor);
    let complaints = text_of(&ended.stderr, redactor);
    if exit_code == 0 {
        for line in complaints.lines() {
            let line = line.replace(char::is_control, " ");
            log::debug!(target: "plugin", "{}: {line}", tool.plugin);
        }
        return Ok(Output { truncated, ..Output::of(text, exit_code) });
    }
    truncated |= ended.stderr.dropped > 0;
    add_part(&mut text, &complaints);
    if timed_out {
        add_part(&mut text, &format!("timed out after {} s\n", tool.timeout.as_secs()));
    }
    Ok(Output { truncated, ..Output::of(text, exit_code) })
}

/// What was kept, decoded at once, with a note on what is missing or could
/// not be read.
fn text_of(captured: &Captured, redactor: &Redactor) -> String {
    let mut whole = without_half_character(captured);
    if captured.dropped > 0 {
        whole = redactor.without_beginning(whole);
    }
    let cut = (captured.bytes.len() - whole.len()) as u64 + captured.dropped;
    let mut text = String::from_utf8_lossy(whole).into_owned();
    if std::str::from_utf8(whole).is_err() {
        add_part(
            &mut text,
            "[not UTF-8: the bytes that could not be read are shown as \u{FFFD}]\n",
        );
    }
    if captured.dropped > 0 {
        add_part(&mut text, &format!("[{cut} more bytes were left out]\n"));
    }
    text
}

/// A bound may fall inside a character; that is no invalid output.
fn without_half_character(captured: &Captured) -> &[u8] {
    let bytes = &captured.bytes[..];
    if captured.dropped == 0 {
        return bytes;
    }
    // A character has at most four bytes: only the last three can be half one.
    let border = bytes.len().saturating_sub(3);
    let start = (border..bytes.len()).rev().find(|it| bytes[*it] & 0xC0 != 0x80);
    match start.map(|it| (it, std::str::from_utf8(&bytes[it..]))) {
        Some((start, Err(error))) if error.error_len().is_none() => &bytes[..start],
        _ => bytes,
    }
}

/// Adds a part that begins on a line of its own.
fn add_part(text: &mut String, part: &str) {
    if !text.is_empty() && !text.ends_with('\n') && !part.is_empty() {
        text.push('\n');
    }
    text.push_str(part);
}

#[cfg(test)]
mod tests;
