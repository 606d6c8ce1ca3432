//! Packages of an npm registry: which version is meant, and its archive, which
//! must be the one that the registry's document vouches for.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{Context, SHA512};
use serde::Deserialize;

use super::download::{Net, Wanted};
use super::version::{Range, Version};
use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};
use crate::plugin::child::{self, Bounds};
use crate::plugin::run::{self, Asker};
use crate::worker::Cancel;

/// Where the environment says which registry is meant, as npm itself has it.
const NAMED: [&str; 2] = ["npm_config_registry", "NPM_CONFIG_REGISTRY"];

/// How long npm may take to say it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest document of a package, in bytes.
const LARGEST_DOCUMENT: u64 = 16 << 20;

/// Largest archive that is downloaded, in bytes.
pub(super) const LARGEST_ARCHIVE: u64 = 128 << 20;

/// Versions that are named in an error.
const MOST_NAMED: usize = 10;

/// What a registry says of a package, as far as it matters here; in its short
/// form, of which it is a part.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "dist-tags", default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    versions: BTreeMap<String, Published>,
}

#[derive(Deserialize)]
struct Published {
    dist: Archive,
}

#[derive(Deserialize)]
struct Archive {
    tarball: String,
    #[serde(default)]
    integrity: Option<String>,
}

/// Downloads the archive of a package into a new file.
pub(super) fn download(net: &Net<'_>, name: &str, wanted: Option<&str>, to: &Path) -> Result<()> {
    let registry = registry(net)?;
    let registry = registry.trim_end_matches('/');
    // A scope stays one part of the address.
    let url = format!("{registry}/{}", name.replace('/', "%2f"));
    let document = document(net, &url)?;
    let version = choose(&document, wanted.unwrap_or("latest"))
        .map_err(|it| Error::new(Kind::Missing, format!("npm:{name}: {it}")))?;
    let Some(Published { dist }) = document.versions.get(&version) else {
        let what = format!("npm:{name}: the registry does not say where {version} is");
        return Err(Error::new(Kind::Missing, what));
    };
    let sum = download_to(
        net,
        &Wanted { url: &dist.tarball, accept: "*/*", token: None, largest: LARGEST_ARCHIVE },
        to,
    )?;
    verify(dist.integrity.as_deref().unwrap_or_default(), &sum)
        .map_err(|it| it.within(format!("npm:{name}@{version}")))
}

/// Writes an answer into a new file; gives its SHA-512 in base64.
pub(super) fn download_to(net: &Net<'_>, wanted: &Wanted<'_>, to: &Path) -> Result<String> {
    let what = || format!("write {}", to.display());
    let mut file = open_own(to, OpenOptions::new().write(true).create_new(true))
        .during(Kind::Internal, what())?;
    let mut digest = Context::new(&SHA512);
    net.fetch(wanted, |piece| {
        digest.update(piece);
        file.write_all(piece).during(Kind::Internal, what())
    })?;
    Ok(STANDARD.encode(digest.finish()))
}

/// Where packages are looked up: what the environment says, or else npm, which
/// knows the public registry and what a person's `.npmrc` says. It is asked in
/// `/`, where no project of an agent's has a word.
fn registry(net: &Net<'_>) -> Result<String> {
    if let Some(named) = NAMED.into_iter().find_map(|it| net.variable(it)) {
        return Ok(named);
    }
    let unknown = |why: &str| {
        let what = format!(
            "which npm registry is meant is not known: {why}; set NPM_CONFIG_REGISTRY to its \
             address, or install npm, which knows the public one"
        );
        Error::new(Kind::Config, what)
    };
    let path = (net.environment)("PATH").unwrap_or_default();
    let npm = run::on_path("npm", &path, Path::new("/")).next();
    let mut command = Command::new(npm.ok_or_else(|| unknown("there is no npm on PATH"))?);
    command.args(["config", "get", "registry"]).current_dir("/").env_clear().env("PATH", path);
    command.envs((net.environment)("HOME").map(|it| ("HOME", it)));
    let left = net.deadline.saturating_duration_since(Instant::now());
    let bounds = Bounds { timeout: PATIENCE.min(left), stdout: 4096, stderr: 4096 };
    let asker = Asker { cancel: &Cancel::never(), line: None };
    let ended = child::run(&mut command, None, bounds, asker)?;
    let said = String::from_utf8_lossy(&ended.stdout.bytes).trim().to_owned();
    if ended.code == 0 && said.starts_with("http") {
        return Ok(said);
    }
    Err(unknown("`npm config get registry` does not say"))
}

fn document(net: &Net<'_>, url: &str) -> Result<Document> {
    let accept = "application/vnd.npm.install-v1+json, application/json;q=0.8";
    let mut bytes = Vec::new();
    net.fetch(&Wanted { url, accept, token: None, largest: LARGEST_DOCUMENT }, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    serde_json::from_slice(&bytes).during(Kind::Denied, "what came is not what npm registries say")
}

/// The version that is meant, by tag, by itself, or by a range.
fn choose(document: &Document, wanted: &str) -> Result<String, String> {
    let tagged = document.tags.get(wanted).filter(|it| Version::parse(it).is_some());
    if let Some(tagged) = tagged {
        return Ok(tagged.clone());
    }
    let bare = wanted.trim_start_matches('v');
    if document.versions.contains_key(bare) && Version::parse(bare).is_some() {
        return Ok(bare.to_owned());
    }
    let mut versions: Vec<(Version, &String)> =
        document.versions.keys().filter_map(|it| Some((Version::parse(it)?, it))).collect();
    versions.sort();
    versions.reverse();
    if let Some(range) = Range::parse(wanted) {
        // What its authors recommend comes before what is newer.
        let latest = document.tags.get("latest");
        let mut held = versions.iter().filter(|(version, _)| range.holds(version)).map(|it| it.1);
        let newest = held.clone().next();
        if let Some(it) = held.find(|it| Some(*it) == latest).or(newest) {
            return Ok(it.clone());
        }
    }
    Err(unknown(document, wanted, &versions))
}

fn unknown(document: &Document, wanted: &str, versions: &[(Version, &String)]) -> String {
    let is_plain = |it: &&str| it.len() <= 40 && it.chars().all(|it| it.is_ascii_graphic());
    let tags = document.tags.keys().map(String::as_str).filter(is_plain);
    let tags: Vec<&str> = tags.take(MOST_NAMED).collect();
    let newest: Vec<&str> = versions.iter().take(MOST_NAMED).map(|it| it.1.as_str()).collect();
    let more = versions.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "there is no version `{wanted}`; there are {}{more}, the tags {}, and ranges such as \
         ^1.2.3, ~1.2, 1.x or >=1.2",
        newest.join(", "),
        tags.join(", ")
    )
}

/// Whether a sum is one that the registry names.
fn verify(integrity: &str, sum: &str) -> Result<()> {
    let sums = integrity.split_whitespace().filter_map(|it| it.strip_prefix("sha512-"));
    let sums: Vec<&str> = sums.map(|it| it.split('?').next().unwrap_or_default()).collect();
    let why = match sums.is_empty() {
        _ if sums.contains(&sum) => return Ok(()),
        true => "the registry names no SHA-512 of its archive, so that nothing vouches for it",
        false => "the archive is not the one that the registry names: its SHA-512 is another",
    };
    Err(Error::new(Kind::Denied, why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(wanted: &str, want: Result<&str, &str>) {
        let published = json!({"dist": {"tarball": "https://x/"}});
        let versions = ["1.0.0", "1.1.0", "1.2.0", "2.0.0-rc.1", "2.0.0", "odd"];
        let versions: BTreeMap<&str, _> = versions.map(|it| (it, &published)).into();
        let tags =
            json!({"latest": "1.1.0", "next": "2.0.0-rc.1", "bad": "1\n2", "\u{1b}[2J": "1.0.0"});
        let document = json!({"dist-tags": tags, "versions": versions, "other": 1});
        let document = serde_json::from_value(document).unwrap_or_else(|it| panic!("{it}"));
        match (choose(&document, wanted), want) {
            (Ok(chosen), Ok(want)) => assert_eq!(chosen, want),
            (Err(error), Err(want)) => assert!(error.contains(want), "{error}"),
            (chosen, _) => panic!("{wanted}: {chosen:?}"),
        }
    }

    #[test]
    fn a_version_is_named_by_itself_by_a_tag_or_by_a_range() {
        check("latest", Ok("1.1.0"));
        check("next", Ok("2.0.0-rc.1"));
        check("1.2.0", Ok("1.2.0"));
        check("v1.2.0", Ok("1.2.0"));
        check("^1.0.0", Ok("1.1.0"));
        check("~1.2", Ok("1.2.0"));
        check(">=1.2", Ok("2.0.0"));
        let all = "there are 2.0.0, 2.0.0-rc.1, 1.2.0, 1.1.0, 1.0.0, the tags bad, latest, next,";
        check("3", Err(all));
        check("bad", Err("the tags bad, latest, next,"));
        check("beta", Err("there is no version `beta`"));
        check("1 || 2", Err("and ranges such as ^1.2.3"));
    }

    #[test]
    fn only_what_the_registry_vouches_for_is_taken() {
        let check = |integrity: &str, want: Option<&str>| {
            let error = verify(integrity, "abc=").map_err(|it| it.to_string()).err();
            assert_eq!(error.is_some(), want.is_some(), "{integrity}");
            assert!(error.unwrap_or_default().contains(want.unwrap_or_default()), "{integrity}");
        };
        check("sha512-abc=", None);
        check("sha1-x sha512-no= sha512-abc=?opt", None);
        check("sha512-no=", Some("is another"));
        check("", Some("names no SHA-512"));
        check("sha1-abc=", Some("names no SHA-512"));
    }
}
