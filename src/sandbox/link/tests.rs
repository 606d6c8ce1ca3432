//! The test's own process plays the resident, and its children supervisors.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::IoSliceMut;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, connect, recvmsg, send,
    socket_with,
};
use serde_json::json;
use tool_client::frame;
use tool_client::link::{HELLO, TAKEN};

use super::*;
use crate::sandbox::process::Process;
use crate::sandbox::talk::{End, Over, Talk, talk};
use crate::sandbox::{Feed, Output};
use crate::worker::Cancel;

struct Place {
    folder: PathBuf,
    link: Arc<Link>,
    _socket: LinkSocket,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bl-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let link = Arc::new(Link::default());
        let socket = link.listen(&folder.join("link.sock")).unwrap();
        Self { folder, link, _socket: socket }
    }

    fn dial(&self) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let path = self.folder.join("link.sock");
        connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        socket
    }

    fn dial_saying(&self, packet: &[u8]) -> OwnedFd {
        let socket = self.dial();
        send(&socket, packet, SendFlags::NOSIGNAL).unwrap();
        socket
    }

    fn call(&self, role: Role) -> Option<Call> {
        self.link.call(role, &|| Some(this()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// This process as a resident, which it is by its name only.
fn this() -> Resident {
    fs::write("/proc/self/comm", "tool-client").unwrap();
    Resident::look(std::process::id()).unwrap()
}

/// The word and the socket that the resident was sent.
fn handed(link: &OwnedFd) -> (Vec<u8>, UnixStream) {
    let mut packet = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut packet)];
    let got = recvmsg(link, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let socket = control.drain().find_map(|it| match it {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    match &packet[..got.bytes] {
        TAKEN => handed(link),
        word => (word.to_vec(), socket.unwrap().into()),
    }
}

/// By the other side, with or without having been read.
fn is_closed(socket: &OwnedFd) -> bool {
    let got = rustix::net::recv(socket, [0; 8].as_mut_slice(), RecvFlags::DONTWAIT);
    matches!(got, Ok((0, _)) | Err(Errno::CONNRESET))
}

#[test]
fn a_resident_is_waited_for_no_longer_than_it_lives() {
    let place = Place::new("dying");
    let mut child = Command::new("/bin/sh");
    child.args(["-c", "printf tool-client >/proc/$$/comm; echo; read it"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let resident = Resident::look(child.id()).unwrap();
    let long = Duration::from_secs(600);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut ends = place.link.ends.lock().unwrap();
            ends.taken(&|| Some(resident), long).is_some()
        });
        child.kill().unwrap();
        assert!(!waits.join().unwrap());
    });
    // Ended, and not yet reaped.
    assert!(!resident.serves());
    child.wait().unwrap();
}

struct Nowhere;

impl Output for Nowhere {
    fn stdout(&mut self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn stderr(&mut self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

fn talk_by(call: &Call) -> End {
    let (feed, cancel) = (Feed::empty(), Cancel::never());
    let output = &mut Nowhere;
    let is_up = &|| true;
    let talked = Talk {
        request: b"{}",
        feed: &feed,
        output,
        ready_within: Duration::from_secs(60),
        timeout: None,
        cancel: &cancel,
        is_up,
    };
    talk(call, talked).unwrap()
}

/// A child that is ready and reports at once, on that socket.
fn supervisor(socket: UnixStream) -> std::process::Child {
    let output = OwnedFd::from(socket);
    let script = r"printf '\010\0\0\0\0'; head -c 7 >&2; printf '\006\0\0\0\002{}'";
    let input = output.try_clone().unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(input).stdout(output).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn done() -> End {
    End::Over(Over { report: Some(json!({})), ..Over::default() })
}

#[test]
fn a_command_is_served_by_a_child_of_the_resident() {
    let place = Place::new("run");
    let link = place.dial_saying(HELLO);
    let call = place.call(Role::Run).unwrap();
    let (word, socket) = handed(&link);
    assert_eq!(word, RUN);
    let mut child = supervisor(socket);
    assert_eq!(talk_by(&call), done());
    child.wait().unwrap();
}

#[test]
fn a_command_that_another_process_takes_never_begins() {
    let place = Place::new("steal");
    let link = place.dial_saying(HELLO);
    let call = place.call(Role::Run).unwrap();
    let (_, mut socket) = handed(&link);
    // The resident itself is no supervisor; its refusal is the one word of it
    // that counts.
    frame::write(&mut socket, frame::READY, &[]).unwrap();
    assert!(matches!(talk_by(&call), End::NeverBegan(_)));

    let call = place.call(Role::Run).unwrap();
    let (_, mut socket) = handed(&link);
    frame::write(&mut socket, frame::EXIT, br#"{"error":"no room"}"#).unwrap();
    assert_eq!(talk_by(&call), End::NeverBegan("no room".into()));

    let call = place.call(Role::File).unwrap();
    let (word, socket) = handed(&link);
    assert_eq!(word, FILE);
    let mut child = supervisor(socket);
    assert!(matches!(talk_by(&call), End::NeverBegan(_)), "a child is not the resident");
    child.wait().unwrap();
}

#[test]
fn a_file_operation_is_served_by_the_resident_itself() {
    let place = Place::new("file");
    let link = place.dial_saying(HELLO);
    let call = place.call(Role::File).unwrap();
    let (_, mut socket) = handed(&link);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            frame::write(&mut socket, frame::READY, &[]).unwrap();
            assert_eq!(frame::read(&mut socket).unwrap().unwrap().kind, frame::REQUEST);
            frame::write(&mut socket, frame::EXIT, b"{}").unwrap();
        });
        assert_eq!(talk_by(&call), done());
    });
}

#[test]
fn one_link_serves_many_calls_and_a_dead_one_is_taken_anew() {
    let place = Place::new("anew");
    let first = place.dial_saying(HELLO);
    let _calls = [place.call(Role::Run).unwrap(), place.call(Role::Run).unwrap()];
    drop((handed(&first), handed(&first)));
    drop(first);
    let second = place.dial_saying(HELLO);
    let call = place.call(Role::File).unwrap();
    handed(&second);
    drop(call);
    // Whoever speaks on the link loses it.
    send(&second, b"x", SendFlags::NOSIGNAL).unwrap();
    let third = place.dial_saying(HELLO);
    let _call = place.call(Role::Run).unwrap();
    handed(&third);
    assert!(is_closed(&second));
}

#[test]
fn a_resident_that_ends_with_a_call_in_its_hands_has_not_begun_it() {
    let place = Place::new("end");
    let link = place.dial_saying(HELLO);
    let call = place.call(Role::Run).unwrap();
    drop(link);
    assert_eq!(talk_by(&call), End::NeverBegan(String::new()));
}

#[test]
fn whoever_greets_wrongly_is_closed_and_those_behind_get_in() {
    let place = Place::new("wrong");
    let wrong = [&b""[..], b"beige-link/2", b"beige-link/1 ", &[b'x'; 300], b"beige"];
    let wrong = wrong.map(|it| place.dial_saying(it));
    let two = place.dial_saying(HELLO);
    send(&two, HELLO, SendFlags::NOSIGNAL).unwrap();
    let right = place.dial_saying(HELLO);
    let _call = place.call(Role::Run).unwrap();
    handed(&right);
    assert!(wrong.iter().all(is_closed) && is_closed(&two));
}

#[test]
fn another_process_gets_nothing_however_often_it_dials() {
    let place = Place::new("impostor");
    let impostors: Vec<_> = (0..60).map(|_| place.dial_saying(HELLO)).collect();
    let of_another_time = Resident { started: this().started + 1, ..this() };
    let parent = Process::look(std::process::id()).unwrap().parent;
    let another = Resident { pid: parent, started: 1 };
    for wanted in [of_another_time, another] {
        place.link.take_over(&|| Some(wanted));
        assert!(place.link.ends.lock().unwrap().taken.is_none());
    }
    assert!(impostors.iter().all(is_closed));
    let real = place.dial_saying(HELLO);
    let _call = place.call(Role::Run).unwrap();
    handed(&real);
}

#[test]
fn nobody_is_waited_for_where_the_resident_is_unknown_or_came_not() {
    let place = Place::new("wait");
    let started = Instant::now();
    assert!(place.link.call(Role::Run, &|| None).is_none());
    assert!(started.elapsed() < DIALS_WITHIN, "unknown");
    assert!(place.call(Role::Run).is_none());
    let waited = started.elapsed();
    assert!(waited >= DIALS_WITHIN, "{waited:?}");
    for _ in 0..50 {
        assert!(place.call(Role::Run).is_none());
    }
    assert!(started.elapsed() < waited + DIALS_WITHIN, "it is not waited for again");
    let _late = place.dial_saying(HELLO);
    assert!(place.call(Role::Run).is_some(), "one that comes by itself is taken");
}

#[test]
fn a_socket_goes_with_its_owner_and_nobody_is_let_in_without_one() {
    let place = Place::new("gone");
    let path = place.folder.join("other.sock");
    let link = Arc::new(Link::default());
    let socket = link.listen(&path).unwrap();
    assert!(path.exists());
    drop(socket);
    assert!(!path.exists());
    assert!(link.call(Role::Run, &|| Some(this())).is_none());
}
