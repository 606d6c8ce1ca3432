//! `${NAME}`, `${NAME:-text}`, `${file:PATH}` and `$${` in string values. What
//! comes out is never looked at again, so a value cannot smuggle in another
//! substitution. Content of files counts as secret.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;

use crate::config::key_path::KeyPath;
use crate::config::paths;
use crate::config::report::Findings;
use crate::config::source;

/// How the environment is asked; `&|name| std::env::var_os(name)` outside tests.
pub type Environment<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

/// Most bytes that all substitutions together may put in, so that a small file
/// cannot name a large one ten thousand times.
const MOST_BYTES: usize = 8 << 20;

/// Replaces substitutions in one configuration.
pub(crate) struct Substitution<'a> {
    /// Relative files are looked for here.
    pub(crate) folder: &'a Path,
    /// The home folder of `~/`.
    pub(crate) user_home: Option<&'a Path>,
    /// Where variables come from.
    pub(crate) environment: &'a Environment<'a>,
    /// Values that hold content of a file.
    pub(crate) from_files: BTreeSet<KeyPath>,
    /// The content of those files.
    pub(crate) secrets: Vec<String>,
    /// Bytes put in so far.
    pub(crate) bytes: usize,
}

impl<'a> Substitution<'a> {
    /// Nothing is replaced yet.
    pub(crate) fn new(
        folder: &'a Path,
        user_home: Option<&'a Path>,
        environment: &'a Environment<'a>,
    ) -> Self {
        let (from_files, secrets) = (BTreeSet::new(), Vec::new());
        Self { folder, user_home, environment, from_files, secrets, bytes: 0 }
    }

    /// Replaces in every string in and below `value`, but for what lies at a
    /// path that `skip` names.
    pub(crate) fn replace(
        &mut self,
        value: &mut Value,
        path: &KeyPath,
        skip: &dyn Fn(&KeyPath) -> bool,
        findings: &mut Findings,
    ) {
        if skip(path) {
            return;
        }
        match value {
            Value::String(text) if text.contains("${") => match self.text(text, path) {
                Ok(replaced) => *text = replaced,
                Err(message) => findings.error(path, message),
            },
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.replace(item, &path.index(index), skip, findings);
                }
            }
            Value::Object(entries) => {
                for (key, entry) in entries {
                    self.replace(entry, &path.key(key), skip, findings);
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, raw: &str, path: &KeyPath) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = raw;
        while let Some(start) = rest.find("${") {
            let (before, after) = (&rest[..start], &rest[start + 2..]);
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = after;
                continue;
            }
            let end =
                after.find('}').ok_or("`${` is not closed; write `$${` for a literal `${`")?;
            out.push_str(before);
            let value = self.one(&after[..end], path)?;
            self.count(value.len())?;
            out.push_str(&value);
            rest = &after[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// What stands between `${` and `}`.
    fn one(&mut self, inner: &str, path: &KeyPath) -> Result<String, String> {
        if inner.contains("${") {
            return Err("`${` within `${…}` is not possible".into());
        }
        if let Some(file) = inner.strip_prefix("file:") {
            return self.file(file, path);
        }
        let (name, fallback) = match inner.split_once(":-") {
            Some((name, text)) => (name, Some(text)),
            None => (inner, None),
        };
        if !is_variable_name(name) {
            return Err("`${…}` must hold a variable's name, `NAME:-text` or `file:PATH`; \
                        write `$${` for a literal `${`"
                .into());
        }
        match ((self.environment)(name), fallback) {
            (Some(value), _) => value
                .into_string()
                .map_err(|_| format!("the environment variable {name} is not UTF-8")),
            (None, Some(text)) => Ok(text.to_owned()),
            (None, None) => Err(format!(
                "the environment variable {name} is not set; \
                 set it, or write `${{{name}:-text}}` to go on without"
            )),
        }
    }

    fn file(&mut self, file: &str, path: &KeyPath) -> Result<String, String> {
        let place = paths::expand(file, self.folder, self.user_home)?;
        let mut text = source::read_value(&place)
            .map_err(|it| format!("the file {} {it}", place.display()))?;
        if text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        self.from_files.insert(path.clone());
        self.secrets.push(text.clone());
        Ok(text)
    }

    fn count(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_BYTES {
            return Err(format!("all `${{…}}` together put in more than {} MiB", MOST_BYTES >> 20));
        }
        Ok(())
    }
}

/// Whether a name can be that of an environment variable.
pub(crate) fn is_variable_name(name: &str) -> bool {
    !name.starts_with(|it: char| it.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::ffi::OsStringExt;

    use crate::config::sample::Folder;

    fn environment(name: &str) -> Option<OsString> {
        match name {
            "SET" => Some("value ${NOT_AGAIN}".into()),
            "EMPTY" => Some(OsString::new()),
            "ODD" => Some(OsString::from_vec(vec![0xff])),
            _ => None,
        }
    }

    #[track_caller]
    fn check(raw: &str, expected: Result<&str, &str>) {
        let folder = Folder::new();
        folder.write("secret", b"s3cret\n");
        folder.write("twice", b"a\n\n");
        folder.write("large", &vec![b'x'; source::LARGEST_VALUE + 1]);
        let mut substitution = Substitution::new(folder.path(), None, &environment);
        let replaced = substitution.text(raw, &KeyPath::default());
        let replaced = replaced.map_err(|it| it.replace(&folder.path().display().to_string(), "."));
        match expected {
            Ok(text) => assert_eq!(replaced.as_deref(), Ok(text)),
            Err(part) => {
                assert!(replaced.as_ref().is_err_and(|it| it.contains(part)), "{replaced:?}")
            }
        }
    }

    #[test]
    fn a_variable_is_put_in_once() {
        check("a${SET}b", Ok("avalue ${NOT_AGAIN}b"));
        check("${SET:-x}${EMPTY:-x}", Ok("value ${NOT_AGAIN}"));
        check("é${UNSET:-ü:-}é", Ok("éü:-é"));
        check("${UNSET:-}", Ok(""));
        check("$ {x} $x $$ }", Ok("$ {x} $x $$ }"));
    }

    #[test]
    fn two_dollars_stand_for_a_literal_one() {
        check("$${SET}", Ok("${SET}"));
        check("$$${SET}", Ok("$${SET}"));
        check("$${", Ok("${"));
    }

    #[test]
    fn a_files_content_loses_one_newline() {
        check("Bearer ${file:secret}", Ok("Bearer s3cret"));
        check("${file:./twice}", Ok("a\n"));
    }

    #[test]
    fn what_cannot_be_replaced_is_named() {
        check("${UNSET}", Err("the environment variable UNSET is not set"));
        check("${ODD}", Err("ODD is not UTF-8"));
        check("${SET", Err("not closed"));
        check("${}", Err("write `$${`"));
        check("${a b}", Err("write `$${`"));
        check("${1}", Err("write `$${`"));
        check("${UNSET:-${SET}}", Err("within"));
        check("${file:none}", Err("the file ./none does not exist"));
        check("${file:.}", Err("is a folder"));
        check("${file:large}", Err("larger than 64 KiB"));
        check("${file:}", Err("is empty"));
    }

    #[test]
    fn a_small_file_cannot_put_in_a_large_one_without_end() {
        let raw = "${file:block}".repeat(200);
        let folder = Folder::new();
        folder.write("block", &vec![b'x'; source::LARGEST_VALUE]);
        let mut substitution = Substitution::new(folder.path(), None, &environment);
        let replaced = substitution.text(&raw, &KeyPath::default());
        assert_eq!(replaced, Err("all `${…}` together put in more than 8 MiB".into()));
    }

    #[test]
    fn what_is_skipped_stays_as_it_is() {
        let mut value = serde_json::json!({"a": ["${UNSET}"], "b": ["${SET}", {"c": "${file:x"}]});
        let mut findings = Findings::default();
        let mut substitution = Substitution::new(Path::new("/"), None, &environment);
        let skip = |path: &KeyPath| *path == KeyPath::from(["a"]);
        substitution.replace(&mut value, &KeyPath::default(), &skip, &mut findings);
        let expected = serde_json::json!(
            {"a": ["${UNSET}"], "b": ["value ${NOT_AGAIN}", {"c": "${file:x"}]});
        assert_eq!(value, expected);
    }
}
