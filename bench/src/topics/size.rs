//! What has a size without running: the binary, the client inside it, and the
//! crates it is made of.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::arguments::Options;
use crate::figures::{Row, Unit};
use crate::process::megabytes;

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    Ok(vec![
        Row::once("the binary", Unit::Megabytes, megabytes(binary(options)?)),
        Row::once(
            "of it the client in the sandboxes, packed",
            Unit::Megabytes,
            megabytes(tool_client(options)?),
        ),
        Row::once("crates of others", Unit::Count, crates(&[])?.len() as f64),
    ])
}

/// Bytes of the binary.
pub(crate) fn binary(options: &Options) -> Result<u64> {
    Ok(fs::metadata(&options.beige)?.len())
}

/// Bytes of the client that it holds, packed: the newest that was built beside it.
fn tool_client(options: &Options) -> Result<u64> {
    let folder = options.beige.parent().ok_or("the binary lies in no folder")?;
    let newest = built(&folder.join("build"))?.max_by_key(|it| modified(it));
    Ok(fs::metadata(newest.ok_or("no packed client lies beside the binary")?)?.len())
}

fn built(folder: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(folder)?.flatten();
    Ok(entries.map(|it| it.path().join("out/tool-client.lzma")).filter(|it| it.is_file()))
}

fn modified(file: &Path) -> Option<std::time::SystemTime> {
    fs::metadata(file).ok()?.modified().ok()
}

/// Names of the crates of others in the normal tree, with those features of
/// beige.
pub(crate) fn crates(features: &[&str]) -> Result<BTreeSet<String>> {
    let mut command = Command::new("cargo");
    command.args(["tree", "--locked", "--package", "beige", "--edges", "normal"]);
    command.args(["--prefix", "none", "--features", &features.join(",")]);
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(names(&String::from_utf8(output.stdout)?))
}

/// The crates of a tree without its branches; two versions of one count as two.
fn names(tree: &str) -> BTreeSet<String> {
    let crates = tree.lines().filter_map(|it| {
        let mut words = it.split(' ');
        let (name, version) = (words.next()?, words.next()?);
        let is_ours = ["beige", "tool-client"].contains(&name);
        (!is_ours).then(|| format!("{name} {version}"))
    });
    crates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_of_others_counts_once() {
        let tree = "beige v0.1.0 (/x)\ntool-client v0.1.0 (/x)\nlog v0.4.1\nlog v0.4.1 (*)\n\
                    serde_derive v1.0.0 (proc-macro)\nhttp v1.0.0\nhttp v0.2.0\n";
        let found: Vec<String> = names(tree).into_iter().collect();
        assert_eq!(found, ["http v0.2.0", "http v1.0.0", "log v0.4.1", "serde_derive v1.0.0"]);
    }
}
