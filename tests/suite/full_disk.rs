//! A home on a disk that is full: each command says so, nothing runs that the
//! audit log could not hold, and once there is room again nothing is lost.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::support::{World, on_either_kind};

/// A home on a small file system of its own, unmounted with the value.
struct Disk<'a> {
    world: &'a World,
}

impl<'a> Disk<'a> {
    /// None where nothing can be mounted: these tests need root.
    fn mount(world: &'a World) -> Option<Self> {
        fs::create_dir(world.home()).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m,mode=700", "none"]).arg(world.home());
        let mounted = mount.output().unwrap();
        let may = mounted.status.success() || std::env::var_os("CI").is_none();
        assert!(may, "{}", String::from_utf8_lossy(&mounted.stderr));
        mounted.status.success().then_some(Self { world })
    }

    fn filler(&self) -> PathBuf {
        self.world.home().join("filler")
    }

    /// Fills it to the last byte.
    fn fill(&self) {
        let mut fill = Command::new("sh");
        fill.args(["-c", "cat /dev/zero > \"$0\""]).arg(self.filler());
        assert!(!fill.output().unwrap().status.success());
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        self.world.run(["gateway", "stop"]);
        self.world.run(["sandbox", "rm"]);
        let _ = Command::new("umount").arg("-l").arg(self.world.home()).status();
    }
}

/// Whether an error says what is wrong, in the kernel's words or the library's.
fn is_told(text: &str) -> bool {
    text.contains("No space left") || text.contains("no storage space")
}

#[test]
fn one_shots_say_so_and_go_on_once_there_is_room() {
    on_either_kind(|world| {
        let Some(disk) = Disk::mount(world) else { return };
        world.sh("echo on").expect(0);
        disk.fill();
        for _ in 0..60 {
            let done = world.sh("echo ran");
            if done.code == 0 {
                // A last block had room for some records.
                continue;
            }
            assert_eq!((done.code, done.text().as_str()), (125, ""));
            assert!(is_told(&done.stderr), "{}", done.stderr);
            assert!(done.stderr.lines().count() <= 2, "{}", done.stderr);
        }
        let last = world.sh("echo ran").expect(125);
        assert_eq!(last.text(), "");
        let prompt = world.run(["prompt", "a", "hi"]).expect(1);
        assert!(is_told(&prompt.stderr), "{}", prompt.stderr);
        disk.free();
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
        assert_eq!(world.run(["prompt", "a", "hi"]).expect(0).text(), "hello\n");
        world.verify_audit();
    });
}

#[test]
fn a_gateway_says_so_and_goes_on_once_there_is_room() {
    on_either_kind(|world| {
        let Some(disk) = Disk::mount(world) else { return };
        world.start_gateway();
        let say = |text: &str| {
            let body = json!({"message": text, "sessionKey": "http:a:s"});
            world.post("/api/agents/a/prompt", &body)
        };
        assert_eq!(say("first").status, 200);
        disk.fill();
        let body = json!({"tool": "exec", "params": {"command": "echo ran"}});
        let refused = (0..60).any(|_| {
            let reply = world.post("/api/agents/a/exec", &body);
            assert!(reply.status == 200 || is_told(&reply.text()), "{reply:?}");
            reply.status != 200
        });
        assert!(refused, "a full disk was never felt");
        let reply = say("second");
        assert!(reply.status != 200 && is_told(&reply.text()), "{reply:?}");
        assert_eq!(world.get("/api/health").status, 200);
        disk.free();
        assert_eq!(world.tool("exec", json!({"command": "echo on"})).0, "Exit code: 0\non\n");
        assert_eq!(say("third").status, 200);
        world.verify_audit();
        world.run(["gateway", "stop"]).expect(0);
        world.verify_audit();
    });
}

#[test]
fn a_gateway_that_cannot_start_says_so() {
    on_either_kind(|world| {
        let Some(disk) = Disk::mount(world) else { return };
        disk.fill();
        let done = world.run(["gateway", "start"]);
        assert!([1, 78].contains(&done.code), "{done:?}");
        assert!(is_told(&done.stderr), "{}", done.stderr);
        let done = world.sh("true").expect(125);
        assert!(is_told(&done.stderr), "{}", done.stderr);
        disk.free();
        world.start_gateway();
        assert_eq!(world.sh("echo on").expect(0).text(), "on\n");
    });
}
