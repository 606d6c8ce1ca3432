//! Whom a connection trusts: files of certificates, what speaks no TLS, and the
//! TLS server of openssl.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A folder with two authorities and a server's certificate by the first.
struct Keys(PathBuf);

impl Keys {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("beige-tls-{}-{number}", std::process::id());
        let keys = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&keys.0).expect("a folder");
        keys.make("first", &["-x509", "-subj", "/CN=first"]);
        keys.make("second", &["-x509", "-subj", "/CN=second"]);
        let by = ["-x509", "-CA", "first.pem", "-CAkey", "first.key", "-subj", "/CN=localhost"];
        let of = ["-addext", "subjectAltName=IP:127.0.0.1"];
        let is_leaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
        keys.make("server", &[by.as_slice(), &of, &is_leaf].concat());
        keys
    }

    fn make(&self, name: &str, more: &[&str]) {
        let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
        let of_curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let made = Command::new("openssl")
            .current_dir(&self.0)
            .arg("req")
            .args(of_curve)
            .args(["-days", "2", "-keyout", &key, "-out", &certificate])
            .args(more)
            .output()
            .expect("openssl, which this test needs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `openssl s_server`, and a thread that speaks through it.
struct TlsServer {
    child: Child,
    port: String,
    // Joined once the child's pipes are closed.
    _thread: Worker,
}

impl TlsServer {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new("openssl")
            .current_dir(folder)
            .args(["s_server", "-accept", "127.0.0.1:0"])
            .args(["-cert", "server.pem", "-key", "server.key"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl, which this test needs");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let input = child.stdin.take().expect("its input");
        let mut line = String::new();
        while !line.starts_with("ACCEPT ") {
            line.clear();
            assert!(output.read_line(&mut line).is_ok_and(|it| it > 0), "it accepts nothing");
        }
        let port = line.trim().rsplit(':').next().unwrap_or_default().to_owned();
        let thread = Worker::spawn("test-tls", move || answer(output, input));
        Self { child, port, _thread: thread.expect("a thread") }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}/v1", self.port)
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers each request; its body is how one is known among what openssl says.
fn answer(mut output: BufReader<ChildStdout>, mut input: ChildStdin) {
    let mut seen = Vec::new();
    let mut piece = [0; 1024];
    while let Ok(read @ 1..) = output.read(&mut piece) {
        seen.extend(&piece[..read]);
        if String::from_utf8_lossy(&seen).contains("{\"question\":1}") {
            seen.clear();
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsafe.\n";
            let _ = input.write_all(answer.as_bytes());
        }
    }
}

#[test]
fn an_authority_of_ones_own_is_trusted_only_by_its_file() {
    let keys = Keys::new();
    let server = TlsServer::start(&keys.0);
    let mut endpoint = endpoint(server.url());
    check_fault(ask(&pool(&endpoint)), "unavailable", "`llm.providers.p.caFile`");
    endpoint.ca_file = Some(keys.path("second.pem"));
    check_fault(ask(&pool(&endpoint)), "unavailable", "neither the authorities");
    endpoint.ca_file = Some(keys.path("first.pem"));
    let pool = pool(&endpoint);
    assert_eq!(ask(&pool), Ok("safe".into()));
    assert_eq!(ask(&pool), Ok("safe".into()));
}

#[test]
fn who_speaks_another_protocol_trusts_the_file_alone() {
    let keys = Keys::new();
    let server = TlsServer::start(&keys.0);
    let mut endpoint = endpoint(format!("{}/k3y?k=1", server.url()));
    let ask = |endpoint: &Endpoint| {
        let client = Client::new(endpoint);
        let answer = client.agent()?.post(client.url()).send("{\"question\":1}");
        let read = |mut it: Response<Body>| it.body_mut().read_to_string();
        answer.and_then(read).map_err(|it| client.told(&it))
    };
    let said = ask(&endpoint).err().unwrap_or_default();
    assert!(said.contains("is not trusted at https://127.0.0.1:"), "{said}");
    assert!(said.contains("`caFile`") && !said.contains("k3y"), "{said}");
    endpoint.ca_file = Some(keys.path("second.pem"));
    assert!(ask(&endpoint).is_err());
    endpoint.ca_file = Some(keys.path("first.pem"));
    assert_eq!(ask(&endpoint).as_deref(), Ok("safe.\n"));
}

#[test]
fn both_sets_are_tried_where_there_are_two() {
    let mut endpoint = endpoint("https://127.0.0.1:1/v1".into());
    let key_header = ("Authorization", "Bearer ");
    let target = Target::new("p", &endpoint, key_header);
    let mut roots = Roots::first(&target);
    assert_eq!((roots, roots.turn(&target), roots), (Roots::BuiltIn, false, Roots::BuiltIn));
    endpoint.ca_file = Some("ca.pem".into());
    let target = Target::new("p", &endpoint, key_header);
    let mut roots = Roots::first(&target);
    assert_eq!((roots, roots.turn(&target), roots), (Roots::OfFile, true, Roots::BuiltIn));
    assert_eq!((roots.turn(&target), roots), (true, Roots::OfFile));
}

#[track_caller]
fn check_file(text: &str, part: &str) {
    let path = std::env::temp_dir().join(format!("beige-ca-{}-{}", std::process::id(), text.len()));
    std::fs::write(&path, text).expect("write a file");
    let got = certificates(&path).map(|it| it.len());
    let _ = std::fs::remove_file(&path);
    match got {
        Ok(count) => assert_eq!(count.to_string(), part),
        Err(what) => assert!(what.contains(part) && what.contains("beige-ca-"), "{what}"),
    }
}

#[test]
fn a_file_without_certificates_is_named() {
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    check_file(&format!("{pem}# and\n{pem}"), "2");
    check_file("", "holds no certificate");
    check_file("hello", "holds no certificate");
    check_file("-----BEGIN CERTIFICATE-----\nAAAA\n", "no PEM file");
    let got = certificates(&PathBuf::from("/nonexistent/ca.pem")).map(|it| it.len());
    assert!(got.is_err_and(|it| it.contains("/nonexistent/ca.pem cannot be read")));
    let got = certificates(&std::env::temp_dir()).map(|it| it.len());
    assert!(got.is_err_and(|it| it.contains("not a file")));
}

#[test]
fn a_file_that_is_gone_at_the_call_is_our_fault() {
    let mut endpoint = endpoint("https://model.test/v1".into());
    endpoint.ca_file = Some("/nonexistent/ca.pem".into());
    check_fault_of_ours(ask(&pool(&endpoint)), "`llm.providers.p.caFile`");
}

#[track_caller]
fn check_fault_of_ours(got: Result<String, Fault>, part: &str) {
    assert!(matches!(&got, Err(Fault::Ours(it)) if it.contains(part)), "{got:?}");
}

#[test]
fn what_speaks_no_tls_is_named() {
    let server = Server::start(|_, peer| {
        peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        peer.wait_for_the_end();
    });
    let url = server.url().replace("http:", "https:");
    check_fault(ask(&pool(&endpoint(url))), "unavailable", "no secure connection");
}
