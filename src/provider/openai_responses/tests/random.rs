//! Random histories: whatever stands in a session, what is sent is what a
//! strict server takes.

use serde_json::{Value, json};

use super::encode::{answer, asked, call, image, result, text, thinking, user};

/// A small generator: the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn content(&mut self) -> Value {
        let blocks = [
            text("a", None),
            text("", None),
            text("那 \u{0}", None),
            image(),
            json!({"type": "?"}),
        ];
        match self.below(4) {
            0 => self.one_of(&[json!("text"), json!(""), json!(null)]),
            count => (1..count).map(|_| self.one_of(&blocks)).collect(),
        }
    }

    /// A block of an answer, with what is opaque in any protocol's form.
    fn block(&mut self) -> Value {
        let odd = |signature: &str| json!({"type": "thinking", "thinking": "hm", "thinkingSignature": signature});
        let unsigned = json!({"type": "thinking", "thinking": "hm"});
        let stored = r#"{"type":"reasoning","id":"rs_9","summary":[]}"#;
        let pool = [
            thinking("rs_1"),
            thinking("rs_2"),
            unsigned,
            odd("EjQK"),
            odd("{"),
            odd(stored),
            text("a", Some("msg_1")),
            text("b", None),
            text("", Some("msg_2")),
            text(" \n", Some("msg_3")),
            text("c", Some("sig")),
            json!({"type": "?"}),
        ];
        self.one_of(&pool)
    }

    /// An answer and, as a session gives them, one result a call.
    fn answer(&mut self, history: &mut Vec<Value>) {
        let long = "x".repeat(70);
        let pool = ["", "1", "call_1", "call_1|fc_1", "toolu_01|é", "fn.exec:0", &long];
        let items = [None, Some("fc_1"), Some("EjQK"), Some("")];
        let mut blocks = Vec::new();
        let mut ids = Vec::new();
        for _ in 0..self.below(6) {
            if self.below(3) == 0 {
                ids.push(self.one_of(&pool).to_owned());
                let mut call = call(&ids[ids.len() - 1], self.one_of(&items));
                call["name"] = json!(self.one_of(&["exec", "", "a.b"]));
                call["arguments"] =
                    self.one_of(&[json!({}), json!({"a": 1}), json!("{"), json!(null)]);
                blocks.push(call);
            } else {
                blocks.push(self.block());
            }
        }
        let mut said = answer(self.one_of(&["acme", "other"]), json!(blocks));
        said["stopReason"] = self.one_of(&["stop", "error", "aborted", "length"].map(Value::from));
        said["api"] =
            self.one_of(&["openai-responses", "", "google-generative-ai"].map(Value::from));
        said["beige"] = self.one_of(&[json!(null), json!({"endpoint": "https://a"}), json!({})]);
        history.push(said);
        for id in ids {
            let mut result = result(&id, self.content());
            result["isError"] = json!(self.below(3) == 0);
            history.push(result);
        }
    }

    fn history(&mut self) -> Vec<Value> {
        let mut history = Vec::new();
        for _ in 0..self.below(12) {
            match self.below(2) {
                0 => history.push(json!({"role": "user", "content": self.content()})),
                _ => self.answer(&mut history),
            }
        }
        history.push(user("more"));
        history
    }
}

#[test]
fn any_history_makes_a_body_that_a_strict_server_takes() {
    let mut dice = Dice(7);
    for _ in 0..2_000 {
        let history = dice.history();
        let mut asked = asked(dice.one_of(&["acme", "other", "vllm"]), "m");
        asked.facts.images = dice.one_of(&[None, Some(false), Some(true)]);
        asked.strips = dice.below(4) == 0;
        let sent = asked.input(json!(history));
        let outputs = sent.as_array().unwrap().iter();
        let outputs = outputs.filter(|it| it["type"] == json!("function_call_output")).count();
        let results = history.iter().filter(|it| it["role"] == json!("toolResult")).count();
        assert_eq!(outputs, results, "{}", json!(history));
    }
}
