//! The gateway's own settings: where it listens, whom it lets in, where it
//! logs; and what agents must not be able to do about that.

use std::net::IpAddr;
use std::path::Path;

use log::LevelFilter;

use crate::config::assemble::Assembly;
use crate::config::key_path::KeyPath;
use crate::config::node::Node;
use crate::config::{Config, Gateway, Network, paths};

impl Assembly<'_> {
    pub(super) fn gateway(&mut self, node: &Node<'_>) -> Gateway {
        let (host, auth, log) = (node.get("host"), node.get("auth"), node.get("log"));
        self.check_host(&host, "an IP address or a name, without a port");
        for name in node.get("allowedHosts").items() {
            self.check_host(&name, "a name or an IP address, without a port");
        }
        let token_required = auth.text() != Some("none");
        if !token_required && !host.text().is_some_and(is_loopback) {
            let message = "`none` needs a loopback `host`, since anybody who reaches the \
                           gateway could run commands; use `token`";
            self.refuse(&auth.path, message);
        }
        Gateway {
            host: host.text_or_empty(),
            port: node.get("port").whole(),
            token_required,
            allowed_hosts: node.get("allowedHosts").texts(),
            log_file: self
                .expanded(&node.get("logFile"))
                .unwrap_or_else(|| self.home.logs().join("gateway.log")),
            log_max_bytes: log.get("maxSizeBytes").whole(),
            log_max_files: log.get("maxFiles").whole(),
            log_level: log
                .get("level")
                .text()
                .and_then(|it| it.parse().ok())
                .unwrap_or(LevelFilter::Info),
        }
    }

    fn check_host(&mut self, node: &Node<'_>, wanted: &str) {
        if node.text().is_some_and(|it| !is_host(it)) {
            self.refuse(&node.path, format!("expected {wanted}"));
        }
    }

    /// A log that an agent can replace by a link would let it write anywhere.
    pub(super) fn compare_log(&mut self, path: &KeyPath, config: &Config) {
        let file = &config.gateway.log_file;
        let Ok(log) = paths::resolve(file) else {
            self.refuse(path, format!("the links of {} cannot be followed", file.display()));
            return;
        };
        for agent in config.agents.values() {
            let mounts = agent.sandbox.mounts.iter().map(|it| it.host.as_path());
            let mut folders = mounts.chain([agent.workspace.as_path()]);
            if let Some(folder) = folders.find(|it: &&Path| log.starts_with(it)) {
                let message = format!(
                    "the log would lie in {}, which the agent `{}` can write to",
                    folder.display(),
                    agent.name
                );
                self.refuse(path, message);
            }
        }
    }

    /// An agent on the host's own network reaches a gateway that asks nobody
    /// for a token.
    pub(super) fn compare_access(&mut self, agents: &Node<'_>, config: &Config) {
        if config.gateway.token_required {
            return;
        }
        for agent in config.agents.values() {
            if agent.sandbox.may_be_bubblewrap() && agent.sandbox.network == Some(Network::Open) {
                let path = agents.get(&agent.name).get("sandbox").get("network").path;
                let message = "`open` is the host's own network under bubblewrap, where \
                               `gateway.auth: \"none\"` lets the agent use the gateway's API; \
                               use `auth: \"token\"`, or `runtime: \"docker\"`";
                self.refuse(&path, message);
            }
        }
    }
}

/// Whether nobody but this host can reach the address.
fn is_loopback(host: &str) -> bool {
    let host = unbracketed(host);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|it| it.to_canonical().is_loopback())
}

fn is_host(text: &str) -> bool {
    let allowed = |it: char| it.is_ascii_alphanumeric() || ".-_".contains(it);
    unbracketed(text).parse::<IpAddr>().is_ok()
        || (!text.is_empty() && text.len() <= 253 && text.chars().all(allowed))
}

fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host)
}
