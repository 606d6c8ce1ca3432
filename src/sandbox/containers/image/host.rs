//! The root of an offline image, picked from the host: a fixed list of
//! programs, the libraries they need, Python's own modules and certificates.
//! Copies only what every user of the host may read and root (or whoever
//! builds) wrote; nothing of anybody's configuration, no setuid bit.

mod libraries;
mod lists;

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Progress, tar};
use crate::error::{Error, Kind, Result};
use crate::sandbox::oneshot;

/// Everything that goes into the image, by path without the leading slash,
/// so that folders come before what is in them.
#[derive(Debug, Default)]
pub(super) struct Root {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Folder {
        mode: u32,
    },
    /// A file of the host, links followed.
    Copy {
        from: PathBuf,
    },
    Text {
        text: String,
    },
    Link {
        to: String,
    },
}

/// Picks the host's programs, and what they need, for an image.
pub(super) fn gather(progress: Progress<'_>) -> Result<Root> {
    let mut root = Root::skeleton();
    let mut absent = Vec::new();
    for name in lists::PROGRAMS {
        match find(name, &system_folders()) {
            Some(from) => root.copy(&format!("usr/bin/{name}"), from),
            None => absent.push(*name),
        }
    }
    if let Some(deno) = find("deno", &user_folders()) {
        root.copy("usr/local/bin/deno", deno);
    }
    root.add_python();
    for folder in lists::FOLDERS {
        root.copy_folder(Path::new(folder), 0);
    }
    root.add_certificates();
    for library in libraries::of(&root.binaries())? {
        root.copy(&in_usr(&library), library);
    }
    root.add_busybox();
    absent.retain(|it| !root.entries.contains_key(&format!("usr/bin/{it}")));
    if absent.contains(&"sh") {
        return Err(Error::new(Kind::Sandbox, "this host has no shell that an image could take"));
    }
    progress(&format!("taking {} files of this host", root.entries.len()));
    if !absent.is_empty() {
        progress(&format!("this host has none of: {}", absent.join(", ")));
    }
    Ok(root)
}

impl Root {
    /// Writes it as a tar stream.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        // One host file under several names (a program of many faces) is
        // carried once.
        let mut carried = BTreeMap::new();
        for (path, entry) in &self.entries {
            match entry {
                Entry::Folder { mode } => tar::entry(to, path, tar::Node::Folder, *mode, 0)?,
                Entry::Link { to: target } => {
                    tar::entry(to, path, tar::Node::Link { target }, 0o777, 0)?;
                }
                Entry::Text { text } => {
                    let size = text.len() as u64;
                    tar::entry(to, path, tar::Node::File { size }, 0o644, 0)?;
                    tar::content(to, text.as_bytes(), size)?;
                }
                Entry::Copy { from } => write_copy(to, path, from, &mut carried)?,
            }
        }
        tar::end(to)
    }

    fn skeleton() -> Self {
        let mut root = Self::default();
        for (path, mode) in lists::EMPTY_FOLDERS {
            root.entries.insert((*path).to_owned(), Entry::Folder { mode: *mode });
        }
        for (path, to) in lists::LINKS {
            root.entries.insert((*path).to_owned(), Entry::Link { to: (*to).to_owned() });
        }
        for (path, text) in lists::TEXTS {
            root.entries.insert((*path).to_owned(), Entry::Text { text: (*text).to_owned() });
        }
        root
    }

    /// Adds a file and its folders; what may not be copied is left out.
    fn copy(&mut self, path: &str, from: PathBuf) {
        if trusted(&from).is_none() {
            return;
        }
        self.insert(path, Entry::Copy { from });
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        for (end, _) in path.match_indices('/') {
            let folder = Entry::Folder { mode: 0o755 };
            self.entries.entry(path[..end].to_owned()).or_insert(folder);
        }
        self.entries.entry(path.to_owned()).or_insert(entry);
    }

    /// Adds a folder of the host with all in it but the names that nobody
    /// needs at run time. Links to folders are not followed.
    fn copy_folder(&mut self, folder: &Path, depth: usize) {
        let Ok(listing) = fs::read_dir(folder) else { return };
        if depth > lists::DEPTH_LIMIT {
            return;
        }
        for it in listing.flatten() {
            let (path, name) = (it.path(), it.file_name());
            let unwanted = name.to_str().is_none_or(lists::is_needless);
            if unwanted {
                continue;
            }
            match it.file_type() {
                Ok(kind) if kind.is_dir() => self.copy_folder(&path, depth + 1),
                Ok(_) => self.copy(&in_usr(&path), path),
                Err(_) => {}
            }
        }
    }

    /// Python's modules, where the program is the distribution's.
    fn add_python(&mut self) {
        let Ok(python) = fs::canonicalize("/usr/bin/python3") else { return };
        let Some(version) = python.file_name().and_then(|it| it.to_str()) else { return };
        for lib in ["/usr/lib", "/usr/lib64"] {
            self.copy_folder(&Path::new(lib).join(version), 0);
        }
        self.insert("usr/bin/python", Entry::Link { to: "python3".into() });
    }

    /// One bundle, under every name that a TLS library looks for.
    fn add_certificates(&mut self) {
        let there = lists::CERTIFICATES.iter().find(|it| trusted(Path::new(it)).is_some());
        let Some(from) = there else { return };
        self.copy(lists::BUNDLE, PathBuf::from(from));
        for link in lists::BUNDLE_LINKS {
            self.insert(link, Entry::Link { to: format!("/{}", lists::BUNDLE) });
        }
    }

    /// Everything that busybox can be, where the host has no program of its
    /// own for it.
    fn add_busybox(&mut self) {
        let Some(busybox) = find("busybox", &system_folders()) else { return };
        let mut command = Command::new(&busybox);
        command.arg("--list").env_clear();
        let Ok(listed) = oneshot::run(command, Duration::from_secs(10)) else { return };
        for applet in listed.stdout.lines().filter(|it| !it.contains('/')) {
            self.insert(&format!("usr/bin/{applet}"), Entry::Link { to: "busybox".into() });
        }
    }

    /// The files that may need libraries.
    fn binaries(&self) -> Vec<PathBuf> {
        let copies = self.entries.values().filter_map(|it| match it {
            Entry::Copy { from } => Some(from),
            _ => None,
        });
        copies.filter(|it| is_elf(it)).cloned().collect()
    }
}

fn write_copy(
    to: &mut impl Write,
    path: &str,
    from: &Path,
    carried: &mut BTreeMap<(u64, u64), String>,
) -> io::Result<()> {
    let file = File::open(from)?;
    let metadata = file.metadata()?;
    let mode = if metadata.mode() & 0o111 == 0 { 0o644 } else { 0o755 };
    let modified = u64::try_from(metadata.mtime()).unwrap_or(0);
    let identity = (metadata.dev(), metadata.ino());
    if let Some(earlier) = carried.get(&identity) {
        return tar::entry(to, path, tar::Node::Same { path: earlier }, mode, modified);
    }
    let size = metadata.len();
    tar::entry(to, path, tar::Node::File { size }, mode, modified)?;
    tar::content(to, file, size)?;
    carried.insert(identity, path.to_owned());
    Ok(())
}

/// The first of those folders that holds a program of that name.
fn find(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let runnable = |it: &PathBuf| trusted(it).is_some_and(|it| it.mode() & 0o111 != 0);
    folders.iter().map(|it| it.join(name)).find(runnable)
}

fn system_folders() -> Vec<PathBuf> {
    ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from).to_vec()
}

/// Where people install what their distribution lacks.
fn user_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        env::var_os("PATH").map(|it| env::split_paths(&it).collect()).unwrap_or_default();
    folders.extend(env::home_dir().map(|it| it.join(".deno/bin")));
    folders.retain(|it| it.is_absolute());
    folders
}

/// A regular file that anyone may read and only root, or whoever builds, has
/// written; links are followed.
fn trusted(path: &Path) -> Option<Metadata> {
    let owner = rustix::process::geteuid().as_raw();
    let metadata = fs::metadata(path).ok()?;
    let fit = metadata.is_file()
        && metadata.mode() & 0o004 != 0
        && metadata.mode() & 0o002 == 0
        && (metadata.uid() == 0 || metadata.uid() == owner);
    fit.then_some(metadata)
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut it| it.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

/// Its path in the image, where `/bin`, `/lib` and their like are links into
/// `/usr`.
fn in_usr(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = text.trim_start_matches('/');
    let merged = lists::LINKS
        .iter()
        .any(|(link, _)| text.strip_prefix(link).is_some_and(|it| it.starts_with('/')));
    if merged { format!("usr/{text}") } else { text.to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_lie_where_the_links_lead() {
        let check = |path: &str, want: &str| assert_eq!(in_usr(Path::new(path)), want);
        check("/lib/x/libc.so.6", "usr/lib/x/libc.so.6");
        check("/lib64/ld.so", "usr/lib64/ld.so");
        check("/usr/lib/a", "usr/lib/a");
        check("/library/a", "library/a");
    }

    #[test]
    fn folders_come_before_what_is_in_them() {
        let mut root = Root::default();
        root.insert("a/b/c", Entry::Text { text: String::new() });
        let paths: Vec<_> = root.entries.keys().map(String::as_str).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c"]);
    }

    #[test]
    fn what_stands_already_is_not_replaced() {
        let mut root = Root::default();
        root.insert("sh", Entry::Text { text: "host".into() });
        root.insert("sh", Entry::Link { to: "busybox".into() });
        assert_eq!(root.entries["sh"], Entry::Text { text: "host".into() });
    }

    #[test]
    fn a_file_that_only_its_owner_may_read_stays_out() {
        use std::os::unix::fs::PermissionsExt;
        let path = env::temp_dir().join(format!("beige-trusted-{}", std::process::id()));
        let fit = |mode: u32| {
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let fit = trusted(&path).is_some();
            fs::remove_file(&path).unwrap();
            fit
        };
        assert!(fit(0o644));
        assert!(!fit(0o600));
        assert!(!fit(0o666));
        assert!(trusted(&env::temp_dir()).is_none());
    }
}
