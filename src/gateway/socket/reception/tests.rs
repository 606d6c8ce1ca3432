//! Agents' sockets without a gateway: who is let in, in which order, and what
//! of it all ends with what.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

use super::*;
use crate::worker::Cancel;

/// A socket that needs no file.
fn address(name: &str) -> SocketAddr {
    let name = format!("beige-reception-{}-{name}", std::process::id());
    SocketAddr::from_abstract_name(name).expect("a name")
}

fn listener(name: &str) -> UnixListener {
    UnixListener::bind_addr(&address(name)).expect("a socket")
}

fn connect(name: &str) -> UnixStream {
    let stream = UnixStream::connect_addr(&address(name)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a deadline");
    stream
}

/// Gives back what it is sent, until the peer ends.
fn echo() -> Arc<Serve> {
    Arc::new(|mut stream| {
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|it| it == 1) && stream.write_all(&byte).is_ok() {}
    })
}

/// The same, until it is told to end.
fn echo_until(stop: &Cancel) -> Arc<Serve> {
    let stop = stop.clone();
    Arc::new(move |mut stream| {
        let mut byte = [0];
        let _ = stream.read(&mut byte).and_then(|_| stream.write_all(&byte));
        let _ = stop.gone().recv();
    })
}

#[track_caller]
fn answers(mut stream: &UnixStream) {
    stream.write_all(b"x").expect("sent");
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("an answer");
    assert_eq!(&byte, b"x");
}

fn doorkeeper(entrances: &[(&str, UnixListener)]) -> Doorkeeper {
    let bell = Arc::new(Bell::new().expect("a bell"));
    let entrance = |(name, listener): &(&str, UnixListener)| {
        let listener = listener.try_clone().expect("a second handle");
        listener.set_nonblocking(true).expect("it can");
        Entrance::new(name, listener, echo(), &bell)
    };
    let entrances = entrances.iter().map(entrance).collect();
    Doorkeeper { entrances, words: bounded(1).1, bell }
}

#[test]
fn an_agent_at_its_bound_holds_up_no_other() -> Result<()> {
    let reception = Reception::open()?;
    let _full = reception.add("full", listener("full"), echo())?;
    let _other = reception.add("other", listener("other"), echo())?;
    let mut inside: Vec<UnixStream> = (0..MAX_CONNECTIONS).map(|_| connect("full")).collect();
    inside.iter().for_each(answers);
    let mut waiting: Vec<UnixStream> = (0..100).map(|_| connect("full")).collect();
    waiting.iter_mut().for_each(|it| it.write_all(b"y").expect("sent"));
    for _ in 0..10 {
        answers(&connect("other"));
    }
    let mut byte = [0];
    waiting[0].set_nonblocking(true).expect("it can");
    let early = waiting[0].read(&mut byte).map_err(|it| it.kind());
    assert_eq!(early, Err(ErrorKind::WouldBlock), "one over the bound was let in");
    // Each that leaves makes room for the next.
    waiting[0].set_nonblocking(false).expect("it can");
    for mut next in waiting {
        inside.pop();
        next.read_exact(&mut byte).expect("let in");
        inside.insert(0, next);
    }
    Ok(())
}

#[test]
fn who_floods_is_let_in_as_often_as_who_does_not() {
    let (busy, calm) = (listener("busy"), listener("calm"));
    let mut doorkeeper = doorkeeper(&[("busy", busy), ("calm", calm)]);
    let flood: Vec<UnixStream> = (0..10).map(|_| connect("busy")).collect();
    let visit = connect("calm");
    let ready = doorkeeper.wait().expect("it waits");
    assert_eq!(ready, [0, 1]);
    ready.into_iter().for_each(|at| doorkeeper.entrances[at].admit_one());
    let taken = |it: &Entrance| it.seats.taken.load(Ordering::SeqCst);
    assert_eq!(doorkeeper.entrances.iter().map(taken).collect::<Vec<_>>(), [1, 1]);
    answers(&visit);
    drop((flood, visit));
}

#[test]
fn a_socket_that_is_removed_ends_alone() -> Result<()> {
    let reception = Reception::open()?;
    let (stop, stopped) = Cancel::pair();
    let gone = reception.add("gone", listener("gone"), echo_until(&stopped))?;
    let _stays = reception.add("stays", listener("stays"), echo())?;
    let (mut with_gone, with_stays) = (connect("gone"), connect("stays"));
    answers(&with_gone);
    answers(&with_stays);
    stop.cancel();
    drop(gone);
    assert_eq!(with_gone.read(&mut [0]).expect("an end"), 0);
    assert!(UnixStream::connect_addr(&address("gone")).is_err(), "it still listens");
    answers(&with_stays);
    answers(&connect("stays"));
    // Another may come in its place.
    let _again = reception.add("gone", listener("gone"), echo())?;
    answers(&connect("gone"));
    Ok(())
}

#[test]
fn the_thread_ends_with_the_last_socket() -> Result<()> {
    let reception = Reception::open()?;
    let bell = Arc::downgrade(&reception.bell);
    let first = reception.add("first", listener("first"), echo())?;
    let last = reception.add("last", listener("last"), echo())?;
    drop((reception, first));
    answers(&connect("last"));
    drop(last);
    assert_eq!(bell.strong_count(), 0);
    Ok(())
}

#[test]
fn a_socket_on_which_accepting_fails_is_left_alone_for_a_while() {
    // A connected socket is always ready here, and nothing can be accepted.
    let (mut peer, broken) = UnixStream::pair().expect("a pair");
    peer.write_all(b"x").expect("sent");
    let sound = listener("sound");
    let broken = UnixListener::from(OwnedFd::from(broken));
    let mut doorkeeper = doorkeeper(&[("broken", broken), ("sound", sound)]);
    assert_eq!(doorkeeper.wait().expect("it waits"), [0]);
    doorkeeper.entrances[0].admit_one();
    doorkeeper.entrances[0].paused_until = Some(Instant::now() + Duration::from_secs(600));
    let visit = connect("sound");
    assert_eq!(doorkeeper.wait().expect("it waits"), [1]);
    doorkeeper.entrances[1].admit_one();
    answers(&visit);
    // Nor does it hold up the end.
    doorkeeper.bell.ring();
    assert_eq!(doorkeeper.wait().expect("it waits"), [0; 0]);
    doorkeeper.entrances[0].paused_until = Some(Instant::now());
    assert_eq!(doorkeeper.wait().expect("it waits"), [0]);
    doorkeeper.entrances[0].paused_until = None;
    doorkeeper.entrances[0].admit_one();
    assert!(doorkeeper.entrances[0].paused_until.is_some(), "it would be tried at once");
    assert!(!doorkeeper.heed(Duration::ZERO), "nobody is there to say something");
}
