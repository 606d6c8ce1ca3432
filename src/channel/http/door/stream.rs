//! A client's connection, by TCP or Unix socket. Shared by reference: reads
//! and writes need no `mut`, so one thread may end what another works on.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The way a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Over TCP, to this address of ours.
    Tcp(IpAddr),
    /// Over `api.sock`, whose mode keeps everybody else out.
    Unix,
}

/// One connection.
#[derive(Debug)]
pub(in crate::channel::http) enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// How it came.
    pub(super) fn way(&self) -> io::Result<Way> {
        match self {
            Self::Tcp(it) => Ok(Way::Tcp(it.local_addr()?.ip().to_canonical())),
            Self::Unix(_) => Ok(Way::Unix),
        }
    }

    /// Bounds each read; `None` waits for ever.
    pub(in crate::channel::http) fn set_read_timeout(
        &self,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        match self {
            Self::Tcp(it) => it.set_read_timeout(limit),
            Self::Unix(it) => it.set_read_timeout(limit),
        }
    }

    /// Bounds each write that makes no progress; `None` waits for ever.
    pub(in crate::channel::http) fn set_write_timeout(
        &self,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        match self {
            Self::Tcp(it) => it.set_write_timeout(limit),
            Self::Unix(it) => it.set_write_timeout(limit),
        }
    }

    /// From now on a read gives what is here, and waits for nothing.
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(it) => it.set_nonblocking(true),
            Self::Unix(it) => it.set_nonblocking(true),
        }
    }

    /// Ends one or both directions; whoever waits on them wakes up. A
    /// connection that is gone already is no failure.
    pub(in crate::channel::http) fn end(&self, how: Shutdown) {
        let _ = match self {
            Self::Tcp(it) => it.shutdown(how),
            Self::Unix(it) => it.shutdown(how),
        };
    }

    /// For a connection that waits without a deadline: small pieces are sent
    /// at once, and a peer whose machine died is noticed.
    pub(in crate::channel::http) fn prepare_for_long_life(&self) -> io::Result<()> {
        if let Self::Tcp(it) = self {
            it.set_nodelay(true)?;
            rustix::net::sockopt::set_socket_keepalive(it, true)?;
        }
        Ok(())
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(it) => (&mut &*it).read(into),
            Stream::Unix(it) => (&mut &*it).read(into),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(it) => (&mut &*it).write(bytes),
            Stream::Unix(it) => (&mut &*it).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
