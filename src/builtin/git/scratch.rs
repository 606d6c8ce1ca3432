//! What one call keeps on the host, and is gone with it: a folder among the
//! agent's, shown to no sandbox. In it lies the mirror, a bare
//! repository that only the box with the network writes, so that what speaks
//! with a remote has no configuration but ours.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::geteuid;

use super::confine::{Bind, OURS, WORKSPACE};
use crate::error::{During, Error, Kind, Result};

/// The mirror inside.
pub(super) const MIRROR: &str = "/run/beige/remote.git";

/// Where git finds its own programs inside.
pub(super) const BIN: &str = "/run/beige/bin";

/// What git starts as `git`: itself, but not in a submodule, whose configuration
/// nobody has looked at. `GIT_DIR` is this for what is started there and for
/// what speaks with a remote.
fn shim(git: &str) -> String {
    format!(
        "#!/bin/sh\ncase \"$GIT_DIR $1\" in\n\
         '.git remote-http' | '.git remote-https') ;;\n\
         '.git '*) echo 'git does not look into submodules here' >&2; exit 1 ;;\n\
         esac\nexec {git} \"$@\"\n"
    )
}

/// What git starts to speak with a remote, by `https` or as `ssh`: speaks with the
/// mirror instead. So git sees, and writes down, the remote's own URL.
const STAND_IN: &str = r#"#!/bin/sh
unset GIT_DIR
serve() { exec git "$1" /run/beige/remote.git; }
case $0 in */ssh)
    for service; do :; done
    case $service in git-receive-pack*) serve receive-pack ;; *) serve upload-pack ;; esac
esac
while read -r line; do
    case $line in
        capabilities) printf 'connect\n\n' ;;
        "connect git-receive-pack") echo; serve receive-pack ;;
        "connect git-upload-pack") echo; serve upload-pack ;;
        *) exit 1 ;;
    esac
done
"#;

/// Its configuration. What the repository of the workspace has is offered to
/// the remote, and to nobody else.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\
                      [transfer]\n\thideRefs = refs/have\n\
                      [uploadpack]\n\tallowAnySHA1InWant = true\n";

/// What `HEAD` of a remote is called in the mirror.
pub(super) const HEAD: &str = "refs/beige/HEAD";

/// So many folders of further objects behind one another does git follow.
const DEEPEST: usize = 5;

/// Refs by name.
pub(super) type Refs = BTreeMap<String, String>;

/// The folder of one call; dropping it removes it.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
    owner: (u32, u32),
}

impl Scratch {
    /// Makes one among the agent's files that no sandbox sees, for that owner.
    pub(super) fn new(agent: &Path, owner: (u32, u32), git: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let calls = agent.join("git");
        let folder = calls.join(format!("{}-{number}", process::id()));
        let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(&calls);
        made.during(Kind::Internal, "make a folder for a call")?;
        clear(&calls);
        let scratch = Self { folder, owner };
        scratch.folder("")?;
        let (uid, gid) = owner;
        scratch.file("passwd", &format!("agent:x:{uid}:{gid}::/tmp:/usr/sbin/nologin\n"))?;
        scratch.file("group", &format!("agent:x:{gid}:\n"))?;
        scratch.folder("bin")?;
        scratch.program("bin/git", &shim(git))?;
        Ok(scratch)
    }

    /// Makes a folder in it.
    pub(super) fn folder(&self, name: &str) -> Result<()> {
        let path = self.folder.join(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&path).and_then(|()| self.give(&path));
        made.during(Kind::Internal, "make a folder for a call")
    }

    /// Writes a file in it, in the place of one that is there.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        let written = fs::write(&path, text).and_then(|()| self.give(&path));
        written.during(Kind::Internal, "write a file for a call")
    }

    fn give(&self, path: &Path) -> std::io::Result<()> {
        if !geteuid().is_root() {
            return Ok(());
        }
        chown(path, Some(self.owner.0), Some(self.owner.1))
    }

    /// Something of it as a box sees it.
    pub(super) fn bind(&self, name: &str, inside: &str, writable: bool) -> Bind {
        Bind { source: self.folder.join(name), inside: inside.to_owned(), writable }
    }

    /// Who the owner is, for programs that ask.
    pub(super) fn accounts(&self) -> [Bind; 2] {
        [self.bind("passwd", "/etc/passwd", false), self.bind("group", "/etc/group", false)]
    }

    /// The mirror as a box sees it, if there is one.
    pub(super) fn mirror(&self, writable: bool) -> Option<Bind> {
        let exists = self.folder.join("remote.git").exists();
        exists.then(|| self.bind("remote.git", MIRROR, writable))
    }

    /// Makes an empty folder for the mirror, and what stands for the remote.
    pub(super) fn place_mirror(&self) -> Result<()> {
        self.folder("remote.git")?;
        let names = ["bin/git-remote-http", "bin/git-remote-https", "bin/ssh"];
        names.iter().try_for_each(|it| self.program(it, STAND_IN))
    }

    fn program(&self, name: &str, text: &str) -> Result<()> {
        self.file(name, text)?;
        let executable = fs::Permissions::from_mode(0o700);
        fs::set_permissions(self.folder.join(name), executable)
            .during(Kind::Internal, "write a file for a call")
    }

    /// Makes a mirror that has the objects of a repository of the workspace,
    /// those refs, and that file of where its history is cut.
    pub(super) fn make_mirror(&self, objects: &str, refs: &Refs, shallow: &str) -> Result<()> {
        if !objects.starts_with(&format!("{WORKSPACE}/")) || objects.contains(char::is_control) {
            let what = "the objects of this repository do not lie in the workspace";
            return Err(Error::new(Kind::Denied, what));
        }
        self.place_mirror()?;
        for folder in ["/refs", "/objects", "/objects/info", "/objects/pack"] {
            self.folder(&format!("remote.git{folder}"))?;
        }
        self.file("remote.git/HEAD", &format!("ref: {HEAD}\n"))?;
        self.file("remote.git/config", CONFIG)?;
        self.chain_objects(objects)?;
        if !shallow.is_empty() {
            self.file("remote.git/shallow", shallow)?;
        }
        self.write_refs(refs)
    }

    /// Gives the mirror those objects, at the end of as many folders of ours as
    /// git follows. So what the repository of the workspace names as further
    /// objects, which may be any file of a box, is not looked at there.
    fn chain_objects(&self, objects: &str) -> Result<()> {
        let mut folder = "remote.git/objects".to_owned();
        self.folder("remote.git/chain")?;
        for number in 1..=DEEPEST {
            let next = format!("remote.git/chain/{number}");
            self.folder(&next)?;
            self.folder(&format!("{next}/info"))?;
            let inside = format!("{MIRROR}/chain/{number}\n");
            self.file(&format!("{folder}/info/alternates"), &inside)?;
            folder = next;
        }
        self.file(&format!("{folder}/info/alternates"), &format!("{objects}\n"))
    }

    /// Gives the mirror these refs.
    pub(super) fn write_refs(&self, refs: &Refs) -> Result<()> {
        let mut text = "# pack-refs with: sorted \n".to_owned();
        for (name, id) in refs {
            let _ = writeln!(text, "{id} {name}");
        }
        self.file("remote.git/packed-refs", &text)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            log::warn!("the folder of a call of git stays behind: {error}");
        }
    }
}

/// Removes what calls of plugins that were killed have left.
fn clear(calls: &Path) {
    for entry in fs::read_dir(calls).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Where a file of ours lies inside.
pub(super) fn inside(name: &str) -> String {
    format!("{OURS}/{name}")
}
