//! Which values of a configuration are secret: keys of providers, plugin
//! settings and environment under names that look secret, and whatever was
//! read from a file. They go to the redactor, and to nobody's eyes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::config::key_path::{KeyPath, Step};
use crate::secret::{SHORTEST_MASKED, is_masked};

/// What stands for a secret where people look.
const DOTS: &str = "••••";

/// Shortest content of a file that is taken out of findings, in bytes.
/// Findings repeat paths and names, which may be put together with it; of
/// other secrets only those that the redactor masks, since a key `none` would
/// take ordinary words apart.
const SHORTEST_CONTENT: usize = 4;

/// What stands for a key where a server wants none.
const PLACEHOLDERS: [&str; 6] = ["none", "empty", "dummy", "unused", "ollama", "no-key"];

/// Every secret string in a configuration. `from_files` names the values that
/// hold the content of a file.
pub(crate) fn collect(value: &Value, from_files: &BTreeSet<KeyPath>) -> Vec<String> {
    let mut secrets = Vec::new();
    let mut copy = value.clone();
    let mut keep = |_: &KeyPath, text: &mut String| secrets.push(text.clone());
    visit(&mut copy, &KeyPath::default(), from_files, &mut keep);
    secrets
}

/// Puts dots in the place of every secret string.
pub(crate) fn mask(value: &mut Value, from_files: &BTreeSet<KeyPath>) {
    visit(value, &KeyPath::default(), from_files, &mut |_, text| *text = DOTS.into());
}

/// Where secrets stand that no text is masked of, since they are too short or
/// too common.
pub(crate) fn unmasked(value: &Value, from_files: &BTreeSet<KeyPath>) -> Vec<KeyPath> {
    let mut found = Vec::new();
    let mut look = |path: &KeyPath, text: &mut String| {
        let text = text.trim();
        let is_none = PLACEHOLDERS.iter().any(|it| it.eq_ignore_ascii_case(text));
        if !text.is_empty() && !is_none && !is_masked(text) {
            found.push(path.clone());
        }
    };
    visit(&mut value.clone(), &KeyPath::default(), from_files, &mut look);
    found
}

/// What no finding may repeat, the longest first: a shorter one may be a part
/// of it.
pub(crate) fn hidden(contents: &[String], others: &[String]) -> Vec<String> {
    let contents = contents.iter().filter(|it| it.len() >= SHORTEST_CONTENT);
    let others = others.iter().filter(|it| it.len() >= SHORTEST_MASKED);
    let mut hidden: Vec<String> = contents.chain(others).cloned().collect();
    hidden.sort_by_key(|it| Reverse(it.len()));
    hidden
}

/// A text without any of what must stay hidden.
pub(crate) fn hide(text: &str, hidden: &[String]) -> String {
    hidden.iter().fold(text.to_owned(), |text, it| text.replace(it, DOTS))
}

fn visit(
    value: &mut Value,
    path: &KeyPath,
    from_files: &BTreeSet<KeyPath>,
    act: &mut dyn FnMut(&KeyPath, &mut String),
) {
    match value {
        Value::String(text) if is_secret(path, text) || from_files.contains(path) => {
            act(path, text)
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                visit(item, &path.index(index), from_files, act);
            }
        }
        Value::Object(entries) => {
            for (key, entry) in entries {
                visit(entry, &path.key(key), from_files, act);
            }
        }
        _ => {}
    }
}

fn is_secret(path: &KeyPath, text: &str) -> bool {
    let keys: Vec<&str> = path
        .steps()
        .iter()
        .map(|it| match it {
            Step::Key(key) => &**key,
            Step::Index(_) => "",
        })
        .collect();
    match keys.as_slice() {
        // A proxy's URL may hold a password.
        ["llm", "providers", _, "apiKey" | "headers" | "proxy", ..]
        | ["plugins", _, "headers" | "proxy", ..] => true,
        ["plugins", _, "url"] => has_key(text),
        ["plugins", _, "config" | "env", rest @ ..]
        | ["agents", _, "pluginConfigs", _, rest @ ..]
        | ["agents", _, "sandbox", "extraEnv", rest @ ..] => rest.iter().any(|it| looks_secret(it)),
        _ => false,
    }
}

/// Whether an address seems to hold a key: in its query, or as a part of its
/// path, as some servers have it.
fn has_key(url: &str) -> bool {
    let is_key = |it: &str| {
        it.len() >= 20
            && it.contains(|it: char| it.is_ascii_digit())
            && it.contains(|it: char| it.is_ascii_alphabetic())
    };
    url.contains('?') || url.split('/').skip(3).any(is_key)
}

/// Whether a value under that name is taken for a secret.
pub fn looks_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["key", "token", "secret", "password"].iter().any(|it| key.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    #[test]
    fn what_is_too_short_to_be_masked_is_found_by_its_place() {
        let value = json!({
            "llm": {"providers": {
                "p": {"apiKey": "sk-1", "headers": {"x": "abc", "y": "a-long-secret"}},
                "q": {"apiKey": "none"}, "r": {"apiKey": ""},
            }},
            "plugins": {"w": {"config": {"token": "1234567890", "name": "w"}}},
        });
        let places: Vec<String> =
            unmasked(&value, &BTreeSet::new()).iter().map(ToString::to_string).collect();
        let want =
            ["llm.providers.p.apiKey", "llm.providers.p.headers.x", "plugins.w.config.token"];
        assert_eq!(places, want);
    }

    #[test]
    fn what_looks_secret_is_known_and_masked() {
        let mut value = json!({
            "llm": {"providers": {"p": {"apiKey": "k-1", "headers": {"x": "k-2"}, "api": "replay"}}},
            "plugins": {"far": {"url": "https://h/mcp?k-8", "headers": {"X": "k-9"}},
                "near": {"url": "https://h/open"}, "key": {
                "path": "./key",
                "config": {"name": "n", "accessTokens": ["k-3", {"deep": "k-4"}]},
                "env": {"DB_PASSWORD": "k-5", "DB_HOST": "h"},
            }},
            "agents": {"token": {
                "instructions": "from a file",
                "pluginConfigs": {"secret": {"mode": "m", "clientSecret": "k-6"}},
                "sandbox": {"image": "i", "extraEnv": {"GH_TOKEN": "k-7"}},
            }},
        });
        let from_files = BTreeSet::from([KeyPath::from(["agents", "token", "instructions"])]);
        let mut secrets = collect(&value, &from_files);
        secrets.sort();
        let url = "https://h/mcp?k-8";
        let keys = ["k-1", "k-2", "k-3", "k-4", "k-5", "k-6", "k-7", "k-9"];
        assert_eq!(secrets, [&["from a file", url][..], &keys].concat());
        mask(&mut value, &from_files);
        let shown = value.to_string();
        assert!(secrets.iter().all(|it| !shown.contains(it)), "{shown}");
        assert!(
            ["https://h/open", "./key", "\"n\"", "\"h\"", "\"m\"", "\"i\""]
                .iter()
                .all(|it| shown.contains(it))
        );
    }

    #[test]
    fn an_address_may_hold_a_key() {
        for url in ["https://h/mcp?key=1", "https://h/s/0a1b2c3d4e5f60718293/mcp"] {
            assert!(has_key(url), "{url}");
        }
        for url in ["https://h/mcp", "https://a-long-name-of-host-1.example.org/v1/mcp"] {
            assert!(!has_key(url), "{url}");
        }
    }

    #[test]
    fn a_finding_does_not_repeat_a_secret() {
        let contents = ["hunter2".to_owned(), "e".to_owned()];
        let others = ["none".to_owned(), "hunter2-and-more".to_owned()];
        let hidden = hidden(&contents, &others);
        let text = "/srv/hunter2/hunter2-and-more there is none";
        assert_eq!(hide(text, &hidden), "/srv/••••/•••• there is none");
    }
}
