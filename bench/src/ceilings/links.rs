//! What is left of ten thousand links that end and are dialled again, in the
//! gateway and in the residents. Both are the built program. Each link is
//! taken for a call and then cut by a copy of the gateway's own end of it,
//! which is to both sides as if the other one had gone.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{Shutdown, SocketType, shutdown, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::json;

use super::Line;
use crate::Result;
use crate::arguments::Options;
use crate::crowd::in_turns;
use crate::house::{House, Runtime};
use crate::http::{self, Reply};
use crate::process;

/// Agents whose links are cut at the same moment: a resident dials the same
/// socket again only after 50 ms.
const AGENTS: usize = 64;

/// Calls at a time: a divisor of the agents.
const WORKERS: usize = 8;

pub(super) fn check(options: &Options) -> Result<Vec<Line>> {
    let (warm_up, count) = if options.quick { (64, 640) } else { (1280, 10_000) };
    let house = House::started(options, Runtime::Bubblewrap, AGENTS)?;
    write_what_is_read(&house)?;
    cut_links(&house, warm_up)?;
    let residents =
        (1..=AGENTS).map(|it| house.resident(&agent(it))).collect::<Result<Vec<_>>>()?;
    let before = (process::when_quiet(house.pid()?)?, all(&residents)?);
    let cut = cut_links(&house, count)?;
    let after = (process::when_quiet(house.pid()?)?, all(&residents)?);
    let pairs = || before.1.iter().zip(&after.1);
    let most = pairs().max_by_key(|(before, after)| after.0.saturating_sub(before.0));
    let (less, more) = most.ok_or("there is no resident")?;
    let left: usize = pairs().map(|(before, after)| after.1.saturating_sub(before.1)).sum();
    Ok(vec![
        Line::growth(
            format!("growth of the gateway after {cut} links were cut and dialled again"),
            before.0.resident,
            after.0.resident,
            1.0,
        ),
        Line::count(
            "descriptors left in it by them",
            after.0.descriptors.saturating_sub(before.0.descriptors),
            0,
        ),
        Line::growth(
            format!("growth of that of their {AGENTS} residents that grew most"),
            less.0,
            more.0,
            1.0,
        ),
        Line::count("descriptors left in all of these", left as u64, 0),
    ])
}

/// Memory and descriptors of each. The one that tells of changes in a folder is
/// not counted: a host has few of them, and a resident that got none at first
/// takes one as soon as it can.
fn all(processes: &[u32]) -> Result<Vec<(u64, usize)>> {
    let one = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
        let open = open.map(|it| fs::read_link(it.path()).unwrap_or_default());
        let tells = Path::new("anon_inode:inotify");
        Ok((process::look(*pid)?.resident, open.filter(|it| it != tells).count()))
    };
    processes.iter().map(one).collect()
}

fn agent(number: usize) -> String {
    format!("a{number}")
}

/// Makes the sandboxes, too.
fn write_what_is_read(house: &House) -> Result<()> {
    each_agent(house, "write", &json!({"path": "a.txt", "content": "a\n"}))
}

/// A call to each agent by its link; then that is cut. At least as many as are
/// wanted; says how many.
fn cut_links(house: &House, count: usize) -> Result<usize> {
    let mut cut = 0;
    while cut < count {
        each_agent(house, "read", &json!({"path": "a.txt"}))?;
        let links = links_of(house.pid()?)?;
        if links.len() < AGENTS / 2 {
            return Err(format!("only {} of {AGENTS} agents have a link", links.len()).into());
        }
        links.iter().try_for_each(|it| shutdown(it, Shutdown::Both))?;
        cut += links.len();
    }
    Ok(cut)
}

fn each_agent(house: &House, tool: &str, params: &serde_json::Value) -> Result<()> {
    let body = json!({"tool": tool, "params": params});
    in_turns(WORKERS, AGENTS, |worker, turn| -> Result<Reply> {
        let path = format!("/api/agents/{}/exec", agent(turn * WORKERS + worker + 1));
        let reply = http::post(&house.api(), &path, &body)?;
        if reply.status == 200 && reply.json()?["isError"] != false {
            return Err(String::from_utf8_lossy(&reply.body).into());
        }
        Ok(reply)
    })
}

/// Copies of a process's connected sockets of sequenced packets.
fn links_of(pid: u32) -> Result<Vec<OwnedFd>> {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no such pid")?;
    let process = pidfd_open(known, PidfdFlags::empty())?;
    let mut links = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Some(number) = entry?.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
            Ok(copy) if is_link(&copy) => links.push(copy),
            // It was closed since.
            Ok(_) | Err(Errno::BADF) => {}
            Err(error) => {
                return Err(format!(
                    "copy a descriptor of the gateway: {error}; this check needs leave to trace \
                     its own child (kernel.yama.ptrace_scope at most 1, pidfd_getfd not filtered)"
                )
                .into());
            }
        }
    }
    Ok(links)
}

fn is_link(copy: &OwnedFd) -> bool {
    sockopt::socket_type(copy) == Ok(SocketType::SEQPACKET)
        && sockopt::socket_acceptconn(copy) == Ok(false)
}
