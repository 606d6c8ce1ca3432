//! What a model is told before anyone speaks: who it is, where its tools work,
//! which there are, which skills it has. Pure. What changes most stands last, so
//! that a provider's cache holds the rest: the date, to the day, and what is for
//! one turn alone. Nothing of the host is in it.

use serde_json::{Value, json};

use super::origin;
use crate::clock::Time;
use crate::provider::ToolDefinition;

/// Most of a workspace's AGENTS.md that is told, in bytes.
pub const LARGEST_AGENTS_MD: usize = 64 * 1024;

/// What the system prompt is made of.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The plugin tools, as the plugin registry describes them; may be empty.
    pub plugin_tools: &'a str,
    /// The skills, as the plugin room describes them; may be empty.
    pub skills: &'a str,
    /// The workspace's AGENTS.md.
    pub agents_md: Option<&'a str>,
    /// The agent's `instructions`.
    pub instructions: Option<&'a str>,
    /// The session's key: it says where the conversation takes place.
    pub session_key: &'a str,
    /// Only its day is told.
    pub today: Time,
    /// What plugins add for this turn; may be empty.
    pub context: &'a str,
}

impl Prompt<'_> {
    /// The system prompt.
    pub fn text(&self) -> String {
        let mut parts = vec![identity(self.agent), SANDBOX.to_owned(), core_tools_text()];
        if !self.plugin_tools.is_empty() {
            parts.push(format!("{}\n{PLUGIN_TOOLS}", self.plugin_tools.trim_end()));
        }
        if !self.skills.is_empty() {
            parts.push(self.skills.trim_end().to_owned());
        }
        if let Some(notes) = self.agents_md.filter(|it| !it.trim().is_empty()) {
            parts.push(format!("## AGENTS.md of your workspace\n\n{}", bounded(notes)));
        }
        if let Some(instructions) = self.instructions.filter(|it| !it.trim().is_empty()) {
            parts.push(format!("## Instructions\n\n{}", instructions.trim_end()));
        }
        parts.extend(origin::section(self.session_key));
        parts.push(format!("Current date: {:.10}", self.today.to_string()));
        if !self.context.trim().is_empty() {
            parts.push(self.context.trim_end().to_owned());
        }
        parts.join("\n\n")
    }
}

/// The four core tools.
pub fn core_tools() -> Vec<ToolDefinition> {
    vec![
        definition(
            "read",
            READ,
            &["path"],
            json!({
                "path": {"type": "string", "description": "Path of the file or folder, absolute or below /workspace"},
                "offset": {"type": "integer", "minimum": 1, "description": "First line to read, counted from 1"},
                "limit": {"type": "integer", "minimum": 1, "description": "Number of lines to read"}
            }),
        ),
        definition(
            "write",
            WRITE,
            &["path", "content"],
            json!({
                "path": {"type": "string", "description": "Path of the file, absolute or below /workspace"},
                "content": {"type": "string", "description": "The whole content of the file"}
            }),
        ),
        definition(
            "patch",
            PATCH,
            &["path", "oldText", "newText"],
            json!({
                "path": {"type": "string", "description": "Path of the file, absolute or below /workspace"},
                "oldText": {"type": "string", "description": "Text that stands in the file exactly once"},
                "newText": {"type": "string", "description": "Text to put in its place"}
            }),
        ),
        definition(
            "exec",
            EXEC,
            &["command"],
            json!({
                "command": {"type": "string", "description": "Command line, run by /bin/sh -c in /workspace"},
                "timeout": {"type": "number", "description": "Time limit in seconds"}
            }),
        ),
    ]
}

const READ: &str = "Reads a file, lists a folder, or shows an image. At most 2000 lines or 50 KB \
    at a time; offset and limit read on.";
const WRITE: &str = "Writes a file whole, replacing what was there. Missing folders are made.";
const PATCH: &str = "Replaces one text in a file by another. The old text must match exactly and \
    stand in the file only once.";
const EXEC: &str = "Runs a command in the sandbox and returns its exit code and output. Plugin \
    tools are commands too. When the time is up, all that the command started is killed.";

const SANDBOX: &str = "## Sandbox\n\n\
    Everything you run, runs in a sandbox of your own. Its working folder is /workspace: what you \
    keep there stays from one conversation to the next; anything else in the sandbox may be gone \
    at any time. You do not see the machine around it.";

const PLUGIN_TOOLS: &str = "These are commands inside the sandbox: call them through exec, such as \
     `NAME --help`. They are not tools that you can call directly.";

fn identity(agent: &str) -> String {
    format!(
        "You are `{agent}`, an agent of the beige gateway. You work for the person who writes to \
         you, with the tools below. Say plainly what you did and what did not work."
    )
}

fn core_tools_text() -> String {
    let lines = core_tools().into_iter().map(|it| format!("- {}: {}", it.name, it.description));
    format!("## Core tools\n\n{}", lines.collect::<Vec<_>>().join("\n"))
}

fn definition(
    name: &str,
    description: &str,
    required: &[&str],
    properties: Value,
) -> ToolDefinition {
    let parameters = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false
    });
    ToolDefinition { name: name.into(), description: description.into(), parameters }
}

/// The notes up to their bound, cut between characters.
fn bounded(notes: &str) -> String {
    if notes.len() <= LARGEST_AGENTS_MD {
        return notes.trim_end().to_owned();
    }
    let mut end = LARGEST_AGENTS_MD;
    while !notes.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}\n\n(The rest of AGENTS.md is left out: it is too long.)", &notes[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: Prompt<'static> = Prompt {
        agent: "assistant",
        plugin_tools: "",
        skills: "",
        agents_md: None,
        instructions: None,
        session_key: "cli:assistant:1",
        today: Time::from_unix_millis(1_796_012_194_668),
        context: "",
    };

    #[test]
    fn all_parts_stand_in_their_order_and_the_day_last() {
        let text = Prompt {
            plugin_tools: "## Available Tools\n\n### echo\nEcho test plugin\nCommands:\n  echo <text>\n",
            skills: "## Skills\n\n### review\n",
            agents_md: Some("be tidy\n"),
            instructions: Some("be brief\n"),
            session_key: "telegram:42",
            ..BARE
        }
        .text();
        let order = [
            "`assistant`",
            "/workspace",
            "- patch: ",
            "### echo",
            "### review",
            "be tidy",
            "be brief",
            "id: \"42\"",
        ];
        let places: Vec<Option<usize>> = order.iter().map(|it| text.find(it)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
        assert!(text.ends_with("- Chat id: \"42\"\n\nCurrent date: 2026-11-30"), "{text}");
    }

    #[test]
    fn parts_that_are_empty_are_left_out() {
        let text = Prompt { agents_md: Some(" \n"), instructions: Some(""), ..BARE }.text();
        assert_eq!(text, BARE.text());
        assert!(!text.contains("AGENTS.md") && !text.contains("Instructions"));
    }

    #[test]
    fn the_prompt_is_the_same_all_day() {
        let later = Prompt { today: Time::from_unix_millis(1_796_012_194_668 + 3_600_000), ..BARE };
        assert_eq!(later.text(), BARE.text());
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        for shift in 0..3 {
            let notes = format!("{}{}", "x".repeat(shift), "那".repeat(LARGEST_AGENTS_MD / 3 + 2));
            let cut = bounded(&notes);
            assert!(cut.len() < LARGEST_AGENTS_MD + 100 && cut.ends_with("too long.)"));
        }
        assert_eq!(bounded("short\n"), "short");
    }

    #[test]
    fn every_core_tool_describes_its_arguments() {
        let names: Vec<String> = core_tools().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["read", "write", "patch", "exec"]);
        for tool in core_tools() {
            let required = tool.parameters["required"].as_array().cloned().unwrap_or_default();
            let known = |it: &Value| {
                it.as_str().is_some_and(|it| tool.parameters["properties"].get(it).is_some())
            };
            assert!(!required.is_empty() && required.iter().all(known), "{}", tool.name);
        }
    }
}
