//! Tools that have the name of a program: in a sandbox they stand before it, as
//! git is meant to. That is allowed, and told here. What an image holds is not
//! looked up; what this host or the default image has is a good guess.

use std::path::Path;

use super::{Check, Patient};
use crate::cli::in_words;

/// Where programs of a host lie, and those of most images.
const FOLDERS: [&str; 6] =
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Programs of the default image that a host may not have.
const IN_DEFAULT_IMAGE: [&str; 14] = [
    "bzip2", "curl", "deno", "file", "gzip", "jq", "less", "node", "pip3", "python3", "rg",
    "unzip", "xz", "zip",
];

/// A line if there is such a tool.
pub(super) fn check(patient: &Patient) -> Option<Check> {
    let agents = patient.config.iter().flat_map(|it| it.agents.values());
    let mut tools: Vec<&str> = agents.flat_map(|it| &it.tools).map(String::as_str).collect();
    tools.sort_unstable();
    tools.dedup();
    tools.retain(|it| is_program(it));
    if tools.is_empty() {
        return None;
    }
    let (names, verb) = (in_words(&tools).replace(" or ", " and "), "stand before");
    let verb = if tools.len() == 1 { "stands before" } else { verb };
    let found = format!("{names} {verb} the program of that name in a sandbox, as is allowed");
    Some(Check::ok("tools", found))
}

fn is_program(name: &str) -> bool {
    IN_DEFAULT_IMAGE.contains(&name) || FOLDERS.iter().any(|it| Path::new(it).join(name).is_file())
}
