//! The channels of plugins: a plugin that says in its greeting that it is one
//! takes messages for people. It has the plugin's name.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Plugins;
use super::connection::Unanswered;
use super::fields::did_you_mean;
use super::host::Host;
use super::run::Asker;
use crate::error::{Error, Kind, Result};
use crate::worker::Cancel;

/// How long a plugin may take to send a message, its start included.
const PATIENCE: Duration = Duration::from_secs(30);

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Channel {
    /// The plugin's name.
    pub name: String,
    /// Whether messages can be sent by it at any time.
    pub supports_messaging: bool,
}

/// A message for a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelMessage {
    /// Where it goes.
    pub chat_id: String,
    /// Within that, where there are threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// What is said.
    pub text: String,
    /// How it is marked up: `html` or `markdown`; plain without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parse_mode: Option<String>,
}

impl Plugins {
    /// The channels of plugins that run, in the order of the configuration.
    pub fn channels(&self) -> Vec<Channel> {
        self.hosts.iter().filter_map(channel_of).collect()
    }

    /// Sends a message by a channel. [`Kind::Missing`] if there is no such
    /// channel, [`Kind::Busy`] if its plugin is not running, [`Kind::Timeout`]
    /// after 30 s; [`Kind::Internal`] with the plugin's words if it refuses.
    pub fn send(&self, name: &str, message: &ChannelMessage, cancel: &Cancel) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        let host = self.hosts.iter().find(|it| it.plugin() == name);
        let host = host.ok_or_else(|| self.no_channel(name))?;
        let asker = Asker { cancel, line: None };
        let session = host.session_within(asker, PATIENCE)?;
        if session.greeting.beige.as_ref().is_none_or(|it| it.channel.is_none()) {
            return Err(self.no_channel(name));
        }
        let left = until.saturating_duration_since(Instant::now());
        let sent = session.connection.ask("beige/channel/send", message, left, asker);
        sent.map(drop).map_err(|unanswered| {
            let kind = match unanswered {
                Unanswered::Late(_) => Kind::Timeout,
                Unanswered::Ended(_) => Kind::Busy,
                Unanswered::CalledOff => Kind::Cancelled,
                Unanswered::TooLong => Kind::TooLarge,
                Unanswered::Refused(_) | Unanswered::System(_) => Kind::Internal,
            };
            Error::new(kind, format!("send a message by the channel `{name}`: {unanswered}"))
        })
    }

    fn no_channel(&self, name: &str) -> Error {
        let known = self.channels();
        let hint = did_you_mean(name, known.iter().map(|it| it.name.as_str()));
        let known: Vec<&str> = known.iter().map(|it| it.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::new(Kind::Missing, format!("there is no channel `{name}`{hint} (channels: {known})"))
    }
}

fn channel_of(host: &Host) -> Option<Channel> {
    let session = host.look().ok()??;
    let channel = session.greeting.beige.as_ref()?.channel?;
    let name = host.plugin().to_owned();
    Some(Channel { name, supports_messaging: channel.supports_messaging })
}
