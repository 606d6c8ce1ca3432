//! How an answer ends: whole, cut by its caller, broken off, stalled or without end.

use super::*;

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
