//! Who is inside: the bounded table of a listener's connections. When it is
//! full, whoever has waited longest without having shown who it is gives way,
//! so that half-open connections never lock the owner out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::Sender;

use super::stream::Stream;

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    closed: bool,
    inside: BTreeMap<u64, Guest>, // By arrival.
}

#[derive(Debug)]
struct Guest {
    client: Arc<Stream>,
    admitted: bool,
    joined: Option<Arc<UnixStream>>,
}

/// One connection's place, given back on drop.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    _inside: Sender<Infallible>, // The last one dropped tells that all are gone.
}

impl Places {
    /// An empty table for at most `limit` connections.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, table: Mutex::default() })
    }

    /// A place for a connection; `None` if all are taken by callers who are
    /// being served, or nobody is let in any more.
    pub(super) fn enter(
        self: &Arc<Self>,
        client: Arc<Stream>,
        inside: Sender<Infallible>,
    ) -> Option<Place> {
        let mut table = self.lock();
        if table.closed || (table.inside.len() >= self.limit && !table.make_room()) {
            return None;
        }
        let number = table.next;
        table.next += 1;
        table.inside.insert(number, Guest { client, admitted: false, joined: None });
        Some(Place { places: Arc::clone(self), number, _inside: inside })
    }

    /// Lets nobody in any more and ends those who had not been admitted.
    pub(super) fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        table.inside.values().filter(|it| !it.admitted).for_each(Guest::end);
    }

    /// Ends every connection.
    pub(super) fn cut(&self) {
        self.lock().inside.values().for_each(Guest::end);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn make_room(&mut self) -> bool {
        let oldest = self.inside.iter().find(|(_, guest)| !guest.admitted).map(|(it, _)| *it);
        match oldest.and_then(|it| self.inside.remove(&it)) {
            Some(guest) => {
                guest.end();
                true
            }
            None => false,
        }
    }
}

impl Guest {
    fn end(&self) {
        self.client.end(Shutdown::Both);
        if let Some(inner) = &self.joined {
            // Whoever works for it sees the end and stops, too.
            let _ = inner.shutdown(Shutdown::Both);
        }
    }
}

impl Place {
    /// The caller is known and will be served; `false` if the place is lost.
    pub(super) fn admit(&self) -> bool {
        let mut table = self.places.lock();
        let closed = table.closed;
        let guest = table.inside.get_mut(&self.number).filter(|_| !closed);
        guest.map(|it| it.admitted = true).is_some()
    }

    /// The connection is joined to this one; `false` if the place is lost.
    pub(super) fn join(&self, inner: &Arc<UnixStream>) -> bool {
        let mut table = self.places.lock();
        let guest = table.inside.get_mut(&self.number);
        guest.map(|it| it.joined = Some(Arc::clone(inner))).is_some()
    }

    /// The answer is given; what is left is to see the client go.
    pub(super) fn dismiss(&self) {
        let mut table = self.places.lock();
        let closed = table.closed;
        if let Some(guest) = table.inside.get_mut(&self.number) {
            guest.admitted = false;
            guest.joined = None;
            if closed {
                guest.end();
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().inside.remove(&self.number);
    }
}
