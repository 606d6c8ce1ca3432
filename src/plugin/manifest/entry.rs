//! A plugin of the TypeScript gateway: which folder holds one, and the file it
//! begins with. It needs no key at all, an `index.ts` beside `plugin.json` is
//! enough, unless another way to run is named.

use std::path::{Path, PathBuf};

use super::program::file_inside;
use crate::plugin::fields::{Fields, Findings};

/// The file that it begins with if its manifest names no other.
pub(super) const INDEX: &str = "index.ts";

/// What names another way to run.
const OTHERS: [&str; 3] = ["command", "tools", "builtin"];

/// Whether the plugin of that folder is one.
pub(super) fn is_there(folder: &Path, fields: &Fields<'_>) -> bool {
    let has = |key: &str| fields.get(key).is_some();
    has("entry") || !OTHERS.into_iter().any(has) && folder.join(INDEX).exists()
}

/// The file that it begins with, links resolved.
pub(super) fn entry(
    folder: &Path,
    fields: &Fields<'_>,
    findings: &mut Findings,
) -> Option<PathBuf> {
    if let Some(other) = OTHERS.into_iter().find(|it| fields.get(it).is_some()) {
        findings.errors.push(format!("entry: a plugin that has it has no `{other}`"));
        return None;
    }
    let name = match fields.get("entry") {
        Some(_) => fields.text("entry", findings)?,
        None => INDEX.to_owned(),
    };
    match file_inside(folder, &name).and_then(|(path, _)| outside_node_modules(path)) {
        Ok(path) => Some(path),
        Err(why) => {
            findings.errors.push(format!("entry: {why}"));
            None
        }
    }
}

fn outside_node_modules(path: PathBuf) -> Result<PathBuf, String> {
    if path.components().all(|it| it.as_os_str() != "node_modules") {
        return Ok(path);
    }
    let folder = path.parent().unwrap_or(&path);
    Err(format!(
        "{} lies below a folder node_modules, where no runtime takes TypeScript; \
         `beige plugins install {}` copies it out of there",
        path.display(),
        folder.display()
    ))
}
