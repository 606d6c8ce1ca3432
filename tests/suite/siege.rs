//! An agent that works against its own sandbox with what it has in there: it
//! grabs at the processes that serve its calls, kills and stops them, fills what
//! can be filled and hides from a timeout. Its calls end in bounded time with a
//! clear answer, nothing of them lives on, and no other agent notices.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout};

use serde_json::json;

use crate::support::{
    Finished, World, on_each_runtime, on_either_kind, processes_with, read_until, signal,
    wait_until,
};

/// Looks at every newest process as fast as it can, until it is told to stop;
/// says which of tool-client's it could open.
const GRABBER: &str = r#"
import os
print("ready", flush=True)
seen, hits = set(), 0
while not os.path.exists("/workspace/stop"):
    for _ in range(300):
        newest = int(open("/proc/loadavg").read().split()[4])
        for pid in range(newest, newest + 3):
            try:
                held = open(f"/proc/{pid}/mem", "rb")
                if "tool-client" in os.readlink(f"/proc/{pid}/exe"): hits += 1
                held.close()
            except OSError as error: seen.add(error.errno)
print("hits", hits, "tried", 13 in seen)
"#;

#[test]
fn no_process_that_serves_calls_can_be_grabbed_even_as_it_starts() {
    on_each_runtime(|world| {
        world.start_gateway();
        world.sh("true").expect(0);
        fs::write(world.workspace("a").join("grab.py"), GRABBER).expect("written");
        let mut grabber = started(world, "exec python3 grab.py");
        for _ in 0..150 {
            assert!(!world.tool("exec", json!({ "command": "true" })).1);
        }
        fs::write(world.workspace("a").join("stop"), "").expect("written");
        assert_eq!(rest_of(&mut grabber), "hits 0 tried True\n");
    });
}

/// Waits for the moment in which the supervisor begins to kill, then starts
/// one more process that is in no group or session of the others, and kills the
/// supervisor before that can find it.
const HIDER: &str = r#"
import os, sys, signal, time
supervisor, decoy = int(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
def lives():
    try: return open(f"/proc/{decoy}/stat").read().split(") ")[1][0] not in "TZX"
    except OSError: return False
while lives(): pass
os.kill(supervisor, signal.SIGKILL)
os.fork()
time.sleep(300)
"#;

#[test]
fn what_hides_as_the_timeout_strikes_is_gone_when_that_is_told() {
    on_either_kind(|world| {
        world.start_gateway();
        world.sh("true").expect(0);
        fs::write(world.workspace("a").join("hide.py"), HIDER).expect("written");
        let own = number(1);
        for _ in 0..3 {
            let line = format!(
                "for it in $(seq 100); do setsid sleep 300 & done; \
                 sleep 300 & decoy=$!; setsid python3 hide.py $PPID $decoy {own} & sleep 300"
            );
            let done = world.run(["exec", "a", "--timeout", "1", "--", "sh", "-c", &line]);
            let left = processes_with(&own);
            assert_eq!(done.code, 124, "{}", done.stderr);
            assert_eq!(left, [0; 0], "{}", done.stderr);
            assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        }
    });
}

/// Starts processes that are hard to find or to end, and waits.
const ESCAPER: &str = r#"
import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
for it in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(it, signal.SIG_IGN)
def apart(act):
    if os.fork() == 0:
        try: act()
        finally: os._exit(0)
def stays(): time.sleep(300)
def unnamed():
    libc.prctl(15, b"\xff\xfe) Z 1 (\xf0", 0, 0, 0)
    apart(stays); stays()
def twice_forked():
    os.setsid()
    apart(stays)
def middle():
    libc.prctl(36, 1, 0, 0, 0)
    apart(twice_forked); stays()
def without_a_leader():
    threading.Thread(target=stays).start()
    libc.syscall(60 if os.uname().machine == "x86_64" else 93, 0)
def deep():
    for _ in range(30):
        if os.fork(): stays()
    stays()
def forks_on():
    while True:
        if os.fork(): os._exit(0)
        os.setsid(); time.sleep(0.002)
for it in (unnamed, twice_forked, middle, without_a_leader, deep, forks_on): apart(it)
print("ready", flush=True)
stays()
"#;

#[test]
fn nothing_of_a_call_lives_when_its_timeout_is_told() {
    on_each_runtime(|world| {
        world.start_gateway();
        world.sh("true").expect(0);
        fs::write(world.workspace("a").join("escape.py"), ESCAPER).expect("written");
        let own = number(2);
        for seconds in ["0.5", "1"] {
            let line = format!("python3 escape.py {own} & python3 escape.py {own}");
            let done = world.run(["exec", "a", "--timeout", seconds, "--", "sh", "-c", &line]);
            let left = processes_with(&own);
            assert_eq!((done.code, left), (124, vec![]), "{}", done.stderr);
        }
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n");
    });
}

/// Forks for as long as it is let, and ends by itself if nobody ends it.
const BOMB: &str = r#"
import os, time
end = time.time() + 60
print("ready", flush=True)
while time.time() < end:
    try: os.fork()
    except OSError: time.sleep(0.01)
"#;

#[test]
fn under_a_fork_bomb_files_are_served_and_its_timeout_ends_it() {
    on_each_runtime(|world| {
        world.configure(&["a", "b"], "pidsLimit: 64");
        world.start_gateway();
        world.sh("echo there > file").expect(0);
        fs::write(world.workspace("a").join("bomb.py"), BOMB).expect("written");
        let own = number(3);
        let line = format!("for it in $(seq 100); do sleep {own} & done; echo not reached");
        let (text, is_error) = world.tool("exec", json!({ "command": line }));
        assert!(is_error && !text.contains("not reached"), "{text}");
        world.sh("kill -9 -1");
        let bomb = format!("exec python3 bomb.py {own}");
        let mut bomb = started_with(world, &["--timeout", "3"], &bomb);
        for _ in 0..3 {
            let (text, is_error) = world.tool("read", json!({"path": "file"}));
            assert_eq!((text.as_str(), is_error), ("there\n", false));
            let body = json!({"tool": "exec", "params": {"command": "echo $((6*7))"}});
            let reply = world.post("/api/agents/a/exec", &body);
            let text = reply.text();
            let is_told = text.contains("process") || text.contains("fork");
            assert!(text.contains("Exit code: 0\\n42\\n") || is_told, "{text}");
            let reply = world.post("/api/agents/b/exec", &body).json();
            assert_eq!(reply["content"][0]["text"], "Exit code: 0\n42\n", "{reply}");
        }
        rest_of(&mut bomb);
        let left = processes_with(&own);
        assert_eq!((bomb.child.wait().expect("it ended").code(), left), (Some(124), vec![]));
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
    });
}

#[test]
fn a_command_that_kills_all_ends_calls_with_a_clear_error_and_none_is_repeated() {
    on_each_runtime(|world| {
        world.start_gateway();
        let own = number(4);
        world.sh(&format!("sleep {own} >/dev/null 2>&1 &")).expect(0);
        let line = format!("echo x >> count; echo ready; sleep {own}");
        let others: Vec<Started> = (0..4).map(|_| started(world, &line)).collect();
        let done = world.sh("echo x >> count; kill -9 -1; sleep 300").expect(125);
        assert!(done.stderr.contains("it is not repeated"), "{}", done.stderr);
        for mut other in others {
            let done = ended(&mut other);
            assert_eq!(done.code, 125, "{}", done.stderr);
            assert!(done.stderr.contains("it is not repeated"), "{}", done.stderr);
        }
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n");
        assert_eq!(world.sh("cat count").expect(0).text(), "x\n".repeat(5));
        assert_eq!(processes_with(&own), [0; 0]);
    });
}

#[test]
fn a_command_that_stops_all_is_ended_in_time_and_nobody_else() {
    on_either_kind(|world| {
        world.start_gateway();
        let own = number(5);
        let mut other = started(world, "trap 'echo on; exit 3' INT; echo ready; read line");
        let line = format!("(setsid sleep {own} &) ; kill -STOP -1; sleep {own}");
        let done = world.run(["exec", "a", "--timeout", "0.5", "--", "sh", "-c", &line]);
        let left = processes_with(&format!("sleep\0{own}"));
        assert_eq!((done.code, left), (124, vec![]), "{}", done.stderr);
        world.sh("kill -CONT -1").expect(0);
        signal(other.child.id(), "INT");
        assert_eq!(rest_of(&mut other), "on\n");
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n");
    });
}

/// Lets these processes, and what they start, write no file.
const LOWER: &str = "python3 -c 'import resource, sys
for it in sys.argv[1:]: resource.prlimit(int(it), resource.RLIMIT_FSIZE, (0, 0))'";

#[test]
fn a_first_process_whose_limits_were_lowered_is_told_of_once_and_calls_go_on() {
    on_either_kind(|world| {
        let mut gateway = world.gateway_child();
        // Less room for the next supervisor costs nobody a call.
        let spare = format!("{LOWER} $({})", STRIKE.replace("kill -KIND", "echo"));
        for _ in 0..3 {
            world.sh(&spare).expect(0);
            assert_eq!(world.sh(&format!("echo x > file; {ENTRANCE}")).expect(0).text(), "1\n");
        }
        world.sh(&format!("{LOWER} 1")).expect(0);
        let way_out = "`beige sandbox rm a` ends all";
        for call in 1..=5 {
            let done = world.sh(&format!("echo x > file; {ENTRANCE}")).expect(0);
            assert_ne!(done.text(), "1\n");
            let told = world.gateway_log().matches(way_out).count();
            assert_eq!(told, usize::from(call >= 3), "{}", world.gateway_log());
        }
        world.run(["sandbox", "rm", "a"]).expect(0);
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n");
        signal(gateway.id(), "TERM");
        gateway.wait().expect("it ends");
    });
}

/// Sends a signal to every tool-client but PID 1 and its own supervisor.
const STRIKE: &str = "for it in /proc/[0-9]*; do case \"$(cat $it/stat)\" in \
                      \"1 (\"*|\"$PPID (\"*) ;; *\"(tool-client)\"*) kill -KIND ${it#/proc/};; \
                      esac; done; true";

#[test]
fn a_supervisor_that_waits_for_its_call_may_be_killed_or_stopped() {
    on_each_runtime(|world| {
        world.start_gateway();
        for kind in ["KILL", "STOP", "TERM", "SEGV"] {
            for _ in 0..3 {
                world.sh(&STRIKE.replace("KIND", kind)).expect(0);
                assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n", "{kind}");
            }
        }
        // Again and again: calls end, and are right or say what happened.
        let line = format!("echo ready; until [ -e stop ]; do {STRIKE}; done");
        let mut killer = started(world, &line.replace("KIND", "KILL"));
        for _ in 0..10 {
            let done = world.sh("echo on");
            let is_right = done.code == 0 && done.text() == "on\n";
            assert!(is_right || done.code == 125, "{} {}", done.code, done.stderr);
        }
        world.tool("write", json!({"path": "stop", "content": ""}));
        rest_of(&mut killer);
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n");
    });
}

/// Stops every tool-client but PID 1 and its own supervisor, also one that does
/// not run yet, until a file is there.
const STOPPER: &str = r#"
import os, sys
print("ready", flush=True)
def strike(it):
    try:
        stat = open(f"/proc/{it}/stat").read()
        if "(tool-client)" in stat and stat.split(") ")[1][0] not in "TZ": os.kill(int(it), 19)
    except OSError: pass
while not os.path.exists("go"):
    for it in os.listdir("/proc"):
        if it.isdigit() and it not in ("1", sys.argv[1]): strike(it)
"#;

#[test]
fn who_stops_what_is_being_started_holds_no_sandbox() {
    on_either_kind(|world| {
        world.start_gateway();
        world.sh("true").expect(0);
        fs::write(world.workspace("a").join("stop.py"), STOPPER).expect("written");
        let mut stopper = started(world, "exec python3 stop.py $PPID");
        // Each makes the resident start the next supervisor.
        for _ in 0..5 {
            let done = world.run(["exec", "a", "--timeout", "1", "--", "true"]);
            assert!([0, 124, 125].contains(&done.code), "{} {}", done.code, done.stderr);
        }
        // One that is stopped with its call in its hand is woken.
        let victim = world.spawn(["exec", "a", "--", "sh", "-c", ENTRANCE]);
        for _ in 0..20 {
            world.tool("read", json!({"path": "stop.py"}));
        }
        world.tool("write", json!({"path": "go", "content": ""}));
        rest_of(&mut stopper);
        let done = victim.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&done.stdout), "1\n");
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n");
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n");
    });
}

#[test]
fn the_file_tools_open_nothing_that_is_the_residents_own() {
    on_each_runtime(|world| {
        world.start_gateway();
        let own = [
            "/proc/1/root/workspace/AGENTS.md",
            "/proc/self/root/workspace/AGENTS.md",
            "/proc/thread-self/root/workspace/AGENTS.md",
            "/proc/self/cwd/AGENTS.md",
            "/proc/1/fd/0",
            "/proc/self/fd/0",
            "/proc/self/fd/3",
            "/proc/self/fd/6",
            "/dev/fd/3",
            "/dev/stdin",
            "/proc/1/mem",
            "/proc/self/mem",
            "/proc/self/maps",
            "/proc/1/environ",
            "/proc/self/environ",
            "/proc/1/exe",
            "/proc/self/exe",
            "/proc/self/task/1/mem",
            "/proc/self/oom_score_adj",
            "/proc/self/attr/current",
        ];
        let places = ["/workspace", "/tmp", "/dev/shm"];
        for (number, path) in own.iter().enumerate() {
            let mut names = vec![(*path).to_owned()];
            let (place, parent) = (places[number % 3], path.rsplit_once('/').expect("a path"));
            let line = format!(
                "ln -s {path} {place}/to-{number}; ln -s {} {place}/in-{number}; \
                 ln -s {place}/to-{number} {place}/over-{number}",
                parent.0
            );
            world.tool("exec", json!({ "command": line }));
            names.push(format!("{place}/to-{number}"));
            names.push(format!("{place}/over-{number}"));
            names.push(format!("{place}/in-{number}/{}", parent.1));
            for name in names {
                for (tool, params) in [
                    ("read", json!({ "path": name })),
                    ("write", json!({ "path": name, "content": "x" })),
                    ("patch", json!({ "path": name, "oldText": "a", "newText": "x" })),
                ] {
                    let (text, is_error) = world.tool(tool, params);
                    assert!(is_error, "{tool} {name} ({path}): {text:.200}");
                }
            }
        }
        let (text, _) = world.tool("read", json!({"path": "AGENTS.md"}));
        assert!(text.contains("sandbox"), "{text}");
    });
}

#[test]
fn a_hundred_commands_end_with_a_killed_gateway_and_what_was_left_lives() {
    on_each_runtime(|world| {
        let mut gateway = world.gateway_child();
        let (left, own) = (number(6), number(7));
        world.sh(&format!("sleep {left} >/dev/null 2>&1 &")).expect(0);
        let runs = |number: &str| processes_with(&format!("sleep\0{number}")).len();
        let line = format!("(setsid sleep {own} &) ; exec sleep {own}");
        let calls: Vec<TcpStream> = (0..100).map(|_| asked(world, &line)).collect();
        wait_until("all hundred run", || runs(&own) == 200);
        signal(gateway.id(), "KILL");
        gateway.wait().expect("it ends");
        drop(calls);
        wait_until("all hundred trees are gone", || runs(&own) == 0);
        assert_eq!(runs(&left), 1);
        let mut gateway = world.gateway_child();
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n");
        assert_eq!(runs(&left), 1);
        signal(gateway.id(), "TERM");
        gateway.wait().expect("it ends");
    });
}

/// Takes every inotify instance that its user may have, and holds them.
const WATCHER: &str = r#"
import ctypes, time
libc = ctypes.CDLL(None)
while libc.inotify_init() >= 0: pass
print("ready", flush=True)
time.sleep(300)
"#;

#[test]
fn an_agent_that_takes_all_watches_leaves_another_its_link() {
    on_each_runtime(|world| {
        world.configure(&["a", "b"], "");
        world.start_gateway();
        world.sh("true").expect(0);
        fs::write(world.workspace("a").join("watch.py"), WATCHER).expect("written");
        let mut watcher = started(world, "ulimit -n $(ulimit -Hn); exec python3 watch.py");
        for _ in 0..2 {
            let done = world.run(["exec", "b", "--", "sh", "-c", ENTRANCE]).expect(0);
            assert_eq!(done.text(), "1\n");
        }
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "1\n");
        end(&mut watcher);
    });
}

/// Holds as many connections to the socket of supervisors from outside as can
/// be had, and tries to have the name for itself.
const KNOCKER: &str = r#"
import socket, time
held = []
for _ in range(600):
    it = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    it.setblocking(False)
    try:
        it.connect("\0beige-init")
        it.send(b"ok\n1\n")
    except OSError: pass
    held.append(it)
squat = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
try:
    squat.bind("\0beige-init"); squat.listen()
    print("ready: squatted", flush=True)
except OSError: print("ready: taken", flush=True)
time.sleep(300)
"#;

#[test]
fn a_crowd_at_the_socket_of_supervisors_keeps_nobody_out() {
    on_each_runtime(|world| {
        // The other has no such socket, since its network may be the host's.
        if !world.runtime.makes_containers() {
            return;
        }
        world.start_gateway();
        // Before any call: supervisors come from outside then.
        fs::remove_file(world.home().join("sockets/a/link.sock")).expect("it is there");
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "0\n");
        fs::write(world.workspace("a").join("knock.py"), KNOCKER).expect("written");
        let mut knocker = started(world, "ulimit -n 1024; exec python3 knock.py");
        let own = number(8);
        let done =
            world.sh(&format!("{ENTRANCE}; (setsid sleep {own} &) ; kill -9 $PPID; sleep 9"));
        assert_eq!(done.code, 125, "{}", done.stderr);
        wait_until("nothing of it is left", || processes_with(&own).is_empty());
        assert_eq!(world.sh(ENTRANCE).expect(0).text(), "0\n");
        end(&mut knocker);
    });
}

#[test]
fn memory_that_is_filled_for_good_is_told_and_the_sandbox_comes_back() {
    on_each_runtime(|world| {
        world.configure(&["a", "b"], "memoryLimit: '64m'");
        world.start_gateway();
        let fill = "for it in 1 2 3 4; do head -c 40000000 /dev/zero > /dev/shm/$it; done; \
                    x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}";
        let done = world.sh(fill);
        assert!(done.code != 0, "{done:?}");
        let body = json!({"tool": "exec", "params": {"command": "echo $((6*7))"}});
        let reply = world.post("/api/agents/b/exec", &body).json();
        assert_eq!(reply["content"][0]["text"], "Exit code: 0\n42\n", "{reply}");
        // Calls that find no memory may fail: the kernel kills what it likes,
        // and that it killed the first process all hear of.
        wait_until("a call finds memory", || world.sh("rm -f /dev/shm/*").code == 0);
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
    });
}

/// Prints the parent of the command's supervisor: 1, the resident, over the
/// link; 0, none that is seen in there, by a program of the runtime.
const ENTRANCE: &str = "cut -d' ' -f4 /proc/$PPID/stat";

/// A number that only one test of one run has.
fn number(test: u32) -> String {
    format!("8{test}{:07}", std::process::id())
}

/// A connection on which the gateway was asked to run that: it takes more of
/// them than `beige exec` may use.
#[track_caller]
fn asked(world: &World, line: &str) -> TcpStream {
    let address = world.address();
    let token = fs::read_to_string(world.home().join("api-token")).expect("a token");
    let body = json!({"tool": "exec", "params": {"command": line, "timeout": 120}}).to_string();
    let mut stream = TcpStream::connect(&address).expect("it listens");
    let head = format!(
        "POST /api/agents/a/exec HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        token.trim(),
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).expect("written");
    stream
}

/// A line that has said `ready`.
#[track_caller]
fn started(world: &World, line: &str) -> Started {
    started_with(world, &[], line)
}

#[track_caller]
fn started_with(world: &World, flags: &[&str], line: &str) -> Started {
    let mut child = world.spawn(["exec", "a"].iter().chain(flags).chain(&["--", "sh", "-c", line]));
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    read_until(&mut output, "ready");
    Started { child, output }
}

/// A command that runs.
struct Started {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How it ended, and what it complained of.
#[track_caller]
fn ended(started: &mut Started) -> Finished {
    let mut stderr = String::new();
    started.child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
    let code = started.child.wait().expect("it ends").code().unwrap_or(-1);
    Finished { code, stdout: Vec::new(), stderr }
}

/// What it still says to its end.
fn rest_of(started: &mut Started) -> String {
    let mut text = String::new();
    started.output.read_to_string(&mut text).expect("text");
    started.child.wait().expect("it ends");
    text
}

/// Ends it, as its caller may.
fn end(started: &mut Started) {
    signal(started.child.id(), "TERM");
    signal(started.child.id(), "TERM");
    started.child.wait().expect("it ends");
}
