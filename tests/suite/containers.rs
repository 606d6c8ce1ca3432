//! Containers as they really are: made, taken over, ended and made anew by a
//! real daemon. Without Docker these tests say so and pass, but fail where
//! `CI` is set: there both runtimes must be.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use beige::config::{Home, Network};
use beige::sandbox::TOOL_CLIENT;
use beige::sandbox::containers::{self, AgentContainer, Engine, image};
use beige::sandbox::{Sandbox, Spec, instance};

/// An agent's home, gone with its container when dropped.
struct Place {
    root: PathBuf,
    spec: Spec,
}

impl Place {
    /// A new home, or none where there is no Docker to try it with.
    fn new() -> Option<Self> {
        static READY: OnceLock<bool> = OnceLock::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !READY.get_or_init(docker_with_image) {
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root =
            std::env::temp_dir().join(format!("beige-docker-{}-{number}", std::process::id()));
        for folder in ["workspace", "launchers", "sockets"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let client = root.join("sockets/tool-client");
        fs::write(&client, TOOL_CLIENT).unwrap();
        fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
        let spec = spec(&root);
        // Root gives the workspace away; anybody else is its owner.
        let _ = chown(&spec.workspace, Some(spec.uid), Some(spec.gid));
        Some(Self { root, spec })
    }

    fn docker(&self) -> Docker {
        Docker::new(self.spec.clone(), self.root.join("state/ada.json"))
    }

    /// The id of its one container.
    #[track_caller]
    fn id(&self) -> String {
        let listed = docker::list(&self.spec.instance).unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        listed[0].id.clone()
    }

    fn name(&self) -> String {
        docker::container_name(&self.spec.instance, &self.spec.agent)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = docker::remove_agent(&self.spec.instance, &self.spec.agent);
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
        packages: BTreeMap::new(),
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

fn docker_with_image() -> bool {
    match docker::available() {
        Ok(()) => {
            if !docker::image_present(image::DEFAULT).unwrap() {
                image::build_offline(image::DEFAULT, &|_| ()).unwrap();
            }
            true
        }
        Err(error) if std::env::var_os("CI").is_some() => panic!("Docker must be here: {error}"),
        Err(error) => {
            eprintln!("not tried, since there is no Docker: {error}");
            false
        }
    }
}

/// What the docker client says to it.
#[track_caller]
fn ask(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_container_is_made_once_and_taken_over() {
    let Some(place) = Place::new() else { return };
    assert!(!place.docker().seems_up());
    place.docker().up().unwrap();
    let made = place.id();
    assert!(place.docker().seems_up());
    place.docker().up().unwrap();
    assert_eq!(place.id(), made);
}

#[test]
fn a_killed_container_tells_its_fate_and_is_started_again() {
    let Some(place) = Place::new() else { return };
    place.docker().up().unwrap();
    let made = place.id();
    assert_eq!(place.docker().fate(), None);
    ask(&["kill", &made]);
    assert!(place.docker().fate().is_some_and(|it| it.contains("killed")));
    place.docker().up().unwrap();
    assert_eq!((place.id(), place.docker().fate()), (made, None));
}

#[test]
fn a_paused_or_stopped_container_comes_back() {
    let Some(place) = Place::new() else { return };
    place.docker().up().unwrap();
    let made = place.id();
    ask(&["pause", &made]);
    place.docker().up().unwrap();
    place.docker().stop().unwrap();
    place.docker().stop().unwrap();
    assert!(!place.docker().seems_up());
    place.docker().up().unwrap();
    assert_eq!(place.id(), made);
}

#[test]
fn another_wish_makes_it_anew() {
    let Some(mut place) = Place::new() else { return };
    place.docker().up().unwrap();
    let made = place.id();
    place.spec.pids = 65;
    assert!(!place.docker().seems_up());
    place.docker().up().unwrap();
    assert_ne!(place.id(), made);
}

#[test]
fn a_folder_made_anew_is_seen_in_a_new_container() {
    let Some(place) = Place::new() else { return };
    place.docker().up().unwrap();
    let made = place.id();
    fs::rename(&place.spec.workspace, place.root.join("aside")).unwrap();
    fs::create_dir(&place.spec.workspace).unwrap();
    place.docker().up().unwrap();
    assert_ne!(place.id(), made);
}

#[test]
fn ten_makers_make_one_container() {
    let Some(place) = Place::new() else { return };
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| place.docker().up().unwrap());
        }
    });
    place.id();
}

#[test]
fn two_homes_never_touch_each_others_containers() {
    let (Some(one), Some(two)) = (Place::new(), Place::new()) else { return };
    one.docker().up().unwrap();
    two.docker().up().unwrap();
    let other = two.id();
    assert_eq!(docker::reap(&one.spec.instance, &[]).unwrap(), ["ada"]);
    assert_eq!(docker::list(&one.spec.instance).unwrap(), []);
    assert_eq!(two.id(), other);
}

#[test]
fn a_container_of_others_under_our_name_is_left_alone() {
    let Some(place) = Place::new() else { return };
    let name = place.name();
    ask(&["create", "--pull", "never", "--name", &name, image::DEFAULT]);
    let told = [place.docker().up(), place.docker().stop(), place.docker().remove()];
    ask(&["rm", &name]);
    for it in told {
        assert!(it.is_err_and(|it| it.to_string().contains("left alone")));
    }
}

#[test]
fn a_client_that_is_missing_is_named_and_nothing_is_left() {
    let Some(place) = Place::new() else { return };
    fs::remove_file(place.spec.sockets.join("tool-client")).unwrap();
    let told = place.docker().up();
    assert!(told.is_err_and(|it| it.to_string().contains("/beige/tool-client")));
    assert_eq!(docker::list(&place.spec.instance).unwrap(), []);
}

#[test]
fn odd_paths_are_mounted_as_they_are() {
    let Some(mut place) = Place::new() else { return };
    for name in ["a,readonly", "a\"b", "a b", "a:b", "ä那", "$x"] {
        place.spec.workspace = place.root.join(name);
        fs::create_dir(&place.spec.workspace).unwrap();
        // `up` itself compares the folder inside with the one here.
        place.docker().up().unwrap();
    }
}

#[test]
fn the_confinement_is_in_force() {
    let Some(place) = Place::new() else { return };
    place.docker().up().unwrap();
    let script = "touch /x /etc/x /beige/x /tools/bin/x 2>/dev/null; ls /x /etc/x /beige/x \
        /tools/bin/x 2>/dev/null; touch /workspace/mine /tmp/mine && id -u && \
        grep -E '^(CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\\t'";
    let seen = ask(&["exec", &place.name(), "sh", "-c", script]);
    assert_eq!(seen, "1234\nCapBnd:0000000000000000\nNoNewPrivs:1");
    assert!(place.spec.workspace.join("mine").exists());
}

#[test]
fn an_image_made_offline_has_what_agents_call() {
    let Some(place) = Place::new() else { return };
    let image = format!("beige-test-{}:latest", place.spec.instance);
    image::build_offline(&image, &|_| ()).unwrap();
    let script = "for it in sh sed awk grep find tar gzip curl; do command -v $it; done; \
        ! command -v git";
    let base = ["run", "--rm", "--pull", "never", "--read-only", "--network", "none"];
    let mut arguments = base.to_vec();
    arguments.extend(["--user", "1234:1234", "--cap-drop", "ALL", &image, "sh", "-c", script]);
    let seen = ask(&arguments);
    ask(&["image", "rm", &image]);
    assert_eq!(seen.lines().count(), 8, "{seen}");
}
