//! The bearer token of the HTTP API: made once, kept in a file that only its
//! owner can read, compared in constant time. It never leaves this module
//! except as a [`Secret`].

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::config::Home;
use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};
use crate::secret::Secret;

/// Shortest token that is accepted from the file, in bytes; one that a person
/// put there must not be guessed either.
const SHORTEST: usize = 32;

/// Longest file that is read, in bytes.
const LONGEST: u64 = 4096;

/// The token in `~/.beige/api-token`; at the first start it is made of 32
/// random bytes. A file that others may read is tightened to 0600.
pub(super) fn load_or_create(home: &Home) -> Result<Secret> {
    let path = home.api_token();
    match open_own(&path, File::options().read(true)) {
        Ok(file) => read(&file, &path),
        Err(error) if error.kind() == ErrorKind::NotFound => create(&path),
        Err(error) => Err(error).during(Kind::Config, format!("read {}", path.display())),
    }
}

/// Whether a gateway would start with the token of a home: `false` if there is
/// none and it would make one. Changes nothing.
pub fn token_is_there(home: &Home) -> Result<bool> {
    let path = home.api_token();
    match open_own(&path, File::options().read(true)) {
        Ok(file) => parse(&file, &path).map(|_| true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).during(Kind::Config, format!("read {}", path.display())),
    }
}

/// Random bytes as lower-case hex.
pub(super) fn random_hex<const N: usize>() -> Result<String> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::new(Kind::Internal, "the system gives no random numbers"))?;
    Ok(bytes.iter().map(|it| format!("{it:02x}")).collect())
}

/// Whether both are the same, in a time that tells nothing about where they
/// differ: the digests are compared, all of them, whatever the lengths.
pub(super) fn is_same(given: &[u8], wanted: &[u8]) -> bool {
    let (given, wanted) = (digest(&SHA256, given), digest(&SHA256, wanted));
    let pairs = given.as_ref().iter().zip(wanted.as_ref());
    std::hint::black_box(pairs.fold(0, |difference, (a, b)| difference | (a ^ b))) == 0
}

fn read(file: &File, path: &Path) -> Result<Secret> {
    let token = parse(file, path)?;
    let what = format!("read {}", path.display());
    let mode = file.metadata().during(Kind::Config, &what)?.permissions().mode();
    if mode & 0o077 != 0 {
        log::warn!("{} could be read by others; it is 0600 now", path.display());
        file.set_permissions(Permissions::from_mode(0o600)).during(Kind::Config, &what)?;
    }
    Ok(token)
}

fn parse(file: &File, path: &Path) -> Result<Secret> {
    let mut text = String::new();
    let what = format!("read {}", path.display());
    file.take(LONGEST).read_to_string(&mut text).during(Kind::Config, what)?;
    let token = text.trim();
    if token.len() < SHORTEST || !token.bytes().all(|it| it.is_ascii_graphic()) {
        let mend = "it holds no token of at least 32 characters; delete it and start again";
        return Err(Error::new(Kind::Config, format!("{}: {mend}", path.display())));
    }
    Ok(Secret::new(token))
}

/// Written beside and renamed: a crash leaves no half token.
fn create(path: &Path) -> Result<Secret> {
    let token = random_hex::<32>()?;
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    write_private(&beside, &token)
        .and_then(|()| fs::rename(&beside, path))
        .during(Kind::Internal, format!("make the token file {}", path.display()))?;
    Ok(Secret::new(token))
}

fn write_private(path: &Path, token: &str) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{token}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::http::tests::Folder;

    #[test]
    fn the_token_is_made_once_and_is_the_owners_alone() -> Result<()> {
        let folder = Folder::new();
        let home = Home::new(folder.path());
        let token = load_or_create(&home)?;
        assert_eq!(token.expose().len(), 64);
        assert_eq!(load_or_create(&home)?, token);
        let mode = fs::metadata(home.api_token()).during(Kind::Internal, "stat")?.permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        Ok(())
    }

    #[test]
    fn a_file_without_a_token_is_a_clear_error() -> Result<()> {
        let folder = Folder::new();
        let home = Home::new(folder.path());
        fs::write(home.api_token(), "\n").during(Kind::Internal, "write")?;
        assert_eq!(load_or_create(&home).map_err(|it| it.kind()), Err(Kind::Config));
        Ok(())
    }

    #[test]
    fn only_the_same_token_is_the_same() {
        assert!(is_same(b"abc", b"abc"));
        assert!(!is_same(b"abd", b"abc"));
        assert!(!is_same(b"", b"abc"));
        assert!(!is_same(b"abcabc", b"abc"));
    }
}
