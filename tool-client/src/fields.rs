//! Reads the fields of a JSON object one by one, each under its bound, and
//! then refuses what is left over: our own protocol is read strictly, so that
//! a field nobody enforces is never believed to be in force.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use serde_json::{Map, Value};

/// The fields of one object that have not been taken yet.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Takes an object from its bytes; `Err` says what is wrong with them.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err("the request is not a JSON object".into()),
            Err(error) => Err(format!("the request is not JSON: {error}")),
        }
    }

    /// The field's value; absent and `null` are the same.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|it| !it.is_null())
    }

    /// A string.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` is not a string")),
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(format!("`{name}` is not a whole number from 0 on")),
            },
        }
    }

    /// Text or bytes for the operating system: see [`os_string`].
    pub(crate) fn bytes(&mut self, name: &str) -> Result<Option<OsString>, String> {
        self.take(name).map(|value| os_string(value, name)).transpose()
    }

    /// An object of its own.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Fields>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self(fields))),
            Some(_) => Err(format!("`{name}` is not an object")),
        }
    }

    /// All that is left, for objects whose names are data.
    pub(crate) fn into_rest(self) -> Map<String, Value> {
        self.0
    }

    /// Refuses fields that nobody took.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("`{name}` is not a known field")),
        }
    }
}

/// A string, or an array of byte numbers for what is no UTF-8; without NUL,
/// which no argument, name or path can hold.
pub(crate) fn os_string(value: Value, name: &str) -> Result<OsString, String> {
    let bytes = match value {
        Value::String(text) => text.into_bytes(),
        Value::Array(numbers) => numbers
            .iter()
            .map(|it| it.as_u64().and_then(|it| u8::try_from(it).ok()))
            .collect::<Option<Vec<u8>>>()
            .ok_or_else(|| format!("`{name}` holds something that is not a byte"))?,
        _ => return Err(format!("`{name}` is neither a string nor an array of bytes")),
    };
    if bytes.contains(&0) {
        return Err(format!("`{name}` holds a NUL byte"));
    }
    Ok(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(value: Value, want: Result<&[u8], &str>) {
        let got = os_string(value, "argv").map(OsString::into_vec);
        assert_eq!(got, want.map(<[u8]>::to_vec).map_err(String::from));
    }

    #[test]
    fn text_and_byte_numbers_are_the_same_thing() {
        check(json!("a b"), Ok(b"a b"));
        check(json!([97, 255]), Ok(b"a\xff"));
        check(json!([]), Ok(b""));
    }

    #[test]
    fn what_no_argument_can_be_is_refused() {
        check(json!("a\0b"), Err("`argv` holds a NUL byte"));
        check(json!([0]), Err("`argv` holds a NUL byte"));
        check(json!([256]), Err("`argv` holds something that is not a byte"));
        check(json!([-1]), Err("`argv` holds something that is not a byte"));
        check(json!(1), Err("`argv` is neither a string nor an array of bytes"));
    }

    #[test]
    fn a_field_that_nobody_takes_is_refused() {
        let mut fields = match Fields::parse(br#"{"op":"read","pth":"x","limit":null}"#) {
            Ok(fields) => fields,
            Err(error) => unreachable!("{error}"),
        };
        assert_eq!(fields.text("op"), Ok(Some("read".into())));
        assert_eq!(fields.number("limit"), Ok(None));
        assert_eq!(fields.finish(), Err("`pth` is not a known field".into()));
    }
}
