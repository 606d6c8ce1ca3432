//! The tools of a server, from the pages of `tools/list`. Pure. However much a
//! server lists, what is kept of it is bounded; what is left out is counted.
//!
//! Source: MCP 2025-06-18, "Tools"; 2025-11-25, "Tasks".

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Most pages of one list.
const MOST_PAGES: u32 = 100;

/// Most tools.
const MOST_TOOLS: usize = 1_000;

/// Most bytes of all that is kept, schemas as JSON.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// Longest schema of one tool, as JSON.
const LONGEST_SCHEMA: usize = 256 * 1024;

/// Longest name, in bytes.
const LONGEST_NAME: usize = 256;

/// Longest description, in bytes.
const LONGEST_DESCRIPTION: usize = 16 * 1024;

/// The tools of a server, by name.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Catalog {
    tools: BTreeMap<String, Listed>,
    /// How many were left out.
    pub(super) left_out: usize,
}

/// A tool as the server describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    pub(super) name: String,
    /// May have many lines, and no control characters else.
    pub(super) description: String,
    /// Of its arguments.
    pub(super) schema: Value,
    /// Whether it works only as a task: begun first, its result fetched then.
    pub(super) is_task: bool,
}

impl Catalog {
    /// In the order of their names, so that it never changes by itself.
    pub(super) fn tools(&self) -> impl Iterator<Item = &Listed> {
        self.tools.values()
    }

    pub(super) fn tool(&self, name: &str) -> Option<&Listed> {
        self.tools.get(name)
    }
}

/// A list that is being asked for.
#[derive(Debug, Default)]
pub(super) struct Pages {
    catalog: Catalog,
    count: u32,
    bytes: usize,
}

impl Pages {
    /// The next page, and where the one after it begins; the error says why it
    /// is none.
    pub(super) fn take(&mut self, page: &Value) -> Result<Option<String>, String> {
        let Some(tools) = page["tools"].as_array() else {
            return Err("answers `tools/list` without `tools`, an array".to_owned());
        };
        self.count += 1;
        tools.iter().for_each(|it| self.tool(it));
        let next = page["nextCursor"].as_str().filter(|it| !it.is_empty());
        Ok(next.filter(|_| self.count < MOST_PAGES && self.has_room()).map(str::to_owned))
    }

    /// All of it.
    pub(super) fn end(self) -> Catalog {
        self.catalog
    }

    fn has_room(&self) -> bool {
        self.catalog.tools.len() < MOST_TOOLS && self.bytes < MOST_BYTES
    }

    fn tool(&mut self, tool: &Value) {
        let taken = listed(tool).filter(|it| !self.catalog.tools.contains_key(&it.name));
        let Some(tool) = taken.filter(|_| self.has_room()) else {
            self.catalog.left_out += 1;
            return;
        };
        let schema = tool.schema.to_string().len();
        let bytes = tool.name.len() + tool.description.len() + schema;
        if schema > LONGEST_SCHEMA || self.bytes + bytes > MOST_BYTES {
            self.catalog.left_out += 1;
            return;
        }
        self.bytes += bytes;
        self.catalog.tools.insert(tool.name.clone(), tool);
    }
}

/// `None` for what nobody could call by its name.
fn listed(tool: &Value) -> Option<Listed> {
    let name = tool["name"].as_str()?;
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return None;
    }
    let description = tool["description"].as_str().or(tool["title"].as_str()).unwrap_or_default();
    let schema = match &tool["inputSchema"] {
        it if it.is_object() => it.clone(),
        _ => json!({"type": "object"}),
    };
    let description = plain(up_to(description, LONGEST_DESCRIPTION));
    let is_task = tool["execution"]["taskSupport"] == "required";
    Some(Listed { name: name.to_owned(), description, schema, is_task })
}

/// Without what could drive a terminal.
fn plain(text: &str) -> String {
    let text = text.trim().replace("\r\n", "\n");
    text.chars().filter(|it| *it == '\n' || !it.is_control()).collect()
}

/// At most so many bytes of its beginning.
pub(super) fn up_to(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Of a list of one page.
    pub(in crate::plugin::mcp) fn catalog(tools: Value) -> Catalog {
        let mut pages = Pages::default();
        assert_eq!(pages.take(&json!({"tools": tools})), Ok(None));
        pages.end()
    }

    #[test]
    fn pages_follow_each_other_until_there_is_none() {
        let mut pages = Pages::default();
        let page = |name: &str, next: Value| json!({"tools": [{"name": name}], "nextCursor": next});
        assert_eq!(pages.take(&page("b", json!("2"))), Ok(Some("2".into())));
        assert_eq!(pages.take(&page("a", json!("3"))), Ok(Some("3".into())));
        assert_eq!(pages.take(&page("b", Value::Null)), Ok(None));
        let catalog = pages.end();
        let names: Vec<&str> = catalog.tools().map(|it| it.name.as_str()).collect();
        assert_eq!((names, catalog.left_out), (vec!["a", "b"], 1));
    }

    #[test]
    fn a_list_without_end_has_one() {
        let mut pages = Pages::default();
        let asked = (0..).take_while(|_| {
            pages.take(&json!({"tools": [], "nextCursor": "again"})) == Ok(Some("again".into()))
        });
        assert_eq!(asked.count(), 99);
        let many: Vec<Value> = (0..1_005).map(|it| json!({"name": format!("t{it}")})).collect();
        let mut pages = Pages::default();
        assert_eq!(pages.take(&json!({"tools": many, "nextCursor": "more"})), Ok(None));
        assert_eq!((pages.catalog.tools.len(), pages.catalog.left_out), (1_000, 5));
        let sized = |size| json!({"type": "object", "title": "x".repeat(size)});
        let tool = |it: i32, size| json!({"name": format!("t{it}"), "inputSchema": sized(size)});
        let mut large: Vec<Value> = (0..20).map(|it| tool(it, 250 * 1024)).collect();
        large.push(tool(20, 260 * 1024));
        let it = catalog(json!(large));
        assert_eq!((it.tools.len(), it.left_out), (16, 5));
    }

    #[test]
    fn odd_tools_are_left_out_and_odd_lists_refused() {
        let it = catalog(json!([7, {}, {"name": ""}, {"name": "a\nb"}, {"name": "ok",
            "description": " One\u{1b}[31m\r\nTwo ", "inputSchema": "none"}]));
        let ok = Listed {
            name: "ok".into(),
            description: "One[31m\nTwo".into(),
            schema: json!({"type": "object"}),
            is_task: false,
        };
        assert_eq!((it.tools().collect::<Vec<_>>(), it.left_out), (vec![&ok], 4));
        for odd in [Value::Null, json!({}), json!({"tools": 7})] {
            assert!(Pages::default().take(&odd).is_err());
        }
    }
}
