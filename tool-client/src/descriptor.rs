//! Descriptors that travel over a socket: one packet with one of them, and
//! nothing else is taken. Whatever came too much is closed.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Result;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Receives bytes and the one descriptor with them; says how many bytes, which
/// are `usize::MAX` if they were more than there was room for. `None` if none
/// came, or several.
pub(crate) fn receive(
    from: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(bytes)];
    let message = recvmsg(from, &mut into, &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    let mut taken = control.drain().flat_map(|it| match it {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut taken = taken.by_ref().flatten();
    let first = taken.next();
    let whole = taken.count() == 0 && !message.flags.contains(ReturnFlags::CTRUNC);
    let length =
        if message.flags.contains(ReturnFlags::TRUNC) { usize::MAX } else { message.bytes };
    Ok((length, first.filter(|_| whole)))
}

/// Sends bytes with one descriptor, without waiting.
pub(crate) fn send(to: impl AsFd, bytes: &[u8], descriptor: BorrowedFd<'_>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(to, &[IoSlice::new(bytes)], &mut control, flags).map(drop)
}
