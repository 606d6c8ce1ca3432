//! Tests of what is started for a plugin in TypeScript. The runtimes here are
//! shell scripts; the real ones are tried from outside.

use super::*;
use crate::plugin::tests::Scratch;
use crate::worker::Cancel;

/// What runs a plugin whose PATH holds these programs, each a script.
#[track_caller]
fn check(programs: &[(&str, &str)], want: Result<Runtime, &str>) {
    let scratch = Scratch::new();
    for (path, script) in programs {
        scratch.write_program(path, script);
    }
    let place = |name: &str| scratch.path().join(name);
    let path = format!("{}:{}", place("a").display(), place("b").display());
    let launch = Launch {
        plugin: "p".into(),
        argv: Vec::new(),
        folder: scratch.path().to_owned(),
        env: vec![("PATH".into(), path.into())],
        typescript: None,
    };
    let cancel = Cancel::never();
    let found = find(&launch, Asker { cancel: &cancel, line: None });
    let root = format!("{}/", scratch.path().display());
    let found = found.map_err(|it| it.to_string().replace(&root, ""));
    let want = want.map(|it| match it {
        Runtime::Node(name, version) => Runtime::Node(scratch.path().join(name), version),
        Runtime::Deno(name) => Runtime::Deno(scratch.path().join(name)),
        Runtime::Bun(name) => Runtime::Bun(scratch.path().join(name)),
    });
    assert_eq!(found, want.map_err(str::to_owned));
}

const NEW: &str = "#!/bin/sh\necho v22.6.0\n";
const OLD: &str = "#!/bin/sh\necho v22.5.9\n";
const ODD: &str = "#!/bin/sh\necho oh\n";

#[test]
fn the_first_runtime_that_can_do_it_is_taken() {
    let all = [("a/bun", ODD), ("a/deno", ODD), ("b/node", NEW)];
    check(&all, Ok(Runtime::Node("b/node".into(), (22, 6))));
    let two = [("a/node", OLD), ("b/node", NEW)];
    check(&two, Ok(Runtime::Node("b/node".into(), (22, 6))));
    let old = [("a/node", OLD), ("b/node", ODD), ("a/bun", ODD), ("b/deno", ODD)];
    check(&old, Ok(Runtime::Deno("b/deno".into())));
    check(&[("a/bun", ODD)], Ok(Runtime::Bun("a/bun".into())));
}

#[test]
fn without_one_what_is_needed_is_told() {
    let need = "a plugin in TypeScript needs node 22.6 or newer, deno or bun on PATH, and there is \
                none";
    check(&[], Err(need));
    let why = format!("{need} (a/node is 22.5; b/node tells no version of its own)");
    check(&[("a/node", OLD), ("b/node", ODD)], Err(&why));
}

#[track_caller]
fn check_argv(runtime: &Runtime, want: &[&str]) {
    assert_eq!(argv(runtime, Path::new("/a b/host.mjs")), want);
}

#[test]
fn each_runtime_is_told_how_to_take_it() {
    const QUIET: [&str; 2] =
        ["--disable-warning=ExperimentalWarning", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON"];
    let node = |minor| Runtime::Node("/node".into(), (22, minor));
    let host = "/a b/host.mjs";
    check_argv(&node(18), &["/node", QUIET[0], QUIET[1], host]);
    let flag = "--experimental-transform-types";
    check_argv(&node(17), &["/node", QUIET[0], QUIET[1], flag, host]);
    let flags = ["--experimental-strip-types", "--experimental-detect-module"];
    check_argv(&node(6), &["/node", QUIET[0], QUIET[1], flags[0], flags[1], host]);
    check_argv(&Runtime::Bun("/bun".into()), &["/bun", "run", "--no-install", host]);
    let map = "--import-map=data:application/json,{\"imports\":\
               {\"@matthias-hausberger/beige\":\"file:///a%2520b/host.mjs\"}}";
    let import = "import \"file:///a%20b/host.mjs\"";
    let flags = ["--quiet", "--no-lock", "--unstable-sloppy-imports"];
    check_argv(
        &Runtime::Deno("/deno".into()),
        &["/deno", "eval", flags[0], flags[1], flags[2], map, import],
    );
}

#[test]
fn the_host_is_laid_anew_only_where_it_is_another() -> Result<()> {
    let scratch = Scratch::new();
    let path = lay(scratch.path())?;
    fs::write(&path, "older").during(Kind::Internal, "write")?;
    let running = File::open(&path).during(Kind::Internal, "open")?;
    lay(scratch.path())?;
    let text = |it: File| std::io::read_to_string(it).unwrap_or_default();
    assert_eq!(text(running), "older", "one that runs keeps its own");
    assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some(HOST));
    let before = fs::metadata(&path).and_then(|it| it.modified()).ok();
    lay(scratch.path())?;
    assert_eq!(fs::metadata(&path).and_then(|it| it.modified()).ok(), before);
    assert_eq!(fs::read_dir(scratch.path()).map(|it| it.count()).ok(), Some(1));
    Ok(())
}
