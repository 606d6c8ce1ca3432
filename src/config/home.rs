//! The state folder (`$BEIGE_HOME`, default `~/.beige`): where everything in
//! it lies and with which modes it is made. No other module joins these paths.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{During, Error, Kind, Result};

/// The state folder of one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// A home at an absolute path; nothing is made yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// `$BEIGE_HOME` (made absolute), else `~/.beige`. An empty variable counts
    /// as unset.
    pub fn from_env() -> Result<Self> {
        let set = |name| std::env::var_os(name).filter(|it| !it.is_empty());
        if let Some(root) = set("BEIGE_HOME") {
            let root = std::path::absolute(root).during(Kind::Config, "resolve $BEIGE_HOME")?;
            return Ok(Self::new(root));
        }
        match set("HOME") {
            Some(home) => Ok(Self::new(PathBuf::from(home).join(".beige"))),
            None => Err(Error::new(
                Kind::Config,
                "find the state folder: neither BEIGE_HOME nor HOME is set; set BEIGE_HOME",
            )),
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Default place of the configuration.
    pub fn config_file(&self) -> PathBuf {
        self.root.join("config.json5")
    }

    /// The HTTP API's Unix socket, 0600.
    pub fn api_socket(&self) -> PathBuf {
        self.root.join("api.sock")
    }

    /// The HTTP API's bearer token, 0600.
    pub fn api_token(&self) -> PathBuf {
        self.root.join("api-token")
    }

    /// Locked for the life of a gateway; holds its process id.
    pub fn pid_file(&self) -> PathBuf {
        self.root.join("gateway.pid")
    }

    /// All agents' socket folders; 0700 keeps the host's other users out.
    pub fn sockets(&self) -> PathBuf {
        self.root.join("sockets")
    }

    /// One agent's socket folder, mounted at `/beige`; never replaced while a
    /// sandbox lives.
    pub fn agent_sockets(&self, agent: &str) -> PathBuf {
        self.sockets().join(agent)
    }

    /// What belongs to one agent.
    pub fn agent(&self, agent: &str) -> PathBuf {
        self.root.join("agents").join(agent)
    }

    /// Default workspace of an agent.
    pub fn workspace(&self, agent: &str) -> PathBuf {
        self.agent(agent).join("workspace")
    }

    /// One link per tool, mounted at `/tools/bin`.
    pub fn launchers(&self, agent: &str) -> PathBuf {
        self.agent(agent).join("launchers")
    }

    /// `passwd`, `group` and `hosts` of a sandbox that has no image to bring
    /// them.
    pub fn accounts(&self, agent: &str) -> PathBuf {
        self.agent(agent).join("etc")
    }

    /// Names the workspace that has had its first start.
    pub fn first_start(&self, agent: &str) -> PathBuf {
        self.agent(agent).join("first-start")
    }

    /// State that programs keep.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Filtered copy of a plugin's files, mounted at `/tools/packages/NAME`.
    pub fn package(&self, plugin: &str) -> PathBuf {
        self.data().join("packages").join(plugin)
    }

    /// What is known of an agent's sandbox, for whoever takes it over.
    pub fn sandbox_state(&self, agent: &str) -> PathBuf {
        self.data().join("sandboxes").join(format!("{agent}.json"))
    }

    /// Held shared by each call, exclusively while the sandbox is made,
    /// stopped or removed.
    pub fn sandbox_lock(&self, agent: &str) -> PathBuf {
        self.data().join("sandboxes").join(format!("{agent}.lock"))
    }

    /// Logs of all kinds.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// The audit log; the newest of its files.
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.jsonl")
    }

    /// The audit log's older files: 1 is the newest of them.
    pub fn audit_log_rotated(&self, number: u32) -> PathBuf {
        self.logs().join(format!("audit.jsonl.{number}"))
    }

    /// Locked exclusively for each line of the audit log.
    pub fn audit_lock(&self) -> PathBuf {
        self.logs().join("audit.lock")
    }

    /// Number and hash of a recent last line of the audit log.
    pub fn audit_head(&self) -> PathBuf {
        self.logs().join("audit.head")
    }

    /// All sessions.
    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    /// The session files of one agent, 0700.
    pub fn agent_sessions(&self, agent: &str) -> PathBuf {
        self.sessions().join(agent)
    }

    /// Which file a session key means.
    pub fn session_map(&self) -> PathBuf {
        self.sessions().join("session-map.json")
    }

    /// Held while the session map is read and replaced.
    pub fn session_map_lock(&self) -> PathBuf {
        self.sessions().join("session-map.lock")
    }

    /// Makes the folders every command may rely on, 0700.
    pub fn create(&self) -> Result<()> {
        for folder in [
            self.root.clone(),
            self.sockets(),
            self.root.join("agents"),
            self.data(),
            self.data().join("sandboxes"),
            self.data().join("packages"),
            self.logs(),
            self.sessions(),
        ] {
            create_private(&folder)?;
        }
        Ok(())
    }
}

/// Makes a folder (and its parents) that only its owner may enter; one that
/// exists keeps its mode.
pub fn create_private(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .during(Kind::Internal, format!("make the folder {}", folder.display()))
}

/// Makes a folder that is mounted into a sandbox, 0755 whatever the umask.
pub fn create_mounted(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)
        .and_then(|()| std::fs::set_permissions(folder, Permissions::from_mode(0o755)))
        .during(Kind::Internal, format!("make the folder {}", folder.display()))
}
