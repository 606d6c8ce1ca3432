//! `--file` as the gateway uses it, on this host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};
use support::{Scratch, Talk, Told};
use tool_client::frame;

/// Asks for one thing in that workspace, with that input.
fn ask(workspace: &Path, mut request: Value, input: &[u8]) -> Told {
    request["workspace"] = json!(workspace);
    let mut talk = Talk::ask("--file", &request);
    for piece in input.chunks(16 * 1024) {
        talk.send(frame::STDIN, piece);
    }
    talk.send(frame::STDIN_END, b"");
    talk.end()
}

fn read(workspace: &Path, path: &str) -> Told {
    ask(workspace, json!({"op": "read", "path": path}), b"")
}

fn write(workspace: &Path, path: &str, content: &[u8]) -> Value {
    ask(workspace, json!({"op": "write", "path": path, "bytes": content.len()}), content).exit
}

fn patch(workspace: &Path, path: &str, old: &str, new: &str) -> Value {
    let request = json!({
        "op": "patch", "path": path, "oldBytes": old.len(), "newBytes": new.len(),
    });
    ask(workspace, request, format!("{old}{new}").as_bytes()).exit
}

#[track_caller]
fn failed(result: &Value, code: &str, why: &str) {
    assert_eq!(result["code"], code, "{result}");
    assert!(result["error"].as_str().is_some_and(|it| it.contains(why)), "{result}");
}

/// Names of what is in the folder, hidden ones too.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn any_name_works_for_writing_and_reading() {
    let it = Scratch::new();
    for name in [
        "it's.txt",
        "--version",
        "-x",
        "a\nb",
        "x'; echo no; '",
        "$HOME",
        "日本 語",
        "new/folder/f",
    ] {
        let written = write(it.path(), name, "あ\n".as_bytes());
        assert_eq!(written, json!({"bytes": 4, "created": true}), "{name}");
        assert_eq!(read(it.path(), name).stdout, "あ\n".as_bytes(), "{name}");
    }
    assert_eq!(write(it.path(), "-x", b""), json!({"bytes": 0, "created": false}));
    failed(&write(it.path(), "folder/", b"x"), "folder", "it is a folder");
    failed(&write(it.path(), "..", b"x"), "folder", "it is a folder");
    failed(&write(it.path(), &"x".repeat(300), b"x"), "other", "too long");
}

#[test]
fn a_file_keeps_its_mode_and_a_link_its_target() {
    let it = Scratch::new();
    let script = it.path().join("real.sh");
    fs::write(&script, "old").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    symlink("real.sh", it.path().join("link")).unwrap();
    assert_eq!(write(it.path(), "link", b"new")["created"], false);
    assert_eq!(fs::read(&script).unwrap(), b"new");
    assert_eq!(fs::metadata(&script).unwrap().mode() & 0o7777, 0o750);
    assert!(fs::symlink_metadata(it.path().join("link")).unwrap().is_symlink());

    symlink("sub/later", it.path().join("dangling")).unwrap();
    assert_eq!(write(it.path(), "dangling", b"x")["created"], true);
    assert_eq!(fs::read(it.path().join("sub/later")).unwrap(), b"x");

    symlink("b", it.path().join("a")).unwrap();
    symlink("a", it.path().join("b")).unwrap();
    failed(&write(it.path(), "a", b"x"), "other", "circle");
}

#[test]
fn content_that_does_not_come_whole_changes_nothing() {
    let it = Scratch::new();
    fs::write(it.path().join("f"), "old").unwrap();
    let request = json!({"op": "write", "path": "f", "bytes": 100});
    failed(&ask(it.path(), request.clone(), b"short").exit, "other", "never came");
    failed(
        &ask(it.path(), json!({"op": "write", "path": "f", "bytes": 1}), b"long").exit,
        "other",
        "more content",
    );

    let mut cancelled = request.clone();
    cancelled["workspace"] = json!(it.path());
    let mut talk = Talk::ask("--file", &cancelled);
    talk.send(frame::STDIN, b"part");
    talk.send(frame::CANCEL, b"");
    failed(&talk.end().exit, "other", "called off");

    let mut talk = Talk::ask("--file", &cancelled);
    talk.send(frame::STDIN, b"part");
    talk.hang_up();
    failed(&talk.end().exit, "other", "called off");

    assert_eq!(fs::read(it.path().join("f")).unwrap(), b"old");
    assert_eq!(names(it.path()), ["f"]);
}

#[test]
fn a_large_file_is_written_within_the_window() {
    let it = Scratch::new();
    let content: Vec<u8> = (0..5_000_000_u32).map(|it| u8::try_from(it % 251).unwrap()).collect();
    let request =
        json!({"op": "write", "path": "f", "bytes": content.len(), "workspace": it.path()});
    let mut talk = Talk::ask("--file", &request);
    let mut window = frame::WINDOW_START as usize;
    for piece in content.chunks(8000) {
        while window < piece.len() {
            let grant = talk.next().expect("a grant");
            assert_eq!(grant.kind, frame::WINDOW);
            window += u32::from_be_bytes(grant.payload.try_into().unwrap()) as usize;
        }
        window -= piece.len();
        talk.send(frame::STDIN, piece);
    }
    talk.send(frame::STDIN_END, b"");
    assert_eq!(talk.end().exit["bytes"], content.len());
    assert_eq!(fs::read(it.path().join("f")).unwrap(), content);
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let it = Scratch::new();
    fifo(&it.path().join("fifo"));
    symlink("fifo", it.path().join("to-fifo")).unwrap();
    symlink("/dev/zero", it.path().join("zero")).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(it.path().join("sock")).unwrap();
    for name in ["fifo", "to-fifo", "zero", "sock"] {
        failed(&read(it.path(), name).exit, "special", "not a file");
        failed(&write(it.path(), name, b"x"), "special", "not a file");
        failed(&patch(it.path(), name, "a", "b"), "special", "not a file");
        let fetched = ask(it.path(), json!({"op": "fetch", "path": name, "max": 10}), b"").exit;
        failed(&fetched, "special", "not a file");
    }
    failed(&write(it.path(), "fifo/x", b"x"), "other", "not a folder");
    failed(&patch(it.path(), ".", "a", "b"), "folder", "it is a folder");
}

#[test]
fn what_is_missing_comes_with_the_names_near_it() {
    let it = Scratch::new();
    fs::write(it.path().join("main.rs"), "").unwrap();
    let result = read(it.path(), "mian.rs").exit;
    failed(&result, "missing", "no such file; did you mean: main.rs?");
    std::os::unix::fs::symlink("main.rz", it.path().join("link")).unwrap();
    let result = read(it.path(), "link").exit;
    failed(&result, "missing", "no such file: the link leads to main.rz, which is not there");
    assert!(!result["error"].as_str().unwrap().contains("did you mean: link"), "{result}");
    failed(&patch(it.path(), "nothing-like-it", "a", "b"), "missing", "no such file");
    failed(
        &ask(it.path(), json!({"op": "stat", "path": "gone"}), b"").exit,
        "missing",
        "look at gone",
    );
}

#[test]
fn folders_are_listed_and_images_and_binaries_told_apart() {
    let it = Scratch::new();
    fs::create_dir(it.path().join("sub")).unwrap();
    fs::write(it.path().join("b.png"), b"\x89PNG\r\n\x1a\nrest").unwrap();
    fs::write(it.path().join("a.bin"), b"\0\x01").unwrap();
    let listed = read(it.path(), ".").exit;
    assert_eq!(listed, json!({"kind": "folder", "entries": ["a.bin", "b.png", "sub/"], "more": 0}));
    let image = read(it.path(), "b.png");
    assert_eq!(image.stdout, b"\x89PNG\r\n\x1a\nrest");
    assert_eq!(image.exit, json!({"kind": "image", "mime": "image/png", "bytes": 12}));
    let small = json!({"op": "read", "path": "b.png", "maxImageBytes": 4});
    failed(&ask(it.path(), small, b"").exit, "tooLarge", "12 bytes");
    let binary = read(it.path(), "a.bin");
    assert_eq!((binary.stdout.len(), &binary.exit["kind"]), (0, &json!("binary")));
}

#[test]
fn a_folder_of_long_names_still_fits_into_one_answer() {
    let it = Scratch::new();
    for number in 0..1200 {
        fs::write(it.path().join(format!("{number:0200}")), "").unwrap();
    }
    let listed = read(it.path(), ".").exit;
    let shown = listed["entries"].as_array().unwrap().len();
    assert!(shown > 200, "{shown}");
    assert_eq!(listed["more"], 1200 - shown);
}

#[test]
fn text_is_read_by_lines_and_raw_bytes_by_number() {
    let it = Scratch::new();
    let text: String = (1..=5000).map(|it| format!("line {it}\n")).collect();
    fs::write(it.path().join("f"), &text).unwrap();
    let first = read(it.path(), "f");
    assert!(first.stdout.ends_with(b"line 2000\n"));
    assert_eq!(first.exit["next"], 2001);
    assert_eq!(first.exit["bytes"], text.len());
    let next = ask(it.path(), json!({"op": "read", "path": "f", "offset": 4999, "limit": 10}), b"");
    assert_eq!(next.stdout, b"line 4999\nline 5000\n");
    assert_eq!(next.exit["totalLines"], 5000);
    assert_eq!(next.exit["next"], Value::Null);

    let fetched = ask(it.path(), json!({"op": "fetch", "path": "f", "max": 6}), b"");
    assert_eq!(fetched.stdout, b"line 1");
    assert_eq!(fetched.exit, json!({"bytes": 6, "truncated": true}));
    let fetched = ask(it.path(), json!({"op": "fetch", "path": "f", "max": text.len()}), b"");
    assert_eq!(fetched.exit, json!({"bytes": text.len(), "truncated": false}));
}

#[test]
fn the_start_of_a_huge_file_costs_no_memory() {
    let it = Scratch::new();
    let file = fs::File::create(it.path().join("huge")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, "a\n".repeat(8192).as_bytes(), 0).unwrap();
    file.set_len(10_000_000_000).unwrap();
    let told = ask(it.path(), json!({"op": "read", "path": "huge", "limit": 1}), b"");
    assert_eq!(told.stdout, b"a\n");
    assert_eq!(told.exit["bytes"], 10_000_000_000_u64);
}

#[test]
fn long_japanese_text_stays_whole_at_every_border() {
    let it = Scratch::new();
    let text = "日本語テキスト、".repeat(20_000);
    assert_eq!(write(it.path(), "f", text.as_bytes())["bytes"], text.len());
    let request = json!({"op": "read", "path": "f", "maxBytes": 300_001});
    let told = ask(it.path(), request, b"");
    let shown = String::from_utf8(told.stdout).expect("whole characters");
    assert!(text.starts_with(&shown) && shown.len() == 300_000);
    assert_eq!(told.exit["cutLine"], true);
}

#[test]
fn a_patch_changes_one_place_and_shows_it() {
    let it = Scratch::new();
    let path = it.path().join("f");
    fs::write(&path, "one\r\ntwo\r\nthree\r\n").unwrap();
    let result = patch(it.path(), "f", "one\ntwo", "one\n$& two");
    assert_eq!(fs::read(&path).unwrap(), b"one\r\n$& two\r\nthree\r\n");
    assert_eq!(result["line"], 2);
    assert_eq!(result["diff"], "@@ -1,3 +1,3 @@\n one\n-two\n+$& two\n three\n");
    assert_eq!(result["bytes"], 20);

    fs::write(&path, "foo foo foo").unwrap();
    let result = patch(it.path(), "f", "foo", "bar");
    failed(&result, "manyMatches", "3 times");
    assert_eq!((&result["count"], &result["lines"]), (&json!(3), &json!([1, 1, 1])));
    failed(&patch(it.path(), "f", "", "bar"), "empty", "the old text is empty");
    let result = patch(it.path(), "f", "foo fox foo", "bar");
    failed(&result, "noMatch", "nearest is line 1: foo foo foo");
    assert_eq!(fs::read(&path).unwrap(), b"foo foo foo");
    assert_eq!(names(it.path()), ["f"]);
}

#[test]
fn a_patch_of_a_large_japanese_file_changes_nothing_else() {
    let it = Scratch::new();
    let path = it.path().join("f");
    let half = "日本語の行です。\n".repeat(70_000);
    fs::write(&path, format!("{half}ここ\n{half}")).unwrap();
    assert_eq!(patch(it.path(), "f", "ここ", "そこ")["line"], 70_001);
    assert!(fs::read(&path).unwrap() == format!("{half}そこ\n{half}").as_bytes());
}

#[test]
fn stat_says_what_it_is_without_following() {
    let it = Scratch::new();
    fs::write(it.path().join("f"), "abc").unwrap();
    symlink("/etc", it.path().join("link")).unwrap();
    fifo(&it.path().join("fifo"));
    let stat = |name: &str| ask(it.path(), json!({"op": "stat", "path": name}), b"").exit;
    let found = fs::metadata(it.path().join("f")).unwrap();
    assert_eq!(
        stat("f"),
        json!({
            "kind": "file", "bytes": 3, "mode": found.mode() & 0o7777, "dev": found.dev(),
            "ino": found.ino(), "uid": found.uid(), "gid": found.gid(),
        })
    );
    assert_eq!(stat("link")["kind"], "link");
    assert_eq!(stat("fifo")["kind"], "special");
    assert_eq!(stat(".")["kind"], "folder");
}

#[test]
fn a_place_that_cannot_be_written_is_said_so() {
    let it = Scratch::new();
    failed(&write(it.path(), "/proc/version", b"x"), "readOnly", "no files can be made there");
    failed(&write(it.path(), "/proc/no/such", b"x"), "readOnly", "/proc/no/such");
}

#[test]
fn a_path_too_long_to_be_quoted_is_still_answered() {
    let it = Scratch::new();
    let long = "p".repeat(1_000_000);
    failed(&read(it.path(), &long).exit, "other", "the name is too long");
    failed(&write(it.path(), &long, b"x"), "other", "the name is too long");
    failed(&patch(it.path(), &long, "a", "b"), "other", "the name is too long");
}
