//! Completions in the shells themselves, and the manual page as its readers
//! see it. CI has all of these programs, or the test fails.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{Finished, World, some_world};

/// Whether a program is here; in CI it must be.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$1\"", "sh", program]).output();
    let found = found.expect("sh runs").status.success();
    assert!(found || std::env::var_os("CI").is_none(), "CI must have {program}");
    found
}

/// Runs a shell in the world's folder, with `beige` on PATH.
pub(crate) fn in_shell(world: &World, program: &str, arguments: &[&str]) -> Finished {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    on_path(world, &mut command).output().expect("the shell runs").into()
}

/// The command in the world's folder, with `beige` on PATH.
pub(crate) fn on_path<'a>(world: &World, command: &'a mut Command) -> &'a mut Command {
    let beige = world.beige(["man"]);
    let folder = std::path::Path::new(beige.get_program()).parent().expect("a folder");
    let path = std::env::var("PATH").expect("a path");
    command.current_dir(&world.root);
    command.env("PATH", format!("{}:{path}", folder.display())).env("HOME", &world.root);
    command.env("BEIGE_HOME", world.home()).env("BEIGE_CONFIG", world.config_file())
}

/// A world with two agents, and files to be proposed.
fn world() -> World {
    let world = some_world();
    world.configure(&["ada", "bob"], "");
    fs::write(world.root.join("other.json5"), "{ agents: {").expect("written");
    world
}

/// What is proposed for the last of these words.
type Propose = dyn Fn(&World, &[&str]) -> Vec<String>;

#[track_caller]
fn check_proposals(propose: &Propose) {
    let world = world();
    let check = |words: &[&str], want: &[&str]| {
        let mut got = propose(&world, words);
        got.sort();
        assert_eq!(got, want, "{words:?}");
    };
    check(&["gat"], &["gateway"]);
    check(&["exec", ""], &["ada", "bob"]);
    check(&["exec", "b"], &["bob"]);
    check(&["exec", "--timeout", "5", "a"], &["ada"]);
    check(&["exec", "ada", ""], &["--"]);
    check(&["exec", "ada", "--", "cat", "cas"], &["cassette.jsonl"]);
    check(&["--config", "oth"], &["other.json5"]);
    check(&["sandbox", ""], &["build", "list", "rm"]);
    check(&["audit", "--ver"], &["--verify"]);
    // What is wrong with a configuration is no proposal.
    check(&["--config", "other.json5", "exec", ""], &[]);
    assert!(propose(&world, &["exec", "ada", "--", "ech"]).contains(&"echo".to_owned()));
}

fn lines(done: &Finished) -> Vec<String> {
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    done.text().lines().filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes() {
    if !has("bash") {
        return;
    }
    let line = "eval \"$(beige completions bash)\"; COMP_WORDS=(beige \"$@\"); COMP_CWORD=$#; \
                _beige; printf '%s\\n' \"${COMPREPLY[@]}\"";
    check_proposals(&|world, words| {
        lines(&in_shell(world, "bash", &[&["--norc", "-c", line, "bash"], words].concat()))
    });
    // bash parts keys at their colons, and puts in what stands behind the last.
    let keyed = world();
    let key = "cli:ada:work";
    keyed.run(["prompt", "ada", "--session", key, "hi"]).expect(0);
    let words = ["--norc", "-c", line, "bash", "sessions", "show", "cli", ":", "ada", ":", "w"];
    assert_eq!(lines(&in_shell(&keyed, "bash", &words)), ["work"]);
    let asked = |words: &[&str]| {
        keyed.run([&["completions", "answer", "--"][..], words].concat()).expect(0).text()
    };
    assert_eq!(asked(&["exec", "ada", "--session", ""]), format!("{key}\thi\n"));
    assert_eq!(asked(&["exec", "bob", "--session", ""]), "");
    assert_eq!(asked(&["prompt", "ada", "--model", ""]), "p/m\n");
    // bash parts `--flag=value` into three words.
    let world = world();
    let words = ["--norc", "-c", line, "bash", "audit", "--agent", "=", "b"];
    assert_eq!(lines(&in_shell(&world, "bash", &words)), ["bob"]);
}

#[test]
fn zsh_completes() {
    if !has("zsh") {
        return;
    }
    // What only runs while somebody types is stood in for: these print what
    // they are given.
    let line = "compdef() { : }; compset() { : }
        compadd() { local it; for it in $names; do [[ $it == $PREFIX* ]] && print -r -- $it; done; : }
        _files() { print -rl -- $PREFIX*(N) }
        _command_names() { print -rl -- ${(k)commands[(I)$PREFIX*]} }
        source <(beige completions zsh)
        words=(beige \"$@\"); CURRENT=$#words; PREFIX=$words[-1]; _beige; :";
    check_proposals(&|world, words| {
        lines(&in_shell(world, "zsh", &[&["-f", "-c", line, "zsh"], words].concat()))
    });
}

#[test]
fn fish_completes() {
    if !has("fish") {
        return;
    }
    let line = "beige completions fish | source; complete -C \"beige $argv\"";
    check_proposals(&|world, words| {
        let typed = words.join(" ");
        let done = in_shell(world, "fish", &["--no-config", "-c", line, "--", &typed]);
        // What it means stands behind a tab.
        lines(&done).iter().map(|it| it.split('\t').next().unwrap_or("").to_owned()).collect()
    });
}

#[test]
fn no_proposal_ever_complains() {
    let world = some_world();
    fs::write(world.config_file(), "{").expect("written");
    let done = world.run(["completions", "answer", "--", "exec", ""]).expect(0);
    assert!(done.stdout.is_empty() && done.stderr.is_empty(), "{done:?}");
    assert!(!world.home().exists());
    let done = world.run(["completions", "powershell"]).expect(2);
    assert!(done.stderr.contains("none of bash, zsh or fish"), "{}", done.stderr);
    world.run(["completions"]).expect(2);
    world.run(["completions", "answer"]).expect(2);
    world.run(["completions", "bash", "zsh"]).expect(2);
}

#[test]
fn the_manual_page_is_sound_and_shows_every_command() {
    let world = some_world();
    let page = world.run(["man"]).expect(0);
    assert!(page.stderr.is_empty());
    let file = world.root.join("beige.1");
    fs::write(&file, &page.stdout).expect("written");
    let file = file.to_str().expect("text");
    if has("mandoc") {
        // The page has no date of its own.
        let done = in_shell(&world, "mandoc", &["-Tlint", "-Werror", file]);
        assert_eq!((done.code, done.text()), (0, String::new()));
        let shown = in_shell(&world, "mandoc", &["-Tutf8", file]).expect(0).text();
        let plain = without_overstrike(&shown);
        for command in ["setup", "exec", "doctor", "audit", "completions", "man"] {
            assert!(plain.contains(&format!("beige {command}")), "{command} in {plain}");
        }
        let usage = "Usage: beige exec AGENT [OPTIONS] -- CMD [ARG…]";
        assert!(plain.contains(usage), "{plain}");
    }
}

/// Bold letters are written twice over each other.
fn without_overstrike(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars().peekable();
    while let Some(it) = letters.next() {
        match letters.next_if_eq(&'\u{8}') {
            Some(_) => {}
            None => plain.push(it),
        }
    }
    plain
}
