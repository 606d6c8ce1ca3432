//! A world: a home of its own, a configuration, and the binary to drive. All
//! of it goes when the value does: gateway, containers, files.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::http::try_request;
use super::{Dialect, KEY, ModelServer, Reply, Runtime, request};

/// The binary under test.
const BEIGE: &str = env!("CARGO_BIN_EXE_beige");

/// A home with an agent `a` on one runtime.
pub(crate) struct World {
    /// The folder that holds everything; short, since sockets lie in it.
    pub(crate) root: PathBuf,
    /// What makes the sandboxes.
    pub(crate) runtime: Runtime,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its exit code; 128+n after signal n.
    pub(crate) code: i32,
    /// Standard output, byte for byte.
    pub(crate) stdout: Vec<u8>,
    /// Standard error as text.
    pub(crate) stderr: String,
}

impl Finished {
    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("UTF-8 on standard output")
    }

    /// Standard output as one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| {
            panic!("{error} in {:?} ({})", String::from_utf8_lossy(&self.stdout), self.stderr)
        })
    }

    /// Fails unless it exited with that code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout {:?}, stderr {}", self.stdout_start(), self.stderr);
        self
    }

    fn stdout_start(&self) -> String {
        String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(500)]).into_owned()
    }
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let signal = output.status.signal();
        Self {
            code: output.status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0)),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl World {
    /// A world with agent `a`, the plugin `notes`, and a cassette that says
    /// `hello`.
    pub(crate) fn new(runtime: Runtime) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("bs-{}-{number}", std::process::id()));
        fs::create_dir_all(&root).expect("a folder for the world");
        let world = Self { root, runtime };
        world.write_cassette(&[r#"{"events":[{"text":"hello"}]}"#]);
        world.configure(&["a"], "");
        world
    }

    /// The state folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("h")
    }

    /// The workspace of an agent, on the host.
    pub(crate) fn workspace(&self, agent: &str) -> PathBuf {
        self.home().join("agents").join(agent).join("workspace")
    }

    /// Path of the configuration.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.root.join("config.json5")
    }

    /// Writes a configuration with these agents; `sandbox` is added to the
    /// `sandbox` object of each.
    pub(crate) fn configure(&self, agents: &[&str], sandbox: &str) {
        let agents: String = agents.iter().map(|it| self.agent(it, sandbox, "")).collect();
        self.write_config(&agents, "");
    }

    /// An entry of `agents`: with fields for its `sandbox` object and others
    /// for its own.
    pub(crate) fn agent(&self, name: &str, sandbox: &str, fields: &str) -> String {
        format!(
            "{name}: {{ model: {{ provider: 'p', model: 'm' }}, tools: ['notes'], {fields} \
             sandbox: {{ runtime: '{}', network: 'none', {sandbox} }} }},\n",
            self.runtime.name()
        )
    }

    /// Writes a configuration of these `agents` entries and further fields of
    /// the top level.
    pub(crate) fn write_config(&self, agents: &str, fields: &str) {
        let provider = "api: 'replay', cassette: './cassette.jsonl'";
        self.write_config_of(provider, agents, fields);
    }

    /// The same with these fields of the provider `p`.
    pub(crate) fn write_config_of(&self, provider: &str, agents: &str, fields: &str) {
        let repository = env!("CARGO_MANIFEST_DIR");
        let text = format!(
            "{{ llm: {{ providers: {{ p: {{ {provider} }} }} }},\n\
             plugins: {{ notes: {{ path: '{repository}/examples/notes' }} }},\n\
             agents: {{ {agents} }},\n{fields}\n gateway: {{ port: 0 }} }}"
        );
        fs::write(self.config_file(), text).expect("config written");
    }

    /// Writes a configuration in which agent `a` asks that server; `fields`
    /// are further ones of the provider, each with a comma behind it.
    pub(crate) fn model(&self, server: &ModelServer, fields: &str) {
        self.model_of(server, fields, &self.agent("a", "", ""));
    }

    /// The same with these `agents` entries.
    pub(crate) fn model_of(&self, server: &ModelServer, fields: &str, agents: &str) {
        self.write_config_of(&provider_at(server.port(), fields), agents, "");
    }

    /// Writes the cassette that all agents play.
    pub(crate) fn write_cassette(&self, lines: &[&str]) {
        let text = lines.join("\n") + "\n";
        fs::write(self.root.join("cassette.jsonl"), text).expect("cassette written");
    }

    /// `beige` with this world's home and configuration.
    pub(crate) fn beige(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(BEIGE);
        command.arg("--config").arg(self.config_file()).args(arguments);
        command.env("BEIGE_HOME", self.home()).env_remove("BEIGE_CONFIG").stdin(Stdio::null());
        command
    }

    /// The same with the configuration that its home has.
    pub(crate) fn bare(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(BEIGE);
        command.args(arguments).env("BEIGE_HOME", self.home()).env_remove("BEIGE_CONFIG");
        command.stdin(Stdio::null());
        command
    }

    /// Starts it with its three streams in pipes.
    #[track_caller]
    pub(crate) fn spawn(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Child {
        let mut command = self.beige(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("beige runs")
    }

    /// Process id of the gateway that runs.
    #[track_caller]
    pub(crate) fn gateway_pid(&self) -> u32 {
        let status = self.run(["gateway", "status", "--json"]).expect(0).json();
        status["pid"].as_u64().and_then(|it| it.try_into().ok()).expect("a process id")
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Finished {
        self.beige(arguments).output().expect("beige runs").into()
    }

    /// Runs it with that on standard input.
    #[track_caller]
    pub(crate) fn run_with_input(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        input: &[u8],
    ) -> Finished {
        let mut child = self
            .beige(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("beige runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A command that ends early closes the pipe.
                let _ = stdin.write_all(input);
            });
            child.wait_with_output().expect("beige ends").into()
        })
    }

    /// `beige exec a -- ARGV`.
    #[track_caller]
    pub(crate) fn exec(&self, argv: &[&str]) -> Finished {
        self.run(["exec", "a", "--"].iter().chain(argv))
    }

    /// A line for `sh` in the sandbox of `a`.
    #[track_caller]
    pub(crate) fn sh(&self, line: &str) -> Finished {
        self.exec(&["sh", "-c", line])
    }

    /// Starts a daemon; it ends with the world.
    #[track_caller]
    pub(crate) fn start_gateway(&self) {
        self.run(["gateway", "start"]).expect(0);
    }

    /// Starts a gateway as a child, for tests that kill it.
    #[track_caller]
    pub(crate) fn gateway_child(&self) -> Child {
        let child = self
            .beige(["gateway", "start", "--foreground"])
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.root.join("gateway.err")).expect("a file"))
            .spawn()
            .expect("a gateway starts");
        self.wait_until_it_answers();
        child
    }

    /// Waits until the gateway answers: `api.sock` takes connections before
    /// all else stands, and answers once it does.
    #[track_caller]
    pub(crate) fn wait_until_it_answers(&self) {
        for _ in 0..12_000 {
            // A program that a killed gateway was just starting may hold its
            // socket for a moment: who gets in there is answered by nobody.
            if let Some(reply) = try_request(&self.api_socket(), "GET", "/api/health", &[], b"") {
                assert_eq!(reply.status, 200);
                return;
            }
            pause();
        }
        panic!("no gateway answers: {}", self.gateway_log());
    }

    /// Everything the gateway has logged.
    pub(crate) fn gateway_log(&self) -> String {
        let log = fs::read_to_string(self.home().join("logs/gateway.log")).unwrap_or_default();
        log + &fs::read_to_string(self.root.join("gateway.err")).unwrap_or_default()
    }

    /// The API's Unix socket.
    pub(crate) fn api_socket(&self) -> PathBuf {
        self.home().join("api.sock")
    }

    /// `host:port` of the running gateway.
    pub(crate) fn address(&self) -> String {
        let health = self.get("/api/health").json();
        health["address"].as_str().expect("an address").to_owned()
    }

    /// GET over `api.sock`.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        request(&self.api_socket(), "GET", path, &[], b"")
    }

    /// POST of JSON over `api.sock`.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        let headers = [("Content-Type", "application/json")];
        request(&self.api_socket(), "POST", path, &headers, body.to_string().as_bytes())
    }

    /// A core tool of `a` over HTTP: its text and whether it is an error.
    #[track_caller]
    pub(crate) fn tool(&self, tool: &str, params: Value) -> (String, bool) {
        let body = serde_json::json!({"tool": tool, "params": params});
        let reply = self.post("/api/agents/a/exec", &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json();
        let text = answer["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        (text, answer["isError"].as_bool().expect("isError"))
    }

    /// All records of the audit log, oldest first.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let document = self.run(["audit", "--json"]).expect(0).json();
        document["records"].as_array().expect("records").clone()
    }

    /// Number of records so far.
    pub(crate) fn audit_if_any(&self) -> usize {
        if self.home().join("logs/audit.jsonl").exists() { self.audit().len() } else { 0 }
    }

    /// Fails unless the audit log is sound.
    #[track_caller]
    pub(crate) fn verify_audit(&self) {
        self.run(["audit", "--verify"]).expect(0);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.run(["gateway", "stop"]);
        self.run(["sandbox", "rm"]);
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// Fields of a provider that is a server on that port.
pub(crate) fn provider_at(port: u16, fields: &str) -> String {
    provider_in(Dialect::Chat, port, fields)
}

/// The same in that protocol.
pub(crate) fn provider_in(dialect: Dialect, port: u16, fields: &str) -> String {
    let (api, base) = (dialect.api(), dialect.base());
    format!("api: '{api}', baseUrl: 'http://127.0.0.1:{port}{base}', apiKey: '{KEY}', {fields}")
}

/// A short pause between two looks at something that cannot be waited for.
pub(crate) fn pause() {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let _ = receiver.recv_timeout(std::time::Duration::from_millis(5));
}

/// Looks again until `done`, for at most a minute or so.
#[track_caller]
pub(crate) fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if done() {
            return;
        }
        pause();
    }
    panic!("waited in vain until {what}");
}

/// Whether a process of that id is there and has not ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|it| !it.contains("State:\tZ"))
}

/// The most memory that a process has had, in kB; 0 once it is gone.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    line.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Sends a signal, by its name without `SIG`.
#[track_caller]
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.expect("kill runs").success(), "no process {pid} takes {name}");
}

/// Reads lines of a pipe up to the one that holds `text`.
#[track_caller]
pub(crate) fn read_until(from: &mut impl BufRead, text: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        let count = from.read_line(&mut line).expect("a line");
        assert!(count > 0, "it ended before it said {text:?}");
        if line.contains(text) {
            return line;
        }
    }
}
