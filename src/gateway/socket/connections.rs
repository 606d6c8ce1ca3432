//! The open connections of an agent's socket, for whoever ends them all: each
//! is shut, which ends a read or a write that waits and calls off what runs for
//! it. Knows nothing of what is said on them.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those that are open; none can be added once they were ended.
pub(super) struct Connections {
    open: Mutex<Option<Vec<Arc<UnixStream>>>>,
}

/// One of them, until it is dropped.
pub(super) struct Entered<'a> {
    all: &'a Connections,
    stream: Arc<UnixStream>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { open: Mutex::new(Some(Vec::new())) }
    }
}

impl Connections {
    /// Adds one; `None` if all were ended, which ends this one too.
    pub(super) fn enter(&self, stream: UnixStream) -> Option<Entered<'_>> {
        let stream = Arc::new(stream);
        self.lock().as_mut()?.push(Arc::clone(&stream));
        Some(Entered { all: self, stream })
    }

    /// Shuts all that are open, and ends those that still come at once.
    pub(super) fn end(&self) {
        for stream in self.lock().take().into_iter().flatten() {
            // One whose peer has gone needs no end.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Arc<UnixStream>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entered<'_> {
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.all.lock().as_mut() {
            open.retain(|it| !Arc::ptr_eq(it, &self.stream));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn ending_them_ends_reads_that_wait_and_those_that_still_come() {
        let connections = Connections::default();
        let (ours, mut peer) = UnixStream::pair().expect("a pair");
        let (left, mut other) = UnixStream::pair().expect("a pair");
        let entered = connections.enter(ours).expect("open");
        drop(connections.enter(left));
        assert_eq!(other.read(&mut [0]).expect("it has left"), 0);
        connections.end();
        assert_eq!(entered.stream().read(&mut [0]).expect("an end"), 0);
        assert_eq!(peer.read(&mut [0]).expect("an end"), 0);
        let (late, mut peer) = UnixStream::pair().expect("a pair");
        assert!(connections.enter(late).is_none());
        assert_eq!(peer.read(&mut [0]).expect("an end"), 0);
    }
}
