//! Proxies on the way to a server.

use super::*;

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
