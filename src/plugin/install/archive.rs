//! Unpacks a `.tar.gz`. It is gone through twice: the first time every path,
//! link and size is checked and nothing is written, the second time only what
//! was listed then is.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::path::Path;

use super::folder::{make_folders, make_links, write};
use super::gzip::Gunzip;
use super::listing::{Item, Listing, MAX_BYTES, refused};
use super::tar;
use crate::config::home::open_own;
use crate::error::{During, Error, Kind, Result};

/// Most bytes that an archive may unpack to: those of files, and of what a tar
/// has around them.
const MOST_UNPACKED: u64 = MAX_BYTES + (128 << 20);

/// An archive, open.
pub(super) struct Archive {
    file: File,
    what: String,
}

impl Archive {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let what = format!("unpack {}", path.display());
        let opened = open_own(path, OpenOptions::new().read(true));
        Ok(Self { file: opened.during(Kind::Denied, what.clone())?, what })
    }

    /// All that is in it; refuses what cannot be installed.
    pub(super) fn list(&mut self) -> Result<Listing> {
        let mut listing = Listing::default();
        self.walk(|path, item, _| listing.add(path, item.clone()).map(|_| ()))?;
        listing.check_links().map_err(|it| it.within(self.what.clone()))?;
        Ok(listing)
    }

    /// Unpacks what was listed into a folder that is there and empty.
    pub(super) fn unpack(&mut self, listing: &Listing, target: &Path) -> Result<()> {
        make_folders(listing, target)?;
        self.walk(|path, item, content| match item {
            Item::File { bytes, is_program } => {
                let path = listing.listed(path, item).ok_or_else(|| {
                    refused(path, "it was not there when the archive was checked")
                })?;
                let written = write(content, *bytes, *is_program, &target.join(&path));
                written.during(Kind::Denied, format!("write {}", path.display()))
            }
            _ => Ok(()),
        })?;
        make_links(listing, target)
    }

    fn walk(&mut self, each: impl FnMut(&Path, &Item, &mut dyn Read) -> Result<()>) -> Result<()> {
        let walked = self.unpacked().and_then(|it| tar::walk(it, each));
        walked.map_err(|it| it.within(self.what.clone()))
    }

    fn unpacked(&mut self) -> Result<impl Read> {
        let begun = self.file.rewind().and_then(|()| Gunzip::new(&self.file));
        let from = begun.during(Kind::Denied, "an archive must be a .tar.gz")?;
        Ok(Bounded { from, left: MOST_UNPACKED })
    }
}

/// Reads so much and no more: a small archive can unpack to anything.
struct Bounded<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::other(Error::new(Kind::TooLarge, "it unpacks to too much for a plugin"))
        })?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::gzip::tests::packed;
    use super::super::tar::tests::{entry, head};
    use super::*;
    use crate::plugin::tests::Scratch;

    fn unpacked(scratch: &Scratch, tar: &[Vec<u8>]) -> Result<()> {
        let file = scratch.path().join("a.tar.gz");
        let whole = [tar.concat(), vec![0; 1024]].concat();
        fs::write(&file, packed(&whole)).during(Kind::Internal, "write")?;
        let target = scratch.path().join("t");
        let _ = fs::remove_dir_all(&target);
        fs::create_dir(&target).during(Kind::Internal, "make")?;
        let mut archive = Archive::open(&file)?;
        let listing = archive.list()?;
        archive.unpack(&listing, &target)
    }

    #[test]
    fn files_folders_and_links_are_unpacked() -> io::Result<()> {
        let scratch = Scratch::new();
        let done = unpacked(
            &scratch,
            &[
                entry("p/link", b'2', "bin/say", b""),
                entry("p/bin/say", b'0', "", b"#!/bin/sh\n"),
                entry("p/text", b'0', "", b"text"),
                entry("p/", b'5', "", b""),
            ],
        );
        assert_eq!(done.map_err(|it| it.to_string()), Ok(()));
        let target = scratch.path().join("t/p");
        assert_eq!(fs::read(target.join("link"))?, b"#!/bin/sh\n");
        let mode =
            |it: &str| fs::metadata(target.join(it)).map(|it| it.permissions().mode() & 0o777);
        assert_eq!((mode("bin/say")?, mode("text")?, mode("")?), (0o700, 0o600, 0o700));
        Ok(())
    }

    #[test]
    fn what_leads_out_is_refused_and_nothing_is_written() {
        let scratch = Scratch::new();
        let good = entry("p/good", b'0', "", b"good");
        let check = |bad: &[Vec<u8>], want: &str| {
            let tar: Vec<Vec<u8>> = std::iter::once(&good).chain(bad).cloned().collect();
            let error = unpacked(&scratch, &tar).map_err(|it| it.to_string()).err();
            assert!(error.as_ref().is_some_and(|it| it.contains(want)), "{want}: {error:?}");
            let is_empty =
                fs::read_dir(scratch.path().join("t")).is_ok_and(|mut it| it.next().is_none());
            assert!(is_empty, "{want}");
        };
        check(&[entry("../x", b'0', "", b"")], "`../x` is refused: it leads out");
        check(&[entry("/tmp/x", b'0', "", b"")], "an absolute path");
        check(&[entry("p/l", b'2', "../../x", b"")], "a link that leads out");
        check(
            &[entry("p/l", b'2', "/tmp", b""), entry("p/l/x", b'0', "", b"")],
            "below what is no folder",
        );
        check(std::slice::from_ref(&good), "it is there twice");
        check(&[head("p/x", b'0', "", 1 << 40)], "too much for a plugin");
        check(&[head("p/x", b'0', "", 9999)], "ends too early");
        check(&[vec![b'x'; 512]], "none of a tar");
    }

    #[test]
    fn a_small_archive_that_unpacks_to_much_is_cut() {
        let scratch = Scratch::new();
        let many = [entry("p/a", b'0', "", b"a"), head("p/b", b'0', "", MAX_BYTES)];
        let error =
            unpacked(&scratch, &many).map_err(|it| it.to_string()).err().unwrap_or_default();
        assert!(error.contains("more than 256 MiB, counted up to `p/b`"), "{error}");
        // Behind its end as well.
        let mut bounded = Bounded { from: io::repeat(0), left: 1 << 20 };
        let cut = io::copy(&mut bounded, &mut io::sink()).map_err(|it| it.to_string());
        assert!(cut.is_err_and(|it| it.contains("too much for a plugin")));
    }

    #[test]
    fn what_was_not_checked_is_not_written() -> Result<()> {
        let scratch = Scratch::new();
        unpacked(&scratch, &[entry("p/a", b'0', "", b"a")])?;
        let mut archive = Archive::open(&scratch.path().join("a.tar.gz"))?;
        let listing = archive.list()?;
        for other in [entry("p/b", b'0', "", b"a"), entry("p/a", b'0', "", b"ab")] {
            let whole = [other, vec![0; 1024]].concat();
            fs::write(scratch.path().join("a.tar.gz"), packed(&whole))
                .during(Kind::Internal, "write")?;
            let target = scratch.path().join("t");
            let _ = fs::remove_dir_all(&target);
            let error = archive.unpack(&listing, &target).map_err(|it| it.to_string()).err();
            assert!(error.is_some_and(|it| it.contains("not there when the archive was checked")));
        }
        Ok(())
    }
}
