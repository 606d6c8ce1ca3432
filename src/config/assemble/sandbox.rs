//! How an agent's sandbox is made: sizes, user, network, mounts and what the
//! runtimes cannot do together.

use std::collections::BTreeSet;

use crate::config::assemble::Assembly;
use crate::config::node::Node;
use crate::config::{MountConfig, Network, RuntimeChoice, SandboxConfig, UserChoice, paths};

/// Memory of a sandbox unless the configuration says otherwise, in bytes.
const DEFAULT_MEMORY: u64 = 3 << 30;

/// Less than this starts no shell, in bytes.
const LEAST_MEMORY: u64 = 16 << 20;

impl Assembly<'_> {
    pub(super) fn sandbox(&mut self, agent: &str, node: &Node<'_>) -> SandboxConfig {
        let user = self.user(&node.get("user"));
        SandboxConfig {
            runtime: self.runtime(node, user),
            image: self.image(&node.get("image")),
            memory_bytes: self.memory(&node.get("memoryLimit")),
            cpus: self.cpus(&node.get("cpus")),
            pids: node.get("pidsLimit").whole(),
            network: match node.get("network").text() {
                Some("open") => Some(Network::Open),
                Some("none") => Some(Network::None),
                _ => None,
            },
            user,
            read_only_root: node.get("readOnlyRoot").is_true(),
            mounts: self.mounts(agent, &node.get("extraMounts")),
            env: self.environment(&node.get("extraEnv")),
        }
    }

    fn runtime(&mut self, node: &Node<'_>, user: UserChoice) -> RuntimeChoice {
        match (node.get("runtime").text(), user) {
            (Some("bubblewrap"), _) => {
                if let Some(message) = not_with_bubblewrap(user, self.surroundings.uid) {
                    self.refuse(&node.get("user").path, message);
                }
                RuntimeChoice::Bubblewrap
            }
            (Some("docker"), _) => RuntimeChoice::Docker,
            (Some("podman"), _) => {
                if let Some(message) = not_with_podman(user, self.surroundings.uid) {
                    self.refuse(&node.get("user").path, message);
                }
                RuntimeChoice::Podman
            }
            _ => RuntimeChoice::Auto,
        }
    }

    /// An image's name goes into an argv, where a dash would make it a flag.
    fn image(&mut self, node: &Node<'_>) -> String {
        let odd = |it: char| it.is_whitespace() || it.is_control();
        if node.text().is_some_and(|it| it.starts_with('-') || it.contains(odd)) {
            self.refuse(&node.path, "an image's name has no blanks and begins with no `-`");
        }
        node.text_or_empty()
    }

    fn memory(&mut self, node: &Node<'_>) -> u64 {
        let most = self.surroundings.memory_bytes.map_or(u64::MAX, |it| it / 4 * 3);
        if node.value.is_null() {
            return DEFAULT_MEMORY.min(most);
        }
        let wanted = node.text().map_or_else(|| Some(node.whole()), bytes);
        let Some(wanted) = wanted.filter(|it| *it >= LEAST_MEMORY) else {
            let message = "expected a size of at least 16m: \"512m\", \"3g\" or a number of bytes";
            self.refuse(&node.path, message);
            return DEFAULT_MEMORY;
        };
        if wanted > most {
            let message =
                format!("lowered to {} MiB, three quarters of the host's memory", most >> 20);
            self.findings.warn(&node.path, message);
        }
        wanted.min(most)
    }

    fn cpus(&mut self, node: &Node<'_>) -> Option<f64> {
        let wanted = node.number()?;
        let present = self.surroundings.cpus.and_then(|it| u32::try_from(it).ok()).map(f64::from);
        match present.filter(|it| wanted > *it) {
            Some(present) => {
                self.findings
                    .warn(&node.path, format!("lowered to {present}, all that the host has"));
                Some(present)
            }
            None => Some(wanted),
        }
    }

    fn user(&mut self, node: &Node<'_>) -> UserChoice {
        match node.text() {
            Some("host") | None => UserChoice::Host,
            Some("root") => UserChoice::Root,
            Some(text) => ids(text).unwrap_or_else(|message| {
                self.refuse(&node.path, message);
                UserChoice::Host
            }),
        }
    }

    fn mounts(&mut self, agent: &str, node: &Node<'_>) -> Vec<MountConfig> {
        let mut taken = BTreeSet::new();
        let mut mounts = Vec::new();
        for (host, entry) in node.entries() {
            let Some(mount) = self.mount(agent, host, &entry) else { continue };
            if !taken.insert(mount.container.clone()) {
                let message = format!("another mount stands at {}", mount.container.display());
                self.refuse(&entry.path, message);
            }
            mounts.push(mount);
        }
        mounts
    }

    fn mount(&mut self, agent: &str, host: &str, entry: &Node<'_>) -> Option<MountConfig> {
        let named = self.expanded_text(host, &entry.path)?;
        let host = self.host_path(&named, agent, &entry.path);
        if !host.exists() {
            self.refuse(&entry.path, format!("{} does not exist", host.display()));
        }
        match paths::container_path(entry.text()?) {
            Ok((container, read_only)) => Some(MountConfig { host, container, read_only }),
            Err(message) => {
                self.refuse(&entry.path, message);
                None
            }
        }
    }
}

/// Why bubblewrap gives an agent no such user, under a gateway that is `own`.
fn not_with_bubblewrap(user: UserChoice, own: u32) -> Option<String> {
    match user {
        UserChoice::Root => {
            let what =
                "`root` is for Docker and Podman only; with bubblewrap use `host` or \"uid:gid\"";
            Some(what.into())
        }
        UserChoice::Ids { gid: 0, .. } => {
            Some("bubblewrap never runs as group 0; take another, or Docker or Podman".into())
        }
        UserChoice::Ids { uid, .. } if own != 0 && own != uid => Some(format!(
            "bubblewrap gives an agent no other user than the gateway's own, which is {own}; \
             leave `user` out, run the gateway as root, or take Docker"
        )),
        UserChoice::Host | UserChoice::Ids { .. } => None,
    }
}

/// Why Podman gives an agent no such user, under a gateway that is `own`: any
/// other is an id that the workspace's owner could not read files of.
fn not_with_podman(user: UserChoice, own: u32) -> Option<String> {
    match user {
        UserChoice::Ids { uid, .. } if own != 0 && own != uid => Some(format!(
            "Podman without root gives an agent no other user than the gateway's own, which is \
             {own}; leave `user` out, run the gateway as root, or take Docker"
        )),
        _ => None,
    }
}

/// Reads `3g`, `512m`, `64k` or plain bytes.
fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.to_ascii_lowercase().pop()? {
        'k' => (text.get(..text.len() - 1)?, 10),
        'm' => (text.get(..text.len() - 1)?, 20),
        'g' => (text.get(..text.len() - 1)?, 30),
        _ => (text, 0),
    };
    let is_plain = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    let number: u64 = is_plain.then(|| digits.parse().ok())??;
    number.checked_mul(1 << shift).filter(|it| i64::try_from(*it).is_ok())
}

fn ids(text: &str) -> Result<UserChoice, String> {
    let number = |text: &str| {
        let is_plain = text.bytes().all(|it| it.is_ascii_digit());
        text.parse::<u32>().ok().filter(|it| is_plain && *it != u32::MAX)
    };
    let parts = text.split_once(':');
    let Some((uid, gid)) = parts.and_then(|(uid, gid)| Some((number(uid)?, number(gid)?))) else {
        return Err("expected host, root or \"uid:gid\" (two numbers)".into());
    };
    if uid == 0 {
        return Err("write `root` for uid 0".into());
    }
    Ok(UserChoice::Ids { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_bytes(text: &str, expected: Option<u64>) {
        assert_eq!(bytes(text), expected);
    }

    #[test]
    fn a_size_is_a_number_with_a_unit_or_none() {
        check_bytes("3g", Some(3 << 30));
        check_bytes("512M", Some(512 << 20));
        check_bytes("64k", Some(64 << 10));
        check_bytes("1000", Some(1000));
        for text in ["", "g", "-1g", "+1g", "1.5g", "1 g", "1gb", "é", "1é", "99999999999g"] {
            check_bytes(text, None);
        }
    }

    #[test]
    fn ids_are_two_numbers_and_never_root() {
        assert_eq!(ids("1000:20"), Ok(UserChoice::Ids { uid: 1000, gid: 20 }));
        for text in
            ["", ":", "1000", "a:b", "1:", "-1:1", "+1:1", "1:4294967295", "0:0", "0:5", "1:2:3"]
        {
            assert!(ids(text).is_err(), "{text}");
        }
    }
}
