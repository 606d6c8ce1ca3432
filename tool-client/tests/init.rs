//! `--init` as the gateway uses it: calls over the link, and what becomes of
//! the rest when something in the sandbox dies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::CWD;
use rustix::process::{Resource, Rlimit};
use serde_json::{Value, json};
use support::link::{Call, Link, Listener, Resident, recv_ready};
use tool_client::{frame, link};

/// Looks again and again, twenty seconds at most.
#[track_caller]
fn wait_until(mut it: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !it() {
        assert!(Instant::now() < until, "it did not come about");
        std::thread::yield_now();
    }
}

#[track_caller]
fn runs(link: &Link, word: &str) {
    let told = link.sh(&format!("echo {word}")).end();
    assert_eq!(String::from_utf8_lossy(&told.stdout), format!("{word}\n"));
    assert_eq!(told.exit["exitCode"], 0, "{}", told.exit);
}

fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default();
    rest.split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// Living children of a process.
fn children(of: i32) -> HashSet<i32> {
    let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|it| it.parse().ok()).filter(|it| lives(*it)).collect()
}

fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|it| !it.is_empty() && !it.starts_with(" Z"))
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

#[test]
fn a_call_runs_under_a_child_of_the_resident() {
    let resident = Resident::start(600);
    assert_eq!(resident.pid, resident.child.id().cast_signed());
    let link = resident.link();
    let mut call = link.sh("cat; exit 3");
    assert_eq!(parent(call.pid), resident.pid);
    call.send(frame::STDIN, "那".as_bytes());
    call.send(frame::STDIN_END, b"");
    let told = call.end();
    assert_eq!(told.stdout, "那".as_bytes());
    assert_eq!(told.exit["exitCode"], 3);
}

#[test]
fn calls_in_a_row_and_many_at_once_are_all_answered() {
    let resident = Resident::start(600);
    let link = resident.link();
    for number in 0..20 {
        runs(&link, &number.to_string());
    }
    let calls: Vec<UnixStream> = (0..60).map(|_| link.hand_over(link::RUN)).collect();
    let ready = calls.into_iter().map(|stream| {
        let pid = recv_ready(&stream).1;
        Call { stream, pid }
    });
    let ready: Vec<Call> = ready.collect();
    assert_eq!(ready.iter().map(|it| it.pid).collect::<HashSet<_>>().len(), 60);
    // All of them, and one for the next.
    wait_until(|| children(resident.pid).len() == 61);
    drop(ready);
    wait_until(|| children(resident.pid).len() == 1);
}

#[test]
fn files_are_served_without_a_process() {
    let resident = Resident::start(600);
    let link = resident.link();
    let folder = resident.scratch.path();
    let write = json!({"op": "write", "path": "a/b", "bytes": 3, "workspace": folder});
    assert_eq!(link.file(&write, b"one").exit["created"], true);
    let patch =
        json!({"op": "patch", "path": "a/b", "oldBytes": 1, "newBytes": 1, "workspace": folder});
    assert_eq!(link.file(&patch, b"ox").exit["bytes"], 3);
    let read = json!({"op": "read", "path": "a/b", "workspace": folder});
    assert_eq!(link.file(&read, b"").stdout, b"xne");
    assert_eq!(link.call(link::FILE).pid, resident.pid);
    assert_eq!(children(resident.pid), HashSet::new());
}

#[test]
fn file_operations_that_hang_hold_up_no_more_than_their_threads() {
    let resident = Resident::start(600);
    let link = resident.link();
    let hanging: Vec<Call> = (0..7).map(|_| link.call(link::FILE)).collect();
    let read = json!({"op": "stat", "path": "/", "workspace": "/"});
    assert_eq!(link.file(&read, b"").exit["kind"], "folder");
    let last = link.call(link::FILE);
    // All eight are busy: these wait until one hangs up.
    let waiting: Vec<UnixStream> = (0..20).map(|_| link.hand_over(link::FILE)).collect();
    runs(&link, "meanwhile");
    drop((hanging, last));
    for it in waiting {
        assert_eq!(recv_ready(&it).1, resident.pid);
    }
}

/// What is said wrongly ends that link; another goes on, and the socket is
/// dialled again.
#[track_caller]
fn ends_the_link(say: impl Fn(&Link)) {
    let resident = Resident::start(600);
    let listener = Listener::named(resident.scratch.path(), "link.sock");
    let other = Listener::named(resident.scratch.path(), "link-1.sock").accept();
    let link = listener.accept();
    let mut running = link.sh("echo up; read line; echo $line");
    running.until_output("up");
    say(&link);
    assert!(link.ends());
    running.send(frame::STDIN, b"on\n");
    assert_eq!(running.end().stdout, b"on\n", "a call does not end with its link");
    runs(&other, "other");
    runs(&listener.accept(), "again");
}

#[test]
fn what_is_no_call_ends_the_link_and_nothing_else() {
    let pairs: Vec<(UnixStream, UnixStream)> =
        (0..3).map(|_| UnixStream::pair().unwrap()).collect();
    let ends: Vec<_> = pairs.iter().map(|it| it.0.as_fd()).collect();
    ends_the_link(|it| assert!(it.send(b"R", &[])));
    ends_the_link(|it| assert!(it.send(b"F", &ends)));
    ends_the_link(|it| assert!(it.send(b"R", &ends[..2])));
    ends_the_link(|it| assert!(it.send(b"X", &ends[..1])));
    ends_the_link(|it| assert!(it.send(b"RF", &ends[..1])));
    ends_the_link(|it| assert!(it.send(b"", &ends[..1])));
    ends_the_link(|it| assert!(it.send(&[b'R'; 100_000], &ends[..1])));
}

#[test]
fn descriptors_that_came_too_much_are_closed() {
    let resident = Resident::start(600);
    let listener = Listener::named(resident.scratch.path(), "link.sock");
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let link = listener.accept();
    assert!(link.send(b"R", &[theirs.as_fd(); 5]));
    drop(theirs);
    ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(std::io::Read::read(&mut ours, &mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_socket_that_comes_back_is_dialled_at_once() {
    let resident = Resident::start(600);
    for round in 0..20 {
        let listener = Listener::named(resident.scratch.path(), "link.sock");
        runs(&listener.accept(), &round.to_string());
    }
    // A dead socket does no harm, nor do names that are none.
    fs::write(resident.scratch.path().join("link-7.sock"), "").unwrap();
    let other = Listener::named(resident.scratch.path(), "linkx.sock");
    runs(&Listener::named(resident.scratch.path(), "link-8.sock").accept(), "x");
    assert!(!other.is_dialled(Duration::from_millis(1)));
}

#[test]
fn one_link_a_socket_and_sixty_four_in_all() {
    let resident = Resident::start(600);
    let listeners: Vec<Listener> = (0..64)
        .map(|it| Listener::named(resident.scratch.path(), &format!("link-{it}.sock")))
        .collect();
    let mut links: Vec<Link> = listeners.iter().map(Listener::accept).collect();
    let more = Listener::named(resident.scratch.path(), "link.sock");
    runs(&links[63], "last");
    assert!(!more.is_dialled(Duration::from_millis(1)));
    assert!(listeners.iter().all(|it| !it.is_dialled(Duration::from_millis(0))));
    fs::remove_file(resident.scratch.path().join("link-5.sock")).unwrap();
    links.remove(5);
    runs(&more.accept(), "more");
}

#[test]
fn a_crowded_socket_is_tried_again() {
    let resident = Resident::start(600);
    let listener = Listener::named(resident.scratch.path(), "crowd");
    let dial = || {
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let kind = rustix::net::SocketType::SEQPACKET;
        let family = rustix::net::AddressFamily::UNIX;
        let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
        let path = resident.scratch.path().join("crowd");
        let address = rustix::net::SocketAddrUnix::new(path).unwrap();
        rustix::net::connect(&socket, &address).map(|()| {
            let _ = rustix::io::write(&socket, link::HELLO);
            socket
        })
    };
    let crowd: Vec<_> = std::iter::repeat_with(dial).map_while(Result::ok).collect();
    fs::rename(resident.scratch.path().join("crowd"), resident.scratch.path().join("link.sock"))
        .unwrap();
    for _ in &crowd {
        drop(listener.accept());
    }
    runs(&listener.accept(), "at last");
}

#[test]
fn hanging_up_kills_the_tree_and_so_does_a_cancel() {
    let resident = Resident::start(600);
    let link = resident.link();
    let script = "sleep 300 & setsid sleep 300 & echo $!; echo up; sleep 300";
    let mut call = link.sh(script);
    let below: i32 = call.until_output("up").lines().next().unwrap().parse().unwrap();
    drop(call);
    wait_until(|| !lives(below));
    let mut call = link.sh(script);
    let below: i32 = call.until_output("up").lines().next().unwrap().parse().unwrap();
    call.send(frame::CANCEL, b"");
    let told = call.end();
    assert_eq!(told.exit["cancelled"], true);
    assert!(!lives(below));
}

#[test]
fn what_a_killed_supervisor_leaves_is_killed_and_the_rest_lives() {
    let resident = Resident::start(600);
    let link = resident.link();
    let spared = link.sh("sleep 300 & echo $!").end();
    let spared: i32 = String::from_utf8_lossy(&spared.stdout).trim().parse().unwrap();
    let mut other = link.sh("echo up; read line; echo $line");
    other.until_output("up");
    let mut call = link.sh("(setsid sleep 300 & echo $!) ; sleep 300 & echo $!; echo up; wait");
    let told = call.until_output("up");
    let left: Vec<i32> = told.lines().filter_map(|it| it.parse().ok()).collect();
    assert_eq!(left.len(), 2);
    kill(call.pid);
    assert_eq!(call.end().exit, Value::Null);
    wait_until(|| left.iter().all(|it| !lives(*it)));
    assert!(lives(spared), "it was left on purpose");
    runs(&link, "next");
    other.send(frame::STDIN, b"on\n");
    assert_eq!(other.end().stdout, b"on\n");
    kill(spared);
}

#[test]
fn a_spare_that_is_killed_or_stopped_is_no_loss() {
    let resident = Resident::start(600);
    let link = resident.link();
    runs(&link, "first");
    for _ in 0..5 {
        wait_until(|| children(resident.pid).len() == 1);
        let spare = children(resident.pid).into_iter().next().unwrap();
        kill(spare);
        runs(&link, "next");
        wait_until(|| children(resident.pid).len() == 1);
    }
    wait_until(|| children(resident.pid).len() == 1);
    let spare = children(resident.pid).into_iter().next().unwrap();
    let pid = rustix::process::Pid::from_raw(spare).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    runs(&link, "stopped");
}

#[test]
fn a_supervisor_that_is_stopped_goes_on() {
    let resident = Resident::start(600);
    let link = resident.link();
    // Stopped with its command, and once more while it is told to end it.
    let line = "trap 'kill -STOP $PPID; exit 7' INT; kill -STOP $PPID; echo up; read line";
    let mut call = link.sh(line);
    call.until_output("up");
    call.send(frame::SIGNAL, &[2]);
    assert_eq!(call.end().exit["exitCode"], 7);
}

/// Lowers limits of another process, of the second kind for good.
fn lower(pid: i32, resource: Resource, to: u64, for_good: bool) {
    let usual = rustix::process::getrlimit(resource);
    let maximum = if for_good { Some(to) } else { usual.maximum };
    let limit = Rlimit { current: Some(to), maximum };
    let pid = rustix::process::Pid::from_raw(pid);
    rustix::process::prlimit(pid, resource, limit).unwrap();
}

#[test]
fn a_spare_whose_limits_were_lowered_is_no_loss() {
    let resident = Resident::in_sandbox();
    let link = resident.link();
    let ask = || link.sh("ulimit -n; ulimit -f; ulimit -t").end().stdout;
    let usual = ask();
    for resource in [Resource::Nofile, Resource::Fsize, Resource::Cpu] {
        for for_good in [false, true] {
            wait_until(|| children(resident.pid).len() == 1);
            let spare = children(resident.pid).into_iter().next().unwrap();
            lower(spare, resource, 9, for_good);
            assert_eq!(ask(), usual, "{resource:?} {for_good}");
        }
    }
}

#[test]
fn a_resident_whose_limits_were_lowered_raises_them_or_says_so() {
    let resident = Resident::in_sandbox();
    let link = resident.link();
    let ask = || link.sh("ulimit -f").end().stdout;
    let usual = ask();
    lower(resident.pid, Resource::Fsize, 0, false);
    lower(resident.pid, Resource::Nofile, 3, false);
    assert_eq!(ask(), usual);
    lower(resident.pid, Resource::Fsize, 0, true);
    for word in [link::RUN, link::FILE] {
        let refused = frame::read(&mut link.hand_over(word)).unwrap().expect("a frame");
        let refused: Value = serde_json::from_slice(&refused.payload).unwrap();
        assert!(refused["error"].as_str().is_some_and(|it| it.contains("lowered")), "{refused}");
    }
}

#[test]
fn a_call_waits_while_no_process_can_be_started_and_files_are_served() {
    let shown = |of: &Resident, it: u64| fs::read_link(format!("/proc/{}/fd/{it}", of.pid));
    // As many descriptors as one needs for its link, and two.
    let one = Resident::start(600);
    let _link = one.link();
    let is_link =
        |it: &u64| shown(&one, *it).is_ok_and(|it| it.to_string_lossy().starts_with("socket:"));
    let its_link = (0..64).rev().find(is_link).unwrap();
    let most = its_link + 3;
    let resident = Resident::start_with_descriptors(most);
    let link = resident.link();
    let free = || (0..most).filter(|it| shown(&resident, *it).is_err()).count();
    let limit = |most| {
        let usual = rustix::process::getrlimit(Resource::Nofile);
        let limit = Rlimit { current: Some(most), maximum: usual.maximum };
        let pid = rustix::process::Pid::from_raw(resident.pid);
        rustix::process::prlimit(pid, Resource::Nofile, limit).unwrap();
    };
    // One is left, and the two of a pair to a supervisor are not had.
    let mut held = vec![link.call(link::FILE)];
    while free() > 1 {
        held.push(link.call(link::FILE));
    }
    let waiting = link.hand_over(link::RUN);
    wait_until(|| free() == 0);
    limit(1 + (most..).find(|it| shown(&resident, *it).is_err()).unwrap());
    assert_eq!(link.call(link::FILE).pid, resident.pid);
    assert_eq!(children(resident.pid), HashSet::new());
    limit(rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1024));
    let (_, pid) = recv_ready(&waiting);
    assert_eq!(parent(pid), resident.pid);
}

#[test]
fn a_command_that_kills_everything_ends_no_other_sandbox_and_not_the_resident() {
    let resident = Resident::in_sandbox();
    let link = resident.link();
    let mut other = link.sh("echo up; sleep 300");
    other.until_output("up");
    let mut call = link.sh("setsid sh -c 'trap \"\" TERM; sleep 300' & kill -9 -1; sleep 300");
    call.send(frame::STDIN_END, b"");
    assert_eq!(call.end().exit, Value::Null);
    assert_eq!(other.end().exit, Value::Null);
    runs(&link, "after");
    // Nothing is left but the spare: of all that a look through /proc shows
    // the shell sees itself, its supervisor, the resident and the next one.
    wait_until(|| {
        let told = link.sh("cd /proc; for it in [0-9]*; do [ -d $it ] && echo $it; done").end();
        String::from_utf8_lossy(&told.stdout).lines().count() <= 4
    });
}

#[test]
fn nothing_inside_can_read_trace_or_kill_the_resident() {
    let resident = Resident::in_sandbox();
    let link = resident.link();
    let told = link
        .sh("kill -9 1; kill -STOP 1; kill -TERM 1; cat /proc/1/environ /proc/1/maps; \
             readlink /proc/1/exe /proc/1/fd/0; echo done")
        .end();
    assert_eq!(told.stdout, b"done\n", "{}", String::from_utf8_lossy(&told.stdout));
    for path in
        ["/proc/self/environ", "/proc/1/maps", "/proc/1/root/etc/hostname", "/proc/self/fd/0"]
    {
        let read = json!({"op": "read", "path": path, "workspace": "/"});
        let told = link.file(&read, b"");
        assert!(told.stdout.is_empty() && told.exit["error"].is_string(), "{path}: {}", told.exit);
    }
    let read = json!({"op": "read", "path": "/proc/version", "workspace": "/"});
    assert!(link.file(&read, b"").stdout.starts_with(b"Linux"));
}

#[test]
fn supervisors_end_with_the_resident() {
    let mut resident = Resident::start(600);
    let link = resident.link();
    runs(&link, "first");
    wait_until(|| children(resident.pid).len() == 1);
    let spare = children(resident.pid).into_iter().next().unwrap();
    resident.kill();
    wait_until(|| !lives(spare));
}

#[test]
fn it_leaves_when_nobody_has_needed_it_for_so_long() {
    let mut resident = Resident::start(1);
    let link = resident.link();
    runs(&link, "x");
    // A call outlives its link, and holds the resident as a link does.
    let mut call = link.sh("sleep 1.5; echo up; read x");
    fs::remove_file(resident.scratch.path().join("link.sock")).unwrap();
    drop(link);
    call.until_output("up");
    let began = Instant::now();
    drop(call);
    assert!(resident.child.wait().unwrap().success());
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn who_lets_it_go_again_and_again_does_not_keep_it() {
    let mut resident = Resident::start(1);
    let listener = Listener::named(resident.scratch.path(), "link.sock");
    let began = Instant::now();
    while resident.child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(20), "it stays");
        if listener.is_dialled(Duration::from_millis(10)) {
            listener.refuse();
        }
    }
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn who_has_not_taken_it_yet_or_has_in_the_end_keeps_it() {
    let mut resident = Resident::start(1);
    let waiting = Listener::named(resident.scratch.path(), "link-1.sock");
    let mut stays = |why: &str| {
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(resident.child.try_wait().unwrap(), None, "{why}");
    };
    stays("a gateway that has had nothing to do");
    let fickle = Listener::named(resident.scratch.path(), "link.sock");
    fickle.refuse();
    let link = fickle.accept();
    drop(waiting);
    fs::remove_file(resident.scratch.path().join("link-1.sock")).unwrap();
    stays("one that took it at the second time");
    runs(&link, "on");
}

/// Does the operation again and again, while a folder and a link under its name
/// change places, until it has met both.
fn while_swapped(scratch: &Path, mut succeeds: impl FnMut() -> bool) {
    let (name, other) = (scratch.join("it"), scratch.join("other"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            while !stop.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(CWD, &name, CWD, &other, flags);
            }
        });
        let (until, mut met) = (Instant::now() + Duration::from_secs(20), [0; 2]);
        while (met[0] < 50 || met[1] < 50) && Instant::now() < until {
            met[usize::from(succeeds())] += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(met[0] > 0 && met[1] > 0, "{met:?}");
    });
}

#[test]
fn a_link_that_is_swapped_in_leads_no_operation_out() {
    let resident = Resident::in_sandbox();
    let link = resident.link();
    let scratch = resident.scratch.path();
    // No name leads out of the root, but the links that the kernel makes for a
    // process do not go by names: here the resident's own.
    let hidden = scratch.join("hidden");
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join("f"), "outside").unwrap();
    fs::create_dir(scratch.join("it")).unwrap();
    fs::write(scratch.join("it/f"), "inside").unwrap();
    let planted = Path::new("/proc/self/root").join(hidden.strip_prefix("/").unwrap());
    symlink(planted, scratch.join("other")).unwrap();
    for path in ["it/f", "it/../it/f", "./it//f"] {
        let ask = |op: &str, more: Value, input: &[u8]| {
            let mut request = json!({"op": op, "path": path, "workspace": scratch});
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let told = link.file(&request, input);
            assert_ne!(told.stdout, b"outside", "{op}");
            assert_eq!(fs::read(hidden.join("f")).unwrap(), b"outside", "{op}");
            assert_eq!(fs::read_dir(&hidden).unwrap().count(), 1, "{op}");
            told.exit["error"].is_null()
        };
        while_swapped(scratch, || ask("read", json!({}), b""));
        while_swapped(scratch, || ask("write", json!({"bytes": 6}), b"inside"));
        while_swapped(scratch, || ask("patch", json!({"oldBytes": 2, "newBytes": 2}), b"inin"));
        while_swapped(scratch, || ask("stat", json!({}), b""));
    }
}
