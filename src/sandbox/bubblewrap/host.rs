//! What of this host a bubblewrap sandbox is made from, looked up once. What
//! is missing is named with the package that brings it.

use std::fs;
use std::path::PathBuf;

use rustix::process::geteuid;

use crate::error::{Error, Kind, Result};

/// The oldest bwrap with `--disable-userns` and `--size`.
pub(super) const LEAST_VERSION: (u32, u32) = (0, 8);

/// Folders of programs that are links into /usr where the two are merged.
const PROGRAM_FOLDERS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Of /etc: what programs of /usr need, and nothing that names users, keys or
/// other hosts.
const PUBLIC_FILES: [&str; 9] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// How the host finds other hosts; shown only to an open network.
const RESOLVER_FILES: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/gai.conf"];

/// The parts of this host: a value, so that the argv is a pure function of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLayout {
    /// The bwrap program.
    pub bwrap: PathBuf,
    /// The setpriv program, needed and present only where the gateway is root.
    pub setpriv: Option<PathBuf>,
    /// Who the gateway is.
    pub uid: u32,
    /// Mounted read-only where they are: /usr, certificates.
    pub shown: Vec<PathBuf>,
    /// Mounted read-only where they are if the network is open.
    pub resolver: Vec<PathBuf>,
    /// Links as they are on the host, name and target: `/bin` to `usr/bin`.
    pub links: Vec<(PathBuf, PathBuf)>,
}

impl HostLayout {
    /// Looks at the host's files; starts nothing. An error says what to
    /// install.
    pub fn look() -> Result<Self> {
        let uid = geteuid().as_raw();
        let mut layout = Self {
            bwrap: program("bwrap").ok_or_else(|| absent("is not installed"))?,
            setpriv: if uid == 0 { Some(setpriv()?) } else { None },
            uid,
            shown: vec![PathBuf::from("/usr")],
            resolver: existing(&RESOLVER_FILES),
            links: Vec::new(),
        };
        for folder in PROGRAM_FOLDERS.map(PathBuf::from) {
            match fs::read_link(&folder) {
                Ok(target) => layout.links.push((folder, target)),
                Err(_) if folder.is_dir() => layout.shown.push(folder),
                Err(_) => {}
            }
        }
        layout.shown.extend(existing(&PUBLIC_FILES));
        Ok(layout)
    }
}

fn existing(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).filter(|it| it.exists()).collect()
}

/// A program by name, from PATH and the usual places.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/local/bin", "/bin"].map(PathBuf::from);
    // A relative entry would mean whatever folder beige was started in.
    let folders = std::env::split_paths(&path).filter(|it| it.is_absolute()).chain(usual);
    folders.map(|it| it.join(name)).find(|it| it.is_file())
}

fn setpriv() -> Result<PathBuf> {
    program("setpriv").ok_or_else(|| {
        Error::new(
            Kind::Sandbox,
            "a gateway that runs as root needs `setpriv` (package util-linux) to start a \
             bubblewrap sandbox; install it, or run the gateway as an ordinary user",
        )
    })
}

/// There is no bubblewrap that serves, and why.
pub(super) fn absent(why: &str) -> Error {
    let (major, minor) = LEAST_VERSION;
    Error::new(
        Kind::Sandbox,
        format!(
            "bubblewrap {why}; beige needs {major}.{minor} or newer (package `bubblewrap` of \
             Debian 12, Ubuntu 24.04 and later)"
        ),
    )
}
