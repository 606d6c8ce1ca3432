//! The client: a tool called by its name in the sandbox. One line of JSON to
//! the gateway, one back; the gateway decides, runs and records.
//!
//! Exit codes of its own: 2 when the call itself cannot be sent as it is, 125
//! when the gateway cannot be reached or goes away. Otherwise the tool's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{FileType, fstat};
use serde_json::{Map, Value, json};

use crate::complain;

/// Standard input that is sent along, in bytes.
const MOST_INPUT: u64 = 3 * 1024 * 1024;

/// A request line, in bytes: the gateway's own bound.
const MOST_REQUEST: usize = 4 * 1024 * 1024;

/// An answer line, in bytes.
const MOST_ANSWER: u64 = 64 * 1024 * 1024;

/// The call cannot be sent as it is.
const UNSENDABLE: u8 = 2;

/// The gateway is not there.
const UNREACHABLE: u8 = 125;

/// What an environment variable becomes in `sessionContext`.
const CONTEXT: [(&str, &str); 4] = [
    ("BEIGE_SESSION_KEY", "sessionKey"),
    ("BEIGE_CHANNEL", "channel"),
    ("BEIGE_CHAT_ID", "chatId"),
    ("BEIGE_THREAD_ID", "threadId"),
];

/// A call that did not get as far as an answer.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    code: u8,
    text: String,
}

/// What the gateway said.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    success: bool,
    text: String,
    code: u8,
}

/// Calls the tool and prints what it answers.
pub(crate) fn run(tool: &OsStr, arguments: &[OsString]) -> ExitCode {
    match call(tool, arguments) {
        Ok(answer) => {
            print(&answer);
            ExitCode::from(answer.code)
        }
        Err(failure) => {
            complain(&format!("{}: {}", tool.display(), failure.text));
            ExitCode::from(failure.code)
        }
    }
}

fn call(tool: &OsStr, arguments: &[OsString]) -> Result<Answer, Failure> {
    let cwd = env::current_dir().ok();
    let input = piped_input(rustix::stdio::stdin(), io::stdin().lock())?;
    let line = request(tool, arguments, cwd.as_deref(), input, |it| env::var_os(it))?;
    let named = env::var_os("BEIGE_SOCKET").map(PathBuf::from);
    ask(&connect(Path::new("/beige"), named.as_deref())?, &line)
}

/// Connects to the socket that is named if it lies directly in the folder and
/// answers, else to the gateway's.
fn connect(folder: &Path, named: Option<&Path>) -> Result<UnixStream, Failure> {
    let named = named.filter(|it| lies_in(folder, it));
    if let Some(stream) = named.and_then(|it| UnixStream::connect(it).ok()) {
        return Ok(stream);
    }
    let gateway = folder.join("gateway.sock");
    UnixStream::connect(&gateway).map_err(|error| Failure {
        code: UNREACHABLE,
        text: format!(
            "the gateway cannot be reached, nothing was run ({}: {error})",
            gateway.display()
        ),
    })
}

fn lies_in(folder: &Path, path: &Path) -> bool {
    path.parent() == Some(folder)
        && matches!(path.components().next_back(), Some(Component::Normal(_)))
}

/// Standard input, if something was piped or redirected into the tool; a
/// terminal or /dev/null is nothing.
fn piped_input(end: impl AsFd, mut from: impl Read) -> Result<Option<String>, Failure> {
    let Ok(found) = fstat(end) else { return Ok(None) };
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Fifo | FileType::Socket | FileType::RegularFile => {}
        _ => return Ok(None),
    }
    let mut bytes = Vec::new();
    from.by_ref()
        .take(MOST_INPUT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unsendable(format!("cannot read standard input: {error}")))?;
    if bytes.len() as u64 > MOST_INPUT {
        return Err(unsendable(
            "standard input is over 3 MiB; write it to a file and name that".into(),
        ));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        unsendable("standard input is not UTF-8; write it to a file and name that".into())
    })?;
    Ok(Some(text))
}

/// The request line with its newline.
fn request(
    tool: &OsStr,
    arguments: &[OsString],
    cwd: Option<&Path>,
    input: Option<String>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<u8>, Failure> {
    let tool = utf8(tool, "the tool's name")?;
    let arguments = arguments
        .iter()
        .enumerate()
        .map(|(at, it)| utf8(it, &format!("argument {}", at + 1)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut request = json!({ "type": "tool_request", "tool": tool, "args": arguments });
    if let Some(below) = cwd.and_then(|it| it.strip_prefix("/workspace").ok()) {
        request["cwd"] = utf8(below.as_os_str(), "the name of the current folder")?.into();
    }
    if let Some(input) = input {
        request["stdin"] = input.into();
    }
    let text =
        |name| variable(name).and_then(|it| it.into_string().ok()).filter(|it| !it.is_empty());
    if let Some(call) = text("BEIGE_CALL") {
        request["call"] = call.into();
    }
    let context: Map<String, Value> = CONTEXT
        .iter()
        .filter_map(|(name, field)| Some(((*field).into(), text(name)?.into())))
        .collect();
    if !context.is_empty() {
        request["sessionContext"] = context.into();
    }
    let mut line = request.to_string().into_bytes();
    line.push(b'\n');
    if line.len() > MOST_REQUEST {
        return Err(unsendable("arguments and standard input together are over 4 MiB".into()));
    }
    Ok(line)
}

fn utf8<'a>(text: &'a OsStr, what: &str) -> Result<&'a str, Failure> {
    text.to_str().ok_or_else(|| unsendable(format!("{what} is not UTF-8")))
}

fn unsendable(text: String) -> Failure {
    Failure { code: UNSENDABLE, text }
}

/// One line out, one line back.
fn ask(mut stream: &UnixStream, line: &[u8]) -> Result<Answer, Failure> {
    // Refused before all was read, the gateway may have answered already: so
    // a failure to send does not yet end it.
    let sent = stream.write_all(line);
    let mut answer = Vec::new();
    let read = BufReader::new(stream).take(MOST_ANSWER + 1).read_until(b'\n', &mut answer);
    let gone = |why: &str| Failure {
        code: UNREACHABLE,
        text: format!("the gateway gave no answer ({why}); whether the tool ran is not known"),
    };
    match (sent, read) {
        (_, Ok(_)) if answer.len() as u64 > MOST_ANSWER => Err(gone("the answer is over 64 MiB")),
        (_, Ok(_)) if answer.ends_with(b"\n") => {
            parse_answer(&answer).ok_or_else(|| gone("it is not an answer"))
        }
        (Err(error), _) | (_, Err(error)) => Err(gone(&error.to_string())),
        _ => Err(gone("it hung up")),
    }
}

/// Reads an answer leniently: what is absent is assumed as of a plain failure
/// or success.
fn parse_answer(line: &[u8]) -> Option<Answer> {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else { return None };
    let success = fields.get("success")?.as_bool()?;
    let code = fields.get("exitCode").and_then(Value::as_i64).unwrap_or(i64::from(!success));
    let names = if success { ["output", "error"] } else { ["error", "output"] };
    let text = names.iter().find_map(|it| match fields.remove(*it) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    });
    Some(Answer { success, text: text.unwrap_or_default(), code: exit_code(code) })
}

/// As the system does it: the low eight bits; but a failure stays one.
fn exit_code(code: i64) -> u8 {
    match code.to_le_bytes()[0] {
        0 if code != 0 => 1,
        it => it,
    }
}

/// Prints the text as it is, with a newline after it if it has none: prompts
/// and logs stay readable, and `$(…)` takes it off again. A reader that has
/// gone is no error.
fn print(answer: &Answer) {
    let mut text = answer.text.clone().into_bytes();
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    let _ =
        if answer.success { io::stdout().write_all(&text) } else { io::stderr().write_all(&text) };
    let _ = io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::net::UnixListener;
    use std::thread;

    fn nothing(_: &str) -> Option<OsString> {
        None
    }

    /// What a gateway that answers `answer` is asked, and what comes of it.
    fn asked(answer: &'static [u8]) -> (String, Result<Answer, Failure>) {
        let Ok((ours, theirs)) = UnixStream::pair() else { unreachable!("no socket pair") };
        let gateway = thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(&theirs).read_line(&mut line);
            let _ = (&theirs).write_all(answer);
            line
        });
        let got = ask(&ours, b"{}\n");
        (gateway.join().unwrap_or_default(), got)
    }

    #[track_caller]
    fn check_answer(line: &'static [u8], success: bool, text: &str, code: u8) {
        let (sent, got) = asked(line);
        assert_eq!(sent, "{}\n");
        assert_eq!(got, Ok(Answer { success, text: text.into(), code }));
    }

    #[test]
    fn an_answer_is_output_or_error_and_a_code() {
        check_answer(b"{\"success\":true,\"output\":\"OK\",\"exitCode\":0}\n", true, "OK", 0);
        check_answer(b"{\"success\":false,\"error\":\"no\",\"exitCode\":1}\n", false, "no", 1);
        check_answer(
            b"{\"success\":false,\"output\":\"o\",\"error\":\"e\",\"exitCode\":3}\n",
            false,
            "e",
            3,
        );
        check_answer(b"{\"success\":false}\n", false, "", 1);
        check_answer(b"{\"success\":true}\n", true, "", 0);
        check_answer(b"{\"success\":false,\"exitCode\":512}\n", false, "", 1);
        check_answer(b"{\"success\":false,\"exitCode\":-1}\n", false, "", 255);
    }

    #[track_caller]
    fn check_no_answer(line: &'static [u8], why: &str) {
        match asked(line).1 {
            Ok(answer) => unreachable!("{answer:?}"),
            Err(failure) => {
                assert_eq!(failure.code, UNREACHABLE);
                assert!(failure.text.contains(why), "{}", failure.text);
            }
        }
    }

    #[test]
    fn what_is_no_answer_says_that_the_outcome_is_unknown() {
        check_no_answer(b"", "hung up");
        check_no_answer(b"{\"success\":true}", "hung up");
        check_no_answer(b"hello\n", "not an answer");
        check_no_answer(b"{}\n", "not an answer");
        check_no_answer(b"\xff\n", "not an answer");
    }

    #[track_caller]
    fn check_request(cwd: &str, input: Option<&str>, variables: &[(&str, &str)], want: Value) {
        let variable = |name: &str| {
            variables.iter().find(|(it, _)| *it == name).map(|(_, value)| OsString::from(value))
        };
        let arguments = ["set".into(), "it's\n".into()];
        let cwd = Some(Path::new(cwd));
        let line = request(OsStr::new("kv"), &arguments, cwd, input.map(String::from), variable);
        let line = line.unwrap_or_default();
        assert!(line.ends_with(b"\n"));
        assert_eq!(serde_json::from_slice::<Value>(&line).ok(), Some(want));
    }

    #[test]
    fn a_request_holds_what_is_known_and_nothing_else() {
        let args = json!(["set", "it's\n"]);
        check_request("/", None, &[], json!({"type": "tool_request", "tool": "kv", "args": args}));
        check_request(
            "/workspace/repos/site",
            Some("in"),
            &[("BEIGE_CALL", "c1"), ("BEIGE_SESSION_KEY", "s"), ("BEIGE_THREAD_ID", "")],
            json!({
                "type": "tool_request", "tool": "kv", "args": args, "cwd": "repos/site",
                "stdin": "in", "call": "c1", "sessionContext": {"sessionKey": "s"},
            }),
        );
        check_request(
            "/workspaces",
            None,
            &[("BEIGE_CHANNEL", "tg"), ("BEIGE_CHAT_ID", "1"), ("BEIGE_THREAD_ID", "2")],
            json!({
                "type": "tool_request", "tool": "kv", "args": args,
                "sessionContext": {"channel": "tg", "chatId": "1", "threadId": "2"},
            }),
        );
    }

    #[test]
    fn arguments_that_json_cannot_hold_are_refused() {
        let argument = OsString::from_vec(vec![b'a', 0xff]);
        let got = request(OsStr::new("kv"), &["x".into(), argument], None, None, nothing);
        assert_eq!(got, Err(unsendable("argument 2 is not UTF-8".into())));
    }

    #[test]
    fn a_request_over_the_gateways_bound_is_refused_here() {
        let input = Some("\u{1}".repeat(1024 * 1024));
        let got = request(OsStr::new("kv"), &[], None, input, nothing);
        assert_eq!(got.map_err(|it| it.code), Err(UNSENDABLE));
    }

    #[track_caller]
    fn check_input(bytes: &[u8], want: Result<Option<String>, u8>) {
        let Ok((pipe, _writer)) = io::pipe() else { unreachable!("no pipe") };
        assert_eq!(piped_input(&pipe, bytes).map_err(|it| it.code), want);
    }

    #[test]
    fn piped_input_is_whole_text_within_its_bound() {
        check_input(b"", Ok(Some(String::new())));
        check_input("é".as_bytes(), Ok(Some("é".into())));
        check_input(b"\xc3", Err(UNSENDABLE));
        check_input(&vec![b'a'; 3 * 1024 * 1024 + 1], Err(UNSENDABLE));
    }

    #[test]
    fn a_device_is_no_input() {
        let Ok(null) = std::fs::File::open("/dev/null") else { unreachable!("no /dev/null") };
        assert_eq!(piped_input(&null, b"x".as_slice()), Ok(None));
    }

    /// The name of the socket that is reached when both are there.
    fn reached(named: &str) -> Result<String, u8> {
        let scratch = Scratch::new();
        let folder = scratch.path();
        assert!(std::fs::create_dir(folder.join("sub")).is_ok());
        let sockets: Vec<_> = ["gateway.sock", "cli-1.sock", "sub/x.sock"]
            .iter()
            .filter_map(|it| Some((it, UnixListener::bind(folder.join(it)).ok()?)))
            .collect();
        connect(folder, Some(&folder.join(named))).map_err(|it| it.code)?;
        let reached =
            sockets.iter().find(|(_, it)| it.set_nonblocking(true).is_ok() && it.accept().is_ok());
        Ok(reached.map(|(name, _)| (**name).to_owned()).unwrap_or_default())
    }

    #[test]
    fn another_socket_is_taken_only_from_our_own_folder() {
        assert_eq!(reached("cli-1.sock"), Ok("cli-1.sock".into()));
        assert_eq!(reached("absent.sock"), Ok("gateway.sock".into()));
        assert_eq!(reached("sub/x.sock"), Ok("gateway.sock".into()));
        assert_eq!(reached("sub/../cli-1.sock"), Ok("gateway.sock".into()));
        assert_eq!(reached(".."), Ok("gateway.sock".into()));
    }

    #[test]
    fn no_gateway_is_one_clear_failure() {
        let scratch = Scratch::new();
        let failure = connect(scratch.path(), None).err();
        let text = failure.as_ref().map(|it| it.text.clone()).unwrap_or_default();
        assert_eq!(failure.map(|it| it.code), Some(UNREACHABLE));
        assert!(text.starts_with("the gateway cannot be reached, nothing was run"), "{text}");
    }
}
