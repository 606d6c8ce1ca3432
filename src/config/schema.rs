//! The schema table: every field of `config.json5`, its type, its default and
//! whether this version builds it. The one source of the type check,
//! did-you-mean, the defaults, and of the list of what is refused. An issue
//! that builds a field changes its row here and nowhere else.

/// One field of an object.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its key.
    pub(crate) name: &'static str,
    /// What it must look like.
    pub(crate) shape: Shape,
    /// Whether the object is useless without it.
    pub(crate) required: bool,
    /// What stands for it when it is absent, as JSON.
    pub(crate) default: Option<&'static str>,
    /// How much of it this version builds.
    pub(crate) support: Support,
}

/// What a value must look like.
#[derive(Debug)]
pub(crate) enum Shape {
    /// An object with these fields.
    Object(&'static [Field]),
    /// An object with keys of the person's own choice.
    Map(Names, &'static Shape),
    /// The same with at least one entry.
    FilledMap(Names, &'static Shape),
    /// An array.
    List(&'static Shape),
    /// A string that is not empty.
    Text,
    /// Any string.
    AnyText,
    /// `true` or `false`.
    Flag,
    /// A whole number between two bounds, both allowed.
    Integer(i64, i64),
    /// A number above the first bound and at most the second.
    Number(f64, f64),
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// The first of these whose JSON type fits.
    Either(&'static [Shape]),
    /// An object that is passed on unread.
    Free,
}

/// Which keys a map may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Any key that is not empty.
    Any,
    /// `[a-z0-9][a-z0-9_-]{0,39}`: it becomes a container and a socket path.
    Agent,
    /// The same, and no name of a core tool or of ours.
    Plugin,
    /// Without `/`, which parts it from the model.
    Provider,
    /// Environment variables of a process outside the sandbox.
    Variable,
    /// Environment variables inside, but for those the gateway sets.
    SandboxVariable,
}

/// How much of a field this version builds.
#[derive(Debug)]
pub(crate) enum Support {
    /// All of it.
    Full,
    /// Nothing: its presence is an error.
    Later,
    /// Only these values, as JSON; others that fit the shape are errors.
    Only(&'static [&'static str]),
}

const fn optional(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: false, default: None, support: Support::Full }
}

const fn required(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: true, default: None, support: Support::Full }
}

const fn later(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: false, default: None, support: Support::Later }
}

impl Field {
    const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    const fn only(self, values: &'static [&'static str]) -> Self {
        Self { support: Support::Only(values), ..self }
    }
}

/// Longest time that may be given, in seconds: about four months.
const LONGEST: f64 = 1e7;

const TEXTS: Shape = Shape::Map(Names::Any, &Shape::Text);
const COUNT: Shape = Shape::Integer(0, i64::MAX);
/// Seconds, of which 0 says the same as nothing.
const MOST_SECONDS: Shape =
    Shape::Either(&[Shape::Integer(0, LONGEST as i64), Shape::Number(0.0, LONGEST)]);

/// The whole file.
pub(crate) static ROOT: Shape = Shape::Object(&[
    required("llm", Shape::Object(LLM)),
    optional("plugins", Shape::Map(Names::Plugin, &Shape::Object(PLUGIN))).or("{}"),
    optional("skills", Shape::Map(Names::Plugin, &Shape::Object(SKILL))).or("{}"),
    required("agents", Shape::FilledMap(Names::Agent, &Shape::Object(AGENT))),
    later("guards", Shape::Object(GUARDS)),
    optional("gateway", Shape::Object(GATEWAY)).or("{}"),
]);

const LLM: &[Field] =
    &[required("providers", Shape::FilledMap(Names::Provider, &Shape::Object(PROVIDER)))];

const PROVIDER: &[Field] = &[
    optional("apiKey", Shape::AnyText),
    optional("baseUrl", Shape::Text),
    optional("api", Shape::OneOf(APIS)),
    // -1 says the same as nothing: no limit.
    optional("concurrency", Shape::Integer(-1, 10_000)).or("-1"),
    optional("headers", TEXTS),
    optional("caFile", Shape::Text),
    optional("proxy", Shape::Text),
    optional("timeouts", Shape::Object(TIMEOUTS)),
    optional("models", Shape::Map(Names::Any, &Shape::Object(MODEL_FACTS))),
    optional("cassette", Shape::Text),
    optional("record", Shape::Flag).or("false"),
];

const APIS: &[&str] = &[
    "anthropic-messages",
    "openai-completions",
    "openai-responses",
    "google-generative-ai",
    "replay",
];

const TIMEOUTS: &[Field] = &[
    optional("connectSeconds", Shape::Number(0.0, LONGEST)),
    optional("firstByteSeconds", Shape::Number(0.0, LONGEST)),
    optional("idleSeconds", Shape::Number(0.0, LONGEST)),
];

const MODEL_FACTS: &[Field] = &[
    optional("name", Shape::Text),
    optional("contextWindow", COUNT),
    optional("maxTokens", COUNT),
    optional("reasoning", Shape::Flag),
    optional("input", Shape::List(&Shape::OneOf(&["text", "image"]))),
    optional("cost", Shape::Object(COST)),
    optional("compat", Shape::Object(COMPAT)).or("{}"),
];

const COMPAT: &[Field] = &[optional("textTools", Shape::Flag).or("false")];

const PRICE: Shape = Shape::Either(&[Shape::Integer(0, i64::MAX), Shape::Number(0.0, f64::MAX)]);

// A price that is half known would count the other half as nothing.
const COST: &[Field] = &[
    required("input", PRICE),
    required("output", PRICE),
    optional("cacheRead", PRICE),
    optional("cacheWrite", PRICE),
];

const PLUGIN: &[Field] = &[
    optional("path", Shape::Text),
    optional("command", Shape::List(&Shape::AnyText)),
    optional("builtin", Shape::Text),
    later("url", Shape::Text),
    later("headers", TEXTS),
    optional("env", Shape::Map(Names::Variable, &Shape::AnyText)).or("{}"),
    optional("config", Shape::Free).or("{}"),
    optional("onHookFailure", Shape::OneOf(&["refuse", "allow"])).or("\"refuse\""),
    optional("enabled", Shape::Flag).or("true"),
    // Where it was installed from: for `beige plugins update`, and for a gateway
    // that misses it.
    optional("_source", Shape::Text),
];

const SKILL: &[Field] = &[required("path", Shape::Text)];

const AGENT: &[Field] = &[
    required("model", Shape::Object(MODEL)),
    optional("fallbackModels", Shape::List(&Shape::Object(MODEL))).or("[]"),
    required("tools", Shape::List(&Shape::Text)),
    optional("skills", Shape::List(&Shape::Text)).or("[]"),
    optional("workspaceDir", Shape::Text),
    optional("pluginConfigs", Shape::Map(Names::Any, &Shape::Free)).or("{}"),
    optional("instructions", Shape::Either(&[Shape::AnyText, Shape::Object(FILE)])),
    optional("sandbox", Shape::Object(SANDBOX)).or("{}"),
    optional("limits", Shape::Object(LIMITS)).or("{}"),
    optional("permissions", Shape::Object(PERMISSIONS)).or("{}"),
];

const MODEL: &[Field] = &[
    required("provider", Shape::Text),
    required("model", Shape::Text),
    optional("thinkingLevel", Shape::OneOf(&["off", "minimal", "low", "medium", "high"]))
        .or("\"off\""),
    optional("compactionThreshold", Shape::Integer(1024, i64::MAX)),
];

const FILE: &[Field] = &[required("file", Shape::Text)];

const SANDBOX: &[Field] = &[
    optional("runtime", Shape::OneOf(&["auto", "docker", "podman", "bubblewrap"])).or("\"auto\""),
    optional("image", Shape::Text).or("\"beige-sandbox:latest\""),
    optional("memoryLimit", Shape::Either(&[Shape::Text, Shape::Integer(0, i64::MAX)])),
    optional("cpus", Shape::Number(0.0, 100_000.0)),
    optional("pidsLimit", Shape::Integer(16, 4_194_304)).or("512"),
    optional("network", Shape::Either(&[Shape::OneOf(&["open", "none"]), EGRESS])),
    optional("user", Shape::Text).or("\"host\""),
    optional("readOnlyRoot", Shape::Flag).or("false"),
    optional("extraMounts", TEXTS).or("{}"),
    optional("extraEnv", Shape::Map(Names::SandboxVariable, &Shape::AnyText)).or("{}"),
    later("mask", Shape::List(&Shape::Text)),
];

const EGRESS: Shape = Shape::Object(&[Field {
    name: "allow",
    shape: Shape::List(&Shape::Text),
    required: true,
    default: None,
    support: Support::Later,
}]);

const LIMITS: &[Field] = &[
    optional("maxTurns", Shape::Integer(1, 100_000)).or("200"),
    optional("maxToolOutputBytes", Shape::Integer(1, 64 << 20)).or("50000"),
    optional("maxTurnSeconds", MOST_SECONDS).or("0"),
    optional("maxTurnTokens", COUNT).or("0"),
    optional("maxTurnCostUsd", PRICE).or("0"),
    optional("inactivitySeconds", Shape::Number(0.0, LONGEST)).or("600"),
    optional("execTimeoutSeconds", Shape::Number(0.0, LONGEST)),
];

const PERMISSIONS: &[Field] = &[
    optional("mode", Shape::OneOf(&["auto", "ask", "readonly"])).or("\"auto\"").only(&["\"auto\""]),
    optional("rules", Shape::List(&Shape::Object(RULE))).or("[]").only(&["[]"]),
    later("approvalSeconds", Shape::Number(0.0, LONGEST)),
    later("unattended", Shape::OneOf(&["deny", "allow"])),
];

const RULE: &[Field] = &[
    required("tool", Shape::Text),
    optional("match", Shape::Text),
    required("action", Shape::OneOf(&["allow", "ask", "deny"])),
];

const GUARDS: &[Field] = &[optional("promptLeak", Shape::Flag)];

const GATEWAY: &[Field] = &[
    optional("host", Shape::Text).or("\"127.0.0.1\""),
    // 0 lets the system choose a free one.
    optional("port", Shape::Integer(0, 65_535)).or("7433"),
    optional("auth", Shape::OneOf(&["token", "none"])).or("\"token\""),
    optional("allowedHosts", Shape::List(&Shape::Text)).or("[]"),
    optional("logFile", Shape::Text),
    optional("log", Shape::Object(LOG)).or("{}"),
];

const LOG: &[Field] = &[
    optional("maxSizeBytes", Shape::Integer(1024, 1 << 40)).or("10485760"),
    optional("maxFiles", Shape::Integer(1, 1000)).or("5"),
    optional("level", Shape::OneOf(&["error", "warn", "info", "debug", "trace"])).or("\"info\""),
];

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::Value;

    /// Every field with its key path, in the order of the table.
    fn walk(shape: &'static Shape, path: &str, visit: &mut dyn FnMut(String, &'static Field)) {
        match shape {
            Shape::Object(fields) => {
                for field in *fields {
                    let path = format!("{path}.{}", field.name);
                    let path = path.trim_start_matches('.').to_owned();
                    visit(path.clone(), field);
                    walk(&field.shape, &path, visit);
                }
            }
            Shape::Map(_, of) | Shape::FilledMap(_, of) => walk(of, &format!("{path}.*"), visit),
            Shape::List(of) => walk(of, &format!("{path}[]"), visit),
            Shape::Either(shapes) => shapes.iter().for_each(|it| walk(it, path, visit)),
            _ => {}
        }
    }

    #[test]
    fn every_default_and_every_supported_value_is_json() {
        walk(&ROOT, "", &mut |path, field| {
            let supported = match field.support {
                Support::Only(values) => values,
                _ => &[],
            };
            for json in field.default.iter().chain(supported) {
                let value: Value = serde_json::from_str(json).unwrap_or(Value::Null);
                assert_eq!(value.to_string(), **json, "{path}");
            }
        });
    }

    #[test]
    fn what_this_version_does_not_build_is_listed_here() {
        let mut unbuilt = Vec::new();
        walk(&ROOT, "", &mut |path, field| match field.support {
            Support::Full => {}
            Support::Later => unbuilt.push(path),
            Support::Only(values) => unbuilt.push(format!("{path} but {}", values.join(" "))),
        });
        let expected = [
            "plugins.*.url",
            "plugins.*.headers",
            "agents.*.sandbox.network.allow",
            "agents.*.sandbox.mask",
            "agents.*.permissions.mode but \"auto\"",
            "agents.*.permissions.rules but []",
            "agents.*.permissions.approvalSeconds",
            "agents.*.permissions.unattended",
            "guards",
        ];
        assert_eq!(unbuilt, expected);
    }

    #[test]
    fn the_guide_names_every_field() {
        let guide = include_str!("../../docs/configuration.md");
        walk(&ROOT, "", &mut |path, field| {
            assert!(guide.contains(field.name), "docs/configuration.md does not name {path}");
        });
    }
}
