//! The routes by which a client that runs its own turns has plugins asked
//! about them: `POST …/hooks/pre-prompt`, `post-response`, `session-created`,
//! `session-disposed`. Each waits for plugins on a thread of its own.

use serde_json::{Value, json};

use super::path::HookRoute;
use super::requests::{Checked, fields_of, key, text};
use super::{Call, refusal, send};
use crate::channel::http::answer::Answer;
use crate::channel::http::engine::Engine;
use crate::gateway::{HookRequest, Made, Said};

impl<E: Engine> Call<E> {
    pub(super) fn hook(self, request: HookRequest) {
        let answer = match self.engine.run_hook(request, &self.closing) {
            Ok(made) => Answer::json(&document(&self.engine, made)),
            Err(error) => refusal(&self.engine, &error),
        };
        send(self.reply, &answer);
    }
}

/// What is asked for.
pub(super) fn request(agent: String, route: HookRoute, body: &[u8]) -> Checked<HookRequest> {
    let of_prompt = ["message", "sessionKey", "channel"];
    let of_response = ["response", "sessionKey", "channel"];
    let known = match route {
        HookRoute::PrePrompt => &of_prompt[..],
        HookRoute::PostResponse => &of_response,
        HookRoute::SessionCreated | HookRoute::SessionDisposed => &of_prompt[1..],
    };
    let mut fields = fields_of(body, known)?;
    let what = match route {
        HookRoute::PrePrompt => Said::Prompt(fields.required("message", text)?),
        HookRoute::PostResponse => Said::Response(fields.required("response", text)?),
        HookRoute::SessionCreated => Said::Created,
        HookRoute::SessionDisposed => Said::Disposed,
    };
    let session_key = fields.optional("sessionKey", key)?;
    let channel = fields.optional("channel", text)?;
    Ok(HookRequest { agent, session_key, channel, what })
}

fn document(engine: &impl Engine, made: Made) -> Value {
    match made {
        Made::Nothing => json!({"ok": true}),
        Made::Response(response) => json!({"response": response}),
        Made::Prompt(it) if it.context.is_empty() => json!({"message": it.message}),
        Made::Prompt(it) => json!({"message": it.message, "context": it.context}),
        Made::Refused { message, reason } => {
            json!({"message": message, "block": true, "reason": engine.mask(&reason)})
        }
        Made::Withheld { response, reason } => {
            json!({"response": response, "block": true, "reason": engine.mask(&reason)})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_request_is_named() {
        #[track_caller]
        fn check(route: HookRoute, body: &str, want: &str) {
            let wrong = request("a".into(), route, body.as_bytes());
            assert!(wrong.as_ref().is_err_and(|it| it.contains(want)), "{wrong:?}");
        }
        check(HookRoute::PrePrompt, "{}", "`message` is missing");
        check(HookRoute::PrePrompt, r#"{"message": 1}"#, "`message` must be a string");
        check(HookRoute::PostResponse, "{}", "`response` is missing");
        check(HookRoute::SessionCreated, r#"{"sessionKey": "a\nb"}"#, "`sessionKey` does not do");
        check(HookRoute::SessionDisposed, r#"{"session": "k"}"#, "`session` is not a field");
        check(HookRoute::SessionDisposed, "x", "not JSON");
    }

    #[test]
    fn all_but_what_is_said_may_be_left_out() {
        let request = request("a".into(), HookRoute::PrePrompt, br#"{"message": "hi"}"#);
        let what = Said::Prompt("hi".into());
        let agent = "a".to_owned();
        assert_eq!(request, Ok(HookRequest { agent, session_key: None, channel: None, what }));
    }
}
