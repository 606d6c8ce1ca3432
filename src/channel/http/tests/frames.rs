//! What runs over an upgraded connection, and how it ends.

use super::*;

#[test]
fn frames_run_both_ways_with_a_window() {
    let api = Api::new();
    let mut from = api.upgrade(&json!({ "argv": ["cat"], "cwd": "", "timeoutSeconds": null }));
    let mut to = from.get_ref().try_clone().expect("clone");
    let piece = vec![b'x'; frame::WINDOW_START as usize];
    for _ in 0..4 {
        assert!(frame::write(&mut to, frame::STDIN, &piece).is_ok());
        assert_eq!(next(&mut from), (frame::STDOUT, piece.clone()));
        let window = frame::WINDOW_START.to_be_bytes().to_vec();
        assert_eq!(next(&mut from), (frame::WINDOW, window));
    }
    assert!(frame::write(&mut to, frame::STDIN_END, b"").is_ok());
    let want = json!({ "exitCode": 0, "timedOut": false, "durationMs": 7 });
    assert_eq!(exit_of(&mut from), want);
}

#[test]
fn signals_and_cancel_reach_the_command() {
    let api = Api::new();
    let mut from = api.upgrade(&json!({ "argv": ["cat"] }));
    assert!(frame::write(&mut from.get_ref(), frame::SIGNAL, &[15]).is_ok());
    assert_eq!(exit_of(&mut from)["exitCode"], 143);
    let mut from = api.upgrade(&json!({ "argv": ["wait"] }));
    assert!(frame::write(&mut from.get_ref(), frame::CANCEL, b"").is_ok());
    assert_eq!(exit_of(&mut from)["exitCode"], 137);
    api.tells("wait was called off");
}

#[test]
fn a_hang_up_calls_the_command_off() {
    let api = Api::new();
    drop(api.upgrade(&json!({ "argv": ["cat"] })));
    api.tells("cat was called off");
    let from = api.upgrade(&json!({ "argv": ["cat"] }));
    assert!(from.get_ref().shutdown(Shutdown::Write).is_ok());
    api.tells("cat was called off");
}

#[test]
fn frames_that_break_the_rules_end_the_talk_with_a_reason() {
    let api = Api::new();
    let over = vec![b'x'; frame::WINDOW_START as usize + 1];
    for (kind, payload) in [
        (frame::STDIN, over.as_slice()),
        (frame::SIGNAL, b""),
        (frame::SIGNAL, &[0]),
        (frame::STDOUT, b"x"),
        (frame::REQUEST, b"{}"),
        (200, b""),
    ] {
        let mut from = api.upgrade(&json!({ "argv": ["wait"] }));
        assert!(frame::write(&mut from.get_ref(), kind, payload).is_ok());
        assert!(exit_of(&mut from)["error"].is_string(), "{kind}");
        api.tells("wait was called off");
    }
    let mut from = api.upgrade(&json!({ "argv": [] }));
    assert!(exit_of(&mut from)["error"].as_str().is_some_and(|it| it.contains("`argv`")));
    let mut from = api.upgrade(&json!({ "argv": ["other"] }));
    let want = json!({ "error": "no ••• runtime", "status": 500 });
    assert_eq!(exit_of(&mut from), want);
}

#[test]
fn an_upgrade_of_what_does_not_exist_is_refused_before_it() {
    let api = Api::new();
    for (path, status) in [
        ("/api/agents/nobody/exec/stream", 404),
        ("/api/agents/assistant/exec", 400),
        ("/api/zzz", 404),
    ] {
        let mut stream = api.dial();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n\
             Upgrade: beige-exec/1\r\n\r\n"
        );
        let mut text = String::new();
        assert!(stream.write_all(head.as_bytes()).is_ok());
        assert!(stream.read_to_string(&mut text).is_ok());
        assert_eq!(split(&text).0, status, "{path}");
    }
}
