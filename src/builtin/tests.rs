//! Tests of what all built-in plugins share, and the gateway that tests of them
//! play.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::serve::Counter;
use super::*;
use crate::plugin::builtins;
use crate::plugin::serve::serve;
use crate::worker::Worker;

/// A gateway that is played by a test.
pub(super) struct Gateway {
    input: UnixStream,
    output: BufReader<UnixStream>,
    _life: Worker,
}

impl Gateway {
    pub(super) fn start(name: &'static str, builtin: Box<dyn Builtin>) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let manifest = json!({"name": name, "description": "D", "commands": ["asks X"]});
        let desk = Counter { manifest, builtin };
        let life = Worker::spawn("life", move || {
            let output = theirs.try_clone().expect("a clone");
            serve(name, Arc::new(desk), theirs, output).expect("a conversation");
        });
        let output = BufReader::new(ours.try_clone().expect("a clone"));
        output.get_ref().set_read_timeout(Some(Duration::from_secs(60))).expect("a deadline");
        Self { input: ours, output, _life: life.expect("a thread") }
    }

    pub(super) fn say(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).expect("written");
    }

    pub(super) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|it| panic!("{it}: {line:?}"))
    }

    /// A call of agent `a`.
    pub(super) fn call(&mut self, id: u32, args: &[&str]) {
        self.call_with(id, args, &json!({}));
    }

    pub(super) fn call_with(&mut self, id: u32, args: &[&str], config: &Value) {
        self.say(json!({"id": id, "method": "beige/tool", "params": {"tool": "it",
            "args": args, "config": config, "context": {"agentName": "a",
            "sessionKey": "api:a:x", "channel": "api", "agentDir": "/a",
            "workspaceDir": "/a/w", "cwd": ""}}}));
    }

    /// Hears a request of that method, and answers it; its parameters.
    #[track_caller]
    pub(super) fn answer(&mut self, method: &str, result: Value) -> Value {
        let mut heard = self.hear();
        assert_eq!(heard["method"], method, "{heard}");
        self.say(json!({"id": heard["id"], "result": result}));
        heard["params"].take()
    }

    /// Hears the answer to a call.
    #[track_caller]
    pub(super) fn answered(&mut self) -> Answer {
        let heard = self.hear();
        let result = &heard["result"];
        let output = result["output"].as_str().unwrap_or_else(|| panic!("{heard}"));
        let exit_code = result["exitCode"].as_i64().and_then(|it| i32::try_from(it).ok());
        Answer { output: output.to_owned(), exit_code: exit_code.unwrap_or(-1) }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.input.shutdown(std::net::Shutdown::Write);
    }
}

#[test]
fn each_that_is_described_does_something() {
    for name in builtins::names() {
        assert!(named(name).is_some(), "{name}");
    }
}
