//! Where the kernel keeps cgroups here: pure readers of `/proc/self/mountinfo`
//! and `/proc/self/cgroup`, and the folders that follow from them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// What a cgroup bounds for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    /// The kernel's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// The two forms of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// One hierarchy that may give some of the controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) version: Version,
    pub(super) controllers: Vec<Controller>,
    /// Folders below which a cgroup of ours may be made, best first.
    pub(super) bases: Vec<PathBuf>,
}

/// The hierarchies of this host; a controller that has one of its own (v1) is
/// not looked for in the unified one.
///
/// Root makes its cgroups at the top. Others make theirs where they were
/// delegated to: below their own cgroup, or beside it.
pub(super) fn places(mountinfo: &str, cgroup: &str, is_root: bool) -> Vec<Place> {
    let mounts: Vec<_> = mountinfo.lines().filter_map(Mount::parse).collect();
    let mut places = Vec::new();
    let mut missing = Controller::ALL.to_vec();
    for mount in mounts.iter().filter(|it| it.version == Version::V1) {
        let has = |it: &Controller| mount.options.split(',').any(|option| option == it.name());
        let controllers: Vec<_> = missing.iter().copied().filter(has).collect();
        if controllers.is_empty() {
            continue;
        }
        missing.retain(|it| !controllers.contains(it));
        let own = own_path(cgroup, |named| named.split(',').any(|it| it == controllers[0].name()));
        let bases = if is_root { vec![mount.at.clone()] } else { mount.below(own, 1) };
        places.push(Place { version: Version::V1, controllers, bases });
    }
    let unified = mounts.iter().find(|it| it.version == Version::V2);
    if let Some(mount) = unified.filter(|_| !missing.is_empty()) {
        let own = own_path(cgroup, str::is_empty);
        let bases = if is_root { vec![mount.at.clone()] } else { mount.below(own, ANCESTORS) };
        places.push(Place { version: Version::V2, controllers: missing, bases });
    }
    places
}

/// How many folders upward from one's own cgroup are tried.
const ANCESTORS: usize = 4;

/// One mounted hierarchy.
struct Mount<'a> {
    version: Version,
    /// The folder of the hierarchy that is visible here.
    root: &'a str,
    at: PathBuf,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// `35 31 0:32 ROOT AT rw,relatime [optional …] - cgroup SOURCE rw,memory`
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        let version = match after.next()? {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        let (root, at) = (before.next()?, unescaped(before.next()?));
        Some(Self { version, root, at, options: after.nth(1)? })
    }

    /// One's own folder in it, then those above.
    fn below(&self, own: Option<&str>, count: usize) -> Vec<PathBuf> {
        let visible = own.and_then(|it| {
            let root = Path::new(self.root);
            // Outside of what is mounted here shows as `/../…`.
            Path::new(it).strip_prefix(root).ok().filter(|_| !it.contains("/.."))
        });
        let Some(own) = visible.map(|it| self.at.join(it)) else { return Vec::new() };
        let inside = |it: &&Path| it.starts_with(&self.at);
        own.ancestors().take_while(inside).take(count).map(with_no_slash).collect()
    }
}

/// `join` of an empty path leaves a slash at the end.
fn with_no_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

/// The path in `/proc/self/cgroup` of the hierarchy whose names please.
pub(super) fn own_path(cgroup: &str, mut pleases: impl FnMut(&str) -> bool) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (named, path) = (parts.next()?, parts.next()?);
        pleases(named).then_some(path)
    })
}

/// A mount point as the kernel writes it: `\040` is a blank.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(octal);
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const V2: &str = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const OWN_V1: &str = "8:pids:/u\n4:memory:/process/1\n1:cpu,cpuacct:/\n0::/\n";
    const OWN_V2: &str = "0::/user.slice/u.slice/app.slice/a b.service\n";

    fn place(version: Version, controllers: &[Controller], bases: &[&str]) -> Place {
        let bases = bases.iter().map(PathBuf::from).collect();
        Place { version, controllers: controllers.to_vec(), bases }
    }

    #[test]
    fn root_uses_the_top_of_every_hierarchy() {
        use Controller::{Cpu, Memory, Pids};
        assert_eq!(
            places(V1, OWN_V1, true),
            [
                place(Version::V1, &[Cpu], &["/sys/fs/cgroup/cpu,cpuacct"]),
                place(Version::V1, &[Memory], &["/sys/fs/cgroup/memory"]),
                place(Version::V1, &[Pids], &["/sys/fs/cgroup/pids"]),
            ]
        );
        assert_eq!(
            places(V2, OWN_V2, true),
            [place(Version::V2, &[Memory, Pids, Cpu], &["/sys/fs/cgroup"])]
        );
    }

    #[test]
    fn others_use_what_lies_at_or_above_their_own() {
        assert_eq!(
            places(V2, OWN_V2, false)[0].bases,
            [
                "/sys/fs/cgroup/user.slice/u.slice/app.slice/a b.service",
                "/sys/fs/cgroup/user.slice/u.slice/app.slice",
                "/sys/fs/cgroup/user.slice/u.slice",
                "/sys/fs/cgroup/user.slice",
            ]
            .map(PathBuf::from)
        );
        assert_eq!(places(V2, "0::/\n", false)[0].bases, [PathBuf::from("/sys/fs/cgroup")]);
        assert_eq!(
            places(V1, OWN_V1, false)[1].bases,
            [PathBuf::from("/sys/fs/cgroup/memory/process/1")]
        );
    }

    #[test]
    fn the_unified_hierarchy_gives_what_the_others_do_not() {
        use Controller::{Cpu, Memory, Pids};
        let mixed: String =
            V1.lines().filter(|it| !it.contains("/pids")).map(|it| format!("{it}\n")).collect();
        let got = places(&mixed, OWN_V1, true);
        assert_eq!(got[0].controllers, [Cpu]);
        assert_eq!(got[1].controllers, [Memory]);
        assert_eq!(got[2], place(Version::V2, &[Pids], &["/sys/fs/cgroup/unified"]));
    }

    #[test]
    fn a_container_sees_only_its_part() {
        let mount = "35 31 0:32 /docker/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let bases = |own: &str| places(mount, own, false)[0].bases.clone();
        assert_eq!(bases("4:memory:/docker/7/x\n"), [PathBuf::from("/sys/fs/cgroup/memory/x")]);
        assert_eq!(bases("4:memory:/elsewhere\n"), [] as [PathBuf; 0]);
        assert_eq!(bases("4:memory:/docker/7/../8\n"), [] as [PathBuf; 0]);
        assert_eq!(bases(""), [] as [PathBuf; 0]);
    }

    #[test]
    fn broken_lines_are_passed_over() {
        assert_eq!(places("x\n1 2 - cgroup\n\u{fffd} - \n", "::::\n7", true), []);
        assert_eq!(unescaped(r"/a\040b\04\999"), PathBuf::from(r"/a b\04\999"));
    }
}
