//! Answers that come while the request is still being written.

use super::*;

/// More than the sockets between two ends hold.
const LARGE: usize = 32 * 1024 * 1024;

const READ: usize = 64 * 1024;

const BUSY: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n\
    Content-Length: 9\r\n\r\nnot again";

/// A call whose request is large, and why it failed.
fn ask_much(pool: &Pool) -> Result<String, Fault> {
    let wire = Wire { path: "/chat".into(), headers: Vec::new(), body: vec![b' '; LARGE] };
    let mut text = String::new();
    let mut hear = |it| {
        if let Delta::Text(it) = it {
            text.push_str(&it);
        }
    };
    let decoder = Box::<Plain>::default();
    pool.call(wire, decoder, PATIENCE, &Cancel::never(), &mut hear).map(|()| text)
}

/// Reads the beginning of a request, and answers.
fn answer_early(peer: &mut Peer, answer: &str) {
    peer.head();
    peer.bytes(READ);
    peer.send(answer);
}

#[track_caller]
fn check_busy(got: Result<String, Fault>) {
    let Err(Fault::RateLimited(wait, text)) = got else { panic!("{got:?}") };
    assert_eq!(wait, Some(7_000), "{text}");
    assert!(text.contains("not again"), "{text}");
}

/// The next call makes a connection of its own.
#[track_caller]
fn check(then: impl Fn(&mut Peer) + Send + 'static) {
    let server = Server::start(move |number, peer| {
        if number == 0 {
            answer_early(peer, BUSY);
            return then(peer);
        }
        peer.request();
        peer.answer("hello.");
    });
    let pool = pool(&endpoint(server.url()));
    check_busy(ask_much(&pool));
    assert_eq!(ask(&pool), Ok("hello".into()));
    assert_eq!(server.connections(), 2);
}

#[test]
fn an_answer_that_comes_early_is_told_whatever_its_server_does_then() {
    check(|_| ());
    check(|peer| {
        peer.say_no_more();
        peer.wait_for_the_end();
    });
    check(Peer::wait_for_the_end);
    check(Peer::wait_for_the_end_unread);
}

#[test]
fn what_is_said_before_an_answer_that_comes_early_is_no_answer() {
    let server = Server::start(|_, peer| {
        answer_early(peer, "HTTP/1.1 100 Continue\r\n\r\n");
        peer.bytes(READ);
        peer.send(BUSY);
        peer.wait_for_the_end_unread();
    });
    let mut endpoint = endpoint(server.url());
    endpoint.timeouts.first_byte = 2 * MOMENT;
    check_busy(ask_much(&pool(&endpoint)));
}

/// Begins to answer, reads so much more, and goes on.
#[track_caller]
fn check_good(read: usize, first_byte: Duration) {
    let server = Server::start(move |_, peer| {
        answer_early(peer, "");
        peer.begin("all");
        let taken = peer.bytes(read);
        peer.chunk(if taken.is_some() { " of it." } else { " but the request." });
        peer.send("0\r\n\r\n");
        peer.wait_for_the_end_unread();
    });
    let mut endpoint = endpoint(server.url());
    endpoint.timeouts.first_byte = first_byte;
    assert_eq!(ask_much(&pool(&endpoint)), Ok("all of it".into()));
}

#[test]
fn a_good_answer_that_comes_early_ends_no_request_that_is_still_read() {
    check_good(LARGE - READ, PATIENT);
    check_good(READ, 2 * MOMENT);
}
