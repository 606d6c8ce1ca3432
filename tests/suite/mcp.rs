//! Plain MCP servers as plugins, called from inside a sandbox: what they list
//! are commands, what they answer is printed or saved, and what they do wrong
//! harms nobody.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{World, on_each_runtime, signal, some_world, wait_until};

/// Gives agent `a` the server as the plugin `p`, whose calls may take so long.
fn with_server(world: &World, seconds: u32) {
    let folder = world.root.join("p");
    fs::create_dir_all(&folder).expect("a folder");
    let timeout = format!("\"timeoutSeconds\": {seconds}");
    let manifest = format!(r#"{{"name": "p", "command": ["./server"], {timeout}}}"#);
    fs::write(folder.join("plugin.json"), manifest).expect("written");
    fs::write(folder.join("server"), include_str!("mcp_server.py")).expect("written");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.join("server"), mode).expect("executable");
    let agent = world.agent("a", "", "").replace("['notes']", "['p']");
    world.write_config(&agent, "");
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let entry = format!("plugins: {{ p: {{ path: '{}' }}, ", folder.display());
    let text = text.replace("plugins: { ", &entry);
    let text = text.replace("port: 0", "port: 0, log: { level: 'debug' }");
    fs::write(world.config_file(), text).expect("written");
}

fn world_with_server() -> World {
    let world = some_world();
    with_server(&world, 120);
    world.start_gateway();
    world
}

#[track_caller]
fn prints(world: &World, line: &str, want: &str) {
    assert_eq!(world.sh(line).expect(0).text(), want, "{line}");
}

#[track_caller]
fn fails(world: &World, line: &str, code: i32, want: &str) {
    let done = world.sh(line).expect(code);
    assert!(done.stderr.contains(want), "{line}: {}", done.stderr);
}

#[test]
fn the_tools_of_a_server_are_commands() {
    on_each_runtime(|world| {
        with_server(world, 120);
        world.start_gateway();
        prints(world, "p echo --message 'two words'", "two words\n");
        prints(world, "p echo '{\"message\": \"a\", \"times\": 2}'", "a a\n");
        prints(world, "echo '{\"message\": \"b\"}' | p echo -", "b\n");
        prints(world, "p sum --n 1 --n=2.5", "{\n  \"sum\": 3.5\n}\n");
        let saved = "p show | grep /workspace/.beige/p/";
        prints(world, &format!("cd /tmp; {saved} | sed 's/.*\\.//'"), "png\nbin\n");
        prints(world, &format!("cat $({saved} | tail -n 1) | od -An -tx1"), " 00 01 02\n");
        fails(world, "p fail", 1, "it did not work");
        fails(world, "p echo", 2, "p echo: `message` is missing\nusage: p echo --message STRING");
    });
}

#[test]
fn help_is_made_from_what_the_server_says() {
    let world = &world_with_server();
    let list = world.sh("p").expect(0).text();
    assert!(list.contains("\n  echo — Says it again\n"), "{list}");
    assert!(list.contains("\n  pid — Names the process\n"), "a tool of the last page: {list}");
    prints(world, "p --help | wc -l", "20\n");
    let help = world.sh("p echo --help").expect(0).text();
    assert!(help.contains("More of it\n\n  --message STRING  required\n"), "{help}");
    fails(world, "p ecko", 2, "p has no tool `ecko`; did you mean `echo`?");
    fails(world, "p echo --message a --times many", 2, "`--times` must be an integer");
    fails(world, "p echo --mesage a", 2, "`--mesage` is unknown; did you mean `message`?");
    prints(world, "p lists", "1\n");
}

#[test]
fn many_first_calls_ask_for_the_list_once() {
    let world = &world_with_server();
    let many = "for i in 1 2 3 4 5 6 7 8; do p echo --message x & done; wait";
    prints(world, &format!("{many}; p lists"), &format!("{}1\n", "x\n".repeat(8)));
}

#[test]
fn what_is_no_text_is_saved_by_the_sandbox_and_told_in_its_place() {
    let world = &world_with_server();
    let text = world.sh("p show").expect(0).text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..4], ["before", "test://text:", "words", "test://link link"], "{text}");
    assert_eq!(lines.len(), 6, "{text}");
    prints(world, "p broken", "[image: left out, its data is no base64]\n");
    // A link that the agent planted leads to nothing of the host's.
    let outside = world.root.join("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).expect("open to all");
    world.sh(&format!("rm -r .beige; ln -s {} .beige", outside.display())).expect(0);
    world.sh("p show");
    assert_eq!(fs::read_dir(&outside).expect("a folder").count(), 0);
}

#[test]
fn a_server_changes_its_tools_while_one_runs() {
    let world = &world_with_server();
    fails(world, "p late", 2, "p has no tool `late`");
    let done = std::thread::scope(|scope| {
        let slow = scope.spawn(|| world.sh("p slow"));
        wait_until("it runs", || world.gateway_log().contains("p: slow has begun"));
        prints(world, "p change; p late; p lists", "changed\nhere\n2\n");
        prints(world, "p release", "1\n");
        slow.join().expect("a call")
    });
    assert_eq!(done.expect(0).text(), "released\n");
    let log = world.gateway_log();
    assert!(log.contains("p: progress 1 of 2: half way"), "{log}");
}

#[test]
fn a_call_that_is_late_or_left_is_called_off() {
    let world = &some_world();
    with_server(world, 5);
    world.start_gateway();
    assert_eq!(world.sh("p never").expect(124).stderr, "timed out after 5 s\n");
    prints(world, "p called-off", "1\n");
    prints(world, "p task", "done\n");
    assert_eq!(world.sh("p task --hang").expect(124).stderr, "timed out after 5 s\n");
    // The request and the task behind it.
    prints(world, "p called-off", "3\n");
    let leave = "p never & until [ \"$(p nevers)\" = 2 ]; do :; done; kill -9 $!; wait";
    world.sh(leave);
    wait_until("it is told", || world.sh("p called-off").text() == "4\n");
}

#[test]
fn a_server_that_fails_thrice_is_left_alone_and_one_that_refuses_is_not() {
    let world = &world_with_server();
    for _ in 0..4 {
        fails(world, "p refuse", 1, "plugin 'p' fails `p`: not this one");
        fails(world, "p fail", 1, "it did not work");
    }
    for _ in 0..3 {
        fails(world, "p odd", 1, "plugin 'p' answers without `content`, an array");
    }
    fails(world, "p pid", 1, "plugin 'p' has failed three times in a row; it is tried again in ");
    world.sh("p --help").expect(0);
}

#[test]
fn a_server_that_dies_fails_its_calls_and_the_next_one_works() {
    let world = &world_with_server();
    fails(world, "p die", 1, "plugin 'p' has ended; it is started again");
    wait_until("it runs again", || world.sh("p pid").code == 0);
    let pid = world.sh("p pid").expect(0).text().trim().parse().expect("a pid");
    let done = std::thread::scope(|scope| {
        let many = "for i in 1 2 3 4 5 6; do (p slow; echo $?) & done; wait";
        let calls = scope.spawn(|| world.sh(many));
        wait_until("all wait", || {
            world.gateway_log().matches("WARN  p: slow has begun").count() == 6
        });
        signal(pid, "KILL");
        calls.join().expect("calls")
    });
    assert_eq!(done.text(), "1\n".repeat(6));
    wait_until("it runs again", || world.sh("p pid").code == 0);
}

#[test]
fn the_system_prompt_names_the_tools_once_they_are_known() {
    let world = &world_with_server();
    let context = || {
        let agents = world.get("/api/agents").json();
        agents["agents"][0]["toolContext"].as_str().expect("a text").to_owned()
    };
    assert!(!context().contains("p echo"), "{}", context());
    world.sh("p").expect(0);
    let known = context();
    let some = "  p TOOL --help — how a tool is called\n  p broken — Gives an image that is none\n";
    assert!(known.contains(some), "{known}");
    assert!(known.contains("  p echo — Says it again\n"), "{known}");
    world.sh("p change").expect(0);
    assert_eq!(context(), known, "it stays until the tools are needed");
}
