//! How a call ends before its program does, and that nothing of it stays.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;

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
    assert_eq!(output, Output { text, exit_code: 124, truncated: false });
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
        let name = "plugin::run::tests::ended::calls_leave_no_descriptor_and_no_child";
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
