//! git over ssh: with the agent's own key, which it never sees, and a server on
//! loopback.

use std::cell::RefCell;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{host_git, repository, with_git};
use crate::support::{Finished, World, some_world, wait_until};

/// A server of ssh; ends with this.
struct Sshd {
    child: Child,
    port: u16,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn keygen(world: &World, path: &Path) -> String {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(path);
    let done: Finished = command.current_dir(&world.root).output().expect("it runs").into();
    done.expect(0);
    fs::read_to_string(path.with_extension("pub")).expect("a key")
}

impl Sshd {
    /// One that lets in who has that key.
    fn start(world: &World, public_key: &str, host_key: &Path) -> Self {
        let authorized = world.root.join("authorized");
        fs::write(&authorized, public_key).expect("written");
        // Nobody else is given it between here and there, mostly; else it does
        // not start, and another is taken.
        for _ in 0..10 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = free.local_addr().expect("an address").port();
            drop(free);
            let config = format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
                 StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\n\
                 PermitRootLogin yes\nKbdInteractiveAuthentication no\n",
                host_key.display(),
                authorized.display()
            );
            let file = world.root.join("sshd_config");
            fs::write(&file, config).expect("written");
            // Its unprivileged part wants this folder.
            let _ = fs::create_dir_all("/run/sshd");
            let mut command = Command::new("/usr/sbin/sshd");
            command.args(["-D", "-e", "-f"]).arg(&file).stdin(Stdio::null());
            command.stderr(fs::File::create(world.root.join("sshd.log")).expect("a file"));
            let child = command.spawn().expect("sshd runs");
            let it = RefCell::new(Self { child, port });
            let has_ended = || it.borrow_mut().child.try_wait().expect("a look").is_some();
            wait_until("it listens or has ended", || {
                has_ended() || TcpStream::connect(("127.0.0.1", port)).is_ok()
            });
            if !has_ended() {
                return it.into_inner();
            }
        }
        panic!("no port for sshd");
    }
}

/// Who a person is on this machine.
fn user() -> String {
    let done = Command::new("id").arg("-un").output().expect("id runs");
    String::from_utf8(done.stdout).expect("a name").trim().to_owned()
}

#[test]
fn an_agent_uses_its_key_over_ssh_and_never_sees_it() {
    let world = &some_world();
    let root = repository(world);
    let host_key = world.root.join("host_key");
    let host_public = keygen(world, &host_key);
    let keys = world.home().join("agents/a/ssh");
    fs::create_dir_all(&keys).expect("a folder");
    let public = keygen(world, &world.root.join("id_a"));
    let server = Sshd::start(world, &public, &host_key);
    let url = format!("ssh://{}@127.0.0.1:{}{}/r.git", user(), server.port, root.display());
    with_git(world, &format!("allowedRemotes: ['ssh://127.0.0.1:{}/**']", server.port));
    let clone = || world.sh(&format!("git clone -q {url}"));
    let refused = clone().expect(1);
    assert!(refused.stderr.contains("this agent has no key for ssh"), "{}", refused.stderr);
    let key = keys.join("id_ed25519");
    fs::copy(world.root.join("id_a"), &key).expect("copied");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("closed");
    let refused = clone().expect(128);
    assert!(refused.stderr.contains("Host key verification failed"), "{}", refused.stderr);
    let mut words = host_public.split(' ').take(2);
    let (kind, host_key) = (words.next().expect("a kind"), words.next().expect("a key"));
    fs::write(keys.join("known_hosts"), format!("[127.0.0.1]:{} {kind} {host_key}\n", server.port))
        .expect("written");
    clone().expect(0);
    let config = world.workspace("a").join("r/.git/config");
    let text = fs::read_to_string(&config).expect("a config");
    fs::write(&config, text + "[core]\n\tsshCommand = \"echo > ../owned; ssh\"\n")
        .expect("written");
    world
        .sh("cd r && echo two >> a && git commit -qam two && git push && git fetch && git pull")
        .expect(0);
    assert!(!world.workspace("a").join("owned").exists());
    assert_eq!(host_git(&root.join("r.git"), &["log", "-1", "--format=%s"]), "two\n");
    let secret = fs::read_to_string(&key).expect("a key");
    let line = secret.lines().nth(1).expect("a line");
    assert_eq!(world.sh(&format!("grep -rF '{line}' /workspace /beige /tmp")).text(), "");
    assert_eq!(world.sh("echo $SSH_AUTH_SOCK; find / -name agent.sock 2>/dev/null").text(), "\n");
    let calls = world.home().join("agents/a/git");
    assert_eq!(fs::read_dir(calls).expect("a folder").count(), 0);
}
