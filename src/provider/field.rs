//! Fields of what a server sends, read as they come: each may be missing, null
//! or of another type.

use serde_json::Value;

use crate::message::Usage;

/// Up to here each whole number is one of its own, also as a float.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0;

/// A text field; empty where it is missing, null or something else.
pub(in crate::provider) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A place or a count, also where it is written as a text or as a float. What is
/// negative, has a fraction or is beyond all counting is none.
pub(in crate::provider) fn number(value: &Value) -> Option<u64> {
    let float = match value {
        Value::Number(it) if it.is_u64() => return it.as_u64(),
        _ => float(value)?,
    };
    let is_whole = float.fract() == 0.0 && (0.0..=LARGEST_WHOLE).contains(&float);
    is_whole.then_some(float as u64)
}

/// Whether a switch is on, also where it is written as a text or as a number.
pub(in crate::provider) fn is_set(field: Option<&Value>) -> bool {
    match field {
        Some(Value::Bool(it)) => *it,
        Some(Value::String(it)) if it.trim().eq_ignore_ascii_case("true") => true,
        Some(it) => number(it).is_some_and(|it| it > 0),
        None => false,
    }
}

/// A count of tokens; none where it is null. What no count can be reads as the
/// largest there is: the whole answer's usage is then not believed
/// (`Usage::can_be`), in place of a part of it looking true.
pub(in crate::provider) fn tokens(value: &Value) -> Option<u64> {
    number(value).or_else(|| (!value.is_null()).then_some(u64::MAX))
}

/// How much of what was read, or is left of it, a part is: all of it at most,
/// also where a server counts the part beside the whole. What no count can be
/// stays as it is.
pub(in crate::provider) fn within(part: u64, whole: u64) -> u64 {
    if part > Usage::MOST_TOKENS { part } else { part.min(whole) }
}

/// What is text, or stands where text belongs, as text; empty where it is missing
/// or null.
pub(in crate::provider) fn written(field: Option<&Value>) -> String {
    match field {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(it)) => it.clone(),
        Some(it) => it.to_string(),
    }
}

/// More of the arguments of a call, as text. An empty object only says that it is
/// still to come.
pub(in crate::provider) fn arguments(field: Option<&Value>) -> String {
    match field {
        Some(Value::Object(it)) if it.is_empty() => String::new(),
        it => written(it),
    }
}

/// Several of something: a list of them, or one by itself.
pub(in crate::provider) fn several(field: Option<&Value>) -> &[Value] {
    match field {
        Some(Value::Array(it)) => it,
        Some(it @ Value::Object(_)) => std::slice::from_ref(it),
        _ => &[],
    }
}

/// What a piece has of the answer that counts: we ask for one. Where none has an
/// index it is the first.
pub(in crate::provider) fn first_of<'a>(
    piece: &'a Value,
    field: &str,
) -> impl Iterator<Item = &'a Value> + use<'a> {
    let answers = piece.get(field).and_then(Value::as_array).into_iter().flatten();
    let place =
        |(place, it): (usize, &Value)| it.get("index").and_then(number).unwrap_or(place as u64);
    answers.enumerate().filter(move |it| place(*it) == 0).map(|it| it.1)
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Number(it) => it.as_f64(),
        Value::String(it) => it.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: Value, place: Option<u64>, count: Option<u64>) {
        assert_eq!((number(&value), tokens(&value)), (place, count), "{value}");
    }

    #[test]
    fn whole_numbers_read_however_they_are_written() {
        check(json!(7), Some(7), Some(7));
        check(json!(u64::MAX), Some(u64::MAX), Some(u64::MAX));
        check(json!(6.0), Some(6), Some(6));
        check(json!(" 6 "), Some(6), Some(6));
        check(json!("6.0"), Some(6), Some(6));
        check(json!(-0.0), Some(0), Some(0));
        check(json!(null), None, None);
    }

    #[test]
    fn what_is_no_count_is_no_place_and_no_small_number() {
        for odd in [json!(-1), json!(1.5), json!(1e19), json!(f64::MAX), json!(i64::MIN)] {
            check(odd, None, Some(u64::MAX));
        }
        for odd in [json!("x"), json!(""), json!([1]), json!({}), json!(true)] {
            check(odd, None, Some(u64::MAX));
        }
        for odd in ["-1", "NaN", "inf", "-inf", "1e400", &"9".repeat(400)] {
            check(json!(odd), None, Some(u64::MAX));
        }
    }
}
