//! Every argument of a container, compared whole.

use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::config::MountConfig;
use crate::sandbox::Shown;

fn spec() -> Spec {
    Spec {
        instance: "0123456789ab".into(),
        agent: "ada".into(),
        home: "/h".into(),
        workspace: "/h/w".into(),
        launchers: "/h/l".into(),
        sockets: "/h/s".into(),
        shown: Shown::default(),
        image: "box:1".into(),
        memory_bytes: 1000,
        cpus: None,
        pids: 7,
        network: None,
        uid: 10,
        gid: 20,
        read_only_root: false,
        mounts: Vec::new(),
        env: BTreeMap::new(),
    }
}

/// The terms of an engine that bounds everything.
const TERMS: Terms = Terms { bounds: Bounded::ALL, ulimits: None };

fn arguments(spec: &Spec) -> Vec<String> {
    arguments_of(Engine::Docker, spec, &TERMS)
}

fn arguments_of(engine: Engine, spec: &Spec, terms: &Terms) -> Vec<String> {
    let command = run_command(engine, spec, "5bec", terms).unwrap();
    assert_eq!(command.get_program(), engine.program());
    command.get_args().map(|it| it.to_string_lossy().into_owned()).collect()
}

/// Which arguments come with a change of the spec, and which go.
#[track_caller]
fn check(change: impl FnOnce(&mut Spec), come: &str, go: &str) {
    let before = arguments(&spec());
    let mut changed = spec();
    change(&mut changed);
    let after = arguments(&changed);
    assert_eq!(missing(&after, &before), come, "what comes");
    assert_eq!(missing(&before, &after), go, "what goes");
    assert_ne!(hash(&spec()), hash(&changed), "the hash");
}

fn hash(spec: &Spec) -> String {
    spec_hash(Engine::Docker, spec).unwrap()
}

/// Those of `these` that `others` lacks, counting repeats.
fn missing(these: &[String], others: &[String]) -> String {
    let mut others = others.to_vec();
    let mut missing = Vec::new();
    for it in these {
        match others.iter().position(|other| other == it) {
            Some(place) => drop(others.remove(place)),
            None => missing.push(it.as_str()),
        }
    }
    missing.join(" ")
}

/// What every engine that holds all limits is asked for.
const CONFINED: &str = "--pull never --name beige-0123456789ab-ada \
        --hostname ada --label beige.home=/h --label beige.instance=0123456789ab \
        --label beige.agent=ada --user 10:20 --cap-drop ALL --security-opt no-new-privileges \
        --pids-limit 7 --memory 1000 --memory-swap 1000 \
        --log-driver none --no-healthcheck \
        --mount type=bind,src=/h/w,dst=/workspace \
        --mount type=bind,src=/h/l,dst=/tools/bin,readonly \
        --mount type=bind,src=/h/s,dst=/beige,readonly \
        --workdir /workspace --entrypoint /beige/tool-client box:1 --init";

#[test]
fn a_container_is_confined_and_runs_ours() {
    let want = format!("run -d --label beige.spec=5bec {CONFINED}");
    assert_eq!(arguments(&spec()).join(" "), want);
}

#[test]
fn podman_as_root_asks_for_no_more_than_the_host_grants() {
    let terms = Terms { ulimits: Some((1024, 32_768)), ..TERMS };
    let want = format!(
        "run -d --label beige.spec=5bec --ulimit nofile=1024:1024 --ulimit nproc=32768:32768 \
         {CONFINED}"
    );
    assert_eq!(arguments_of(Engine::Podman, &spec(), &terms).join(" "), want);
}

#[test]
fn podman_without_root_keeps_the_users_number_and_sets_no_limit_that_is_not_held() {
    let none = Bounded { memory: false, swap: false, pids: false, cpus: false };
    let terms = Terms { bounds: none, ulimits: None };
    let mut spec = spec();
    spec.cpus = Some(1.5);
    spec.network = Some(Network::None);
    let want = "run -d --label beige.spec=5bec --pull never --name beige-0123456789ab-ada \
        --hostname ada --label beige.home=/h --label beige.instance=0123456789ab \
        --label beige.agent=ada --userns keep-id --user 10:20 --cap-drop ALL \
        --security-opt no-new-privileges --network none \
        --log-driver none --no-healthcheck \
        --mount type=bind,src=/h/w,dst=/workspace \
        --mount type=bind,src=/h/l,dst=/tools/bin,readonly \
        --mount type=bind,src=/h/s,dst=/beige,readonly \
        --workdir /workspace --entrypoint /beige/tool-client box:1 --init";
    assert_eq!(arguments_of(Engine::RootlessPodman, &spec, &terms).join(" "), want);
}

#[test]
fn a_limit_that_is_held_elsewhere_is_no_other_container() {
    let hash = |engine| spec_hash(engine, &spec()).unwrap();
    assert_eq!(hash(Engine::Podman), hash(Engine::Docker));
    assert_ne!(hash(Engine::RootlessPodman), hash(Engine::Podman), "another user namespace");
}

#[test]
fn root_of_a_user_is_that_user() {
    let mut root = spec();
    (root.uid, root.gid) = (0, 0);
    let arguments = arguments_of(Engine::RootlessPodman, &root, &TERMS);
    assert!(!arguments.contains(&"--userns".to_owned()), "{arguments:?}");
}

#[test]
fn root_gets_what_apt_needs_and_no_more() {
    let come = "0:0 --cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add FOWNER --cap-add SETGID \
        --cap-add SETUID";
    check(|it| (it.uid, it.gid) = (0, 0), come, "10:20");
}

#[test]
fn limits_are_those_of_the_spec() {
    check(|it| it.cpus = Some(1.5), "--cpus 1.5", "");
    check(|it| it.pids = 8, "8", "7");
    check(|it| it.memory_bytes = 2, "2 2", "1000 1000");
}

#[test]
fn only_none_takes_the_network_away() {
    check(|it| it.network = Some(Network::None), "--network none", "");
    let mut open = spec();
    open.network = Some(Network::Open);
    assert_eq!(arguments(&open), arguments(&spec()));
}

#[test]
fn a_read_only_root_leaves_a_bounded_tmp() {
    let come = "--read-only --tmpfs /tmp:rw,exec,nosuid,nodev,mode=1777,size=500";
    check(|it| it.read_only_root = true, come, "");
}

#[test]
fn another_image_is_another_container() {
    check(|it| it.image = "box:2".into(), "box:2", "box:1");
}

#[test]
fn plugins_skills_and_further_mounts_are_bound() {
    check(
        |it| drop(it.shown.packages.insert("echo".into(), "/h/p".into())),
        "--mount type=bind,src=/h/p,dst=/tools/packages/echo,readonly",
        "",
    );
    check(
        |it| drop(it.shown.skills.insert("review".into(), "/h/r".into())),
        "--mount type=bind,src=/h/r,dst=/skills/review,readonly",
        "",
    );
    let mount = MountConfig { host: "/d".into(), container: "/data".into(), read_only: false };
    check(|it| it.mounts.push(mount), "--mount type=bind,src=/d,dst=/data", "");
}

#[test]
fn a_comma_or_a_quote_in_a_path_cannot_add_an_option() {
    check(
        |it| it.workspace = "/w,readonly".into(),
        r#"type=bind,"src=/w,readonly",dst=/workspace"#,
        "type=bind,src=/h/w,dst=/workspace",
    );
    check(
        |it| it.workspace = r#"/w","x"#.into(),
        r#"type=bind,"src=/w"",""x",dst=/workspace"#,
        "type=bind,src=/h/w,dst=/workspace",
    );
}

#[test]
fn a_path_that_docker_would_change_is_refused() {
    for path in ["/w\n", "/a\rb", "/w ", "/w\u{a0}"] {
        let mut spec = spec();
        spec.workspace = path.into();
        let refused = run_command(Engine::Docker, &spec, "", &TERMS).map_err(|it| it.kind());
        assert_eq!(refused.err(), Some(Kind::Config), "{path:?}");
    }
}

#[test]
fn a_folder_made_anew_is_another_container() {
    let place = std::env::temp_dir().join(format!("beige-argv-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    let mut spec = spec();
    spec.workspace = place.clone();
    let before = hash(&spec);
    assert_eq!(before, hash(&spec));
    // The old one stays, as it does while a container shows it.
    let aside = place.with_extension("old");
    fs::rename(&place, &aside).unwrap();
    fs::create_dir(&place).unwrap();
    assert_ne!(before, hash(&spec));
    fs::remove_dir(&place).unwrap();
    fs::remove_dir(&aside).unwrap();
}

#[test]
fn the_environment_is_not_an_argument() {
    let mut other = spec();
    other.env.insert("TOKEN".into(), "hush".into());
    assert_eq!(arguments(&other), arguments(&spec()));
}

#[test]
fn a_name_is_never_too_long_and_never_shared() {
    let long = "a".repeat(40);
    assert_eq!(container_name("0123456789ab", &long), format!("beige-0123456789ab-{long}"));
    let one = container_name("0123456789ab", &"a".repeat(100));
    let two = container_name("0123456789ab", &"a".repeat(101));
    assert_eq!((one.len(), two.len()), (63, 63));
    assert_ne!(one, two);
}

#[test]
fn a_call_enters_by_tool_client() {
    let command = exec_command(Engine::Docker, &spec(), Role::Run);
    let arguments: Vec<_> = command.get_args().collect();
    let want =
        ["exec", "-i", "-w", "/workspace", "beige-0123456789ab-ada", "/beige/tool-client", "--run"];
    assert_eq!(arguments, want);
    let command = exec_command(Engine::RootlessPodman, &spec(), Role::Run);
    assert_eq!(command.get_args().collect::<Vec<_>>(), want);
    assert_eq!(command.get_program(), "podman");
}
