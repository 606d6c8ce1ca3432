//! What the configuration says of git: for an agent, with its own over the
//! plugin's. What is not said is refused: no remote is allowed by default.

use serde_json::Value;

use super::remotes::Remote;

/// Who signs with a token where the configuration names nobody: GitHub wants
/// this name, others take any.
const TOKEN_USER: &str = "x-access-token";

/// The configuration of one call.
#[derive(Debug, Default)]
pub(super) struct Settings {
    allowed_commands: Option<Vec<String>>,
    denied_commands: Vec<String>,
    allowed_remotes: Vec<String>,
    /// Whether what is over there may be overwritten or removed.
    pub(super) allow_force_push: bool,
    /// Name and address of commits.
    pub(super) identity: (String, String),
    /// Globs and what is given to remotes that match.
    tokens: Vec<(String, String)>,
}

impl Settings {
    /// Reads it for an agent; the schema has been checked at load.
    pub(super) fn read(config: &Value, agent: &str) -> Self {
        let text = |at: &str| config.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let name = text("/identity/name").unwrap_or_else(|| agent.to_owned());
        let email = text("/identity/email").unwrap_or_else(|| format!("{agent}@beige.invalid"));
        let tokens = config["tokens"].as_object().into_iter().flatten();
        let tokens = tokens.filter_map(|(glob, it)| Some((glob.clone(), it.as_str()?.to_owned())));
        Self {
            allowed_commands: config["allowedCommands"]
                .is_array()
                .then(|| texts(config, "allowedCommands")),
            denied_commands: texts(config, "deniedCommands"),
            allowed_remotes: texts(config, "allowedRemotes"),
            allow_force_push: config["allowForcePush"].as_bool().unwrap_or_default(),
            identity: (name, email),
            tokens: tokens.filter(|(_, it)| !it.is_empty()).collect(),
        }
    }

    /// Whether a command of the table may be called.
    pub(super) fn allows(&self, command: &str) -> bool {
        let is_listed = |list: &[String]| list.iter().any(|it| it == command);
        self.allowed_commands.as_deref().is_none_or(is_listed) && !is_listed(&self.denied_commands)
    }

    /// The remote of that URL, if it may be spoken with.
    pub(super) fn remote(&self, url: &str) -> Result<Remote, String> {
        let remote = Remote::read(url)?;
        if self.allowed_remotes.iter().any(|it| remote.matches(it)) {
            return Ok(remote);
        }
        let hint = match self.allowed_remotes.as_slice() {
            [] => "none is; a person can name some in `allowedRemotes`".to_owned(),
            some => format!("allowed are {}", some.join(", ")),
        };
        Err(format!("the remote {} is not allowed here: {hint}", remote.shown()))
    }

    /// User and password for that remote: of a token `user:password`, or the
    /// token for [`TOKEN_USER`]. The longest glob that matches counts.
    pub(super) fn credential(&self, remote: &Remote) -> Option<(&str, &str)> {
        let fitting = self.tokens.iter().filter(|(glob, _)| !remote.is_ssh && remote.matches(glob));
        let (_, token) = fitting.max_by_key(|(glob, _)| glob.len())?;
        Some(token.split_once(':').unwrap_or((TOKEN_USER, token)))
    }

    /// What no answer may show.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let secrets = self.tokens.iter().map(|(_, it)| it.split_once(':').map_or(&**it, |it| it.1));
        secrets.filter(|it| it.len() >= 8)
    }
}

fn texts(config: &Value, key: &str) -> Vec<String> {
    let items = config[key].as_array().into_iter().flatten();
    items.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}
