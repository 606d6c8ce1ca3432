//! A house: a home of its own below the temporary folder, a configuration with
//! agents on one runtime, and perhaps a gateway that runs in it. All of it
//! goes when the value does.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::arguments::Options;
use crate::model::{self, Pace};
use crate::{Result, http};

/// How long a gateway may take to answer.
const START_LIMIT: Duration = Duration::from_secs(60);

/// What makes the sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// bubblewrap.
    Bubblewrap,
}

impl Runtime {
    /// Its name in configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Bubblewrap => "bubblewrap",
        }
    }

    /// Whether its sandboxes are containers with a command line of their own.
    pub(crate) fn has_containers(self) -> bool {
        self != Self::Bubblewrap
    }

    /// Those in which this beige can run a command on this machine; why
    /// another one is left out is told.
    pub(crate) fn here(options: &Options) -> &'static [Self] {
        static FOUND: OnceLock<Vec<Runtime>> = OnceLock::new();
        FOUND.get_or_init(|| {
            let all = [Self::Docker, Self::Podman, Self::Bubblewrap].into_iter();
            all.filter(|it| match it.is_here(options) {
                Ok(()) => true,
                Err(error) => {
                    eprintln!("  without {}: {error}", it.name());
                    false
                }
            })
            .collect()
        })
    }

    fn is_here(self, options: &Options) -> Result<()> {
        let house = House::new(options, self, 1)?;
        house.run(&["exec", "a1", "--", "true"]).map(drop)
    }
}

/// How a gateway has started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    /// From the start of its process until its socket took a connection.
    pub(crate) listening: Duration,
    /// Until `GET /api/health` was answered.
    pub(crate) answering: Duration,
}

/// A home with agents `a1`, `a2`, ….
pub(crate) struct House {
    root: PathBuf,
    home: PathBuf,
    beige: PathBuf,
    gateway: Option<Child>,
}

impl House {
    /// A house whose model answers at once.
    pub(crate) fn new(options: &Options, runtime: Runtime, agents: usize) -> Result<Self> {
        Self::paced(options, runtime, agents, Pace::AT_ONCE)
    }

    /// A house whose model answers at that pace.
    pub(crate) fn paced(
        options: &Options,
        runtime: Runtime,
        agents: usize,
        pace: Pace,
    ) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: sockets lie in it.
        let root = std::env::temp_dir().join(format!("bb-{}-{number}", std::process::id()));
        fs::create_dir_all(&root)?;
        let home = root.join("h");
        let house = Self { root, home, beige: options.beige.clone(), gateway: None };
        house.add_cheapest_plugin()?;
        fs::write(house.config(), configuration(runtime, agents, &model::serve(pace)?)?)?;
        Ok(house)
    }

    /// A house for prompts alone whose home lies in memory where the host has
    /// such a place, so that ten thousand turns do not wait for a disk.
    pub(crate) fn in_memory(options: &Options, agents: usize) -> Result<Self> {
        let mut house = Self::new(options, Runtime::Bubblewrap, agents)?;
        let name = house.root.file_name().ok_or("a house without a name")?;
        let place = Path::new("/dev/shm").join(name);
        if fs::create_dir(&place).is_ok() {
            house.home = place;
        }
        Ok(house)
    }

    /// Lets the provider take any number of calls at a time, from the next start
    /// on.
    pub(crate) fn without_line(&self) -> Result<()> {
        let text = fs::read_to_string(self.config())?;
        Ok(fs::write(self.config(), text.replace("concurrency: 64", ""))?)
    }

    /// The same with its gateway running.
    pub(crate) fn started(options: &Options, runtime: Runtime, agents: usize) -> Result<Self> {
        let mut house = Self::new(options, runtime, agents)?;
        house.start()?;
        Ok(house)
    }

    /// The same with a gateway that is not the home's first: that one lays what
    /// every later one finds, and keeps the memory that it took.
    pub(crate) fn settled(options: &Options, runtime: Runtime, agents: usize) -> Result<Self> {
        let mut house = Self::started(options, runtime, agents)?;
        house.stop()?;
        house.start()?;
        Ok(house)
    }

    /// Adds plugins that are servers, from the next start on: one with a process
    /// of its own, and one inside the binary.
    pub(crate) fn with_servers(self) -> Result<Self> {
        let kv = std::path::absolute("examples/kv")?;
        let text = fs::read_to_string(self.config())?;
        let servers = format!(
            "plugins: {{ kv: {{ path: '{}' }}, sessions: {{ builtin: 'sessions' }},",
            kv.display()
        );
        let text = text.replace("plugins: {", &servers);
        let text = text.replace("tools: ['notes',", "tools: ['kv', 'sessions', 'notes',");
        fs::write(self.config(), text)?;
        Ok(self)
    }

    /// The state folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.home.clone()
    }

    /// The API's Unix socket.
    pub(crate) fn api(&self) -> PathBuf {
        self.home().join("api.sock")
    }

    /// Where the API is by TCP, and the token for it.
    pub(crate) fn door(&self) -> Result<(String, String)> {
        let health = http::get(&self.api(), "/api/health")?.sound()?.json()?;
        let address = health["address"].as_str().ok_or("the gateway has no address")?;
        let token = fs::read_to_string(self.home().join("api-token"))?;
        Ok((address.to_owned(), token.trim().to_owned()))
    }

    fn config(&self) -> PathBuf {
        self.root.join("config.json5")
    }

    /// A plugin whose program is the least that a process can be.
    fn add_cheapest_plugin(&self) -> Result<()> {
        let folder = self.root.join("least");
        fs::create_dir_all(&folder)?;
        let manifest = r#"{"name": "least", "description": "Does nothing.",
            "provides": {"tools": ["least"]},
            "tools": [{"name": "least", "run": ["true"], "flags": []}]}"#;
        Ok(fs::write(folder.join("plugin.json"), manifest)?)
    }

    /// `beige` in this house.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.beige);
        command.arg("--config").arg(self.config()).args(arguments);
        command.env("BEIGE_HOME", self.home()).env_remove("BEIGE_CONFIG").stdin(Stdio::null());
        command
    }

    /// Runs it to its end; what it printed. An error unless it exits with 0.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let output = self.command(arguments).output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("beige {}: {}", arguments.join(" "), said.trim()).into())
    }

    /// The container of the first agent.
    pub(crate) fn container(&self) -> Result<String> {
        // It is made at the first command, or by the gateway in its own time.
        self.run(&["exec", "a1", "--", "true"])?;
        let list: Value = serde_json::from_slice(&self.run(&["sandbox", "list", "--json"])?)?;
        let name = list[0]["container"].as_str().ok_or("the agent has no container")?;
        Ok(name.to_owned())
    }

    /// The first process of an agent's bubblewrap sandbox, by its id on the host.
    pub(crate) fn resident(&self, agent: &str) -> Result<u32> {
        let file = self.home().join(format!("data/sandboxes/{agent}.json"));
        let state: Value = serde_json::from_slice(&fs::read(&file)?)?;
        let pid = state["pid"].as_u64().and_then(|it| u32::try_from(it).ok());
        pid.ok_or_else(|| format!("{} names no process", file.display()).into())
    }

    /// Starts the gateway, in the foreground of its own process.
    pub(crate) fn start(&mut self) -> Result<Started> {
        let errors = fs::File::create(self.root.join("gateway.err"))?;
        let mut command = self.command(&["gateway", "start", "--foreground"]);
        command.stdout(Stdio::null()).stderr(errors);
        let begun = Instant::now();
        self.gateway = Some(command.spawn()?);
        while UnixStream::connect(self.api()).is_err() {
            if begun.elapsed() > START_LIMIT || self.has_ended()? {
                let said = fs::read_to_string(self.root.join("gateway.err")).unwrap_or_default();
                return Err(format!("the gateway does not start: {said}").into());
            }
            sleep(Duration::from_micros(100));
        }
        let listening = begun.elapsed();
        http::get(&self.api(), "/api/health")?.sound()?;
        Ok(Started { listening, answering: begun.elapsed() })
    }

    fn has_ended(&mut self) -> Result<bool> {
        let Some(gateway) = &mut self.gateway else { return Ok(true) };
        Ok(gateway.try_wait()?.is_some())
    }

    /// Process id of the gateway.
    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self.gateway.as_ref().ok_or("no gateway runs")?.id())
    }

    /// Stops the gateway; how long it took from the signal to its end.
    pub(crate) fn stop(&mut self) -> Result<Duration> {
        let mut gateway = self.gateway.take().ok_or("no gateway runs")?;
        let begun = Instant::now();
        let pid = i32::try_from(gateway.id()).ok().and_then(Pid::from_raw).ok_or("no such pid")?;
        kill_process(pid, Signal::TERM)?;
        let status = gateway.wait()?;
        if status.success() { Ok(begun.elapsed()) } else { Err(status.to_string().into()) }
    }

    /// A core tool of the first agent, over the API.
    pub(crate) fn tool(&self, tool: &str, params: &Value) -> Result<()> {
        http::tool(&self.api(), "a1", tool, params)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if self.gateway.is_some()
            && let Err(error) = self.stop()
        {
            let _ = writeln!(std::io::stderr(), "  a gateway did not stop well: {error}");
        }
        let _ = self.run(&["sandbox", "rm"]);
        let _ = fs::remove_dir_all(&self.home);
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A provider at that URL, both plugins, and the agents.
fn configuration(runtime: Runtime, agents: usize, url: &str) -> Result<String> {
    let notes = std::path::absolute("examples/notes")?;
    let notes = notes.display();
    let runtime = runtime.name();
    let agent = |number| {
        format!(
            "a{number}: {{ model: {{ provider: 'p', model: 'm' }}, tools: ['notes', 'least'], \
             sandbox: {{ runtime: '{runtime}', network: 'none' }} }},\n"
        )
    };
    let agents: String = (1..=agents).map(agent).collect();
    Ok(format!(
        "{{ llm: {{ providers: {{ p: {{ api: 'openai-completions', baseUrl: '{url}', \
         concurrency: 64 }} }} }},\n\
         plugins: {{ notes: {{ path: '{notes}' }}, least: {{ path: './least' }} }},\n\
         agents: {{ {agents} }},\n gateway: {{ port: 0 }} }}\n"
    ))
}
