//! Commands: the model's `exec`, `beige exec` with its streams, and the tools
//! of plugins. Each call into a sandbox carries who makes it in its
//! environment, and nothing else of the host's.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::calls::Registration;
use super::capture::Capture;
use super::live::{Live, Printed};
use super::{Answer, Caller, CommandCall, Equipment, PluginCall, Streams, Toolbox, files, saved};
use crate::error::{Error, Kind, Result};
use crate::plugin;
use crate::sandbox::{self, Exit, Feed, Output};
use crate::worker::Cancel;

/// Longest time limit that can be asked for.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Output of a plugin's tool that is kept, in bytes.
const PLUGIN_OUTPUT: usize = 4 * 1024 * 1024;

/// `exec {command, timeout?}`.
#[derive(Debug, PartialEq)]
pub(super) struct Exec {
    command: String,
    timeout: Duration,
}

impl Exec {
    /// Reads the arguments; the error is for the model.
    pub(super) fn parse(params: &Map<String, Value>, default: Duration) -> Result<Self, String> {
        let command = files::text(params, "command")?;
        if command.trim().is_empty() {
            return Err("`command` is empty: it must be a line for the shell".to_owned());
        }
        if command.contains('\0') {
            return Err("`command` holds a NUL character, which no command line can".to_owned());
        }
        Ok(Self { command, timeout: seconds(params)?.unwrap_or(default) })
    }

    /// What the audit log shows.
    pub(super) fn arguments(&self) -> Vec<String> {
        vec![self.command.clone()]
    }
}

/// Refuses what no process can be given; the error is for the caller.
pub(super) fn checked(mut call: CommandCall) -> Result<CommandCall, String> {
    let has_nul = |text: &[u8]| text.contains(&0);
    if call.argv.is_empty() {
        return Err("`argv` is empty: it must name a command".to_owned());
    }
    if call.argv.iter().any(|it| has_nul(it.as_encoded_bytes())) || has_nul(call.cwd.as_bytes()) {
        return Err("an argument holds a NUL character, which no command line can".to_owned());
    }
    if call.env.iter().any(|(name, value)| {
        name.is_empty()
            || name.contains('=')
            || has_nul(name.as_bytes())
            || has_nul(value.as_bytes())
    }) {
        return Err("`env` holds a name or value that no environment can".to_owned());
    }
    match below_workspace(&call.cwd) {
        Some(relative) => call.cwd = relative.to_owned(),
        None => return Err(format!("the working folder {} leaves /workspace", call.cwd)),
    }
    Ok(call)
}

/// Everything that an act needs beside its own arguments.
pub(super) struct Scene<'a> {
    pub(super) toolbox: &'a Toolbox,
    pub(super) equipment: &'a Equipment,
    pub(super) caller: &'a Caller,
    pub(super) cancel: &'a Cancel,
}

impl Scene<'_> {
    /// The model's `exec`: a line for `/bin/sh`, output kept within bounds and
    /// told as it comes.
    pub(super) fn exec(&self, exec: &Exec, tell: &mut dyn FnMut(String)) -> Result<Answer> {
        let limit = self.equipment.agent.limits.max_tool_output_bytes;
        let registration = self.register()?;
        let command = sandbox::Exec {
            argv: ["/bin/sh", "-c", &exec.command].map(Into::into).into(),
            cwd: String::new(),
            env: self.environment(&registration),
            timeout: Some(exec.timeout),
            save_above: Some(limit as u64),
        };
        let live = Live::new(&self.toolbox.redactor, limit, tell);
        let mut printed = Printed { capture: Capture::new(limit), live };
        let sandbox = &self.equipment.sandbox;
        let exit = sandbox.run(&command, &Feed::empty(), &mut printed, self.cancel)?;
        let lines = last_lines(&exit, exec.timeout);
        let untold = printed.live.end(&lines);
        let bytes = printed.capture.total();
        let text = printed.capture.into_text(exit.saved.as_deref(), &self.toolbox.redactor);
        Ok(Answer { bytes, untold, ..told(exit, &text, &lines) })
    }

    /// `beige exec`: bytes both ways as they are.
    pub(super) fn command(&self, call: CommandCall, streams: Streams<'_>) -> Result<Answer> {
        let registration = self.register()?;
        let mut env = call.env;
        env.extend(self.environment(&registration));
        let command = sandbox::Exec {
            argv: call.argv,
            cwd: call.cwd,
            env,
            timeout: call.timeout,
            save_above: None,
        };
        let mut counted = Counted { output: streams.output, bytes: 0 };
        let sandbox = &self.equipment.sandbox;
        let exit = sandbox.run(&command, streams.feed, &mut counted, self.cancel)?;
        Ok(Answer {
            content: Vec::new(),
            is_error: exit.code != 0,
            bytes: counted.bytes,
            untold: 0,
            exit: Some(exit),
        })
    }

    /// A tool of a plugin, outside every sandbox.
    pub(super) fn plugin(&self, call: PluginCall, line: Option<BorrowedFd<'_>>) -> Result<Answer> {
        let Some(tool) = self.toolbox.registry().tool(&call.tool) else {
            let what = format!("no plugin gives the tool `{}`", call.tool);
            return Err(Error::new(Kind::Missing, what));
        };
        let agent = &self.equipment.agent;
        let config = tool.config_for(agent.plugin_configs.get(&tool.plugin));
        let run = plugin::run::RunCall {
            args: &call.args,
            stdin: call.stdin.as_deref(),
            context: self.plugin_context(&call.cwd),
            config: &config,
            redactor: &self.toolbox.redactor,
        };
        let started = Instant::now();
        let asker = plugin::run::Asker { cancel: self.cancel, line };
        let mut output = self.toolbox.plugins.call(tool, &run, asker, PLUGIN_OUTPUT)?;
        let files = mem::take(&mut output.files);
        saved::save(&self.equipment.sandbox, tool, files, &mut output.text, self.cancel)?;
        let exit = Exit {
            code: output.exit_code,
            timed_out: false,
            cancelled: false,
            note: None,
            saved: None,
            duration: started.elapsed(),
        };
        Ok(Answer {
            is_error: output.exit_code != 0,
            exit: Some(exit),
            ..Answer::text(output.text)
        })
    }

    /// What the plugin is told of the call; all of it verified.
    fn plugin_context(&self, cwd: &str) -> plugin::run::Context {
        let session = self.caller.session.as_ref();
        plugin::run::Context {
            agent_name: self.caller.agent.clone(),
            session_key: session.map(|it| it.session_key.clone()).unwrap_or_default(),
            channel: session.and_then(|it| it.channel.clone()).unwrap_or_default(),
            chat_id: session.and_then(|it| it.chat_id.clone()),
            thread_id: session.and_then(|it| it.thread_id.clone()),
            agent_dir: self.equipment.folder.clone(),
            workspace_dir: self.equipment.agent.workspace.clone(),
            cwd: cwd.to_owned(),
        }
    }

    fn register(&self) -> Result<Registration> {
        self.toolbox.calls.register(&self.caller.agent, self.caller.session.as_ref())
    }

    fn environment(&self, registration: &Registration) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        let mut set = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                env.insert(name.to_owned(), value.to_owned());
            }
        };
        let session = self.caller.session.as_ref();
        set("BEIGE_CALL", Some(registration.token()));
        set("BEIGE_SOCKET", self.toolbox.socket.as_deref());
        set("BEIGE_AGENT_NAME", Some(&self.caller.agent));
        set("BEIGE_SESSION_KEY", session.map(|it| it.session_key.as_str()));
        set("BEIGE_CHANNEL", session.and_then(|it| it.channel.as_deref()));
        set("BEIGE_CHAT_ID", session.and_then(|it| it.chat_id.as_deref()));
        set("BEIGE_THREAD_ID", session.and_then(|it| it.thread_id.as_deref()));
        env
    }
}

/// A path relative to `/workspace`, also if it was given from the root; `None`
/// if it leaves the workspace, as text. The sandbox is the wall for what links
/// do.
pub fn below_workspace(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("/workspace").filter(|it| it.is_empty() || it.starts_with('/'));
    let relative = inside.map_or(path, |it| it.trim_start_matches('/'));
    stays_below(relative).then_some(relative)
}

fn stays_below(path: &str) -> bool {
    use std::path::{Component, Path};
    let mut depth = 0_i32;
    for part in Path::new(path).components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::ParentDir => depth -= 1,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return false,
        }
        if depth < 0 {
            return false;
        }
    }
    true
}

/// How a command ended when that was not by itself.
fn last_lines(exit: &Exit, timeout: Duration) -> Vec<String> {
    let mut lines: Vec<String> = exit.note.iter().map(|it| format!("[{it}]")).collect();
    if exit.timed_out {
        lines.push(format!("timed out after {} s, process tree killed", timeout.as_secs_f64()));
    } else if exit.cancelled {
        lines.push("called off, process tree killed".to_owned());
    }
    lines
}

/// `Exit code: N`, the output, and those lines.
fn told(exit: Exit, output: &str, lines: &[String]) -> Answer {
    let mut text = format!("Exit code: {}\n{output}", exit.code);
    for line in lines {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(line);
    }
    let is_error = exit.code != 0 || exit.timed_out || exit.cancelled;
    Answer { is_error, exit: Some(exit), ..Answer::text(text) }
}

/// `timeout` in seconds, fractions allowed, also as a string of digits.
fn seconds(params: &Map<String, Value>) -> Result<Option<Duration>, String> {
    let number = match params.get("timeout") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => other.as_f64(),
    };
    let duration = number.and_then(|it| Duration::try_from_secs_f64(it).ok());
    match duration {
        Some(it) if !it.is_zero() && it <= MAX_TIMEOUT => Ok(Some(it)),
        _ => Err("`timeout` must be a number of seconds, above 0 and at most 30 days".to_owned()),
    }
}

/// Counts what passes.
struct Counted<'a> {
    output: &'a mut dyn Output,
    bytes: u64,
}

impl Output for Counted<'_> {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.output.stdout(bytes)
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.output.stderr(bytes)
    }

    fn window(&mut self, bytes: u32) -> io::Result<()> {
        self.output.window(bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_working_folder_stays_in_the_workspace() {
        #[track_caller]
        fn check(path: &str, want: Option<&str>) {
            assert_eq!(below_workspace(path), want, "{path}");
        }
        check("", Some(""));
        check("a/b/../c", Some("a/b/../c"));
        check("./a", Some("./a"));
        check("/workspace", Some(""));
        check("/workspace//a/b", Some("a/b"));
        check("..", None);
        check("a/../../etc", None);
        check("/etc", None);
        check("/workspaces/a", None);
        check("/workspace/..", None);
        check("/workspace/a/../../../etc", None);
    }

    #[test]
    fn a_time_limit_is_a_number_of_seconds() {
        #[track_caller]
        fn check(value: Value, want: Option<u64>) {
            let params = json!({"command": "true", "timeout": value});
            let exec = Exec::parse(params.as_object().unwrap(), Duration::from_secs(900));
            assert_eq!(exec.ok().map(|it| it.timeout.as_millis() as u64), want);
        }
        check(Value::Null, Some(900_000));
        check(json!(2), Some(2_000));
        check(json!(0.25), Some(250));
        check(json!("3"), Some(3_000));
        check(json!(0), None);
        check(json!(-1), None);
        check(json!(1e300), None);
        check(json!("soon"), None);
    }
}
