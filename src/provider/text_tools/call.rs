//! Reads what stands in a block: the name of a tool and its arguments. Pure.
//! What does not read is handed on as it is: whoever reads arguments says what
//! is wrong with them.

use serde_json::{Map, Value};

use crate::provider::json;

/// Longest name that is looked for in a call that does not read, in bytes.
const LONGEST_NAME: usize = 64;

/// The tool that a block calls, and the JSON text of the arguments.
pub(super) fn read(block: &str) -> (String, String) {
    let text = mended(block.trim());
    match json::read(text.as_bytes(), json::MOST_VALUES) {
        Ok(Value::Object(fields)) => of_fields(&fields),
        _ => (name_in(&text).to_owned(), text),
    }
}

/// Some models say `parameters`, and some write them as a text.
fn of_fields(fields: &Map<String, Value>) -> (String, String) {
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
    let arguments = fields.get("arguments").or_else(|| fields.get("parameters"));
    let text = match arguments {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => mended(text),
        Some(other) => other.to_string(),
    };
    (name.to_owned(), text)
}

/// JSON whose strings hold line breaks and tabs as escapes: models write them
/// as they are.
fn mended(text: &str) -> String {
    let mut mended = String::with_capacity(text.len());
    let (mut in_string, mut is_escaped) = (false, false);
    for it in text.chars() {
        let is_raw = in_string && it.is_control() && it.is_ascii() && it != '\u{7f}';
        if is_raw {
            // A backslash before a line break goes on with the next line.
            if is_escaped {
                mended.pop();
            }
            mended.push_str(&format!("\\u{:04x}", u32::from(it)));
            is_escaped = false;
            continue;
        }
        match it {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = in_string,
            '"' => in_string = !in_string,
            _ => (),
        }
        mended.push(it);
    }
    mended
}

/// The name in a call that does not read, so that the model can be told which
/// of its calls it was; empty if it says none.
fn name_in(text: &str) -> &str {
    let named = || {
        let (_, behind) = text.split_once("\"name\"")?;
        let value = behind.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
        let (name, _) = value.split_once('"')?;
        (name.len() <= LONGEST_NAME && !name.contains(['\\', '\n'])).then_some(name)
    };
    named().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(block: &str, name: &str, arguments: &str) {
        assert_eq!(read(block), (name.to_owned(), arguments.to_owned()));
    }

    #[test]
    fn a_block_is_a_name_and_arguments() {
        check(
            "\n{\"name\": \"exec\", \"arguments\": {\"command\": \"ls\", \"n\": {\"a\": [1]}}}\n",
            "exec",
            r#"{"command":"ls","n":{"a":[1]}}"#,
        );
        check(r#"{"name":"exec","parameters":{"command":"ls"}}"#, "exec", r#"{"command":"ls"}"#);
        check(
            r#"{"name":"exec","arguments":"{\"command\":\"ls\"}"}"#,
            "exec",
            r#"{"command":"ls"}"#,
        );
        check(r#"{"name":"exec"}"#, "exec", "");
        check(r#"{"name":"exec","arguments":null}"#, "exec", "");
        check(r#"{"name":"exec","arguments":[1]}"#, "exec", "[1]");
        check(r#"{"arguments":{}}"#, "", "{}");
    }

    #[test]
    fn line_breaks_in_strings_may_stand_as_they_are() {
        check(
            "{\"name\": \"write\",\n\t\"arguments\": {\"content\": \"a\n\tb\\\"\r\nc\"}}",
            "write",
            r#"{"content":"a\n\tb\"\r\nc"}"#,
        );
        check("{\"name\":\"w\",\"arguments\":{\"c\":\"a\\\nb\"}}", "w", r#"{"c":"a\nb"}"#);
        check(
            "{\"name\":\"w\",\"arguments\":\"{\\\"c\\\":\\\"a\\nb\\\"}\"}",
            "w",
            "{\"c\":\"a\\u000ab\"}",
        );
    }

    #[test]
    fn what_does_not_read_is_handed_on_with_the_name_it_says() {
        let broken = r#"{"name": "exec", "arguments": {"command": "ls"#;
        check(broken, "exec", broken);
        check("exec ls", "", "exec ls");
        check("[1]", "", "[1]");
        check("", "", "");
        let two = r#"{"name":"exec","arguments":{}} {"name":"read","arguments":{}}"#;
        check(two, "exec", two);
        let long = format!(r#"{{"name": "{}" "#, "x".repeat(65));
        check(&long, "", long.trim());
    }

    #[test]
    fn fields_of_any_type_are_no_reason_to_fail() {
        check(r#"{"name":7,"arguments":{"a":1}}"#, "", r#"{"a":1}"#);
        check(r#"{"name":null,"arguments":7}"#, "", "7");
    }
}
