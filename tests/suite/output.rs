//! What a command of a turn prints, told while it runs: a command that waits
//! for what is done only once its output has been seen cannot pass by accident.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write};

use serde_json::{Value, json};

use crate::support::{Stream, World, on_each_runtime, read_until, some_world, wait_until};

const DONE: &str = r#"{"events":[{"text":"All done."}]}"#;

/// Before what waits: nobody can tell it to go on yet.
const PIPE: &str = "mkfifo go && exec 3<>go || exit 1; ";

/// Waits until it is told to go on.
const WAIT: &str = "; read line <&3; ";

/// A cassette in which that line is run.
fn run(world: &World, line: &str) {
    let arguments = json!({"command": line, "timeout": 60});
    let call = json!({"toolCall": {"id": "c1", "name": "exec", "arguments": arguments}});
    world.write_cassette(&[&json!({"events": [call]}).to_string(), DONE]);
}

/// Tells the command to go on; it does once what this gives is written to,
/// which never waits for it.
#[track_caller]
fn go(world: &World) -> File {
    let path = world.workspace("a").join("go");
    let mut pipe = OpenOptions::new().read(true).write(true).open(path).expect("a pipe");
    pipe.write_all(b"on\n").expect("room in the pipe");
    pipe
}

/// Waits for that output, and lets the command go on. It must not end with what
/// the gateway's token could begin with.
#[track_caller]
fn see(world: &World, stream: &mut Stream, want: &str) -> File {
    let want = json!({"type": "tool_output", "id": "c1", "delta": want});
    assert_eq!(stream.until("tool_output"), want);
    go(world)
}

/// All that was told of output, and the end of the command.
fn output(told: &[Value]) -> (String, Value) {
    let of = |kind: &'static str| told.iter().filter(move |it| it["type"] == kind).cloned();
    let text = of("tool_output").filter_map(|it| it["delta"].as_str().map(str::to_owned));
    (text.collect(), of("tool_end").next().unwrap_or_default())
}

#[track_caller]
fn check(world: &World, line: &str, want: &str, end: Value) {
    run(world, line);
    assert_eq!(output(&world.events("api:1", "go")), (want.to_owned(), end), "{line}");
    world.post("/api/agents/a/sessions/new", &json!({"sessionKey": "api:1"}));
}

fn ended(exit_code: i32, bytes: u64) -> Value {
    let is_error = exit_code != 0;
    json!({"type": "tool_end", "id": "c1", "isError": is_error, "exitCode": exit_code,
        "bytes": bytes})
}

#[test]
fn output_is_told_while_the_command_runs() {
    on_each_runtime(|world| {
        run(world, &format!("{PIPE}echo first{WAIT}echo second >&2{WAIT}printf third"));
        world.start_gateway();
        let mut stream = world.stream("api:1", "go");
        let _pipe = see(world, &mut stream, "first\n");
        let _pipe = see(world, &mut stream, "second\n");
        let told = stream.rest();
        assert_eq!(output(&told), ("first\nsecond\nthird".into(), ended(0, 18)));
        assert_eq!(told.last(), Some(&json!({"type": "done", "response": "All done."})));
        let stored = world.messages("api:1").join("\n");
        assert!(stored.contains("Exit code: 0\nfirst\nsecond\nthird"), "{stored}");
    });
}

#[test]
fn a_command_that_a_program_of_the_runtime_starts_is_followed_too() {
    on_each_runtime(|world| {
        // The parent of its supervisor is not the resident.
        let parent = "$(cut -d' ' -f4 /proc/$PPID/stat)";
        run(world, &format!("{PIPE}echo parent {parent}{WAIT}echo second"));
        world.start_gateway();
        fs::remove_file(world.home().join("sockets/a/link.sock")).expect("it is there");
        let mut stream = world.stream("api:1", "go");
        let _pipe = see(world, &mut stream, "parent 0\n");
        assert_eq!(output(&stream.rest()).0, "parent 0\nsecond\n");
    });
}

#[test]
fn a_prompt_without_a_gateway_tells_it_too() {
    let world = some_world();
    run(&world, &format!("{PIPE}echo first{WAIT}echo second"));
    let mut asked = world.spawn(["prompt", "a", "--stream-json", "go"]);
    let mut lines = BufReader::new(asked.stdout.take().expect("a pipe"));
    assert!(read_until(&mut lines, "tool_output").contains(r#""delta":"first\n""#));
    let _pipe = go(&world);
    assert!(read_until(&mut lines, "tool_output").contains(r#""delta":"second\n""#));
    read_until(&mut lines, r#""type":"done""#);
    assert!(asked.wait().expect("it ends").success());
}

#[test]
fn neither_a_character_nor_a_secret_is_told_in_part() {
    let world = some_world();
    fs::write(world.root.join("secret"), "tr0ub4dor&3-horse").expect("a file");
    let instructions =
        format!("instructions: 'the key is ${{file:{}/secret}}',", world.root.display());
    world.write_config(&world.agent("a", "", &instructions), "");
    let line = format!(
        "{PIPE}printf 'a:\\303'{WAIT}printf '\\274b tr0ub4'{WAIT}printf 'dor&3-horse, tr0'"
    );
    run(&world, &line);
    world.start_gateway();
    let mut stream = world.stream("api:1", "go");
    let _pipe = see(&world, &mut stream, "a:");
    let _pipe = see(&world, &mut stream, "\u{fc}b ");
    let told = stream.rest();
    assert_eq!(output(&told).0, "a:\u{fc}b \u{2022}\u{2022}\u{2022}\u{2022}, tr0");
    let stored = world.messages("api:1").join("\n");
    assert!(stored.contains("a:\u{fc}b \u{2022}\u{2022}\u{2022}\u{2022}, tr0"), "{stored}");
}

#[test]
fn what_is_beyond_the_bound_of_the_result_is_counted() {
    let world = some_world();
    world.write_config(&world.agent("a", "", "limits: { maxToolOutputBytes: 1000 },"), "");
    world.start_gateway();
    run(&world, "seq 1000 2999");
    let (text, end) = output(&world.events("api:1", "go"));
    let want: String = (1000..1200).map(|it| format!("{it}\n")).collect();
    assert_eq!(text, want);
    let mut want = ended(0, 10_000);
    want["untoldBytes"] = json!(9_000);
    assert_eq!(end, want);
}

#[test]
fn no_command_waits_for_who_follows_it() {
    let world = some_world();
    world.write_config(&world.agent("a", "", "limits: { maxToolOutputBytes: 16777216 },"), "");
    world.start_gateway();
    run(&world, "yes 0123456789abcde | head -c 16000000; touch printed");
    let stream = world.stream("api:1", "go");
    // Nothing is read before it has ended.
    let printed = world.workspace("a").join("printed");
    wait_until("all is printed", || printed.exists());
    let told = stream.rest();
    let (text, end) = output(&told);
    assert_eq!(end["bytes"], 16_000_000);
    let untold = end["untoldBytes"].as_u64().expect("some of it is not told");
    assert_eq!(text.len() as u64 + untold, 16_000_000);
    assert_eq!(told.last(), Some(&json!({"type": "done", "response": "All done."})));
}

#[test]
fn how_a_command_ended_is_told_last() {
    let world = some_world();
    world.start_gateway();
    check(&world, "echo a; exit 3", "a\n", ended(3, 2));
    check(&world, "true", "", ended(0, 0));
    let killed = "timed out after 0.5 s, process tree killed";
    let arguments = json!({"command": "printf a; sleep 60", "timeout": 0.5});
    let call = json!({"toolCall": {"id": "c1", "name": "exec", "arguments": arguments}});
    world.write_cassette(&[&json!({"events": [call]}).to_string(), DONE]);
    let told = output(&world.events("api:1", "go"));
    assert_eq!(told, (format!("a\n{killed}"), ended(124, 1)));
}

#[test]
fn of_other_tools_the_answer_is_told_when_they_have_ended() {
    let world = some_world();
    world.start_gateway();
    fs::write(world.workspace("a").join("notes"), "one\n").expect("a file");
    let call = json!({"toolCall": {"id": "c1", "name": "read", "arguments": {"path": "notes"}}});
    world.write_cassette(&[&json!({"events": [call]}).to_string(), DONE]);
    let (text, end) = output(&world.events("api:1", "go"));
    assert!(text.contains("one\n"), "{text}");
    assert_eq!(
        end,
        json!({"type": "tool_end", "id": "c1", "isError": false,
        "bytes": text.len()})
    );
}
