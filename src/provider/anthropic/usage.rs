//! The tokens of an answer. Pure. They are told at its start and at its end,
//! and some servers know those that were read only then; of each kind the last
//! number counts that is one.

use serde_json::Value;

use crate::message::Usage;
use crate::provider::field::tokens;

/// Tokens so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    usage: Usage,
}

impl Counts {
    /// The tokens so far with those of this object; none if it tells of none.
    pub(super) fn take(&mut self, told: &Value) -> Option<Usage> {
        let usage = &mut self.usage;
        let kinds = [
            ("input_tokens", &mut usage.input),
            ("output_tokens", &mut usage.output),
            ("cache_read_input_tokens", &mut usage.cache_read),
            ("cache_creation_input_tokens", &mut usage.cache_write),
        ];
        let mut is_told = false;
        for (name, count) in kinds {
            if let Some(told) = told.get(name).and_then(tokens).filter(|it| *it > 0) {
                *count = told;
                is_told = true;
            }
        }
        is_told.then(|| self.usage.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(told: &[Value], want: Option<[u64; 4]>) {
        let mut counts = Counts::default();
        let usage = told.iter().filter_map(|it| counts.take(it)).last();
        let got = usage.map(|it| [it.input, it.output, it.cache_read, it.cache_write]);
        assert_eq!(got, want);
    }

    #[test]
    fn the_last_number_of_each_kind_counts() {
        let start = json!({"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 9,
            "cache_creation_input_tokens": null, "service_tier": "standard"});
        check(&[start.clone(), json!({"output_tokens": 15})], Some([25, 15, 9, 0]));
        let end = json!({"input_tokens": "30", "output_tokens": 2.0,
            "cache_read_input_tokens": 0, "cache_creation_input_tokens": "4"});
        check(&[start, end], Some([30, 2, 9, 4]));
        check(&[json!({"input_tokens": 0}), json!(null), json!({}), json!([1])], None);
    }
}
