//! The gateway's side of the link, and a resident to speak it with.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    listen, recvmsg, sendmsg, socket_with, sockopt,
};
use serde_json::{Value, json};
use tool_client::frame::{self, Frame};
use tool_client::link;

use super::{Scratch, Told};

/// After which a test has failed.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// A resident with a folder of its own, ended with it.
pub(crate) struct Resident {
    pub(crate) child: Child,
    pub(crate) scratch: Scratch,
    /// As the kernel names the process that said READY.
    pub(crate) pid: i32,
}

/// A listening link socket.
pub(crate) struct Listener(OwnedFd);

/// A link that was dialled.
pub(crate) struct Link(OwnedFd);

/// One call.
pub(crate) struct Call {
    pub(crate) stream: UnixStream,
    /// Who said READY.
    pub(crate) pid: i32,
}

impl Resident {
    /// Starts one as a process of this host.
    pub(crate) fn start(leave_after: u32) -> Self {
        Self::begin(Command::new(env!("CARGO_BIN_EXE_tool-client")), Scratch::new(), leave_after)
    }

    /// The same, with no more than so many descriptors until it is given more.
    pub(crate) fn start_with_descriptors(most: u64) -> Self {
        let mut command = Command::new("/bin/sh");
        let script = format!("ulimit -Sn {most}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tool-client")]);
        Self::begin(command, Scratch::new(), 600)
    }

    /// Starts one as PID 1 of a sandbox.
    pub(crate) fn in_sandbox() -> Self {
        let scratch = Scratch::new();
        let mut command = Command::new("bwrap");
        command
            .args(["--unshare-user", "--unshare-pid", "--as-pid-1", "--die-with-parent"])
            .args(["--cap-drop", "ALL"])
            .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind"])
            .args([scratch.path(), scratch.path()])
            .args(["--", env!("CARGO_BIN_EXE_tool-client")]);
        Self::begin(command, scratch, 600)
    }

    fn begin(mut command: Command, scratch: Scratch, leave_after: u32) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        sockopt::set_socket_passcred(&ours, true).unwrap();
        let child = command
            .args(["--init", "--leave-after", &leave_after.to_string(), "--at"])
            .arg(scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .expect("start the resident");
        drop(command);
        let (first, pid) = recv_ready(&ours);
        assert_eq!(first, frame::head(frame::READY, 0).unwrap());
        Self { child, scratch, pid }
    }

    /// Listens as the gateway does, and takes the link.
    pub(crate) fn link(&self) -> Link {
        Listener::named(self.scratch.path(), "link.sock").accept()
    }

    /// Kills it from outside.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Listener {
    /// Binds under another name, listens, and takes the name.
    pub(crate) fn named(folder: &Path, name: &str) -> Self {
        let before: PathBuf = folder.join("new");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        bind(&socket, &SocketAddrUnix::new(&before).unwrap()).unwrap();
        listen(&socket, 4).unwrap();
        std::fs::rename(before, folder.join(name)).unwrap();
        Self(socket)
    }

    /// The next who dials, which must have greeted.
    pub(crate) fn accept(&self) -> Link {
        assert!(readable(self.0.as_fd(), &PATIENCE), "nobody dials");
        let link = Link(accept_with(&self.0, SocketFlags::CLOEXEC).unwrap());
        assert!(readable(link.0.as_fd(), &PATIENCE), "no greeting");
        let mut greeting = [0; link::MOST_PACKET];
        let count = rustix::io::read(&link.0, &mut greeting).unwrap();
        assert_eq!(&greeting[..count], link::HELLO);
        assert!(link.send(link::TAKEN, &[]));
        link
    }

    /// The next who dials, let go unread.
    pub(crate) fn refuse(&self) {
        assert!(readable(self.0.as_fd(), &PATIENCE), "nobody dials");
        drop(accept_with(&self.0, SocketFlags::CLOEXEC).unwrap());
    }

    /// Whether somebody dials within that time.
    pub(crate) fn is_dialled(&self, within: Duration) -> bool {
        readable(self.0.as_fd(), &Timespec::try_from(within).unwrap())
    }
}

impl Link {
    /// Sends a packet with descriptors, which may fail where the link is gone.
    pub(crate) fn send(&self, packet: &[u8], with: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !with.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(with)));
        }
        sendmsg(&self.0, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL).is_ok()
    }

    /// Whether the other side lets it go.
    pub(crate) fn ends(&self) -> bool {
        readable(self.0.as_fd(), &PATIENCE) && rustix::io::read(&self.0, &mut [0; 1]) != Ok(1)
    }

    /// Hands over a call and keeps our end, without waiting for READY.
    pub(crate) fn hand_over(&self, packet: &[u8]) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        sockopt::set_socket_passcred(&ours, true).unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(self.send(packet, &[theirs.as_fd()]), "the link is gone");
        ours
    }

    /// A call that is ready.
    pub(crate) fn call(&self, packet: &[u8]) -> Call {
        let stream = self.hand_over(packet);
        let (first, pid) = recv_ready(&stream);
        assert_eq!(first, frame::head(frame::READY, 0).unwrap(), "{first:?}");
        Call { stream, pid }
    }

    /// A command that has been asked for.
    pub(crate) fn run(&self, request: &Value) -> Call {
        self.call(link::RUN).ask(request)
    }

    /// A shell script that has been asked for.
    pub(crate) fn sh(&self, script: &str) -> Call {
        self.run(&json!({
            "argv": ["/bin/sh", "-c", script], "cwd": "/",
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}, "timeoutMs": 60_000,
        }))
    }

    /// A file operation, done.
    pub(crate) fn file(&self, request: &Value, input: &[u8]) -> Told {
        let mut call = self.call(link::FILE).ask(request);
        for piece in input.chunks(16 * 1024) {
            call.send(frame::STDIN, piece);
        }
        call.send(frame::STDIN_END, b"");
        call.end()
    }
}

impl Call {
    fn ask(mut self, request: &Value) -> Self {
        frame::write_request(&mut self.stream, request.to_string().as_bytes()).unwrap();
        self
    }

    pub(crate) fn send(&mut self, kind: u8, payload: &[u8]) {
        let _ = frame::write(&mut self.stream, kind, payload);
    }

    pub(crate) fn until_output(&mut self, want: &str) -> String {
        let mut got = String::new();
        while !got.contains(want) {
            let frame = frame::read(&mut self.stream).expect("a frame").expect("more output");
            assert_ne!(frame.kind, frame::EXIT, "{}", String::from_utf8_lossy(&frame.payload));
            if frame.kind == frame::STDOUT {
                got.push_str(&String::from_utf8_lossy(&frame.payload));
            }
        }
        got
    }

    /// Reads to the end; without a report the exit is null.
    pub(crate) fn end(mut self) -> Told {
        let mut told = Told::default();
        while let Ok(Some(Frame { kind, payload })) = frame::read(&mut self.stream) {
            match kind {
                frame::STDOUT => told.stdout.extend(payload),
                frame::STDERR => told.stderr.extend(payload),
                frame::EXIT => told.exit = serde_json::from_slice(&payload).expect("JSON"),
                _ => {}
            }
        }
        told
    }
}

/// The first bytes that come, and whose they are by the kernel's word.
pub(crate) fn recv_ready(from: &UnixStream) -> (Vec<u8>, i32) {
    assert!(readable(from.as_fd(), &PATIENCE), "nothing comes");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffer = [0; 5];
    let mut into = [IoSliceMut::new(&mut buffer)];
    let count = recvmsg(from, &mut into, &mut control, RecvFlags::empty()).unwrap().bytes;
    let pid = control.drain().find_map(|it| match it {
        RecvAncillaryMessage::ScmCredentials(it) => Some(it.pid.as_raw_nonzero().get()),
        _ => None,
    });
    (buffer[..count].to_vec(), pid.unwrap_or(0))
}

fn readable(it: BorrowedFd<'_>, within: &Timespec) -> bool {
    let mut state = [PollFd::from_borrowed_fd(it, PollFlags::IN)];
    matches!(rustix::event::poll(&mut state, Some(within)), Ok(1))
}
