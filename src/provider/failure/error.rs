//! A provider's own error object, read as it comes: its codes, its words, how
//! long it asks to wait. Pure. What is told on is one short line.

use serde_json::Value;

use crate::message::read_json;
use crate::provider::wait;

/// Longest message of a provider that is told on, in characters.
const LONGEST_MESSAGE: usize = 300;

/// A provider's error, as far as it could be read.
#[derive(Debug, Default)]
pub(super) struct ProviderError {
    /// Its codes and types, lower-case.
    pub(super) codes: Vec<String>,
    /// Its own words, as one line.
    pub(super) message: String,
    /// The same at full length and lower-case, to look for wording in.
    pub(super) wording: String,
    /// How long it asks to wait, in milliseconds.
    pub(super) wait: Option<u64>,
}

impl ProviderError {
    /// Reads a body, whatever it is.
    pub(super) fn of_body(body: &[u8]) -> Self {
        if let Ok(value) = read_json(body) {
            return Self::of_value(&value);
        }
        let text = String::from_utf8_lossy(body);
        let is_page = text.trim_start().starts_with('<');
        if is_page { Self::of_text(&page_title(&text)) } else { Self::of_text(&text) }
    }

    /// Reads `{"error": …}`, an error object by itself, a list that holds one,
    /// or a text.
    pub(super) fn of_value(value: &Value) -> Self {
        let value = value.get(0).unwrap_or(value);
        let inner = value.get("error").filter(|it| it.is_object() || it.is_string());
        let error = inner.unwrap_or(value);
        let fields = [error, value].into_iter().flat_map(|it| {
            ["code", "type", "status"].into_iter().filter_map(|field| it.get(field))
        });
        // Google's codes are coarse; what is wrong stands in its details.
        let details = error.get("details").and_then(Value::as_array);
        let details = details.map(Vec::as_slice).unwrap_or_default();
        let fields = fields.chain(details.iter().filter_map(|it| it.get("reason")));
        let codes = fields.filter_map(|it| match it {
            Value::String(it) => Some(it.to_lowercase()),
            Value::Number(it) => Some(it.to_string()),
            _ => None,
        });
        let delay = details.iter().find_map(|it| it.get("retryDelay")).and_then(Value::as_str);
        let wait = delay.and_then(wait::written);
        Self { codes: codes.collect(), wait, ..Self::of_text(&message_of(error)) }
    }

    fn of_text(text: &str) -> Self {
        let wording = text.chars().take(8 * 1024).flat_map(char::to_lowercase).collect();
        Self { codes: Vec::new(), message: one_line(text), wording, wait: None }
    }

    /// Codes that are an HTTP status.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u16> {
        self.codes.iter().filter_map(|it| it.parse().ok())
    }
}

/// A text of others as one short line without control characters.
pub(in crate::provider) fn one_line(text: &str) -> String {
    let visible = text.chars().map(|it| if is_invisible(it) { ' ' } else { it });
    let visible: String = visible.take(8 * 1024).collect();
    let words: Vec<&str> = visible.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The words of an error object. A router's `metadata.raw` is what the
/// provider behind it said.
fn message_of(error: &Value) -> String {
    let fields = ["message", "detail", "error_description", "msg", "title"];
    let told = fields.into_iter().find_map(|it| error.get(it).filter(|it| !it.is_null()));
    let told = told.map(text_of).unwrap_or_else(|| match error {
        Value::Null => String::new(),
        it => text_of(it),
    });
    match error.pointer("/metadata/raw").map(text_of) {
        Some(raw) if !raw.is_empty() => format!("{told}: {raw}"),
        _ => told,
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(it) => it.clone(),
        it => it.to_string(),
    }
}

/// What a page of a proxy says, without its markup.
fn page_title(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|start| {
        let start = start + "<title>".len();
        let end = start + lower.get(start..)?.find('<')?;
        page.get(start..end)
    });
    match title {
        Some(title) => format!("an HTML page, \"{}\"", title.trim()),
        None => "an HTML page".into(),
    }
}

/// Controls, and marks that turn or hide what stands beside them.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{2069}' | '\u{feff}')
}
