//! Writes changes of `config.json5`: read, changed and put in its place by
//! rename under a lock on the file itself, so that several writers lose nothing
//! and every reader sees a whole file. Mode and owner stay; of a link the file
//! that it leads to is changed.

use std::env;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::config::Home;
use crate::config::edit::Draft;
use crate::config::file_lock::{self, Held};
use crate::config::paths::expand;
use crate::config::report::Report;
use crate::config::source::{decode, open_regular, read_config};
use crate::config::state_file::sync_folder_of;
use crate::error::{During, Error, Kind, Result};

/// How long another writer may hold the file.
const PATIENCE: Duration = Duration::from_secs(20);

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Changes the configuration. An error, of `change` too, leaves the file as it
/// was; so does a change that comes to nothing.
pub fn amend<T>(
    file: &Path,
    home: &Home,
    change: impl FnOnce(&mut Draft) -> Result<T>,
) -> Result<T> {
    let (target, held) = lock(file, home)?;
    let bytes = read_config(&target, &home.config_file())?;
    let mark = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK } else { &[] };
    let text = decode(file, &bytes)?;
    let mut draft = Draft::new(file, text)?;
    let answer = change(&mut draft)?;
    if draft.text() != text {
        let new = [mark, draft.text().as_bytes()].concat();
        replace(&target, &new, held.file()).during(
            Kind::Internal,
            format!("write {} (its new text is made in the same folder)", target.display()),
        )?;
    }
    Ok(answer)
}

/// The configuration as it stands in the file: nothing in it is replaced and
/// little is checked.
pub fn as_written(file: &Path, home: &Home) -> Result<Value> {
    let bytes = read_config(file, &home.config_file())?;
    Ok(crate::config::source::parse(file, decode(file, &bytes)?)?)
}

/// The folder that a path of the configuration means; `None` for one that only
/// the loader can tell, since it holds a reference.
pub fn folder_of(file: &Path, path: &str) -> Option<PathBuf> {
    let user_home = env::var_os("HOME").filter(|it| !it.is_empty()).map(PathBuf::from);
    let is_plain = !path.contains("${");
    is_plain.then(|| expand(path, file.parent()?, user_home.as_deref()).ok()).flatten()
}

/// A text as it must be written so that nothing in it is replaced when the
/// configuration is loaded.
pub fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// The file that the name leads to, locked. Whoever waited for the lock of a
/// file that was replaced meanwhile waits for the one in its place.
fn lock(file: &Path, home: &Home) -> Result<(PathBuf, Held)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let target = match file.canonicalize() {
            Ok(target) => target,
            Err(error) => {
                // Says why, and what a person can do.
                read_config(file, &home.config_file())?;
                return Err(error).during(Kind::Config, format!("find {}", file.display()));
            }
        };
        let opened = open_regular(&target).map_err(|it| Report::unreadable(file, it))?;
        let held = file_lock::hold_opened(opened, &target, deadline)?;
        if file.canonicalize().is_ok_and(|it| it == target) && is_at(held.file(), &target) {
            return Ok((target, held));
        }
        if Instant::now() >= deadline {
            let what = format!("lock {}: others replace it all the time", target.display());
            return Err(Error::new(Kind::Busy, what));
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(path)) = (file.metadata(), fs::metadata(path)) else { return false };
    (file.dev(), file.ino()) == (path.dev(), path.ino())
}

/// Puts new bytes in the place of a file, with the mode and owner of the old
/// one.
fn replace(target: &Path, bytes: &[u8], old: &File) -> io::Result<()> {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".beige-new");
    let temporary = target.with_file_name(name);
    // Left by a writer that was killed: whoever writes holds the lock.
    let _ = fs::remove_file(&temporary);
    let written = write_like(&temporary, bytes, old).and_then(|()| fs::rename(&temporary, target));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    sync_folder_of(target)
}

fn write_like(path: &Path, bytes: &[u8], old: &File) -> io::Result<()> {
    let old = old.metadata()?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    let made = file.metadata()?;
    if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
        fchown(&file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
    file.sync_all()
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::thread;

    use super::*;
    use crate::config::edit::Written;
    use crate::config::sample::Folder;

    fn home(folder: &Folder) -> Home {
        Home::new(folder.path().join("home"))
    }

    fn add(file: &Path, home: &Home, name: &str, text: &str) {
        let entry = Written::Object(vec![("path".into(), Value::from(text).into())]);
        let done = amend(file, home, |it| it.set(&["plugins", name], entry));
        assert_eq!(done.map_err(|it| it.to_string()), Ok(()), "{name}");
    }

    #[test]
    fn two_writers_lose_nothing_and_every_reader_sees_a_whole_file() {
        const SAVES: usize = 1000;
        let folder = Folder::in_memory();
        let file = folder.write("config.json5", b"// mine\n{\n  agents: {},\n}\n");
        let home = home(&folder);
        thread::scope(|scope| {
            for writer in ["a", "b"] {
                let (file, home) = (&file, &home);
                scope.spawn(move || {
                    for save in 0..SAVES {
                        // Longer and shorter by turns.
                        let text = "x".repeat(save * 37 % 101);
                        add(file, home, &format!("{writer}{}", save % 6), &format!("{save}{text}"));
                        let read = as_written(file, home).map_err(|it| it.to_string());
                        assert!(read.is_ok(), "{read:?}");
                    }
                });
            }
        });
        let value = as_written(&file, &home).unwrap_or_default();
        for writer in ["a", "b"] {
            for place in 0..6 {
                let save = SAVES - 6 + place;
                let want = format!("{save}{}", "x".repeat(save * 37 % 101));
                assert_eq!(value["plugins"][format!("{writer}{}", save % 6)]["path"], want);
            }
        }
        assert!(fs::read_to_string(&file).is_ok_and(|it| it.starts_with("// mine\n{\n")));
    }

    #[test]
    fn mode_and_owner_stay_and_a_link_stays_a_link() -> io::Result<()> {
        let folder = Folder::new();
        let file = folder.write("real.json5", b"\xEF\xBB\xBF{}\r\n");
        let mode = Permissions::from_mode(0o640);
        fs::set_permissions(&file, mode)?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(1234), Some(4321))?;
        }
        let before = fs::metadata(&file)?;
        let link = folder.path().join("config.json5");
        symlink("real.json5", &link)?;
        add(&link, &home(&folder), "n", "./n");
        let after = fs::metadata(&file)?;
        assert!(fs::symlink_metadata(&link)?.is_symlink());
        assert_eq!(
            (after.mode(), after.uid(), after.gid()),
            (before.mode(), before.uid(), before.gid())
        );
        let want = "\u{feff}{ plugins: { n: { path: \"./n\" } } }\r\n";
        assert_eq!(fs::read_to_string(&file)?, want);
        assert_eq!(fs::read_dir(folder.path())?.count(), 2);
        Ok(())
    }

    #[test]
    fn a_change_that_fails_leaves_the_file_as_it_was() -> io::Result<()> {
        let folder = Folder::new();
        let file = folder.write("config.json5", b"{ plugins: [] }");
        let made = fs::metadata(&file)?.ino();
        let done = amend(&file, &home(&folder), |it| it.set(&["plugins", "n"], Value::Null));
        assert!(done.is_err_and(|it| it.to_string().contains("plugins.n cannot be changed")));
        assert_eq!(fs::read(&file)?, b"{ plugins: [] }");
        assert_eq!(fs::metadata(&file)?.ino(), made);
        let missing = amend(&folder.path().join("no"), &home(&folder), |_| Ok(()));
        assert!(missing.is_err_and(|it| it.to_string().contains("does not exist")));
        Ok(())
    }
}
