//! What the gateway asks for, read strictly and with every bound checked
//! before anything is done.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::fields::{Fields, os_string};

/// Output kept in memory before it is saved; a request may ask for less.
const MOST_ABOVE: u64 = 1024 * 1024;

/// A command to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Program and arguments; never empty.
    pub(crate) argv: Vec<OsString>,
    /// The folder it starts in, absolute.
    pub(crate) cwd: PathBuf,
    /// Its whole environment.
    pub(crate) env: BTreeMap<OsString, OsString>,
    /// After which its tree is killed.
    pub(crate) timeout: Option<Duration>,
    /// `RLIMIT_NPROC`.
    pub(crate) processes: Option<u64>,
    /// `RLIMIT_DATA`, in bytes.
    pub(crate) data_bytes: Option<u64>,
    /// Whether and how its output is saved.
    pub(crate) save: Option<Save>,
    /// The workspace; `/workspace` but in tests.
    pub(crate) workspace: PathBuf,
}

/// How output is saved in the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Save {
    /// Only output of more bytes than these.
    pub(crate) above: u64,
    /// Bytes after which the saved file grows no more.
    pub(crate) cap: u64,
    /// Saved files that stay; older ones are removed.
    pub(crate) keep: u64,
}

impl Request {
    /// Reads a request; `Err` says what is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut fields = Fields::parse(bytes)?;
        let workspace = workspace(&mut fields)?;
        let cwd = fields.bytes("cwd")?.unwrap_or_default();
        let limits = fields.object("limits")?;
        let (processes, data_bytes) = limits.map_or(Ok((None, None)), parse_limits)?;
        let request = Self {
            argv: parse_argv(fields.take("argv"))?,
            cwd: workspace.join(cwd),
            env: fields.object("env")?.map_or(Ok(BTreeMap::new()), parse_env)?,
            timeout: fields.number("timeoutMs")?.map(Duration::from_millis),
            processes,
            data_bytes,
            save: fields.object("save")?.map(parse_save).transpose()?,
            workspace,
        };
        fields.finish()?;
        Ok(request)
    }
}

/// The field `workspace`: an absolute folder, `/workspace` when absent.
/// Tests give another.
pub(crate) fn workspace(fields: &mut Fields) -> Result<PathBuf, String> {
    let workspace = fields.bytes("workspace")?.map_or_else(|| "/workspace".into(), PathBuf::from);
    if workspace.is_absolute() {
        Ok(workspace)
    } else {
        Err("`workspace` is not an absolute path".into())
    }
}

fn parse_argv(value: Option<Value>) -> Result<Vec<OsString>, String> {
    let Some(Value::Array(items)) = value else {
        return Err("`argv` is not an array".into());
    };
    if items.is_empty() {
        return Err("`argv` is empty".into());
    }
    items.into_iter().map(|it| os_string(it, "argv")).collect()
}

fn parse_env(fields: Fields) -> Result<BTreeMap<OsString, OsString>, String> {
    let mut env = BTreeMap::new();
    for (name, value) in fields.into_rest() {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(format!("`env` holds the name {name:?}"));
        }
        let value = os_string(value, &name)?;
        env.insert(name.into(), value);
    }
    Ok(env)
}

fn parse_limits(mut fields: Fields) -> Result<(Option<u64>, Option<u64>), String> {
    let limits = (fields.number("processes")?, fields.number("dataBytes")?);
    fields.finish()?;
    Ok(limits)
}

fn parse_save(mut fields: Fields) -> Result<Save, String> {
    let mut bound =
        |name: &str| fields.number(name)?.ok_or_else(|| format!("`save` has no `{name}`"));
    let save =
        Save { above: bound("above")?.min(MOST_ABOVE), cap: bound("cap")?, keep: bound("keep")? };
    fields.finish()?;
    Ok(save)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[track_caller]
    fn check(text: &str, want: Result<Request, &str>) {
        assert_eq!(Request::parse(text.as_bytes()), want.map_err(String::from));
    }

    #[track_caller]
    fn refused(text: &str, why: &str) {
        let error = Request::parse(text.as_bytes()).err().unwrap_or_default();
        assert!(error.contains(why), "{text}: {error}");
    }

    fn smallest() -> Request {
        Request {
            argv: vec!["true".into()],
            cwd: "/workspace/".into(),
            env: BTreeMap::new(),
            timeout: None,
            processes: None,
            data_bytes: None,
            save: None,
            workspace: "/workspace".into(),
        }
    }

    #[test]
    fn only_the_argv_is_needed() {
        check(r#"{"argv":["true"]}"#, Ok(smallest()));
        check(r#"{"argv":["true"],"timeoutMs":null,"limits":{},"save":null}"#, Ok(smallest()));
    }

    #[test]
    fn every_field_is_read() {
        check(
            r#"{"argv":["sh",[255,1],""],"cwd":"a/b","env":{"A":"=","B":[255]},"timeoutMs":1500,
                "limits":{"processes":5,"dataBytes":6},"save":{"above":1,"cap":2,"keep":3}}"#,
            Ok(Request {
                argv: vec!["sh".into(), OsString::from_vec(vec![255, 1]), "".into()],
                cwd: "/workspace/a/b".into(),
                env: BTreeMap::from([
                    ("A".into(), "=".into()),
                    ("B".into(), OsString::from_vec(vec![255])),
                ]),
                timeout: Some(Duration::from_millis(1500)),
                processes: Some(5),
                data_bytes: Some(6),
                save: Some(Save { above: 1, cap: 2, keep: 3 }),
                ..smallest()
            }),
        );
    }

    #[test]
    fn an_absolute_folder_is_itself() {
        let mut want = smallest();
        want.cwd = "/tmp".into();
        check(r#"{"argv":["true"],"cwd":"/tmp"}"#, Ok(want));
    }

    #[test]
    fn what_is_not_a_request_says_why() {
        refused("", "not JSON");
        refused("[]", "not a JSON object");
        refused("{}", "`argv` is not an array");
        refused(r#"{"argv":[]}"#, "`argv` is empty");
        refused(r#"{"argv":["a\u0000"]}"#, "NUL");
        refused(r#"{"argv":["a"],"env":{"A=B":""}}"#, "A=B");
        refused(r#"{"argv":["a"],"env":{"":""}}"#, "`env` holds the name");
        refused(r#"{"argv":["a"],"timeoutMs":-1}"#, "`timeoutMs`");
        refused(r#"{"argv":["a"],"timeout":1}"#, "`timeout` is not a known field");
        refused(r#"{"argv":["a"],"save":{"above":1}}"#, "`save` has no `cap`");
        refused(r#"{"argv":["a"],"limits":{"memory":1}}"#, "`memory` is not a known field");
        refused(r#"{"argv":["a"],"workspace":"w"}"#, "`workspace`");
        refused(&format!("{}1{}", "[".repeat(9999), "]".repeat(9999)), "not JSON");
    }
}
