//! Names below a workspace that the gateway reads or writes, planted by the
//! agent as links to the host's files and folders, and as FIFOs: the gateway
//! gets nothing of the host by them and waits for none. And paths that no
//! workspace or mount may be.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::{World, agent_ids, on_each_runtime};

/// What stands in the host's file; must never be seen.
const SECRET: &str = "a secret of the host";

/// What is planted under a name.
#[derive(Clone, Copy, Debug)]
enum Plant {
    FileLink,
    FolderLink,
    DanglingLink,
    Fifo,
}

const ALL: [Plant; 4] = [Plant::FileLink, Plant::FolderLink, Plant::DanglingLink, Plant::Fifo];

/// A world with a host folder that holds a secret.
struct Field<'a> {
    world: &'a World,
    host: PathBuf,
}

impl<'a> Field<'a> {
    fn new(world: &'a World) -> Self {
        let host = world.root.join("host");
        fs::create_dir(&host).unwrap();
        fs::write(host.join("file"), SECRET).unwrap();
        fs::write(host.join(SECRET), "").unwrap();
        // So that nothing but the walls keeps the agent out.
        Command::new("chmod").args(["-R", "a+rwX"]).arg(&host).status().unwrap();
        let workspace = world.workspace("a");
        fs::create_dir_all(&workspace).unwrap();
        let (user, group) = agent_ids();
        let _ = chown(&workspace, Some(user), Some(group));
        Self { world, host }
    }

    /// Plants that under a name in the workspace, in place of what is there.
    fn plant(&self, name: &str, plant: Plant) {
        let path = self.world.workspace("a").join(name);
        self.clear(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match plant {
            Plant::FileLink => symlink(self.host.join("file"), &path).unwrap(),
            Plant::FolderLink => symlink(&self.host, &path).unwrap(),
            Plant::DanglingLink => symlink(self.host.join("made"), &path).unwrap(),
            Plant::Fifo => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
        }
        let workspace = self.world.workspace("a");
        let (user, group) = agent_ids();
        let mut own = Command::new("chown");
        let own = own.arg("-Rh").arg(format!("{user}:{group}")).arg(workspace).status();
        assert!(own.unwrap().success());
    }

    fn clear(&self, name: &str) {
        let path = self.world.workspace("a").join(name);
        if fs::remove_file(&path).is_err() {
            let _ = fs::remove_dir_all(&path);
        }
    }

    /// Fails unless the host is as it was.
    #[track_caller]
    fn unharmed(&self) {
        let names = fs::read_dir(&self.host).unwrap().flatten().map(|it| it.file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, [SECRET, "file"]);
        assert_eq!(fs::read_to_string(self.host.join("file")).unwrap(), SECRET);
    }
}

#[test]
fn agents_md_planted_before_the_first_start_gives_nothing() {
    on_each_runtime(|world| {
        let field = Field::new(world);
        for plant in ALL {
            let marker = world.home().join("agents/a");
            for entry in fs::read_dir(marker).unwrap().flatten() {
                if entry.file_name() != "workspace" {
                    let _ = fs::remove_file(entry.path());
                }
            }
            field.plant("AGENTS.md", plant);
            world.sh("true").expect(0);
            assert_eq!(prompted(world), "hello\n", "{plant:?}");
            field.unharmed();
            assert_eq!(sessions_with_secret(world), 0, "{plant:?}");
        }
    });
}

#[test]
fn agents_md_planted_under_a_gateway_gives_nothing() {
    on_each_runtime(|world| {
        let field = Field::new(world);
        world.start_gateway();
        for plant in ALL {
            field.plant("AGENTS.md", plant);
            assert_eq!(prompted(world), "hello\n", "{plant:?}");
            field.unharmed();
        }
        assert_eq!(sessions_with_secret(world), 0);
        assert!(!world.gateway_log().contains(SECRET));
    });
}

fn prompted(world: &World) -> String {
    world.run(["prompt", "a", "hi"]).expect(0).text()
}

/// Files of the home that hold the secret.
fn sessions_with_secret(world: &World) -> usize {
    let found = Command::new("grep").args(["-rl", SECRET]).arg(world.home()).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().count()
}

#[test]
fn places_of_saved_output_that_are_planted_are_not_followed() {
    on_each_runtime(|world| {
        let field = Field::new(world);
        world.start_gateway();
        for name in [".beige", ".beige/outputs"] {
            for plant in ALL {
                field.clear(".beige");
                field.plant(name, plant);
                let params = json!({"command": "seq 1 100000"});
                let (text, is_error) = world.tool("exec", params);
                assert!(!is_error && text.starts_with("Exit code: 0\n"), "{name} {plant:?} {text}");
                assert!(text.contains("was not saved"), "{name} {plant:?} {text}");
                field.unharmed();
            }
        }
        field.clear(".beige");
        let (text, _) = world.tool("exec", json!({"command": "seq 1 100000"}));
        assert!(text.contains("/workspace/.beige/outputs/"), "{text}");
    });
}

#[test]
fn a_saved_output_that_is_replaced_gives_nothing() {
    on_each_runtime(|world| {
        let field = Field::new(world);
        world.start_gateway();
        let (text, _) = world.tool("exec", json!({"command": "seq 1 100000"}));
        let at = text.find("/workspace/.beige/outputs/").expect("its place");
        let path: String = text[at..].chars().take_while(|it| !"]) \n,;".contains(*it)).collect();
        let name = path.strip_prefix("/workspace/").unwrap();
        assert!(world.workspace("a").join(name).is_file(), "{name}");
        for plant in ALL {
            field.plant(name, plant);
            let (text, is_error) = world.tool("read", json!({"path": path}));
            assert!(is_error && !text.contains(SECRET), "{plant:?} {text}");
            field.unharmed();
        }
    });
}

#[test]
fn the_file_tools_get_nothing_by_planted_names() {
    on_each_runtime(|world| {
        let field = Field::new(world);
        world.start_gateway();
        for plant in ALL {
            for name in ["it", "it/file"] {
                field.clear("it");
                field.plant("it", plant);
                let (text, _) = world.tool("read", json!({"path": name}));
                assert!(!text.contains(SECRET), "read {plant:?} {name} {text}");
                let patch = json!({"path": name, "oldText": "secret", "newText": "x"});
                let (text, is_error) = world.tool("patch", patch);
                assert!(is_error && !text.contains(SECRET), "patch {plant:?} {name} {text}");
                // What a name leads to in the sandbox is the agent's affair.
                world.tool("write", json!({"path": name, "content": "x"}));
                field.unharmed();
            }
        }
    });
}

#[test]
fn temporary_names_that_are_planted_do_not_catch_a_write() {
    on_each_runtime(|world| {
        let field = Field::new(world);
        world.start_gateway();
        // A second agent of the same workspace could plant while it is written.
        let racer = "until [ -e done ]; do for it in .w.tmp w.tmp .w.swp w~ .w*; do \
                     ln -sf /workspace/caught $it; done; sleep 0.01; done";
        std::thread::scope(|scope| {
            scope.spawn(|| world.tool("exec", json!({"command": racer, "timeout": 60})));
            for number in 0..10 {
                let content = format!("{number}\n");
                let (text, is_error) =
                    world.tool("write", json!({"path": "w", "content": content}));
                assert!(!is_error, "{text}");
                let written = fs::read_to_string(world.workspace("a").join("w")).unwrap();
                assert_eq!(written, content);
            }
            fs::write(world.workspace("a").join("done"), "").unwrap();
        });
        assert!(!world.workspace("a").join("caught").exists());
        field.unharmed();
    });
}

#[test]
fn workspaces_that_reach_the_host_are_refused() {
    on_each_runtime(|world| {
        world.run(["exec", "a", "--", "true"]).expect(0);
        let socket = world.root.join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        symlink(world.home(), world.root.join("home-link")).unwrap();
        symlink("/proc", world.root.join("proc-link")).unwrap();
        let home = world.home().display().to_string();
        let root = world.root.display().to_string();
        let bad = [
            "/".to_owned(),
            "/proc".to_owned(),
            "/proc/1".to_owned(),
            "/sys".to_owned(),
            "/dev".to_owned(),
            "/run".to_owned(),
            "/var/run".to_owned(),
            format!("{root}/nothing/../../../../../../../.."),
            home.clone(),
            root.clone(),
            format!("{home}/data"),
            format!("{home}/sockets/a"),
            format!("{home}/agents"),
            format!("{root}/home-link"),
            format!("{root}/proc-link"),
            socket.display().to_string(),
        ];
        for path in &bad {
            let fields = format!("workspaceDir: '{path}',");
            world.write_config(&world.agent("a", "", &fields), "");
            refused(world, path);
            world.configure(&["a"], &format!("extraMounts: {{ '{path}': '/more' }}"));
            refused(world, path);
        }
        for inside in ["/", "/workspace", "/beige", "/tools/bin", "/proc", "/sys/fs", "/dev/shm"] {
            world.configure(&["a"], &format!("extraMounts: {{ '{root}': '{inside}' }}"));
            refused(world, inside);
        }
        world.configure(&["a"], "");
    });
}

#[track_caller]
fn refused(world: &World, path: &str) {
    let done = world.run(["exec", "a", "--", "true"]);
    assert_eq!(done.code, 125, "{path}: {}", done.stderr);
    let check = world.run(["config", "check"]);
    assert_eq!(check.code, 78, "{path}: {}", check.stderr);
}

#[test]
fn a_workspace_that_cannot_be_made_is_named() {
    on_each_runtime(|world| {
        fs::write(world.root.join("file"), "").unwrap();
        for path in [world.root.join("file/ws"), world.root.join("file"), read_only()] {
            let fields = format!("workspaceDir: '{}',", path.display());
            world.write_config(&world.agent("a", "", &fields), "");
            let done = world.sh("true").expect(125);
            let shown = path.display().to_string();
            assert!(done.stderr.contains("workspace") && done.stderr.lines().count() <= 2);
            assert!(done.stderr.contains(&shown[..shown.len() - 3]), "{}", done.stderr);
            let done = world.run(["gateway", "start"]);
            assert!([1, 78].contains(&done.code), "{}", done.stderr);
        }
        world.configure(&["a"], "");
    });
}

/// A place where not even root can make a folder.
fn read_only() -> PathBuf {
    Path::new("/sys/beige/ws").to_owned()
}
