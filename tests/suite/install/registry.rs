//! A registry and a GitHub that say whatever a test wants, on loopback: each
//! path has one answer, byte for byte, and every request is kept.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA512, digest};
use serde_json::{Value, json};

use crate::support::{Finished, World};

/// What a path answers.
#[derive(Clone)]
pub(super) enum Said {
    /// A whole answer.
    Whole(Vec<u8>),
    /// Its beginning, and then nothing until the peer leaves.
    Begun(Vec<u8>),
    /// Its beginning, and then zeros until the peer leaves.
    Endless(Vec<u8>),
}

/// The server.
pub(super) struct Registry {
    port: u16,
    said: Arc<Mutex<HashMap<String, Said>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Registry {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let registry = Self { port, said: Arc::default(), asked: Arc::default() };
        let (said, asked) = (Arc::clone(&registry.said), Arc::clone(&registry.asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (said, asked) = (Arc::clone(&said), Arc::clone(&asked));
                thread::spawn(move || answer(stream, &said, &asked));
            }
        });
        registry
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The same place under another name.
    pub(super) fn other_url(&self) -> String {
        format!("http://localhost:{}", self.port)
    }

    pub(super) fn say(&self, path: &str, said: Said) {
        self.said.lock().expect("no panic").insert(path.to_owned(), said);
    }

    pub(super) fn say_body(&self, path: &str, body: &[u8]) {
        self.say(path, Said::Whole(whole(body)));
    }

    pub(super) fn redirect(&self, path: &str, to: &str) {
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        self.say(path, Said::Whole(head.into()));
    }

    /// The heads of all requests so far.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }

    /// Publishes versions of a package, each an archive with its integrity.
    pub(super) fn publish(&self, name: &str, versions: &[(&str, &[u8])]) {
        let mut published = serde_json::Map::new();
        for (version, archive) in versions {
            let path = format!("/tarballs/{}-{version}.tgz", name.replace('/', "-"));
            self.say_body(&path, archive);
            let dist = json!({"tarball": format!("{}{path}", self.url()), "integrity": integrity(archive)});
            published.insert((*version).to_owned(), json!({"version": version, "dist": dist}));
        }
        let latest = versions.last().expect("a version").0;
        self.say_package(name, &json!({"dist-tags": {"latest": latest}, "versions": published}));
    }

    pub(super) fn say_package(&self, name: &str, document: &Value) {
        let path = format!("/{}", name.replace('/', "%2f"));
        self.say_body(&path, document.to_string().as_bytes());
    }

    /// `beige` that knows no other registry and no other GitHub.
    pub(super) fn run(&self, world: &World, arguments: &[&str]) -> Finished {
        self.command(world, arguments).output().expect("beige runs").into()
    }

    pub(super) fn command(&self, world: &World, arguments: &[&str]) -> Command {
        let mut command = world.beige(arguments);
        for name in ["ALL_PROXY", "all_proxy", "npm_config_registry", "SSL_CERT_FILE"] {
            command.env_remove(name);
        }
        command.env("NPM_CONFIG_REGISTRY", self.url()).env("GITHUB_API_URL", self.url());
        command.env("GITHUB_TOKEN", "ghp-token-of-a-test");
        command
    }
}

pub(super) fn whole(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub(super) fn integrity(archive: &[u8]) -> String {
    format!("sha512-{}", STANDARD.encode(digest(&SHA512, archive)))
}

/// A `.tar.gz` of one folder of a world, under that name.
pub(super) fn packed(world: &World, folder: &Path, top: &str) -> Vec<u8> {
    let file = world.root.join("packed.tgz");
    let (above, name) = (folder.parent().expect("a folder"), folder.file_name().expect("a name"));
    let transform = format!("--transform=s,^{},{top},", name.to_string_lossy());
    let made = Command::new("tar")
        .current_dir(above)
        .args([&transform, "-czf"])
        .arg(&file)
        .arg(name)
        .status();
    assert!(made.expect("tar runs").success());
    fs::read(&file).expect("an archive")
}

fn answer(stream: TcpStream, said: &Mutex<HashMap<String, Said>>, asked: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(1..)) {
                return;
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        asked.lock().expect("no panic").push(head);
        let said = said.lock().expect("no panic").get(&path).cloned();
        let none = || Said::Whole(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec());
        // A peer that leaves in the middle is what some tests are about.
        match said.unwrap_or_else(none) {
            Said::Whole(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
            Said::Begun(bytes) => {
                let _ = stream.write_all(&bytes);
                let _ = reader.read_line(&mut String::new());
                return;
            }
            Said::Endless(bytes) => {
                let _ = stream.write_all(&bytes);
                while stream.write_all(&[b' '; 65536]).is_ok() {}
                return;
            }
        }
    }
}
