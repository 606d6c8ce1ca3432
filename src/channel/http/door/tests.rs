//! The door over real sockets with a real tiny_http behind it, under every
//! attack that tiny_http alone does not survive. Deadlines are injected: short
//! where the test is about them, out of reach everywhere else.

#![allow(clippy::expect_used)]

mod full;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;

use crossbeam_channel::unbounded;

use super::*;
use crate::channel::http::tests::Folder;
use crate::secret::Secret;

const SOON: Duration = Duration::from_millis(50);
const NEVER: Duration = Duration::from_secs(60);

/// Deadlines that no test reaches by itself.
fn patient() -> Limits {
    Limits {
        tcp_connections: 16,
        unix_connections: 4,
        head_time: NEVER,
        body_pause: NEVER,
        body_time: NEVER,
        write_pause: NEVER,
        linger: SOON,
        drain: Duration::ZERO,
        body_bytes: 1024 * 1024,
        memory_bytes: 1024,
        ..Limits::default()
    }
}

/// tiny_http that tells what it got: `/big` never stops, `/wait` waits.
struct Echo {
    server: tiny_http::Server,
    path: std::path::PathBuf,
    seen: Sender<String>,
    wait: Mutex<Option<Receiver<Infallible>>>,
}

impl Echo {
    fn answer(&self, mut request: tiny_http::Request) {
        let mut body = Vec::new();
        assert!(request.as_reader().read_to_end(&mut body).is_ok());
        let header = |name: &'static str| {
            let found = request.headers().iter().find(|it| it.field.equiv(name));
            found.map_or("-".to_owned(), |it| it.value.to_string())
        };
        let sum: u64 = body.iter().map(|it| u64::from(*it)).sum();
        let text = format!(
            "{} {} {} {sum} {} {}",
            request.method(),
            request.url(),
            body.len(),
            header("Expect"),
            header("X-Beige-Caller")
        );
        let _ = self.seen.send(text.clone());
        let url = request.url().to_owned();
        let mut to = request.into_writer();
        if url == "/wait" {
            let wait = self.wait.lock().map(|it| it.clone());
            let _ = wait.ok().flatten().map(|it| it.recv());
        }
        if url != "/big" {
            let _ = Answer::json(&text).write(&mut to);
            return;
        }
        while to.write_all(&[b'x'; 4096]).and_then(|()| to.flush()).is_ok() {}
        let _ = self.seen.send("the reader of /big is gone".into());
    }
}

impl Behind for Arc<Echo> {
    fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.path)
    }

    fn password(&self) -> String {
        "p".into()
    }

    fn is_upgrade(&self, head: &Head) -> bool {
        head.upgrade.as_deref() == Some("echo")
    }

    fn upgrade(&self, _: &Head, stream: Upgraded) -> Result<(), Answer> {
        let mut to = &*stream.client;
        let mut bytes = stream.early;
        assert!(stream.client.set_read_timeout(None).is_ok());
        while to.write_all(&bytes).is_ok() {
            bytes.resize(64, 0);
            match (&*stream.client).read(&mut bytes) {
                Ok(length @ 1..) => bytes.truncate(length),
                _ => break,
            }
        }
        let _ = self.seen.send("the upgrade is over".into());
        Ok(())
    }
}

/// A door with an echo behind it, and the means to watch both.
struct House {
    door: Option<Door>,
    echo: Arc<Echo>,
    _workers: Vec<Worker>,
    release: Option<Sender<Infallible>>,
    address: SocketAddr,
    seen: Receiver<String>,
    folder: Folder,
}

impl House {
    fn new(limits: Limits) -> Self {
        Self::build(limits).expect("a house")
    }

    fn build(limits: Limits) -> Result<Self> {
        let what = "build a house";
        let folder = Folder::new();
        let path = folder.path().join("inner");
        let inner = UnixListener::bind(&path).during(Kind::Internal, what)?;
        let server = tiny_http::Server::from_listener(inner, None).during(Kind::Internal, what)?;
        let (report, seen) = unbounded();
        let (release, wait) = bounded(0);
        let echo = Arc::new(Echo { server, path, seen: report, wait: Mutex::new(Some(wait)) });
        let mut workers = Vec::new();
        for number in 0..4 {
            let echo = Arc::clone(&echo);
            workers.push(Worker::spawn(format!("echo-{number}"), move || {
                while let Ok(request) = echo.server.recv() {
                    echo.answer(request);
                }
            })?);
        }
        let tcp = TcpListener::bind("127.0.0.1:0").during(Kind::Internal, what)?;
        let address = tcp.local_addr().during(Kind::Internal, what)?;
        let unix = UnixListener::bind(folder.path().join("api")).during(Kind::Internal, what)?;
        let guard = Guard {
            host: "127.0.0.1".into(),
            allowed_hosts: Vec::new(),
            token: Some(Secret::new("t0ken")),
        };
        let behind = Arc::new(Arc::clone(&echo));
        let door = Door::start(Some(tcp), Some(unix), guard, limits, behind, folder.path())?;
        let (door, release) = (Some(door), Some(release));
        Ok(Self { door, echo, _workers: workers, release, address, seen, folder })
    }

    fn dial(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connect");
        stream.set_read_timeout(Some(NEVER)).expect("timeout");
        stream
    }

    fn dial_unix(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("api")).expect("connect");
        stream.set_read_timeout(Some(NEVER)).expect("timeout");
        stream
    }

    /// Sends and reads to the end; gives the status.
    #[track_caller]
    fn ask(&self, request: impl AsRef<[u8]>) -> u16 {
        let mut stream = self.dial();
        let _ = stream.write_all(request.as_ref());
        status(&read_all(&mut stream))
    }

    /// What the server behind has seen next.
    #[track_caller]
    fn sees(&self, want: &str) {
        assert_eq!(self.seen.recv_timeout(NEVER).as_deref(), Ok(want));
    }

    #[track_caller]
    fn has_seen_nothing(&self) {
        assert_eq!(self.seen.try_recv(), Err(crossbeam_channel::TryRecvError::Empty));
    }

    /// It still serves.
    #[track_caller]
    fn serves(&self) {
        assert_eq!(self.ask(good("GET /ok", "")), 200);
        self.sees("GET /ok 0 0 - owner");
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.release.take();
        self.door.take();
        (0..4).for_each(|_| self.echo.server.unblock());
    }
}

fn good(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t0ken\r\n{headers}\r\n")
}

fn read_all(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[track_caller]
fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0)
}

#[test]
fn a_sound_request_is_served_and_the_answer_closes_the_connection() {
    let house = House::new(patient());
    let mut stream = house.dial();
    let request = good("POST /a?b", "Content-Length: 2\r\nX-Beige-Caller: stranger\r\n") + "hi";
    assert!(stream.write_all(request.as_bytes()).is_ok());
    let answer = read_all(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("Connection: close\r\n"));
    assert!(answer.ends_with("\"POST /a?b 2 209 - owner\""), "{answer}");
    house.sees("POST /a?b 2 209 - owner");
}

#[test]
fn callers_by_unix_socket_need_no_token() {
    let house = House::new(patient());
    let mut stream = house.dial_unix();
    assert!(stream.write_all(b"GET /u HTTP/1.0\r\n\r\n").is_ok());
    assert_eq!(status(&read_all(&mut stream)), 200);
    house.sees("GET /u 0 0 - owner");
}

#[test]
fn a_stranger_gets_health_and_is_marked_as_one() {
    let house = House::new(patient());
    let forged = "GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-Beige-Caller: owner\r\n\r\n";
    assert_eq!(house.ask(forged), 200);
    house.sees("GET /api/health 0 0 - stranger");
    assert_eq!(house.ask("GET /api/agents HTTP/1.1\r\nHost: localhost\r\n\r\n"), 401);
    house.has_seen_nothing();
}

#[test]
fn who_may_not_call_is_told_before_any_body() {
    let house = House::new(patient());
    let open = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n";
    assert_eq!(house.ask(open), 401);
    let foreign = open.replace("localhost", "evil.example");
    assert_eq!(house.ask(foreign), 403);
    let page = good("POST /", "Origin: http://evil.example\r\nContent-Length: 1000\r\n");
    assert_eq!(house.ask(page), 403);
    house.has_seen_nothing();
}

#[test]
fn a_body_announced_as_huge_is_refused_unread() {
    let house = House::new(patient());
    for length in ["10000000000000", "99999999999999999999999999", "1048577"] {
        let request =
            good("POST /", &format!("Content-Length: {length}\r\nExpect: 100-continue\r\n"));
        assert_eq!(house.ask(request), 413);
    }
    let chunks = good("POST /", "Transfer-Encoding: chunked\r\n") + "FFFFFFFF\r\n";
    assert_eq!(house.ask(chunks + &"a".repeat(1_100_000)), 413);
    house.has_seen_nothing();
    house.serves();
}

#[test]
fn a_head_without_end_is_cut_at_its_bound() {
    let house = House::new(patient());
    assert_eq!(house.ask(good("GET /", &format!("A: {}", "b".repeat(20_000)))), 431);
    assert_eq!(house.ask(good("GET /", &"A: b\r\n".repeat(100))), 431);
    assert_eq!(house.ask(format!("GET /{}", "a".repeat(20_000))), 431);
    house.has_seen_nothing();
    house.serves();
}

#[test]
fn a_slow_head_and_a_slow_body_are_cut_at_their_deadline() {
    let house = House::new(Limits { head_time: SOON, ..patient() });
    assert_eq!(house.ask("GET / HTTP/1.1\r\nHost: loc"), 408);
    assert_eq!(house.ask(""), 408);
    let house = House::new(Limits { body_pause: SOON, ..patient() });
    assert_eq!(house.ask(good("POST /", "Content-Length: 2\r\n") + "h"), 408);
    let house = House::new(Limits { body_time: SOON, ..patient() });
    assert_eq!(house.ask(good("POST /", "Transfer-Encoding: chunked\r\n") + "2\r\nh"), 408);
    house.has_seen_nothing();
}

#[test]
fn ambiguous_requests_never_reach_the_server_behind() {
    let house = House::new(patient());
    for lines in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Host: other\r\n",
        "A: b\rC: d\r\n",
        "A: b\nC: d\r\n",
        "A: b\0\r\n",
    ] {
        assert_eq!(house.ask(good("POST /", lines) + "0\r\n\r\n"), 400, "{lines:?}");
    }
    assert_eq!(house.ask(good("GET /a\0b", "")), 400);
    assert_eq!(house.ask("GET /\r\n"), 400);
    assert_eq!(house.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    assert_eq!(house.ask("GET / HTTP/0.9\r\n\r\n"), 505);
    house.has_seen_nothing();
    house.serves();
}

#[test]
fn a_chunked_body_arrives_whole_or_not_at_all() {
    let house = House::new(patient());
    let chunked = |body: &str| good("POST /c", "Transfer-Encoding: chunked\r\n") + body;
    assert_eq!(house.ask(chunked("1;x=y\r\na\r\n2\r\nbc\r\n0\r\nT: x\r\n\r\n")), 200);
    house.sees("POST /c 3 294 - owner");
    for broken in ["zz\r\n", "-1\r\n", "1\r\nab\r\n", "1\na\n0\n\n", "10000000000000000\r\n"] {
        assert_eq!(house.ask(chunked(broken)), 400, "{broken:?}");
    }
    assert_eq!(house.ask(chunked(&format!("1;{}\r\na", "x".repeat(20_000)))), 431);
    house.has_seen_nothing();
}

#[test]
fn a_large_body_goes_through_a_file_that_is_gone() {
    let house = House::new(patient());
    let body = "a".repeat(1024 * 1024);
    let request = good("POST /l", &format!("Content-Length: {}\r\n", body.len())) + &body;
    assert_eq!(house.ask(request), 200);
    house.sees(&format!("POST /l {} {} - owner", body.len(), 97 * body.len()));
    let left = std::fs::read_dir(house.folder.path()).expect("list");
    let names = left.flatten().map(|it| it.file_name()).collect::<Vec<_>>();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_second_request_on_the_connection_is_not_one() {
    let house = House::new(patient());
    let mut stream = house.dial();
    let twice = good("POST /1", "Content-Length: 1\r\n") + "x" + &good("GET /2", "");
    assert!(stream.write_all(twice.as_bytes()).is_ok());
    let answers = read_all(&mut stream);
    assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{answers}");
    house.sees("POST /1 1 120 - owner");
    house.has_seen_nothing();
}

#[test]
fn who_expects_continue_is_told_to_and_the_server_behind_never_knows() {
    let house = House::new(patient());
    let mut stream = house.dial();
    let head = good("POST /e", "Content-Length: 2\r\nExpect: 100-continue\r\n");
    assert!(stream.write_all(head.as_bytes()).is_ok());
    let mut go_on = [0; 25];
    assert!(stream.read_exact(&mut go_on).is_ok());
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert!(stream.write_all(b"hi").is_ok());
    assert_eq!(status(&read_all(&mut stream)), 200);
    house.sees("POST /e 2 209 - owner");
    assert_eq!(house.ask(good("POST /", "Content-Length: 2\r\nExpect: magic\r\n")), 417);
}

#[test]
fn who_only_ended_its_sending_half_still_gets_the_answer() {
    let house = House::new(patient());
    let mut stream = house.dial();
    assert!(stream.write_all(good("GET /h", "").as_bytes()).is_ok());
    assert!(stream.shutdown(Shutdown::Write).is_ok());
    assert_eq!(status(&read_all(&mut stream)), 200);
    let mut stream = house.dial();
    assert!(stream.write_all((good("POST /h", "Content-Length: 9\r\n") + "x").as_bytes()).is_ok());
    assert!(stream.shutdown(Shutdown::Write).is_ok());
    assert_eq!(status(&read_all(&mut stream)), 400);
}

#[test]
fn a_reader_that_takes_nothing_is_cut() {
    let house = House::new(Limits { write_pause: SOON, ..patient() });
    let mut stream = house.dial();
    assert!(stream.write_all(good("GET /big", "").as_bytes()).is_ok());
    house.sees("GET /big 0 0 - owner");
    house.sees("the reader of /big is gone");
    house.serves();
}

#[test]
fn a_reader_that_is_gone_is_seen() {
    let house = House::new(patient());
    let mut stream = house.dial();
    assert!(stream.write_all(good("GET /big", "").as_bytes()).is_ok());
    house.sees("GET /big 0 0 - owner");
    drop(stream);
    house.sees("the reader of /big is gone");
    house.serves();
}

#[test]
fn an_upgrade_runs_both_ways_until_either_side_ends() {
    let house = House::new(patient());
    let lines = "Upgrade: echo\r\nConnection: upgrade\r\n";
    let mut stream = house.dial();
    assert!(stream.write_all((good("POST /", lines) + "early").as_bytes()).is_ok());
    let mut back = [0; 5];
    assert!(stream.read_exact(&mut back).is_ok());
    assert!(stream.write_all(b"later").is_ok() && stream.read_exact(&mut back).is_ok());
    assert_eq!(&back, b"later");
    assert!(stream.shutdown(Shutdown::Write).is_ok());
    assert_eq!(read_all(&mut stream), "");
    house.sees("the upgrade is over");
    assert_eq!(house.ask(good("POST /", &format!("{lines}Content-Length: 1\r\n")) + "x"), 400);
    assert_eq!(house.ask(good("POST /", &format!("{lines}Transfer-Encoding: chunked\r\n"))), 400);
    assert_eq!(house.ask(good("GET /ok", "Upgrade: h2c\r\nConnection: upgrade\r\n")), 200);
}

#[test]
fn closing_the_door_ends_what_does_not_end_by_itself() {
    let mut house = House::new(patient());
    let (mut idle, mut busy, mut open) = (house.dial(), house.dial(), house.dial());
    assert!(busy.write_all(good("GET /big", "").as_bytes()).is_ok());
    house.sees("GET /big 0 0 - owner");
    let upgrade = good("POST /", "Upgrade: echo\r\nConnection: upgrade\r\n") + "x";
    assert!(open.write_all(upgrade.as_bytes()).is_ok() && open.read_exact(&mut [0; 1]).is_ok());
    house.door.take();
    assert_eq!(read_all(&mut idle), "");
    read_all(&mut busy);
    assert_eq!(read_all(&mut open), "");
    assert!(TcpStream::connect(house.address).is_err());
}

#[test]
fn closing_the_door_waits_for_the_answer_that_is_under_way() {
    let mut house = House::new(Limits { drain: NEVER, ..patient() });
    let mut stream = house.dial();
    assert!(stream.write_all(good("GET /wait", "").as_bytes()).is_ok());
    house.sees("GET /wait 0 0 - owner");
    let (door, release) = (house.door.take(), house.release.take());
    let closing = Worker::spawn("closing", move || drop(door));
    while TcpStream::connect(house.address).is_ok() {}
    drop(release);
    drop(closing);
    assert_eq!(status(&read_all(&mut stream)), 200);
}

#[test]
fn accepting_goes_on_after_every_failure() {
    let (stop, cancel) = Cancel::pair();
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let accept = || match turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => Err(io::Error::from_raw_os_error(24)), // EMFILE
        1 => Err(io::Error::from_raw_os_error(23)), // ENFILE
        2 => Err(ErrorKind::ConnectionAborted.into()),
        3 => Err(ErrorKind::Interrupted.into()),
        4 => UnixStream::pair().map(|(one, _)| Stream::Unix(one)),
        _ => {
            stop.cancel();
            Err(io::Error::from_raw_os_error(22))
        }
    };
    let mut taken = 0;
    accept_all(&accept, &cancel, Duration::from_millis(1), |_| taken += 1);
    assert_eq!((taken, turn.into_inner()), (1, 6));
}
