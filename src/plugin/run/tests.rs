//! Tests of calls, with real processes.

mod notes;

use std::collections::BTreeMap;
use std::fs;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

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
    let want = Output::of(text, exit_code);
    assert_eq!(run(&tool(script), &[]).map_err(|it| it.to_string()), Ok(want), "{script}");
}

#[track_caller]
fn check_refused(args: &[&str], kind: Kind, text: &str) {
    let scratch = Scratch::new();
    let witness = scratch.path().join("ran");
    let refused = run(&tool(&format!("touch {}", witness.display())), args).err();
    let refused = refused.map(|it| (it.kind(), it.to_string()));
    assert_eq!(refused, Some((kind, text.to_owned())));
    assert!(!witness.exists());
}

/// A number that no other process of the machine has as an argument.
fn unique_seconds() -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("300.{}{count:03}", std::process::id())
}

/// How many living processes have this argument.
fn living(argument: &str) -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let has = |it: Vec<u8>| it.split(|it| *it == 0).any(|it| it == argument.as_bytes());
    processes.filter(|it| fs::read(it.path().join("cmdline")).is_ok_and(has)).count()
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

#[test]
fn only_listed_flags_are_taken_and_nothing_runs_else() {
    let check = |flags: &[&str], args: &[&str], want: Option<&str>| {
        let flags: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
        let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(refused_flag(Some(&flags), &args), want, "{flags:?} {args:?}");
    };
    check(&[], &["status", "a-b", ""], None);
    check(&["-s", "--depth"], &["-s", "--depth=1", "--depth", "1"], None);
    check(&["--depth"], &["--dept"], Some("--dept"));
    check(&["--depth"], &["--upload-pack=id"], Some("--upload-pack=id"));
    check(&["-a", "-b"], &["-ab"], Some("-ab"));
    check(&["-o"], &["-o/etc/passwd"], Some("-o/etc/passwd"));
    check(&[], &["-"], Some("-"));
    check(&[], &["--"], Some("--"));
    check(&["--"], &["--", "--exec=id"], Some("--exec=id"));
    check(&["--"], &["--", "file"], None);
    check(&["--"], &["--=x"], None);
    assert_eq!(refused_flag(None, &["--anything".to_owned()]), None);
}

#[test]
fn a_refused_flag_is_exit_2_and_nothing_ran() -> Result<()> {
    let scratch = Scratch::new();
    let witness = scratch.path().join("ran");
    let mut tool = tool(&format!("touch {}", witness.display()));
    run_of(&mut tool).flags = Some(vec!["-s".into(), "--".into()]);
    let output = run(&tool, &["log", "--output=x"])?;
    let text = "`p` does not take \"--output=x\": allowed are -s, --\n".to_owned();
    assert_eq!(output, Output::of(text, 2));
    assert!(!witness.exists());
    Ok(())
}

#[test]
fn nul_and_too_many_bytes_are_refused() {
    check_refused(&["a\0b"], Kind::Usage, "an argument cannot hold a NUL byte");
    let part = "x".repeat(100_000);
    check_refused(
        &[&*part; 11],
        Kind::TooLarge,
        "the arguments are longer than 1 MiB; long text can come on standard input",
    );
    check_refused(
        &[&"x".repeat(128 * 1024)],
        Kind::TooLarge,
        "an argument is longer than 128 KiB; long text can come on standard input",
    );
}

#[test]
fn a_megabyte_of_arguments_is_taken() -> Result<()> {
    let part = "x".repeat(100_000);
    let output = run(&tool("echo $#"), &[&*part; 10])?;
    assert_eq!(output.text, "10\n");
    Ok(())
}

#[test]
fn a_configuration_that_cannot_be_passed_is_named() {
    let config = json!({"long": "x".repeat(128 * 1024)});
    let request = RunCall {
        args: &[],
        stdin: None,
        context: context(),
        config: &config,
        redactor: &Redactor::new(),
    };
    let asker = Asker { cancel: &Cancel::never(), line: None };
    let refused = call(&tool("true"), &request, asker, MAX_OUTPUT).err();
    assert_eq!(
        refused.map(|it| it.to_string()).as_deref(),
        Some("BEIGE_CONTEXT is longer than 128 KiB, and Linux passes on no more")
    );
}

#[test]
fn a_program_that_cannot_start_is_a_clear_error() {
    let check = |program: Program, want: &str| {
        // A folder of PATH that may not be read would hide what is missing.
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let mut broken = tool("");
        *run_of(&mut broken) = Run { program, env, args: Vec::new(), flags: None };
        let failed = run(&broken, &[]).err().map(|it| it.to_string());
        assert_eq!(failed, Some(format!("run the tool `p`: {want}")));
    };
    let scratch = Scratch::new();
    let not_there = "its program, the interpreter named in the program's first line, or the plugin's folder \
         is not there";
    check(Program::OnPath("beige-no-such-program".into()), not_there);
    let script = scratch.path().join("no-interpreter");
    // Written by a child: a process that a test beside this one starts would
    // otherwise hold it open for writing for a moment.
    let write = format!("echo '#!/no/such' > {0}; chmod +x {0}", script.display());
    assert!(run(&tool(&write), &[]).is_ok_and(|it| it.exit_code == 0));
    check(Program::Inside(script), not_there);
    let plain = scratch.write("plain", "");
    check(
        Program::Inside(plain),
        "its program may not be executed, or a folder of PATH not be read",
    );
}

#[test]
fn a_timeout_kills_the_whole_tree() -> Result<()> {
    let seconds = unique_seconds();
    let script = format!(
        "echo begun; sleep {seconds} & setsid sleep {seconds} & \
         sh -c 'setsid sh -c \"sleep {seconds}; :\"; :' & sleep {seconds}"
    );
    let mut tool = tool(&script);
    tool.timeout = Duration::from_secs(1);
    let output = run(&tool, &[])?;
    let text = "begun\ntimed out after 1 s\n".to_owned();
    assert_eq!(output, Output::of(text, 124));
    assert_eq!(living(&seconds), 0);
    Ok(())
}

#[test]
fn a_timeout_is_not_put_off_by_a_flood_of_output() -> Result<()> {
    let mut tool = tool("trap '' TERM; yes");
    tool.timeout = Duration::from_secs(1);
    let output = run(&tool, &[])?;
    assert_eq!((output.exit_code, output.truncated), (124, true));
    Ok(())
}

#[test]
fn a_cancelled_call_kills_the_whole_tree() {
    let seconds = unique_seconds();
    let scratch = Scratch::new();
    let fifo = scratch.path().join("begun");
    assert!(Command::new("mkfifo").arg(&fifo).status().is_ok_and(|it| it.success()));
    let script = format!("setsid sleep {seconds} & echo > {}; sleep {seconds}", fifo.display());
    let (canceller, cancel) = Cancel::pair();
    let failed = std::thread::scope(|scope| {
        let call = scope.spawn(|| run_with(&tool(&script), &[], None, &cancel).err());
        // Returns once the script has got so far.
        let begun = fs::read(&fifo).is_ok();
        canceller.cancel();
        assert!(begun);
        call.join().ok().flatten()
    });
    assert_eq!(failed.map(|it| it.kind()), Some(Kind::Cancelled));
    assert_eq!(living(&seconds), 0);
}

/// What comes of a call whose asker does so.
fn after(script: &str, act: impl FnOnce(UnixStream)) -> Result<Output> {
    let (line, asker) = UnixStream::pair().during(Kind::Internal, "make a pair")?;
    act(asker);
    let request = RunCall {
        args: &[],
        stdin: None,
        context: context(),
        config: &Value::Null,
        redactor: &Redactor::new(),
    };
    let asker = Asker { cancel: &Cancel::never(), line: Some(line.as_fd()) };
    call(&tool(script), &request, asker, MAX_OUTPUT)
}

#[test]
fn a_call_ends_with_its_asker_and_not_with_half_of_it() -> Result<()> {
    let failed = after("sleep 300", drop).err();
    assert_eq!(failed.map(|it| it.kind()), Some(Kind::Cancelled));
    let mut held = None;
    let half = |asker: UnixStream| {
        let _ = asker.shutdown(Shutdown::Write);
        held = Some(asker);
    };
    assert_eq!(after("echo done", half)?.text, "done\n");
    assert!(held.is_some());
    Ok(())
}

#[test]
fn a_call_that_is_cancelled_before_it_begins_ends_at_once() {
    let (canceller, cancel) = Cancel::pair();
    canceller.cancel();
    let failed = run_with(&tool("sleep 300"), &[], Some("x"), &cancel).err();
    assert_eq!(failed.map(|it| it.kind()), Some(Kind::Cancelled));
}

#[test]
fn a_grandchild_that_holds_the_pipe_does_not_hold_the_call() -> Result<()> {
    let begun = Instant::now();
    let output = run(&tool("sleep 20 & echo $!; echo hi"), &[])?;
    let took = begun.elapsed();
    let (pid, text) = output.text.split_once('\n').unwrap_or_default();
    assert_eq!((text, output.exit_code), ("hi\n", 0));
    // Far below the 20 seconds of the grandchild, far above any slow machine.
    assert!(took < Duration::from_secs(10), "{took:?}");
    let _ = Command::new("kill").arg(pid).status();
    Ok(())
}

/// Alone in a process of its own, since other tests have descriptors and
/// children as well.
#[test]
fn calls_leave_no_descriptor_and_no_child() -> Result<()> {
    const ALONE: &str = "BEIGE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "plugin::run::tests::calls_leave_no_descriptor_and_no_child";
        let program = std::env::current_exe().unwrap_or_default();
        let alone = Command::new(program).args(["--exact", name]).env(ALONE, "1").output();
        let alone = alone.map(|it| (it.status.success(), it.stdout));
        let passed = |it: &[u8]| String::from_utf8_lossy(it).contains("1 passed");
        assert!(alone.as_ref().is_ok_and(|(sound, text)| *sound && passed(text)), "{alone:?}");
        return Ok(());
    }
    let count = || fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(0);
    let before = count();
    let mut slow = tool("sleep 300");
    slow.timeout = Duration::ZERO;
    for _ in 0..50 {
        assert_eq!(run(&tool("exit 3"), &[])?.exit_code, 3);
        assert_eq!(run(&slow, &[])?.exit_code, 124);
        assert!(run(&Tool { folder: "/nowhere".into(), ..tool("") }, &[]).is_err());
    }
    assert_eq!(count(), before);
    let children = Command::new("ps")
        .args(["-o", "pid=", "--ppid", &std::process::id().to_string()])
        .output()
        .map(|it| String::from_utf8_lossy(&it.stdout).lines().count());
    // `ps` itself is one.
    assert_eq!(children.ok(), Some(1));
    Ok(())
}
