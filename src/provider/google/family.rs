//! What the id of a model says of it: which generation it is, whether it wants
//! a signature with each call, and how it is told to think. Pure. An id that
//! says nothing, such as one that always means the newest, gets what all
//! generations take.

use serde_json::{Value, json};

use crate::config::ThinkingLevel;

/// The first generation that thinks, and that is told by a number of tokens.
const FIRST_WITH_BUDGET: (u32, u32) = (2, 5);

/// The first generation that is told by a level, signs its calls, and sees
/// images within the result of a tool.
const FIRST_WITH_LEVEL: (u32, u32) = (3, 0);

/// The first generation whose largest models know a medium level.
const FIRST_WITH_MEDIUM: (u32, u32) = (3, 1);

/// Fewest tokens of thinking that the largest models take; theirs cannot be
/// turned off.
const LEAST_OF_LARGEST: u64 = 128;

/// Fewest tokens that all models take which are to think at all.
const LEAST: u64 = 512;

/// What is known of a model by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// Its generation, if the id tells.
    version: Option<(u32, u32)>,
    is_largest: bool,
    makes_images: bool,
}

impl Family {
    pub(super) fn of(id: &str) -> Self {
        let id = id.to_ascii_lowercase();
        let words = || id.split(['-', '/', '_', ':', '@']);
        Self {
            version: id.split_once("gemini-").and_then(|(_, rest)| version(rest)),
            is_largest: words().any(|it| it == "pro" || it == "ultra"),
            makes_images: words().any(|it| it == "image"),
        }
    }

    /// Whether a call without signature may be refused.
    pub(super) fn wants_signatures(self) -> bool {
        self.version.is_none_or(|it| it >= FIRST_WITH_LEVEL)
    }

    /// Whether an image may stand within the result of a tool.
    pub(super) fn sees_results(self) -> bool {
        self.version.is_some_and(|it| it >= FIRST_WITH_LEVEL)
    }

    /// The `thinkingConfig` of a request; none where the model may not know
    /// the field. `reasons` is what a person said of the model, `limit` what it
    /// may write in all: thinking is a part of that, and leaves room for an
    /// answer.
    pub(super) fn thinking(
        self,
        level: ThinkingLevel,
        reasons: Option<bool>,
        limit: Option<u64>,
    ) -> Option<Value> {
        if reasons == Some(false) || (self.makes_images && reasons.is_none()) {
            return None;
        }
        match self.version {
            Some(it) if it >= FIRST_WITH_LEVEL => Some(self.by_level(it, level)),
            Some(it) if it >= FIRST_WITH_BUDGET => Some(self.by_budget(level, limit)),
            Some(_) if reasons.is_none() => None,
            _ if level == ThinkingLevel::Off => None,
            _ => Some(self.by_budget(level, limit)),
        }
    }

    fn by_level(self, version: (u32, u32), level: ThinkingLevel) -> Value {
        let word = match level {
            ThinkingLevel::Off | ThinkingLevel::Minimal if self.is_largest => "LOW",
            // As near to off as they come.
            ThinkingLevel::Off | ThinkingLevel::Minimal => "MINIMAL",
            ThinkingLevel::Low => "LOW",
            ThinkingLevel::Medium if self.is_largest && version < FIRST_WITH_MEDIUM => "HIGH",
            ThinkingLevel::Medium => "MEDIUM",
            ThinkingLevel::High => "HIGH",
        };
        json!({"thinkingLevel": word, "includeThoughts": level != ThinkingLevel::Off})
    }

    fn by_budget(self, level: ThinkingLevel, limit: Option<u64>) -> Value {
        let tokens = match level {
            ThinkingLevel::Off if self.is_largest => LEAST_OF_LARGEST,
            ThinkingLevel::Off => 0,
            ThinkingLevel::Minimal => LEAST,
            ThinkingLevel::Low => 2_048,
            ThinkingLevel::Medium => 8_192,
            ThinkingLevel::High => 24_576,
        };
        let half = limit.map_or(u64::MAX, |it| it / 2).max(LEAST);
        json!({"thinkingBudget": tokens.min(half), "includeThoughts": level != ThinkingLevel::Off})
    }
}

/// The version that a text begins with: `3`, `2.5`.
fn version(text: &str) -> Option<(u32, u32)> {
    let end = text.find(|it: char| it != '.' && !it.is_ascii_digit()).unwrap_or(text.len());
    let mut numbers = text[..end].split('.').map(str::parse);
    let major = numbers.next()?.ok()?;
    Some((major, numbers.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(id: &str, version: Option<(u32, u32)>, is_largest: bool, makes_images: bool) {
        assert_eq!(Family::of(id), Family { version, is_largest, makes_images }, "{id}");
    }

    #[test]
    fn an_id_tells_its_generation_and_size() {
        check("gemini-2.5-flash", Some((2, 5)), false, false);
        check("models/gemini-2.5-pro-preview-06-05", Some((2, 5)), true, false);
        check("google/Gemini-3-Pro-Preview", Some((3, 0)), true, false);
        check("gemini-3.1-flash-lite", Some((3, 1)), false, false);
        check("gemini-3-pro-image", Some((3, 0)), true, true);
        check("gemini-10.12-ultra", Some((10, 12)), true, false);
        check("gemini-flash-latest", None, false, false);
        check("gemini-pro", None, true, false);
        check("gemini-", None, false, false);
        check("gemini-3.", Some((3, 0)), false, false);
        check("gemini-99999999999", None, false, false);
        check("gemma-3-27b-it", None, false, false);
    }

    #[track_caller]
    fn check_thinking(id: &str, level: ThinkingLevel, want: Option<Value>) {
        assert_eq!(Family::of(id).thinking(level, None, None), want, "{id} {level:?}");
    }

    fn levels() -> [ThinkingLevel; 5] {
        use ThinkingLevel::{High, Low, Medium, Minimal, Off};
        [Off, Minimal, Low, Medium, High]
    }

    #[test]
    fn the_newer_are_told_by_a_level_that_they_know() {
        for (id, words) in [
            ("gemini-3-pro-preview", ["LOW", "LOW", "LOW", "HIGH", "HIGH"]),
            ("gemini-3.1-pro-preview", ["LOW", "LOW", "LOW", "MEDIUM", "HIGH"]),
            ("gemini-3-flash-preview", ["MINIMAL", "MINIMAL", "LOW", "MEDIUM", "HIGH"]),
        ] {
            for (level, word) in levels().into_iter().zip(words) {
                let shown = level != ThinkingLevel::Off;
                let want = json!({"thinkingLevel": word, "includeThoughts": shown});
                check_thinking(id, level, Some(want));
            }
        }
    }

    #[test]
    fn the_older_are_told_by_a_number_that_they_take() {
        for (id, numbers) in [
            ("gemini-2.5-pro", [128, 512, 2_048, 8_192, 24_576]),
            ("gemini-2.5-flash-lite", [0, 512, 2_048, 8_192, 24_576]),
        ] {
            for (level, number) in levels().into_iter().zip(numbers) {
                let shown = level != ThinkingLevel::Off;
                let want = json!({"thinkingBudget": number, "includeThoughts": shown});
                check_thinking(id, level, Some(want));
            }
        }
    }

    #[test]
    fn who_may_not_think_is_told_nothing() {
        for level in levels() {
            check_thinking("gemini-2.0-flash", level, None);
            check_thinking("gemini-3-pro-image", level, None);
            let said = Family::of("gemini-3-pro").thinking(level, Some(false), None);
            assert_eq!(said, None);
        }
        check_thinking("gemini-flash-latest", ThinkingLevel::Off, None);
        let asked = Some(json!({"thinkingBudget": 2_048, "includeThoughts": true}));
        check_thinking("gemini-flash-latest", ThinkingLevel::Low, asked.clone());
        let old = Family::of("gemini-2.0-flash-thinking");
        assert_eq!(old.thinking(ThinkingLevel::Low, Some(true), None), asked);
    }

    #[test]
    fn thinking_leaves_room_for_the_answer() {
        let budget = |limit| {
            let told = Family::of("gemini-2.5-flash").thinking(ThinkingLevel::High, None, limit);
            told.map(|it| it["thinkingBudget"].clone())
        };
        assert_eq!(budget(Some(8_192)), Some(json!(4_096)));
        assert_eq!(budget(Some(65_536)), Some(json!(24_576)));
        assert_eq!(budget(Some(10)), Some(json!(512)));
    }

    #[test]
    fn a_generation_that_nobody_knows_is_given_what_all_take() {
        let [old, new, unknown] =
            ["gemini-2.5-pro", "gemini-3-pro", "gemini-flash-latest"].map(Family::of);
        assert_eq!([old, new, unknown].map(Family::wants_signatures), [false, true, true]);
        assert_eq!([old, new, unknown].map(Family::sees_results), [false, true, false]);
    }
}
