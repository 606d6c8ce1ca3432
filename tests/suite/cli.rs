//! Manners of the command line: help, usage errors, closed streams, odd
//! surroundings, documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Finished, World, some_world};

const COMMANDS: [&str; 11] = [
    "setup",
    "gateway",
    "exec",
    "prompt",
    "sandbox",
    "audit",
    "usage",
    "config",
    "doctor",
    "completions",
    "man",
];

#[test]
fn help_is_on_standard_output() {
    let world = some_world();
    for command in COMMANDS {
        for flag in ["--help", "-h"] {
            let done = world.run([command, flag]).expect(0);
            assert!(done.stderr.is_empty() && done.text().starts_with("Usage: beige "), "{done:?}");
            assert!(done.text().contains(command));
        }
    }
    for arguments in [&["gateway", "start", "--help"][..], &["sandbox", "build", "--help"]] {
        assert!(world.run(arguments).expect(0).stderr.is_empty());
    }
    let overview = world.run(["--help"]).expect(0).text();
    assert!(COMMANDS.iter().all(|it| overview.contains(it)), "{overview}");
    assert!(!world.home().exists());
}

#[test]
fn the_version_is_told() {
    let world = some_world();
    for flag in ["--version", "-V"] {
        assert_eq!(world.run([flag]).expect(0).text(), "beige 0.1.0\n");
    }
}

/// Fails unless it is a usage error that says `word` and prints nothing.
#[track_caller]
fn check_usage(world: &World, arguments: &[&str], word: &str) {
    let done = world.run(arguments).expect(2);
    assert!(done.stderr.contains(word), "{arguments:?}: {}", done.stderr);
    assert!(done.stdout.is_empty());
}

#[test]
fn what_is_mistyped_names_the_nearest_and_is_2() {
    let world = some_world();
    check_usage(&world, &["audti"], "did you mean `audit`?");
    check_usage(&world, &["gateway", "strat"], "did you mean `start`?");
    check_usage(&world, &["sandbox", "lits"], "did you mean `list`?");
    check_usage(&world, &["config", "chekc"], "did you mean `check`?");
    check_usage(&world, &["audit", "haed"], "did you mean `head`?");
    check_usage(&world, &["completions", "bsah"], "did you mean `bash`?");
    check_usage(&world, &["--versoin"], "did you mean `--version`?");
    for (command, typo, flag) in [
        ("setup", "--hepl", "--help"),
        ("gateway", "--foregruond", "--foreground"),
        ("exec", "--timout", "--timeout"),
        ("prompt", "--sesion", "--session"),
        ("sandbox", "--ofline", "--offline"),
        ("audit", "--verfy", "--verify"),
        ("usage", "--agnet", "--agent"),
        ("config", "--stict", "--strict"),
        ("doctor", "--jsn", "--json"),
        ("man", "--confg", "--config"),
    ] {
        check_usage(&world, &[command, typo], &format!("did you mean `{flag}`?"));
    }
    check_usage(&world, &["sandbox", "list", "--jsn"], "did you mean `--json`?");
    let belongs = "`--json` belongs to `beige sessions list` and `beige sessions show`";
    check_usage(&world, &["sessions", "rm", "--json", "x"], belongs);
    check_usage(&world, &["sandbox", "rm", "--json"], "`--json` belongs to `beige sandbox list`");
}

#[test]
fn what_makes_no_sense_is_2() {
    let world = some_world();
    let head = format!("1:{}", "0".repeat(64));
    for arguments in [
        &[][..],
        &["nosuch"],
        &["gateway"],
        &["gateway", "status", "extra"],
        &["gateway", "stop", "--json"],
        &["gateway", "status", "-f"],
        &["gateway", "logs", "-n", "many"],
        &["gateway", "restart", "--foreground"],
        &["sandbox"],
        &["sandbox", "list", "extra"],
        &["sandbox", "build", "--image"],
        &["audit", "extra"],
        &["audit", "--since", "soon"],
        &["audit", "--verify", "--denied"],
        &["audit", "--head", &head],
        &["audit", "--verify", "--head", "1:abc"],
        &["audit", "--verify", "--head", &head[1..]],
        &["audit", "head", "extra"],
        &["audit", "head", "--verify"],
        &["audit", "head", "--denied"],
        &["usage", "extra"],
        &["usage", "--by", "tool"],
        &["usage", "--since", "soon"],
        &["config", "schema", "extra"],
        &["doctor", "extra"],
        &["man", "extra"],
        &["config", "show", "--strict"],
        &["prompt", "a"],
        &["prompt", "a", "--json", "--stream-json", "hi"],
        &["prompt", "a", "hi", "extra"],
        &["prompt", "a", "--model", "m", "hi"],
        &["setup", "extra"],
        &["gateway", "status", "--config"],
    ] {
        let done = world.run(arguments).expect(2);
        assert!(done.stdout.is_empty() && !done.stderr.is_empty(), "{arguments:?}");
    }
    assert!(!world.home().exists());
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let world = some_world();
    for _ in 0..3 {
        world.exec(&["true"]).expect(0);
    }
    world.start_gateway();
    for arguments in [
        "audit",
        "audit --json",
        "audit -f",
        "audit --verify",
        "usage",
        "usage --json",
        "gateway logs",
        "gateway status",
        "--help",
        "exec --help",
        "config show",
        "config check --json",
        "sandbox list --json",
        "exec a -- yes",
        "prompt a hi",
    ] {
        // A reader that is gone before the first byte.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = world.beige(arguments.split(' '));
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().expect("beige runs");
        drop(command);
        let done = Finished::from(child.wait_with_output().expect("it ends"));
        // Without Docker a list says so, to whoever reads it.
        let told = match arguments.starts_with("sandbox") {
            true => world.run(arguments.split(' ')).stderr,
            false => String::new(),
        };
        assert_eq!((done.code, done.stderr), (141, told), "{arguments}");
    }
}

/// Runs `beige` by a shell line in which `"$@"` stands for it.
#[track_caller]
fn by_shell(world: &World, line: &str, arguments: &[&str]) -> Finished {
    let beige = world.beige(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", line, "sh"]).arg(beige.get_program()).args(beige.get_args());
    shell.env("BEIGE_HOME", world.home()).env_remove("BEIGE_CONFIG").stdin(Stdio::null());
    shell.output().expect("sh runs").into()
}

#[test]
fn closed_streams_are_no_fault() {
    let world = some_world();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        for (arguments, code) in [
            (&["exec", "a", "--", "sh", "-c", "echo hi; echo err >&2; exit 3"][..], 3),
            (&["prompt", "a", "hi"], 0),
            (&["audit"], 0),
            (&["gateway", "status"], 1),
            (&["gateway", "start"], 0),
            (&["gateway", "status"], 0),
            (&["exec", "a", "--", "sh", "-c", "cat; echo hi; exit 3"], 3),
            (&["gateway", "stop"], 0),
            (&["nosuch"], 2),
        ] {
            let done = by_shell(&world, &format!("exec \"$@\" {closed}"), arguments);
            assert_eq!(done.code, code, "{closed} {arguments:?}: {}", done.stderr);
            assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
        }
    }
    world.verify_audit();
}

#[test]
fn nothing_colours_what_is_no_terminal() {
    let world = some_world();
    world.sh("notes list").expect(0);
    for arguments in [&["audit"][..], &["--help"], &["config", "show"], &["gateway", "status"]] {
        let done = world.run(arguments);
        assert!(!done.stdout.contains(&0x1b) && !done.stderr.contains('\x1b'), "{arguments:?}");
    }
}

#[test]
fn what_reports_gives_one_document() {
    let world = some_world();
    world.exec(&["true"]).expect(0);
    for (arguments, code) in [
        (&["gateway", "status", "--json"][..], 1),
        (&["audit", "--json"], 0),
        (&["audit", "--verify", "--json"], 0),
        (&["usage", "--json"], 0),
        (&["config", "check", "--json"], 0),
        (&["config", "show", "--json"], 0),
        (&["config", "schema", "--json"], 0),
        (&["audit", "head", "--json"], 0),
        (&["doctor", "--json"], 0),
        (&["exec", "a", "--json", "--", "sh", "-c", "exit 4"], 4),
        (&["prompt", "a", "--json", "hi"], 0),
    ] {
        world.run(arguments).expect(code).json();
    }
    let events = world.run(["prompt", "a", "--stream-json", "hi"]).expect(0).text();
    let events: Vec<serde_json::Value> =
        events.lines().map(|it| serde_json::from_str(it).expect("an event")).collect();
    assert_eq!(events.last().map(|it| it["type"].clone()), Some("done".into()));
}

#[test]
fn without_docker_the_list_says_so() {
    let world = some_world();
    let without = |name: &str, value: &str, action: &str| {
        let mut command = world.beige(["sandbox", action]);
        command.env(name, value);
        Finished::from(command.output().expect("beige runs")).expect(0).stderr
    };
    fs::create_dir_all(world.home()).expect("a home");
    let short = "no sandboxes that can be seen: no answer from Docker\n";
    for action in ["list", "rm"] {
        assert_eq!(without("DOCKER_HOST", "unix:///nonexistent.sock", action), short);
        assert_eq!(without("PATH", "/nonexistent", action), short);
    }
    // A home that had a container is told all there is to know.
    fs::create_dir_all(world.home().join("data/sandboxes")).expect("a folder");
    fs::write(world.home().join("data/sandboxes/a.json"), "{}").expect("written");
    let told = without("DOCKER_HOST", "unix:///nonexistent.sock", "list");
    let silent = "containers are not listed: no answer from Docker: ";
    assert!(told.contains(silent) && told.lines().count() == 1, "{told}");
    let mut command = world.beige(["sandbox", "rm"]);
    let removed = Finished::from(command.env("PATH", "/nonexistent").output().expect("it runs"));
    assert!(removed.stderr.contains("no container is removed"), "{}", removed.stderr);
    let told = removed.expect(0).text();
    assert!(told.contains("forgot the container of a") && !told.contains("removed"), "{told}");
}

#[test]
fn without_an_engine_no_image_is_built_and_both_are_named() {
    let world = some_world();
    let mut command = world.beige(["sandbox", "build"]);
    let done = Finished::from(command.env("PATH", "/nonexistent").output().expect("it runs"));
    for part in ["Docker: ", "Podman: ", "bubblewrap needs no image"] {
        assert!(done.stderr.contains(part), "{}", done.stderr);
    }
    done.expect(1);
}

#[test]
fn without_home_it_says_what_to_set() {
    let world = some_world();
    let mut command = world.beige(["setup"]);
    command.env_remove("BEIGE_HOME").env_remove("HOME");
    let done = Finished::from(command.output().expect("beige runs")).expect(78);
    assert!(done.stderr.contains("BEIGE_HOME"), "{}", done.stderr);
    let mut command = world.beige(["exec", "a", "--", "echo", "hi"]);
    let done = Finished::from(command.env_remove("HOME").output().expect("beige runs"));
    assert_eq!(done.expect(0).text(), "hi\n");
}

/// `beige` in a folder, with this as `BEIGE_HOME`.
fn beige_in(world: &World, folder: &Path, home: &str, arguments: &[&str]) -> Finished {
    let mut command = world.beige(arguments);
    command.current_dir(folder).env("BEIGE_HOME", home);
    command.output().expect("beige runs").into()
}

#[test]
fn a_relative_home_is_below_the_folder_one_is_in() {
    let world = some_world();
    let echo = ["exec", "a", "--", "echo", "hi"];
    assert_eq!(beige_in(&world, &world.root, "h", &echo).expect(0).text(), "hi\n");
    assert!(world.home().join("logs/audit.jsonl").exists());
    beige_in(&world, &world.root, "h", &["gateway", "start"]).expect(0);
    beige_in(&world, Path::new("/"), "h", &["gateway", "status"]).expect(1);
    beige_in(&world, &world.root, "./h", &["gateway", "status"]).expect(0);
}

#[test]
fn a_folder_that_is_gone_is_no_fault() {
    let world = some_world();
    let line = "mkdir \"$BEIGE_HOME-gone\"; cd \"$BEIGE_HOME-gone\"; rmdir \"$PWD\"; exec \"$@\"";
    let done = by_shell(&world, line, &["exec", "a", "--", "echo", "hi"]).expect(0);
    assert_eq!(done.text(), "hi\n");
    by_shell(&world, line, &["gateway", "start"]).expect(0);
    assert_eq!(
        by_shell(&world, line, &["exec", "a", "--", "pwd"]).expect(0).text(),
        "/workspace\n"
    );
    by_shell(&world, line, &["gateway", "stop"]).expect(0);
}

#[test]
fn a_home_may_have_any_name() {
    crate::support::on_either_kind(|world| {
        let home: PathBuf = world.root.join("mein Häuschen: 那");
        let home = home.to_str().expect("text");
        let notes = ["exec", "a", "--", "sh", "-c", "notes add 'a b' && notes list"];
        let done = beige_in(world, &world.root, home, &notes).expect(0);
        assert!(done.text().contains("a b"));
        beige_in(world, &world.root, home, &["gateway", "start"]).expect(0);
        beige_in(world, &world.root, home, &notes).expect(0);
        beige_in(world, &world.root, home, &["gateway", "stop"]).expect(0);
        beige_in(world, &world.root, home, &["audit", "--verify"]).expect(0);
        beige_in(world, &world.root, home, &["sandbox", "rm"]).expect(0);
    });
}

#[test]
fn a_home_too_deep_for_sockets_is_78_and_names_the_limit() {
    let world = some_world();
    let home = world.root.join("x".repeat(90));
    let home = home.to_str().expect("text");
    let done = beige_in(&world, &world.root, home, &["setup"]).expect(78);
    assert!(done.stderr.contains("107"), "{}", done.stderr);
    assert!(!Path::new(home).exists());
    for (arguments, code) in [
        (&["gateway", "start"][..], 78),
        (&["prompt", "a", "hi"], 78),
        (&["exec", "a", "--", "true"], 125),
        (&["config", "check"], 78),
    ] {
        let done = beige_in(&world, &world.root, home, arguments).expect(code);
        let told = done.stderr.clone() + &done.text();
        assert!(told.contains("107"), "{arguments:?}: {told}");
    }
    assert!(!Path::new(home).join("sockets").exists());
}

#[test]
fn a_configuration_that_is_none_is_78() {
    let world = some_world();
    let file = world.config_file();
    for text in ["", "{", "[]", "{ agents: {} }"] {
        fs::write(&file, text).expect("written");
        world.run(["gateway", "start"]).expect(78);
        world.run(["config", "check"]).expect(78);
        world.run(["prompt", "a", "hi"]).expect(78);
        world.run(["exec", "a", "--", "true"]).expect(125);
    }
    fs::remove_file(&file).expect("removed");
    let told = world.run(["gateway", "start"]).expect(78).stderr;
    assert!(told.contains("does not exist"), "{told}");
}

#[test]
fn help_is_also_a_command_and_fits_a_terminal() {
    let world = some_world();
    let overview = world.run(["--help"]).expect(0).text();
    assert_eq!(world.run(["help"]).expect(0).text(), overview);
    check_usage(&world, &["help", "nosuch"], "there is no command `nosuch`");
    let mut all = vec![overview];
    for command in COMMANDS {
        let help = world.run([command, "--help"]).expect(0).text();
        assert_eq!(world.run(["help", command]).expect(0).text(), help);
        // What setup makes is the home's own, whatever file is named.
        assert!(help.contains("--config") || command == "setup", "{help}");
        all.push(help);
    }
    let wide: Vec<&str> =
        all.iter().flat_map(|it| it.lines()).filter(|it| it.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn a_hint_is_given_once() {
    let world = some_world();
    let told = world.run(["qqqqqq"]).expect(2).stderr;
    assert_eq!(told.matches("--help").count(), 1, "{told}");
    let told = world.run(["prompt", "a", "hi", "there"]).expect(2).stderr;
    assert!(told.contains("quote the prompt"), "{told}");
}

#[test]
fn a_failure_is_one_document_too() {
    crate::support::with_and_without_gateway(|world| {
        for (arguments, code) in [
            (&["exec", "nobody", "--json", "--", "true"][..], 125),
            (&["prompt", "nobody", "--json", "hi"], 1),
            (&["prompt", "a", "--json", "--model", "p/other", "hi"], 1),
        ] {
            let done = world.run(arguments).expect(code);
            let told = done.json()["error"].as_str().expect("an error").to_owned();
            assert!(done.stderr.contains(&told), "{told} / {}", done.stderr);
        }
    });
    let world = some_world();
    fs::write(world.config_file(), "{").expect("written");
    assert!(
        world.run(["exec", "a", "--json", "--", "true"]).expect(125).json()["error"].is_string()
    );
    assert!(world.run(["prompt", "a", "--json", "hi"]).expect(78).json()["error"].is_string());
    let events = world.run(["prompt", "a", "--stream-json", "hi"]).expect(78).json();
    assert_eq!(events["type"], "error");
}

#[test]
fn whoever_asks_for_a_document_gets_one_of_a_failure() {
    let world = some_world();
    let check = |arguments: &[&str], code: i32| {
        let done = world.run(arguments).expect(code);
        let told = done.json()["error"].as_str().expect("an error").to_owned();
        assert!(done.stderr.contains(told.lines().next().expect("a line")), "{}", done.stderr);
    };
    check(&["sessions", "show", "--json", "nosuch"], 1);
    check(&["audit", "head", "--json"], 1);
    fs::write(world.config_file(), "{").expect("written");
    check(&["config", "show", "--json"], 78);
    // Nobody asked for one.
    assert!(world.run(["config", "show"]).expect(78).stdout.is_empty());
}

#[test]
fn an_empty_prompt_is_called_by_its_name() {
    crate::support::with_and_without_gateway(|world| {
        for text in ["", " \n"] {
            let told = world.run(["prompt", "a", text]).expect(2).stderr;
            assert!(told.contains("the prompt is empty"), "{told}");
        }
    });
}

#[test]
fn where_there_is_no_sandbox_it_says_so() {
    let world = World::new(crate::support::Runtime::Docker);
    for action in ["list", "rm"] {
        assert_eq!(world.run(["sandbox", action]).expect(0).stderr, "no sandboxes\n");
    }
    assert_eq!(world.run(["sandbox", "list", "--json"]).expect(0).text(), "[]\n");
}

#[test]
fn an_export_goes_to_the_stream_or_to_a_new_file() {
    let world = some_world();
    world.run(["prompt", "a", "--session", "cli:a:x", "hi"]).expect(0);
    let whole = world.run(["sessions", "export", "cli:a:x"]).expect(0).stdout;
    let dash =
        world.beige(["sessions", "export", "cli:a:x", "-"]).current_dir(&world.root).output();
    assert_eq!(Finished::from(dash.expect("it runs")).expect(0).stdout, whole);
    assert!(!world.root.join("-").exists());
    let file = world.root.join("there");
    fs::write(&file, "mine").expect("written");
    let told = world.run(["sessions", "export", "cli:a:x", file.to_str().expect("text")]).expect(1);
    assert!(told.stderr.contains("is not written over"), "{}", told.stderr);
    assert_eq!(fs::read_to_string(&file).expect("readable"), "mine");
}

#[test]
fn a_warning_looks_the_same_everywhere() {
    let world = some_world();
    world.write_config(&world.agent("a", "", ""), "nope: 1,");
    let checked = world.run(["config", "check"]).expect(0).text();
    assert!(checked.contains(": warning: nope: unknown field"), "{checked}");
    let told = world.run(["exec", "a", "--", "true"]).expect(0).stderr;
    assert_eq!(told, checked);
}

#[test]
fn events_say_their_type_first() {
    crate::support::with_and_without_gateway(|world| {
        let events = world.run(["prompt", "a", "--stream-json", "hi"]).expect(0).text();
        assert!(events.lines().all(|it| it.starts_with("{\"type\":")), "{events}");
    });
}

#[test]
fn a_home_that_cannot_be_looked_into_is_told() {
    let world = some_world();
    let file = world.root.join("file");
    fs::write(&file, "").expect("written");
    let below = file.join("h");
    let below = below.to_str().expect("text");
    for arguments in [&["gateway", "status"][..], &["gateway", "stop"]] {
        let done = beige_in(&world, &world.root, below, arguments).expect(1);
        assert!(done.stderr.contains("cannot look into"), "{arguments:?}: {}", done.stderr);
        assert!(done.stdout.is_empty(), "{done:?}");
    }
}
