//! Tests of the registry, and the scratch folder that all plugin tests share.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::*;
use crate::config::{
    Agent, Limits, ModelChoice, ModelRef, RuntimeChoice, SandboxConfig, ThinkingLevel, UserChoice,
};

/// A folder of one test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("beige-plugin-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        assert!(fs::create_dir(&path).is_ok(), "make {}", path.display());
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, parents included, and gives its path.
    #[track_caller]
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let made = path.parent().map(fs::create_dir_all);
        assert!(matches!(made, Some(Ok(()))) && fs::write(&path, text).is_ok(), "{name}");
        path
    }

    #[track_caller]
    pub(crate) fn write_program(&self, name: &str, text: &str) {
        let path = self.write(name, text);
        assert!(fs::set_permissions(path, Permissions::from_mode(0o755)).is_ok(), "{name}");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn plugin(scratch: &Scratch, name: &str, manifest: &Value) -> config::Plugin {
    scratch.write(&format!("{name}/plugin.json"), &manifest.to_string());
    scratch.write_program(&format!("{name}/tool"), "#!/bin/sh\n");
    config::Plugin {
        name: name.into(),
        source: PluginSource::Folder(scratch.path().join(name)),
        env: BTreeMap::new(),
        config: json!({}),
        on_hook_failure: OnHookFailure::Refuse,
        installed_from: None,
    }
}

pub(crate) fn echo(scratch: &Scratch) -> config::Plugin {
    let manifest = json!({
        "name": "echo", "description": "Echo test plugin",
        "commands": ["echo <text>", "echo ctx"],
        "provides": {"tools": ["echo", "echo.raw"]},
        "tools": [{"name": "echo", "run": ["./tool"]},
                  {"name": "echo.raw", "description": "Raw", "run": ["./tool", "raw"]}],
        "configSchema": {"properties": {"times": {"type": "integer", "maximum": 9}}},
        "defaultConfig": {"times": 1, "nested": {"kept": true}},
    });
    plugin(scratch, "echo", &manifest)
}

pub(crate) fn agent(tools: &[&str], plugin_configs: Value) -> Agent {
    let configs = plugin_configs.as_object().cloned().unwrap_or_default();
    Agent {
        name: "a".into(),
        primary: ModelChoice {
            model: ModelRef { provider: "p".into(), model: "m".into() },
            thinking: ThinkingLevel::Off,
            compaction_threshold: None,
        },
        fallbacks: Vec::new(),
        tools: tools.iter().map(|it| (*it).to_owned()).collect(),
        skills: Vec::new(),
        workspace: "/w".into(),
        plugin_configs: configs.into_iter().collect(),
        instructions: None,
        sandbox: SandboxConfig {
            runtime: RuntimeChoice::Auto,
            image: String::new(),
            memory_bytes: 0,
            cpus: None,
            pids: 0,
            network: None,
            user: UserChoice::Host,
            read_only_root: false,
            mounts: Vec::new(),
            env: BTreeMap::new(),
        },
        limits: Limits {
            max_turns: 1,
            max_turn_time: None,
            max_turn_tokens: None,
            max_turn_cost: None,
            max_tool_output_bytes: 1,
            exec_timeout: Duration::ZERO,
            http_exec_timeout: Duration::ZERO,
            inactivity: Duration::from_secs(600),
        },
    }
}

fn load(plugins: &[config::Plugin]) -> Result<Registry> {
    Registry::load(plugins, &BTreeMap::new(), &Home::new("/home/beige"))
}

pub(crate) fn lines<T>(result: Result<T>) -> Vec<String> {
    let text = result.err().map(|it| it.to_string()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[track_caller]
fn check_agent(tools: &[&str], plugin_configs: Value, want: &[&str]) {
    let scratch = Scratch::new();
    let agents = BTreeMap::from([("a".to_owned(), agent(tools, plugin_configs))]);
    let checked = Registry::load(&[echo(&scratch)], &agents, &Home::new("/home/beige"));
    assert_eq!(lines(checked), want);
}

#[test]
fn a_tool_carries_what_manifest_and_entry_say() -> Result<()> {
    let scratch = Scratch::new();
    let mut entry = echo(&scratch);
    entry.env.insert("TOKEN".into(), "t".into());
    entry.config = json!({"times": 2});
    let registry = load(&[entry])?;
    let tool = registry.tool("echo.raw");
    let run = tool.map(|it| match &it.way {
        Way::Run(run) => run.clone(),
        Way::Server => panic!("it is no server's"),
    });
    let told = run.as_ref().map(|it| &it.args[..]);
    assert_eq!((tool.map(|it| &*it.plugin), told), (Some("echo"), Some(&["raw".to_owned()][..])));
    let env = run.as_ref().map(|it| &it.env);
    assert_eq!(env.and_then(|it| it.get("TOKEN")).map(String::as_str), Some("t"));
    assert_eq!(tool.map(|it| it.timeout), Some(Duration::from_secs(300)));
    assert_eq!(
        tool.map(|it| it.config_for(Some(&json!({"nested": {"more": 1}})))),
        Some(json!({"times": 2, "nested": {"kept": true, "more": 1}}))
    );
    assert_eq!(registry.tools().map(|it| &*it.name).collect::<Vec<_>>(), ["echo", "echo.raw"]);
    assert_eq!(
        registry.packages(),
        BTreeMap::from([("echo".to_owned(), "/home/beige/data/packages/echo".into())])
    );
    Ok(())
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let scratch = Scratch::new();
    let mut broken = echo(&scratch);
    broken.config = json!({"times": 10});
    broken.env.insert("BEIGE_CALL".into(), String::new());
    let source = PluginSource::Folder("/nowhere".into());
    let missing = config::Plugin { name: "gone".into(), source, ..echo(&scratch) };
    let renamed = config::Plugin { name: "ecko".into(), ..echo(&scratch) };
    assert_eq!(
        lines(load(&[broken, missing, renamed])),
        [
            "plugins.echo: env.BEIGE_CALL: names that begin with BEIGE_ are beige's own",
            "plugins.echo: config.times: must be at most 9",
            "plugins.gone.path: read /nowhere/plugin.json: No such file or directory (os error 2)",
            "plugins.ecko: plugin.json calls itself `echo`; the entry must have the same name",
        ]
    );
}

#[test]
fn what_was_installed_and_is_not_there_is_left_out_with_its_tools() {
    let scratch = Scratch::new();
    let source = PluginSource::Folder("/nowhere/gone".into());
    let from = Some("npm:gone".to_owned());
    let entry =
        config::Plugin { name: "gone".into(), source, installed_from: from, ..echo(&scratch) };
    let agents =
        BTreeMap::from([("a".to_owned(), agent(&["gone", "gone.x"], json!({"gone": {}})))]);
    let registry = Registry::load(&[entry], &agents, &Home::new("/home/beige"));
    let warnings = registry.map(|it| (it.warnings().to_vec(), it.tools().count()));
    let want = "plugins.gone.path: it is not installed: a gateway installs it from npm:gone when \
                it starts, and `beige plugins update gone` does now";
    assert_eq!(warnings.map_err(|it| it.to_string()), Ok((vec![want.to_owned()], 0)));
}

#[test]
fn an_unknown_key_is_a_warning_with_the_nearest_known_one() -> Result<()> {
    let scratch = Scratch::new();
    let manifest =
        json!({"name": "p", "descripton": "x", "tools": [{"name": "p", "run": ["./tool"]}]});
    let registry = load(&[plugin(&scratch, "p", &manifest)])?;
    assert_eq!(
        registry.warnings(),
        [
            "plugins.p.path: plugin.json: descripton: unknown key, ignored; did you mean `description`?"
        ]
    );
    Ok(())
}

#[test]
fn an_agents_tools_must_be_registered() {
    check_agent(&["echo", "echo.raw"], json!({}), &[]);
    check_agent(
        &["ecoh.raw", "read"],
        json!({}),
        &[
            "agents.a.tools[0]: `ecoh.raw` is not a registered tool; did you mean `echo.raw`?; \
             registered: echo, echo.raw",
            "agents.a.tools[1]: `read` is a core tool, which every agent has; leave it out",
        ],
    );
}

#[test]
fn an_agents_plugin_configs_must_name_plugins_and_suit_them() {
    check_agent(&[], json!({"echo": {"times": 3}}), &[]);
    check_agent(
        &[],
        json!({"echo": {"times": 10}, "git": {}}),
        &[
            "agents.a.pluginConfigs.echo: config.times: must be at most 9",
            "agents.a.pluginConfigs.git: `git` is not a plugin; registered: echo",
        ],
    );
}

#[test]
fn the_context_text_is_that_of_the_recorded_gateway() -> Result<()> {
    let scratch = Scratch::new();
    let registry = load(&[echo(&scratch)])?;
    let text = |tools: &[&str]| {
        let tools: Vec<String> = tools.iter().map(|it| (*it).to_owned()).collect();
        registry.context_text(&tools, &|_| None)
    };
    assert_eq!(
        text(&["echo"]),
        "## Available Tools\n\n### echo\nEcho test plugin\nCommands:\n  echo <text>\n  echo ctx\n"
    );
    assert_eq!(
        text(&["echo.raw", "echo"]),
        "## Available Tools\n\n### echo.raw\nRaw\n\n### echo\nEcho test plugin\nCommands:\n  \
         echo <text>\n  echo ctx\n"
    );
    assert_eq!(text(&["none"]), "");
    Ok(())
}

#[test]
fn packages_are_made_for_every_plugin() -> Result<()> {
    let scratch = Scratch::new();
    let home = Home::new(scratch.path().join("home"));
    let registry = Registry::load(&[echo(&scratch)], &BTreeMap::new(), &home)?;
    registry.refresh_packages()?;
    assert!(home.package("echo").join("plugin.json").is_file());
    Ok(())
}
