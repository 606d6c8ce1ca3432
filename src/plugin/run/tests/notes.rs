//! Tests of the example plugin `notes`, loaded and called as any other.

use super::*;
use crate::config::{self, Home, PluginSource};
use crate::plugin::Registry;

/// The tool, and a context whose agent folder is the scratch's.
fn notes(scratch: &Scratch) -> (Tool, Context) {
    let entry = config::Plugin {
        name: "notes".into(),
        source: PluginSource::Folder(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/notes").into()),
        env: BTreeMap::new(),
        on_hook_failure: config::OnHookFailure::Refuse,
        installed_from: None,
        config: json!({}),
    };
    let registry = Registry::load(&[entry], &BTreeMap::new(), &Home::new(scratch.path()));
    let warnings = registry.as_ref().map(|it| it.warnings().to_vec());
    assert_eq!(warnings.ok(), Some(Vec::new()));
    let tool = registry.ok().and_then(|it| it.tool("notes").cloned());
    let context = Context { agent_dir: scratch.path().join("agents/travel"), ..context() };
    (tool.unwrap_or_else(|| super::tool("exit 99")), context)
}

fn call_notes(scratch: &Scratch, args: &[&str]) -> (i32, String) {
    let (tool, context) = notes(scratch);
    let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
    let request = RunCall {
        args: &args,
        stdin: None,
        context,
        config: &tool.config,
        redactor: &Redactor::new(),
    };
    let output = call(&tool, &request, Asker { cancel: &Cancel::never(), line: None }, MAX_OUTPUT);
    output.map(|it| (it.exit_code, it.text)).unwrap_or_else(|it| (-1, it.to_string()))
}

#[track_caller]
fn check_calls(calls: &[(&[&str], i32, &str)]) {
    let scratch = Scratch::new();
    for (args, exit_code, text) in calls {
        assert_eq!(call_notes(&scratch, args), (*exit_code, (*text).to_owned()), "{args:?}");
    }
}

#[test]
fn notes_are_kept_listed_and_cleared() {
    check_calls(&[
        (&["list"], 0, "no notes\n"),
        (&["add", "buy", "milk"], 0, "kept\n"),
        (&["add", "two\nlines\n- of text"], 0, "kept\n"),
        (&["add", "'\"$(id) `id` \\n %s"], 0, "kept\n"),
        (&["add", "--", "-n"], 0, "kept\n"),
        (
            &["list"],
            0,
            "1. buy milk\n2. two\n   lines\n   - of text\n3. '\"$(id) `id` \\n %s\n4. -- -n\n",
        ),
        (&["clear"], 0, "cleared 4\n"),
        (&["list"], 0, "no notes\n"),
    ]);
}

#[test]
fn calls_that_make_no_sense_are_exit_2() {
    let usage = "usage: notes add TEXT | notes list | notes clear";
    check_calls(&[
        (&[], 2, &format!("notes: {usage}\n")),
        (&["add"], 2, "notes: there is no text to keep; usage: notes add TEXT\n"),
        (&["add", ""], 2, "notes: there is no text to keep; usage: notes add TEXT\n"),
        (&["list", "all"], 2, "notes: `notes list` takes no arguments\n"),
        (&["remove"], 2, &format!("notes: there is no such command; {usage}\n")),
        (&["--help"], 2, &format!("notes: there is no such command; {usage}\n")),
    ]);
}

#[test]
fn notes_added_side_by_side_do_not_mix() {
    let scratch = Scratch::new();
    let long = ["line"; 5_000].join("\n");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(call_notes(&scratch, &["add", &long]).0, 0));
        }
    });
    let file = scratch.path().join("agents/travel/notes-travel.md");
    let kept = fs::read_to_string(file).unwrap_or_default();
    let one = format!("- {}\n", long.replace('\n', "\n  "));
    assert!(kept == one.repeat(8), "mixed: {} bytes", kept.len());
}

#[test]
fn an_agent_cannot_fill_the_disk_with_notes() {
    let scratch = Scratch::new();
    scratch.write("agents/travel/notes-travel.md", &"- x\n".repeat(300_000));
    let (exit_code, text) = call_notes(&scratch, &["add", "more"]);
    assert_eq!(exit_code, 1);
    assert!(text.contains("more than 1048576 bytes are kept already"), "{text}");
}
