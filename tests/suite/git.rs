//! The built-in git: what agents do with it from inside a sandbox, with servers
//! on loopback, and what a hostile repository or argument cannot do.

mod hostile;
mod ssh;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Finished, World, agent_ids, on_each_runtime, some_world, wait_until};

/// What a token of these tests is.
const TOKEN: &str = "t0ken-of-the-tests";

/// Gives agent `a` git with that configuration.
fn with_git(world: &World, config: &str) {
    let agent = world.agent("a", "", "").replace("['notes']", "['git']");
    world.write_config(&agent, "");
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let entry = format!("plugins: {{ git: {{ builtin: 'git', config: {{ {config} }} }}, ");
    fs::write(world.config_file(), text.replace("plugins: { ", &entry)).expect("written");
}

/// git of the host, as a person has it, in that folder; what it printed.
#[track_caller]
fn host_git(folder: &Path, args: &[&str]) -> String {
    let done: Finished = host_command(folder, args).output().expect("git runs").into();
    done.expect(0).text()
}

fn host_command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*", "-c", "user.name=p", "-c", "user.email=p@p.invalid"]);
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command.envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")]);
    command
}

/// A bare repository `r.git` with a commit `one` on `main` and on `side`.
fn repository(world: &World) -> PathBuf {
    let root = world.root.join("repos");
    fs::create_dir_all(&root).expect("a folder");
    host_git(&root, &["init", "-q", "--bare", "-b", "main", "r.git"]);
    host_git(&root, &["init", "-q", "-b", "main", "seed"]);
    let seed = root.join("seed");
    fs::write(seed.join("a"), "one\n").expect("written");
    host_git(&seed, &["add", "."]);
    host_git(&seed, &["commit", "-qm", "one"]);
    host_git(&seed, &["push", "-q", "../r.git", "main", "main:side"]);
    root
}

/// A server of repositories; ends with this.
struct Server {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    port: u16,
    root: PathBuf,
}

impl Server {
    fn start(root: &Path, password: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/git_server.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(root).arg(password).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a port");
        let port = line.trim().parse().expect("a port");
        Self { child, _stdout: stdout, port, root: root.to_owned() }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn requests(&self) -> String {
        fs::read_to_string(self.root.join("requests.log")).unwrap_or_default()
    }

    /// What a ref is there; empty if it is not.
    fn id_of(&self, name: &str) -> String {
        let words = ["for-each-ref", "--format=%(objectname)", name];
        host_git(&self.root.join("r.git"), &words).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A world whose agent may use the repositories of a server of its own.
fn served(more: &str) -> (World, Server) {
    let world = some_world();
    let server = Server::start(&repository(&world), TOKEN);
    let url = server.url();
    let config =
        format!("allowedRemotes: ['{url}/**'], tokens: {{ '{url}/**': '{TOKEN}' }}, {more}");
    with_git(&world, &config);
    (world, server)
}

#[test]
fn an_agent_makes_commits_in_a_repository_of_its_own() {
    on_each_runtime(|world| {
        with_git(world, "identity: { name: 'A B', email: 'ab@example.org' }");
        let done = world.sh("git init r && cd r && mkdir d && echo hi > d/f && git add . \
             && git commit -m 'first one' && cd d && git log --format='%an %ae %cn %s' \
             && echo ho > f && git status --short && git diff --stat \
             && echo from a pipe | git commit -aF - && ls -a ../.git");
        let text = done.expect(0).text();
        assert!(text.contains("A B ab@example.org A B first one\n M f\n d/f | 2 +-\n"), "{text}");
        assert!(text.contains("] from a pipe\n") && !text.contains("hooks"), "{text}");
        let made = fs::metadata(world.workspace("a").join("r/.git/HEAD")).expect("a file");
        assert_eq!(made.uid(), agent_ids().0, "what git makes belongs to the agent");
    });
}

#[test]
fn an_agent_clones_fetches_pulls_and_pushes_and_never_sees_the_token() {
    let (world, server) = served("");
    let url = server.url();
    world.start_gateway();
    let done = world.sh(&format!(
        "git clone {url}/r.git && cd r && echo two >> a && git commit -qam two && git push \
         && git checkout -qb new && git push -u origin new && git status -sb"
    ));
    let text = done.expect(0).text();
    assert!(
        text.contains(&format!("To {url}/r.git\n")) && text.contains("main -> main\n"),
        "{text}"
    );
    assert!(text.contains("new -> new\n") && text.ends_with("## new...origin/new\n"), "{text}");
    assert_eq!(server.id_of("refs/heads/new"), server.id_of("refs/heads/main"));
    let seed = server.root.join("seed");
    host_git(&seed, &["pull", "-q", "../r.git", "main"]);
    fs::write(seed.join("b"), "three\n").expect("written");
    host_git(&seed, &["add", "."]);
    host_git(&seed, &["commit", "-qm", "three"]);
    host_git(&seed, &["push", "-q", "../r.git", "main", "main:refs/pull/7/head"]);
    let done = world.sh(
        "cd r && git checkout -q main && git fetch && git status -sb && git pull && cat b \
         && git fetch origin refs/pull/7/head:seven && git log -1 --format=%s seven \
         && git ls-remote origin 'refs/heads/s*' && cat .git/FETCH_HEAD",
    );
    let text = done.expect(0).text();
    assert!(text.contains("## main...origin/main [behind 1]\n"), "{text}");
    assert!(text.contains("Fast-forward") && text.contains("three\n"), "{text}");
    assert!(text.contains("\trefs/heads/side\n"), "{text}");
    assert!(text.contains(&format!("'refs/pull/7/head' of {url}/r\n")), "{text}");
    assert!(server.requests().contains(" with\n"));
    let found = world.sh(&format!("grep -r {TOKEN} /workspace; env | grep {TOKEN}"));
    assert_eq!(found.expect(1).text(), "");
    assert!(!world.gateway_log().contains(TOKEN));
    let left = world.home().join("agents/a/git");
    assert_eq!(fs::read_dir(left).expect("a folder").count(), 0, "nothing of a call is left");
}

#[test]
fn a_clone_may_be_shallow_and_be_deepened() {
    let (world, server) = served("");
    let seed = server.root.join("seed");
    host_git(&seed, &["commit", "-qm", "two", "--allow-empty"]);
    host_git(&seed, &["commit", "-qm", "three", "--allow-empty"]);
    host_git(&seed, &["push", "-q", "../r.git", "main"]);
    let done = world.sh(&format!(
        "git clone -q --depth 1 {}/r.git && cd r && git rev-list --count HEAD \
         && git fetch -q --deepen=1 && git rev-list --count HEAD && echo x > x && git add x \
         && git commit -qm x && git push -q && git fetch -q --unshallow \
         && git rev-list --count HEAD",
        server.url()
    ));
    assert_eq!(done.expect(0).text(), "1\n2\n4\n");
}

#[test]
fn what_is_over_there_is_overwritten_or_removed_only_where_a_person_allows_it() {
    let (world, server) = served("");
    let before = server.id_of("refs/heads/main");
    world.sh(&format!("git clone -q {}/r.git", server.url())).expect(0);
    world.sh("cd r; git commit -q --amend -m other").expect(0);
    let refused = |args: &str, why: &str| {
        let done = world.sh(&format!("cd r; git push {args}"));
        assert!(done.code != 0 && done.stderr.contains(why), "{args}: {}", done.stderr);
        assert_eq!(server.id_of("refs/heads/main"), before, "{args}");
        assert_eq!(server.id_of("refs/heads/side"), before, "{args}");
    };
    refused("", "[rejected]        main -> main (non-fast-forward)");
    let forced = "overwrite or remove";
    for args in [
        "-f",
        "--force",
        "--force-with-lease",
        "--force-with-lease=main",
        "-qf",
        "-d origin side",
        "--delete origin side",
        "origin +main",
        "origin +HEAD:main",
        "origin :side",
        "--mirror",
        "--prune origin main",
        "-- origin +main",
    ] {
        refused(args, forced);
    }
    refused("--forc", "not allowed here");
    refused("--receive-pack=/bin/true", "not allowed here");
    let config = world.workspace("a").join("r/.git/config");
    let text = fs::read_to_string(&config).expect("a config");
    for line in ["push = +refs/heads/*:refs/heads/*", "mirror = true"] {
        fs::write(&config, format!("{text}[remote \"origin\"]\n\t{line}\n")).expect("written");
        refused("", forced);
    }
    fs::write(&config, text).expect("written");
    let url = server.url();
    with_git(
        &world,
        &format!(
            "allowedRemotes: ['{url}/**'], tokens: {{ '{url}/**': '{TOKEN}' }}, allowForcePush: true"
        ),
    );
    world.sh("cd r; git push --force && git push origin :side").expect(0);
    assert_ne!(server.id_of("refs/heads/main"), before);
    assert_eq!(server.id_of("refs/heads/side"), "");
}

#[test]
fn a_remote_that_is_not_allowed_is_never_spoken_with() {
    let (world, server) = served("");
    let other_root = world.root.join("other");
    fs::create_dir_all(&other_root).expect("a folder");
    let other = Server::start(&other_root, "");
    let (url, forbidden) = (server.url(), format!("{}/r.git", other.url()));
    world.sh(&format!("git clone -q {url}/r.git")).expect(0);
    let refused = |args: &str| {
        let done = world.sh(&format!("cd r; git {args}"));
        assert!(done.code != 0, "{args}: {}", done.text());
        assert!(done.stderr.contains("not allowed here"), "{args}: {}", done.stderr);
    };
    for it in [
        &*forbidden,
        "ext::sh -c id",
        "file:///workspace/r",
        "fd::3",
        "/workspace/r",
        "./r",
        "git://127.0.0.1/r",
        "ssh://-oProxyCommand=id/x",
        "--upload-pack=id",
        "host:-x",
        "http://x@127.0.0.1/r",
        "HTTP://127.0.0.1/x",
    ] {
        for command in ["clone", "fetch", "pull", "push", "ls-remote"] {
            refused(&format!("{command} '{it}'"));
        }
    }
    refused(&format!("clone {url}/a/../../r.git"));
    refused(&format!("clone {url}%2f/r.git"));
    world.sh(&format!("cd r; git remote add bad {forbidden}")).expect(0);
    let config = world.workspace("a").join("r/.git/config");
    let text = fs::read_to_string(&config).expect("a config");
    let with = |lines: &str| fs::write(&config, format!("{text}{lines}\n")).expect("written");
    for command in ["fetch bad", "pull bad main", "push bad main", "ls-remote bad"] {
        refused(command);
    }
    with(&format!("[url \"{}/\"]\n\tinsteadOf = {url}/", other.url()));
    ["fetch", "pull", "push", "ls-remote"].into_iter().for_each(refused);
    with(&format!("[url \"{}/\"]\n\tpushInsteadOf = {url}/", other.url()));
    refused("push");
    with(&format!("[remote \"origin\"]\n\tpushurl = {forbidden}"));
    refused("push");
    with("[remote \"origin\"]\n\turl = ext::sh -c id\n[remote]\n\tpushDefault = bad");
    refused("push");
    with(&format!(
        "[http]\n\tproxy = {}\n[http \"{url}\"]\n\tproxy = {}",
        other.url(),
        other.url()
    ));
    world.sh("cd r; git fetch && git push").expect(0);
    assert_eq!(other.requests(), "");
    let away = world.sh(&format!("git clone {url}/away/r.git")).expect(128);
    assert!(away.stderr.contains("302"), "{}", away.stderr);
}

#[test]
fn a_token_goes_to_the_remotes_that_it_is_for() {
    let (world, server) = served("");
    let open = Server::start(&server.root, "");
    let (url, open_url) = (server.url(), open.url());
    with_git(
        &world,
        &format!(
            "allowedRemotes: ['http://127.0.0.1:*/**'], tokens: {{ '{url}/r.git': '{TOKEN}' }}"
        ),
    );
    world.sh(&format!("git clone -q {open_url}/r.git open")).expect(0);
    assert!(!server.requests().contains(" with\n"), "{}", server.requests());
    world.sh(&format!("git clone -q {url}/r.git")).expect(0);
    assert!(server.requests().contains(" with\n"));
    let refused = world.sh(&format!("git clone -q {url}/seed/.git")).expect(128);
    assert!(refused.stderr.contains("could not read Username"), "{}", refused.stderr);
}

#[test]
fn commands_are_those_of_the_table_and_of_the_configuration() {
    let world = &some_world();
    with_git(
        world,
        "allowedCommands: ['status', 'init', 'config', 'archive'], deniedCommands: ['init']",
    );
    let refused = |args: &str| {
        let done = world.sh(&format!("git {args}")).expect(2);
        assert!(done.stderr.contains("is not allowed"), "{args}: {}", done.stderr);
    };
    ["init", "config -l", "archive HEAD", "log", "filter-branch", "fast-import"]
        .into_iter()
        .for_each(refused);
    ["-c core.pager=id status", "--exec-path=/tmp status", "--git-dir=/x status"]
        .into_iter()
        .for_each(refused);
    assert_eq!(world.sh("git status").code, 128);
    let listed = world.sh("git").expect(2);
    assert_eq!(listed.stderr, "say a command: status\n");
}

#[test]
fn a_call_that_nobody_waits_for_ends_with_all_that_it_started() {
    let (world, server) = served("");
    world.start_gateway();
    let url = format!("{}/hang/r.git", server.url());
    let mut call = world.spawn(["exec", "a", "--", "git", "clone", &url]);
    drop(call.stdin.take());
    wait_until("it is asked", || server.requests().contains("/hang/"));
    crate::support::signal(call.id(), "TERM");
    call.wait_with_output().expect("it ends");
    wait_until("nobody waits", || server.requests().contains("hung up"));
    let left = world.home().join("agents/a/git");
    wait_until("nothing is left", || fs::read_dir(&left).expect("a folder").count() == 0);
}

/// What a plugin that is spoken to directly answers, on a host where that
/// program is not.
fn answer_without(program: &str) -> Value {
    let world = some_world();
    let workspace = world.root.join("w");
    fs::create_dir_all(&workspace).expect("a folder");
    let (uid, gid) = agent_ids();
    chown(&workspace, Some(uid), Some(gid)).expect("given");
    let places = ["/usr/bin", "/usr/local/bin"].map(|it| format!("{it}/{program}"));
    let hidden: Vec<&String> = places.iter().filter(|it| Path::new(it).exists()).collect();
    let mut child = Command::new("bwrap")
        .args(["--dev-bind", "/", "/"])
        .args(hidden.iter().flat_map(|it| ["--dev-bind", "/dev/null", it.as_str()]))
        .arg("--")
        .args([env!("CARGO_BIN_EXE_beige"), "plugin-run", "git"])
        .current_dir(&world.root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bwrap runs");
    let context = json!({"agentName": "a", "sessionKey": "api:a:x", "channel": "api",
        "agentDir": world.root, "workspaceDir": workspace, "cwd": ""});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "beige/tool", "params":
        {"tool": "git", "args": ["status"], "config": {}, "context": context}});
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(format!("{call}\n").as_bytes()).expect("written");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("an answer");
    drop(stdin);
    child.wait().expect("it ends");
    serde_json::from_str::<Value>(&line).expect("JSON")["result"].clone()
}

#[test]
fn without_bubblewrap_or_git_it_refuses_and_names_the_package() {
    for (program, want) in [("bwrap", "package `bubblewrap`"), ("git", "package git")] {
        let answer = answer_without(program);
        assert_eq!(answer["exitCode"], 1, "{answer}");
        assert!(answer["output"].as_str().is_some_and(|it| it.contains(want)), "{answer}");
    }
}
