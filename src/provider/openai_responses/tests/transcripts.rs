//! Whole transcripts of servers (`transcripts/NAME.sse`), each cut at every
//! place, and what is to come of them (`transcripts/NAME.json`): blocks, stop
//! reason and tokens of the answer, or the fault and the blocks so far.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::super::OpenAiResponses;
use crate::clock::Time;
use crate::config::ModelRef;
use crate::message::{Block, Usage};
use crate::provider::assemble::Assembly;
use crate::provider::{Delta, Fault, Provider};

const FOLDER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/provider/openai_responses/tests/transcripts");

/// The deltas of a stream that comes in these pieces, neighbours of one kind
/// joined, then how it ended.
pub(super) fn deltas<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Delta>, Result<bool, Fault>) {
    let mut decoder = OpenAiResponses::new("acme").decoder();
    let mut deltas = Vec::new();
    let mut fed = Ok(());
    for piece in pieces {
        fed = decoder.feed(piece, &mut deltas);
        if fed.is_err() || decoder.is_done() {
            break;
        }
    }
    let ended = fed.and_then(|()| decoder.end(&mut deltas)).map(|()| decoder.is_done());
    let mut joined: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (joined.last_mut(), delta) {
            (Some(Delta::Text(it)), Delta::Text(more)) => it.push_str(&more),
            (Some(Delta::Thinking(it)), Delta::Thinking(more)) => it.push_str(&more),
            (_, delta) => joined.push(delta),
        }
    }
    (joined, ended)
}

/// What comes of a stream, in the words of the data files.
pub(super) fn outcome(stream: &[u8]) -> Value {
    let model = ModelRef { provider: "acme".into(), model: "m".into() };
    let mut assembly = Assembly::new("openai-responses", &model, Time::from_unix_millis(7));
    let (deltas, ended) = deltas([stream]);
    deltas.into_iter().for_each(|it| assembly.take(it));
    let answer = match ended {
        Ok(_) => assembly.finish(),
        Err(fault) => Err(assembly.fail(fault)),
    };
    match answer {
        Err(failure) => json!({"fault": failure.fault.category(),
            "says": failure.fault.to_string(), "content": blocks(&failure.partial.content)}),
        Ok(answer) => {
            let mut came = json!({"content": blocks(&answer.message.content),
                "stopReason": answer.message.stop_reason});
            let Usage { input, output, cache_read, cache_write, .. } = answer.message.usage;
            if answer.message.usage != Usage::default() {
                came["usage"] = json!([input, output, cache_read, cache_write]);
            }
            if !answer.broken.is_empty() {
                came["broken"] = json!(answer.broken.len());
            }
            came
        }
    }
}

fn blocks(blocks: &[Block]) -> Value {
    serde_json::to_value(blocks).unwrap()
}

#[track_caller]
fn check(name: &str, stream: &[u8], want: &Value) {
    let mut got = outcome(stream);
    let says = want["says"].as_str().unwrap_or_default();
    let said = got["says"].as_str().unwrap_or_default();
    assert!(said.contains(says), "{name}: {said}");
    if !says.is_empty() {
        got["says"] = json!(says);
    }
    assert_eq!(got, *want, "{name}");
    let whole = deltas([stream]);
    for size in [1, 2, 3, 7, 64] {
        assert_eq!(deltas(stream.chunks(size)), whole, "{name} in pieces of {size}");
    }
    for place in 1..stream.len() {
        let (first, second) = stream.split_at(place);
        assert_eq!(deltas([first, second]), whole, "{name} cut at {place}");
    }
}

#[test]
fn every_transcript_reads_the_same_wherever_it_is_cut() {
    let mut count = 0;
    for entry in fs::read_dir(FOLDER).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "sse") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let want = fs::read_to_string(Path::new(FOLDER).join(name.clone() + ".json")).unwrap();
            check(&name, &fs::read(&path).unwrap(), &serde_json::from_str(&want).unwrap());
            count += 1;
        }
    }
    assert!(count > 15, "only {count} transcripts");
}
