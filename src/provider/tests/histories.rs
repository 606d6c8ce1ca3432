//! Histories as no program should leave them: aborted and failed answers of
//! every protocol, calls without results and results without calls, late and
//! twice, images of any kind. A session mends most of it before; a dialect is
//! sound without.

use serde_json::{Value, json};

use super::asked::{Asked, Form, HERE, image, result, text, user};

/// A small generator: the same numbers in every run.
pub(in crate::provider) struct Dice(pub(in crate::provider) u64);

/// What is opaque, in the forms of all protocols and in none, with the mark of
/// whose it is.
fn opaque(mark: &str) -> [String; 10] {
    let item =
        |id: &str, kept: &str| format!(r#"{{"type":"reasoning","id":"{id}",{kept}"summary":[]}}"#);
    let encrypted = format!(r#""encrypted_content":"own {mark}","#);
    [
        mark.into(),
        String::new(),
        "{".into(),
        format!("no base64 {mark}"),
        format!("msg_{mark}"),
        format!("fc_{mark}"),
        format!(r#"{{"v":1,"id":"msg_{mark}","phase":"commentary"}}"#),
        item("rs_1", &encrypted),
        item("rs_2", &encrypted),
        item(mark, ""),
    ]
}

impl Dice {
    pub(in crate::provider) fn below(&mut self, sides: usize) -> usize {
        // Knuth's multiplier; the high bits are the better ones.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    pub(in crate::provider) fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// A conversation in which these models, as `provider/model`, and others
    /// spoke, the former in the protocol of that name. What is opaque of theirs
    /// has the mark `MARK0`, `MARK1`, …; of the others `MARKX`.
    pub(in crate::provider) fn history(&mut self, api: &str, models: &[impl AsRef<str>]) -> Value {
        let mut history = Vec::new();
        for _ in 0..self.below(12) {
            match self.below(9) {
                0..4 => history.push(user(self.content())),
                4 => history.push(result("of nobody", self.content())),
                5 => history.push(json!({"role": self.one_of(&["compactionSummary", "oracle"])})),
                _ => self.answer(api, models, &mut history),
            }
        }
        json!(history)
    }

    /// An answer and what came of its calls: most of it, in any order.
    fn answer(&mut self, api: &str, models: &[impl AsRef<str>], history: &mut Vec<Value>) {
        let long = "x".repeat(70);
        let pool =
            ["", "1", "call_1", "call_1|fc_1", "toolu_01|é", "fn.exec:0", "aB3xK9mP2", &long];
        let count = self.below(4);
        let ids: Vec<&str> = (0..count).map(|_| self.one_of(&pool)).collect();
        let place = self.below(models.len());
        let (provider, model) = models[place].as_ref().split_once('/').unwrap_or_default();
        let mut own = json!({"provider": provider, "model": model, "api": api,
            "beige": {"endpoint": HERE}});
        let mark = match self.below(9) {
            0 => Some(("provider", json!("other"))),
            1 => Some(("model", json!("other"))),
            2 => Some(("api", json!("of-another"))),
            3 => Some(("beige", json!({"endpoint": "https://there"}))),
            _ => None,
        };
        let mark = mark.map_or(format!("MARK{place}"), |(field, other)| {
            own[field] = other;
            "MARKX".into()
        });
        let mut blocks: Vec<Value> = (0..self.below(4)).map(|_| self.said(&mark)).collect();
        for id in &ids {
            let place = self.below(blocks.len() + 1);
            let place = if self.below(3) == 0 { place } else { blocks.len() };
            blocks.insert(place, self.call(id, &mark));
        }
        own["role"] = json!("assistant");
        own["content"] = json!(blocks);
        own["stopReason"] = json!(self.one_of(&["stop", "toolUse", "length", "error", "aborted"]));
        history.push(own);
        let before = history.len();
        for id in ids {
            let mut result = result(id, self.content());
            result["isError"] = json!(self.below(3) == 0);
            // One is lost, one comes twice.
            for _ in 0..self.one_of(&[1, 1, 1, 1, 1, 1, 0, 2]) {
                let place = before + self.below(history.len() - before + 1);
                history.insert(place, result.clone());
            }
        }
    }

    fn content(&mut self) -> Value {
        match self.below(4) {
            0 => self.one_of(&[json!("text"), json!(""), json!(" "), json!(null)]),
            count => (1..count).map(|_| self.block()).collect(),
        }
    }

    fn block(&mut self) -> Value {
        let kind = self.one_of(&["image/png", "image/heic", "image/gif", ""]);
        let empty = json!({"type": "image", "data": "", "mimeType": "image/png"});
        let unknown = json!({"type": "smell"});
        let texts = [text("a"), text(""), text(" \n"), text("那 \u{0}")];
        match self.below(2) {
            0 => self.one_of(&texts),
            _ => self.one_of(&[image(kind), image("image/png"), empty, unknown]),
        }
    }

    fn said(&mut self, mark: &str) -> Value {
        let opaque = json!(self.one_of(&opaque(mark)));
        let opaque = if self.below(3) == 0 { Value::Null } else { opaque };
        match self.below(3) {
            0 => self.block(),
            1 => json!({"type": "text", "text": self.one_of(&["", " \n", "s"]),
                "textSignature": opaque}),
            _ => json!({"type": "thinking", "thinking": self.one_of(&[mark, ""]),
                "thinkingSignature": opaque, "redacted": self.one_of(&[Some(true), None, None])}),
        }
    }

    fn call(&mut self, id: &str, mark: &str) -> Value {
        json!({"type": "toolCall", "id": id, "name": self.one_of(&["exec", "", "7.b"]),
            "arguments": self.one_of(&[json!({}), json!({"a": 1}), json!("{"), json!(null)]),
            "thoughtSignature": self.one_of(&opaque(mark))})
    }
}

/// Holds a dialect against a thousand histories of these models, each named as
/// `PROVIDER/MODEL`; `call` is what begins a call in a body. `vary` throws for
/// what else is asked for.
#[track_caller]
pub(in crate::provider) fn check_any_history(
    form: Form,
    models: &[&str],
    call: &str,
    vary: impl Fn(&mut Dice, &mut Asked),
) {
    let mut dice = Dice(7);
    for _ in 0..1_000 {
        let history = dice.history(form.api, models);
        let place = dice.below(models.len());
        let (provider, model) = models[place].split_once('/').unwrap();
        let mut asked = Asked::of(form, provider, model);
        asked.facts.images = dice.one_of(&[None, Some(false), Some(true)]);
        asked.is_stripped = dice.below(4) == 0;
        vary(&mut dice, &mut asked);
        let own = (!asked.is_stripped).then_some(place);
        check_sent(&asked.sent(history.clone()), call, &history, own);
    }
}

/// Holds what is sent against the history: as many calls, and nothing opaque but
/// of the model of that number, if that takes it back.
#[track_caller]
fn check_sent(sent: &Value, call: &str, history: &Value, own: Option<usize>) {
    let text = sent.to_string();
    let calls = history.to_string().matches("\"toolCall\"").count();
    assert_eq!(text.matches(call).count(), calls, "{history:#}");
    let owned = own.map_or(0, |it| text.matches(&format!("MARK{it}")).count());
    assert_eq!(text.matches("MARK").count(), owned, "{sent:#}\n{history:#}");
}
