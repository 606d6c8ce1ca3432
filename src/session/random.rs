//! Histories for tests, from short forms and at random: the same ones for the
//! same seed.

use serde_json::{Value, json};

use crate::message::Message;

/// Messages from short forms: `u:text`, `a:text`, `c:id,id` (an answer with
/// calls), `r:id` (a result).
pub(super) fn messages(forms: &[&str]) -> Vec<Message> {
    let of = |(kind, rest): (&str, &str)| match kind {
        "u" => json!({"role": "user", "content": rest}),
        "a" => json!({"role": "assistant", "content": rest}),
        "c" => {
            let call = |id| json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {}});
            let calls: Vec<Value> = rest.split(',').map(call).collect();
            json!({"role": "assistant", "content": calls})
        }
        _ => json!({"role": "toolResult", "toolCallId": rest, "content": "ok"}),
    };
    forms.iter().map(|it| message(of(it.split_once(':').unwrap_or((it, ""))))).collect()
}

/// A conversation of up to forty messages: turns with and without tools, long
/// and short, whole and cut; in some a result is missing or comes late.
pub(super) fn history(seed: u64) -> Vec<Message> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut all = Vec::new();
    let is_tidy = dice.below(2) == 0;
    for turn in 0..1 + dice.below(6) {
        all.push(message(json!({"role": "user", "content": dice.text()})));
        for batch in 0..dice.below(4) {
            let ids: Vec<String> =
                (0..1 + dice.below(3)).map(|it| format!("{turn}-{batch}-{it}")).collect();
            all.push(answer(&mut dice, &ids));
            for id in &ids {
                if is_tidy || dice.below(8) > 0 {
                    all.push(message(json!({"role": "toolResult", "toolCallId": id,
                        "toolName": "exec", "content": dice.text()})));
                }
                if !is_tidy && dice.below(10) == 0 {
                    all.push(message(json!({"role": "user", "content": "aside"})));
                }
            }
        }
        if dice.below(5) > 0 {
            all.push(answer(&mut dice, &[]));
        }
    }
    all
}

fn answer(dice: &mut Dice, ids: &[String]) -> Message {
    let mut content = vec![json!({"type": "text", "text": dice.text()})];
    content.extend(ids.iter().map(|id| {
        json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {"command": dice.text()}})
    }));
    message(json!({"role": "assistant", "content": content}))
}

fn message(value: Value) -> Message {
    serde_json::from_value(value).unwrap_or(Message::Unknown(Value::Null))
}

/// Numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Mostly short, now and then long; never empty.
    fn text(&mut self) -> String {
        let length = match self.below(12) {
            0 => 4_000,
            1..=3 => 300,
            _ => 1 + self.below(30),
        };
        "é1 x".chars().cycle().take(length as usize).collect()
    }
}
