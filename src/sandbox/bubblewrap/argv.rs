//! A spec and a host as an argv: pure, and compared whole by the tests. It
//! shows the sandbox what the spec names and of the host nothing but /usr,
//! certificates and, with an open network, the resolver's files.
//!
//! A gateway that is root starts two of them. bwrap run by root would leave
//! the agent the kernel's uid 0 (host sysctls, setuid files), so an outer one
//! only makes the folders reachable below /mnt, `setpriv` gives up root for
//! good, and the inner one is the sandbox. The outer one has a process
//! namespace of its own: its first process is root's, so `--die-with-parent`
//! may kill it, and the kernel then ends everything below, which a signal
//! from an unprivileged parent could not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host::HostLayout;
use crate::config::{Home, Network};
use crate::sandbox::client::INSIDE;
use crate::sandbox::{Role, Spec, fingerprint};

/// Where the outer bwrap puts the folders that the inner one mounts.
const REACHABLE: &str = "/mnt";

/// Size of `/dev/shm` in bytes: Docker's default.
const SHARED_MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// Smallest size of `/tmp` in bytes; it is a quarter of the memory limit.
const LEAST_TMP_BYTES: u64 = 1024 * 1024;

/// What the account files are mounted as, by name.
pub(super) const ACCOUNT_FILES: [&str; 2] = ["passwd", "group"];

/// Namespaces and rights, the same for every sandbox and for the trial.
const WALLS: [&str; 11] = [
    "--as-pid-1",
    "--new-session",
    "--unshare-user",
    "--disable-userns",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
    "--clearenv",
];

/// How long a resident waits for anybody who listens, in seconds, before it
/// ends with its sandbox.
const LEAVE_AFTER: &str = "60";

/// The command that starts tool-client in that role in a sandbox of its own,
/// which ends with the thread that started it.
pub(super) fn command(spec: &Spec, host: &HostLayout, role: Role) -> Command {
    inside(spec, host, Some(LEASH), &[role.flag()])
}

/// The command that starts a resident: its sandbox lives on when the starter
/// ends, and ends by itself when nobody has listened for a while.
pub(super) fn resident(spec: &Spec, host: &HostLayout) -> Command {
    inside(spec, host, None, &["--init", "--leave-after", LEAVE_AFTER])
}

/// Changes whenever a resident's sandbox must be made anew.
pub(super) fn spec_hash(spec: &Spec, host: &HostLayout) -> String {
    let binds = binds(spec);
    let command = resident(spec, host);
    fingerprint::of(command.get_args(), binds.iter().map(|it| it.source.as_path()))
}

/// Ends a bwrap with the thread that started it.
const LEASH: &str = "--die-with-parent";

/// tool-client with those arguments as the first process of a sandbox.
fn inside(spec: &Spec, host: &HostLayout, leash: Option<&str>, arguments: &[&str]) -> Command {
    let mut binds = binds(spec);
    let mut words = Vec::new();
    if let Some(setpriv) = &host.setpriv {
        outer(&mut words, &mut binds, leash);
        give_up_root(&mut words, setpriv, spec.uid, spec.gid);
        words.push(host.bwrap.clone().into());
    }
    words.extend(leash.map(OsString::from));
    inner(&mut words, spec, host, &binds);
    extend(&mut words, &["--", INSIDE]);
    extend(&mut words, arguments);
    started(host, words)
}

/// The same walls around nothing but `bwrap --version`: shows whether this
/// host lets them be built.
pub(super) fn trial(host: &HostLayout) -> Command {
    let mut words = Vec::new();
    if let Some(setpriv) = &host.setpriv {
        outer(&mut words, &mut [], Some(LEASH));
        give_up_root(&mut words, setpriv, NOBODY, NOBODY);
        words.push(host.bwrap.clone().into());
    }
    words.push(LEASH.into());
    words.extend(WALLS.map(OsString::from));
    extend(&mut words, &["--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev"]);
    extend(&mut words, &["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--"]);
    words.push(host.bwrap.clone().into());
    words.push("--version".into());
    started(host, words)
}

/// Owns nothing on any host.
const NOBODY: u32 = 65534;

/// One folder or file of the host as the sandbox sees it.
#[derive(Debug, PartialEq)]
struct Bind {
    source: PathBuf,
    inside: PathBuf,
    read_only: bool,
}

impl Bind {
    fn writable(source: &Path, inside: impl Into<PathBuf>) -> Self {
        Self { source: source.to_owned(), inside: inside.into(), read_only: false }
    }

    fn read_only(source: &Path, inside: impl Into<PathBuf>) -> Self {
        Self { read_only: true, ..Self::writable(source, inside) }
    }

    fn push_to(&self, words: &mut Vec<OsString>) {
        words.push(if self.read_only { "--ro-bind" } else { "--bind" }.into());
        words.push(self.source.clone().into());
        words.push(self.inside.clone().into());
    }
}

/// What the spec shows, in the order of mounting. The agent's own mounts come
/// before ours: a link planted in the workspace may move a mount point inside
/// the sandbox, but never over `/beige` or `/tools`.
fn binds(spec: &Spec) -> Vec<Bind> {
    let accounts = Home::new(&spec.home).accounts(&spec.agent);
    let mut binds = vec![Bind::writable(&spec.workspace, "/workspace")];
    binds.extend(spec.mounts.iter().map(|it| Bind {
        source: it.host.clone(),
        inside: it.container.clone(),
        read_only: it.read_only,
    }));
    for name in ACCOUNT_FILES {
        binds.push(Bind::read_only(&accounts.join(name), Path::new("/etc").join(name)));
    }
    if !is_open(spec) {
        binds.push(Bind::read_only(&accounts.join("hosts"), "/etc/hosts"));
    }
    binds.push(Bind::read_only(&spec.launchers, "/tools/bin"));
    binds.extend(spec.shown.places().map(|(folder, inside)| Bind::read_only(folder, inside)));
    binds.push(Bind::read_only(&spec.sockets, "/beige"));
    binds
}

/// Makes every source reachable for one who may not walk to it, and lets the
/// binds start from there.
fn outer(words: &mut Vec<OsString>, binds: &mut [Bind], leash: Option<&str>) {
    words.extend(leash.map(OsString::from));
    extend(words, &["--unshare-pid", "--dev-bind", "/", "/", "--tmpfs", REACHABLE]);
    for (number, bind) in binds.iter_mut().enumerate() {
        let reachable = Path::new(REACHABLE).join(number.to_string());
        let source = std::mem::replace(&mut bind.source, reachable.clone());
        Bind { source, inside: reachable, read_only: bind.read_only }.push_to(words);
    }
    words.push("--".into());
}

fn give_up_root(words: &mut Vec<OsString>, setpriv: &Path, uid: u32, gid: u32) {
    words.push(setpriv.into());
    words.push(format!("--reuid={uid}").into());
    words.push(format!("--regid={gid}").into());
    extend(words, &["--clear-groups", "--no-new-privs"]);
    extend(words, &["--inh-caps=-all", "--bounding-set=-all", "--"]);
}

fn inner(words: &mut Vec<OsString>, spec: &Spec, host: &HostLayout, binds: &[Bind]) {
    words.extend(WALLS.map(OsString::from));
    if !is_open(spec) {
        words.push("--unshare-net".into());
    }
    root(words, host, is_open(spec));
    let tmp_bytes = (spec.memory_bytes / 4).max(LEAST_TMP_BYTES);
    bounded_tmpfs(words, "/tmp", tmp_bytes);
    for bind in binds {
        bind.push_to(words);
    }
    // After the agent's mounts, for the reason given at `binds`.
    extend(words, &["--dev", "/dev"]);
    bounded_tmpfs(words, "/dev/shm", SHARED_MEMORY_BYTES);
    extend(words, &["--remount-ro", "/dev"]);
    extend(words, &["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]);
    // Last of all: until here mount points are made in it.
    extend(words, &["--remount-ro", "/", "--chdir", "/workspace"]);
}

/// The host's programs, and of /etc what they cannot work without.
fn root(words: &mut Vec<OsString>, host: &HostLayout, open: bool) {
    let resolver = host.resolver.iter().filter(|_| open);
    for path in host.shown.iter().chain(resolver) {
        Bind::read_only(path, path.clone()).push_to(words);
    }
    for (name, target) in &host.links {
        words.push("--symlink".into());
        words.push(target.clone().into());
        words.push(name.clone().into());
    }
}

fn bounded_tmpfs(words: &mut Vec<OsString>, at: &str, bytes: u64) {
    extend(words, &["--perms", "1777", "--size", &bytes.to_string(), "--tmpfs", at]);
}

/// Nothing of the gateway's environment reaches any of the programs on the
/// way; what a command is to find comes with its request.
fn started(host: &HostLayout, words: Vec<OsString>) -> Command {
    let mut command = Command::new(&host.bwrap);
    command.args(words).env_clear().current_dir("/");
    command
}

fn is_open(spec: &Spec) -> bool {
    spec.network == Some(Network::Open)
}

fn extend(words: &mut Vec<OsString>, more: &[&str]) {
    words.extend(more.iter().map(OsString::from));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MountConfig;
    use crate::sandbox::Shown;

    fn spec() -> Spec {
        Spec {
            instance: "0123456789ab".into(),
            agent: "a".into(),
            home: "/h".into(),
            workspace: "/w".into(),
            launchers: "/h/agents/a/launchers".into(),
            sockets: "/h/sockets/a".into(),
            shown: Shown {
                packages: [("kv".to_owned(), PathBuf::from("/h/data/packages/kv"))].into(),
                skills: [("s".to_owned(), PathBuf::from("/h/data/skills/s"))].into(),
            },
            image: String::new(),
            memory_bytes: 400 * 1024 * 1024,
            cpus: None,
            pids: 512,
            network: None,
            uid: 1234,
            gid: 1235,
            read_only_root: false,
            mounts: vec![MountConfig {
                host: "/srv/x y".into(),
                container: "/data".into(),
                read_only: true,
            }],
            env: [("TOKEN".to_owned(), "secret".to_owned())].into(),
        }
    }

    fn host(setpriv: Option<&str>) -> HostLayout {
        HostLayout {
            bwrap: "/usr/bin/bwrap".into(),
            setpriv: setpriv.map(PathBuf::from),
            uid: if setpriv.is_some() { 0 } else { 1234 },
            shown: vec!["/usr".into(), "/etc/ssl/certs".into()],
            resolver: vec!["/etc/resolv.conf".into()],
            links: vec![("/bin".into(), "usr/bin".into())],
        }
    }

    /// The words as a person would write them, one option a line.
    #[track_caller]
    fn check(command: &Command, want: &str) {
        let got: Vec<_> = command.get_args().map(|it| it.to_string_lossy()).collect();
        let want: Vec<_> = want.split_whitespace().map(|it| it.replace('~', " ")).collect();
        assert_eq!(got, want);
        assert_eq!(command.get_program(), "/usr/bin/bwrap");
        assert_eq!(command.get_envs().count(), 0);
    }

    #[test]
    fn an_ordinary_gateway_starts_one_bwrap() {
        check(
            &command(&spec(), &host(None), Role::Run),
            "--die-with-parent --as-pid-1 --new-session
             --unshare-user --disable-userns --unshare-pid --unshare-ipc --unshare-uts
             --unshare-cgroup-try --cap-drop ALL --clearenv --unshare-net
             --ro-bind /usr /usr --ro-bind /etc/ssl/certs /etc/ssl/certs --symlink usr/bin /bin
             --perms 1777 --size 104857600 --tmpfs /tmp
             --bind /w /workspace --ro-bind /srv/x~y /data
             --ro-bind /h/agents/a/etc/passwd /etc/passwd
             --ro-bind /h/agents/a/etc/group /etc/group
             --ro-bind /h/agents/a/etc/hosts /etc/hosts
             --ro-bind /h/agents/a/launchers /tools/bin
             --ro-bind /h/data/packages/kv /tools/packages/kv
             --ro-bind /h/data/skills/s /skills/s
             --ro-bind /h/sockets/a /beige
             --dev /dev --perms 1777 --size 67108864 --tmpfs /dev/shm --remount-ro /dev
             --proc /proc --ro-bind /proc/sys /proc/sys
             --remount-ro / --chdir /workspace -- /beige/tool-client --run",
        );
    }

    #[test]
    fn a_root_gateway_gives_up_root_between_two() {
        check(
            &command(&spec(), &host(Some("/usr/bin/setpriv")), Role::File),
            "--die-with-parent --unshare-pid --dev-bind / / --tmpfs /mnt
             --bind /w /mnt/0 --ro-bind /srv/x~y /mnt/1
             --ro-bind /h/agents/a/etc/passwd /mnt/2 --ro-bind /h/agents/a/etc/group /mnt/3
             --ro-bind /h/agents/a/etc/hosts /mnt/4 --ro-bind /h/agents/a/launchers /mnt/5
             --ro-bind /h/data/packages/kv /mnt/6 --ro-bind /h/data/skills/s /mnt/7
             --ro-bind /h/sockets/a /mnt/8 --
             /usr/bin/setpriv --reuid=1234 --regid=1235 --clear-groups --no-new-privs
             --inh-caps=-all --bounding-set=-all --
             /usr/bin/bwrap --die-with-parent --as-pid-1 --new-session
             --unshare-user --disable-userns --unshare-pid --unshare-ipc --unshare-uts
             --unshare-cgroup-try --cap-drop ALL --clearenv --unshare-net
             --ro-bind /usr /usr --ro-bind /etc/ssl/certs /etc/ssl/certs --symlink usr/bin /bin
             --perms 1777 --size 104857600 --tmpfs /tmp
             --bind /mnt/0 /workspace --ro-bind /mnt/1 /data
             --ro-bind /mnt/2 /etc/passwd --ro-bind /mnt/3 /etc/group --ro-bind /mnt/4 /etc/hosts
             --ro-bind /mnt/5 /tools/bin --ro-bind /mnt/6 /tools/packages/kv
             --ro-bind /mnt/7 /skills/s --ro-bind /mnt/8 /beige
             --dev /dev --perms 1777 --size 67108864 --tmpfs /dev/shm --remount-ro /dev
             --proc /proc --ro-bind /proc/sys /proc/sys
             --remount-ro / --chdir /workspace -- /beige/tool-client --file",
        );
    }

    /// The words of a call without its leash and its role, and those of the
    /// resident without what it is started as.
    #[track_caller]
    fn check_same_walls(host: &HostLayout, leashes: usize) {
        let words = |it: Command| -> Vec<String> {
            it.get_args().map(|it| it.to_string_lossy().into_owned()).collect()
        };
        let call = words(command(&spec(), host, Role::Run));
        let resident = words(resident(&spec(), host));
        assert_eq!(call.iter().filter(|it| *it == LEASH).count(), leashes);
        let mut want: Vec<String> = call.into_iter().filter(|it| it != LEASH).collect();
        assert_eq!(want.pop().as_deref(), Some("--run"));
        want.extend(["--init", "--leave-after", "60"].map(str::to_owned));
        assert_eq!(resident, want);
    }

    #[test]
    fn a_resident_has_the_same_walls_and_no_leash() {
        check_same_walls(&host(None), 1);
        check_same_walls(&host(Some("/usr/bin/setpriv")), 2);
    }

    #[test]
    fn whatever_is_mounted_or_bounded_by_the_walls_makes_it_anew() {
        let hash = |spec: &Spec| spec_hash(spec, &host(None));
        let same = hash(&spec());
        assert_eq!(hash(&spec()), same);
        assert_eq!(hash(&Spec { pids: 7, cpus: Some(2.0), ..spec() }), same, "a cgroup's");
        for other in [
            Spec { workspace: "/w2".into(), ..spec() },
            Spec { mounts: Vec::new(), ..spec() },
            Spec { shown: Shown::default(), ..spec() },
            Spec { network: Some(Network::Open), ..spec() },
            Spec { memory_bytes: 800 << 20, ..spec() },
        ] {
            assert_ne!(hash(&other), same);
        }
        assert_ne!(spec_hash(&Spec { uid: 7, ..spec() }, &host(Some("/s"))), same);
    }

    #[test]
    fn an_open_network_is_the_hosts_with_the_hosts_resolver() {
        let command =
            command(&Spec { network: Some(Network::Open), ..spec() }, &host(None), Role::Run);
        let words: Vec<_> = command.get_args().collect();
        assert!(!words.contains(&"--unshare-net".as_ref()));
        assert!(words.windows(2).any(|it| it == ["--ro-bind", "/etc/resolv.conf"]));
        assert!(!words.contains(&"/etc/hosts".as_ref()));
    }
}
