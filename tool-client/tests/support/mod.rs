//! Runs the built program in its roles and speaks frames with it, as the
//! gateway does.

#![allow(dead_code, reason = "each test program uses its part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod link;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tool_client::frame::{self, Frame};

/// One conversation with the program.
pub(crate) struct Talk {
    pub(crate) child: Child,
    pub(crate) to: Option<ChildStdin>,
    pub(crate) from: ChildStdout,
}

/// All that a conversation gave.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) granted: u64,
    pub(crate) exit: Value,
}

impl Talk {
    /// Starts the role and waits until it says that it is ready.
    pub(crate) fn open(role: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tool-client"))
            .arg(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start tool-client");
        let to = child.stdin.take();
        let mut talk = Self { to, from: child.stdout.take().expect("a pipe"), child };
        assert_eq!(talk.next().map(|it| it.kind), Some(frame::READY));
        talk
    }

    /// Opens the role and asks.
    pub(crate) fn ask(role: &str, request: &Value) -> Self {
        let mut talk = Self::open(role);
        let to = talk.to.as_mut().expect("open");
        frame::write_request(to, request.to_string().as_bytes()).expect("send the request");
        talk
    }

    /// Sends a frame; a program that has reported and left takes none, which
    /// is no failure.
    pub(crate) fn send(&mut self, kind: u8, payload: &[u8]) {
        match frame::write(self.to.as_mut().expect("open"), kind, payload) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            it => it.expect("send a frame"),
        }
    }

    /// Sends without minding whether it arrives.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.to.as_mut().map(|it| it.write_all(bytes));
    }

    pub(crate) fn next(&mut self) -> Option<Frame> {
        frame::read(&mut self.from).expect("read a frame")
    }

    pub(crate) fn hang_up(&mut self) {
        self.to = None;
    }

    /// Reads until bytes of standard output have come.
    pub(crate) fn until_output(&mut self, want: &str) {
        let mut got = String::new();
        while !got.contains(want) {
            let frame = self.next().expect("more output");
            assert_ne!(frame.kind, frame::EXIT, "{}", String::from_utf8_lossy(&frame.payload));
            if frame.kind == frame::STDOUT {
                got.push_str(&String::from_utf8_lossy(&frame.payload));
            }
        }
    }

    /// Reads to the end of it; the last frame must be the report.
    pub(crate) fn end(mut self) -> Told {
        let mut told = Told::default();
        while let Some(Frame { kind, payload }) = self.next() {
            assert_eq!(told.exit, Value::Null, "a frame after the report");
            match kind {
                frame::STDOUT => told.stdout.extend(payload),
                frame::STDERR => told.stderr.extend(payload),
                frame::WINDOW => {
                    let bytes = payload.try_into().expect("four bytes");
                    told.granted += u64::from(u32::from_be_bytes(bytes));
                }
                frame::EXIT => told.exit = serde_json::from_slice(&payload).expect("JSON"),
                it => panic!("a frame of kind {it}"),
            }
        }
        self.child.wait().expect("wait");
        told
    }
}

/// A folder of its own for a test, removed at its end.
pub(crate) struct Scratch(PathBuf);

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Scratch {
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tool-client-it-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("make a folder");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
