//! The life of a built-in plugin's process: it greets, answers calls, each on
//! a thread of its own, and ends with its input.

use std::io;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Builtin, Call, named};
use crate::error::{Error, Kind, Result};
use crate::plugin::connection::Connection;
use crate::plugin::desk::{Desk, Request};
use crate::plugin::rpc::{BAD_PARAMS, NO_SUCH_METHOD, Refusal};
use crate::plugin::run::Context;
use crate::plugin::{builtins, serve};

/// Speaks to the gateway on those streams until `input` ends.
///
/// Errors: [`Kind::Usage`] if there is no such plugin, or what comes is no
/// conversation.
pub fn run(
    name: &str,
    input: impl io::Read,
    output: impl io::Write + Send + 'static,
) -> Result<()> {
    let wrong = |it| Error::new(Kind::Usage, it);
    let manifest = builtins::manifest(name, name).map_err(wrong)?;
    let builtin = named(name).ok_or_else(|| wrong(format!("`{name}` does nothing")))?;
    serve::serve(name, Arc::new(Counter { manifest, builtin }), input, output)
}

/// Where the gateway's requests are answered.
pub(super) struct Counter {
    pub(super) manifest: Value,
    pub(super) builtin: Box<dyn Builtin>,
}

/// The parameters of `beige/tool`.
#[derive(Deserialize)]
struct Params {
    tool: String,
    #[serde(default)]
    args: Vec<String>,
    stdin: Option<String>,
    #[serde(default)]
    config: Value,
    context: Context,
}

impl Desk for Counter {
    fn request(&self, request: &Request<'_>) -> Result<Value, Refusal> {
        match request.method {
            "initialize" => Ok(serve::greeting(&self.manifest)),
            "beige/tool" => self.tool(request),
            "beige/start" | "beige/stop" => Ok(json!({})),
            other => Err(Refusal::new(NO_SUCH_METHOD, format!("there is no `{other}`"))),
        }
    }

    fn notice(&self, _: &str, _: &Connection, _: &str, _: &Value) {}
}

impl Counter {
    fn tool(&self, request: &Request<'_>) -> Result<Value, Refusal> {
        let params = Params::deserialize(request.params)
            .map_err(|it| Refusal::new(BAD_PARAMS, format!("`beige/tool`: {it}")))?;
        let gateway: &Connection = request.connection;
        let answer = self.builtin.call(&Call {
            tool: &params.tool,
            args: &params.args,
            stdin: params.stdin.as_deref(),
            config: &params.config,
            context: &params.context,
            cancel: request.cancel,
            gateway,
        });
        Ok(json!({"output": answer.output, "exitCode": answer.exit_code}))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::builtin::Answer;
    use crate::builtin::tests::Gateway;

    fn asks() -> Gateway {
        Gateway::start("asks", Box::new(Asks))
    }

    /// Asks the gateway for what its argument says, and prints the answer.
    struct Asks;

    impl Builtin for Asks {
        fn call(&self, call: &Call<'_>) -> Answer {
            match call.ask(&call.args[0], &json!({}), Duration::from_secs(60)) {
                Ok(value) => Answer::done(value.to_string()),
                Err(why) => Answer::failed(why.to_string()),
            }
        }
    }

    #[test]
    fn it_greets_and_answers_what_it_knows() {
        let mut gateway = asks();
        gateway.say(json!({"id": 1, "method": "initialize", "params": {}}));
        let tool = json!({"name": "asks", "description": "D", "commands": ["asks X"]});
        let greeted = gateway.hear();
        let beige = &greeted["result"]["capabilities"]["experimental"]["beige"];
        assert_eq!(*beige, json!({"version": 1, "tools": [tool]}));
        for (id, method) in ["ping", "beige/start", "beige/stop"].into_iter().enumerate() {
            gateway.say(json!({"id": id, "method": method}));
            assert_eq!(gateway.hear(), json!({"jsonrpc": "2.0", "id": id, "result": {}}));
        }
        gateway.say(json!({"id": 2, "method": "beige/hook"}));
        assert_eq!(gateway.hear()["error"]["code"], NO_SUCH_METHOD);
        gateway.say(json!({"id": 3, "method": "beige/tool", "params": {"tool": "asks"}}));
        assert_eq!(gateway.hear()["error"]["code"], BAD_PARAMS);
    }

    #[test]
    fn calls_ask_the_gateway_at_the_same_time_and_are_answered_in_any_order() {
        let mut gateway = asks();
        gateway.call(7, &["first"]);
        let first = gateway.hear();
        gateway.call(8, &["second"]);
        let second = gateway.hear();
        assert_eq!((&first["method"], &second["method"]), (&json!("first"), &json!("second")));
        gateway.say(json!({"id": second["id"], "result": 2}));
        let told = |output: &str, code| json!({"output": output, "exitCode": code});
        assert_eq!(gateway.hear()["result"], told("2", 0));
        gateway.say(json!({"id": first["id"], "error": {"code": 1, "message": "no"}}));
        let answer = gateway.hear();
        assert_eq!((&answer["id"], &answer["result"]), (&json!(7), &told("no\n", 1)));
    }

    #[test]
    fn a_call_that_is_called_off_calls_off_what_it_asked() {
        let mut gateway = asks();
        gateway.call(7, &["slow"]);
        let asked = gateway.hear()["id"].clone();
        gateway.say(json!({"method": "notifications/cancelled", "params": {"requestId": 7}}));
        let told = gateway.hear();
        assert_eq!(told["method"], "notifications/cancelled");
        assert_eq!(told["params"]["requestId"], asked);
        gateway.say(json!({"id": 9, "method": "ping"}));
        assert_eq!(gateway.hear()["id"], 9, "what was called off is not answered");
    }

    #[test]
    fn the_end_of_the_input_ends_all_that_is_worked_on() {
        let mut gateway = asks();
        (0..5).for_each(|it| gateway.call(it, &["slow"]));
        (0..5).for_each(|_| drop(gateway.hear()));
        // Dropping it waits for the end of the conversation.
    }
}
