//! The greeting between the gateway and a plugin: what we say, and what a
//! plugin says of itself. Pure. One that does not know beige is a plain MCP
//! server, with tools of its own names.
//!
//! Source: MCP 2025-06-18, "Lifecycle"; plugins.md, "Protocol".

use serde_json::{Value, json};

/// The version of MCP that we speak. A server may answer with another one; of
/// what beige uses, none has changed.
pub(in crate::plugin) const PROTOCOL: &str = "2025-06-18";

/// What we send with `initialize`.
pub(super) fn ours() -> Value {
    json!({
        "protocolVersion": PROTOCOL,
        "clientInfo": {"name": "beige", "version": env!("CARGO_PKG_VERSION")},
        "capabilities": {"experimental": {"beige": {"version": 1}}},
    })
}

/// What a plugin says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Greeting {
    /// The name of its program, for people.
    pub server: String,
    /// What it gives to beige; `None` for a plain MCP server.
    pub beige: Option<Announced>,
}

/// What a plugin that knows beige gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Announced {
    /// Its tools.
    pub tools: Vec<AnnouncedTool>,
    /// Hooks that it wants to be called for.
    pub hooks: Vec<String>,
    /// Its channel, if it is one.
    pub channel: Option<AnnouncedChannel>,
    /// The names of its skills.
    pub skills: Vec<String>,
}

/// A channel as the plugin that is one describes it; it has the plugin's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedChannel {
    /// Whether messages can be sent by it at any time.
    pub supports_messaging: bool,
}

/// A tool as the plugin that gives it describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedTool {
    /// The plugin's name, or `plugin.part`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// How it is called, a line each.
    pub commands: Vec<String>,
}

impl Greeting {
    /// Reads the answer to `initialize`; every field may be missing.
    pub(super) fn read(answer: &Value) -> Self {
        let server = text(&answer["serverInfo"]["name"]);
        let beige = &answer["capabilities"]["experimental"]["beige"];
        let beige = beige.is_object().then(|| Announced {
            tools: list(&beige["tools"]).map(tool).filter(|it| !it.name.is_empty()).collect(),
            hooks: texts(&beige["hooks"]),
            channel: beige["channel"].as_object().map(|it| AnnouncedChannel {
                supports_messaging: it.get("supportsMessaging") == Some(&Value::Bool(true)),
            }),
            skills: list(&beige["skills"]).map(|it| text(&it["name"])).collect(),
        });
        Self { server, beige }
    }
}

fn tool(value: &Value) -> AnnouncedTool {
    AnnouncedTool {
        name: text(&value["name"]),
        description: text(&value["description"]),
        commands: texts(&value["commands"]),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: Value, want: &Greeting) {
        assert_eq!(Greeting::read(&answer), *want);
    }

    #[test]
    fn who_knows_beige_is_told_from_who_does_not() {
        let plain = Greeting { server: "everything".into(), beige: None };
        check(json!({"serverInfo": {"name": "everything"}, "capabilities": {"tools": {}}}), &plain);
        let announced = Announced {
            tools: vec![AnnouncedTool {
                name: "kv".into(),
                description: "Keeps values".into(),
                commands: vec!["kv get KEY".into()],
            }],
            hooks: vec!["prePrompt".into()],
            channel: Some(AnnouncedChannel { supports_messaging: true }),
            skills: vec!["notes".into()],
        };
        let beige = json!({
            "version": 1,
            "tools": [
                {"name": "kv", "description": "Keeps values", "commands": ["kv get KEY", 7]},
                {"description": "no name"},
            ],
            "hooks": ["prePrompt", null],
            "channel": {"supportsMessaging": true},
            "skills": [{"name": "notes", "path": "./notes", "description": "How to keep notes"}],
        });
        check(
            json!({"capabilities": {"experimental": {"beige": beige}}}),
            &Greeting { server: String::new(), beige: Some(announced) },
        );
    }

    #[test]
    fn any_answer_is_a_greeting() {
        for answer in [Value::Null, json!([]), json!({"capabilities": 7})] {
            check(answer, &Greeting::default());
        }
        let bare = json!({"capabilities": {"experimental": {"beige": {}}}});
        check(bare, &Greeting { beige: Some(Announced::default()), ..Greeting::default() });
    }
}
