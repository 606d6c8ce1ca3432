//! Entries of `config.json5` out of an `mcp.json`, as editors and other agents
//! keep it: `mcpServers` (or `servers`), each with a command or an address.
//! Nothing is started and nothing is fetched. Values are taken as they stand,
//! and what a person should know of them is said without showing any. Pure.

use serde_json::{Map, Value};

use super::source::fitted;
use crate::config::{Written, literal, looks_secret};
use crate::error::{Error, Kind, Result};
use crate::plugin::manifest::is_reserved;

/// Most servers of one file.
const MOST_SERVERS: usize = 200;

/// Fields that become part of an entry, or that mean nothing to it.
const KNOWN: [&str; 7] = ["command", "args", "env", "url", "headers", "disabled", "type"];

/// A server as a plugin's entry.
#[derive(Debug, PartialEq)]
pub struct Imported {
    /// The plugin's name.
    pub name: String,
    /// Its entry.
    pub entry: Written,
    /// What a person should know of it, a line each.
    pub notes: Vec<String>,
}

/// All servers of a file.
pub fn servers(file: &Value) -> Result<Vec<Imported>> {
    let tables = ["mcpServers", "servers"].map(|it| file.get(it).and_then(Value::as_object));
    let Some(table) = tables.into_iter().flatten().next() else {
        let what = "it holds neither `mcpServers` nor `servers`, an object with a server by name";
        return Err(Error::new(Kind::Usage, what));
    };
    if table.is_empty() || table.len() > MOST_SERVERS {
        let what = format!("it holds {} servers; 1 to {MOST_SERVERS} can be taken", table.len());
        return Err(Error::new(Kind::Usage, what));
    }
    let mut imported: Vec<Imported> = Vec::new();
    for (given, server) in table {
        let server = server_of(given, server)?;
        if imported.iter().any(|it| it.name == server.name) {
            let what = format!("two servers would be called `{}`; rename one", server.name);
            return Err(Error::new(Kind::Conflict, what));
        }
        imported.push(server);
    }
    Ok(imported)
}

fn server_of(given: &str, server: &Value) -> Result<Imported> {
    let wrong = |what: &str| Error::new(Kind::Usage, format!("server {given:?}: {what}"));
    let fields = server.as_object().ok_or_else(|| wrong("must be an object"))?;
    let mut notes = Vec::new();
    let name = name_of(given, &mut notes).ok_or_else(|| wrong("nothing of its name fits"))?;
    let mut entry = match (fields.get("command"), fields.get("url")) {
        (Some(command), None) => {
            let argv = argv(command, fields.get("args"))
                .ok_or_else(|| wrong("`command` must be a text, and `args` an array of texts"))?;
            let argv = argv.iter().map(|it| reference("command", it, &mut notes)).collect();
            vec![("command".to_owned(), Written::Array(argv))]
        }
        (None, Some(Value::String(url))) => {
            vec![("url".to_owned(), reference("url", url, &mut notes))]
        }
        _ => return Err(wrong("must have either a `command` or a `url`")),
    };
    let (of_it, of_others) = match fields.contains_key("url") {
        true => ("headers", "env"),
        false => ("env", "headers"),
    };
    if fields.get(of_others).is_some_and(|it| it != &Value::Object(Map::new())) {
        notes.push(format!("`{of_others}` means nothing to such a server and is left out"));
    }
    if let Some(table) = fields.get(of_it) {
        let table = table.as_object().filter(|it| it.values().all(is_plain));
        let table = table.ok_or_else(|| wrong(&format!("`{of_it}` must hold texts by name")))?;
        entry.extend(texts(of_it, table, &mut notes));
    }
    if fields.get("disabled") == Some(&Value::Bool(true)) {
        entry.push(("enabled".into(), Value::Bool(false).into()));
    }
    if fields.get("type").is_some_and(|it| it == "sse") {
        notes.push("beige speaks MCP's Streamable HTTP, and not the older HTTP+SSE".into());
    }
    for key in fields.keys().filter(|it| !KNOWN.contains(&it.as_str())) {
        notes.push(format!("`{key}` has no place in an entry and is left out"));
    }
    Ok(Imported { name, entry: Written::Object(entry), notes })
}

fn name_of(given: &str, notes: &mut Vec<String>) -> Option<String> {
    let mut name = fitted(given)?;
    if is_reserved(&name) {
        name = format!("{name}-mcp");
    }
    if name != given {
        notes.push(format!("{given:?} is called `{name}` here, since names are [a-z0-9_-]"));
    }
    Some(name)
}

/// A program and its arguments; some write them as one array.
fn argv(command: &Value, args: Option<&Value>) -> Option<Vec<String>> {
    let mut argv = match command {
        Value::String(program) => vec![program.clone()],
        several => strings(several)?,
    };
    argv.extend(args.map_or_else(|| Some(Vec::new()), strings)?);
    argv.first().is_some_and(|it| !it.is_empty()).then_some(argv)
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|it| it.as_str().map(str::to_owned)).collect()
}

/// Numbers and truths are written by some where a text is meant.
fn is_plain(value: &Value) -> bool {
    value.is_string() || value.is_number() || value.is_boolean()
}

fn texts(
    key: &str,
    table: &Map<String, Value>,
    notes: &mut Vec<String>,
) -> Option<(String, Written)> {
    let mut fields = Vec::new();
    for (name, value) in table {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let at = format!("{key}.{name}");
        // A header is there to say who asks.
        let is_secret = looks_secret(name) || key == "headers";
        if is_secret && !text.contains("${") && !text.is_empty() {
            let variable = if key == "env" { name.as_str() } else { "NAME" };
            notes.push(format!(
                "{at} stands in the configuration as it is written here; better take it from the \
                 environment, \"${{{variable}}}\", or from a file, \"${{file:/path}}\""
            ));
        }
        fields.push((name.clone(), reference(&at, &text, notes)));
    }
    (!fields.is_empty()).then(|| (key.to_owned(), Written::Object(fields)))
}

/// A text with the references that are ours. Some write `${env:NAME}` for
/// `${NAME}`; all others are kept as plain text.
fn reference(at: &str, text: &str, notes: &mut Vec<String>) -> Written {
    let ours = text.replace("${env:", "${");
    let mut rest = ours.as_str();
    let mut is_known = true;
    while let Some(begin) = rest.find("${") {
        rest = &rest[begin + 2..];
        let inner = rest.split('}').next().unwrap_or_default();
        let name = inner.split(":-").next().unwrap_or_default();
        is_known &=
            !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    }
    if is_known {
        return Value::from(ours).into();
    }
    notes.push(format!("{at} holds a reference that is not known here; it is kept as plain text"));
    Value::from(literal(text)).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn imported(file: &Value) -> Result<Vec<(String, Value, Vec<String>)>, String> {
        let all = servers(file).map_err(|it| it.to_string())?;
        let plain = |it: Imported| (it.name, it.entry.to_value(), it.notes);
        Ok(all.into_iter().map(plain).collect())
    }

    #[test]
    fn a_server_becomes_an_entry() {
        let file = json!({"mcpServers": {
            "files": {"command": "npx", "args": ["-y", "@x/files", "/tmp"], "type": "stdio"},
            "far": {"url": "https://mcp.example.org/", "headers": {"X-Team": "${TEAM}"}},
            "off": {"command": ["a", "b"], "disabled": true, "env": {"N": 3}, "headers": {}},
        }});
        let want = [
            ("far", json!({"url": "https://mcp.example.org/", "headers": {"X-Team": "${TEAM}"}})),
            ("files", json!({"command": ["npx", "-y", "@x/files", "/tmp"]})),
            ("off", json!({"command": ["a", "b"], "env": {"N": "3"}, "enabled": false})),
        ];
        let want: Vec<_> = want.map(|(name, it)| (name.to_owned(), it, Vec::new())).into();
        assert_eq!(imported(&file), Ok(want.clone()));
        assert_eq!(imported(&json!({"servers": file["mcpServers"]})), Ok(want));
    }

    #[test]
    fn what_a_person_should_know_is_said_and_no_secret_shown() {
        let file = json!({"mcpServers": {"My Server": {
            "command": "x", "args": ["${env:HOST}", "${input:key}"], "cwd": "/", "autoApprove": [],
            "env": {"API_KEY": "hunter2-hunter2", "OTHER_TOKEN": "${MINE:-x}", "MODE": "m"},
        }}});
        let (name, entry, notes) = imported(&file).unwrap_or_default().remove(0);
        assert_eq!(name, "my-server");
        assert_eq!(entry["command"], json!(["x", "${HOST}", "$${input:key}"]));
        assert_eq!(entry["env"]["API_KEY"], "hunter2-hunter2");
        let told = notes.join("\n");
        for want in [
            "called `my-server`",
            "`cwd` has no place",
            "`autoApprove`",
            "\"${API_KEY}\"",
            "command holds a reference",
        ] {
            assert!(told.contains(want), "{want}: {told}");
        }
        assert!(!told.contains("hunter2") && !told.contains("OTHER_TOKEN"), "{told}");
        assert_eq!(notes.len(), 5);
        let far = json!({"servers": {"far": {"url": "https://h/", "env": {"API_KEY": "hunter2"}}}});
        let (_, entry, notes) = imported(&far).unwrap_or_default().remove(0);
        assert_eq!(entry, json!({"url": "https://h/"}));
        assert_eq!(notes, ["`env` means nothing to such a server and is left out"]);
    }

    #[test]
    fn a_server_of_the_older_transport_is_told() {
        for (server, want) in [
            (json!({"url": "https://h/sse", "type": "sse"}), 1),
            (json!({"url": "https://h/mcp", "type": "http"}), 0),
            (json!({"url": "https://h/mcp"}), 0),
        ] {
            let notes =
                imported(&json!({"servers": {"x": server}})).unwrap_or_default().remove(0).2;
            assert_eq!(notes.len(), want, "{server}: {notes:?}");
            assert!(notes.iter().all(|it| it.contains("HTTP+SSE")), "{notes:?}");
        }
    }

    #[test]
    fn a_reserved_name_is_made_another() {
        let file = json!({"servers": {"exec": {"command": "x"}}});
        assert_eq!(imported(&file).unwrap_or_default()[0].0, "exec-mcp");
    }

    #[track_caller]
    fn check_refused(file: &Value, want: &str) {
        let error = imported(file).err().unwrap_or_default();
        assert!(error.contains(want), "{want}: {error}");
    }

    #[test]
    fn what_is_no_server_is_refused() {
        check_refused(&json!([]), "neither `mcpServers` nor `servers`");
        check_refused(&json!({"mcpServers": {}}), "it holds 0 servers");
        let one = |it: Value| json!({"mcpServers": {"x": it}});
        check_refused(&one(json!(1)), "server \"x\": must be an object");
        check_refused(&one(json!({})), "either a `command` or a `url`");
        check_refused(&one(json!({"command": "x", "url": "y"})), "either a `command` or a `url`");
        check_refused(&one(json!({"command": ""})), "`command` must be a text");
        check_refused(&one(json!({"command": "x", "args": "y"})), "`args` an array of texts");
        check_refused(&one(json!({"command": "x", "env": {"A": []}})), "`env` must hold texts");
        check_refused(&json!({"servers": {"…": {"command": "x"}}}), "nothing of its name fits");
        let twice = json!({"servers": {"A": {"command": "x"}, "a": {"command": "x"}}});
        check_refused(&twice, "two servers would be called `a`");
    }
}
