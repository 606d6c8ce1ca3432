//! An agent that works against its own sandbox with what it has in there: it
//! grabs at the processes that serve its calls, kills and stops them, fills what
//! can be filled and hides from a timeout. Its calls end in bounded time with a
//! clear answer, nothing of them lives on, and no other agent notices.

use std::fs;
use std::io::{BufReader, Read};
use std::process::{Child, ChildStdout};

use serde_json::json;

use crate::support::{World, on_each_runtime, on_either_kind, processes_with, read_until};

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

/// A number that only one test of one run has.
fn number(test: u32) -> String {
    format!("8{test}{:07}", std::process::id())
}

/// A line that has said `ready`.
#[track_caller]
fn started(world: &World, line: &str) -> Started {
    let mut child = world.spawn(["exec", "a", "--", "sh", "-c", line]);
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    read_until(&mut output, "ready");
    Started { child, output }
}

/// A command that runs.
struct Started {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// What it still says to its end.
fn rest_of(started: &mut Started) -> String {
    let mut text = String::new();
    started.output.read_to_string(&mut text).expect("text");
    started.child.wait().expect("it ends");
    text
}
