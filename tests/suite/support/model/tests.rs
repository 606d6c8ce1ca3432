//! The test model itself, asked by a plain client: that it plays what it is
//! told, and that it finds what is wrong.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, KEY, ModelServer, chat, runs, says, says_and_calls};
use crate::support::Reply;

struct Client(TcpStream);

impl Client {
    fn new(server: &ModelServer) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        Self(stream)
    }

    fn ask(&mut self, key: &str, extra: &str, body: &Value) {
        let body = body.to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {key}\r\n{extra}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.write_all(head.as_bytes()).expect("sent");
        self.0.write_all(body.as_bytes()).expect("sent");
    }

    /// Reads up to and with `end`.
    fn until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(end.as_bytes()) {
            let count = self.0.read(&mut byte).expect("read");
            assert!(count > 0, "ended before {end:?}: {:?}", String::from_utf8_lossy(&bytes));
            bytes.push(byte[0]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn sound() -> Value {
    let parameters = json!({"type": "object", "properties": {}});
    json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function":
            {"name": "exec", "description": "d", "parameters": parameters}}],
    })
}

/// One request on a connection of its own, read to its end.
fn asked(server: &ModelServer) -> Reply {
    let mut client = Client::new(server);
    client.ask(KEY, "Connection: close\r\n", &sound());
    Reply::read(&mut client.0)
}

#[test]
fn it_plays_its_queue_and_then_what_hangs_on_the_request() {
    let server = ModelServer::playing([says("one"), says_and_calls("two", &[])]);
    server.answer_by(|asked| says(&asked.last_user()));
    let texts: Vec<String> = (0..3).map(|_| asked(&server).text()).collect();
    assert!(texts[0].contains(r#""content":"one""#) && texts[0].ends_with("data: [DONE]\n\n"));
    assert!(texts[1].contains(r#""content":"two""#) && texts[2].contains(r#""content":"hi""#));
    assert_eq!(server.asked().len(), 3);
    assert_eq!(server.last().said(), ["system: s", "user: hi"]);
}

#[test]
fn a_connection_is_kept_and_counted() {
    let server = ModelServer::playing([says("one").in_pieces(1), says("two").crlf()]);
    let mut client = Client::new(&server);
    for want in ["one", "two"] {
        client.ask(KEY, "", &sound());
        let text = client.until("0\r\n\r\n");
        assert!(text.contains(want), "{text}");
    }
    server.wait_in_flight(0);
    assert_eq!((server.connections(), server.most_in_flight()), (1, 1));
}

#[test]
fn a_gate_holds_an_answer_where_it_stands() {
    let server = ModelServer::new();
    let gate = server.gate();
    server.play([
        Answer::stream().text("a").bytes(b"data: \xE9").hold(&gate).bytes(b"\x82\xA3\n\n").done(),
        Answer::stream().hold(&gate).done(),
    ]);
    let mut first = Client::new(&server);
    first.ask(KEY, "", &sound());
    first.until("\"a\"");
    gate.wait_held(1);
    let mut second = Client::new(&server);
    second.ask(KEY, "", &sound());
    gate.wait_held(2);
    assert_eq!((server.in_flight(), server.most_in_flight()), (2, 2));
    // Who hangs up is noticed, and holds nothing any more.
    drop(second);
    server.wait_in_flight(1);
    gate.let_one();
    first.until("0\r\n\r\n");
    server.wait_in_flight(0);
}

#[test]
fn a_connection_ends_as_the_script_says() {
    let server = ModelServer::playing([
        Answer::stream().text("a").cut(),
        Answer::stream().text("a").reset(),
        says("whole").until_close(),
        Answer::raw_bytes(b"HTTP/1.1 200 OK\r\nContent-").cut(),
        Answer::error(429, "slow down").header("retry-after", "7"),
    ]);
    let read = |server: &ModelServer| {
        let mut client = Client::new(server);
        client.ask(KEY, "", &sound());
        let mut bytes = Vec::new();
        let result = client.0.read_to_end(&mut bytes).map_err(|it| it.kind());
        (String::from_utf8_lossy(&bytes).into_owned(), result.err())
    };
    let (text, error) = read(&server);
    assert!(text.ends_with("\r\n") && !text.ends_with("0\r\n\r\n") && error.is_none(), "{text}");
    assert_eq!(read(&server).1, Some(std::io::ErrorKind::ConnectionReset));
    let (text, error) = read(&server);
    assert!(text.ends_with("data: [DONE]\n\n") && error.is_none(), "{text}");
    assert_eq!(read(&server).0, "HTTP/1.1 200 OK\r\nContent-");
    let reply = asked(&server);
    assert_eq!(reply.status, 429);
    assert!(reply.head.contains("retry-after: 7"), "{}", reply.head);
}

#[test]
fn what_breaks_the_protocol_is_found() {
    let server = ModelServer::playing([says("x")]);
    let mut client = Client::new(&server);
    client.ask("other", "Authorization: Bearer two\r\n", &json!({"model": "m"}));
    client.until("0\r\n\r\n");
    let faults = server.take_violations().join("\n");
    for want in ["authorization", "stream is not true", "messages is not a list"] {
        assert!(faults.contains(want), "{faults}");
    }
    asked(&server);
    assert!(server.take_violations().join("").contains("one more than the script answers"));
}

#[track_caller]
fn check_messages(messages: Value, want: &str) {
    let mut body = sound();
    body["messages"] = messages;
    let found = chat::body(&body).join("; ");
    assert!(found.contains(want) && found.is_empty() == want.is_empty(), "{found:?}");
}

#[test]
fn a_history_is_held_against_the_protocol() {
    let system = json!({"role": "system", "content": "s"});
    let user = json!({"role": "user", "content": [{"type": "text", "text": "hi"}]});
    let call = |id: &str, arguments: &str| {
        json!({"id": id, "type": "function",
            "function": {"name": "exec", "arguments": arguments}})
    };
    let answer = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": ""});
    let one = answer(json!([call("c1", "{}")]));
    let two = answer(json!([call("c1", "{}"), call("c2", "{\"a\":1}")]));
    check_messages(json!([system, user]), "");
    check_messages(json!([system, user, one, result("c1")]), "");
    check_messages(json!([system, user, two, result("c2"), result("c1"), user]), "");
    check_messages(json!([user]), "is of role user");
    check_messages(json!([system, system, user]), "is of role system");
    check_messages(json!([system, user, two, result("c1")]), "no result at the end for [\"c2\"]");
    check_messages(json!([system, user, one, user]), "no result before it for [\"c1\"]");
    check_messages(json!([system, user, one, result("c1"), result("c1")]), "which is not open");
    check_messages(json!([system, result("c1"), user]), "which is not open");
    check_messages(json!([system, user, answer(json!([])), user]), "not a list with content");
    let broken = answer(json!([call("c1", "{\"a\"")]));
    check_messages(json!([system, user, broken, result("c1")]), "arguments");
    let unnamed = answer(json!([call("", "{}")]));
    check_messages(json!([system, user, unnamed, result("")]), "not a text with content");
    let empty = json!({"role": "assistant", "content": ""});
    check_messages(json!([system, user, empty, user]), "not a text with content");
    let foreign = json!({"role": "assistant", "content": "x", "reasoning_content": "y"});
    check_messages(json!([system, user, foreign, user]), "the field `reasoning_content`");
    let plain = json!({"role": "assistant", "content": "x"});
    check_messages(json!([system, user, plain]), "the last role is assistant");
    let again = json!([system, user, one, result("c1"), one, result("c1")]);
    check_messages(again, "a second time");
}

#[test]
fn the_commands_of_an_answer_are_arguments_as_text() {
    let server = ModelServer::playing([runs("c1", "echo \"x\"")]);
    let text = asked(&server).text();
    assert!(text.contains(r#""arguments":"{\"command\":\"echo \\\"x\\\"\"}""#), "{text}");
}
