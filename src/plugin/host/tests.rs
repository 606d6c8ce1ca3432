//! Real processes: plugins in a few lines of Python, and one that is no
//! plugin at all.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::plugin::desk::Request;
use crate::plugin::rpc::{self, Refusal};

/// A server that answers by what its script makes of a request; the script
/// sets `out` to what is printed.
const SERVER: &str = r#"
import json, os, sys
def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
def answer(id, result):
    say({"jsonrpc": "2.0", "id": id, "result": result})
greeted = {"serverInfo": {"name": "test"}, "capabilities": {"experimental": {"beige": {"version": 1}}}}
for line in sys.stdin:
    it = json.loads(line)
    method, id = it.get("method"), it.get("id")
    if method == "initialize":
        answer(id, greeted)
        continue
"#;

/// Counts, and answers with what it is asked.
#[derive(Default)]
struct Echo {
    notices: AtomicUsize,
}

impl Desk for Echo {
    fn request(&self, request: &Request<'_>) -> Result<Value, Refusal> {
        match request.method {
            "echo" => Ok(request.params.clone()),
            "wait" => {
                // Until it is called off.
                let _ = request.cancel.gone().recv();
                Ok(Value::Null)
            }
            method => Err(Refusal::new(rpc::NO_SUCH_METHOD, format!("there is no `{method}`"))),
        }
    }

    fn notice(&self, _: &str, _: &Connection, _method: &str, _params: &Value) {
        self.notices.fetch_add(1, Ordering::Relaxed);
    }
}

fn host(argv: &[&str]) -> Host {
    let launch = Launch {
        plugin: "test".into(),
        argv: argv.iter().map(Into::into).collect(),
        folder: "/".into(),
        env: std::env::var_os("PATH").map(|it| ("PATH".to_owned(), it)).into_iter().collect(),
        typescript: None,
    };
    Host::new(Start::Process(launch), Arc::new(Echo::default()), Redactor::new(), None)
}

/// A server whose further requests are answered by these lines.
fn server(body: &str) -> Host {
    let body: String = body.lines().map(|it| format!("    {it}\n")).collect();
    host(&["python3", "-u", "-c", &format!("{SERVER}{body}")])
}

fn session(host: &Host) -> Result<Arc<Session>> {
    host.session(Asker { cancel: &Cancel::never(), line: None })
}

fn ask(session: &Session, method: &str) -> Result<Value, Unanswered> {
    let cancel = Cancel::never();
    let asker = Asker { cancel: &cancel, line: None };
    session.connection.ask(method, &json!({"n": 1}), Duration::from_secs(60), asker)
}

#[test]
fn a_plugin_is_started_when_it_is_asked_for_and_ends_with_its_host() -> Result<()> {
    let host = server("answer(id, [method, it['params'], os.getpid()])");
    assert!(matches!(host.look(), Ok(None)));
    let session = session(&host)?;
    let answered = ask(&session, "m").unwrap_or_default();
    assert_eq!((&answered[0], &answered[1]), (&json!("m"), &json!({"n": 1})));
    assert!(session.greeting.beige.is_some());
    host.stop();
    assert!(!std::path::Path::new(&format!("/proc/{}", answered[2])).exists());
    let late = self::session(&host).err().map(|it| it.to_string());
    assert_eq!(late.as_deref(), Some("plugin 'test' is not running: the gateway is stopping"));
    assert!(matches!(ask(&session, "m"), Err(Unanswered::Ended(_))));
    Ok(())
}

#[test]
fn one_that_dies_ends_its_calls_with_its_last_words() -> Result<()> {
    let host = server("sys.stderr.write('out of luck\\n')\nsys.stderr.flush()\nos._exit(3)");
    let running = session(&host)?;
    let Err(Unanswered::Ended(why)) = ask(&running, "m") else { panic!("it has died") };
    assert_eq!(why, "has ended; it printed last: out of luck");
    // It is told until the next one runs, which it does after a pause.
    loop {
        match session(&host) {
            Ok(next) if !Arc::ptr_eq(&next, &running) => break,
            Ok(_) => std::thread::yield_now(),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.starts_with(
                        "plugin 'test' is not running: ended with exit code 3; \
                    it printed last: out of luck; it is started again in"
                    ),
                    "{text}"
                );
                std::thread::yield_now();
            }
        }
    }
    Ok(())
}

#[test]
fn junk_between_messages_harms_nothing() -> Result<()> {
    let host = server(
        "print('listening on port 3000')\nprint('{\"id\": 99, \"result\": 1}')\n\
         sys.stderr.write('x' * 1000000)\nanswer(id, 'first')\nanswer(id, 'second')",
    );
    let session = session(&host)?;
    for _ in 0..3 {
        assert_eq!(ask(&session, "m"), Ok(json!("first")));
    }
    Ok(())
}

#[test]
fn a_message_without_end_ends_the_plugin() -> Result<()> {
    let host = server("for _ in range(200): sys.stdout.write('x' * 1000000)");
    let session = session(&host)?;
    let Err(Unanswered::Ended(why)) = ask(&session, "m") else { panic!("it was cut") };
    assert!(why.contains("a message of more than 16777216 bytes"), "{why}");
    Ok(())
}

#[test]
fn a_message_that_takes_too_much_memory_ends_the_plugin() -> Result<()> {
    let host = server("print('[' + '{\"\":0},' * 1000000 + '0]', flush=True)");
    let session = session(&host)?;
    let Err(Unanswered::Ended(why)) = ask(&session, "m") else { panic!("it was read") };
    assert!(why.contains("sent a message that takes too much memory to read"), "{why}");
    Ok(())
}

#[test]
fn it_can_ask_while_it_is_asked() -> Result<()> {
    let host = server(
        "if method == 'm':\n    mine = id\n    say({'jsonrpc': '2.0', 'id': 'q', 'method': 'echo', 'params': [7]})\n\
         elif id == 'q': answer(mine, it['result'])",
    );
    let session = session(&host)?;
    assert_eq!(ask(&session, "m"), Ok(json!([7])));
    Ok(())
}

#[test]
fn what_it_asked_for_is_called_off_when_it_ends() -> Result<()> {
    let host = server("say({'jsonrpc': '2.0', 'id': 1, 'method': 'wait'})\nanswer(id, 1)");
    let session = session(&host)?;
    assert_eq!(ask(&session, "m"), Ok(json!(1)));
    // Else this would never return.
    drop(host);
    Ok(())
}

#[test]
fn what_is_no_plugin_is_told_as_such() {
    #[track_caller]
    fn check(argv: &[&str], want: &str) {
        let Err(error) = session(&host(argv)) else { panic!("it is no plugin") };
        let text = error.to_string();
        assert!(text.starts_with(&format!("plugin 'test' is not running: {want}")), "{text}");
    }
    check(&["no-such-program"], "cannot be started: its program");
    check(&["sh", "-c", "echo no >&2; exit 7"], "ended with exit code 7; it printed last: no");
    let refuses = "read line; echo '{\"id\":1,\"error\":{\"message\":\"too old\"}}'; cat";
    check(&["sh", "-c", refuses], "refuses `initialize`: too old");
    check(&["sh", "-c", "exec >&-; exec sleep 600"], "closed its output and had to be killed");
}

#[test]
fn killed_under_many_calls_it_fails_all_of_them_and_hangs_none() -> Result<()> {
    let host = server("if method == 'pid': answer(id, os.getpid())");
    let session = session(&host)?;
    let pid = ask(&session, "pid").ok().and_then(|it| it.as_i64()).unwrap_or_default();
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            let body = || match ask(&session, "m") {
                Err(Unanswered::Ended(_)) => ended.fetch_add(1, Ordering::Relaxed),
                other => panic!("{other:?}"),
            };
            let _ = crate::worker::scoped(scope, "ask", body);
        }
        while session.connection.waiting() < 100 {
            std::thread::yield_now();
        }
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    });
    assert_eq!(ended.into_inner(), 100);
    Ok(())
}
