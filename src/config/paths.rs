//! Which paths a configuration may name. A path is expanded (`~/`, relative to
//! the file), then resolved with every link in it, also above parts that do not
//! exist yet, and only then compared. What cannot be resolved is refused.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

/// Links followed in one path, as the kernel does.
const MOST_LINKS: usize = 40;

/// Host folders that no sandbox may get, nor anything above them.
const HOST_ONLY: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/var/run"];

/// Container folders that no mount may cover or lie in.
const CONTAINER_ONLY: [&str; 6] = ["/beige", "/tools", "/skills", "/proc", "/sys", "/dev"];

/// The absolute form of a path in the configuration, links unresolved.
pub(crate) fn expand(
    text: &str,
    folder: &Path,
    user_home: Option<&Path>,
) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("the path is empty".into());
    }
    if text.contains(char::is_control) {
        return Err("the path holds a control character".into());
    }
    if text == "~" || text.starts_with("~/") {
        let home = user_home.ok_or("`~` cannot be resolved, since $HOME is not set")?;
        return Ok(tidy(&home.join(text.trim_start_matches('~').trim_start_matches('/'))));
    }
    Ok(tidy(&folder.join(text)))
}

/// Without `.` and doubled slashes, which mean nothing; `..` stays, since what
/// it leaves may be a link.
fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

/// The path with every link resolved; parts that do not exist stay as named.
pub(crate) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut left: VecDeque<OsString> = parts(path);
    let mut resolved = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let candidate = resolved.join(&part);
        let Some(target) = link_target(&candidate)? else {
            resolved = candidate;
            continue;
        };
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::other("too many links lead to one another"));
        }
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        for part in parts(&target).into_iter().rev() {
            left.push_front(part);
        }
    }
    Ok(resolved)
}

/// Says why a resolved host path may not reach a sandbox. `home` is the
/// resolved state folder, `own` the agent's default workspace in it.
pub(crate) fn refuse_host(path: &Path, home: &Path, own: &Path) -> Option<String> {
    let shown = path.display();
    if let Some(it) = HOST_ONLY.iter().find(|it| Path::new(it).starts_with(path)) {
        let relation = if Path::new(it) == path { "is" } else { "contains" };
        return Some(format!("{shown} {relation} {it}, which no sandbox may get"));
    }
    if path.starts_with("/proc") {
        return Some(format!("{shown} lies in /proc, which no sandbox may get"));
    }
    let state = format!("the state folder {}", home.display());
    if path == home {
        return Some(format!("{shown} is {state}"));
    }
    if home.starts_with(path) {
        return Some(format!("{shown} contains {state}"));
    }
    if path.starts_with(home) && !path.starts_with(own) {
        return Some(format!("{shown} lies in {state}"));
    }
    let is_socket = fs::metadata(path).is_ok_and(|it| it.file_type().is_socket());
    is_socket.then(|| format!("{shown} is a socket"))
}

/// What stands where a folder should be: the path itself or the nearest thing
/// above it that exists, if it is no folder.
pub(crate) fn in_the_way(path: &Path) -> Option<&Path> {
    let (nearest, metadata) =
        path.ancestors().find_map(|it| fs::metadata(it).ok().map(|found| (it, found)))?;
    (!metadata.is_dir()).then_some(nearest)
}

/// Reads `containerPath[:ro]`: where a mount stands and whether it is
/// read-only.
pub(crate) fn container_path(text: &str) -> Result<(PathBuf, bool), String> {
    let (path, read_only) = match text.strip_suffix(":ro") {
        Some(path) => (path, true),
        None => (text, false),
    };
    if path.contains(|it: char| it == ':' || it.is_control()) {
        return Err("expected a container path, with `:ro` behind it or nothing".into());
    }
    let path = Path::new(path);
    if !path.is_absolute() {
        return Err("the container path must begin with `/`".into());
    }
    if path.components().any(|it| it == Component::ParentDir) {
        return Err("the container path may not hold `..`".into());
    }
    // Without doubled slashes and dots, which would hide what it lies in.
    let path: PathBuf = path.components().collect();
    if path == Path::new("/") || path == Path::new("/workspace") {
        return Err(format!("the container path may not be {}", path.display()));
    }
    if let Some(it) = CONTAINER_ONLY.iter().find(|it| path.starts_with(it)) {
        return Err(format!("the container path may not be or lie under {it}"));
    }
    Ok((path, read_only))
}

/// Where a link leads; none for what is no link or does not exist.
fn link_target(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_link(path) {
        Ok(target) => Ok(Some(target)),
        Err(error) => match error.kind() {
            // `InvalidInput`: it exists and is no link.
            ErrorKind::InvalidInput | ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|it| matches!(it, Component::Normal(_) | Component::ParentDir))
        .map(|it| it.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use crate::config::sample::Folder;

    #[track_caller]
    fn check_expanded(text: &str, expected: Result<&str, &str>) {
        let expanded = expand(text, Path::new("/etc/beige"), Some(Path::new("/home/u")));
        let expanded = expanded.as_ref().map(|it| it.to_str().unwrap_or_default());
        assert_eq!(expanded.map_err(String::as_str), expected);
    }

    #[test]
    fn relative_paths_start_at_the_file_and_a_tilde_at_the_home_folder() {
        check_expanded("ws", Ok("/etc/beige/ws"));
        check_expanded("/ws", Ok("/ws"));
        check_expanded("~", Ok("/home/u"));
        check_expanded("./a//b/./../c/", Ok("/etc/beige/a/b/../c"));
        check_expanded("~//x", Ok("/home/u/x"));
        check_expanded("~x", Ok("/etc/beige/~x"));
        check_expanded("", Err("the path is empty"));
        check_expanded("a\0b", Err("the path holds a control character"));
        assert!(expand("~/x", Path::new("/"), None).is_err());
    }

    #[track_caller]
    fn check_resolved(folder: &Folder, path: &str, expected: &str) {
        let resolved = resolve(&folder.path().join(path)).ok();
        let expected = if expected.starts_with('/') {
            PathBuf::from(expected)
        } else {
            folder.path().join(expected)
        };
        assert_eq!(resolved, Some(expected));
    }

    #[test]
    fn links_are_resolved_also_above_what_does_not_exist() -> io::Result<()> {
        let folder = Folder::new();
        folder.folder("real/inner");
        symlink("real", folder.path().join("relative"))?;
        symlink("/etc", folder.path().join("absolute"))?;
        symlink("gone/away", folder.path().join("dangling"))?;
        check_resolved(&folder, "relative/inner/new/er", "real/inner/new/er");
        check_resolved(&folder, "absolute/passwd", "/etc/passwd");
        check_resolved(&folder, "dangling/x", "gone/away/x");
        check_resolved(&folder, "relative/inner/../../y", "y");
        check_resolved(&folder, "new/../real", "real");
        check_resolved(&folder, "../../../../../../../../../..", "/");
        Ok(())
    }

    #[test]
    fn links_in_a_circle_are_refused() -> io::Result<()> {
        let folder = Folder::new();
        symlink("b", folder.path().join("a"))?;
        symlink("a", folder.path().join("b"))?;
        assert!(resolve(&folder.path().join("a/x")).is_err());
        Ok(())
    }

    #[track_caller]
    fn check_host(path: &str, expected: Option<&str>) {
        let refused = refuse_host(
            Path::new(path),
            Path::new("/srv/home"),
            Path::new("/srv/home/agents/a/workspace"),
        );
        assert_eq!(refused.as_deref(), expected);
    }

    #[test]
    fn the_hosts_own_folders_reach_no_sandbox() {
        check_host("/", Some("/ contains /proc, which no sandbox may get"));
        check_host("/proc", Some("/proc is /proc, which no sandbox may get"));
        check_host("/proc/1", Some("/proc/1 lies in /proc, which no sandbox may get"));
        check_host("/run", Some("/run is /run, which no sandbox may get"));
        check_host("/var", Some("/var contains /var/run, which no sandbox may get"));
        check_host("/var/lib", None);
        check_host("/runner", None);
    }

    #[test]
    fn the_state_folder_reaches_no_sandbox() {
        check_host("/srv", Some("/srv contains the state folder /srv/home"));
        check_host("/srv/home", Some("/srv/home is the state folder /srv/home"));
        check_host(
            "/srv/home/agents/b/workspace",
            Some("/srv/home/agents/b/workspace lies in the state folder /srv/home"),
        );
        check_host(
            "/srv/home/agents/a",
            Some("/srv/home/agents/a lies in the state folder /srv/home"),
        );
        check_host("/srv/home/agents/a/workspace", None);
        check_host("/srv/home/agents/a/workspace/sub", None);
        check_host("/srv/home2", None);
    }

    #[test]
    fn a_socket_reaches_no_sandbox() -> io::Result<()> {
        let folder = Folder::new();
        let path = folder.path().join("docker.sock");
        let _listener = UnixListener::bind(&path)?;
        let refused = refuse_host(&path, Path::new("/h"), Path::new("/h/w"));
        assert_eq!(refused, Some(format!("{} is a socket", path.display())));
        Ok(())
    }

    #[track_caller]
    fn check_container(text: &str, expected: Result<(&str, bool), &str>) {
        match (container_path(text), expected) {
            (Ok((path, read_only)), expected) => {
                assert_eq!(Ok((path.to_str().unwrap_or_default(), read_only)), expected);
            }
            (Err(text), Err(part)) => assert!(text.contains(part), "{text}"),
            (Err(text), Ok(_)) => assert_eq!(text, ""),
        }
    }

    #[test]
    fn a_mount_stands_where_nothing_of_ours_does() {
        check_container("/srv/x:ro", Ok(("/srv/x", true)));
        check_container("//srv/./x/", Ok(("/srv/x", false)));
        check_container("/workspace/cache", Ok(("/workspace/cache", false)));
        check_container("/toolsmith", Ok(("/toolsmith", false)));
        for path in ["/", "/workspace", "//", "/./workspace/"] {
            check_container(path, Err("may not be"));
        }
        for path in ["/beige", "/tools/bin", "/skills/x", "//proc", "/sys/fs:ro", "/dev/shm"] {
            check_container(path, Err("may not be or lie under"));
        }
        check_container("/srv/../tools", Err("may not hold `..`"));
        check_container("srv", Err("must begin with `/`"));
        check_container("", Err("must begin with `/`"));
        check_container("/a:rw", Err("`:ro` behind it or nothing"));
        check_container("/a\n", Err("`:ro` behind it or nothing"));
    }
}
