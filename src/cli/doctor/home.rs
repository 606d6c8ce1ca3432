//! The state folder: whose it is, who else may look into it, whether sockets
//! fit in it, and whether the disk has room.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfs, StatVfsMountFlags, access, statvfs};
use rustix::process::geteuid;

use super::super::tidy;
use super::{Check, Patient};
use crate::channel::http::token_is_there;
use crate::config::Home;
use crate::gateway::socket::check_path_length;

/// Less free space than this fails soon, in bytes.
const LITTLE: u64 = 64 << 20;

/// Less than this is told, in bytes.
const SCARCE: u64 = 1 << 30;

/// Files that are looked at in one folder.
const MOST_FILES: usize = 10_000;

/// Paths that are named in one line.
const MOST_NAMED: usize = 8;

/// The longest number that a process may have.
const LONGEST_PID: &str = "4194304";

pub(super) fn check(patient: &Patient) -> Vec<Check> {
    let mut checks = vec![folder(&patient.home)];
    if patient.home.root().is_dir() {
        checks.push(permissions(&patient.home));
        checks.push(token(&patient.home));
    }
    checks.push(sockets(patient));
    checks.extend(disks(patient));
    checks
}

fn folder(home: &Home) -> Check {
    let (root, name) = (home.root(), "home");
    let shown = tidy(root);
    let elsewhere = "set BEIGE_HOME to a folder of your own";
    let found = match fs::metadata(root) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let above = existing(root);
            return match is_writable(&above) {
                true => {
                    Check::ok(name, format!("{shown} is not there yet; `beige setup` makes it"))
                }
                false => {
                    let what = format!("{shown} is not there, and nothing can be made in ");
                    Check::failure(name, what + &tidy(&above), elsewhere)
                }
            };
        }
        Err(error) => return Check::failure(name, format!("{shown}: {error}"), elsewhere),
    };
    if !found.is_dir() {
        return Check::failure(name, format!("{shown} is no folder"), elsewhere);
    }
    match in_the_way(home) {
        Some((path, what)) => {
            Check::failure(name, format!("{} is {what}", tidy(&path)), "move it away")
        }
        None => judge_owner(name, &shown, &found),
    }
}

/// What lies where a gateway makes a folder or opens a file of its own, and is
/// none.
fn in_the_way(home: &Home) -> Option<(PathBuf, &'static str)> {
    let mut folders = made_folders(home).into_iter();
    let is_other = |it: &PathBuf| fs::symlink_metadata(it).is_ok() && !it.is_dir();
    if let Some(folder) = folders.find(is_other) {
        return Some((folder, "no folder"));
    }
    let files = [
        home.api_token(),
        home.pid_file(),
        home.session_map(),
        home.session_map_lock(),
        home.audit_log(),
        home.audit_lock(),
    ];
    let is_other = |it: &PathBuf| fs::symlink_metadata(it).is_ok_and(|it| !it.is_file());
    files.into_iter().find(is_other).map(|it| (it, "no regular file"))
}

fn judge_owner(name: &str, shown: &str, found: &Metadata) -> Check {
    let own = geteuid().as_raw();
    let owner = found.uid();
    if owner == own {
        return Check::ok(name, format!("{shown} is yours"));
    }
    let what = format!("{shown} belongs to user {owner}, and you are user {own}");
    let fix = format!("run beige as user {owner}, or `chown -R {own} {shown}`");
    match own {
        // Works, but leaves files behind that the other cannot read.
        0 => Check::warning(name, what, fix),
        _ => Check::failure(name, what, fix),
    }
}

/// Folders are 0700 and what may hold secrets 0600; what is mounted into a
/// sandbox is readable, since the folders above it keep others out.
fn permissions(home: &Home) -> Check {
    let name = "permissions";
    let mut loose: Vec<PathBuf> = Vec::new();
    for folder in private_folders(home) {
        if is_loose(&folder) {
            loose.push(folder);
        }
    }
    let files = private_files(home);
    loose.extend(files.into_iter().filter(|it| is_loose(it)));
    if loose.is_empty() {
        return Check::ok(name, "nobody else may look into the state folder");
    }
    let named: Vec<String> = loose.iter().take(MOST_NAMED).map(|it| tidy(it)).collect();
    let more = match loose.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let found = format!("others may look into {}{more}", named.join(", "));
    Check::warning(name, found, format!("`chmod go-rwx {}`", named.join(" ")))
}

/// By the very look that a gateway takes at its start.
fn token(home: &Home) -> Check {
    let (name, shown) = ("api-token", tidy(&home.api_token()));
    match token_is_there(home) {
        Ok(true) => Check::ok(name, format!("{shown} holds one")),
        Ok(false) => Check::ok(name, "there is none; the first start of a gateway makes one"),
        Err(error) => {
            let fix = format!("`rm {shown}`: the next start of a gateway makes a new one");
            Check::failure(name, error.to_string(), fix)
        }
    }
}

/// Those that are made at each start.
fn made_folders(home: &Home) -> Vec<PathBuf> {
    vec![
        home.sockets(),
        home.root().join("agents"),
        home.data(),
        home.data().join("sandboxes"),
        home.data().join("packages"),
        home.data().join("skills"),
        home.logs(),
        home.sessions(),
        home.door(),
    ]
}

fn private_folders(home: &Home) -> Vec<PathBuf> {
    let mut folders = made_folders(home);
    folders.push(home.root().to_owned());
    folders.extend(inside(&home.root().join("agents")));
    folders.extend(inside(&home.sessions()));
    folders.retain(|it| it.is_dir());
    folders
}

fn private_files(home: &Home) -> Vec<PathBuf> {
    let mut files = vec![
        home.config_file(),
        home.api_token(),
        home.usage_log(),
        home.api_socket(),
        home.pid_file(),
        home.config_in_use(),
    ];
    files.extend(inside(&home.logs()));
    for folder in [home.sessions()].into_iter().chain(inside(&home.sessions())) {
        files.extend(inside(&folder));
    }
    files.retain(|it| {
        fs::symlink_metadata(it).is_ok_and(|it| it.is_file() || it.file_type().is_socket())
    });
    files
}

fn inside(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.take(MOST_FILES).map(|it| it.path()).collect()
}

/// Whether anybody but its owner may do anything with it.
fn is_loose(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|it| !it.is_symlink() && it.mode() & 0o077 != 0)
}

/// Whether the kernel takes the path of every socket.
fn sockets(patient: &Patient) -> Check {
    let home = &patient.home;
    let mut paths = vec![home.api_socket()];
    for agent in patient.config.iter().flat_map(|it| it.agents.keys()) {
        paths.push(home.agent_sockets(agent).join(format!("cli-{LONGEST_PID}.sock")));
    }
    let length = |it: &PathBuf| it.as_os_str().len();
    let longest = paths.iter().max_by_key(|it| length(it)).map(length).unwrap_or_default();
    match paths.iter().find_map(|it| check_path_length(it).err()) {
        None => Check::ok("sockets", format!("the longest path has {longest} of 107 bytes")),
        Some(error) => {
            Check::failure("sockets", error.to_string(), "set BEIGE_HOME to a shorter path")
        }
    }
}

/// Each file system that is written to, once.
fn disks(patient: &Patient) -> Vec<Check> {
    let mut folders = vec![patient.home.root().to_owned()];
    if let Some(config) = &patient.config {
        folders.extend(config.gateway.log_file.parent().map(Path::to_owned));
        folders.extend(config.agents.values().map(|it| it.workspace.clone()));
    }
    let mut seen = Vec::new();
    let mut checks = Vec::new();
    for folder in folders.iter().map(|it| existing(it)) {
        let device = fs::metadata(&folder).map(|it| it.dev()).ok();
        if !seen.contains(&device) {
            seen.push(device);
            checks.push(disk(&folder));
        }
    }
    checks
}

fn disk(folder: &Path) -> Check {
    let (name, shown) = (format!("disk {}", tidy(folder)), folder.display());
    match statvfs(folder) {
        Ok(found) if found.f_flag.contains(StatVfsMountFlags::RDONLY) => Check::failure(
            name,
            "it is mounted read-only",
            format!("mount it for writing (`mount -o remount,rw`), or move {shown} elsewhere"),
        ),
        Ok(found) => judge_room(name, &found),
        Err(error) => Check::failure(name, error.to_string(), "look at that file system"),
    }
}

fn judge_room(name: String, found: &StatVfs) -> Check {
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let text = format!("{} free", size(free));
    let fix = "free some space there";
    if found.f_files > 0 && found.f_favail == 0 && !geteuid().is_root() {
        return Check::failure(name, "no file can be made any more: no inodes are left", fix);
    }
    match free {
        0..LITTLE => Check::failure(name, text, fix),
        LITTLE..SCARCE => Check::warning(name, text, fix),
        _ => Check::ok(name, text),
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{}.{} GiB", bytes >> 30, ((bytes % (1 << 30)) * 10) >> 30),
    }
}

/// The path, or the nearest folder above it that is there.
fn existing(path: &Path) -> PathBuf {
    let there = path.ancestors().find(|it| it.exists());
    there.unwrap_or(Path::new("/")).to_owned()
}

fn is_writable(folder: &Path) -> bool {
    folder.is_dir() && access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_for_people() {
        assert_eq!(size(2048), "2 KiB");
        assert_eq!(size(5 << 20), "5 MiB");
        assert_eq!(size((3 << 30) + (1 << 29)), "3.5 GiB");
    }

    #[test]
    fn what_is_not_there_is_looked_for_above() {
        let folder = std::env::temp_dir();
        assert_eq!(existing(&folder.join("beige-none/such")), folder);
    }
}
