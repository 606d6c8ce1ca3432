//! What is left in a resident that dials ten thousand sockets, each of which
//! takes it, lets it go and is gone, as those of one-shots do. The resident is
//! the built program in a real sandbox; the sockets are this program's, since
//! so many one-shots would take minutes.

use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, recv, send, socket_with, sockopt,
};

use super::Line;
use crate::Result;
use crate::arguments::Options;
use crate::house::{House, Runtime};
use crate::process;

/// How long a resident may take to dial or to greet.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

pub(super) fn check(options: &Options) -> Result<Vec<Line>> {
    let (warm_up, count) = if options.quick { (100, 1000) } else { (1000, 10_000) };
    let house = House::new(options, Runtime::Bubblewrap, 1)?;
    house.run(&["exec", "a1", "--", "true"])?;
    let resident = house.resident("a1")?;
    let folder = house.home().join("sockets/a1");
    // No two have the same name, as no two one-shots in so short a time.
    let dial = |mut numbers: std::ops::Range<u32>| {
        numbers.try_for_each(|it| be_dialled(&folder, it, resident))
    };
    dial(1..warm_up + 1)?;
    let before = process::when_quiet(resident)?;
    dial(warm_up + 1..warm_up + count + 1)?;
    let after = process::when_quiet(resident)?;
    let left = |before: u64, after: u64| after.saturating_sub(before);
    Ok(vec![
        Line::growth(
            format!("growth of a resident that has dialled {count} sockets"),
            before.resident,
            after.resident,
            1.0,
        ),
        Line::count("threads left in it by them", left(before.threads, after.threads), 0),
        Line::count(
            "descriptors left in it by them",
            left(before.descriptors, after.descriptors),
            0,
        ),
    ])
}

/// One socket, from its making until its end (docs/link.md).
fn be_dialled(folder: &Path, number: u32, resident: u32) -> Result<()> {
    let (fresh, name) = (folder.join("dials.new"), folder.join(format!("link-{number}.sock")));
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(&fresh)?)?;
    listen(&socket, 1)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o666))?;
    fs::rename(&fresh, &name)?;
    await_word(&socket, "dial")?;
    let link = accept_with(&socket, flags)?;
    let dialler = sockopt::socket_peercred(&link)?.pid.as_raw_nonzero().get().unsigned_abs();
    await_word(&link, "greet")?;
    let mut said = [0; 64];
    let (length, _) = recv(&link, said.as_mut_slice(), RecvFlags::empty())?;
    if dialler != resident || said.get(..length) != Some(b"beige-link/1") {
        return Err(format!("process {dialler} dialled, and not {resident} rightly").into());
    }
    send(&link, b"T", SendFlags::NOSIGNAL)?;
    drop(link);
    Ok(fs::remove_file(&name)?)
}

fn await_word(socket: &OwnedFd, what: &str) -> Result<()> {
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&PATIENCE))? {
        0 => Err(format!("a resident did not {what} within {} s", PATIENCE.tv_sec).into()),
        _ => Ok(()),
    }
}
