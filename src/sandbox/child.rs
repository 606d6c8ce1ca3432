//! One framed talk with tool-client: starts the program that enters the
//! sandbox, hands over the request once tool-client says it is ready, moves
//! bytes both ways, and ends it. Memory is bounded by one frame each way; a
//! silent or frozen other side is cut after a deadline.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, select, unbounded};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tool_client::frame::{self, Frame};

use super::pump::{Note, Pump, Pumped};
use super::{Feed, Output};
use crate::error::{During, Error, Kind, Result};
use crate::worker::{self, Cancel};

/// How long tool-client may take to say that it is ready.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// What the entering program may say on its standard error, in bytes.
const COMPLAINT_LIMIT: u64 = 8 * 1024;

/// One talk.
pub(super) struct Talk<'a> {
    /// Starts tool-client inside.
    pub(super) command: Command,
    /// A JSON object.
    pub(super) request: &'a [u8],
    /// What is fed in.
    pub(super) feed: &'a Feed,
    /// Who takes what comes out.
    pub(super) output: &'a mut dyn Output,
    /// Called with the host pid once tool-client is ready.
    pub(super) admit: &'a (dyn Fn(u32) -> Result<()> + Sync),
    /// After which tool-client reports by itself.
    pub(super) timeout: Option<Duration>,
    /// Calls it off.
    pub(super) cancel: &'a Cancel,
}

/// How a talk ended.
pub(super) enum End {
    /// tool-client's report.
    Report(Value),
    /// Nothing was begun; with what the entering program complained of.
    NeverBegan(String),
    /// It had begun, and no report came.
    Lost(String),
    /// It had begun, and tool-client let its time for a report pass: what it
    /// started may run on.
    Silent,
}

/// Starts the command and stays with it to its end, on this thread: bwrap's
/// `--die-with-parent` follows the thread that spawned it.
pub(super) fn talk(talk: Talk<'_>) -> Result<End> {
    let Talk { mut command, request, feed, output, admit, timeout, cancel } = talk;
    let mut complaint = complaint_file()?;
    let program = command.get_program().to_string_lossy().into_owned();
    let stderr = complaint.try_clone().during(Kind::Internal, "duplicate a descriptor")?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        // A Ctrl-C at the terminal is ours to pass on, once.
        .process_group(0)
        .spawn()
        .map(Entered::new)
        .during(Kind::Sandbox, format!("start `{program}`"))?;
    let (stdin, stdout) = child.pipes()?;
    let began = AtomicBool::new(false);
    let (notes, heard) = unbounded();
    let feeder = Feeder {
        child: child.id(),
        request,
        feed,
        heard: &heard,
        admit,
        timeout,
        cancel,
        began: &began,
    };
    let (fed, report) = thread::scope(|scope| {
        let feeding = worker::scoped(scope, "child-in", move || feeder.run(stdin))?;
        let report = listen(stdout, output, notes);
        // Whatever still runs now is only on its way out; killing it also
        // frees a feeder that is blocked in a write.
        kill_all_of(child.id());
        match feeding.join() {
            Ok(fed) => fed.map(|fed| (fed, report)),
            Err(_) => Err(Error::new(Kind::Internal, "the thread `child-in` panicked")),
        }
    })?;
    child.end();
    Ok(match report {
        Some(report) => End::Report(report),
        None if fed == Fed::Silent => End::Silent,
        None if began.load(Ordering::Acquire) => End::Lost(read_complaint(&mut complaint)),
        None => End::NeverBegan(read_complaint(&mut complaint)),
    })
}

/// Reads frames to the report or to the end of the stream.
fn listen(mut from: ChildStdout, output: &mut dyn Output, notes: Sender<Note>) -> Option<Value> {
    let mut taker_gone = false;
    loop {
        let Frame { kind, payload } = frame::read(&mut from).ok()??;
        let taken = match kind {
            frame::READY => tell(&notes, Note::Ready),
            frame::STDOUT if !taker_gone => output.stdout(&payload),
            frame::STDERR if !taker_gone => output.stderr(&payload),
            frame::WINDOW => {
                let more = payload.try_into().map_or(0, u32::from_be_bytes);
                tell(&notes, Note::Window(more)).and_then(|()| output.window(more))
            }
            frame::EXIT => return serde_json::from_slice(&payload).ok(),
            _ => Ok(()),
        };
        if taken.is_err() && !taker_gone {
            taker_gone = true;
            let _ = tell(&notes, Note::TakerGone);
        }
    }
}

fn tell(notes: &Sender<Note>, note: Note) -> io::Result<()> {
    // A feeder that has given up needs no notes.
    let _ = notes.send(note);
    Ok(())
}

/// The side that writes: waits until tool-client is ready, hands over the
/// request, then pumps.
struct Feeder<'a> {
    child: u32,
    request: &'a [u8],
    feed: &'a Feed,
    heard: &'a Receiver<Note>,
    admit: &'a (dyn Fn(u32) -> Result<()> + Sync),
    timeout: Option<Duration>,
    cancel: &'a Cancel,
    began: &'a AtomicBool,
}

/// What the feeder saw of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fed {
    /// It ended by itself, or never began.
    Over,
    /// It had to be cut off.
    Silent,
}

impl Feeder<'_> {
    fn run(self, mut to: ChildStdin) -> Result<Fed> {
        if !self.is_ready() {
            self.kill();
            return Ok(Fed::Over);
        }
        if let Err(error) = (self.admit)(self.child) {
            self.kill();
            return Err(error);
        }
        self.began.store(true, Ordering::Release);
        // A write that fails means that the other side is gone; the reader
        // sees that too and says what is known.
        if frame::write_request(&mut to, self.request).is_ok() && self.pump(&mut to) {
            self.kill();
            return Ok(Fed::Silent);
        }
        Ok(Fed::Over)
    }

    fn is_ready(&self) -> bool {
        select! {
            recv(self.heard) -> note => matches!(note, Ok(Note::Ready)),
            recv(self.cancel.gone()) -> _ => false,
            recv(after(READY_LIMIT)) -> _ => false,
        }
    }

    /// Whether the other side has to be killed.
    fn pump(&self, to: &mut ChildStdin) -> bool {
        let pump =
            Pump { feed: self.feed, heard: self.heard, timeout: self.timeout, cancel: self.cancel };
        matches!(pump.run(to), Ok(Pumped::Silent))
    }

    fn kill(&self) {
        // The pid is ours until it is reaped, after this thread.
        kill_all_of(self.child);
    }
}

/// Kills the entering program with all of its process group. It alone would
/// not do: a bwrap that dies while it starts leaves a child behind that waits
/// for its word for ever, and holds the pipes that we read.
pub(super) fn kill_all_of(child: u32) {
    if let Some(group) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        // Fails only when all are gone already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The entering program; killed and reaped when dropped.
struct Entered {
    child: Child,
    reaped: bool,
}

impl Entered {
    fn new(child: Child) -> Self {
        Self { child, reaped: false }
    }

    /// Its process id, which is its process group too.
    fn id(&self) -> u32 {
        self.child.id()
    }

    fn pipes(&mut self) -> Result<(ChildStdin, ChildStdout)> {
        match (self.child.stdin.take(), self.child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok((stdin, stdout)),
            _ => Err(Error::new(Kind::Internal, "a child came without pipes")),
        }
    }

    /// Once reaped its id may be a stranger's.
    fn end(&mut self) {
        if !self.reaped {
            kill_all_of(self.id());
            self.reaped = self.child.wait().is_ok();
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.end();
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

    struct Nowhere;

    impl Output for Nowhere {
        fn stdout(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn stderr(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_talk_that_is_called_off_before_it_begins_waits_for_nobody() -> Result<()> {
        // As a bwrap that is still starting: its child holds the pipes.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 300 & wait"]);
        let (canceller, cancel) = Cancel::pair();
        canceller.cancel();
        let ended = talk(Talk {
            command,
            request: b"{}",
            feed: &Feed::empty(),
            output: &mut Nowhere,
            admit: &|_| Ok(()),
            timeout: None,
            cancel: &cancel,
        })?;
        assert!(matches!(ended, End::NeverBegan(_)));
        Ok(())
    }

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
