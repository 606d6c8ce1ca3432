//! Whole calls: a registry, its dialects and pools, a cassette or a server.

pub(super) mod asked;
pub(super) mod histories;
pub(super) mod hostile;
pub(super) mod reading;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::http::tests::server::Server;
use super::*;
use crate::config::Findings;
use crate::config::{Endpoint, Price, Timeouts};
use crate::secret::Secret;

const PATIENT: Duration = Duration::from_secs(60);

/// A file of its own.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("beige-provider-{}-{name}", std::process::id());
        let scratch = Self(std::env::temp_dir().join(name));
        std::fs::write(&scratch.0, text).expect("write a file");
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn replay(cassette: &Scratch) -> Registry {
    let provider = config::Provider {
        api: Api::Replay,
        reach: Reach::Cassette(cassette.0.clone()),
        concurrency: NonZeroUsize::new(1),
        models: BTreeMap::new(),
        record: None,
    };
    Registry::new(&BTreeMap::from([("p".to_owned(), provider)]))
}

fn endpoint(base_url: String) -> Endpoint {
    Endpoint {
        base_url,
        api_key: Some(Secret::new("sk-0123456789")),
        headers: Vec::new(),
        ca_file: None,
        proxy: None,
        timeouts: Timeouts { connect: PATIENT, first_byte: PATIENT, idle: PATIENT },
    }
}

fn server(endpoint: Endpoint) -> Registry {
    let cost = Price { input: 1.0, output: 2.0, ..Price::default() };
    let facts = ModelFacts { cost: Some(cost), ..ModelFacts::default() };
    let provider = config::Provider {
        api: Api::OpenAiCompletions,
        reach: Reach::Endpoint(Box::new(endpoint)),
        concurrency: None,
        models: BTreeMap::from([("m".to_owned(), facts)]),
        record: None,
    };
    Registry::new(&BTreeMap::from([("p".to_owned(), provider)]))
}

fn model() -> ModelRef {
    ModelRef { provider: "p".into(), model: "m".into() }
}

fn ask(registry: &Registry, inactivity: Duration, cancel: &Cancel) -> Result<Answer, Fault> {
    let model = model();
    let facts = registry.facts(&model);
    let said = [Message::user("hi", clock::now())];
    let request = Request::new(&model, &facts, &said);
    registry.call(&request, inactivity, cancel, &mut |_: &Delta| ()).map_err(|it| it.fault)
}

#[test]
fn a_provider_that_is_not_there_is_our_fault() {
    let got = ask(&Registry::new(&BTreeMap::new()), PATIENT, &Cancel::never());
    assert_eq!(got, Err(Fault::Ours("there is no provider `p`".into())));
}

#[test]
fn a_cassette_is_played_by_the_workers_of_its_provider() {
    let tape = Scratch::new("tape", "{\"events\":[{\"text\":\"hello\"}]}\n");
    let registry = replay(&tape);
    for _ in 0..2 {
        let got = ask(&registry, PATIENT, &Cancel::never());
        assert_eq!(got.map(|it| it.message.text()), Ok("hello".into()));
    }
    let load = registry.load();
    let [load] = load.as_slice() else { panic!("{load:?}") };
    assert_eq!((load.provider.as_str(), load.limit), ("p", NonZeroUsize::new(1)));
    assert_eq!((load.calls, load.workers, load.running, load.queued), (2, 1, 0, 0));
    assert_eq!(registry.api_name(&model()), "replay");
}

#[test]
fn a_cassette_that_waits_is_called_off_at_once() {
    let tape = Scratch::new("waits", "{\"delayMs\":600000,\"events\":[]}\n");
    let registry = replay(&tape);
    let (canceller, cancel) = Cancel::pair();
    let caller = crate::worker::Worker::spawn("test", move || canceller.cancel());
    assert_eq!(ask(&registry, PATIENT, &cancel), Err(Fault::Cancelled));
    drop(caller);
    let got = ask(&registry, Duration::from_millis(20), &Cancel::never());
    assert!(matches!(got, Err(Fault::Inactive(_))), "{got:?}");
}

#[test]
fn an_answer_says_its_protocol_and_what_it_cost() {
    let events = [
        r#"{"choices":[{"index":0,"delta":{"content":"hello"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":500}}"#,
        "[DONE]",
    ];
    let answer: String = events.iter().map(|it| format!("data: {it}\n\n")).collect();
    let server_of_test = Server::start(move |_, peer| {
        while peer.request().is_some() {
            peer.answer(&answer);
        }
    });
    let registry = server(endpoint(server_of_test.url()));
    let got = ask(&registry, PATIENT, &Cancel::never()).map(|it| it.message);
    let got = got.map(|it| (it.text(), it.api, it.usage.output, it.usage.cost.total));
    assert_eq!(got, Ok(("hello".into(), "openai-completions".into(), 500, 0.002)));
    assert!(ask(&registry, PATIENT, &Cancel::never()).is_ok());
    assert_eq!(server_of_test.connections(), 1);
}

#[test]
fn an_answer_without_its_end_names_the_provider() {
    let server_of_test = Server::start(|_, peer| {
        peer.request();
        peer.answer("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n");
    });
    let got = ask(&server(endpoint(server_of_test.url())), PATIENT, &Cancel::never());
    assert!(matches!(&got, Err(Fault::Cut(it)) if it.contains("`p`")), "{got:?}");
}

#[track_caller]
fn check_finding(registry: &Registry, want: &[&str]) {
    let mut findings = Findings::default();
    registry.examine(&mut findings);
    let lines: Vec<String> = findings.lines().collect();
    assert_eq!(lines.len(), want.len(), "{lines:?}");
    for (line, part) in lines.iter().zip(want) {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn what_keeps_a_provider_from_answering_is_found() {
    let tape = Scratch::new("bad", "nope\n");
    check_finding(&replay(&tape), &["llm.providers.p.cassette"]);
    let mut endpoint = endpoint("https://model.test/v1".into());
    check_finding(&server(endpoint.clone()), &[]);
    endpoint.ca_file = Some(tape.0.clone());
    check_finding(&server(endpoint), &["llm.providers.p.caFile"]);
}
