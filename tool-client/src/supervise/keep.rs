//! Keeps the whole output of a command in the workspace when it is too large
//! for the model: stdout and stderr in the order in which they came, in
//! `.beige/outputs/ID`. The folders are the agent's to write, so every step
//! goes through the descriptor of the step before and follows no conversation: what is
//! planted there under our names is reported, never opened.

use std::fs::File;
use std::hash::BuildHasher;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, open, openat, statat, unlinkat};
use rustix::io::{Errno, Result};

use super::request::Save;

/// Entries of the folder that are looked at when old files are removed.
const MOST_ENTRIES: usize = 100_000;

/// The output so far.
pub(crate) struct Keeper {
    save: Option<Save>,
    workspace: PathBuf,
    total: u64,
    state: State,
}

enum State {
    /// Small enough until now.
    Memory(Vec<u8>),
    /// Being written.
    File(File, String),
    /// It could not be saved, and why.
    Failed(String),
}

impl Keeper {
    /// Keeps nothing without a `save`.
    pub(crate) fn new(save: Option<Save>, workspace: &Path) -> Self {
        let state = State::Memory(Vec::new());
        Self { save, workspace: workspace.to_owned(), total: 0, state }
    }

    /// Takes in the next piece of output.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let Some(save) = &self.save else { return };
        let room = save.cap.saturating_sub(self.total).min(bytes.len() as u64);
        let wanted = &bytes[..usize::try_from(room).unwrap_or(0)];
        self.total += bytes.len() as u64;
        match &mut self.state {
            State::Memory(memory) => memory.extend_from_slice(wanted),
            State::File(file, _) => {
                if let Err(error) = file.write_all(wanted) {
                    self.state = State::Failed(format!("cannot save the output: {error}"));
                }
            }
            State::Failed(_) => {}
        }
        if self.total > save.above {
            self.move_to_file();
        }
    }

    /// Where the output was saved, or why it was not; neither if it was small.
    pub(crate) fn finish(self) -> (Option<String>, Option<String>) {
        match self.state {
            State::Memory(_) => (None, None),
            State::File(_, path) => (Some(path), None),
            State::Failed(why) => (None, Some(why)),
        }
    }

    fn move_to_file(&mut self) {
        let (State::Memory(memory), Some(save)) = (&self.state, &self.save) else { return };
        self.state = match begin(&self.workspace, save.keep, memory) {
            Ok((file, name)) => {
                let path = self.workspace.join(".beige/outputs").join(name);
                State::File(file, path.to_string_lossy().into_owned())
            }
            Err(error) => State::Failed(format!(
                "cannot save the output in {}: {error}",
                self.workspace.join(".beige/outputs").display()
            )),
        };
    }
}

/// Makes a new file, removes the oldest, and writes what is there so far.
fn begin(workspace: &Path, keep: u64, memory: &[u8]) -> std::io::Result<(File, String)> {
    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let workspace = open(workspace, folder, Mode::empty())?;
    let beige = enter(&workspace, ".beige")?;
    let outputs = enter(&beige, "outputs")?;
    let _ = remove_old(&outputs, keep.saturating_sub(1));
    let name = new_name();
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&outputs, name.as_str(), flags, Mode::from_raw_mode(0o644))?);
    file.write_all(memory)?;
    Ok((file, name))
}

/// Opens a folder below another, made if missing; a link is not followed.
fn enter(parent: &OwnedFd, name: &str) -> Result<OwnedFd> {
    match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Removes the oldest of our files, so that `keep` stay.
fn remove_old(outputs: &OwnedFd, keep: u64) -> Result<()> {
    let mut names: Vec<String> = Dir::read_from(outputs)?
        .take(MOST_ENTRIES)
        .filter_map(|it| it.ok()?.file_name().to_str().ok().map(String::from))
        .filter(|it| is_ours(it))
        .collect();
    names.sort_unstable();
    let surplus = names.len().saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX));
    for name in &names[..surplus] {
        let found = statat(outputs, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            unlinkat(outputs, name.as_str(), AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Milliseconds since 1970 in 13 digits, then 8 random hex digits: sorts by
/// age, and no one can plant it ahead.
fn new_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let random = std::collections::hash_map::RandomState::new().hash_one(now);
    format!("{now:013}-{:08x}", random & 0xffff_ffff)
}

fn is_ours(name: &str) -> bool {
    name.len() == 22
        && name.bytes().enumerate().all(|(at, it)| match at {
            0..=12 => it.is_ascii_digit(),
            13 => it == b'-',
            _ => it.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;

    const SAVE: Save = Save { above: 4, cap: 8, keep: 2 };

    fn kept(workspace: &Path, pieces: &[&[u8]]) -> (Option<String>, Option<String>) {
        let mut keeper = Keeper::new(Some(SAVE), workspace);
        for piece in pieces {
            keeper.take(piece);
        }
        keeper.finish()
    }

    #[track_caller]
    fn check(pieces: &[&[u8]], want: Option<&[u8]>) {
        let scratch = Scratch::new();
        let (saved, error) = kept(scratch.path(), pieces);
        assert_eq!(error, None);
        assert_eq!(saved.and_then(|it| fs::read(it).ok()).as_deref(), want);
    }

    #[test]
    fn only_output_over_the_bound_is_saved_and_up_to_the_cap() {
        check(&[], None);
        check(&[b"ab", b"cd"], None);
        check(&[b"ab", b"cd", b"e"], Some(b"abcde"));
        check(&[b"abcde", b"f"], Some(b"abcdef"));
        check(&[b"abcdefghijk", b"l"], Some(b"abcdefgh"));
    }

    #[test]
    fn the_newest_stay_and_what_is_not_ours_is_left_alone() {
        let scratch = Scratch::new();
        let outputs = scratch.path().join(".beige/outputs");
        assert!(fs::create_dir_all(outputs.join("0000000000000-00000000")).is_ok());
        for name in ["0000000000001-00000000", "0000000000002-00000000", "notes"] {
            assert!(fs::write(outputs.join(name), "x").is_ok());
        }
        let (saved, _) = kept(scratch.path(), &[b"abcde"]);
        assert!(saved.is_some());
        assert!(outputs.join("notes").exists());
        assert!(outputs.join("0000000000000-00000000").exists());
        assert!(!outputs.join("0000000000001-00000000").exists());
        assert!(outputs.join("0000000000002-00000000").exists());
    }

    #[track_caller]
    fn refused(plant: impl Fn(&Path)) {
        let scratch = Scratch::new();
        plant(scratch.path());
        let (saved, error) = kept(scratch.path(), &[b"abcde"]);
        assert_eq!(saved, None);
        assert!(error.is_some_and(|it| it.starts_with("cannot save the output in ")));
    }

    fn fifo(path: &Path) {
        let fifo = FileType::Fifo;
        assert!(
            rustix::fs::mknodat(rustix::fs::CWD, path, fifo, Mode::from_raw_mode(0o644), 0).is_ok()
        );
    }

    #[test]
    fn links_fifos_and_files_planted_under_our_names_are_refused() {
        let elsewhere = Scratch::new();
        let link = |path: &Path| {
            assert!(std::os::unix::fs::symlink(elsewhere.path(), path).is_ok());
        };
        let inside = |workspace: &Path| {
            assert!(fs::create_dir(workspace.join(".beige")).is_ok());
            workspace.join(".beige/outputs")
        };
        refused(|it| link(&it.join(".beige")));
        refused(|it| link(&inside(it)));
        refused(|it| fifo(&it.join(".beige")));
        refused(|it| fifo(&inside(it)));
        refused(|it| assert!(fs::write(it.join(".beige"), "").is_ok()));
        refused(|it| assert!(fs::write(inside(it), "").is_ok()));
        assert!(fs::read_dir(elsewhere.path()).is_ok_and(|mut it| it.next().is_none()));
    }

    #[test]
    fn names_sort_by_age_and_are_known_again() {
        assert!(is_ours(&new_name()));
        assert!(!is_ours("0000000000001-0000000g"));
        assert!(!is_ours("あああああああ0"));
    }
}
