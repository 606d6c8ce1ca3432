//! Repositories that want to run something or to reach out of the workspace.
//! That each trap is one is shown first: a person's git falls into it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use super::{host_command, host_git, served, with_git};
use crate::support::{World, agent_ids, some_world};

/// What a trap does: from the top of a repository, in the workspace.
const SPRUNG: &str = "echo > ../owned; cat";

/// A repository and what falls into its trap.
struct Trap {
    name: &'static str,
    /// Lines of its configuration.
    config: String,
    /// `git` with these words.
    words: &'static [&'static str],
    /// Files beside it, and whether they may be executed.
    files: &'static [(&'static str, &'static str)],
}

fn trap(
    name: &'static str,
    config: impl Into<String>,
    words: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
) -> Trap {
    Trap { name, config: config.into(), words, files }
}

const HOOK: &str = "#!/bin/sh\necho > ../owned\n";
const ATTRIBUTES: (&str, &str) = (".gitattributes", "f diff=x filter=x merge=x\n");
const COMMIT: &[&str] = &["commit", "-qam", "more"];

fn traps() -> Vec<Trap> {
    let quoted = format!("\"{SPRUNG}\"");
    let filter = |it: &str| format!("[filter \"x\"]\n\t{it} = {quoted}\n");
    let driver = |it: &str| format!("[diff \"x\"]\n\t{it} = {quoted}\n");
    vec![
        trap("a hook", "", COMMIT, &[(".git/hooks/pre-commit", HOOK)]),
        trap("hooks elsewhere", "[core]\n\thooksPath = hk\n", COMMIT, &[("hk/pre-commit", HOOK)]),
        trap("fsmonitor", format!("[core]\n\tfsmonitor = {quoted}\n"), &["status"], &[]),
        trap("an editor", format!("[core]\n\teditor = {quoted}\n"), &["commit", "-a"], &[]),
        trap(
            "an editor of lists",
            format!("[sequence]\n\teditor = {quoted}\n"),
            &["rebase", "-i", "--root", "--autostash"],
            &[],
        ),
        trap(
            "signing",
            "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = ./sign\n",
            COMMIT,
            &[("sign", HOOK)],
        ),
        trap("an external diff", format!("[diff]\n\texternal = {quoted}\n"), &["diff"], &[]),
        trap("a diff driver", driver("command"), &["diff"], &[ATTRIBUTES]),
        trap("textconv", driver("textconv"), &["diff"], &[ATTRIBUTES]),
        trap("textconv in a log", driver("textconv"), &["log", "-p"], &[ATTRIBUTES]),
        trap("a clean filter", filter("clean"), &["add", "f"], &[ATTRIBUTES]),
        trap("a smudge filter", filter("smudge"), &["checkout", "f"], &[ATTRIBUTES]),
        trap("a filter process", filter("process"), &["add", "f"], &[ATTRIBUTES]),
        trap(
            "an included file",
            "[include]\n\tpath = ../more\n",
            &["add", "f"],
            &[ATTRIBUTES, ("more", "[filter \"x\"]\n\tclean = \"echo > ../owned; cat\"\n")],
        ),
        trap(
            "an included file on a condition",
            "[includeIf \"gitdir:**\"]\n\tpath = ../more\n",
            &["add", "f"],
            &[ATTRIBUTES, ("more", "[filter \"x\"]\n\tclean = \"echo > ../owned; cat\"\n")],
        ),
        trap(
            "a file of the worktree's own",
            "[extensions]\n\tworktreeConfig = true\n",
            &["add", "f"],
            &[
                ATTRIBUTES,
                (".git/config.worktree", "[filter \"x\"]\n\tclean = \"echo > ../owned; cat\"\n"),
            ],
        ),
        trap(
            "a trailer",
            format!("[trailer \"x\"]\n\tkey = x\n\tcommand = {quoted}\n"),
            &["commit", "-qam", "more", "--trailer", "x=y"],
            &[],
        ),
    ]
}

/// The repository `NAME` of the workspace: a commit, a change that is not in
/// it, and what the trap wants.
fn lay(world: &World, it: &Trap) -> PathBuf {
    let top = world.workspace("a").join("t");
    fs::create_dir_all(&top).expect("a folder");
    host_git(&top, &["init", "-q", "-b", "main"]);
    fs::write(top.join("f"), "one\n").expect("written");
    host_git(&top, &["add", "f"]);
    host_git(&top, &["commit", "-qm", "one"]);
    fs::write(top.join("f"), "two\n").expect("written");
    for (name, text) in it.files {
        let path = top.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let config = top.join(".git/config");
    let text = fs::read_to_string(&config).expect("a config");
    fs::write(&config, text + &it.config).expect("written");
    give(&top);
    top
}

/// Gives it all to the agent.
fn give(path: &Path) {
    let (uid, gid) = agent_ids();
    lchown(path, Some(uid), Some(gid)).expect("given");
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).expect("a folder") {
            give(&entry.expect("an entry").path());
        }
    }
}

/// A world whose workspace is there.
fn world() -> World {
    let world = some_world();
    with_git(&world, "");
    world.sh("true").expect(0);
    world
}

#[test]
fn no_repository_runs_anything() {
    let world = world();
    let owned = world.workspace("a").join("owned");
    for it in traps() {
        let top = lay(&world, &it);
        let _ = host_command(&top, it.words).output().expect("git runs");
        assert!(owned.exists(), "{} is no trap", it.name);
        fs::remove_file(&owned).expect("removed");
        fs::remove_dir_all(&top).expect("removed");
        let top = lay(&world, &it);
        let words = it.words.join(" ");
        let done = world.sh(&format!("cd t && git {words}; echo $?"));
        assert!(!owned.exists(), "{}: {} {}", it.name, done.text(), done.stderr);
        fs::remove_dir_all(&top).expect("removed");
    }
}

#[test]
fn a_merge_driver_a_list_of_a_rebase_and_a_submodule_run_nothing() {
    let world = world();
    let owned = world.workspace("a").join("owned");
    let plain = trap("", "", &[], &[]);
    let check = |words: &str, lay_trap: &dyn Fn(&Path)| {
        for is_person in [true, false] {
            let top = lay(&world, &plain);
            lay_trap(&top);
            give(&top);
            if is_person {
                let words: Vec<&str> = words.split(' ').collect();
                let _ = host_command(&top, &words).output().expect("git runs");
            } else {
                world.sh(&format!("cd t && git {words}"));
            }
            assert_eq!(owned.exists(), is_person, "{words}");
            let _ = fs::remove_file(&owned);
            fs::remove_dir_all(&top).expect("removed");
        }
    };
    let append = |path: PathBuf, more: &str| {
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, text + more).expect("written");
    };
    check("merge side", &|top| {
        host_git(top, &["checkout", "-qb", "side"]);
        host_git(top, &["commit", "-qam", "two"]);
        host_git(top, &["checkout", "-q", "main"]);
        fs::write(top.join("f"), "three\n").expect("written");
        host_git(top, &["commit", "-qam", "three"]);
        append(top.join(".git/info/attributes"), "f merge=x\n");
        append(top.join(".git/config"), "[merge \"x\"]\n\tdriver = \"echo > ../owned; true\"\n");
    });
    check("rebase --continue", &|top| {
        host_git(top, &["commit", "-qam", "two"]);
        let mut rebase = host_command(top, &["rebase", "-q", "-i", "HEAD~1"]);
        rebase.env("GIT_SEQUENCE_EDITOR", "echo break >");
        assert!(rebase.status().expect("git runs").success());
        append(top.join(".git/rebase-merge/git-rebase-todo"), "exec echo > ../owned\n");
    });
    for (words, program) in [
        ("status", "[core]\n\tfsmonitor = \"echo > ../../owned; false\"\n"),
        ("status", "[filter \"x\"]\n\tclean = \"echo > ../../owned; cat\"\n"),
        ("add .", "[filter \"x\"]\n\tclean = \"echo > ../../owned; cat\"\n"),
        ("stash", "[filter \"x\"]\n\tclean = \"echo > ../../owned; cat\"\n"),
        ("rm inner", "[filter \"x\"]\n\tclean = \"echo > ../../owned; cat\"\n"),
        ("diff", "[filter \"x\"]\n\tclean = \"echo > ../../owned; cat\"\n"),
    ] {
        check(words, &|top| lay_submodule(top, program));
    }
}

/// A submodule with a change in it, with those lines in its configuration.
fn lay_submodule(top: &Path, config: &str) {
    let inner = top.join("inner");
    fs::create_dir_all(&inner).expect("a folder");
    host_git(&inner, &["init", "-q"]);
    fs::write(inner.join("f"), "one\n").expect("written");
    fs::write(inner.join(".gitattributes"), "f filter=x\n").expect("written");
    host_git(&inner, &["add", "."]);
    host_git(&inner, &["commit", "-qm", "x"]);
    host_git(top, &["-c", "advice.addEmbeddedRepo=false", "add", "inner"]);
    let named = "[submodule \"inner\"]\n\tpath = inner\n\turl = ./x\n\tignore = none\n";
    fs::write(top.join(".gitmodules"), named).expect("written");
    host_git(top, &["add", ".gitmodules"]);
    host_git(top, &["commit", "-qm", "x"]);
    fs::write(inner.join("f"), "two\n").expect("written");
    let file = inner.join(".git/config");
    let text = fs::read_to_string(&file).expect("a config");
    fs::write(file, text + config).expect("written");
}

#[test]
fn no_repository_shows_what_lies_outside_of_the_workspace() {
    let world = world();
    let outside = world.root.join("outside");
    fs::create_dir_all(&outside).expect("a folder");
    host_git(&outside, &["init", "-q", "-b", "main"]);
    fs::write(outside.join("f"), "a secret of the host\n").expect("written");
    host_git(&outside, &["add", "f"]);
    host_git(&outside, &["commit", "-qm", "a secret message"]);
    let blob = host_git(&outside, &["rev-parse", "HEAD:f"]).trim().to_owned();
    give(&outside);
    let hidden = outside.join(".git");
    let check = |command: &str, lay_trap: &dyn Fn(&Path)| {
        let top = world.workspace("a").join("t");
        fs::create_dir_all(&top).expect("a folder");
        lay_trap(&top);
        give(&top);
        assert!(host_git(&top, &command.split(' ').collect::<Vec<_>>()).contains("secret"));
        let done = world.sh(&format!("cd t && git {command}"));
        assert!(done.code != 0 || done.text().is_empty(), "{command}: {}", done.text());
        assert!(!done.text().contains("secret") && !done.stderr.contains("secret"), "{command}");
        fs::remove_dir_all(&top).expect("removed");
    };
    check("log", &|top| symlink(&hidden, top.join(".git")).expect("a link"));
    check("log", &|top| {
        fs::write(top.join(".git"), format!("gitdir: {}\n", hidden.display())).expect("written");
    });
    check(&format!("cat-file -p {blob}"), &|top| {
        host_git(top, &["init", "-q"]);
        let alternates = top.join(".git/objects/info/alternates");
        fs::write(alternates, format!("{}/objects\n", hidden.display())).expect("written");
    });
    check(&format!("cat-file -p {blob}"), &|top| {
        host_git(top, &["init", "-q"]);
        fs::remove_dir_all(top.join(".git/objects")).expect("removed");
        symlink(hidden.join("objects"), top.join(".git/objects")).expect("a link");
    });
    fs::write(outside.join("secret-name"), "").expect("written");
    check("ls-files -o", &|top| {
        host_git(top, &["init", "-q"]);
        host_git(top, &["config", "core.worktree", &outside.display().to_string()]);
    });
    let through = format!("-C {} log", outside.display());
    check(&through, &|_| {});
}

/// Puts what is in one loose object where another is.
fn pretend(objects: &Path, id: &str, other: &str) {
    let path = |id: &str| objects.join(&id[..2]).join(&id[2..]);
    fs::remove_file(path(id)).expect("removed");
    fs::copy(path(other), path(id)).expect("copied");
}

#[test]
fn a_forged_history_overwrites_nothing_over_there() {
    let (world, server) = served("");
    let before = server.id_of("refs/heads/main");
    let lines = "git commit -q --amend -m other && git commit -q --allow-empty -m third";
    world.sh(&format!("git clone -q {}/r.git t && cd t && {lines}", server.url())).expect(0);
    let top = world.workspace("a").join("t");
    let objects = top.join(".git/objects");
    let id = host_git(&top, &["rev-parse", "HEAD~"]).trim().to_owned();
    // As a child of what is over there it goes into the graph, and is then
    // again what it was.
    let tree = format!("{id}^{{tree}}");
    let forged = host_git(&top, &["commit-tree", "-p", &before, "-m", "x", &tree]);
    let kept = top.join("kept");
    let place = objects.join(&id[..2]).join(&id[2..]);
    fs::copy(&place, &kept).expect("copied");
    pretend(&objects, &id, forged.trim());
    host_git(&top, &["commit-graph", "write", "--reachable"]);
    fs::remove_file(&place).expect("removed");
    fs::rename(&kept, &place).expect("put back");
    give(&top);
    host_git(&top, &["merge-base", "--is-ancestor", &before, "HEAD"]);
    let done = world.sh("cd t && git push");
    assert!(done.code != 0 && done.stderr.contains("(non-fast-forward)"), "{}", done.stderr);
    assert_eq!(server.id_of("refs/heads/main"), before);
}

#[test]
fn no_link_among_the_objects_tells_what_it_leads_to() {
    let (world, server) = served("");
    world.sh(&format!("git clone -q {}/r.git t", server.url())).expect(0);
    let check = |name: &str, file: &str, words: [&str; 2]| {
        let place = format!(".git/objects/info/{name}");
        let link = format!("mkdir -p $(dirname {place}) && ln -s {file} {place}");
        let push = format!("git push origin HEAD:refs/heads/new-{}-{}", name.len(), file.len());
        let done = world.sh(&format!("cd t && {link} && {push}; rm {place}"));
        let told = done.text() + &done.stderr;
        assert!(!words.iter().any(|it| told.contains(it)), "{name}, {file}: {told}");
    };
    for name in ["alternates", "commit-graphs/commit-graph-chain"] {
        check(name, "/run/beige/credential", ["username", "password"]);
        check(name, "/proc/self/mountinfo", [" /proc ", " /workspace "]);
    }
}
