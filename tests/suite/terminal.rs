//! What a person sees at a terminal: an answer as it comes, with what is done
//! meanwhile on lines of its own, and nothing that drives the terminal.
//! `script` gives the terminal; CI has it, or the test fails.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::shells::{has, in_shell, on_path};
use crate::support::{Answer, ModelServer, World, says, says_and_calls, some_world};

/// A world whose agent asks that server and then, of the same one, `n`. Who is
/// silent for long fails, so that no test waits for what never comes.
fn asking(server: &ModelServer) -> World {
    let world = some_world();
    let agent = world.agent("a", "", "fallbackModels: [{ provider: 'p', model: 'n' }],");
    world.model_of(server, "timeouts: { idleSeconds: 30 },", &agent);
    world
}

/// A prompt at a terminal that is both outputs.
fn prompt(world: &World, environment: &str, redirected: &str) -> Child {
    let line = format!("{environment} beige prompt a go {redirected}");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    on_path(world, &mut script).spawn().expect("script runs")
}

/// All that is shown to its end.
#[track_caller]
fn screen(mut child: Child, code: i32) -> String {
    let mut shown = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut shown).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(code), "{shown}");
    shown.replace("\r\n", "\n")
}

/// What is shown up to that text.
#[track_caller]
fn shown_until(child: &mut Child, text: &str) -> String {
    let from = child.stdout.as_mut().expect("a pipe");
    let mut shown = Vec::new();
    while !shown.ends_with(text.as_bytes()) {
        let mut byte = [0];
        let count = from.read(&mut byte).expect("a byte");
        assert_eq!(count, 1, "it ended before {text:?}: {}", String::from_utf8_lossy(&shown));
        shown.extend(byte);
    }
    String::from_utf8(shown).expect("text")
}

#[test]
fn an_answer_is_shown_as_it_comes() {
    if !has("script") {
        return;
    }
    let server = ModelServer::new();
    let gate = server.gate();
    let answer = Answer::stream().text("First \u{1b}[2Jwords:").hold(&gate);
    let answer = answer.text("\r").text("\n\u{202e}the ").text("rest.\n\n").finish("stop").done();
    server.play([answer]);
    let world = asking(&server);
    let mut asked = prompt(&world, "", "");
    assert_eq!(shown_until(&mut asked, "words:"), "First \\u{1b}[2Jwords:");
    gate.open();
    assert_eq!(screen(asked, 0), "\n\\u{202e}the rest.\n");
}

#[test]
fn a_tool_call_is_a_short_dim_line() {
    if !has("script") {
        return;
    }
    let server = ModelServer::new();
    let world = asking(&server);
    let check = |environment: &str, redirected: &str, want: &str| {
        let call = ("c1", "exec", json!({"command": "printf '\u{9b}2J'\ntrue"}));
        server.play([says_and_calls("I look.", &[call]), says("Done.")]);
        assert_eq!(screen(prompt(&world, environment, redirected), 0), want);
    };
    let line = "· exec: printf '\\u{9b}2J' true";
    check("TERM=xterm", "", &format!("I look.\n\u{1b}[2m{line}\u{1b}[0m\nDone.\n"));
    check("NO_COLOR=1", "", &format!("I look.\n{line}\nDone.\n"));
    check("TERM=dumb", "", &format!("I look.\n{line}\nDone.\n"));
    check("", "2>/dev/null", "I look.\nDone.\n");
}

#[test]
fn what_was_said_in_vain_is_no_part_of_the_answer() {
    if !has("script") {
        return;
    }
    let server = ModelServer::playing([
        Answer::stream().text("The answer is 8").cut(),
        says("The answer is 7."),
    ]);
    let world = asking(&server);
    // Also where nothing of standard error is seen.
    let shown = screen(prompt(&world, "NO_COLOR=1", "2>/dev/null"), 0);
    let mark = "[cut off there; the answer begins anew]";
    assert_eq!(shown, format!("The answer is 8\n{mark}\nThe answer is 7.\n"));
}

#[test]
fn a_turn_that_fails_shows_once_what_was_said() {
    if !has("script") {
        return;
    }
    let server = ModelServer::playing([
        Answer::stream().text("Half an").cut(),
        Answer::error(400, "no"),
        Answer::error(400, "no"),
    ]);
    let world = asking(&server);
    let shown = screen(prompt(&world, "NO_COLOR=1", ""), 1);
    assert_eq!(shown.matches("Half an").count(), 1, "{shown}");
    assert!(shown.starts_with("Half an\n[") && shown.contains("\nbeige prompt: All"), "{shown}");
}

#[test]
fn json_drives_no_terminal() {
    if !has("script") {
        return;
    }
    let world = some_world();
    world.write_cassette(&["{\"events\":[{\"text\":\"\u{9b}2J\u{202e}x\u{7f}\"}]}"; 2]);
    for form in ["--json", "--stream-json"] {
        let done = in_terminal(&world, &format!("beige prompt a --session k {form} x"));
        assert!(done.contains("\\u009b2J\\u202e"), "{form}: {done:?}");
    }
    for line in ["sessions show k --json", "sessions list --json", "audit --json"] {
        in_terminal(&world, &format!("beige {line}"));
    }
}

/// What a command shows on a terminal, of which nothing drives it.
#[track_caller]
fn in_terminal(world: &World, line: &str) -> String {
    let done = in_shell(world, "script", &["-qec", line, "/dev/null"]).expect(0).text();
    let driven = done.chars().find(|it| {
        it.is_control() && !"\r\n\t".contains(*it) || ('\u{202a}'..='\u{202e}').contains(it)
    });
    assert_eq!(driven, None, "{line}: {done:?}");
    done
}
