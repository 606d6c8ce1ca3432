//! `beige gateway logs`: the newest lines of the gateway's log, and those that
//! come. Reads a bounded piece of the file, whatever its length.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::{after, select};

use super::super::config::sound;
use super::super::{Invocation, present, tell};
use super::running;
use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};
use crate::gateway::ConfigInUse;
use crate::worker::Cancel;

/// What there is to say of a log that is not there.
const NO_LOG: &str = "there is no log yet; the gateway writes it once it has run in the background";

/// Prints the newest `lines` lines; with `follow` goes on as they come.
pub(super) fn logs(invocation: &Invocation, lines: usize, follow: bool) -> Result<u8> {
    let path = place(invocation)?;
    let what = format!("read {}", path.display());
    let mut file =
        open_own(&path, File::options().read(true)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(Kind::Missing, NO_LOG),
            _ => Error::new(Kind::Internal, format!("{what}: {error}")),
        })?;
    let start = tail_start(&mut file, lines).during(Kind::Internal, what.clone())?;
    file.seek(SeekFrom::Start(start)).during(Kind::Internal, what)?;
    copy(&mut file)?;
    if follow {
        go_on(&path, file)?;
    }
    Ok(0)
}

/// Where the log lies: where the gateway that runs says, unless a configuration
/// was named; else as the configuration says. One that is broken or missing
/// hides no log: the place that was last in use counts then, or the usual one.
fn place(invocation: &Invocation) -> Result<PathBuf> {
    let home = invocation.home()?;
    let left = ConfigInUse::of_gateway(&home);
    let left = left.and_then(|it| it.log_file().map(Path::to_owned));
    let is_named = invocation.named_config_file()?.is_some();
    if let (false, Some(path), Some(_)) = (is_named, &left, running(&home)?) {
        return Ok(path.clone());
    }
    if let Some(config) = sound(invocation)? {
        return Ok(config.gateway.log_file);
    }
    let path = left.unwrap_or_else(|| home.logs().join("gateway.log"));
    tell(&format!(
        "beige gateway: the configuration does not say where the log lies (`beige config check` \
         says why); this is {}",
        path.display()
    ));
    Ok(path)
}

/// Where the newest `lines` lines begin, looking at no more than the last
/// mebibyte.
fn tail_start(file: &mut File, lines: usize) -> std::io::Result<u64> {
    const WINDOW: u64 = 1024 * 1024;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(WINDOW);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(WINDOW).read_to_end(&mut bytes)?;
    let newlines = bytes.iter().enumerate().rev().filter(|it| *it.1 == b'\n').map(|it| it.0);
    // The last newline ends the last line; the one before `lines` of them ends
    // the line before the first that is shown.
    let start = newlines.skip(lines).map(|it| it as u64 + 1).next().unwrap_or(0);
    Ok(from + start)
}

fn copy(file: &mut File) -> Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        match file.read(&mut buffer).during(Kind::Internal, "read the log")? {
            0 => return Ok(()),
            count => present(&String::from_utf8_lossy(&buffer[..count]))?,
        }
    }
}

/// Goes on as lines come, over rotation, until the reader goes away.
fn go_on(path: &Path, mut file: File) -> Result<()> {
    let never = Cancel::never();
    loop {
        copy(&mut file)?;
        select! {
            recv(never.gone()) -> _ => return Ok(()),
            recv(after(Duration::from_millis(200))) -> _ => {}
        }
        let same = match (file.metadata(), path.metadata()) {
            (Ok(open), Ok(named)) => open.ino() == named.ino() && open.dev() == named.dev(),
            _ => true,
        };
        if !same {
            copy(&mut file)?;
            file = open_own(path, File::options().read(true))
                .during(Kind::Internal, format!("read {}", path.display()))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_found() {
        let path = std::env::temp_dir().join(format!("beige-tail-{}", std::process::id()));
        std::fs::write(&path, "one\ntwo\nthree\n").expect("written");
        #[track_caller]
        fn check(path: &Path, lines: usize, want: u64) {
            let mut file = File::open(path).expect("open");
            assert_eq!(tail_start(&mut file, lines).expect("read"), want);
        }
        check(&path, 1, 8);
        check(&path, 2, 4);
        check(&path, 9, 0);
        check(&path, 0, 14);
        std::fs::remove_file(&path).expect("removed");
    }
}
