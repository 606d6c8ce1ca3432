//! Containers as they really are: made, taken over, ended and made anew by
//! each engine. Without one these tests say so and pass, but fail where `CI`
//! is set: there every runtime must be.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use beige::config::{Home, Network};
use beige::sandbox::containers::{self, AgentContainer, Engine, image};
use beige::sandbox::tool_client;
use beige::sandbox::{Sandbox, Shown, Spec, instance};

/// An agent's home, gone with its container when dropped.
struct Place {
    engine: Engine,
    root: PathBuf,
    spec: Spec,
}

impl Place {
    /// A new home on each engine that is here.
    fn on_each() -> Vec<Self> {
        static READY: OnceLock<Vec<Engine>> = OnceLock::new();
        let with_image = || Engine::all().into_iter().filter(|it| has_image(*it)).collect();
        READY.get_or_init(with_image).iter().map(|it| Self::new(*it)).collect()
    }

    fn new(engine: Engine) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root =
            std::env::temp_dir().join(format!("beige-docker-{}-{number}", std::process::id()));
        for folder in ["workspace", "launchers", "sockets"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let client = root.join("sockets/tool-client");
        fs::write(&client, tool_client().unwrap()).unwrap();
        fs::set_permissions(&client, fs::Permissions::from_mode(0o111)).unwrap();
        let spec = spec(&root);
        // Root gives the workspace away; anybody else is its owner.
        let _ = chown(&spec.workspace, Some(spec.uid), Some(spec.gid));
        Self { engine, root, spec }
    }

    fn container(&self) -> AgentContainer {
        AgentContainer::new(self.engine, self.spec.clone(), self.root.join("state/ada.json"))
    }

    /// What the client of the engine says to it.
    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> String {
        let output = Command::new(self.engine.program()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The id of its one container.
    #[track_caller]
    fn id(&self) -> String {
        let listed = self.engine.list(&self.spec.instance).unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        listed[0].id.clone()
    }

    fn name(&self) -> String {
        containers::container_name(&self.spec.instance, &self.spec.agent)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.engine.remove_agent(&self.spec.instance, &self.spec.agent);
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn spec(root: &std::path::Path) -> Spec {
    Spec {
        instance: instance(&Home::new(root)).unwrap(),
        agent: "ada".into(),
        home: root.into(),
        workspace: root.join("workspace"),
        launchers: root.join("launchers"),
        sockets: root.join("sockets"),
        shown: Shown::default(),
        image: image::DEFAULT.into(),
        memory_bytes: 1 << 30,
        cpus: None,
        pids: 64,
        network: Some(Network::None),
        uid: 1234,
        gid: 1234,
        read_only_root: true,
        mounts: Vec::new(),
        env: BTreeMap::new(),
    }
}

fn has_image(engine: Engine) -> bool {
    match engine.available() {
        Ok(()) => {
            if !engine.image_present(image::DEFAULT).unwrap() {
                image::build_offline(engine, image::DEFAULT, &|_| ()).unwrap();
            }
            true
        }
        Err(error) if std::env::var_os("CI").is_some() => panic!("it must be here: {error}"),
        Err(error) => {
            eprintln!("not tried: {error}");
            false
        }
    }
}

#[test]
fn a_container_is_made_once_and_taken_over() {
    for place in Place::on_each() {
        assert!(!place.container().seems_up());
        place.container().up().unwrap();
        let made = place.id();
        assert!(place.container().seems_up());
        place.container().up().unwrap();
        assert_eq!(place.id(), made);
    }
}

#[test]
fn a_killed_container_tells_its_fate_and_is_started_again() {
    for place in Place::on_each() {
        place.container().up().unwrap();
        let made = place.id();
        assert_eq!(place.container().fate(), None);
        place.ask(&["kill", &made]);
        assert!(place.container().fate().is_some_and(|it| it.contains("killed")));
        place.container().up().unwrap();
        assert_eq!((place.id(), place.container().fate()), (made, None));
    }
}

#[test]
fn a_paused_or_stopped_container_comes_back() {
    for place in Place::on_each() {
        place.container().up().unwrap();
        let made = place.id();
        place.ask(&["pause", &made]);
        place.container().up().unwrap();
        place.container().stop().unwrap();
        place.container().stop().unwrap();
        assert!(!place.container().seems_up());
        place.container().up().unwrap();
        assert_eq!(place.id(), made);
    }
}

#[test]
fn another_wish_makes_it_anew() {
    for mut place in Place::on_each() {
        place.container().up().unwrap();
        let made = place.id();
        place.spec.pids = 65;
        assert!(!place.container().seems_up());
        place.container().up().unwrap();
        assert_ne!(place.id(), made);
    }
}

#[test]
fn a_folder_made_anew_is_seen_in_a_new_container() {
    for place in Place::on_each() {
        place.container().up().unwrap();
        let made = place.id();
        fs::rename(&place.spec.workspace, place.root.join("aside")).unwrap();
        fs::create_dir(&place.spec.workspace).unwrap();
        place.container().up().unwrap();
        assert_ne!(place.id(), made);
    }
}

#[test]
fn ten_makers_make_one_container() {
    for place in Place::on_each() {
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| place.container().up().unwrap());
            }
        });
        place.id();
    }
}

#[test]
fn two_homes_never_touch_each_others_containers() {
    for one in Place::on_each() {
        let two = Place::new(one.engine);
        one.container().up().unwrap();
        two.container().up().unwrap();
        let other = two.id();
        assert_eq!(one.engine.reap(&one.spec.instance, &[]).unwrap(), ["ada"]);
        assert_eq!(one.engine.list(&one.spec.instance).unwrap(), []);
        assert_eq!(two.id(), other);
    }
}

#[test]
fn a_container_of_others_under_our_name_is_left_alone() {
    for place in Place::on_each() {
        let name = place.name();
        place.ask(&["create", "--pull", "never", "--name", &name, image::DEFAULT]);
        let told = [place.container().up(), place.container().stop(), place.container().remove()];
        place.ask(&["rm", &name]);
        for it in told {
            assert!(it.is_err_and(|it| it.to_string().contains("left alone")));
        }
    }
}

#[test]
fn a_client_that_is_missing_is_named_and_nothing_is_left() {
    for place in Place::on_each() {
        fs::remove_file(place.spec.sockets.join("tool-client")).unwrap();
        let told = place.container().up();
        assert!(told.is_err_and(|it| it.to_string().contains("/beige/tool-client")));
        assert_eq!(place.engine.list(&place.spec.instance).unwrap(), []);
    }
}

#[test]
fn odd_paths_are_mounted_as_they_are() {
    for mut place in Place::on_each() {
        for name in ["a,readonly", "a\"b", "a b", "a:b", "ä那", "$x"] {
            place.spec.workspace = place.root.join(name);
            fs::create_dir(&place.spec.workspace).unwrap();
            // `up` itself compares the folder inside with the one here.
            place.container().up().unwrap();
        }
    }
}

#[test]
fn the_confinement_is_in_force() {
    for place in Place::on_each() {
        place.container().up().unwrap();
        let script = "touch /x /etc/x /beige/x /tools/bin/x 2>/dev/null; ls /x /etc/x /beige/x \
            /tools/bin/x 2>/dev/null; touch /workspace/mine /tmp/mine && id -u && \
            grep -E '^(CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\\t'";
        let seen = place.ask(&["exec", &place.name(), "sh", "-c", script]);
        assert_eq!(seen, "1234\nCapBnd:0000000000000000\nNoNewPrivs:1");
        assert!(place.spec.workspace.join("mine").exists());
    }
}

#[test]
fn an_image_made_offline_has_what_agents_call() {
    for place in Place::on_each() {
        let image = format!("beige-test-{}:latest", place.spec.instance);
        image::build_offline(place.engine, &image, &|_| ()).unwrap();
        let script = "for it in sh sed awk grep find tar gzip curl; do command -v $it; done; \
            ! command -v git";
        let base = ["run", "--rm", "--pull", "never", "--read-only", "--network", "none"];
        let mut arguments = base.to_vec();
        // Podman asks for more than a confined host grants its root.
        arguments.extend(["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]);
        arguments.extend(["--user", "1234:1234", "--cap-drop", "ALL", &image, "sh", "-c", script]);
        let seen = place.ask(&arguments);
        place.ask(&["image", "rm", &image]);
        assert_eq!(seen.lines().count(), 8, "{seen}");
    }
}
