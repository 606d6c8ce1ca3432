//! The wait on descriptors to a deadline: one that is a socket has something to
//! read then, one that is a process (a pidfd) has ended.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};

/// Waits until one of them tells something, or the deadline has passed; whether
/// the first of them does.
pub(super) fn tells_by(deadline: Instant, watched: &[BorrowedFd<'_>]) -> Result<bool> {
    let mut states: Vec<_> =
        watched.iter().map(|it| PollFd::from_borrowed_fd(*it, PollFlags::IN)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut states, Some(&left)) {
            Err(Errno::INTR) => {}
            other => {
                other?;
                return Ok(states.first().is_some_and(|it| !it.revents().is_empty()));
            }
        }
    }
}
