//! Whom a TLS connection trusts: the certificate authorities that are built
//! in, and those of `caFile`. ureq knows one set at a time, so that a server
//! that one of them does not know is asked to prove itself to the other; a
//! handshake that fails has sent nothing of a call.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

use super::target::Target;
use crate::provider::Fault;

/// Largest `caFile`, in bytes: the whole set of a distribution fits.
const LARGEST_FILE: u64 = 4 * 1024 * 1024;

/// The set that is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    BuiltIn,
    OfFile,
}

impl Roots {
    /// Who gives a file has a server that needs it.
    pub(super) fn first(target: &Target) -> Self {
        if target.ca_file().is_some() { Self::OfFile } else { Self::BuiltIn }
    }

    /// Goes over to the other set, if there is one.
    pub(super) fn turn(&mut self, target: &Target) -> bool {
        *self = match self {
            Self::BuiltIn if target.ca_file().is_some() => Self::OfFile,
            Self::BuiltIn => return false,
            Self::OfFile => Self::BuiltIn,
        };
        true
    }

    /// The certificates; a file is read anew for each connection.
    pub(super) fn load(self, target: &Target) -> Result<RootCerts, Fault> {
        let Some(path) = target.ca_file().filter(|_| self == Self::OfFile) else {
            return Ok(RootCerts::WebPki);
        };
        certificates(path).map(RootCerts::from).map_err(|what| {
            let place = target.setting("caFile");
            Fault::Ours(format!("`{place}`: {what}"))
        })
    }
}

/// The certificates of a PEM file; why there are none.
pub(crate) fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let place = path.display();
    let text = read(path).map_err(|it| format!("{place} cannot be read: {it}"))?;
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => (),
            Err(error) => return Err(format!("{place} is no PEM file: {error}")),
        }
    }
    if found.is_empty() {
        return Err(format!("{place} holds no certificate (`-----BEGIN CERTIFICATE-----`)"));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    // Looked at before it is opened: opening a FIFO would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(|it| it.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".into());
    }
    if metadata.len() > LARGEST_FILE {
        return Err(format!("it is larger than {LARGEST_FILE} bytes"));
    }
    let mut text = Vec::new();
    let file = File::open(path).map_err(|it| it.to_string())?;
    file.take(LARGEST_FILE).read_to_end(&mut text).map_err(|it| it.to_string())?;
    Ok(text)
}
