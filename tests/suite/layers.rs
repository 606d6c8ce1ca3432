//! Reads the sources and holds them against the rules that no compiler
//! checks: which module may import which, who may print, start a thread or ask
//! for the time, and how a file must begin and end. ARCHITECTURE.md says why.
//! Each rule is shown a snippet that breaks it, so that it can fail.

mod tokens;

use std::fs;
use std::path::{Path, PathBuf};

use tokens::{Token, lex, without_tests};

/// Lowest first. A module imports from the rows above its own, never sideways.
const LAYERS: [&[&str]; 13] = [
    &["error"],
    &["clock"],
    &["worker"],
    &["secret"],
    &["message"],
    &["config"],
    &["policy", "audit", "provider", "sandbox", "session", "usage"],
    &["plugin"],
    &["tool"],
    &["turn"],
    &["gateway"],
    &["channel", "builtin"],
    &["cli"],
];

/// They may import everything: the map and the program itself.
const ABOVE_ALL: [&str; 2] = ["lib", "main"];

const MAX_LINES: usize = 500;

#[test]
fn the_sources_keep_the_rules() {
    let mut findings = Vec::new();
    let sources = sources();
    assert!(sources.len() > 15, "the sources were not found");
    for (path, text) in &sources {
        findings.extend(check(path, text));
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

/// All that is wrong with one file; `path` is below the repository's root.
fn check(path: &str, text: &str) -> Vec<String> {
    let mut findings = file_rules(path, text);
    let tokens = lex(text);
    findings.extend(unsafe_code(path, &tokens));
    let Some(module) = module_path(path) else { return findings };
    if module.iter().any(|it| it == "tests") {
        return findings;
    }
    let (tokens, _) = without_tests(tokens);
    findings.extend(imports(path, &module, &tokens));
    findings.extend(forbidden_calls(path, &module, &tokens));
    findings
}

/// `//!` first, and not too long.
fn file_rules(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(format!("{path}:1: begin with `//!`: what it owns and what it refuses"));
    }
    let (_, test_lines) = without_tests(lex(text));
    let lines = text.lines().count() - test_lines;
    if lines > MAX_LINES && !path.ends_with("/tests.rs") && !path.contains("/tests/") {
        findings.push(format!("{path}: {lines} lines without tests; look for the second concept"));
    }
    findings
}

fn unsafe_code(path: &str, tokens: &[Token]) -> Vec<String> {
    let found = tokens.iter().filter(|it| it.text == "unsafe");
    found.map(|it| format!("{path}:{}: no `unsafe`", it.line)).collect()
}

/// Imports that do not point from a higher layer to a lower one.
fn imports(path: &str, module: &[String], tokens: &[Token]) -> Vec<String> {
    let Some(this) = module.first().filter(|it| !ABOVE_ALL.contains(&it.as_str())) else {
        return Vec::new();
    };
    let Some(own_layer) = layer(this) else {
        return vec![format!("{path}: `{this}` has no place in the layers")];
    };
    let mut findings = Vec::new();
    for (imported, line) in imported_modules(module, tokens) {
        let wrong = match layer(&imported) {
            _ if imported == *this => None,
            None => Some("is no module with a place in the layers"),
            Some(it) if it == own_layer => Some("lies beside it"),
            Some(it) if it > own_layer => Some("lies above it"),
            Some(_) => None,
        };
        let text = wrong.map(|it| format!("{path}:{line}: `{this}` uses `{imported}`, which {it}"));
        findings.extend(text);
    }
    findings
}

/// What only one module may do.
fn forbidden_calls(path: &str, module: &[String], tokens: &[Token]) -> Vec<String> {
    let home = module.first().map_or("", String::as_str);
    let prints = ["channel", "cli"].contains(&home);
    let mut rules: Vec<(&[&str], &str)> = vec![(&["mod", "tests"], "behind `#[cfg(test)]` only")];
    if !prints {
        rules.extend([
            (&["println", "!"][..], "only `channel` and `cli` print"),
            (&["eprintln", "!"][..], "only `channel` and `cli` print"),
            (&["print", "!"][..], "only `channel` and `cli` print"),
            (&["eprint", "!"][..], "only `channel` and `cli` print"),
            (&["dbg", "!"][..], "only `channel` and `cli` print"),
        ]);
    }
    if home != "worker" {
        rules.extend([
            (&["thread", "::", "spawn"][..], "only `worker` starts threads"),
            (&["thread", "::", "Builder"][..], "only `worker` starts threads"),
            (&["scope", ".", "spawn"][..], "only `worker` starts threads"),
        ]);
    }
    if home != "clock" {
        rules.push((&["SystemTime", "::", "now"], "only `clock` asks for the time"));
    }
    let mut findings = Vec::new();
    for (pattern, why) in rules {
        for found in tokens.windows(pattern.len()).filter(|it| it.iter().eq(pattern)) {
            let line = found[0].line;
            findings.push(format!("{path}:{line}: `{}`: {why}", pattern.concat()));
        }
    }
    findings
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|it| it.contains(&module))
}

/// The modules of a file of the gateway: `src/plugin/run.rs` is `plugin`,
/// `run`. Files of other crates have none.
fn module_path(path: &str) -> Option<Vec<String>> {
    let below = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let below = below.strip_suffix("/mod").unwrap_or(below);
    Some(below.split('/').map(str::to_owned).collect())
}

/// The top modules that a file names by `crate::…`, `beige::…` or enough
/// `super::`s, and on which line.
fn imported_modules(module: &[String], tokens: &[Token]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let begins = !token_before(tokens, index).is_some_and(|it| it == "::" || it == "in");
        let in_visibility = token_before(tokens, index) == Some("(")
            && tokens.get(index + 1).is_some_and(|it| it.text == ")");
        let is_path = tokens.get(index + 1).is_some_and(|it| it.text == "::");
        let starts = match token.text.as_str() {
            "crate" | "super" => true,
            // Also the name of a field in session files.
            "beige" => is_path,
            _ => false,
        };
        if !starts || !begins || in_visibility {
            continue;
        }
        for path in paths(&tokens[index..]).0 {
            found.extend(top_module(module, &path).map(|it| (it, token.line)));
        }
    }
    found
}

fn token_before(tokens: &[Token], index: usize) -> Option<&str> {
    tokens.get(index.checked_sub(1)?).map(|it| it.text.as_str())
}

/// The top module that a path leads to; `None` if it stays below the one it
/// is written in.
fn top_module(module: &[String], path: &[String]) -> Option<String> {
    let supers = path.iter().take_while(|it| *it == "super").count();
    let first = path.first().map(String::as_str);
    if first == Some("super") && supers < module.len() {
        return None;
    }
    let rest = if first == Some("super") { &path[supers..] } else { &path[1..] };
    // A bare `crate` or a glob of it: every module at once.
    Some(rest.first().cloned().unwrap_or_else(|| "*".into()))
}

/// Every path of a tree such as `crate::{a::b, c::{d, e}}`, and how many
/// tokens it takes.
fn paths(tokens: &[Token]) -> (Vec<Vec<String>>, usize) {
    let mut prefix = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if token.text == "{" {
            let (branches, taken) = group(&tokens[at..]);
            let joined = branches.into_iter().map(|it| [prefix.clone(), it].concat());
            return (joined.collect(), at + taken);
        }
        prefix.push(token.text.clone());
        at += 1;
        if tokens.get(at).is_none_or(|it| it.text != "::") {
            break;
        }
        at += 1;
    }
    (vec![prefix], at)
}

/// The paths between braces.
fn group(tokens: &[Token]) -> (Vec<Vec<String>>, usize) {
    let mut found = Vec::new();
    let mut at = 1;
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "}" => return (found, at + 1),
            "," => at += 1,
            // The new name means nothing here.
            "as" => at += 2,
            _ => {
                let (branches, taken) = paths(&tokens[at..]);
                found.extend(branches);
                at += taken;
            }
        }
    }
    (found, at)
}

/// Every source file of the workspace: its path below the root, and its text.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut unread: Vec<PathBuf> =
        ["src", "tool-client/src", "bench/src"].map(|it| root.join(it)).into();
    let mut found = Vec::new();
    while let Some(folder) = unread.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                unread.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let below = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                found.push((below, fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    found.sort();
    found
}

/// What the rules say of a snippet that stands behind a sound first line.
#[track_caller]
fn expect(path: &str, snippet: &str, want: &[&str]) {
    assert_eq!(check(path, &format!("//! A test.\n{snippet}")), want, "{snippet}");
}

#[test]
fn an_import_from_above_is_found() {
    expect(
        "src/policy.rs",
        "use crate::error::Result;\nuse crate::tool::Toolbox;",
        &["src/policy.rs:3: `policy` uses `tool`, which lies above it"],
    );
    expect(
        "src/config/mod.rs",
        "use crate::{error::{During, Result}, secret, plugin::manifest};",
        &["src/config/mod.rs:2: `config` uses `plugin`, which lies above it"],
    );
    expect(
        "src/session/store.rs",
        "fn f() { crate::turn::go() }",
        &["src/session/store.rs:2: `session` uses `turn`, which lies above it"],
    );
    expect("src/cli/exec.rs", "use crate::channel::http;\nuse crate::cli::print;", &[]);
    expect("src/lib.rs", "use crate::cli::print;", &[]);
}

#[test]
fn an_import_from_beside_is_found() {
    expect(
        "src/audit.rs",
        "use crate::policy;",
        &["src/audit.rs:2: `audit` uses `policy`, which lies beside it"],
    );
}

#[test]
fn an_import_in_disguise_is_found() {
    let above = "which lies above it";
    expect(
        "src/sandbox/child.rs",
        "use super::super::{audit, error};",
        &["src/sandbox/child.rs:2: `sandbox` uses `audit`, which lies beside it"],
    );
    expect(
        "src/clock.rs",
        "use super::worker;",
        &[&format!("src/clock.rs:2: `clock` uses `worker`, {above}")],
    );
    expect(
        "src/error.rs",
        "use beige::cli;",
        &[&format!("src/error.rs:2: `error` uses `cli`, {above}")],
    );
    let nowhere = "which is no module with a place in the layers";
    expect(
        "src/error.rs",
        "use crate::*;",
        &[&format!("src/error.rs:2: `error` uses `*`, {nowhere}")],
    );
    expect(
        "src/error.rs",
        "use crate::{self as it};",
        &[&format!("src/error.rs:2: `error` uses `self`, {nowhere}")],
    );
}

#[test]
fn a_module_without_a_place_is_found() {
    expect("src/utils.rs", "", &["src/utils.rs: `utils` has no place in the layers"]);
}

#[test]
fn what_only_looks_like_an_import_is_not_found() {
    expect(
        "src/error.rs",
        r###"
        // use crate::cli;
        /* crate::cli /* nested */ crate::cli */
        pub(crate) fn f<'a>(it: &'a str) -> char { '"' }
        pub(super) const A: &str = "crate::cli \" crate::cli";
        const B: &str = r#"crate::cli " crate::cli"#;
        const C: &[u8] = b"\"crate::cli";
        struct D { beige: u8 }
        "###,
        &[],
    );
    expect("src/plugin/run.rs", "use super::child;\nuse super::super::error;", &[]);
}

#[test]
fn tests_may_import_what_they_like() {
    expect(
        "src/error.rs",
        "#[cfg(test)]\n#[allow(x)]\nmod tests {\n use crate::cli;\n fn f() { println!() }\n}",
        &[],
    );
    expect("src/error/tests.rs", "use crate::cli;", &[]);
    expect(
        "src/error.rs",
        "#[cfg(test)]\nuse crate::cli;\nuse crate::cli;",
        &["src/error.rs:4: `error` uses `cli`, which lies above it"],
    );
    expect(
        "src/error.rs",
        "mod tests;",
        &["src/error.rs:2: `modtests`: behind `#[cfg(test)]` only"],
    );
}

#[test]
fn printing_is_found() {
    let why = "only `channel` and `cli` print";
    for name in ["println", "eprintln", "print", "eprint", "dbg"] {
        expect(
            "src/gateway/mod.rs",
            &format!("fn f() {{ {name}!(\"x\") }}"),
            &[&format!("src/gateway/mod.rs:2: `{name}!`: {why}")],
        );
    }
    expect("src/cli/mod.rs", "fn f() { println!() }", &[]);
    expect("src/channel/http/mod.rs", "fn f() { eprintln!() }", &[]);
    expect("src/gateway/mod.rs", "/// Like println!(), but not.\nfn f() {}", &[]);
}

#[test]
fn a_thread_outside_worker_is_found() {
    let why = "only `worker` starts threads";
    for call in ["thread::spawn", "thread::Builder", "scope.spawn"] {
        expect(
            "src/tool/mod.rs",
            &format!("fn f() {{ {call}(x) }}"),
            &[&format!("src/tool/mod.rs:2: `{call}`: {why}")],
        );
    }
    expect("src/worker.rs", "fn f() { thread::spawn(x) }", &[]);
}

#[test]
fn a_question_for_the_time_outside_clock_is_found() {
    expect(
        "src/audit.rs",
        "fn f() { std::time::SystemTime::now(); Instant::now(); }",
        &["src/audit.rs:2: `SystemTime::now`: only `clock` asks for the time"],
    );
    expect("src/clock.rs", "fn f() { SystemTime::now(); }", &[]);
}

#[test]
fn unsafe_code_is_found_everywhere() {
    expect(
        "tool-client/src/main.rs",
        "#![forbid(unsafe_code)]\nfn f() { unsafe {} }",
        &["tool-client/src/main.rs:3: no `unsafe`"],
    );
    expect("src/error/tests.rs", "fn f() { unsafe {} }", &["src/error/tests.rs:2: no `unsafe`"]);
}

#[test]
fn a_file_without_its_purpose_is_found() {
    assert_eq!(
        check("src/error.rs", "use std::fmt;\n"),
        ["src/error.rs:1: begin with `//!`: what it owns and what it refuses"]
    );
}

#[test]
fn a_long_file_is_found_and_its_tests_do_not_count() {
    let long = "fn f() {}\n".repeat(MAX_LINES);
    expect(
        "src/error.rs",
        &long,
        &["src/error.rs: 501 lines without tests; look for the second concept"],
    );
    expect("src/error.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n"), &[]);
    expect("src/error/tests.rs", &long, &[]);
}

/// The names that `deny.toml` bans.
fn banned(deny: &str) -> Vec<&str> {
    let list = deny.split_once("\ndeny = [").and_then(|(_, it)| it.split_once("\n]"));
    let lines = list.map_or("", |(it, _)| it).lines();
    lines.filter_map(|it| it.trim().strip_prefix('"')?.strip_suffix("\",")).collect()
}

#[test]
fn no_banned_crate_is_in_the_tree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let (deny, lock) = (read("deny.toml"), read("Cargo.lock"));
    let banned = banned(&deny);
    assert!(banned.contains(&"tokio") && lock.contains("name = \"rustix\""), "files not found");
    let found = banned.iter().filter(|it| lock.contains(&format!("name = \"{it}\"\n")));
    assert_eq!(found.collect::<Vec<_>>(), Vec::<&&str>::new());
}
