//! A folder of its own for a test, removed at its end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The folder; dropping it removes it with all in it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a new, empty one.
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tool-client-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        assert!(std::fs::create_dir(&path).is_ok(), "make {}", path.display());
        Self(path)
    }

    /// Its absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
