//! `--run` as the gateway uses it, on this host: every promise about how a
//! command ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Scratch, Talk, Told};
use tool_client::frame;

/// A request that works on any host.
fn request(argv: &[&str]) -> Value {
    json!({
        "argv": argv, "cwd": "/", "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        "timeoutMs": 60_000,
    })
}

fn sh(script: &str) -> Value {
    request(&["/bin/sh", "-c", script])
}

fn run(request: &Value) -> Told {
    let mut talk = Talk::ask("--run", request);
    talk.send(frame::STDIN_END, b"");
    talk.end()
}

/// Processes with the mark as an argument.
fn with_mark(mark: &str) -> Vec<i32> {
    let marked = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|it| *it == 0).any(|it| it == mark.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.filter(marked).collect()
}

fn marked(mark: &str) -> usize {
    with_mark(mark).len()
}

/// Ends what a test has left behind on purpose.
fn end_marked(mark: &str) {
    for pid in with_mark(mark) {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// A number of seconds to sleep that no other test uses.
fn mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("300.{:07}{number:02}", std::process::id())
}

#[track_caller]
fn check(request: &Value, stdout: &str, stderr: &str, code: i64) {
    let told = run(request);
    assert_eq!(String::from_utf8_lossy(&told.stdout), stdout);
    assert_eq!(String::from_utf8_lossy(&told.stderr), stderr);
    assert_eq!(told.exit["exitCode"], code, "{}", told.exit);
    assert_eq!(told.exit["stdoutBytes"], stdout.len());
    assert_eq!(told.exit["stderrBytes"], stderr.len());
    assert_eq!(told.exit["timedOut"], false);
    assert_eq!(told.exit["cancelled"], false);
}

#[test]
fn a_name_too_long_to_be_quoted_still_gets_its_report() {
    for name in ["n".repeat(3_000_000), "\u{1}那".repeat(400_000)] {
        let told = run(&request(&[&name]));
        assert!(told.exit["exitCode"].as_i64().is_some_and(|it| it > 125), "{}", told.exit);
        let why = told.exit["startError"].as_str().expect("a reason");
        assert!(why.starts_with("cannot run ") && why.len() < 5_000, "{} bytes", why.len());
    }
    let folder = format!("/{}", "d".repeat(1_000_000));
    let mut elsewhere = request(&["true"]);
    elsewhere["cwd"] = folder.into();
    assert_eq!(run(&elsewhere).exit["exitCode"], 126);
    let mut odd = request(&["true"]);
    odd["env"] = json!({ format!("{}=", "e".repeat(1_000_000)): "" });
    let wrong = run(&odd).exit["error"].as_str().expect("a reason").to_owned();
    assert!(wrong.starts_with("`env` holds the name"), "{wrong}");
}

#[test]
fn arguments_arrive_as_they_are() {
    check(
        &request(&["printf", "[%s]", "a b", "", "it's", "--", "\n", "$HOME"]),
        "[a b][][it's][--][\n][$HOME]",
        "",
        0,
    );
    let mut bytes = request(&["printf", "%s"]);
    bytes["argv"].as_array_mut().unwrap().push(json!([104, 255]));
    let told = run(&bytes);
    assert_eq!(told.stdout, b"h\xff");
}

#[test]
fn the_streams_stay_apart_and_the_code_is_the_commands() {
    check(&sh("echo out; echo err >&2; exit 3"), "out\n", "err\n", 3);
    check(&sh("exit 0"), "", "", 0);
    check(&sh("kill -9 $$"), "", "", 137);
    check(&sh("kill -TERM $$"), "", "", 143);
}

#[test]
fn the_environment_is_the_requests_and_nothing_else() {
    let mut it = request(&["/usr/bin/env"]);
    it["env"] = json!({"A": "1", "B": "x y"});
    check(&it, "A=1\nB=x y\n", "", 0);
}

#[track_caller]
fn not_started(request: &Value, code: i64, why: &str) {
    let told = run(request);
    assert_eq!(told.exit["exitCode"], code, "{}", told.exit);
    let text = told.exit["startError"].as_str().unwrap_or_default();
    assert!(text.contains(why), "{text}");
}

#[test]
fn what_cannot_be_started_says_so_with_the_shells_codes() {
    let scratch = Scratch::new();
    let file = |name: &str, text: &str, mode| {
        use std::os::unix::fs::PermissionsExt;
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_string_lossy().into_owned()
    };
    not_started(&request(&["no-such-program"]), 127, "command not found");
    not_started(&request(&["/no/such/program"]), 127, "No such file");
    not_started(&request(&[""]), 127, "empty");
    not_started(&request(&["/usr"]), 126, "a folder");
    not_started(&request(&[&file("plain", "x", 0o644)]), 126, "permission denied");
    not_started(&request(&[&file("odd", "#!/no/such\n", 0o755)]), 127, "interpreter");
    let mut elsewhere = request(&["true"]);
    elsewhere["cwd"] = json!("/no/such/folder");
    not_started(&elsewhere, 126, "/no/such/folder");
    check(&request(&[&file("bare", "echo bare $1", 0o755), "x"]), "bare x\n", "", 0);
}

#[test]
fn input_arrives_and_a_command_that_does_not_read_it_ends() {
    let mut talk = Talk::ask("--run", &request(&["cat"]));
    talk.send(frame::STDIN, "那".as_bytes());
    talk.send(frame::STDIN_END, b"");
    let told = talk.end();
    assert_eq!(told.stdout, "那".as_bytes());
    assert_eq!(told.granted, 3);

    let mut talk = Talk::ask("--run", &sh("exec 0<&-; sleep 0.2; echo done"));
    talk.send(frame::STDIN, &vec![b'x'; frame::WINDOW_START as usize]);
    talk.send(frame::STDIN_END, b"");
    let told = talk.end();
    assert_eq!(told.stdout, b"done\n");
}

#[test]
fn a_hundred_megabytes_go_through_with_flat_memory() {
    const PIECES: usize = 6400;
    let mut talk = Talk::ask("--run", &request(&["cat"]));
    let status = format!("/proc/{}/status", talk.child.id());
    let mut sender = talk.to.take().expect("open");
    let (grants, granted) = std::sync::mpsc::channel::<usize>();
    let feeder = std::thread::spawn(move || {
        let mut window = frame::WINDOW_START as usize;
        for piece in 0..PIECES {
            let bytes = vec![u8::try_from(piece % 251).unwrap(); 16 * 1024];
            while window < bytes.len() {
                window += granted.recv().expect("a grant");
            }
            window -= bytes.len();
            frame::write(&mut sender, frame::STDIN, &bytes).unwrap();
        }
        frame::write(&mut sender, frame::STDIN_END, b"").unwrap();
        sender
    });
    let mut got = 0;
    let mut peak = String::new();
    let exit: Value = loop {
        let frame = talk.next().expect("a frame");
        match frame.kind {
            frame::STDOUT => {
                for byte in frame.payload {
                    assert_eq!(usize::from(byte), (got / (16 * 1024)) % 251);
                    got += 1;
                }
            }
            frame::WINDOW => {
                let bytes = frame.payload.try_into().unwrap();
                let _ = grants.send(u32::from_be_bytes(bytes) as usize);
            }
            frame::EXIT => break serde_json::from_slice(&frame.payload).unwrap(),
            it => panic!("{it}"),
        }
        if got > 90_000_000 && peak.is_empty() {
            peak = std::fs::read_to_string(&status).unwrap_or_default();
        }
    };
    drop(feeder.join());
    assert_eq!(got, PIECES * 16 * 1024);
    assert_eq!(exit["exitCode"], 0);
    let peak = peak.lines().find_map(|it| it.strip_prefix("VmHWM:")).expect("a peak");
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 16 * 1024, "{kilobytes} kB");
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let script = "trap 'echo caught; exit 7' INT; echo up; while :; do sleep 0.01; done";
    let mut talk = Talk::ask("--run", &sh(script));
    talk.until_output("up");
    talk.send(frame::SIGNAL, &[2]);
    let told = talk.end();
    assert_eq!(told.stdout, b"caught\n");
    assert_eq!(told.exit["exitCode"], 7);
}

#[test]
fn a_background_child_that_holds_the_pipe_does_not_hold_the_call() {
    let mark = mark();
    let began = Instant::now();
    let told = run(&sh(&format!("sleep {mark} & echo hi")));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(told.stdout, b"hi\n");
    assert_eq!(told.exit["exitCode"], 0);
    assert_eq!(told.exit["left"], 1);
    assert_eq!(marked(&mark), 1, "it lives on");
    end_marked(&mark);
}

/// Starts the script, ends the call in the way given once it says `up`, and
/// looks that nothing with the mark is left.
#[track_caller]
fn killed(script: &str, end: impl Fn(&mut Talk)) -> Told {
    let mark = mark();
    let script = script.replace("MARK", &mark);
    let mut talk = Talk::ask("--run", &sh(&script));
    talk.until_output("up");
    end(&mut talk);
    let told = talk.end();
    assert_eq!(marked(&mark), 0, "{script}");
    assert_eq!(told.exit["cancelled"], true, "{}", told.exit);
    assert_eq!(told.exit["left"], 0, "{}", told.exit);
    assert_eq!(told.exit["notKilled"], Value::Null);
    assert_eq!(told.exit["exitCode"], 137);
    told
}

fn cancel(talk: &mut Talk) {
    talk.send(frame::CANCEL, b"");
}

#[test]
fn cancel_leaves_nothing_of_any_tree() {
    killed("sleep MARK & setsid sleep MARK & echo up; sleep MARK", cancel);
    killed("(setsid sh -c 'sleep MARK & sleep MARK & wait' &) ; echo up; sleep MARK", cancel);
    killed("trap '' TERM HUP INT; sleep MARK & echo up; while :; do sleep MARK; done", cancel);
    killed("(sleep MARK &) ; (setsid sleep MARK &); echo up; exec sleep MARK", cancel);
    killed(
        "f() { sleep MARK & while :; do sleep MARK & sleep 0.01; done; }; f & echo up; wait",
        cancel,
    );
}

#[test]
fn hanging_up_kills_like_a_cancel() {
    killed("sleep MARK & setsid sleep MARK & echo up; sleep MARK", Talk::hang_up);
}

#[test]
fn a_timeout_kills_the_tree_and_says_so() {
    let mark = mark();
    let mut it = sh(&format!("echo begun; sleep {mark} & setsid sleep {mark} & sleep {mark}"));
    it["timeoutMs"] = json!(300);
    let told = run(&it);
    assert_eq!(told.stdout, b"begun\n");
    assert_eq!(told.exit["exitCode"], 124);
    assert_eq!(told.exit["timedOut"], true);
    assert_eq!(told.exit["left"], 0);
    assert_eq!(marked(&mark), 0);
}

/// Forks for ever without growing in number, so that the test harms nobody:
/// each process lives just long enough to start the next one.
#[test]
fn processes_that_hop_from_fork_to_fork_are_caught() {
    let hop =
        "hop() { (hop &) ; }; hop & hop & hop & hop & setsid sleep MARK & echo up; sleep MARK";
    killed(hop, cancel);
}

/// Looks again and again, ten seconds at most.
#[track_caller]
fn wait_until(mut it: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !it() {
        assert!(Instant::now() < until, "it did not come about");
        std::thread::yield_now();
    }
}

#[test]
fn output_that_nobody_reads_does_not_hold_up_a_cancel() {
    let mark = mark();
    let mut talk = Talk::ask("--run", &sh(&format!("sleep {mark} & yes")));
    // Half a pipe that nobody empties: the rest of the buffers fills by itself.
    let full = || rustix::io::ioctl_fionread(&talk.from).is_ok_and(|it| it >= 32 * 1024);
    wait_until(full);
    talk.send(frame::CANCEL, b"");
    wait_until(|| marked(&mark) == 0);
    assert_eq!(marked(&mark), 0, "killed before anything was read");
    let told = talk.end();
    assert_eq!(told.exit["cancelled"], true);
    assert!(told.stdout.len() as u64 <= told.exit["stdoutBytes"].as_u64().unwrap());
}

#[test]
fn a_reader_that_leaves_ends_the_command() {
    let mark = mark();
    let mut talk = Talk::ask("--run", &sh(&format!("sleep {mark} & echo up; sleep {mark}")));
    talk.until_output("up");
    let Talk { mut child, to, from } = talk;
    drop(from);
    assert!(child.wait().is_ok());
    assert_eq!(marked(&mark), 0);
    drop(to);
}

#[track_caller]
fn refused(bytes: &[u8], why: &str) {
    let mut talk = Talk::open("--run");
    talk.try_send(bytes);
    talk.hang_up();
    let told = talk.end();
    let error = told.exit["error"].as_str().unwrap_or_default();
    assert!(error.contains(why), "{}", told.exit);
    assert_eq!(told.exit["exitCode"], Value::Null);
}

fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, kind, payload).unwrap();
    bytes
}

#[test]
fn what_is_no_request_is_refused_and_nothing_runs() {
    refused(&framed(frame::REQUEST, b"{}"), "`argv`");
    refused(&framed(frame::REQUEST, b"\xff"), "not JSON");
    refused(&framed(frame::STDIN, b"x"), "before a request");
    refused(&framed(99, b""), "before a request");
    refused(&[0, 0xff, 0xff, 0xff, 0xff], "over 64 KiB");
}

#[track_caller]
fn broken(bytes: &[u8], why: &str) {
    let mark = mark();
    let mut talk = Talk::ask("--run", &sh(&format!("echo up; sleep {mark}")));
    talk.until_output("up");
    talk.try_send(bytes);
    let told = talk.end();
    assert!(told.exit["error"].as_str().is_some_and(|it| it.contains(why)), "{}", told.exit);
    assert_eq!(marked(&mark), 0);
}

#[test]
fn frames_that_make_no_sense_end_the_command() {
    broken(&framed(99, b""), "kind 99");
    broken(&framed(frame::REQUEST, b"{}"), "kind 0");
    broken(&framed(frame::SIGNAL, b""), "kind 3");
    broken(&framed(frame::SIGNAL, &[0]), "no signal 0");
    broken(&framed(frame::SIGNAL, &[200]), "no signal 200");
    broken(&[1, 0xff, 0xff, 0xff, 0xff], "over 64 KiB");
    broken(&framed(frame::STDIN, &vec![0; 64 * 1024]), "window");
    broken(&[framed(frame::STDIN_END, b""), framed(frame::STDIN, b"x")].concat(), "after its end");
}

#[test]
fn large_output_is_saved_whole_and_in_order() {
    let scratch = Scratch::new();
    let mut it = sh("echo first; echo second >&2; head -c 3000 /dev/zero | tr '\\0' x");
    it["workspace"] = json!(scratch.path());
    it["save"] = json!({"above": 1000, "cap": 2000, "keep": 5});
    let told = run(&it);
    let saved = told.exit["saved"].as_str().unwrap_or_default();
    assert!(saved.starts_with(scratch.path().join(".beige/outputs").to_str().unwrap()));
    assert_eq!(std::fs::read(saved).unwrap().len(), 2000);
    assert_eq!(told.stdout.len(), 3006);

    it["argv"] = json!(["echo", "small"]);
    assert_eq!(run(&it).exit["saved"], Value::Null);
}

#[test]
fn limits_hold_for_the_command() {
    let mut it = sh("ulimit -c; ulimit -u 2>/dev/null || ulimit -p; ulimit -d");
    it["limits"] = json!({"processes": 777, "dataBytes": 1_048_576_000});
    let told = run(&it);
    assert_eq!(String::from_utf8_lossy(&told.stdout), "0\n777\n1024000\n");
}

#[test]
fn two_hundred_orphans_leave_no_zombie() {
    let told = run(&sh("i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done; sleep 0.1"));
    assert_eq!(told.exit["left"], 0);
}
