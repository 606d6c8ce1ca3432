//! `--file`, and what a thread of PID 1 does for the link: reads, lists, writes
//! and patches inside the sandbox, where links cannot lead out and no program of
//! the image is needed. One request, the bytes as frames in either direction,
//! one result. Nothing here waits on a FIFO or a device, and no memory grows with
//! a file, but for a patch's, which is bounded.
//!
//! A failure is an object `{error, code, …}`; `code` is what the gateway
//! branches on, `error` is for whoever asked: path, cause, and what to do.

mod diff;
mod failure;
mod listing;
mod near;
mod nearest;
mod open;
mod patch;
mod read;
mod replace;
mod root;
mod talk;
mod text;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde_json::{Value, json};

use crate::conversation::Conversation;
use crate::fields::Fields;
use crate::supervise::request::workspace;

use failure::{Code, Failure};
use root::Root;
use talk::Talk;

/// What is to be done with a path.
#[derive(Debug, PartialEq, Eq)]
enum Op {
    /// Shows it: text by lines, an image, a folder, or what else it is.
    Read(read::Bounds),
    /// Gives its raw bytes, so many at most.
    Fetch(u64),
    /// Replaces or makes it with so many bytes that follow.
    Write(u64),
    /// Replaces one place in it; so many bytes of old, then of new text follow.
    Patch(u64, u64),
    /// Says what it is.
    Stat,
}

/// A path as it was asked for and as it is opened.
struct Place<'a> {
    /// Beneath which it is opened.
    root: &'a Root,
    /// For messages.
    asked: PathBuf,
    /// Absolute.
    path: PathBuf,
}

/// Runs the role; the exit code is 0 whenever a result was delivered.
pub(crate) fn run() -> ExitCode {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let Ok(conversation) = Conversation::standard() else { return ExitCode::FAILURE };
    match Root::open() {
        Ok(root) => serve(conversation, &root),
        Err(_) => ExitCode::FAILURE,
    }
}

/// What the threads of PID 1 have open from the start, so that they need little
/// when little is left.
pub(crate) struct Inside(Option<Root>);

impl Inside {
    /// Opens it.
    pub(crate) fn open() -> Self {
        Self(Root::open().ok().filter(Root::is_scoped))
    }

    /// Does the one operation that is asked for there. Where the kernel does not
    /// resolve paths as that needs, the conversation ends before it began, and
    /// the gateway enters by `--file`.
    pub(crate) fn serve(&self, conversation: Conversation) {
        if let Some(root) = &self.0 {
            serve(conversation, root);
        }
    }
}

fn serve(mut conversation: Conversation, root: &Root) -> ExitCode {
    let asked = match conversation.request() {
        Ok(Some(bytes)) => parse(&bytes),
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => Err(error.to_string()),
    };
    let (op, asked, path) = match asked {
        Ok(it) => it,
        Err(error) => {
            conversation.finish(&Failure::new(Code::Other, error).to_json());
            return ExitCode::FAILURE;
        }
    };
    let place = Place { root, asked, path };
    let result = act(&mut Talk::new(&mut conversation), &op, &place);
    conversation.finish(&result.unwrap_or_else(|it| it.to_json()));
    ExitCode::SUCCESS
}

fn act(talk: &mut Talk<'_>, op: &Op, place: &Place<'_>) -> Result<Value, Failure> {
    match op {
        Op::Read(bounds) => read::read(talk, place, bounds),
        Op::Fetch(most) => read::fetch(talk, place, *most),
        Op::Write(bytes) => replace::write(talk, place, *bytes),
        Op::Patch(old, new) => patch::patch(talk, place, *old, *new),
        Op::Stat => open::stat(place),
    }
}

/// What is to be done, the path as it was asked for, and the absolute one.
fn parse(bytes: &[u8]) -> Result<(Op, PathBuf, PathBuf), String> {
    let mut fields = Fields::parse(bytes)?;
    let name = fields.text("op")?.unwrap_or_default();
    let workspace = workspace(&mut fields)?;
    let asked = PathBuf::from(fields.bytes("path")?.unwrap_or_default());
    if asked.as_os_str().is_empty() {
        return Err("the path is empty; name a file".into());
    }
    let op = match name.as_str() {
        "read" => Op::Read(read::Bounds::parse(&mut fields)?),
        "fetch" => Op::Fetch(needed(&mut fields, "max")?),
        "write" => Op::Write(needed(&mut fields, "bytes")?),
        "patch" => Op::Patch(needed(&mut fields, "oldBytes")?, needed(&mut fields, "newBytes")?),
        "stat" => Op::Stat,
        it => return Err(format!("`op` is {it:?}, not read, fetch, write, patch or stat")),
    };
    fields.finish()?;
    let path = workspace.join(&asked);
    Ok((op, asked, path))
}

fn needed(fields: &mut Fields, name: &str) -> Result<u64, String> {
    fields.number(name)?.ok_or_else(|| format!("`{name}` is missing"))
}

impl Place<'_> {
    /// Whether the path says itself that it is a folder's.
    fn names_a_folder(&self) -> bool {
        self.asked.as_os_str().as_bytes().ends_with(b"/") || self.path.file_name().is_none()
    }
}

/// The part of every result that says how large the file is now.
fn sized(bytes: u64) -> Value {
    json!({ "bytes": bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Result<(Op, &str), &str>) {
        let got = parse(text.as_bytes()).map(|(op, _, path)| (op, path));
        assert_eq!(got, want.map(|(op, path)| (op, path.into())).map_err(String::from));
    }

    #[test]
    fn a_path_is_below_the_workspace_or_absolute() {
        check(r#"{"op":"stat","path":"a b"}"#, Ok((Op::Stat, "/workspace/a b")));
        check(r#"{"op":"stat","path":"--version"}"#, Ok((Op::Stat, "/workspace/--version")));
        check(r#"{"op":"stat","path":"/tmp/x"}"#, Ok((Op::Stat, "/tmp/x")));
        check(r#"{"op":"write","path":"x","bytes":3}"#, Ok((Op::Write(3), "/workspace/x")));
    }

    #[test]
    fn what_is_not_asked_properly_is_refused() {
        check(r#"{"op":"stat"}"#, Err("the path is empty; name a file"));
        check(r#"{"op":"stat","path":"a\u0000"}"#, Err("`path` holds a NUL byte"));
        check(r#"{"op":"write","path":"x"}"#, Err("`bytes` is missing"));
        check(
            r#"{"op":"rm","path":"x"}"#,
            Err("`op` is \"rm\", not read, fetch, write, patch or stat"),
        );
        check(r#"{"op":"stat","path":"x","max":1}"#, Err("`max` is not a known field"));
    }
}
