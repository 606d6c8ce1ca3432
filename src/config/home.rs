//! The state folder (`$BEIGE_HOME`, default `~/.beige`): where everything in
//! it lies and with which modes it is made. No other module joins these paths.

use std::env;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

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

    /// `$BEIGE_HOME`, made absolute, else `$HOME/.beige`. A [`Kind::Config`]
    /// error if neither is set.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(env::var_os("BEIGE_HOME"), env::var_os("HOME"))
    }

    fn from_variables(own: Option<OsString>, user: Option<OsString>) -> Result<Self> {
        let is_set = |it: &OsString| !it.is_empty();
        let own = own.filter(is_set).map(PathBuf::from);
        let user = user.filter(is_set).map(|it| PathBuf::from(it).join(".beige"));
        let root = own.or(user).ok_or_else(|| {
            Error::new(Kind::Config, "neither BEIGE_HOME nor HOME is set; set one of them")
        })?;
        std::path::absolute(&root)
            .map(Self::new)
            .during(Kind::Config, format!("find the state folder {}", root.display()))
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

    /// `passwd`, `group` and `hosts` of a sandbox that has no image to bring
    /// them.
    pub fn accounts(&self, agent: &str) -> PathBuf {
        self.agent(agent).join("etc")
    }

    /// Names the workspace that has had its first start.
    pub fn first_start(&self, agent: &str) -> PathBuf {
        self.agent(agent).join("first-start")
    }

    /// Plugins that were installed, a folder each.
    pub fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }

    /// What was installed with several plugins in it, a folder each.
    pub fn plugin_packages(&self) -> PathBuf {
        self.root.join("packages")
    }

    /// Held while plugins are installed, updated or removed.
    pub fn plugins_lock(&self) -> PathBuf {
        self.data().join("plugins.lock")
    }

    /// State that programs keep.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// What model calls took, a line each.
    pub fn usage_log(&self) -> PathBuf {
        self.data().join("usage.jsonl")
    }

    /// Held while a line is added to it.
    pub fn usage_lock(&self) -> PathBuf {
        self.data().join("usage.lock")
    }

    /// Which models cool down.
    pub fn provider_health(&self) -> PathBuf {
        self.data().join("provider-health.json")
    }

    /// Held while that is read and replaced.
    pub fn provider_health_lock(&self) -> PathBuf {
        self.data().join("provider-health.lock")
    }

    /// The copies of tool-client, by build.
    pub fn clients(&self) -> PathBuf {
        self.data().join("tool-client")
    }

    /// Which configuration the gateway serves.
    pub fn config_in_use(&self) -> PathBuf {
        self.data().join("gateway.json")
    }

    /// Filtered copy of a plugin's files, mounted at `/tools/packages/NAME`.
    pub fn package(&self, plugin: &str) -> PathBuf {
        self.data().join("packages").join(plugin)
    }

    /// Where a plugin without a folder of its own runs.
    pub fn plugin_files(&self, plugin: &str) -> PathBuf {
        self.data().join("plugins").join(plugin)
    }

    /// Filtered copy of a skill's files, mounted at `/skills/NAME`.
    pub fn skill(&self, skill: &str) -> PathBuf {
        self.data().join("skills").join(skill)
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

    /// Held while a socket in an agent's socket folder is made or found dead;
    /// not in that folder, where the sandbox could hold it.
    pub fn agent_sockets_lock(&self, agent: &str) -> PathBuf {
        self.data().join("sandboxes").join(format!("{agent}.sockets.lock"))
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

    /// What people chose for single sessions, by key.
    pub fn session_settings(&self) -> PathBuf {
        self.sessions().join("session-settings.json")
    }

    /// Held while that is read and replaced.
    pub fn session_settings_lock(&self) -> PathBuf {
        self.sessions().join("session-settings.lock")
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
            self.data().join("skills"),
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

/// Opens a file of the state folder, 0600 if it is made: a regular file of
/// that very name and nothing else. Through a link a gateway that is root would
/// write over any file of the host, and opening a FIFO would wait for ever.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = options.mode(0o600).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => unfit("a link, and none is followed here"),
        Some(Errno::NXIO | Errno::ISDIR) => unfit("no regular file"),
        _ => error,
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(unfit("no regular file")),
    }
}

fn unfit(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("it is {what}; move it away"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(own: Option<&str>, user: Option<&str>, expected: Option<PathBuf>) {
        let home = Home::from_variables(own.map(OsString::from), user.map(OsString::from));
        assert_eq!(home.ok().map(|it| it.root), expected);
    }

    #[test]
    fn what_is_no_file_of_ours_is_neither_opened_nor_waited_for() {
        let root = std::env::temp_dir().join(format!("beige-own-{}", std::process::id()));
        create_private(&root).expect("a folder");
        let foreign = root.join("foreign");
        std::fs::write(&foreign, "theirs").expect("written");
        std::os::unix::fs::symlink(&foreign, root.join("link")).expect("a link");
        std::os::unix::fs::symlink("loop", root.join("loop")).expect("a link");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), fifo, mode, 0).expect("a FIFO");
        std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a socket");
        create_private(&root.join("folder")).expect("a folder");
        for name in ["link", "loop", "fifo", "socket", "folder"] {
            let own = root.join(name);
            for mut options in [
                File::options().read(true).to_owned(),
                File::options().write(true).create(true).truncate(true).to_owned(),
                File::options().append(true).create(true).to_owned(),
                File::options().read(true).write(true).create(true).to_owned(),
            ] {
                let error = open_own(&own, &mut options).expect_err(name);
                assert!(error.to_string().ends_with("; move it away"), "{name}: {error}");
            }
        }
        assert_eq!(std::fs::read(&foreign).expect("readable"), b"theirs");
        assert!(open_own(&root.join("new"), File::options().append(true).create(true)).is_ok());
        let absent = open_own(&root.join("absent"), File::options().read(true));
        assert_eq!(absent.map_err(|it| it.kind()).err(), Some(ErrorKind::NotFound));
        std::fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn the_state_folder_is_named_by_the_environment() {
        check(Some("/srv/b"), Some("/home/u"), Some("/srv/b".into()));
        check(None, Some("/home/u"), Some("/home/u/.beige".into()));
        check(Some(""), Some("/home/u"), Some("/home/u/.beige".into()));
        check(Some("rel"), None, std::path::absolute("rel").ok());
        check(Some(""), Some(""), None);
        check(None, None, None);
    }
}
