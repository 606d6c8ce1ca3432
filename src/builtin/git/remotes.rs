//! The URL of a remote, read as git reads it and compared with globs. Only
//! `https`, `ssh`, `user@host:path`, and `http` are understood; every other
//! transport of git (`ext::`, `file:`, `fd::`, `git:`, a path) is refused, and
//! so is every URL that two readers could understand in two ways. Pure.

use crate::plugin::globs;

/// A remote that could be spoken with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    /// As git is given it.
    pub(super) url: String,
    /// Whether it is reached by ssh.
    pub(super) is_ssh: bool,
    pub(super) scheme: &'static str,
    /// Who asks, where the URL says it.
    user: Option<String>,
    /// `host[:port]/path`, without who asks.
    place: String,
}

impl Remote {
    /// Reads a URL; the error says what is wrong with it.
    pub(super) fn read(url: &str) -> Result<Self, String> {
        let odd = |it: char| !it.is_ascii_graphic() || "\\'\"<>^`{}|?#*;&$()![]".contains(it);
        if url.starts_with('-') || url.contains(odd) || url.len() > 2048 {
            return Err(wrong(url, "it has characters that are not taken"));
        }
        if !url.contains(['/', ':']) {
            return Err(format!("this repository has no remote `{url}`"));
        }
        if let Some((scheme, rest)) = url.split_once("://") {
            return Self::of_scheme(url, scheme, rest);
        }
        let (host, path) =
            url.split_once(':').filter(|(host, _)| !host.contains('/')).ok_or_else(|| {
                wrong(url, "it is no URL; paths of the host and of the workspace are not taken")
            })?;
        if path.starts_with(':') {
            return Err(wrong(url, "no transport but https and ssh is taken"));
        }
        Self::of("ssh", url, host, path.strip_prefix('/').unwrap_or(path))
    }

    fn of_scheme(url: &str, scheme: &str, rest: &str) -> Result<Self, String> {
        let scheme = ["https", "http", "ssh"].into_iter().find(|it| *it == scheme);
        let scheme = scheme.ok_or_else(|| wrong(url, "no transport but https and ssh is taken"))?;
        let (host, path) =
            rest.split_once('/').ok_or_else(|| wrong(url, "it names no repository"))?;
        Self::of(scheme, url, host, path)
    }

    fn of(scheme: &'static str, url: &str, host: &str, path: &str) -> Result<Self, String> {
        let is_ssh = scheme == "ssh";
        let (user, host) = host.split_once('@').map_or((None, host), |(it, host)| (Some(it), host));
        if user.is_some() && !is_ssh {
            return Err(wrong(
                url,
                "it has a user in it; leave that out, the configuration has what is needed",
            ));
        }
        let (name, port) = host.split_once(':').map_or((host, "1"), |it| it);
        let is_name = |it: &str| {
            let fits = |it: u8| it.is_ascii_alphanumeric() || b"._-".contains(&it);
            it.bytes().all(fits)
                && it.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '_')
        };
        if !is_name(name) || !user.is_none_or(is_name) || port.parse::<u16>().is_err() {
            return Err(wrong(url, "its host is not taken"));
        }
        check_path(url, path.strip_suffix('/').unwrap_or(path))?;
        let place = format!("{}/{path}", host.to_ascii_lowercase());
        let user = user.map(str::to_owned);
        Ok(Self { url: url.to_owned(), is_ssh, scheme, user, place })
    }

    /// Whether a glob names it: `https://host/path`, or `host/path` for https
    /// and ssh alike, `user@host:path` for ssh and that user, or a host alone for all that it
    /// has. `*` stays within a name, `**` goes through folders; `.git` at the
    /// end may be left out.
    pub(super) fn matches(&self, glob: &str) -> bool {
        let (scheme, place) = glob.split_once("://").map_or((None, glob), |it| (Some(it.0), it.1));
        let (user, place) = place.split_once('@').map_or((None, place), |it| (Some(it.0), it.1));
        // With the same key another user over there may be another's account.
        if user.is_some() && user != self.user.as_deref() {
            return false;
        }
        let (host, path) = place.split_once('/').unwrap_or((place, "**"));
        let by_colon = host
            .split_once(':')
            .filter(|(_, it)| scheme.is_none() && *it != "*" && it.parse::<u16>().is_err());
        let (scheme, whole) = match by_colon {
            Some((host, above)) if place.contains('/') => {
                (Some("ssh"), format!("{host}/{above}/{path}"))
            }
            Some((host, path)) => (Some("ssh"), format!("{host}/{path}")),
            None => (scheme, format!("{host}/{path}")),
        };
        // Without encryption only for who says so.
        let is_other = scheme.map_or(self.scheme == "http", |it| it != self.scheme);
        // A glob without a host would be one of paths.
        if is_other || whole.starts_with(['/', '.']) {
            return false;
        }
        let path = self.place.trim_end_matches('/');
        let bare = path.strip_suffix(".git").unwrap_or(path);
        globs::matches(&whole, path) || globs::matches(&whole, bare)
    }

    /// It, for a person.
    pub(super) fn shown(&self) -> &str {
        &self.url
    }
}

/// Servers and proxies differ in what they make of these.
fn check_path(url: &str, path: &str) -> Result<(), String> {
    let lower = path.to_ascii_lowercase();
    let is_encoded = ["%2f", "%2e", "%5c", "%25", "%00"].iter().any(|it| lower.contains(it));
    if is_encoded || path.split('/').any(|it| matches!(it, "" | "." | "..") || it.starts_with('-'))
    {
        return Err(wrong(url, "its path is not taken"));
    }
    Ok(())
}

fn wrong(url: &str, why: &str) -> String {
    let shown: String = url.chars().take(200).filter(|it| !it.is_control()).collect();
    let shown = shown.rsplit_once('@').map_or(&*shown, |(_, it)| it);
    format!("the remote {shown:?} is not allowed here: {why}")
}
