//! The program that enters a sandbox (`docker exec`, or bubblewrap itself), as
//! the way to the tool-client that it starts inside: starts it, holds its pipes
//! and the first words of its complaint, kills and reaps it with its group.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Signal, kill_process_group};

use super::process::{Process, number};
use super::talk::Way;
use crate::error::{During, Error, Kind, Result};

/// What the entering program may say on its standard error, in bytes.
const COMPLAINT_LIMIT: u64 = 8 * 1024;

/// The program that enters a sandbox, as a way to the tool-client in it;
/// killed and reaped when dropped.
pub(super) struct Entered<'a> {
    child: Child,
    input: File,
    output: File,
    complaint: File,
    reaped: bool,
    /// Called with its pid before it is given any work.
    admit: &'a (dyn Fn(u32) -> Result<()> + Sync),
}

impl<'a> Entered<'a> {
    /// Starts it. It has to be dropped by the same thread: bwrap's
    /// `--die-with-parent` follows the thread that spawned it.
    pub(super) fn start(
        mut command: Command,
        admit: &'a (dyn Fn(u32) -> Result<()> + Sync),
    ) -> Result<Self> {
        let complaint = complaint_file()?;
        let program = command.get_program().to_string_lossy().into_owned();
        let stderr = complaint.try_clone().during(Kind::Internal, "duplicate a descriptor")?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            // A Ctrl-C at the terminal is ours to pass on, once.
            .process_group(0)
            .spawn()
            .during(Kind::Sandbox, format!("start `{program}`"))?;
        let pipes =
            child.stdin.take().map(OwnedFd::from).zip(child.stdout.take().map(OwnedFd::from));
        let (input, output) = pipes
            .map(|(input, output)| (File::from(input), File::from(output)))
            .ok_or_else(|| Error::new(Kind::Internal, "a child came without pipes"))?;
        let entered = Self { child, input, output, complaint, reaped: false, admit };
        // So that one that takes nothing any more cannot hold us.
        rustix::io::ioctl_fionbio(&entered.input, true)
            .during(Kind::Internal, "set up a child's standard input")?;
        Ok(entered)
    }

    /// Ends it; with what it said on its standard error.
    pub(super) fn complaint(&mut self) -> String {
        self.end();
        read_complaint(&mut self.complaint)
    }

    /// Once reaped its id may be a stranger's.
    fn end(&mut self) {
        if !self.reaped {
            kill_all_of(self.child.id());
            self.reaped = self.child.wait().is_ok();
        }
    }
}

impl Way for Entered<'_> {
    fn input(&self) -> &File {
        &self.input
    }

    fn output(&self) -> &File {
        &self.output
    }

    fn meet(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut from = &self.output;
        loop {
            match from.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn begin(&self) -> Result<()> {
        (self.admit)(self.child.id())
    }

    /// Whoever answers is what was started.
    fn may_begin(&self) -> bool {
        true
    }

    /// A container's processes are not below the program that enters it.
    fn started(&self) -> Option<Vec<Process>> {
        None
    }

    fn cut(&self) {
        // The pid is ours until it is reaped, when this is dropped.
        kill_all_of(self.child.id());
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills the entering program with all of its process group. It alone would
/// not do: a bwrap that dies while it starts leaves a child behind that waits
/// for its word for ever, and holds the pipes that we read.
pub(super) fn kill_all_of(child: u32) {
    if let Some(group) = number(child) {
        // Fails only when all are gone already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// A file in memory that cannot grow: takes the first words of the entering
/// program's standard error without a thread to read them.
pub(super) fn complaint_file() -> Result<File> {
    let what = "make a buffer for a child's standard error";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("stderr", flags).during(Kind::Internal, what)?);
    file.set_len(COMPLAINT_LIMIT).during(Kind::Internal, what)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK)
        .during(Kind::Internal, what)?;
    Ok(file)
}

pub(super) fn read_complaint(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_complaint_is_kept_to_its_bound() -> Result<()> {
        let mut file = complaint_file()?;
        assert_eq!(read_complaint(&mut file), "");
        let mut writer = file.try_clone().during(Kind::Internal, "clone")?;
        writer.seek(SeekFrom::Start(0)).during(Kind::Internal, "seek")?;
        let _ = writer.write_all(&vec![b'x'; 3 * COMPLAINT_LIMIT as usize]);
        assert_eq!(read_complaint(&mut file), "x".repeat(COMPLAINT_LIMIT as usize));
        Ok(())
    }
}
