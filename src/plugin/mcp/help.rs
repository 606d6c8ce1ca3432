//! What an agent is told of the tools of a server, made from their
//! descriptions and schemas: the list, how one is called, and the lines of the
//! system prompt. Pure. The words are the server's; what they may take of
//! anybody's room is bounded here.

use serde_json::Value;

use super::catalog::{Catalog, Listed, up_to};
use super::schema::{Schema, as_word};
use crate::plugin::fields::did_you_mean;
use crate::plugin::settings::Type;

/// Longest first line of a description, in bytes.
const FIRST_LINE: usize = 160;

/// Longest description of an argument, in bytes.
const LONGEST_NOTE: usize = 600;

/// Longest form of a value, in bytes.
const LONGEST_FORM: usize = 800;

/// How deep the form of a value is told.
const DEEPEST: u32 = 5;

/// Values of a list that are told.
const MOST_VALUES: usize = 30;

/// Tools in the system prompt.
const MOST_COMMANDS: usize = 40;

/// Bytes of them.
const COMMAND_BYTES: usize = 4 * 1024;

/// All tools of a server, a line each.
pub(super) fn list(name: &str, catalog: &Catalog) -> String {
    let mut text = format!("usage: {name} TOOL [--KEY VALUE]…\n       {name} TOOL --help\n\n");
    for tool in catalog.tools() {
        text.push_str(&format!("  {}\n", line(tool)));
    }
    if catalog.tools().next().is_none() {
        text.push_str("  The server lists no tool.\n");
    }
    if catalog.left_out > 0 {
        text.push_str(&format!("  [{} more were left out]\n", catalog.left_out));
    }
    text
}

/// How one tool is called.
pub(super) fn tool(name: &str, tool: &Listed) -> String {
    let schema = Schema::of(&tool.schema);
    let mut text = format!(
        "usage: {}\n       {name} {} '{{…}}'   the same as a JSON object; with `-` in its place \
         it comes on standard input\n",
        usage(name, tool),
        tool.name
    );
    if !tool.description.is_empty() {
        text.push_str(&format!("\n{}\n", tool.description));
    }
    let required = schema.required(schema.root());
    let mut properties = schema.properties(schema.root());
    // Stable: within each half they keep their order.
    properties.sort_by_key(|(name, _)| !required.contains(name));
    let heads: Vec<String> = properties.iter().map(|(key, it)| head(schema, key, it)).collect();
    let width = heads.iter().map(|it| it.chars().count()).filter(|it| *it <= 32).max();
    let width = width.unwrap_or_default();
    if !heads.is_empty() {
        text.push('\n');
    }
    for (head, (key, property)) in heads.iter().zip(properties) {
        let notes = notes(schema, property, required.contains(&key));
        text.push_str(format!("  {head:width$}  {notes}").trim_end());
        text.push('\n');
    }
    if !schema.is_closed(schema.root()) {
        text.push_str("\nArguments that are not listed are passed on as they are.\n");
    }
    text
}

/// `NAME TOOL` with the arguments that it needs.
pub(super) fn usage(name: &str, tool: &Listed) -> String {
    let schema = Schema::of(&tool.schema);
    let (required, properties) = (schema.required(schema.root()), schema.properties(schema.root()));
    let mut text = format!("{name} {}", tool.name);
    for key in &required {
        let of = properties.iter().find(|(it, _)| it == key);
        let of = of.map_or_else(|| "VALUE".to_owned(), |(_, it)| value_word(schema, it));
        text.push_str(&format!(" --{key} {of}"));
    }
    if properties.iter().any(|(it, _)| !required.contains(it)) {
        text.push_str(" [--KEY VALUE]…");
    }
    text
}

/// Why there is nothing to call, and what there is.
pub(super) fn unknown(name: &str, word: &str, catalog: &Catalog) -> String {
    let near = did_you_mean(word, catalog.tools().map(|it| it.name.as_str()));
    let word = up_to(word, FIRST_LINE).replace(char::is_control, " ");
    format!("{name} has no tool `{word}`{near}\n{}", list(name, catalog))
}

/// The tools as lines of the system prompt; what finds no room is counted.
pub(super) fn commands(name: &str, catalog: &Catalog) -> Vec<String> {
    let help = format!("{name} TOOL --help — how a tool is called");
    let (mut lines, mut bytes) = (vec![help], 0);
    for tool in catalog.tools() {
        let line = format!("{name} {}", line(tool));
        bytes += line.len();
        // One line is kept for what is left out.
        if lines.len() + 1 == MOST_COMMANDS || bytes > COMMAND_BYTES - 256 {
            let more = catalog.tools().count() - (lines.len() - 1);
            lines.push(format!("{name} --help — lists {more} more tools"));
            break;
        }
        lines.push(line);
    }
    lines
}

/// `TOOL — what it does`.
fn line(tool: &Listed) -> String {
    match shortened(tool.description.lines().next().unwrap_or_default(), FIRST_LINE) {
        it if it.is_empty() => tool.name.clone(),
        it => format!("{} — {it}", tool.name),
    }
}

/// `--key VALUE`.
fn head(schema: Schema<'_>, key: &str, property: &Value) -> String {
    let types = schema.types(property);
    let key: String = key.chars().filter(|it| !it.is_control()).collect();
    match types.as_slice() {
        [Type::Boolean] | [Type::Boolean, Type::Null] | [Type::Null, Type::Boolean] => {
            format!("--[no-]{key}")
        }
        it if it.contains(&Type::Array) => format!("--{key} {}…", value_word(schema, property)),
        _ => format!("--{key} {}", value_word(schema, property)),
    }
}

/// What stands for the value of an argument.
fn value_word(schema: Schema<'_>, property: &Value) -> String {
    let types = schema.types(property);
    if types.contains(&Type::Array) {
        let items = schema.items(property).map(|it| schema.types(it)).unwrap_or_default();
        return words(&items);
    }
    words(&types)
}

fn words(types: &[Type]) -> String {
    let words: Vec<&str> = types.iter().map(|it| it.placeholder()).collect();
    if words.is_empty() { "VALUE".to_owned() } else { words.join("|") }
}

/// All else that the schema says of an argument, on one line.
fn notes(schema: Schema<'_>, property: &Value, is_required: bool) -> String {
    let mut notes = Vec::new();
    if is_required {
        notes.push("required".to_owned());
    }
    if let Some(default) = schema.default(property) {
        notes.push(format!("default {}", shortened(&default.to_string(), FIRST_LINE)));
    }
    let (types, allowed) = (schema.types(property), schema.allowed(property));
    if !allowed.is_empty() {
        notes.push(format!("one of {}", values(&allowed, ", ")));
    } else if types.contains(&Type::Array) {
        notes.push("repeat it, or a JSON array".to_owned());
    }
    if types.iter().any(|it| matches!(it, Type::Array | Type::Object)) {
        let form = form(schema, property, 0);
        if form.contains('{') {
            notes.push(format!("form {}", shortened(&form, LONGEST_FORM)));
        }
    }
    let description = shortened(schema.description(property), LONGEST_NOTE);
    if !description.is_empty() {
        notes.push(description);
    }
    notes.join("; ")
}

/// What a value looks like: `{name: string, note?: string}[]`.
fn form(schema: Schema<'_>, of: &Value, depth: u32) -> String {
    let allowed = schema.allowed(of);
    if !allowed.is_empty() {
        return values(&allowed, "|");
    }
    let types = schema.types(of);
    if types.is_empty() || depth == DEEPEST {
        return "any".to_owned();
    }
    let forms = types.iter().map(|it| match it {
        Type::Array => {
            let items = schema.items(of).map(|it| form(schema, it, depth + 1));
            format!("{}[]", items.unwrap_or_else(|| "any".to_owned()))
        }
        Type::Object => fields(schema, of, depth),
        it => it.name().to_owned(),
    });
    forms.collect::<Vec<_>>().join("|")
}

fn fields(schema: Schema<'_>, of: &Value, depth: u32) -> String {
    let required = schema.required(of);
    let mut text = String::new();
    for (name, property) in schema.properties(of) {
        // What would be cut anyhow need not be made.
        if text.len() > LONGEST_FORM {
            break;
        }
        let mark = if required.contains(&name) { "" } else { "?" };
        let separator = if text.is_empty() { "" } else { ", " };
        text.push_str(&format!("{separator}{name}{mark}: {}", form(schema, property, depth + 1)));
    }
    if text.is_empty() { "object".to_owned() } else { format!("{{{text}}}") }
}

fn values(values: &[&Value], separator: &str) -> String {
    let mut told: Vec<String> =
        values.iter().take(MOST_VALUES).map(|it| shortened(&as_word(it), FIRST_LINE)).collect();
    if values.len() > MOST_VALUES {
        told.push("…".to_owned());
    }
    told.join(separator)
}

/// On one line, and no longer than that.
fn shortened(text: &str, most: usize) -> String {
    let text = up_to(text, 8 * most).split(|it: char| it.is_whitespace() || it.is_control());
    let text = text.filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ");
    let cut = up_to(&text, most);
    if cut.len() < text.len() { format!("{cut}…") } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::catalog::tests::catalog;
    use super::*;

    fn two() -> Catalog {
        catalog(json!([
            {"name": "echo", "description": "Says it again\nMore of it", "inputSchema": {
                "type": "object",
                "properties": {
                    "message": {"type": "string", "description": "What\n to say"},
                    "times": {"type": "integer", "default": 1},
                    "loud": {"type": "boolean"},
                    "voice": {"enum": ["high", "low"]},
                },
                "required": ["message"],
                "additionalProperties": false,
            }},
            {"name": "add", "inputSchema": {
                "type": "object",
                "properties": {"entities": {"type": "array", "items": {"$ref": "#/$defs/e"}}},
                "required": ["entities"],
                "$defs": {"e": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "notes": {"type": "array", "items": {"type": "string"}},
                        "of": {"$ref": "#/$defs/e"},
                    },
                    "required": ["name"],
                }},
            }},
        ]))
    }

    #[track_caller]
    fn check(name: &str, want: &str) {
        let catalog = two();
        assert_eq!(catalog.tool(name).map(|it| tool("srv", it)).unwrap_or_default(), want);
    }

    #[test]
    fn a_server_is_its_tools_a_line_each() {
        let usage = "usage: srv TOOL [--KEY VALUE]…\n       srv TOOL --help\n\n";
        let lines = "  add\n  echo — Says it again\n";
        assert_eq!(list("srv", &two()), format!("{usage}{lines}"));
        let unknown = unknown("srv", "ecko", &two());
        let first = "srv has no tool `ecko`; did you mean `echo`?\n";
        assert_eq!(unknown, format!("{first}{usage}{lines}"));
        let nothing = list("srv", &Catalog::default());
        assert_eq!(nothing, format!("{usage}  The server lists no tool.\n"));
    }

    #[test]
    fn a_tool_is_told_from_its_schema() {
        check(
            "echo",
            "usage: srv echo --message STRING [--KEY VALUE]…\n       \
             srv echo '{…}'   the same as a JSON object; with `-` in its place it comes on \
             standard input\n\n\
             Says it again\nMore of it\n\n  \
             --message STRING  required; What to say\n  \
             --[no-]loud\n  \
             --times INTEGER   default 1\n  \
             --voice VALUE     one of high, low\n",
        );
    }

    #[test]
    fn the_form_of_what_is_nested_is_told_as_far_as_it_fits() {
        let catalog = two();
        let text = catalog.tool("add").map(|it| tool("srv", it)).unwrap_or_default();
        let line = "  --entities JSON…  required; repeat it, or a JSON array; \
                    form {name: string, notes?: string[], of?: {name: string";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("of?: any"), "{text}");
        assert!(text.len() < 1_500, "{text}");
    }

    #[test]
    fn help_of_a_hostile_schema_is_bounded() {
        let wound = json!({"type": "object", "properties": {
            "a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"type": "array", "items": {"$ref": "#"}},
            "d": {"enum": (0..10_000).collect::<Vec<_>>(), "description": "x".repeat(100_000)},
        }});
        let catalog = catalog(json!([{"name": "t", "inputSchema": wound}]));
        let text = catalog.tool("t").map(|it| tool("srv", it)).unwrap_or_default();
        assert!(text.len() < 8_000, "{} bytes", text.len());
    }

    #[test]
    fn the_prompt_holds_some_lines_and_says_how_many_more_there_are() {
        let first = "srv TOOL --help — how a tool is called";
        assert_eq!(commands("srv", &two()), [first, "srv add", "srv echo — Says it again"]);
        let many: Vec<Value> = (100..200).map(|it| json!({"name": format!("t{it}")})).collect();
        let lines = commands("srv", &catalog(json!(many)));
        assert_eq!(lines.len(), 40);
        assert_eq!(lines.last().map(String::as_str), Some("srv --help — lists 62 more tools"));
        let long = "é".repeat(400);
        let long = (0..100).map(|it| json!({"name": format!("t{it}"), "description": long}));
        let lines = commands("srv", &catalog(json!(long.collect::<Vec<_>>())));
        assert!(lines.iter().map(String::len).sum::<usize>() <= 4 * 1024, "{}", lines.len());
    }
}
