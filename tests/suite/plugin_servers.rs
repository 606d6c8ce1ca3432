//! Plugins that are servers, called from inside a sandbox as any tool is: with
//! a gateway and without, while they die, print junk, and never answer.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{World, is_alive, on_each_runtime, signal, some_world, wait_until};

/// Gives agent `a` these plugins and tools.
fn configure(world: &World, plugins: &str, tools: &str) {
    let agent = world.agent("a", "", "").replace("['notes']", tools);
    world.write_config(&agent, "");
    let text = fs::read_to_string(world.config_file()).expect("a config");
    let text = text.replace("plugins: { ", &format!("plugins: {{ {plugins}, "));
    fs::write(world.config_file(), text).expect("written");
}

fn with_kv(world: &World) {
    let repository = env!("CARGO_MANIFEST_DIR");
    configure(world, &format!("kv: {{ path: '{repository}/examples/kv' }}"), "['kv']");
}

/// A plugin `p` whose server is this script of Python; it has `say` and reads
/// `it`, `id` and `method` of each line after the greeting.
fn with_server(world: &World, body: &str) {
    let folder = world.root.join("p");
    fs::create_dir_all(&folder).expect("a folder");
    let manifest = r#"{"name": "p", "command": ["./server"], "timeoutSeconds": 5}"#;
    fs::write(folder.join("plugin.json"), manifest).expect("written");
    let body: String = body.lines().map(|it| format!("    {it}\n")).collect();
    let script = format!(
        "#!/usr/bin/env python3\nimport json, os, sys, time\n\
         def say(it): print(json.dumps(it), flush=True)\n\
         def answer(id, result): say({{'jsonrpc': '2.0', 'id': id, 'result': result}})\n\
         for line in sys.stdin:\n    it = json.loads(line)\n    \
         id, method = it.get('id'), it.get('method')\n    \
         if method in ('initialize', 'beige/start', 'beige/stop'):\n        \
         answer(id, {{'capabilities': {{'experimental': {{'beige': {{'version': 1}}}}}}}})\n        \
         continue\n    if method != 'beige/tool': continue\n{body}"
    );
    fs::write(folder.join("server"), script).expect("written");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.join("server"), mode).expect("executable");
    configure(world, &format!("p: {{ path: '{}' }}", folder.display()), "['p']");
}

#[test]
fn a_tool_of_a_server_is_called_by_its_name_from_inside() {
    on_each_runtime(|world| {
        with_kv(world);
        world.start_gateway();
        world.sh("kv set a 'two words' && kv set b \"$(printf 'x\\ny')\"").expect(0);
        assert_eq!(
            world.sh("kv get a; kv get b; kv list").expect(0).text(),
            "two words\nx\ny\na\nb\n"
        );
        let refused = world.sh("kv get c").expect(2);
        assert_eq!(refused.stderr, "there is nothing under 'c'\n");
        let calls: Vec<Value> = world.audit();
        let kv = calls.iter().filter(|it| it["tool"] == "kv" && it["phase"] == "finished");
        let codes: Vec<i64> = kv.filter_map(|it| it["exitCode"].as_i64()).collect();
        assert_eq!(codes, [0, 0, 0, 0, 0, 2]);
        world.verify_audit();
    });
}

#[test]
fn a_one_shot_starts_the_server_for_itself_and_ends_it() {
    let world = &some_world();
    with_kv(world);
    world.sh("kv set a 1").expect(0);
    assert_eq!(world.sh("kv get a").expect(0).text(), "1\n");
}

#[test]
fn a_server_that_is_killed_fails_its_calls_and_the_next_one_works() {
    let world = &some_world();
    with_server(
        world,
        "if it['params']['args'] == ['pid']: answer(id, {'output': str(os.getpid())})\n\
         elif it['params']['args'] == ['none']: pass",
    );
    world.start_gateway();
    let pid: u32 = world.sh("p pid").expect(0).text().trim().parse().expect("a pid");
    let many = "for i in 1 2 3 4 5 6 7 8; do (p none; echo $?) & done; wait";
    let done = std::thread::scope(|scope| {
        let calls = scope.spawn(|| world.sh(many));
        wait_until("all wait", || {
            let finished = world
                .audit()
                .iter()
                .filter(|it| it["phase"] == "started" && it["args"][0] == "none")
                .count();
            finished == 8
        });
        signal(pid, "KILL");
        calls.join().expect("calls")
    });
    assert_eq!(done.text(), "1\n".repeat(8));
    assert!(done.stderr.contains("plugin 'p' has ended"), "{}", done.stderr);
    let down = world.sh("p pid");
    let told = ["was killed by signal 9", "plugin 'p' has ended"];
    let is_told = told.iter().any(|it| down.stderr.contains(it));
    assert!(down.code == 0 || is_told, "{}", down.stderr);
    wait_until("it runs again", || world.sh("p pid").code == 0);
    world.run(["gateway", "stop"]).expect(0);
    assert!(!is_alive(pid));
}

#[test]
fn a_call_that_is_never_answered_ends_when_its_time_is_up() {
    let world = &some_world();
    with_server(world, "pass");
    world.start_gateway();
    assert_eq!(world.sh("p x").expect(124).stderr, "timed out after 5 s\n");
}

#[test]
fn junk_and_floods_of_a_server_harm_nobody() {
    let world = &some_world();
    with_server(
        world,
        "print('junk ' * 100)\n\
         sys.stderr.write(('y' * 100 + '\\n') * 100000)\n\
         print('{\"id\": 77, \"result\": 1}')\n\
         what = it['params']['args'][0]\n\
         if what == 'long': answer(id, {'output': 'x' * 5000000})\n\
         elif what == 'huge': sys.stdout.write('z' * 100000000)\n\
         elif what == 'odd': answer(id, {'text': 'no output'})\n\
         elif what == 'number': answer(id, 7)\n\
         elif what == 'code': answer(id, {'output': '', 'exitCode': 'abc'})\n\
         elif what == 'error': say({'id': id, 'error': {'code': 1, 'message': 'not today'}})\n\
         else: answer(id, {'output': 'ok'}); answer(id, {'output': 'twice'})",
    );
    world.start_gateway();
    assert_eq!(world.sh("p a; p b").expect(0).text(), "ok\nok\n");
    let long = world.sh("p long | wc -c").expect(0).text();
    assert!((4_194_304..4_194_400).contains(&long.trim().parse().expect("a number")), "{long}");
    let failed = |args: &str, want: &str| {
        let done = world.sh(args).expect(1);
        assert!(done.stderr.contains(want), "{}", done.stderr);
    };
    failed("p odd", "plugin 'p' answers `p` without `output`, a string");
    failed("p number", "plugin 'p' answers `p` without `output`, a string");
    failed("p code", "plugin 'p' answers `p` with an `exitCode` that is no whole number");
    failed("p error", "plugin 'p' fails `p`: not today");
    failed("p huge", "plugin 'p' sent a message of more than 16777216 bytes");
    let log = world.gateway_log();
    assert!(log.contains("sent what is no message (it is not JSON): junk junk"), "{log}");
    assert!(log.len() < 400_000, "{} bytes of log", log.len());
}

#[test]
fn what_cannot_be_started_is_told_and_stops_nothing_else() {
    let world = &some_world();
    configure(world, "p: { command: ['/no/such/server', 'x'] }", "['p', 'notes']");
    world.start_gateway();
    let failed = world.sh("p x").expect(1);
    let want = "plugin 'p' is not running: cannot be started: its program";
    assert!(failed.stderr.starts_with(want), "{}", failed.stderr);
    world.sh("notes list").expect(0);
}
