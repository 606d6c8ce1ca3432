//! The HTTP API: a front door that bounds everything, tiny_http behind it,
//! and routes that translate between HTTP and the gateway.
//!
//! A request's way: [`door`] (bounds, who may call) → [`inner`] (tiny_http) →
//! [`routes`] → the gateway, and back; [`upgrade`] is served at the door.

mod answer;
mod door;
mod engine;
mod failure;
mod inner;
mod metrics;
mod pi;
mod routes;
mod stream;
mod token;
mod upgrade;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use crate::config::home::create_private;
use crate::config::{Config, Home};
use crate::error::Result;
use crate::gateway::Handle;
use crate::worker::{Cancel, Canceller, Crew};
use answer::Answer;
pub use door::FULL;
use door::{Behind, Door, Guard, Head, Limits, Upgraded};
use engine::Engine;
use inner::Inner;
use routes::Routes;
pub use token::token_is_there;

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
    /// Serves the gateway's API on listeners that are bound already, to whom
    /// the configuration lets in. The token is made if there is none yet.
    pub fn start(
        handle: Handle,
        tcp: TcpListener,
        unix: UnixListener,
        config: &Config,
    ) -> Result<Self> {
        let token = token::load_or_create(&config.home)?;
        handle.keep_secret(token.expose());
        let guard = Guard {
            host: config.gateway.host.clone(),
            allowed_hosts: config.gateway.allowed_hosts.clone(),
            token: config.gateway.token_required.then_some(token),
        };
        Self::serve(handle, &config.home, tcp, unix, guard, Limits::default())
    }

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
        let body_bytes = usize::try_from(limits.body_bytes).unwrap_or(usize::MAX);
        let routes = Routes::new(engine.clone(), Arc::clone(&calls), closed, body_bytes);
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
