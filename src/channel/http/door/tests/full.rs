//! A door that has no room: who is refused, and how it is told.

use super::*;

/// A house in which the one place of each listener is taken.
fn full(linger: Duration) -> (House, TcpStream, UnixStream) {
    let house = House::new(Limits { tcp_connections: 1, unix_connections: 1, linger, ..patient() });
    let (mut served, mut other) = (house.dial(), house.dial_unix());
    for stream in [&mut served as &mut dyn Write, &mut other] {
        assert!(stream.write_all(good("GET /wait", "").as_bytes()).is_ok());
        house.sees("GET /wait 0 0 - owner");
    }
    (house, served, other)
}

#[test]
fn half_open_connections_do_not_lock_the_owner_out() {
    let house = House::new(patient());
    let mut half_open = Vec::new();
    for number in 0..300 {
        let mut stream = house.dial();
        if number % 2 == 0 {
            assert!(stream.write_all(b"GET / HTTP/1.1\r\nHost: ").is_ok());
        }
        half_open.push(stream);
    }
    house.serves();
    // The first ones gave way; nobody was left to grow.
    assert_eq!(half_open.first_mut().map(read_all), Some(String::new()));
}

#[test]
fn those_who_are_served_keep_their_place() {
    let mut house = House::new(Limits { tcp_connections: 1, linger: NEVER, ..patient() });
    let mut served = house.dial();
    assert!(served.write_all(good("GET /wait", "").as_bytes()).is_ok());
    house.sees("GET /wait 0 0 - owner");
    assert_eq!(house.ask(good("GET /", "")), 503);
    let mut stream = house.dial_unix();
    assert!(stream.write_all(b"GET /u HTTP/1.0\r\n\r\n").is_ok());
    assert_eq!(status(&read_all(&mut stream)), 200);
    house.sees("GET /u 0 0 - owner");
    house.release.take();
    assert_eq!(status(&read_all(&mut served)), 200);
}

#[test]
fn who_is_refused_before_its_request_is_sent_still_gets_the_answer() {
    fn check(mut client: impl Read + Write) {
        let mut start = [0; 12];
        assert!(client.read_exact(&mut start).is_ok_and(|()| &start == b"HTTP/1.1 503"));
        // The second piece meets a connection that has seen the first.
        for piece in [good("POST /", "Content-Length: 9\r\n"), "x".repeat(9)] {
            assert!(client.write_all(piece.as_bytes()).is_ok());
        }
        let mut rest = String::new();
        assert!(client.read_to_string(&mut rest).is_ok_and(|_| rest.ends_with("try again\"}")));
        assert!(client.write_all(b"more").is_ok());
    }
    let (house, _served, _other) = full(NEVER);
    check(house.dial());
    check(house.dial_unix());
}

#[test]
fn who_is_refused_is_let_go_soon_and_first_where_there_are_many() {
    let (house, _served, _other) = full(SOON);
    let mut client = house.dial();
    while client.write_all(&[b'x'; 1024]).is_ok() {}
    let (house, _served, _other) = full(NEVER);
    let (mut first, mut others) = (house.dial(), Vec::new());
    while first.write_all(b"x").is_ok() {
        others.push(house.dial());
    }
    assert!(others.len() >= refused::MOST, "{}", others.len());
    let mut last = house.dial();
    assert_eq!(status(&read_all(&mut last)), 503);
}
