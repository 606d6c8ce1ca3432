//! Every argument of a container, compared whole.

use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::config::MountConfig;

fn spec() -> Spec {
    Spec {
        instance: "0123456789ab".into(),
        agent: "ada".into(),
        home: "/h".into(),
        workspace: "/h/w".into(),
        launchers: "/h/l".into(),
        sockets: "/h/s".into(),
        packages: BTreeMap::new(),
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

fn arguments(spec: &Spec) -> Vec<String> {
    let command = run_command(spec, "5bec").unwrap();
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
    assert_ne!(spec_hash(&spec()).unwrap(), spec_hash(&changed).unwrap(), "the hash");
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

#[test]
fn a_container_is_confined_and_runs_ours() {
    let want = "run -d --label beige.spec=5bec --pull never --name beige-0123456789ab-ada \
        --hostname ada --label beige.home=/h --label beige.instance=0123456789ab \
        --label beige.agent=ada --cap-drop ALL --security-opt no-new-privileges \
        --user 10:20 --pids-limit 7 --memory 1000 --memory-swap 1000 \
        --log-driver none --no-healthcheck \
        --mount type=bind,src=/h/w,dst=/workspace \
        --mount type=bind,src=/h/l,dst=/tools/bin,readonly \
        --mount type=bind,src=/h/s,dst=/beige,readonly \
        --workdir /workspace --entrypoint /beige/tool-client box:1 --init";
    assert_eq!(arguments(&spec()).join(" "), want);
}

#[test]
fn root_gets_what_apt_needs_and_no_more() {
    let come = "--cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add FOWNER --cap-add SETGID \
        --cap-add SETUID 0:0";
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
fn plugins_and_further_mounts_are_bound() {
    check(
        |it| drop(it.packages.insert("echo".into(), "/h/p".into())),
        "--mount type=bind,src=/h/p,dst=/tools/packages/echo,readonly",
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
        let refused = run_command(&spec, "").map_err(|it| it.kind());
        assert_eq!(refused.err(), Some(Kind::Config), "{path:?}");
    }
}

#[test]
fn a_folder_made_anew_is_another_container() {
    let place = std::env::temp_dir().join(format!("beige-argv-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    let mut spec = spec();
    spec.workspace = place.clone();
    let before = spec_hash(&spec).unwrap();
    assert_eq!(before, spec_hash(&spec).unwrap());
    // The old one stays, as it does while a container shows it.
    let aside = place.with_extension("old");
    fs::rename(&place, &aside).unwrap();
    fs::create_dir(&place).unwrap();
    assert_ne!(before, spec_hash(&spec).unwrap());
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
    let command = exec_command(&spec(), Role::Run);
    let arguments: Vec<_> = command.get_args().collect();
    let want =
        ["exec", "-i", "-w", "/workspace", "beige-0123456789ab-ada", "/beige/tool-client", "--run"];
    assert_eq!(arguments, want);
}
