//! The core tools as a client calls them: read, write, patch and exec over
//! `POST /api/agents/a/exec`, on every runtime; what they answer, what they
//! refuse, and what the audit log keeps of it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::support::{World, on_each_runtime, peak_memory};

/// Three bytes a character.
const JAPANESE: &str = "日本語の文章が境目で壊れない";

/// A check in a world of its own, whose gateway runs.
#[track_caller]
fn with_gateway(check: impl Fn(&World)) {
    on_each_runtime(|world| {
        world.start_gateway();
        check(world);
    });
}

#[track_caller]
fn ok(world: &World, tool: &str, params: Value) -> String {
    let (text, is_error) = world.tool(tool, params);
    assert!(!is_error, "{tool} failed: {text}");
    text
}

#[track_caller]
fn fails(world: &World, tool: &str, params: Value, want: &str) {
    let (text, is_error) = world.tool(tool, params);
    assert!(is_error, "{tool} did not fail: {text}");
    assert!(text.contains(want), "{text:?} does not say {want:?}");
}

#[track_caller]
fn write(world: &World, path: &str, content: &str) {
    let said = ok(world, "write", json!({"path": path, "content": content}));
    let want = format!("Successfully wrote {} bytes to {path}", content.len());
    assert_eq!(said, want);
}

#[track_caller]
fn patch(world: &World, path: &str, old: &str, new: &str) -> String {
    ok(world, "patch", json!({"path": path, "oldText": old, "newText": new}))
}

#[track_caller]
fn read(world: &World, path: &str) -> String {
    ok(world, "read", json!({"path": path}))
}

/// A file of the workspace, as it lies on the host.
fn on_host(world: &World, path: &str) -> Vec<u8> {
    fs::read(world.workspace("a").join(path)).expect("a file in the workspace")
}

/// Puts a file into the workspace from outside, as its owner's.
fn put(world: &World, path: &str, bytes: &[u8]) {
    let folder = fs::metadata(world.workspace("a")).expect("a workspace");
    let file = world.workspace("a").join(path);
    fs::write(&file, bytes).expect("a file");
    std::os::unix::fs::chown(&file, Some(folder.uid()), Some(folder.gid())).expect("its owner");
}

#[test]
fn exec_answers_with_the_exit_code_and_the_output() {
    #[track_caller]
    fn check(world: &World, command: &str, want: &str, want_error: bool) {
        let got = world.tool("exec", json!({ "command": command }));
        assert_eq!(got, (want.to_owned(), want_error), "{command}");
    }
    with_gateway(|world| {
        check(world, "echo hi", "Exit code: 0\nhi\n", false);
        check(world, "true", "Exit code: 0\n", false);
        check(world, "echo e >&2", "Exit code: 0\ne\n", false);
        let line = "echo out; sleep 0.1; echo err >&2; sleep 0.1; echo more; exit 3";
        check(world, line, "Exit code: 3\nout\nerr\nmore\n", true);
        check(world, "kill -9 $$", "Exit code: 137\n", true);
        check(world, "pwd; cat", "Exit code: 0\n/workspace\n", false);
        check(
            world,
            "printf 'a\\377b\\n'",
            "Exit code: 0\na\u{fffd}b\n[bytes that are not UTF-8 are shown as \u{fffd}]",
            false,
        );
        fails(world, "exec", json!({"command": "nosuchcmd"}), "Exit code: 127\n");
        // As long as the kernel lets an argument be, and longer.
        let long = |length: usize| format!("echo {} | wc -c", "語".repeat(length / 3));
        check(world, &long(120_000), "Exit code: 0\n120001\n", false);
        let (text, is_error) = world.tool("exec", json!({"command": long(180_000)}));
        assert!(is_error && text.contains("its arguments are too long"), "{text}");
    });
}

#[test]
fn a_timeout_kills_the_tree_and_says_so() {
    with_gateway(|world| {
        let line = "echo before; sleep 300 & setsid sleep 300 & (trap '' TERM; sleep 300)";
        let (text, is_error) = world.tool("exec", json!({"command": line, "timeout": 0.5}));
        assert!(is_error && text.starts_with("Exit code: 124\nbefore\n"), "{text}");
        assert!(text.ends_with("timed out after 0.5 s, process tree killed"), "{text}");
        let (text, _) = world.tool("exec", json!({"command": "sleep 300", "timeout": 1}));
        assert!(text.ends_with("timed out after 1 s, process tree killed"), "{text}");
        let left = ok(
            world,
            "exec",
            json!({"command": "cat /proc/[0-9]*/comm | grep -c '^sleep$'; true"}),
        );
        assert_eq!(left, "Exit code: 0\n0\n");
        let last = world.audit().pop().expect("a record");
        assert_eq!((&last["phase"], &last["exitCode"]), (&json!("finished"), &json!(0)));
    });
}

#[test]
fn of_a_large_output_the_ends_are_shown_and_the_whole_is_saved() {
    with_gateway(|world| {
        let text = ok(world, "exec", json!({"command": "seq 1 200000"}));
        assert!(text.starts_with("Exit code: 0\n1\n2\n3\n"), "{}", &text[..40]);
        assert!(text.ends_with("\n199999\n200000\n"), "{}", &text[text.len() - 40..]);
        assert!(text.len() < 50_000 + 300, "{} bytes", text.len());
        let line = text.lines().find(|it| it.contains("bytes left out")).expect("a line between");
        let saved = line.split("/workspace/").nth(1).expect("a path");
        let saved = saved.trim_end_matches([' ', '…', ']']);
        let whole: String = (1..=200_000).map(|it| format!("{it}\n")).collect();
        assert!(on_host(world, saved) == whole.as_bytes(), "{saved} is not the whole output");
        // Of more than fifty the newest stay.
        let older = "cd .beige/outputs; for i in $(seq 10 69); do : >10000000000$i-00000000; done";
        ok(world, "exec", json!({ "command": older }));
        ok(world, "exec", json!({"command": "head -c 60000 /dev/zero"}));
        let folder = fs::read_dir(world.workspace("a").join(".beige/outputs")).expect("a folder");
        let names = folder.flatten().map(|it| it.file_name().to_string_lossy().into_owned());
        let names: Vec<String> = names.collect();
        let left = names.iter().filter(|it| it.starts_with('1') && it.ends_with("-00000000"));
        assert_eq!((names.len(), left.count()), (50, 48));
    });
}

#[test]
fn the_gateways_memory_does_not_grow_with_the_output() {
    with_gateway(|world| {
        ok(world, "exec", json!({"command": "true"}));
        let before = high_water(world);
        let text =
            ok(world, "exec", json!({"command": "head -c 100000000 /dev/zero | tr '\\0' x"}));
        assert!(text.contains("; the first 64 MiB of the output are in "), "{}", text.len());
        let grown = high_water(world).saturating_sub(before);
        assert!(grown < 24 * 1024, "{grown} KiB more");
        // What was kept of it is bounded, too.
        let line = "ls -l .beige/outputs | awk '{ if ($5 > max) max = $5 } END { print max + 0 }'";
        let size = ok(world, "exec", json!({ "command": line }));
        let size: u64 = size.lines().nth(1).and_then(|it| it.parse().ok()).expect("a size");
        assert!((64 << 20..65 << 20).contains(&size), "{size} bytes saved");
    });
}

/// Most memory that the gateway has held, in KiB.
fn high_water(world: &World) -> u64 {
    let pid = fs::read_to_string(world.home().join("gateway.pid")).expect("gateway.pid");
    peak_memory(pid.split_whitespace().next().and_then(|it| it.parse().ok()).expect("a pid"))
}

#[test]
fn no_character_breaks_on_any_way_through_the_tools() {
    with_gateway(|world| {
        for size in [66_000, 3_600_000] {
            let line = format!("{JAPANESE}{JAPANESE}\n");
            let whole = format!("始\n{}", line.repeat(size / line.len() + 1));
            write(world, "japanese.txt", &whole);
            assert!(on_host(world, "japanese.txt") == whole.as_bytes());
            let old = format!("始\n{}", line.repeat(500));
            let said = patch(world, "japanese.txt", &old, "変\n");
            assert!(!said.contains('\u{fffd}'));
            let patched = ["変\n", &whole[old.len()..]].concat();
            assert!(on_host(world, "japanese.txt") == patched.as_bytes(), "{size} was damaged");
            let said = ok(world, "exec", json!({"command": "cat japanese.txt"}));
            assert!(!said.contains('\u{fffd}') && said.ends_with(&line));
        }
        // Read page by page, all of it, and nothing else.
        let whole = format!("{JAPANESE}\n").repeat(3_000);
        write(world, "pages.txt", &whole);
        assert!(pages(world, "pages.txt") == whole, "the pages are not the file");
        // A three-byte character on every cut of a line that is too long.
        for before in 0..3 {
            write(world, "long.txt", &format!("{}{}", "x".repeat(before), "語".repeat(30_000)));
            let said = read(world, "long.txt");
            assert!(!said.contains('\u{fffd}') && said.contains("longer than one read shows"));
            let line = format!("printf '%s' {}; cat long.txt", "y".repeat(before));
            assert!(!ok(world, "exec", json!({ "command": line })).contains('\u{fffd}'));
        }
    });
}

/// A file read to its end by the offsets that each answer names.
fn pages(world: &World, path: &str) -> String {
    let (mut whole, mut offset) = (String::new(), 1_u64);
    loop {
        let said = ok(world, "read", json!({"path": path, "offset": offset}));
        let Some((text, note)) = said.rsplit_once("[more follows: go on with offset ") else {
            return whole + &said;
        };
        assert!(text.lines().count() <= 2_000 && text.len() <= 50 * 1024, "{}", text.len());
        whole.push_str(text);
        offset = note.trim_end_matches(']').parse().expect("an offset");
    }
}

#[test]
fn any_name_is_only_a_name() {
    with_gateway(|world| {
        for name in [
            "it's.txt",
            "x'; echo INJECTED; '",
            "--version",
            "-x",
            "new\nline",
            "$(id)`id`\"*\"",
            "a b/c d/日本.txt",
            " ",
            "\\",
        ] {
            write(world, name, "one\n");
            assert_eq!(on_host(world, name), b"one\n", "{name:?}");
            assert_eq!(read(world, name), "one\n", "{name:?}");
            let said = patch(world, name, "one", "two");
            assert!(said.starts_with(&format!("Successfully patched {name}")), "{said}");
            assert_eq!(on_host(world, name), b"two\n", "{name:?}");
        }
        for tool in ["read", "write", "patch"] {
            let params = json!({"path": "a\0b", "content": "", "oldText": "a", "newText": ""});
            let reply = world.post("/api/agents/a/exec", &json!({"tool": tool, "params": params}));
            assert_eq!(reply.status, 400, "{}", reply.text());
            assert!(reply.text().contains("`path`") && reply.text().contains("NUL"));
        }
    });
}

#[test]
fn read_shows_what_is_there_and_how_to_go_on() {
    with_gateway(|world| {
        write(world, "a/b/c.txt", "line1\nline2\nline3\n");
        let read_at = |params: Value| world.tool("read", params);
        let text = |text: &str| (text.to_owned(), false);
        assert_eq!(read_at(json!({"path": "a/b/c.txt"})), text("line1\nline2\nline3\n"));
        assert_eq!(
            read_at(json!({"path": "/workspace/a/b/c.txt", "offset": 2})),
            text("line2\nline3\n")
        );
        assert_eq!(
            read_at(json!({"path": "./a/b/c.txt", "offset": 2, "limit": 1})),
            text("line2\n[more follows: go on with offset 3]")
        );
        assert_eq!(
            read_at(json!({"path": "a/b/c.txt", "offset": 99})),
            text("[line 99 is past the end: the file has 3 lines]")
        );
        write(world, "empty.txt", "");
        assert_eq!(read_at(json!({"path": "empty.txt"})), text(""));
        for (params, field) in [
            (json!({"path": "a", "offset": 0}), "`offset`"),
            (json!({"path": "a", "offset": -1}), "`offset`"),
            (json!({"path": "a", "limit": 1.5}), "`limit`"),
            (json!({"path": 7}), "`path`"),
            (json!({"x": 1}), "`path`"),
        ] {
            let reply =
                world.post("/api/agents/a/exec", &json!({"tool": "read", "params": params}));
            assert_eq!(reply.status, 400, "{}", reply.text());
            assert!(reply.text().contains(field), "{}", reply.text());
        }
        fails(world, "read", json!({"path": "a/b/C.tx"}), "did you mean: a/b/c.txt?");
        fails(world, "read", json!({"path": ""}), "empty");
        assert_eq!(read_at(json!({"path": "a"})), text("a is a folder:\nb/"));
        fs::create_dir(world.workspace("a").join("bare")).expect("a folder");
        assert_eq!(read_at(json!({"path": "bare"})), text("bare is an empty folder"));
        // Resolved inside: a link leads nowhere else.
        ok(
            world,
            "exec",
            json!({"command": "ln -s /etc up; ln -s loop loop; mkfifo pipe; printf 'a\\000b' > bin.dat"}),
        );
        fails(world, "read", json!({"path": "loop"}), "circle");
        fails(world, "read", json!({"path": "pipe"}), "pipe");
        fails(world, "read", json!({"path": "/dev/zero"}), "device");
        fails(world, "read", json!({"path": "bin.dat"}), "a binary file of 3 bytes");
        let secret = world.root.join("secret");
        fs::write(&secret, "of the host").expect("a file");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).expect("a mode");
        std::os::unix::fs::symlink(&secret, world.workspace("a").join("out")).expect("a link");
        fails(world, "read", json!({"path": "out"}), "no such file");
    });
}

#[test]
fn an_image_is_known_by_its_content() {
    with_gateway(|world| {
        for (name, bytes, mime) in [
            ("a.txt", &b"\x89PNG\r\n\x1a\n"[..], "image/png"),
            ("b", b"\xff\xd8\xff\xe0", "image/jpeg"),
            ("c", b"GIF89a", "image/gif"),
            ("d.png", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ] {
            put(world, name, bytes);
            let body = json!({"tool": "read", "params": {"path": name}});
            let answer = world.post("/api/agents/a/exec", &body).json();
            let content = answer["content"].as_array().expect("content");
            assert_eq!(content.len(), 1, "{answer}");
            assert_eq!(
                (&content[0]["type"], &content[0]["mimeType"]),
                (&json!("image"), &json!(mime))
            );
            use base64::Engine as _;
            let data = content[0]["data"].as_str().expect("data");
            let data = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
            assert_eq!(data, bytes);
        }
        write(world, "not.png", "just text");
        assert_eq!(read(world, "not.png"), "just text");
    });
}

#[test]
fn write_replaces_whole_files_only_where_it_may() {
    with_gateway(|world| {
        write(world, "script", "one");
        ok(
            world,
            "exec",
            json!({"command": "chmod 750 script; ln script hard; ln -s script soft; mkdir folder"}),
        );
        write(world, "soft", "two");
        assert_eq!(on_host(world, "script"), b"two");
        assert_eq!(on_host(world, "hard"), b"one");
        let seen = ok(
            world,
            "exec",
            json!({"command": "stat -c %a script; readlink soft; ls -A | grep -c tmp; true"}),
        );
        assert_eq!(seen, "Exit code: 0\n750\nscript\n0\n");
        write(world, "/tmp/x", "y");
        fails(world, "write", json!({"path": "folder", "content": "x"}), "it is a folder");
        fails(world, "write", json!({"path": "new/", "content": "x"}), "folder");
        fails(
            world,
            "write",
            json!({"path": "script/x", "content": "x"}),
            "a part of the path is a file",
        );
        for path in ["/tools/bin/x", "/beige/x", "/proc/x", "/tools/bin/notes"] {
            let (text, is_error) = world.tool("write", json!({"path": path, "content": "x"}));
            assert!(is_error && text.contains(path), "{text}");
        }
        for (params, field) in
            [(json!({"path": "x"}), "`content`"), (json!({"path": "x", "content": 1}), "`content`")]
        {
            let reply =
                world.post("/api/agents/a/exec", &json!({"tool": "write", "params": params}));
            assert_eq!(reply.status, 400);
            assert!(reply.text().contains(field), "{}", reply.text());
        }
        let owner = fs::metadata(world.workspace("a").join("script")).expect("it is there");
        let folder = fs::metadata(world.workspace("a")).expect("it is there");
        assert_eq!((owner.uid(), owner.gid()), (folder.uid(), folder.gid()));
    });
}

#[test]
fn patch_changes_the_one_place_or_nothing() {
    with_gateway(|world| {
        write(world, "price", "price=X;\n");
        let said = patch(world, "price", "X", "$& $$ $` $' $1 \\1");
        assert!(said.starts_with("Successfully patched price\n"), "{said}");
        assert!(
            said.contains("-price=X;") && said.contains("+price=$& $$ $` $' $1 \\1;"),
            "{said}"
        );
        assert_eq!(on_host(world, "price"), b"price=$& $$ $` $' $1 \\1;\n");

        write(world, "twice", "foo foo foo");
        let params = |old: &str| json!({"path": "twice", "oldText": old, "newText": "bar"});
        fails(world, "patch", params("foo"), "3 times");
        fails(world, "patch", params(""), "the old text is empty");
        fails(world, "patch", params("fop foo"), "nearest is line 1");
        assert_eq!(on_host(world, "twice"), b"foo foo foo");
        fails(
            world,
            "patch",
            json!({"path": "twic", "oldText": "a", "newText": "b"}),
            "did you mean: twice?",
        );
        fails(world, "patch", json!({"path": "/tools", "oldText": "a", "newText": "b"}), "folder");
        patch(world, "twice", "foo foo foo", "");
        assert_eq!(on_host(world, "twice"), b"");

        put(world, "crlf", "\u{feff}one\r\ntwo\r\nthree\r\n".as_bytes());
        ok(world, "exec", json!({"command": "chmod 640 crlf"}));
        patch(world, "crlf", "one\ntwo", "1\n2");
        assert_eq!(on_host(world, "crlf"), "\u{feff}1\r\n2\r\nthree\r\n".as_bytes());
        assert_eq!(ok(world, "exec", json!({"command": "stat -c %a crlf"})), "Exit code: 0\n640\n");

        put(world, "bin", b"\xff\xfeA\x80");
        patch(world, "bin", "A", "BC");
        assert_eq!(on_host(world, "bin"), b"\xff\xfeBC\x80");
        for missing in ["oldText", "newText", "path"] {
            let mut params = json!({"path": "x", "oldText": "a", "newText": "b"});
            params.as_object_mut().expect("an object").remove(missing);
            let reply =
                world.post("/api/agents/a/exec", &json!({"tool": "patch", "params": params}));
            assert_eq!(reply.status, 400);
            assert!(reply.text().contains(&format!("`{missing}`")), "{}", reply.text());
        }
    });
}

#[test]
fn a_request_that_is_wrong_is_400_and_names_the_field() {
    let world = World::new(crate::support::runtimes()[0]);
    world.start_gateway();
    let raw = |body: &[u8]| {
        let headers = [("Content-Type", "application/json")];
        crate::support::request(&world.api_socket(), "POST", "/api/agents/a/exec", &headers, body)
    };
    for (body, want) in [
        (&b"{nope"[..], "not JSON"),
        (b"", "not JSON"),
        (b"null", "object"),
        (b"[]", "object"),
        (b"\"x\"", "object"),
        (br#"{"tool":"exec"}"#, "`params`"),
        (br#"{"params":{}}"#, "`tool`"),
        (br#"{"tool":1,"params":{}}"#, "`tool`"),
        (br#"{"tool":"exec","params":[]}"#, "`params`"),
        (br#"{"tool":"exec","params":{}}"#, "`command`"),
        (br#"{"tool":"exec","params":{"x":1}}"#, "`command`"),
        (br#"{"tool":"exec","params":{"command":" \n"}}"#, "`command` is empty"),
        (br#"{"tool":"exec","params":{"command":["ls"]}}"#, "`command`"),
        (br#"{"tool":"exec","params":{"command":"ls","timeout":"soon"}}"#, "`timeout`"),
        (br#"{"tool":"exec","params":{"command":"ls","timeout":-1}}"#, "`timeout`"),
        (br#"{"tool":"exec","params":{"command":"a\u0000b"}}"#, "`command`"),
        (br#"{"tool":"exec","params":{"command":"ls"},"sessionKey":1}"#, "`sessionKey`"),
        (br#"{"tool":"exec","params":{"command":"ls"},"activeModel":"x"}"#, "`activeModel`"),
        (b"{\"tool\":\"ex\xffec\"}", "not JSON"),
    ] {
        let reply = raw(body);
        let shown = String::from_utf8_lossy(body);
        assert_eq!(reply.status, 400, "{shown}: {}", reply.text());
        let error = reply.json()["error"].as_str().expect("an error").to_owned();
        assert!(error.contains(want), "{shown}: {error}");
    }
    for agent in ["constructor", "__proto__", "nobody", "a%00", "A"] {
        let body = json!({"tool": "exec", "params": {"command": "true"}});
        let reply = world.post(&format!("/api/agents/{agent}/exec"), &body);
        assert!([400, 404].contains(&reply.status), "{agent}: {}", reply.text());
    }
    assert_eq!(world.audit_if_any(), 0, "nothing of this is a call");
}

#[test]
fn a_tool_that_does_not_exist_is_denied_and_recorded() {
    let world = World::new(crate::support::runtimes()[0]);
    world.start_gateway();
    fails(&world, "zap", json!({"a": 1}), "Unknown tool: zap. The tools are read, write,");
    // A plugin's tool is no core tool, granted or not.
    fails(&world, "notes", json!({}), "Unknown tool: notes");
    let lines: Vec<String> = world
        .audit()
        .iter()
        .map(|it| format!("{} {} {}", it["tool"], it["phase"], it["decision"]))
        .collect();
    assert_eq!(lines, [r#""zap" "finished" "denied""#, r#""notes" "finished" "denied""#]);
}

#[test]
fn the_audit_log_shows_what_was_called() {
    on_each_runtime(|world| {
        world.start_gateway();
        write(world, "f", "hello");
        read(world, "f");
        patch(world, "f", "hello", "bye");
        ok(world, "exec", json!({"command": "echo 'a b'"}));
        world.tool("exec", json!({"command": "echo oops; exit 9"}));
        world.exec(&["printf", "%s", "a b"]).expect(0);
        let finished: Vec<Value> =
            world.audit().into_iter().filter(|it| it["phase"] == "finished").collect();
        let seen: Vec<Value> = finished
            .iter()
            .map(|it| json!([it["tool"], it["args"], it["exitCode"], it["outputBytes"]]))
            .collect();
        assert_eq!(seen[0], json!(["write", ["f", "(5 bytes)"], 0, 31]));
        assert_eq!(seen[1], json!(["read", ["f"], 0, 5]));
        assert_eq!(json!([seen[2][0], seen[2][1], seen[2][2]]), json!(["patch", ["f"], 0]));
        assert_eq!(seen[3], json!(["exec", ["echo 'a b'"], 0, 4]));
        assert_eq!(seen[4], json!(["exec", ["echo oops; exit 9"], 9, 5]));
        assert_eq!(seen[5], json!(["exec", ["printf", "%s", "a b"], 0, 3]));
        for record in &finished {
            let fixed =
                json!([record["agent"], record["type"], record["decision"], record["target"]]);
            assert_eq!(fixed, json!(["a", "core_tool", "allowed", "sandbox"]));
            assert!(record["durationMs"].is_u64(), "{record}");
        }
        world.verify_audit();
    });
}

#[test]
fn a_secret_leaves_the_gateway_nowhere() {
    const SECRET: &str = "tr0ub4dor&3-\"quoted\"";
    on_each_runtime(|world| {
        fs::write(world.root.join("secret"), format!("{SECRET}\n")).expect("a file");
        let file = world.root.join("secret").display().to_string();
        let agent = world.agent("a", "", &format!("instructions: 'the key is ${{file:{file}}}',"));
        world.write_config(&agent, "");
        world.start_gateway();
        let quoted = SECRET.replace('\'', "'\\''");
        let (text, _) = world.tool("exec", json!({"command": format!("echo '{quoted}'; exit 3")}));
        assert_eq!(text, "Exit code: 3\n••••\n");
        write_raw(world, "kept", SECRET);
        assert_eq!(read(world, "kept"), "••••");
        world.tool("read", json!({ "path": SECRET }));
        world.tool(SECRET, json!({}));
        world.post(
            "/api/agents/a/exec",
            &json!({"tool": "exec", "params": {"command": SECRET, "timeout": SECRET}}),
        );
        for text in [
            fs::read_to_string(world.home().join("logs/audit.jsonl")).expect("an audit log"),
            world.gateway_log(),
            world.run(["audit", "--json"]).text(),
            world.run(["config", "show"]).text(),
            world.get("/api/agents").text(),
            world.get("/api/audit").text(),
        ] {
            assert!(!text.contains("tr0ub4dor"), "{text}");
        }
        let reply = world.post("/api/agents/a/exec", &json!({"tool": SECRET, "params": {}}));
        assert!(!reply.text().contains("tr0ub4dor"), "{}", reply.text());
        let socket = world.home().join("sockets/a/gateway.sock");
        let mut socket = UnixStream::connect(socket).expect("the agent's socket");
        let denied = json!({"type": "tool_request", "tool": SECRET, "args": []});
        let unknown = json!({"type": "tool_request", SECRET: 1});
        writeln!(socket, "{denied}\n{unknown}").expect("sent");
        socket.shutdown(std::net::Shutdown::Write).expect("half closed");
        let mut answers = String::new();
        socket.read_to_string(&mut answers).expect("answers");
        assert!(answers.contains("tool '••••' is not allowed"), "{answers}");
        assert!(answers.contains("unknown field `••••`"), "{answers}");
    });
}

fn write_raw(world: &World, path: &str, content: &str) {
    ok(world, "write", json!({"path": path, "content": content}));
}
