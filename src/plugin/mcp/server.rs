//! What is kept of a plain MCP server over all its processes: the list of its
//! tools, whether it is asked at all, and a count. Asks nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::breaker::Breaker;
use super::catalog::Catalog;
use super::help;

/// What is kept of a plain MCP server over all its processes.
#[derive(Debug, Default)]
pub struct Server {
    shelf: Mutex<Shelf>,
    breaker: Mutex<Breaker>,
    next_progress: AtomicU64,
}

/// The list of tools.
#[derive(Debug, Default)]
struct Shelf {
    /// Counts what makes the list an old one.
    version: u64,
    is_current: bool,
    /// Also an old one, for who asks nobody.
    catalog: Option<Arc<Catalog>>,
}

impl Server {
    /// A token for the progress of one call, unlike all before it.
    pub(super) fn progress_token(&self) -> u64 {
        self.next_progress.fetch_add(1, Ordering::Relaxed)
    }

    /// The list as it stands; the error is the number under which a newer one
    /// is kept.
    pub(super) fn current(&self) -> Result<Arc<Catalog>, u64> {
        match &*self.shelf() {
            Shelf { is_current: true, catalog: Some(catalog), .. } => Ok(Arc::clone(catalog)),
            shelf => Err(shelf.version),
        }
    }

    /// What is known of its tools is old: it is asked for anew when it is
    /// needed. The number that this gets is unlike all before it.
    pub(in crate::plugin) fn outdate(&self) -> u64 {
        let mut shelf = self.shelf();
        shelf.version += 1;
        shelf.is_current = false;
        shelf.version
    }

    /// Its tools as lines of the system prompt, in the order of their names;
    /// `None` before it was asked for them. Asks nobody.
    pub(in crate::plugin) fn commands(&self, name: &str) -> Option<Vec<String>> {
        let catalog = self.shelf().catalog.clone()?;
        Some(help::commands(name, &catalog))
    }

    /// A list that was outdated while it came is better than none for who
    /// asks nobody; it stands in for no newer one.
    pub(super) fn keep(&self, version: u64, catalog: &Arc<Catalog>) {
        let mut shelf = self.shelf();
        if !shelf.is_current {
            shelf.is_current = shelf.version == version;
            shelf.catalog = Some(Arc::clone(catalog));
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_outdated_while_it_came_serves_the_prompt_alone() {
        let (server, list) = (Server::default(), Arc::default());
        let asked = server.outdate();
        let now = server.outdate();
        server.keep(asked, &list);
        assert!(!server.shelf().is_current);
        assert!(server.commands("p").is_some());
        server.keep(now, &list);
        server.keep(asked, &list);
        assert!(server.shelf().is_current);
    }

    #[test]
    fn the_prompt_keeps_an_old_list_until_there_is_a_new_one() {
        let server = Server::default();
        assert_eq!(server.commands("p"), None);
        server.keep(0, &Arc::default());
        let known = server.commands("p");
        assert!(known.is_some());
        server.outdate();
        assert_eq!(server.commands("p"), known);
    }
}
