//! JSON files that programs keep in the home. Whoever reads one sees the old
//! or the new text and never a half one; whoever changes one locks it, since
//! one-shots work beside a gateway; a damaged one is set aside, not lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};

use super::home::open_own;
use crate::clock::Time;

/// The bytes of a file; `None` if it is not there, an error if it has more
/// than `most`.
pub fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match open_own(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let length = usize::try_from(file.metadata()?.len().min(most)).unwrap_or(0);
    let mut bytes = Vec::with_capacity(length + 1);
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(Some(bytes))
}

/// Writes a file beside it, to the disk, and puts that in its place.
pub fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = path.with_extension("json.new");
    let file = open_own(&temporary, OpenOptions::new().create(true).truncate(true).write(true))?;
    let written = written(file, write).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What was written of it would only fill the disk further.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    sync_folder_of(path)
}

/// A new name is on the disk only with its folder.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |it| File::open(it)?.sync_all())
}

/// `NAME.<word>-<time>` beside a file, a name that is free.
pub fn aside(path: &Path, word: &str, now: Time) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let base = format!("{name}.{word}-{}", now.compact());
    let first = path.with_file_name(&base);
    let numbered = (2..1000).map(|it| path.with_file_name(format!("{base}-{it}")));
    std::iter::once(first.clone()).chain(numbered).find(|it| !it.exists()).unwrap_or(first)
}

fn written(
    file: File,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(64 * 1024, file);
    write(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}
