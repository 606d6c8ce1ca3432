//! Tests of calls, with real processes.

mod ended;
mod notes;
mod taken;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::plugin::manifest::Way;
use crate::plugin::tests::Scratch;
use crate::worker::Cancel;

/// A tool that runs a script of the shell; the call's arguments are `$1`, ….
fn tool(script: &str) -> Tool {
    Tool {
        name: "p".into(),
        plugin: "p".into(),
        description: String::new(),
        commands: Vec::new(),
        way: Way::Run(Run {
            program: Program::OnPath("sh".into()),
            args: vec!["-c".into(), script.into(), "p".into()],
            flags: None,
            env: BTreeMap::new(),
        }),
        timeout: Duration::from_secs(60),
        folder: std::env::temp_dir(),
        config: Value::Null,
    }
}

/// What it starts.
fn run_of(tool: &mut Tool) -> &mut Run {
    match &mut tool.way {
        Way::Run(run) => run,
        Way::Server => panic!("it is a server's"),
    }
}

fn call(tool: &Tool, call: &RunCall<'_>, asker: Asker<'_>, cap: usize) -> Result<Output> {
    super::call(tool, run_of(&mut tool.clone()), call, asker, cap)
}

fn context() -> Context {
    Context {
        agent_name: "travel".into(),
        session_key: "api:1".into(),
        channel: "api".into(),
        chat_id: Some("1".into()),
        thread_id: None,
        agent_dir: "/h/agents/travel".into(),
        workspace_dir: "/h/agents/travel/workspace".into(),
        cwd: "repos/site".into(),
    }
}

fn run_with(tool: &Tool, args: &[&str], stdin: Option<&str>, cancel: &Cancel) -> Result<Output> {
    let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
    let config = json!({"unit": "C"});
    let request = RunCall {
        args: &args,
        stdin,
        context: context(),
        config: &config,
        redactor: &Redactor::new(),
    };
    call(tool, &request, Asker { cancel, line: None }, MAX_OUTPUT)
}

fn run(tool: &Tool, args: &[&str]) -> Result<Output> {
    run_with(tool, args, None, &Cancel::never())
}

#[track_caller]
fn check(script: &str, exit_code: i32, text: &str) {
    let want = Output { text: text.into(), exit_code, truncated: false };
    assert_eq!(run(&tool(script), &[]).map_err(|it| it.to_string()), Ok(want), "{script}");
}

#[test]
fn output_is_stdout_and_after_a_failure_stderr_too() {
    check("echo out; echo err >&2", 0, "out\n");
    check("printf out; echo err >&2; exit 3", 3, "out\nerr\n");
    check("echo err >&2; exit 1", 1, "err\n");
    check("exit 126", 126, "");
    check("kill -9 $$", 137, "");
    check("true", 0, "");
}

#[test]
fn arguments_arrive_byte_for_byte() -> Result<()> {
    let args = ["a b", "'\"$(id)`\n", "", "--", "-x", "é"];
    let output = run(&tool(r#"printf '<%s>' "$@""#), &args)?;
    assert_eq!(output.text, "<a b><'\"$(id)`\n><><--><-x><é>");
    Ok(())
}

#[test]
fn the_argv_is_that_of_the_manifest_and_then_that_of_the_call() -> Result<()> {
    let mut tool = tool("");
    run_of(&mut tool).program = Program::Inside("/plugins/p/tool".into());
    run_of(&mut tool).args = vec!["fixed".into()];
    let args = ["a".to_owned()];
    let config = json!({});
    let request = RunCall {
        args: &args,
        stdin: None,
        context: context(),
        config: &config,
        redactor: &Redactor::new(),
    };
    let command =
        command(&tool, run_of(&mut tool.clone()), Path::new("/plugins/p/tool"), &request, &[])?;
    assert_eq!(command.get_program(), "/plugins/p/tool");
    assert_eq!(command.get_args().collect::<Vec<_>>(), ["fixed", "a"]);
    assert_eq!(command.get_current_dir(), Some(tool.folder.as_path()));
    Ok(())
}

#[test]
fn the_environment_is_exactly_what_is_promised() -> Result<()> {
    let mut tool = tool("exec env -0");
    run_of(&mut tool).env = BTreeMap::from([
        ("TOKEN".to_owned(), "t".to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ]);
    let output = run(&tool, &[])?;
    let mut env: BTreeMap<&str, &str> =
        output.text.split_terminator('\0').filter_map(|it| it.split_once('=')).collect();
    // Set by some shells for themselves.
    for own in ["PWD", "OLDPWD", "SHLVL", "_"] {
        env.remove(own);
    }
    let whole: Value =
        serde_json::from_str(env.remove("BEIGE_CONTEXT").unwrap_or_default()).unwrap_or_default();
    let path = std::env::var("PATH").unwrap_or_default();
    let home = std::env::var("HOME").ok();
    let zone = std::env::var("TZ").ok();
    let mut want = BTreeMap::from([
        ("PATH", &*path),
        ("TOKEN", "t"),
        ("LANG", "C.UTF-8"),
        ("BEIGE_AGENT_NAME", "travel"),
        ("BEIGE_SESSION_KEY", "api:1"),
        ("BEIGE_CHANNEL", "api"),
        ("BEIGE_CHAT_ID", "1"),
        ("BEIGE_AGENT_DIR", "/h/agents/travel"),
        ("BEIGE_WORKSPACE_DIR", "/h/agents/travel/workspace"),
        ("BEIGE_CWD", "repos/site"),
        ("BEIGE_TOOL", "p"),
    ]);
    want.extend(home.as_deref().map(|it| ("HOME", it)));
    want.extend(zone.as_deref().map(|it| ("TZ", it)));
    assert_eq!(env, want);
    assert_eq!(
        whole,
        json!({"tool": "p", "config": {"unit": "C"}, "agentName": "travel",
               "sessionKey": "api:1", "channel": "api", "chatId": "1",
               "agentDir": "/h/agents/travel",
               "workspaceDir": "/h/agents/travel/workspace", "cwd": "repos/site"})
    );
    Ok(())
}

#[test]
fn a_name_is_looked_up_on_the_calls_path_from_the_plugins_folder() -> Result<()> {
    let scratch = Scratch::new();
    let folder = scratch.path().canonicalize().unwrap_or_default();
    // Neither a folder nor what may not be executed is a program.
    let make = "mkdir -p none/p bin; echo >none/sh; ln -s /bin/sh bin/p; echo ok";
    assert_eq!(run(&Tool { folder: folder.clone(), ..tool(make) }, &[])?.text, "ok\n");
    let env = BTreeMap::from([("PATH".to_owned(), "gone:none:bin".to_owned())]);
    let program = Program::OnPath("p".into());
    // Its own name is the one in the manifest.
    let args = vec!["-c".to_owned(), "echo $0".to_owned()];
    let way = Way::Run(Run { program, args, flags: None, env });
    assert_eq!(run(&Tool { folder, way, ..tool("") }, &[])?.text, "p\n");
    Ok(())
}

#[test]
fn a_call_runs_in_the_plugins_folder() -> Result<()> {
    let scratch = Scratch::new();
    let folder = scratch.path().canonicalize().unwrap_or_default();
    let tool = Tool { folder: folder.clone(), ..tool("pwd -P") };
    assert_eq!(run(&tool, &[])?.text, format!("{}\n", folder.display()));
    Ok(())
}

#[test]
fn what_the_gateway_has_open_is_not_passed_on() -> Result<()> {
    let scratch = Scratch::new();
    let held = fs::File::open(scratch.write("held", ""));
    let output = run(&tool("exec ls -l /proc/self/fd"), &[])?;
    assert!(held.is_ok() && output.text.contains(" 0 -> /dev/null"), "{}", output.text);
    let passed = [scratch.path().display().to_string(), "pidfd".into()]
        .into_iter()
        .find(|it| output.text.contains(it));
    assert_eq!(passed, None, "{}", output.text);
    // Its output, its complaints, and nothing of the other pipes of a call.
    assert_eq!(output.text.matches(" 1 -> pipe:").count(), 1, "{}", output.text);
    assert_eq!(output.text.matches(" 2 -> pipe:").count(), 1, "{}", output.text);
    Ok(())
}

#[test]
fn standard_input_arrives_whole_and_then_ends() -> Result<()> {
    let text = "é".repeat(500_000);
    let output = run_with(&tool("wc -c"), &[], Some(&text), &Cancel::never())?;
    assert_eq!(output.text.trim(), "1000000");
    let none = run(&tool("cat; echo end"), &[])?;
    assert_eq!(none.text, "end\n");
    let empty = run_with(&tool("cat; echo end"), &[], Some(""), &Cancel::never())?;
    assert_eq!(empty.text, "end\n");
    Ok(())
}

#[test]
fn a_child_that_does_not_read_does_not_block() -> Result<()> {
    let text = "x".repeat(1_000_000);
    let cancel = Cancel::never();
    assert_eq!(run_with(&tool("echo done"), &[], Some(&text), &cancel)?.text, "done\n");
    let closed = run_with(&tool("exec <&-; echo done"), &[], Some(&text), &cancel)?;
    assert_eq!(closed.text, "done\n");
    let mirrored = run_with(&tool("cat"), &[], Some(&text), &cancel)?;
    assert!(mirrored.text == text);
    Ok(())
}

#[test]
fn a_hundred_megabytes_are_drained_and_bounded() -> Result<()> {
    let output = run(&tool("head -c 100000000 /dev/zero | tr '\\0' x"), &[])?;
    let note = format!("\n[{} more bytes were left out]\n", 100_000_000 - MAX_OUTPUT);
    assert!(output.truncated && output.text.ends_with(&note));
    assert_eq!(output.text.len(), MAX_OUTPUT + note.len());
    Ok(())
}

#[test]
fn a_hundred_megabytes_of_complaints_are_bounded_too() -> Result<()> {
    let output = run(&tool("head -c 100000000 /dev/zero | tr '\\0' x >&2; exit 1"), &[])?;
    assert!(output.truncated && output.exit_code == 1);
    assert!(output.text.len() < MAX_STDERR + 100, "{}", output.text.len());
    Ok(())
}

#[test]
fn bytes_that_are_not_text_are_marked() {
    let note = "[not UTF-8: the bytes that could not be read are shown as \u{FFFD}]\n";
    check(r"printf 'a\377b'", 0, &format!("a\u{FFFD}b\n{note}"));
    check(r"printf '\351\202'", 0, &format!("\u{FFFD}\n{note}"));
}

#[test]
fn a_bound_inside_a_secret_leaves_no_half_of_it() {
    let redactor = Redactor::new();
    redactor.learn("s3cret-key");
    let mut captured = Captured::within(8);
    captured.add(b"a s3cret-key");
    assert_eq!(text_of(&captured, &redactor), "a \n[10 more bytes were left out]\n");
}

#[test]
fn a_bound_inside_a_character_leaves_no_half_of_it() {
    for limit in 0..=10 {
        let mut captured = Captured::within(limit);
        captured.add("a那é".as_bytes());
        let whole = [0, 1, 1, 1, 4, 4, 6, 6, 6, 6, 6][limit];
        let cut = 6 - whole;
        let mut want = "a那é"[..whole].to_owned();
        if cut > 0 {
            add_part(&mut want, &format!("[{cut} more bytes were left out]\n"));
        }
        assert_eq!(text_of(&captured, &Redactor::new()), want, "{limit}");
    }
}
