//! Fields of what a server sends, read as they come: each may be missing, null
//! or of another type.

use serde_json::Value;

/// A text field; empty where it is missing, null or something else.
pub(in crate::provider) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A count, also where it is written as a text or with a fraction.
pub(in crate::provider) fn number(value: &Value) -> Option<u64> {
    let float = match value {
        Value::Number(it) => return it.as_u64().or_else(|| it.as_f64().map(|it| it as u64)),
        Value::String(it) => it.trim().parse::<f64>().ok(),
        _ => None,
    };
    // A cast from a float is bounded by its target.
    float.map(|it| it as u64)
}
