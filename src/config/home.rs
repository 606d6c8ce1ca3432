//! The state folder (`$BEIGE_HOME`, default `~/.beige`): where everything in
//! it lies and with which modes it is made. No other module joins these paths.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{During, Kind, Result};

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

    /// What the HTTP API's front door keeps to itself, 0700: the socket of the
    /// server behind it, large bodies.
    pub fn door(&self) -> PathBuf {
        self.root.join("door")
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

    /// The audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.jsonl")
    }

    /// All sessions.
    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
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
