//! Calls over real sockets: what a server, a proxy or a person can do to one.

pub(in crate::provider) mod server;
mod tls;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crossbeam_channel::unbounded;

use super::*;
use crate::config::{Endpoint, Timeouts};
use crate::provider::Delta;
use crate::provider::large::LargeAnswers;
use crate::provider::pool::tests::Plain;
use crate::provider::pool::{Patience, Pool};
use crate::secret::Secret;
use crate::worker::{Cancel, Worker};
use server::{Peer, Server};

const PATIENT: Duration = Duration::from_secs(60);

const MOMENT: Duration = Duration::from_millis(30);

const PATIENCE: Patience = Patience {
    connection: Some(PATIENT),
    first_byte: Some(PATIENT),
    idle: Some(PATIENT),
    refusal: PATIENT,
    inactivity: PATIENT,
};

const KEY: &str = "sk-this-must-not-be-seen";

fn endpoint(base_url: String) -> Endpoint {
    Endpoint {
        base_url,
        api_key: Some(Secret::new(KEY)),
        headers: Vec::new(),
        ca_file: None,
        proxy: None,
        timeouts: Timeouts { connect: PATIENT, first_byte: PATIENT, idle: PATIENT },
    }
}

fn pool(endpoint: &Endpoint) -> Pool {
    let target = Arc::new(Target::new("p", endpoint, ("Authorization", "Bearer ")));
    let make = move || Box::new(Post::new(Arc::clone(&target))) as Box<dyn Carrier>;
    Pool::new("p", NonZeroUsize::new(1), LargeAnswers::default(), Box::new(make))
}

#[test]
fn only_a_name_is_looked_up() {
    for (url, proxy, want) in [
        ("http://127.0.0.1:11434/v1", None, false),
        ("http://[::1]:1/v1", None, false),
        ("https://10.0.0.1/v1", None, false),
        ("http://localhost:1/v1", None, true),
        ("https://api.example.com/v1", None, true),
        ("http://10.0.0.1/v1", Some("socks5://proxy:1"), true),
    ] {
        let endpoint = Endpoint { proxy: proxy.map(Secret::new), ..endpoint(url.into()) };
        let target = Target::new("p", &endpoint, ("Authorization", "Bearer "));
        assert_eq!(target.is_named(), want, "{url}");
    }
}

/// A call; its text goes to `heard` piece by piece.
fn call(
    pool: &Pool,
    patience: Patience,
    cancel: &Cancel,
    heard: &mut dyn FnMut(&str),
) -> Result<(), Fault> {
    let wire = Wire {
        path: "/chat".into(),
        headers: vec![("Content-Type".into(), "application/json".into())],
        body: b"{\"question\":1}".to_vec(),
    };
    pool.call(wire, Box::<Plain>::default(), patience, cancel, &mut |it| {
        if let Delta::Text(it) = it {
            heard(&it);
        }
    })
}

fn ask(pool: &Pool) -> Result<String, Fault> {
    ask_for(pool, PATIENCE)
}

fn ask_for(pool: &Pool, patience: Patience) -> Result<String, Fault> {
    let mut text = String::new();
    call(pool, patience, &Cancel::never(), &mut |it| text.push_str(it)).map(|()| text)
}

/// The category of the one fault that a server causes, and a part of its text,
/// in which nothing of the key may stand.
#[track_caller]
fn check_fault(got: Result<String, Fault>, category: &str, part: &str) {
    let Err(fault) = got else { panic!("it was answered: {got:?}") };
    let text = fault.to_string();
    assert_eq!(fault.category(), category, "{text}");
    assert!(text.contains(part) && text.contains("`p`"), "{text}");
    assert!(!text.contains("must-not"), "{text}");
}

#[test]
fn a_request_has_its_key_its_headers_and_its_body() {
    let (told, asked) = unbounded();
    let server = Server::start(move |_, peer| {
        while let Some(request) = peer.request() {
            let _ = told.send(request);
            peer.answer("hello.");
        }
    });
    let mut endpoint = endpoint(server.url());
    endpoint.headers = vec![("X-Title".into(), Secret::new("mine"))];
    let pool = pool(&endpoint);
    assert_eq!(ask(&pool), Ok("hello".into()));
    let asked = asked.recv_timeout(PATIENT).unwrap_or_default();
    let (head, body) = asked.split_once("\r\n\r\n").unwrap_or_default();
    let mut lines: Vec<&str> = head.lines().collect();
    lines[1..].sort_unstable();
    let host = format!("host: {}", server.address());
    let version = format!("user-agent: beige/{}", env!("CARGO_PKG_VERSION"));
    let want = [
        "POST /v1/chat HTTP/1.1",
        "accept: text/event-stream, application/json",
        "authorization: Bearer sk-this-must-not-be-seen",
        "content-length: 14",
        "content-type: application/json",
        &host,
        &version,
        "x-title: mine",
    ];
    assert_eq!((lines, body), (want.to_vec(), "{\"question\":1}"));
}

#[test]
fn the_headers_of_a_person_replace_ours() {
    let (told, asked) = unbounded();
    let server = Server::start(move |_, peer| {
        let _ = told.send(peer.request().unwrap_or_default());
        peer.answer("hello.");
    });
    let mut endpoint = endpoint(server.url());
    endpoint.headers = vec![("authorization".into(), Secret::new("Token other-key-abc"))];
    assert_eq!(ask(&pool(&endpoint)), Ok("hello".into()));
    let asked = asked.recv_timeout(PATIENT).unwrap_or_default();
    let of_key = asked.lines().filter(|it| it.to_lowercase().starts_with("authorization"));
    assert_eq!(of_key.collect::<Vec<_>>(), ["authorization: Token other-key-abc"]);
}

#[test]
fn calls_use_one_connection() {
    let server = Server::start(|_, peer| {
        while peer.request().is_some() {
            peer.answer("hello.");
        }
    });
    let pool = pool(&endpoint(server.url()));
    for _ in 0..3 {
        assert_eq!(ask(&pool), Ok("hello".into()));
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_whole_answer_does_not_wait_for_a_server_that_holds_the_connection() {
    let server = Server::start(|_, peer| {
        peer.request();
        peer.begin("hello.");
        peer.wait_for_the_end();
    });
    let pool = pool(&endpoint(server.url()));
    assert_eq!(ask(&pool), Ok("hello".into()));
    assert_eq!(ask(&pool), Ok("hello".into()));
    assert_eq!(server.connections(), 2);
}

#[test]
fn an_answer_is_cut_at_once_and_the_next_call_works() {
    let server = Server::start(|number, peer| {
        peer.request();
        peer.begin("half");
        if number > 0 {
            return peer.answer_rest();
        }
        peer.wait_for_the_end();
    });
    let pool = pool(&endpoint(server.url()));
    let (canceller, cancel) = Cancel::pair();
    let got = call(&pool, PATIENCE, &cancel, &mut |_| canceller.cancel());
    assert_eq!(got, Err(Fault::Cancelled));
    assert_eq!(ask(&pool), Ok("half a loaf".into()));
}

#[test]
fn a_call_is_cut_before_its_answer_begins_and_the_next_one_works() {
    let (told, asked) = unbounded();
    let server = Server::start(move |number, peer| {
        let _ = told.send(peer.request());
        if number > 0 {
            return peer.answer("hello.");
        }
        peer.wait_for_the_end();
    });
    let pool = pool(&endpoint(server.url()));
    let (canceller, cancel) = Cancel::pair();
    let watcher = Worker::spawn("test", move || {
        let _ = asked.recv_timeout(PATIENT);
        canceller.cancel();
    });
    let got = call(&pool, PATIENCE, &cancel, &mut |_| ());
    assert_eq!(got, Err(Fault::Cancelled));
    drop(watcher);
    assert_eq!(ask(&pool), Ok("hello".into()));
}

impl Peer {
    fn answer_rest(&mut self) {
        self.chunk(" a loaf.");
        self.send("0\r\n\r\n");
        self.wait_for_the_end();
    }
}

#[track_caller]
fn check_late(patience: Patience, answer: &'static str, category: &str, setting: &str) {
    let server = Server::start(move |_, peer| {
        peer.request();
        peer.send(answer);
        peer.wait_for_the_end();
    });
    let pool = pool(&endpoint(server.url()));
    check_fault(ask_for(&pool, patience), category, setting);
    // The worker was cut, too.
    check_fault(ask_for(&pool, patience), category, setting);
    assert_eq!(server.connections(), 2);
}

const BEGUN: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";

#[test]
fn a_server_that_stalls_is_given_up() {
    let first = Patience { first_byte: Some(MOMENT), ..PATIENCE };
    check_late(first, "", "unavailable", "`llm.providers.p.timeouts.firstByteSeconds`");
    let idle = Patience { idle: Some(MOMENT), ..PATIENCE };
    check_late(idle, BEGUN, "unavailable", "`llm.providers.p.timeouts.idleSeconds`");
    let inactive = Patience { inactivity: MOMENT, ..PATIENCE };
    check_late(inactive, "", "inactive", "`limits.inactivitySeconds`");
    check_late(inactive, BEGUN, "inactive", "`limits.inactivitySeconds`");
}

/// One connection that answers with these bytes and closes.
#[track_caller]
fn check_answer(answer: &'static str, category: &str, part: &str) -> usize {
    let server = Server::start(move |_, peer| {
        peer.request();
        peer.send(answer);
    });
    check_fault(ask(&pool(&endpoint(server.url()))), category, part);
    server.connections()
}

#[test]
fn an_answer_that_breaks_off_is_cut() {
    assert_eq!(check_answer("", "cut", "broke before the end"), 1);
    check_answer("HTTP/1.1 200", "cut", "broke before the end");
    check_answer(BEGUN, "cut", "broke before the end");
    check_answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "cut", "broke before");
}

#[test]
fn an_answer_that_is_packed_is_told_to_be() {
    check_answer(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n??",
        "unavailable",
        "`Content-Encoding: gzip`",
    );
    let identity = "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\n\r\n!p is read";
    check_answer(identity, "unavailable", "p is read");
}

#[test]
fn what_is_no_http_is_named() {
    check_answer("220 mail.example ESMTP\r\n\r\n", "unavailable", "`llm.providers.p.baseUrl`");
}

#[test]
fn a_head_or_an_answer_without_end_is_not_read_for_ever() {
    let server = Server::start(|number, peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\n");
        let filler = format!("X-Filler: {}\r\n", "x".repeat(1000));
        if number == 0 {
            (0..100).for_each(|_| peer.send(&filler));
        } else {
            peer.send("Connection: close\r\n\r\n");
            (0..300).for_each(|_| peer.send(&filler));
        }
        peer.wait_for_the_end();
    });
    let pool = pool(&endpoint(server.url()));
    check_fault(ask(&pool), "unavailable", "too big");
    check_fault(ask(&pool), "cut", "after 262144 bytes");
}

#[test]
fn a_server_that_falls_silent_once_its_model_has_stopped_has_answered_and_one_that_breaks_off_not()
{
    /// Like [`Plain`], but never sure that nothing more comes.
    #[derive(Default)]
    struct Unsure(Plain);

    impl crate::provider::Decoder for Unsure {
        fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
            self.0.feed(bytes, deltas)
        }

        fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
            self.0.end(deltas)
        }
    }

    let server = Server::start(|number, peer| {
        peer.request();
        peer.begin("hello.");
        if number > 0 {
            peer.wait_for_the_end();
        }
    });
    let pool = pool(&endpoint(server.url()));
    let ask = |patience| {
        let decoder = Box::<Unsure>::default();
        pool.call(Wire::default(), decoder, patience, &Cancel::never(), &mut |_| ())
    };
    let broken = ask(PATIENCE).map(|()| String::new());
    check_fault(broken, "cut", "broke before the end of its answer");
    assert_eq!(ask(Patience { idle: Some(MOMENT), ..PATIENCE }), Ok(()));
}

#[test]
fn a_connection_that_is_closed_unanswered_costs_one_call() {
    let server = Server::start(|number, peer| {
        peer.request();
        if number == 0 {
            peer.answer("hello.");
            peer.request();
        }
    });
    let pool = pool(&endpoint(server.url()));
    assert_eq!(ask(&pool), Ok("hello".into()));
    // Over the connection that was kept, then over a new one.
    for connections in [1, 2] {
        check_fault(ask(&pool), "cut", "broke before the end");
        assert_eq!(server.connections(), connections);
    }
}

#[test]
fn a_redirect_is_refused_and_nothing_is_sent_there() {
    let elsewhere = Server::start(|_, peer| {
        peer.request();
    });
    for status in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let place = elsewhere.url();
        let server = Server::start(move |_, peer| {
            peer.request();
            peer.send(format!("HTTP/1.1 {status}\r\nLocation: {place}?key={KEY}\r\n"));
            peer.send("Content-Length: 0\r\n\r\n");
        });
        check_fault(ask(&pool(&endpoint(server.url()))), "refused", &elsewhere.url());
    }
    assert_eq!(elsewhere.connections(), 0);
}

/// Answers with a status and a text that repeats what it was sent.
fn echo(status: &'static str) -> Server {
    Server::start(move |_, peer| {
        let body = format!("I got {} and no more", peer.request().unwrap_or_default());
        peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    })
}

#[test]
fn a_secret_that_comes_back_is_not_told() {
    for status in ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found"] {
        let server = echo(status);
        check_fault(ask(&pool(&endpoint(server.url()))), "refused", "I got POST");
        let mut endpoint = endpoint(server.url());
        endpoint.headers =
            vec![("Authorization".into(), Secret::new("Basic also-must-not-be-seen"))];
        check_fault(ask(&pool(&endpoint)), "refused", "I got POST");
    }
}

#[test]
fn a_secret_in_the_middle_of_an_answer_is_not_told() {
    let server = Server::start(|_, peer| {
        peer.request();
        peer.begin(&format!("!no such key: {KEY}"));
        peer.wait_for_the_end();
    });
    check_fault(ask(&pool(&endpoint(server.url()))), "unavailable", "no such key: ••••");
}

#[test]
fn a_secret_that_is_cut_in_two_is_not_told() {
    let filler = LARGEST_REFUSAL - KEY.len() / 2;
    let server = Server::start(move |_, peer| {
        peer.request();
        let body = format!("{}{KEY}", "x".repeat(filler));
        let head = "HTTP/1.1 401 Unauthorized\r\nContent-Length:";
        peer.send(format!("{head} {}\r\n\r\n{body}", body.len()));
        peer.wait_for_the_end();
    });
    let got = ask(&pool(&endpoint(server.url())));
    check_fault(got, "refused", "401");
    let target = Target::new("p", &endpoint(server.url()), ("Authorization", "Bearer "));
    let halves = format!("{KEY} {}… and {}…", &KEY[..20], &KEY[..4]);
    let got = target.mask(Fault::Cut(halves));
    assert_eq!(got, Fault::Cut("•••• … and …".into()));
}

#[test]
fn a_refusal_is_told_though_its_text_never_ends() {
    let server = Server::start(|_, peer| {
        peer.request();
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 100\r\n\r\nno such model");
        peer.wait_for_the_end();
    });
    let patience = Patience { refusal: MOMENT, ..PATIENCE };
    let got = ask_for(&pool(&endpoint(server.url())), patience);
    check_fault(got, "refused", "no such model");
}

#[test]
fn a_server_that_does_not_run_is_named_with_what_to_check() {
    let address = {
        let server = Server::start(|_, _| ());
        server.url()
    };
    let pool = pool(&endpoint(address.clone()));
    check_fault(ask(&pool), "unavailable", &address);
    check_fault(ask(&pool), "unavailable", "check that the server runs");
}

#[test]
fn an_http_proxy_is_asked_for_a_tunnel() {
    let (told, asked) = unbounded();
    let proxy = Server::start(move |_, peer| {
        let _ = told.send(peer.head().unwrap_or_default());
        peer.send("HTTP/1.1 200 OK\r\n\r\n");
        while let Some(request) = peer.request() {
            let _ = told.send(request);
            peer.answer("by proxy.");
        }
    });
    let mut endpoint = endpoint("http://model.test/v1".into());
    let url = format!("http://joe:pass-must-not-be-seen@{}", proxy.address());
    endpoint.proxy = Some(Secret::new(url));
    let pool = pool(&endpoint);
    assert_eq!(ask(&pool), Ok("by proxy".into()));
    assert_eq!(ask(&pool), Ok("by proxy".into()));
    let heads: Vec<String> = asked.try_iter().collect();
    let of = |at: usize, part: &str| heads[at].to_lowercase().contains(part);
    assert!(of(0, "connect model.test:80 ") && of(0, "proxy-authorization: basic "), "{heads:?}");
    assert!(of(1, "post /v1/chat ") && !of(1, "proxy-authorization"), "{heads:?}");
    assert_eq!((heads.len(), proxy.connections()), (3, 1));
}

#[test]
fn a_proxy_that_refuses_is_named_without_its_password() {
    let proxy = Server::start(|_, peer| {
        peer.head();
        peer.send("HTTP/1.1 407 pass-must-not-be-seen\r\nContent-Length: 0\r\n\r\n");
    });
    let mut endpoint = endpoint("http://model.test/v1".into());
    let url = format!("http://joe:pass-must-not-be-seen@{}", proxy.address());
    endpoint.proxy = Some(Secret::new(url));
    check_fault(ask(&pool(&endpoint)), "unavailable", "407");
    check_fault(ask(&pool(&endpoint)), "unavailable", "`llm.providers.p.proxy`");
}

#[test]
fn a_proxy_that_never_comes_to_the_end_of_its_answer_is_left() {
    let proxy = Server::start(|_, peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nX-Filler: ");
        peer.wait_for_the_end();
    });
    let mut endpoint = endpoint("http://model.test/v1".into());
    endpoint.proxy = Some(Secret::new(format!("http://{}", proxy.address())));
    let pool = pool(&endpoint);
    let patience = Patience { connection: Some(MOMENT), ..PATIENCE };
    check_fault(
        ask_for(&pool, patience),
        "unavailable",
        "`llm.providers.p.timeouts.connectSeconds`",
    );
}

#[test]
fn a_proxy_that_is_none_says_nothing_of_certificates() {
    let proxy = Server::start(|_, peer| {
        peer.bytes(3);
        peer.send("220 mail.example ESMTP\r\n");
    });
    let mut endpoint = endpoint("http://model.test/v1".into());
    endpoint.proxy = Some(Secret::new(format!("socks5://{}", proxy.address())));
    let got = ask(&pool(&endpoint));
    assert!(!format!("{got:?}").contains("caFile"), "{got:?}");
    check_fault(got, "unavailable", "`llm.providers.p.proxy`");
}

/// The server's side of SOCKS5 with a password; the name that is wanted.
fn socks(peer: &mut Peer) -> Option<(Vec<u8>, Vec<u8>)> {
    let offered = peer.bytes(2)?;
    peer.bytes(usize::from(offered[1]))?;
    peer.send([5, 2]);
    let user = peer.bytes(2)?;
    let mut login = peer.bytes(usize::from(user[1]))?;
    let length = peer.bytes(1)?;
    login.push(b':');
    login.extend(peer.bytes(usize::from(length[0]))?);
    peer.send([1, 0]);
    let wanted = peer.bytes(5)?;
    let mut name = peer.bytes(usize::from(wanted[4]))?;
    name.extend(peer.bytes(2)?);
    peer.send([5, 0, 0, 1, 127, 0, 0, 1, 0, 80]);
    Some((login, name))
}

#[test]
fn a_socks_proxy_is_given_the_name() {
    let (told, asked) = unbounded();
    let proxy = Server::start(move |_, peer| {
        let _ = told.send(socks(peer).unwrap_or_default());
        while peer.request().is_some() {
            peer.answer("by socks.");
        }
    });
    let mut endpoint = endpoint("http://model.test/v1".into());
    endpoint.proxy =
        Some(Secret::new(format!("socks5://joe:pass-must-not-be-seen@{}", proxy.address())));
    assert_eq!(ask(&pool(&endpoint)), Ok("by socks".into()));
    let (login, name) = asked.recv_timeout(PATIENT).unwrap_or_default();
    assert_eq!(
        (login, name),
        (b"joe:pass-must-not-be-seen".to_vec(), b"model.test\0\x50".to_vec())
    );
}

#[track_caller]
fn check_file(text: &str, part: &str) {
    let path = std::env::temp_dir().join(format!("beige-ca-{}-{}", std::process::id(), text.len()));
    std::fs::write(&path, text).expect("write a file");
    let got = certificates(&path).map(|it| it.len());
    let _ = std::fs::remove_file(&path);
    match got {
        Ok(count) => assert_eq!(count.to_string(), part),
        Err(what) => assert!(what.contains(part) && what.contains("beige-ca-"), "{what}"),
    }
}

#[test]
fn a_file_without_certificates_is_named() {
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    check_file(&format!("{pem}# and\n{pem}"), "2");
    check_file("", "holds no certificate");
    check_file("hello", "holds no certificate");
    check_file("-----BEGIN CERTIFICATE-----\nAAAA\n", "no PEM file");
    let got = certificates(&PathBuf::from("/nonexistent/ca.pem")).map(|it| it.len());
    assert!(got.is_err_and(|it| it.contains("/nonexistent/ca.pem cannot be read")));
    let got = certificates(&std::env::temp_dir()).map(|it| it.len());
    assert!(got.is_err_and(|it| it.contains("not a file")));
}

#[test]
fn a_file_that_is_gone_at_the_call_is_our_fault() {
    let mut endpoint = endpoint("https://model.test/v1".into());
    endpoint.ca_file = Some("/nonexistent/ca.pem".into());
    check_fault_of_ours(ask(&pool(&endpoint)), "`llm.providers.p.caFile`");
}

#[track_caller]
fn check_fault_of_ours(got: Result<String, Fault>, part: &str) {
    assert!(matches!(&got, Err(Fault::Ours(it)) if it.contains(part)), "{got:?}");
}

#[test]
fn what_speaks_no_tls_is_named() {
    let server = Server::start(|_, peer| {
        peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        peer.wait_for_the_end();
    });
    let url = server.url().replace("http:", "https:");
    check_fault(ask(&pool(&endpoint(url))), "unavailable", "no secure connection");
}
