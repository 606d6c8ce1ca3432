//! What a plugin starts: a program inside its folder, or a name from PATH with
//! the arguments that an agent may give it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Program;
use crate::plugin::fields::{Fields, Findings};

/// Program and arguments, at least the former.
pub(super) fn argv(fields: &Fields<'_>, key: &str, findings: &mut Findings) -> Option<Vec<String>> {
    let argv = fields.texts(key, findings)?;
    let at = fields.path(key);
    if argv.iter().any(|it| it.contains('\0')) {
        findings.errors.push(format!("{at}: an argument cannot hold a NUL byte"));
        return None;
    }
    if argv.first().is_none_or(String::is_empty) {
        findings.errors.push(format!("{at}: must begin with a program"));
        return None;
    }
    Some(argv)
}

pub(super) fn find_program(
    folder: &Path,
    program: &str,
    has_flags: bool,
) -> Result<Program, String> {
    if program.contains('/') {
        return program_inside(folder, program).map(Program::Inside);
    }
    if has_flags {
        return Ok(Program::OnPath(program.to_owned()));
    }
    let hint = if folder.join(program).is_file() {
        format!(" (for the file in the plugin's folder write `./{program}`)")
    } else {
        String::new()
    };
    Err(format!(
        "`{program}` is a name from PATH, so `flags` must list the arguments beginning with `-` \
         that an agent may give ([]: none){hint}"
    ))
}

fn program_inside(folder: &Path, program: &str) -> Result<PathBuf, String> {
    let (path, mode) = file_inside(folder, program)?;
    if mode & 0o111 == 0 {
        return Err(format!("`{program}` is not executable; `chmod +x` makes it so"));
    }
    Ok(path)
}

/// A file of the plugin, links resolved, and its mode.
pub(super) fn file_inside(folder: &Path, name: &str) -> Result<(PathBuf, u32), String> {
    if name.starts_with('/') {
        return Err(format!(
            "`{name}` must be a path inside the plugin's folder, such as `./tool`"
        ));
    }
    let path = folder.join(name).canonicalize().map_err(|it| format!("`{name}`: {it}"))?;
    if !path.starts_with(folder) {
        return Err(format!("`{name}` leads out of the plugin's folder"));
    }
    let metadata = fs::metadata(&path).map_err(|it| format!("`{name}`: {it}"))?;
    if !metadata.is_file() {
        return Err(format!("`{name}` is not a file"));
    }
    Ok((path, metadata.permissions().mode()))
}

pub(super) fn flags(fields: &Fields<'_>, findings: &mut Findings) -> Option<Vec<String>> {
    let flags = fields.texts("flags", findings)?;
    for flag in flags.iter().filter(|it| !it.starts_with('-') || it.contains('=')) {
        let at = fields.path("flags");
        findings.errors.push(format!("{at}: {flag:?} must begin with `-` and have no `=`"));
    }
    Some(flags)
}
