//! For the tests of this module only: a folder of its own that is removed at
//! the end, and a sound configuration to bend.

#![allow(clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A temporary folder, removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// In memory where the host has such a folder: for what is written to the
    /// disk very often.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory) } else { Self::new() }
    }

    fn below(folder: &Path) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("beige-config-{}-{number}", std::process::id());
        let path = folder.join(name);
        fs::create_dir(&path).unwrap_or_else(|it| panic!("make {}: {it}", path.display()));
        // As the loader sees it, even where the temporary folder is a link.
        Self(path.canonicalize().unwrap_or(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let file = self.0.join(name);
        fs::write(&file, content).unwrap_or_else(|it| panic!("write {}: {it}", file.display()));
        file
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.0.join(name);
        fs::create_dir_all(&folder).unwrap_or_else(|it| panic!("make {}: {it}", folder.display()));
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
