//! What of a key a server can bring out: nothing.

use super::*;

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
