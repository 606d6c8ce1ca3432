//! From an agent's configuration to the [`Spec`] of its sandbox, with all on
//! disk that the spec names: workspace, launchers, the socket folder with
//! tool-client in it, account files. It replaces nothing that may be mounted,
//! overwrites nothing of the agent's, and several processes may do it at once.

#[cfg(test)]
pub(super) mod tests;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink,
};
use std::path::Path;

use ring::digest::{SHA256, digest};
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::beside::beside;
use super::workspace::{self, Owner};
use super::{Shown, Spec, client};
use crate::config::home::{create_mounted, create_private};
use crate::config::{Agent, Home, UserChoice};
use crate::error::{During, Error, Kind, Result};

/// Who owns a workspace that a root gateway makes, so that no agent is root
/// unless told.
const DEFAULT_OWNER: Owner = Owner { uid: 10_000, gid: 10_000 };

/// Always granted, and no programs: they get no launcher.
const CORE_TOOLS: [&str; 4] = ["read", "write", "patch", "exec"];

/// The agent's first words to itself; a person edits them.
const AGENTS_MD: &str = "\
# Workspace

This folder, /workspace, is yours: it stays between conversations and is the
only place where your files are kept. What stands in this file is part of your
instructions from the start of every conversation; keep it short and true.

- Commands run in a sandbox, with this folder as the working folder and HOME.
- Your tools are programs on PATH, in /tools/bin; they can be used in scripts
  and pipes. What came with a tool is in /tools/packages.
- /tmp is lost when the sandbox ends.
";

/// Makes all that the agent's sandbox is built on and says what is wanted.
/// `shown` is what it sees of plugins and skills; `tool_client` is where the
/// home's copy of it lies.
///
/// What a person must set right, first of all a workspace that cannot be
/// made, is [`Kind::Config`].
pub fn prepare(home: &Home, agent: &Agent, shown: Shown, tool_client: &Path) -> Result<Spec> {
    let what = || format!("prepare the sandbox of agent `{}`", agent.name);
    let owner = owned_workspace(home, agent).map_err(|it| it.within(what()))?;
    folders(home, agent, tool_client).map_err(|it| it.within(what()))?;
    account_files(&home.accounts(&agent.name), owner).map_err(|it| it.within(what()))?;
    first_start(home, agent, owner);
    Ok(spec(home, agent, shown, owner, instance(home)?))
}

/// What [`prepare`] will say of an agent, as far as it can be seen without
/// making anything; plugins and skills are left out.
pub fn foresee(home: &Home, agent: &Agent) -> Result<Spec> {
    let owner = match fs::metadata(&agent.workspace) {
        Ok(found) => judge_owner(agent, Owner { uid: found.uid(), gid: found.gid() })?,
        Err(_) => owner_of_new(agent.sandbox.user).unwrap_or_else(own_ids),
    };
    let owner = match agent.sandbox.user {
        UserChoice::Host => owner,
        _ => judge_owner(agent, owner)?,
    };
    // A home that is not there yet will be made under that very name.
    let instance = instance(home).unwrap_or_else(|_| instance_at(home.root()));
    Ok(spec(home, agent, Shown::default(), owner, instance))
}

fn own_ids() -> Owner {
    Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() }
}

fn spec(home: &Home, agent: &Agent, shown: Shown, owner: Owner, instance: String) -> Spec {
    let sandbox = &agent.sandbox;
    Spec {
        instance,
        agent: agent.name.clone(),
        home: home.root().to_owned(),
        workspace: agent.workspace.clone(),
        launchers: home.launchers(&agent.name),
        sockets: home.agent_sockets(&agent.name),
        shown,
        image: sandbox.image.clone(),
        memory_bytes: sandbox.memory_bytes,
        cpus: sandbox.cpus,
        pids: sandbox.pids,
        network: sandbox.network,
        uid: owner.uid,
        gid: owner.gid,
        read_only_root: sandbox.read_only_root,
        mounts: sandbox.mounts.clone(),
        env: sandbox.env.clone(),
    }
}

/// What keeps the sandboxes of two homes on one host apart: 12 hex digits of
/// the real path's SHA-256. The home must exist.
pub fn instance(home: &Home) -> Result<String> {
    let root = home.root();
    let real = fs::canonicalize(root)
        .during(Kind::Internal, format!("resolve the home {}", root.display()))?;
    Ok(instance_at(&real))
}

fn instance_at(real: &Path) -> String {
    let hash = digest(&SHA256, real.as_os_str().as_bytes());
    hash.as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the workspace if it is missing; answers who the agent is.
fn owned_workspace(home: &Home, agent: &Agent) -> Result<Owner> {
    create_private(&home.agent(&agent.name))?;
    let path = &agent.workspace;
    let made = make_workspace(path, owner_of_new(agent.sandbox.user));
    let hint = made.as_ref().map_or_else(|error| hint(error.kind()), |()| "");
    made.during(Kind::Config, format!("make the workspace {} ({hint})", path.display()))?;
    let found = fs::metadata(path)
        .during(Kind::Config, format!("look at the workspace {}", path.display()))?;
    if !found.is_dir() {
        let text = format!("the workspace {} is no folder", path.display());
        return Err(Error::new(Kind::Config, text));
    }
    judge_owner(agent, Owner { uid: found.uid(), gid: found.gid() })
}

fn hint(error: ErrorKind) -> &'static str {
    match error {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space there",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "a part of that path is no folder",
        _ => "make it yourself, or set `workspaceDir` to a folder that can be made",
    }
}

/// Who gets a workspace that is made now; `None` leaves it the gateway's own.
fn owner_of_new(user: UserChoice) -> Option<Owner> {
    match user {
        UserChoice::Host => Some(DEFAULT_OWNER),
        UserChoice::Ids { uid, gid } => Some(Owner { uid, gid }),
        UserChoice::Root => None,
    }
    .filter(|_| geteuid().is_root())
}

/// Who the agent is inside, given who owns its workspace.
fn judge_owner(agent: &Agent, found: Owner) -> Result<Owner> {
    let path = agent.workspace.display();
    match agent.sandbox.user {
        UserChoice::Root => Ok(Owner { uid: 0, gid: 0 }),
        UserChoice::Ids { uid, gid } => Ok(Owner { uid, gid }),
        UserChoice::Host if found.uid != 0 => Ok(found),
        UserChoice::Host => Err(Error::new(
            Kind::Config,
            format!(
                "the workspace {path} belongs to root, and with `sandbox.user` \"host\" its owner \
                 is who the agent is; run `chown -R 10000:10000 {path}`, or set `user: root` \
                 (not with bubblewrap) to mean it"
            ),
        )),
    }
}

/// What is there already is left as it is.
fn make_workspace(path: &Path, owner: Option<Owner>) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let Some(owner) = owner else { return made_or_there(fs::create_dir(path)) };
    // Given away under another name first: no other process sees it as root's.
    let fresh = beside(path);
    let placed = make_given(&fresh, owner).and_then(|()| move_in_place(&fresh, path, owner));
    if placed.is_err() || fresh.exists() {
        // It is empty and ours, or was never made.
        let _ = fs::remove_dir(&fresh);
    }
    placed
}

fn make_given(path: &Path, owner: Owner) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(path)?;
    chown(path, Some(owner.uid), Some(owner.gid))
}

fn move_in_place(fresh: &Path, path: &Path, owner: Owner) -> io::Result<()> {
    match renameat_with(CWD, fresh, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        // A file system without that flag.
        Err(Errno::INVAL | Errno::NOSYS) => made_or_there(make_given(path, owner)),
        Err(error) => Err(error.into()),
    }
}

fn made_or_there(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The folders that are mounted into it, with what is in them.
fn folders(home: &Home, agent: &Agent, tool_client: &Path) -> Result<()> {
    launchers(&home.launchers(&agent.name), &agent.tools)?;
    create_private(&home.sockets())?;
    let sockets = home.agent_sockets(&agent.name);
    create_mounted(&sockets)?;
    client::give(tool_client, &sockets)
}

/// One link per tool; those of tools that the agent no longer has are removed.
fn launchers(folder: &Path, tools: &[String]) -> Result<()> {
    create_mounted(folder)?;
    let wanted: Vec<&str> =
        tools.iter().map(String::as_str).filter(|it| !CORE_TOOLS.contains(it)).collect();
    for tool in &wanted {
        if tool.is_empty() || tool.starts_with(['.', '-']) || tool.contains(['/', '\0']) {
            let text = format!("`{tool}` cannot be the name of a tool");
            return Err(Error::new(Kind::Config, text));
        }
        let launcher = folder.join(tool);
        launch(&launcher).during(Kind::Internal, format!("make {}", launcher.display()))?;
    }
    let what = || format!("clear old launchers in {}", folder.display());
    for entry in fs::read_dir(folder).during(Kind::Internal, what())? {
        let entry = entry.during(Kind::Internal, what())?;
        if !wanted.iter().any(|it| OsStr::new(it) == entry.file_name()) {
            removed_or_gone(fs::remove_file(entry.path())).during(Kind::Internal, what())?;
        }
    }
    Ok(())
}

/// Another process that does the same meanwhile makes the same link.
fn launch(launcher: &Path) -> io::Result<()> {
    if fs::read_link(launcher).is_ok_and(|it| it == Path::new(client::INSIDE)) {
        return Ok(());
    }
    removed_or_gone(fs::remove_file(launcher))?;
    made_or_there(symlink(client::INSIDE, launcher))
}

fn removed_or_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// `passwd`, `group` and `hosts` for a sandbox that has no image to bring
/// them: the host's own would name its users and neighbours.
fn account_files(folder: &Path, agent: Owner) -> Result<()> {
    let Owner { uid, gid } = agent;
    create_mounted(folder)?;
    let mut passwd = "root:x:0:0:root:/root:/bin/false\n".to_owned();
    let mut group = "root:x:0:\n".to_owned();
    if uid != 0 {
        passwd += &format!("agent:x:{uid}:{gid}:agent:/workspace:/bin/sh\n");
    }
    if gid != 0 {
        group += &format!("agent:x:{gid}:\n");
    }
    place(folder, "passwd", passwd.as_bytes(), 0o644)?;
    place(folder, "group", group.as_bytes(), 0o644)?;
    place(folder, "hosts", b"127.0.0.1 localhost\n::1 localhost\n", 0o644)
}

/// Writes `AGENTS.md` unless that name is taken, at an agent's first start in
/// a workspace: who removes the file later does not get it back. What goes
/// wrong is no reason not to start.
fn first_start(home: &Home, agent: &Agent, owner: Owner) {
    let marker = home.first_start(&agent.name);
    let here = agent.workspace.as_os_str().as_bytes();
    if is_placed(&marker, here, 0o600).unwrap_or(false) {
        return;
    }
    let made = workspace::create_file(&agent.workspace, "AGENTS.md", AGENTS_MD.as_bytes(), owner);
    let folder = home.agent(&agent.name);
    let name = marker.file_name().unwrap_or_default().to_string_lossy();
    if let Err(error) = made.and_then(|_| place(&folder, &name, here, 0o600)) {
        log::warn!("agent `{}`: first start in its workspace: {error}", agent.name);
    }
}

/// Puts a file there by rename, so that whoever runs or reads the old one
/// keeps it; leaves it alone if it is the same already.
fn place(folder: &Path, name: &str, content: &[u8], mode: u32) -> Result<()> {
    let path = folder.join(name);
    if is_placed(&path, content, mode).unwrap_or(false) {
        return Ok(());
    }
    let fresh = beside(&path);
    let placed = write_new(&fresh, content, mode).and_then(|()| fs::rename(&fresh, &path));
    if placed.is_err() {
        // It may not even exist; the error that counts is the first.
        let _ = fs::remove_file(&fresh);
    }
    placed.during(Kind::Internal, format!("write {}", path.display()))
}

fn is_placed(path: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
    let no_follow = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
    let found = file.metadata()?;
    let same_length = found.len() == content.len() as u64;
    if !found.is_file() || found.mode() & 0o7777 != mode || !same_length {
        return Ok(false);
    }
    let mut bytes = Vec::with_capacity(content.len());
    file.take(content.len() as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes == content)
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // The mode at opening is cut by the umask.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)
}
