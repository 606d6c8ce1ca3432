//! Starts the command: looks it up on the PATH that it will have itself, sets
//! the limits, gives it three pipes and a process group of its own. A command
//! that cannot be started gets the exit code that a shell gives: 127 when
//! there is none of that name, 126 for every other reason.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Access, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, chdir, pidfd_open, setrlimit};
use serde_json::{Value, json};

use super::request::Request;

/// Where programs are when the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command that has begun.
pub(crate) struct Running {
    /// Its main process, which is also its process group.
    pub(crate) pid: Pid,
    /// Becomes readable when the main process has ended.
    pub(crate) pidfd: OwnedFd,
    /// Our ends of its pipes; none of them blocks.
    pub(crate) stdin: OwnedFd,
    /// See `stdin`.
    pub(crate) stdout: OwnedFd,
    /// See `stdin`.
    pub(crate) stderr: OwnedFd,
}

/// A command that could not be started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotStarted {
    code: i32,
    why: String,
}

impl NotStarted {
    /// The report for the gateway: nothing has run.
    pub(crate) fn report(&self) -> Value {
        json!({
            "exitCode": self.code, "startError": self.why, "timedOut": false, "cancelled": false,
            "stdoutBytes": 0, "stderrBytes": 0, "left": 0, "durationMs": 0,
        })
    }
}

/// Starts the command.
pub(crate) fn start(request: &Request) -> Result<Running, NotStarted> {
    let Some(name) = request.argv.first() else {
        return Err(NotStarted { code: 127, why: "no command was given".into() });
    };
    enter(&request.cwd)?;
    let path = request.env.get(OsStr::new("PATH")).map_or(OsStr::new(DEFAULT_PATH), |it| it);
    let program = look_up(name, path, &request.cwd)?;
    limit(request).map_err(|it| cannot(126, name, &format!("its limits cannot be set: {it}")))?;
    let child = spawn(request, &program).map_err(|it| not_spawned(name, &it))?;
    attend(child).map_err(|it| cannot(126, name, &it.to_string()))
}

/// Goes to the command's folder. That this process does it, and not the child,
/// makes a start cheaper: with a folder of its own to go to, the child would be
/// a copy of this process at first.
fn enter(cwd: &Path) -> Result<(), NotStarted> {
    let why = match chdir(cwd) {
        Ok(()) => return Ok(()),
        Err(Errno::NOTDIR) => "it is not a folder".to_owned(),
        Err(error) => io::Error::from(error).to_string(),
    };
    let why = format!("cannot run in the folder {}: {why}", cwd.display());
    Err(NotStarted { code: 126, why })
}

/// The file to execute. A name with a slash is a path from the folder of the
/// command; any other is looked up.
fn look_up(name: &OsStr, path: &OsStr, cwd: &Path) -> Result<PathBuf, NotStarted> {
    if name.is_empty() {
        return Err(NotStarted { code: 127, why: "the command is empty".into() });
    }
    if name.as_bytes().contains(&b'/') {
        return match executable(&cwd.join(name)) {
            Ok(true) => Ok(name.into()),
            Ok(false) => Err(cannot(126, name, "it is a folder or no regular file")),
            Err(Errno::ACCESS) => Err(cannot(126, name, "permission denied")),
            Err(error) => Err(cannot(127, name, &io::Error::from(error).to_string())),
        };
    }
    let mut forbidden = false;
    for folder in path.as_bytes().split(|it| *it == b':') {
        // An empty part of PATH is the current folder.
        let folder = cwd.join(OsStr::from_bytes(folder));
        let file = folder.join(name);
        match executable(&file) {
            Ok(true) => return Ok(file),
            Ok(false) | Err(Errno::ACCESS) => forbidden = true,
            Err(_) => {}
        }
    }
    if forbidden {
        return Err(cannot(126, name, "permission denied"));
    }
    Err(cannot(127, name, "command not found"))
}

/// Whether it is a regular file; an error if it is none that may be executed.
fn executable(file: &Path) -> Result<bool, Errno> {
    let found = fs::metadata(file).map_err(|it| Errno::from_io_error(&it).unwrap_or(Errno::IO))?;
    if !found.is_file() {
        return Ok(false);
    }
    access(file, Access::EXEC_OK).map(|()| true)
}

/// Sets the limits on this process: the command inherits them, and only it
/// starts processes from here on.
fn limit(request: &Request) -> Result<(), Errno> {
    let both = |it| Rlimit { current: Some(it), maximum: Some(it) };
    let limits = [
        (Resource::Core, Some(0)),
        (Resource::Nproc, request.processes),
        (Resource::Data, request.data_bytes),
    ];
    for (resource, limit) in limits {
        if let Some(limit) = limit {
            setrlimit(resource, both(limit))?;
        }
    }
    Ok(())
}

fn spawn(request: &Request, program: &Path) -> io::Result<Child> {
    match command(request, program.as_os_str(), &[]).spawn() {
        // A script without `#!`: as in every shell, the shell's.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOEXEC) => {
            command(request, OsStr::new("/bin/sh"), &[program.as_os_str()]).spawn()
        }
        it => it,
    }
}

fn command(request: &Request, program: &OsStr, first: &[&OsStr]) -> Command {
    let mut command = Command::new(program);
    if first.is_empty() {
        command.arg0(&request.argv[0]);
    }
    command
        .args(first)
        .args(&request.argv[1..])
        .env_clear()
        .envs(&request.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

fn not_spawned(name: &OsStr, error: &io::Error) -> NotStarted {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => cannot(127, name, "the interpreter that it names is missing"),
        Some(Errno::NOEXEC) => cannot(126, name, "it is no program for this machine"),
        Some(Errno::TOOBIG) => cannot(126, name, "its arguments are too long"),
        Some(Errno::AGAIN) => cannot(126, name, "there are too many processes in the sandbox"),
        _ => cannot(126, name, &error.to_string()),
    }
}

/// Takes the child over: its pipes, set not to block, and a descriptor for its
/// end.
fn attend(mut child: Child) -> io::Result<Running> {
    let pid = Pid::from_child(&child);
    let missing = || io::Error::other("a pipe is missing");
    let ends = [
        child.stdin.take().map(OwnedFd::from).ok_or_else(missing)?,
        child.stdout.take().map(OwnedFd::from).ok_or_else(missing)?,
        child.stderr.take().map(OwnedFd::from).ok_or_else(missing)?,
    ];
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
        for end in &ends {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        Ok(pidfd)
    });
    let pidfd = pidfd.inspect_err(|_| drop(child.kill()))?;
    let [stdin, stdout, stderr] = ends;
    Ok(Running { pid, pidfd, stdin, stdout, stderr })
}

fn cannot(code: i32, name: &OsStr, why: &str) -> NotStarted {
    NotStarted { code, why: format!("cannot run {}: {why}", OsString::from(name).display()) }
}
