//! Whether a provider's server can be reached, for `beige doctor`: the name
//! resolves, it takes the connection, TLS is sound, and one cheap `GET` of its
//! list of models is answered. One request of bounded time and size; it says
//! nothing of the key but whether it was refused.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use serde::Deserialize;
use ureq::http::Response;
use ureq::http::header::CONTENT_TYPE;
use ureq::tls::RootCerts;
use ureq::{Body, Error, Timeout};

use super::http::{Target, certificates, is_distrust};
use super::{Fault, Wire, ends};
use crate::config::{Endpoint, Provider, Reach, Timeouts};
use crate::message::read_json;

/// How long a name or a connection may take, whatever longer time the
/// configuration grants.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long an answer may take; the backstop of a connection comes on top.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// How long all of it may take: a server can send a byte now and then for ever.
const WHOLE: Duration = Duration::from_secs(30);

/// Bytes of a list of models that are read.
const LONGEST_LIST: u64 = 1024 * 1024;

/// Bytes of an error that are read.
const LONGEST_ERROR: u64 = 8 * 1024;

/// What a look at a provider shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// There is no server to be reached: it plays a cassette.
    NoServer,
    /// It answered 200, and these are the models it lists; `None` if what it
    /// answered is no such list.
    Answers(Option<Vec<String>>),
    /// It answered 200 with a page for people: most likely there is no API at
    /// this address.
    Page,
    /// It answered 401 or 403, or 400 and that it is for the key: it is there,
    /// and takes no call with this key.
    KeyRefused(u16),
    /// It answered something else: it is there, and may know no list of models.
    Reached(u16),
    /// It was not reached.
    Failed(Obstacle, String),
}

/// What kept a server from being reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The name has no address.
    Name,
    /// Nobody takes the connection, or the proxy does not pass it on.
    Connection,
    /// The connection is not secure: certificate, protocol.
    Tls,
    /// It takes connections and does not answer.
    Silence,
    /// Something of the configuration is not usable, such as the file of
    /// certificates.
    Setting,
}

/// Looks at the provider of that name; takes at most a minute or so.
pub fn probe(name: &str, provider: &Provider) -> Probe {
    probe_within(name, provider, WHOLE)
}

fn probe_within(name: &str, provider: &Provider, whole: Duration) -> Probe {
    let Reach::Endpoint(endpoint) = &provider.reach else { return Probe::NoServer };
    let (dialect, _) = ends(name, provider);
    let target = Target::new(name, &hurried(endpoint), dialect.key_header());
    let question = dialect.question(target.url());
    match sets_of_roots(endpoint) {
        Err(what) => Probe::Failed(Obstacle::Setting, what),
        Ok(mut sets) => loop {
            let roots = sets.pop().unwrap_or(RootCerts::WebPki);
            let found = ask(&target, &question, roots, whole);
            let is_distrusted = matches!(found, Probe::Failed(Obstacle::Tls, _));
            if !is_distrusted || sets.is_empty() {
                return found;
            }
        },
    }
}

/// The same server, asked by somebody with less time.
fn hurried(endpoint: &Endpoint) -> Endpoint {
    let connect = endpoint.timeouts.connect.min(PATIENCE);
    let timeouts = Timeouts { connect, first_byte: ANSWERS_WITHIN, idle: ANSWERS_WITHIN };
    Endpoint { timeouts, ..endpoint.clone() }
}

/// Whom to trust, the last of them first: as by a call.
fn sets_of_roots(endpoint: &Endpoint) -> Result<Vec<RootCerts>, String> {
    let mut sets = vec![RootCerts::WebPki];
    if let Some(path) = &endpoint.ca_file {
        sets.push(RootCerts::from(certificates(path)?));
    }
    Ok(sets)
}

fn ask(target: &Target, question: &Wire, roots: RootCerts, whole: Duration) -> Probe {
    let unusable = |fault| Probe::Failed(Obstacle::Setting, target.mask(fault).to_string());
    let (agent, question) = match (target.agent(roots), target.question(question)) {
        (Ok(agent), Ok(question)) => (agent, question),
        (Err(fault), _) | (_, Err(fault)) => return unusable(fault),
    };
    let question = agent.configure_request(question).timeout_global(Some(whole)).build();
    let began = Instant::now();
    match agent.run(question) {
        Ok(mut response) => match response.status().as_u16() {
            200 => answered(&mut response),
            status @ (401 | 403) => Probe::KeyRefused(status),
            400 if names_key(response.body_mut().as_reader()) => Probe::KeyRefused(400),
            status => Probe::Reached(status),
        },
        Err(error) => {
            let what = target.mask(Fault::Unavailable(cause(&error, began.elapsed()))).to_string();
            Probe::Failed(obstacle(&error), what)
        }
    }
}

/// What an answer of 200 holds.
fn answered(response: &mut Response<Body>) -> Probe {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    if kind.is_some_and(|it| it.to_ascii_lowercase().starts_with("text/html")) {
        return Probe::Page;
    }
    models(response.body_mut().as_reader())
}

/// Without ureq's `io:` before it, which says nothing to a person. The limits
/// are those of this look, and not the configuration's.
fn cause(error: &Error, waited: Duration) -> String {
    let within = format!("within {:.0} s", waited.as_secs_f64());
    match error {
        Error::Io(error) => error.to_string(),
        Error::Timeout(Timeout::Resolve) => format!("no address of its name {within}"),
        Error::Timeout(Timeout::Connect) => format!("no connection {within}"),
        Error::Timeout(_) => format!("no answer {within}"),
        other => other.to_string(),
    }
}

/// Whether an error is Google's for a key that it does not know.
fn names_key(body: impl Read) -> bool {
    let mut error = Vec::new();
    // What came of it is enough.
    let _ = body.take(LONGEST_ERROR).read_to_end(&mut error);
    String::from_utf8_lossy(&error).contains("API_KEY_INVALID")
}

/// The ids of a list of models, if it is one and comes to an end. Google's has
/// other words.
fn models(body: impl Read) -> Probe {
    #[derive(Deserialize)]
    struct List {
        #[serde(alias = "models")]
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        #[serde(alias = "name")]
        id: String,
    }
    let mut text = Vec::new();
    if body.take(LONGEST_LIST).read_to_end(&mut text).is_err() {
        return Probe::Failed(Obstacle::Silence, "its list of models breaks off".into());
    }
    if text.trim_ascii_start().starts_with(b"<") {
        return Probe::Page;
    }
    let list = read_json::<List>(&text).ok();
    Probe::Answers(list.map(|it| it.data.into_iter().map(|it| it.id).collect()))
}

fn obstacle(error: &Error) -> Obstacle {
    match error {
        _ if is_distrust(error) => Obstacle::Tls,
        Error::HostNotFound | Error::Timeout(Timeout::Resolve) => Obstacle::Name,
        Error::ConnectionFailed
        | Error::ConnectProxyFailed(_)
        | Error::Timeout(Timeout::Connect) => Obstacle::Connection,
        Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::TimedOut => {
                Obstacle::Silence
            }
            // What the kernel refuses has a number; what no name server knows
            // has none.
            _ if error.raw_os_error().is_none() => Obstacle::Name,
            _ => Obstacle::Connection,
        },
        Error::Http(_) | Error::BadUri(_) | Error::InvalidProxyUrl => Obstacle::Setting,
        _ => Obstacle::Silence,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::config::Api;
    use crate::secret::Secret;
    use crate::worker::Worker;

    fn provider(base_url: String) -> Provider {
        let second = Duration::from_secs(10);
        let endpoint = Endpoint {
            base_url,
            api_key: Some(Secret::new("sk-very-secret")),
            headers: vec![("X-Team".into(), Secret::new("red"))],
            ca_file: None,
            proxy: None,
            timeouts: Timeouts { connect: second, first_byte: second, idle: second },
        };
        let reach = Reach::Endpoint(Box::new(endpoint));
        Provider {
            api: Api::OpenAiCompletions,
            reach,
            concurrency: None,
            models: BTreeMap::new(),
            record: None,
        }
    }

    /// What is found at a server that answers each request with these bytes,
    /// and what it was asked last.
    fn against(answer: &'static str) -> (Probe, String) {
        against_in(Api::OpenAiCompletions, answer)
    }

    /// The same with a server of that protocol.
    fn against_in(api: Api, answer: &'static str) -> (Probe, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (asked, heard) = crossbeam_channel::bounded(1);
        let server = Worker::spawn("server", move || {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|it| it > 0) {
                head.push(byte[0]);
            }
            let _ = stream.write_all(answer.as_bytes());
            let _ = asked.send(String::from_utf8_lossy(&head).into_owned());
        });
        let provider = Provider { api, ..provider(format!("http://{address}/v1")) };
        let probe = probe("p", &provider);
        let head = heard.recv().expect("a request");
        drop(server);
        (probe, head)
    }

    #[test]
    fn a_list_of_models_is_read() {
        let (probe, head) = against(
            "HTTP/1.1 200 OK\r\nContent-Length: 38\r\n\r\n{\"data\":[{\"id\":\"m1\",\"x\":1},{\"id\":\"m2\"}]}",
        );
        assert!(head.starts_with("GET /v1/models HTTP/1.1\r\n"), "{head}");
        let head = head.to_lowercase();
        assert!(head.contains("authorization: bearer sk-very-secret\r\n"), "{head}");
        assert!(head.contains("x-team: red\r\n"), "{head}");
        assert!(matches!(probe, Probe::Answers(_)), "{probe:?}");
    }

    #[test]
    fn each_protocol_is_asked_in_its_own_words() {
        let list = "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{\"data\":[{\"id\":\"m1\"}]}";
        let (probe, head) = against_in(Api::AnthropicMessages, list);
        assert!(head.starts_with("GET /v1/models?limit=1000 HTTP/1.1\r\n"), "{head}");
        let head = head.to_lowercase();
        assert!(head.contains("x-api-key: sk-very-secret\r\n"), "{head}");
        assert!(head.contains("anthropic-version: 2023-06-01\r\n"), "{head}");
        assert_eq!(probe, Probe::Answers(Some(vec!["m1".into()])));
        let list =
            "HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{\"models\":[{\"name\":\"models/m1\"}]}";
        let (probe, head) = against_in(Api::GoogleGenerativeAi, list);
        assert!(head.starts_with("GET /v1/models?pageSize=1000 HTTP/1.1\r\n"), "{head}");
        assert!(head.to_lowercase().contains("x-goog-api-key: sk-very-secret\r\n"), "{head}");
        assert_eq!(probe, Probe::Answers(Some(vec!["models/m1".into()])));
        let refused =
            "HTTP/1.1 400 No\r\nContent-Length: 28\r\n\r\n{\"reason\":\"API_KEY_INVALID\"}";
        let (probe, _) = against_in(Api::GoogleGenerativeAi, refused);
        assert_eq!(probe, Probe::KeyRefused(400));
    }

    #[track_caller]
    fn check(answer: &'static str, want: Probe) {
        assert_eq!(against(answer).0, want, "{answer}");
    }

    #[test]
    fn each_answer_says_how_far_one_came() {
        check("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", Probe::KeyRefused(401));
        check("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", Probe::KeyRefused(403));
        check("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", Probe::Reached(404));
        check("HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\nno", Probe::Reached(400));
        // Followed, it would carry the key to whoever is named.
        let redirect =
            "HTTP/1.1 302 To\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
        check(redirect, Probe::Reached(302));
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Probe::Answers(None));
        let typed = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\
                     Content-Length: 2\r\n\r\nhi";
        check(typed, Probe::Page);
        let untyped = "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n\n <!DOCTYPE html>...";
        check(untyped, Probe::Page);
        let listed = "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{\"data\":[{\"id\":\"m1\"}]}";
        check(listed, Probe::Answers(Some(vec!["m1".into()])));
    }

    #[track_caller]
    fn check_failed(provider: &Provider, want: Obstacle) {
        let got = probe("p", provider);
        assert!(matches!(&got, Probe::Failed(it, _) if *it == want), "{got:?} is not {want:?}");
        assert!(!format!("{got:?}").contains("sk-very"), "{got:?}");
    }

    #[test]
    fn an_answer_that_drips_for_ever_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Worker::spawn("server", move || {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            // Ends with its client; for one that waits, some day.
            let pace = crossbeam_channel::tick(Duration::from_millis(10));
            let _ = pace.iter().take(1000).try_for_each(|_| stream.write_all(b" "));
        });
        let provider = provider(format!("http://{address}/v1"));
        let found = probe_within("p", &provider, Duration::from_millis(200));
        assert!(matches!(found, Probe::Failed(Obstacle::Silence, _)), "{found:?}");
        drop(server);
    }

    #[test]
    fn a_server_that_hangs_is_told_with_how_long_it_was_waited_for() {
        // The kernel takes the connection, and nobody answers.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let provider = provider(format!("http://{address}/v1"));
        let found = probe_within("p", &provider, Duration::from_millis(200));
        let Probe::Failed(Obstacle::Silence, why) = &found else { panic!("{found:?}") };
        assert!(why.contains("no answer within ") && why.ends_with(" s"), "{why}");
    }

    #[test]
    fn what_stands_in_the_way_is_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        check_failed(&provider(format!("http://{address}")), Obstacle::Connection);
        // A label so long is in no name server, and none is asked.
        check_failed(&provider(format!("http://{}.invalid", "x".repeat(64))), Obstacle::Name);
        let mut missing = provider(format!("https://{address}"));
        if let Reach::Endpoint(endpoint) = &mut missing.reach {
            endpoint.ca_file = Some("/nonexistent/ca.pem".into());
        }
        check_failed(&missing, Obstacle::Setting);
    }

    #[test]
    fn a_server_without_tls_is_told_as_such() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Worker::spawn("server", move || {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.read_to_end(&mut Vec::new());
        });
        check_failed(&provider(format!("https://{address}")), Obstacle::Tls);
        drop(server);
    }
}
