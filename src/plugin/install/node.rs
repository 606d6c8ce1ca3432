//! What a `package.json` says of a plugin that is written for node, as far as a
//! person must know it. beige runs no package manager: its scripts would be code
//! of strangers that runs at installation.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::config::{Home, read_bounded};
use crate::plugin::manifest;

/// Largest `package.json` that is looked into, in bytes.
const LARGEST: usize = 1 << 20;

/// What package managers add to a folder.
const ADDED: [&str; 4] = ["node_modules", "package-lock.json", "deno.lock", "bun.lock"];

/// The version of an installed plugin: that of its `plugin.json`, or of the
/// `package.json` beside it or of the package that it came in.
pub fn version(folder: &Path, home: &Home) -> Option<String> {
    let packages = home.plugin_packages();
    let of_package = folder
        .ancestors()
        .skip(1)
        .filter(|it| it.parent().is_some_and(|it| it.starts_with(&packages)));
    let mut of_package = of_package;
    version_in(folder).or_else(|| of_package.find_map(of_node))
}

/// The same by that folder alone.
pub(super) fn version_in(folder: &Path) -> Option<String> {
    manifest::version(folder).or_else(|| of_node(folder))
}

/// Whether it needs packages that are not there.
pub fn lacks_packages(folder: &Path) -> bool {
    let needs = read(folder)
        .is_some_and(|it| it["dependencies"].as_object().is_some_and(|it| !it.is_empty()));
    needs && fs::symlink_metadata(folder.join(ADDED[0])).is_err()
}

/// Whether a package manager has put that there, or below there.
pub(super) fn is_added(path: &Path) -> bool {
    path.components().any(|it| ADDED.iter().any(|added| it.as_os_str() == *added))
}

fn of_node(folder: &Path) -> Option<String> {
    manifest::version_said(&read(folder)?)
}

fn read(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&read_bounded(&folder.join("package.json"), LARGEST).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::tests::Scratch;

    #[test]
    fn a_version_stands_beside_a_plugin_or_above_it_in_its_package() {
        let scratch = Scratch::new();
        let home = Home::new(scratch.path());
        let check = |folder: &str, want: Option<&str>| {
            let found = version(&scratch.path().join(folder), &home);
            assert_eq!(found.as_deref(), want, "{folder}");
        };
        scratch.write("package.json", r#"{"version": "0.0.0"}"#);
        scratch.write("plugins/a/plugin.json", r#"{"version": "1.0.0"}"#);
        scratch.write("plugins/b/package.json", r#"{"version": "2.0.0"}"#);
        scratch.write("plugins/c/package.json", "{");
        scratch.write("packages/kit/package.json", r#"{"version": "3.0.0"}"#);
        scratch.write("packages/kit/x/plugin.json", "{}");
        check("plugins/a", Some("1.0.0"));
        check("plugins/b", Some("2.0.0"));
        check("plugins/c", None);
        check("packages/kit/x", Some("3.0.0"));
        check("packages/other", None);
    }

    #[test]
    fn packages_that_a_plugin_needs_are_there_or_not() {
        let scratch = Scratch::new();
        scratch.write("a/package.json", r#"{"dependencies": {"x": "1"}}"#);
        scratch.write("b/package.json", r#"{"dependencies": {}, "devDependencies": {"x": "1"}}"#);
        let lacks = |it: &str| lacks_packages(&scratch.path().join(it));
        assert_eq!([lacks("a"), lacks("b"), lacks("c")], [true, false, false]);
        scratch.write("a/node_modules/x/package.json", "{}");
        assert!(!lacks("a"));
    }
}
