//! The HTTP API: a front door that bounds everything, tiny_http behind it,
//! and routes that translate between HTTP and the gateway.
//!
//! A request's way: [`door`] (bounds, [`guard`]) → [`inner`] (tiny_http) →
//! [`routes`] → the gateway, and back; [`upgrade`] is served at the door.

mod answer;
mod door;
mod engine;
mod guard;
mod inner;
mod routes;
mod stream;
mod token;
mod upgrade;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

pub use door::Limits;
pub use guard::Guard;
pub use token::load_or_create;

use crate::config::Home;
use crate::config::home::create_private;
use crate::error::Result;
use crate::worker::{Cancel, Canceller, Crew};
use answer::Answer;
use door::{Behind, Door, Head, Upgraded};
use engine::Engine;
use inner::Inner;
use routes::Routes;

/// The running API; dropping it ends it: nobody is let in any more, what runs
/// gets its time, and what is left is called off.
pub struct Http {
    // In this order: the door first, then calls that outlive their clients,
    // then the server that starts them, then their threads.
    _door: Door,
    _closing: Canceller,
    _inner: Arc<dyn Behind>,
    _calls: Arc<Crew>,
}

impl Http {
    /// Serves the API on listeners that are bound already.
    fn serve(
        engine: impl Engine,
        home: &Home,
        tcp: TcpListener,
        unix: UnixListener,
        guard: Guard,
        limits: Limits,
    ) -> Result<Self> {
        let (closing, closed) = Cancel::pair();
        let most = limits.tcp_connections + limits.unix_connections;
        // A call without a stream may outlive its client's connection.
        let calls = Arc::new(Crew::new("http-call", 2 * most));
        let folder = home.door();
        create_private(&folder)?;
        let routes = Routes::new(engine.clone(), Arc::clone(&calls), closed, limits.body_bytes);
        let take = Arc::new(move |request| routes.take(request));
        let inner = Inner::start(&folder.join("http.sock"), take)?;
        let inner: Arc<dyn Behind> = Arc::new(Gateway { engine, inner });
        let door = Door::start(Some(tcp), Some(unix), guard, limits, Arc::clone(&inner), &folder)?;
        Ok(Self { _door: door, _closing: closing, _inner: inner, _calls: calls })
    }
}

/// What stands behind the door of a gateway.
struct Gateway<E> {
    engine: E,
    inner: Inner,
}

impl<E: Engine> Behind for Gateway<E> {
    fn connect(&self) -> io::Result<UnixStream> {
        self.inner.connect()
    }

    fn password(&self) -> String {
        self.inner.password().to_owned()
    }

    fn is_upgrade(&self, head: &Head) -> bool {
        upgrade::is_asked_for(head)
    }

    fn upgrade(&self, head: &Head, stream: Upgraded) -> std::result::Result<(), Answer> {
        upgrade::serve(&self.engine, head, stream)
    }
}

#[cfg(test)]
mod tests;
