//! Who is inside: the bounded table of a listener's connections. When it is
//! full, whoever has waited longest without having shown who it is gives way,
//! so that half-open connections never lock the owner out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::stream::Stream;

/// How long the next one waits for somebody who gives way: its thread has
/// nothing left to do but end.
const LEAVING_TIME: Duration = Duration::from_secs(1);

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
    gone: Receiver<Infallible>,
}

/// One connection's place, given back on drop.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    _here: Sender<Infallible>,   // Dropped: this one is gone.
    _inside: Sender<Infallible>, // The last one dropped: all are gone.
}

impl Places {
    /// An empty table for at most `limit` connections.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, table: Mutex::default() })
    }

    /// A place for a connection; `None` if all are taken by callers who are
    /// being served, or nobody is let in any more. Waits for whoever gives way
    /// to be gone, so that a flood does not pile up; that takes no longer than
    /// [`LEAVING_TIME`].
    pub(super) fn enter(
        self: &Arc<Self>,
        client: Arc<Stream>,
        inside: Sender<Infallible>,
    ) -> Option<Place> {
        let mut table = self.lock();
        if table.closed {
            return None;
        }
        let leaving = match table.inside.len() < self.limit {
            true => None,
            false => Some(table.make_room()?),
        };
        let (here, gone) = bounded(0);
        let number = table.next;
        table.next += 1;
        table.inside.insert(number, Guest { client, admitted: false, joined: None, gone });
        drop(table);
        if let Some(leaving) = leaving {
            let _ = leaving.recv_timeout(LEAVING_TIME);
        }
        Some(Place { places: Arc::clone(self), number, _here: here, _inside: inside })
    }

    /// Lets nobody in any more and ends those who had not been admitted.
    pub(super) fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        table.inside.values().filter(|it| !it.admitted).for_each(Guest::end);
    }

    /// Whether nobody is let in any more, however many there are.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
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
    /// Shows out who has waited longest unknown; gives what tells that it is
    /// gone.
    fn make_room(&mut self) -> Option<Receiver<Infallible>> {
        let oldest = self.inside.iter().find(|(_, guest)| !guest.admitted).map(|(it, _)| *it);
        let guest = self.inside.remove(&oldest?)?;
        guest.end();
        Some(guest.gone)
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
