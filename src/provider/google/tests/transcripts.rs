//! Whole answers as the provider writes them, each with what is stored of it.
//! They are cut at every byte.

use serde_json::{Value, json};

use super::decode::answer;

#[track_caller]
fn check(transcript: &str, stored: &str) {
    let want: Value = serde_json::from_str(stored).unwrap();
    let got = match answer(transcript.as_bytes()) {
        Ok(it) => {
            let it = serde_json::to_value(it.message).unwrap();
            json!({"content": it["content"], "stopReason": it["stopReason"],
                "usage": counts(&it["usage"])})
        }
        Err(it) => {
            let partial = serde_json::to_value(&it.partial).unwrap();
            json!({"content": partial["content"], "category": it.fault.category(),
                "usage": counts(&partial["usage"])})
        }
    };
    assert_eq!(got, want, "{got:#}");
}

fn counts(usage: &Value) -> Value {
    let count = |name: &str| usage[name].clone();
    json!([count("input"), count("output"), count("cacheRead"), count("totalTokens")])
}

macro_rules! transcripts {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            check(
                include_str!(concat!("transcripts/", stringify!($name), ".txt")),
                include_str!(concat!("transcripts/", stringify!($name), ".json")),
            );
        }
    )*};
}

transcripts! {
    text_of_an_older_model,
    thinking_and_a_signed_call,
    several_calls_over_several_pieces,
    a_signature_behind_the_text,
    a_list_without_events,
    withheld_in_the_middle,
    an_error_in_the_middle,
    cut_before_its_end,
}
