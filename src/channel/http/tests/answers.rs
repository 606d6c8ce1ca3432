//! What a client is answered, on each route.

use super::*;

const EXEC: &str = "POST /api/agents/assistant/exec";
const EXEC_STREAM: &str = "POST /api/agents/assistant/exec/stream";
const CHAT_STREAM: &str = "POST /api/chat/stream";
const PROMPT: &str = "POST /api/agents/assistant/prompt";
const PROMPT_STREAM: &str = "POST /api/agents/assistant/prompt/stream";

#[test]
fn health_tells_strangers_nothing_but_that_it_is_there() {
    let api = Api::new();
    api.check("GET /api/health", "", 200, json!({ "status": "ok", "version": "1" }));
    let mut stream = TcpStream::connect(api.address).expect("connect");
    let head = "GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-Beige-Caller: owner\r\n\r\n";
    let mut text = String::new();
    assert!(stream.write_all(head.as_bytes()).is_ok());
    assert!(stream.read_to_string(&mut text).is_ok());
    assert_eq!(split(&text), (200, r#"{"status":"ok"}"#.into()));
}

#[test]
fn routes_and_agents_that_do_not_exist_are_not_found() {
    let api = Api::new();
    api.check("GET /nope", "", 404, json!({ "error": "there is no such route" }));
    api.check("GET /api/health/", "", 404, json!({ "error": "there is no such route" }));
    api.refuses("POST /api/health", "{}", 405, "GET");
    api.refuses("GET /api/agents/assistant/prompt", "", 405, "POST");
    for name in ["constructor", "__proto__", "assistant%00", "%2e%2e", "assistant%2Fexec"] {
        api.refuses(&format!("POST /api/agents/{name}/exec"), "{}", 404, "no agent");
    }
    api.refuses("POST /api/agents/%E0%A4%A/exec", "{}", 400, "percent");
    assert!(api.told.is_empty());
}

#[test]
fn agents_are_listed() {
    Api::new().check("GET /api/agents", "", 200, json!({ "agents": [{ "name": "assistant" }] }));
}

#[test]
fn a_tool_is_called_and_its_answer_given() {
    let api = Api::new();
    let content = json!([{ "type": "text", "text": "hi" }]);
    let body = r#"{"tool":"exec","params":{"command":"x"},"sessionKey":"a:b"}"#;
    api.check(EXEC, body, 200, json!({ "content": content, "isError": false }));
    api.tells("assistant exec {\"command\":\"x\"} Some(\"a:b\")");
    api.refuses(EXEC, r#"{"tool":"leak","params":{}}"#, 403, "no ••• for you");
}

#[test]
fn bad_input_is_named_and_nothing_is_begun() {
    let api = Api::new();
    for line in [EXEC, EXEC_STREAM, PROMPT, PROMPT_STREAM, CHAT_STREAM] {
        api.refuses(line, "{nope", 400, "JSON");
        api.refuses(line, "null", 400, "object");
        api.refuses(line, "{}", 400, "missing");
    }
    api.refuses("GET /api/audit?since=x", "", 400, "since");
    assert!(api.told.is_empty());
}

#[test]
fn a_gateway_that_stops_begins_nothing() {
    let api = Api::with(true);
    for line in [EXEC, EXEC_STREAM, PROMPT, PROMPT_STREAM] {
        api.refuses(line, "{}", 503, "stopping");
    }
    assert_eq!(api.ask("GET /api/health", "").0, 200);
}

#[test]
fn a_command_is_a_stream_of_events() {
    let api = Api::new();
    let (status, text) = api.ask(EXEC_STREAM, r#"{"argv":["both"]}"#);
    let want = [
        json!({ "type": "stdout", "data": STANDARD.encode(b"out\xff") }),
        json!({ "type": "stderr", "data": STANDARD.encode("err") }),
        json!({ "type": "exit", "exitCode": 3, "timedOut": false, "durationMs": 7 }),
    ];
    assert_eq!((status, lines(&text)), (200, want.to_vec()));
    api.refuses(EXEC_STREAM, r#"{"argv":["other"]}"#, 500, "no ••• runtime");
}

#[test]
fn a_client_of_a_stream_that_is_gone_calls_it_off() {
    let api = Api::new();
    drop(api.send(EXEC_STREAM, r#"{"argv":["yes"]}"#));
    api.tells("nobody takes what yes says");
    drop(api.send(EXEC_STREAM, r#"{"argv":["wait"]}"#));
    api.tells("wait was called off");
    drop(api.send(PROMPT_STREAM, r#"{"message":"wait"}"#));
    api.tells("the turn was called off");
}

#[test]
fn a_prompt_is_answered_whatever_becomes_of_it() {
    let api = Api::new();
    api.check(PROMPT, r#"{"message":"hi"}"#, 200, json!({ "response": "yes" }));
    api.check(PROMPT, r#"{"message":"block"}"#, 200, json!({ "response": "not today" }));
    let failed = json!({ "error": "all failed", "category": "unavailable", "partial": "a" });
    api.check(PROMPT, r#"{"message":"fail"}"#, 502, failed);
    api.refuses(PROMPT, r#"{"message":"break"}"#, 500, "broke off");
    api.refuses(PROMPT, r#"{"message":"denied"}"#, 403, "not the agent's");
}

#[test]
fn a_prompt_streams_its_turn_up_to_the_terminal_event() {
    let api = Api::new();
    let delta = json!({ "type": "text_delta", "delta": "a" });
    for (message, last) in [
        ("hi", json!({ "type": "done", "response": "yes" })),
        ("block", json!({ "type": "blocked", "reason": "not today" })),
        (
            "fail",
            json!({ "type": "error", "category": "unavailable", "message": "all failed",
                "partial": "a" }),
        ),
    ] {
        let (status, text) = api.ask(PROMPT_STREAM, &json!({ "message": message }).to_string());
        assert_eq!((status, lines(&text)), (200, vec![delta.clone(), last]));
    }
    api.refuses(PROMPT_STREAM, r#"{"message":"denied"}"#, 403, "not the agent's");
}

#[test]
fn a_prompt_that_was_never_begun_has_its_status_as_a_stream_too() {
    let api = Api::new();
    let want = json!({ "error": "the gateway is stopping", "category": "busy" });
    for line in [PROMPT, PROMPT_STREAM] {
        api.check(line, r#"{"message":"busy"}"#, 503, want.clone());
    }
}

/// A body of `POST /api/chat/stream` with that system prompt.
fn chat(system: &str) -> String {
    let messages = json!([{ "role": "user", "content": "go" }]);
    let context = json!({ "systemPrompt": system, "messages": messages });
    let options = json!({ "partial": false });
    json!({ "agentName": "assistant", "provider": "p", "modelId": "m", "context": context,
        "options": options })
    .to_string()
}

#[test]
fn an_answer_streams_up_to_its_last_event() {
    let api = Api::new();
    let (status, text) = api.ask(CHAT_STREAM, &chat("hi"));
    let kinds: Vec<Value> = lines(&text).iter().map(|it| it["type"].clone()).collect();
    let want = ["start", "text_start", "text_delta", "text_end", "done"];
    assert_eq!((status, kinds), (200, want.map(Value::from).to_vec()));
    let (status, text) = api.ask(CHAT_STREAM, &chat("block"));
    let blocked = json!({ "type": "blocked", "reason": "not today" });
    assert_eq!((status, lines(&text)), (200, vec![blocked]));
    let (status, text) = api.ask(CHAT_STREAM, &chat("break"));
    assert_eq!((status, text.as_str()), (200, ""), "a stream without its last event was cut");
}

#[test]
fn an_answer_that_is_not_begun_has_its_status() {
    let api = Api::new();
    api.refuses(CHAT_STREAM, &chat("denied"), 403, "no ••• model");
    let nobody = chat("hi").replace("assistant", "nobody");
    api.refuses(CHAT_STREAM, &nobody, 404, "no agent");
    let nameless = chat("hi").replace("agentName", "agent");
    api.refuses(CHAT_STREAM, &nameless, 400, "did you mean `agentName`");
    Api::with(true).refuses(CHAT_STREAM, &chat("hi"), 503, "stopping");
}

#[test]
fn a_client_that_is_gone_calls_its_answer_off() {
    let api = Api::new();
    drop(api.send(CHAT_STREAM, &chat("wait")));
    api.tells("the answer was called off");
    drop(api.send(CHAT_STREAM, &chat("flood")));
    api.tells("nobody takes what it says");
}

#[test]
fn a_turn_is_called_off_by_its_session() {
    let api = Api::new();
    let abort = |agent: &str, key: &str| format!("POST /api/agents/{agent}/sessions/{key}/abort");
    api.check(&abort("assistant", "api%3Aa%2Fb"), "", 200, json!({ "aborted": true }));
    api.check(&abort("assistant", "api%3Ac"), "{}", 200, json!({ "aborted": false }));
    api.refuses(&abort("assistant", "api%3Aother"), "", 409, "belongs");
    api.refuses(&abort("nobody", "api%3Aa%2Fb"), "", 404, "no agent");
    let control =
        |key: &str, what: &str| format!("POST /api/agents/assistant/sessions/{key}/{what}");
    let left = r#"{"message":"left"}"#;
    api.check(&control("api%3Aa%2Fb", "steer"), left, 200, json!({ "steered": true }));
    api.refuses(&control("api%3Ac", "steer"), left, 409, "no turn");
    api.refuses(&control("api%3Aa%2Fb", "steer"), "{}", 400, "`message`");
    api.refuses(&control("api%3Aa%2Fb", "steer"), r#"{"message":"left","x":1}"#, 400, "`x`");
    let want = json!({"compacted": true, "tokensBefore": 9, "tokensAfter": 2});
    api.check(&control("api%3Aa%2Fb", "compact"), "", 200, want);
    let want = json!({"compacted": false, "tokensBefore": 9, "tokensAfter": 9, "reason": "r"});
    api.check(&control("api%3Ac", "compact"), "", 200, want);
    api.refuses("POST /api/agents/nobody/sessions/k/compact", "", 404, "no agent");
    for what in ["abort", "compact"] {
        let line = control("api%3Aa%2Fb", what);
        api.refuses(&line, r#"{"force":true}"#, 400, "`force` is not a field");
        api.refuses(&line, "{nope", 400, "JSON");
    }
    let mistyped = r#"{"mesage":"left"}"#;
    api.refuses(&control("api%3Aa%2Fb", "steer"), mistyped, 400, "did you mean `message`");
}

#[test]
fn what_a_client_said_is_told_back_without_a_secret() {
    let api = Api::new();
    let name = "PATCH /api/agents/assistant/sessions/named/name";
    let (status, text) = api.ask(name, r#"{"name":"a s3cret"}"#);
    assert!(status == 200 && text.contains(r#""name":"a •••""#), "{text}");
    for (line, body) in [
        (name, r#"{"s3cret":1}"#),
        ("POST /api/agents/assistant/prompt", r#"{"s3cret":1}"#),
        ("GET /api/agents/assistant/sessions?s3cret=1", ""),
        ("GET /api/usage?s3cret=1", ""),
    ] {
        api.refuses(line, body, 400, "`•••`");
    }
}

#[test]
fn the_gateway_itself_is_looked_at_and_started_afresh() {
    let api = Api::new();
    api.check("GET /api/config", "", 200, json!({ "agents": {} }));
    let models = json!({ "models": [{ "id": "m" }] });
    api.check("GET /api/agents/assistant/models", "", 200, models);
    api.refuses("GET /api/agents/nobody/models", "", 404, "no agent");
    let (status, text) = api.ask("GET /metrics", "");
    assert!(status == 200 && text.contains("beige_running_calls 5\n"), "{text}");
    api.refuses("POST /api/gateway/restart", r#"{"agent":"a"}"#, 400, "`agent` is not a field");
    let (status, text) = api.ask("POST /api/gateway/restart", "");
    assert!(status == 202 && text.contains(r#""status":"restarting""#), "{text}");
    api.tells("restart");
}

#[test]
fn strangers_learn_no_figures() {
    let api = Api::new();
    for (line, want) in
        [("GET /metrics", 401), ("GET /api/config", 401), ("POST /api/gateway/restart", 401)]
    {
        let mut stream = TcpStream::connect(api.address).expect("connect");
        let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        let mut text = String::new();
        assert!(stream.write_all(head.as_bytes()).is_ok());
        assert!(stream.read_to_string(&mut text).is_ok());
        assert_eq!(split(&text).0, want, "{line}");
    }
    assert!(api.told.is_empty());
}

#[test]
fn usage_is_summed_up_as_is_asked() {
    let api = Api::new();
    api.check("GET /api/usage", "", 200, json!({ "by": "model", "agent": null }));
    api.check("GET /api/usage?by=day&agent=a", "", 200, json!({ "by": "day", "agent": "a" }));
    api.refuses("GET /api/usage?agent=broken", "", 500, "no file");
    api.refuses("GET /api/usage?by=x", "", 400, "`by`");
}

#[test]
fn audit_records_are_one_document() {
    let api = Api::new();
    let records = json!([{ "seq": 0 }, { "seq": 1 }, { "seq": 2 }]);
    api.check("GET /api/audit", "", 200, json!({ "records": records }));
    api.check("GET /api/audit?denied=true", "", 200, json!({ "records": [] }));
    api.refuses("GET /api/audit?tool=broken", "", 500, "no log");
}

#[test]
fn the_end_of_the_api_calls_off_what_is_left() {
    let mut api = Api::new();
    let mut tool = api.send(EXEC, r#"{"tool":"wait","params":{}}"#);
    api.tells("assistant wait {} None");
    let mut command = api.upgrade(&json!({ "argv": ["cat"] }));
    assert!(frame::write(&mut command.get_ref(), frame::STDIN, b"x").is_ok());
    assert_eq!(next(&mut command), (frame::STDOUT, b"x".to_vec()));
    assert_eq!(next(&mut command).0, frame::WINDOW);
    api.http.take();
    let mut told = [0, 1].map(|_| api.told.recv_timeout(NEVER).expect("told"));
    told.sort();
    assert_eq!(told, ["cat was called off", "wait was called off"]);
    let mut rest = Vec::new();
    assert!(tool.read_to_end(&mut rest).is_ok() && rest.is_empty());
}

#[test]
fn hooks_of_a_client_are_answered_as_they_always_were() {
    let api = Api::new();
    let check = |hook: &str, body: &str, want: Value| {
        api.check(&format!("POST /api/agents/assistant/hooks/{hook}"), body, 200, want);
    };
    let prompt = r#"{"message":"hi","sessionKey":"tui:bl1:default","channel":"tui"}"#;
    check("pre-prompt", prompt, json!({"message": "hi"}));
    let reason = "the ••• is out";
    let blocked = json!({"message": "BLOCK", "block": true, "reason": reason});
    check("pre-prompt", r#"{"message":"BLOCK"}"#, blocked);
    check("post-response", r#"{"response":"r"}"#, json!({"response": "r"}));
    let blocked = json!({"response": "BLOCK", "block": true, "reason": reason});
    check("post-response", r#"{"response":"BLOCK"}"#, blocked);
    check("session-created", r#"{"sessionKey":"k"}"#, json!({"ok": true}));
    check("session-disposed", "{}", json!({"ok": true}));
    api.refuses("POST /api/agents/assistant/hooks/pre-prompt", "{}", 400, "`message`");
    api.refuses("POST /api/agents/nobody/hooks/pre-prompt", prompt, 404, "nobody");
}
