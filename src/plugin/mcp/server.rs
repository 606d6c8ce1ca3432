//! What is kept of a plain MCP server over all its processes: the list of its
//! tools, whether it is asked at all, and a count. Asks nobody.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

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
    /// Cut once whoever asks for it is done.
    asked: Option<Receiver<Infallible>>,
}

/// What is known of the list.
pub(super) enum Known {
    /// All of it.
    Listed(Arc<Catalog>),
    /// Somebody asks for it; the channel is cut at the end of that, whatever came
    /// of it.
    Asked(Receiver<Infallible>),
    /// It is for this one to ask for it.
    Unknown(Asking),
}

/// Whoever asks for the list holds it meanwhile.
pub(super) struct Asking {
    /// The number under which the list is kept.
    pub(super) version: u64,
    _is_done: Sender<Infallible>,
}

impl Server {
    /// A token for the progress of one call, unlike all before it.
    pub(super) fn progress_token(&self) -> u64 {
        self.next_progress.fetch_add(1, Ordering::Relaxed)
    }

    /// The list as it stands, or who is to ask for it: one of all who need it.
    pub(super) fn current(&self) -> Known {
        let mut shelf = self.shelf();
        if let Shelf { is_current: true, catalog: Some(catalog), .. } = &*shelf {
            return Known::Listed(Arc::clone(catalog));
        }
        if let Some(asked) = &shelf.asked
            && asked.try_recv() != Err(TryRecvError::Disconnected)
        {
            return Known::Asked(asked.clone());
        }
        let (is_done, asked) = bounded(0);
        shelf.asked = Some(asked);
        Known::Unknown(Asking { version: shelf.version, _is_done: is_done })
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
    fn one_asks_for_the_list_and_the_others_wait_for_it() {
        let server = Server::default();
        let Known::Unknown(asking) = server.current() else { panic!("nobody asks yet") };
        let Known::Asked(end) = server.current() else { panic!("somebody asks") };
        assert_eq!(end.try_recv(), Err(TryRecvError::Empty));
        drop(asking);
        assert_eq!(end.try_recv(), Err(TryRecvError::Disconnected));
        // It came to nothing: the next one asks.
        let Known::Unknown(asking) = server.current() else { panic!("nobody asks") };
        server.keep(asking.version, &Arc::default());
        assert!(matches!(server.current(), Known::Listed(_)));
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
