//! Calls over real sockets: what a server, a proxy or a person can do to one.

mod answers;
mod early;
mod proxies;
mod secrets;
pub(in crate::provider) mod server;
mod tls;

use std::num::NonZeroUsize;
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
        assert_eq!(agent::is_named(&endpoint), want, "{url}");
    }
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
fn a_server_that_does_not_run_is_named_with_what_to_check() {
    let address = {
        let server = Server::start(|_, _| ());
        server.url()
    };
    let pool = pool(&endpoint(address.clone()));
    check_fault(ask(&pool), "unavailable", &address);
    check_fault(ask(&pool), "unavailable", "check that the server runs");
}
