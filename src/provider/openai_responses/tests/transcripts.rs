//! Whole transcripts of servers (`transcripts/NAME.sse`), each cut at every
//! place, and what is to come of them (`transcripts/NAME.json`): blocks, stop
//! reason and tokens of the answer, or the fault and the blocks so far.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::super::OpenAiResponses;
use crate::message::{Block, Usage};
use crate::provider::Provider;
use crate::provider::tests::reading::Reading;

const FOLDER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/provider/openai_responses/tests/transcripts");

pub(super) const READING: Reading =
    Reading { api: "openai-responses", decoder: || OpenAiResponses::new("acme").decoder() };

/// What comes of a stream, in the words of the data files.
pub(super) fn outcome(stream: &[u8]) -> Value {
    match READING.stored(READING.of([stream])) {
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
    drop(READING.however_cut(stream));
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
