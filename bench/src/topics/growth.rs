//! What grows with the number of agents, of stored sessions, and with the
//! length of a conversation: a prompt, a command, the start and the idle
//! memory, each at ten times the size before. All houses stand side by side
//! and are asked in turns.

use std::fs;
use std::io::{BufWriter, Write};
use std::time::Instant;

use serde_json::{Map, json};

use crate::arguments::Options;
use crate::figures::{Row, Spread, Unit};
use crate::house::{House, Runtime};
use crate::http::Frames;
use crate::process::{self, mebibytes};
use crate::rounds::{self, Variant, milliseconds};
use crate::{Result, http};

/// A word of each name that says what grows, in the order of the table.
const DIMENSIONS: [&str; 3] = ["agents", "stored", "kB"];

/// The session that is prompted.
const KEY: &str = "api:prompted";

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let mut houses = houses(options)?;
    let mut rows = rounds::rows(options.rounds(15), each(&houses, "a prompt", prompt))?;
    rows.extend(rounds::rows(options.rounds(15), each(&houses, "a command", exec))?);
    for (_, house) in &mut houses {
        house.stop()?;
    }
    rows.extend(starts(options.rounds(5), &mut houses)?);
    for (what, house) in &mut houses {
        house.start()?;
        prompt(house)?;
        let memory = mebibytes(process::look(house.pid()?)?.resident);
        rows.push(Row::once(format!("memory after a prompt, {what}"), Unit::Mebibytes, memory));
    }
    // What is to be compared stands one below the other.
    rows.sort_by_key(|row| DIMENSIONS.iter().position(|it| row.what.contains(it)));
    Ok(rows)
}

/// A house of each size, its gateway running.
fn houses(options: &Options) -> Result<Vec<(String, House)>> {
    let mut houses = Vec::new();
    for agents in [1, 10, 100] {
        let house = House::new(options, Runtime::Bubblewrap, agents)?;
        houses.push((format!("{agents} agents"), house));
    }
    for sessions in [10, 100, 1000, 10_000] {
        let house = House::new(options, Runtime::Bubblewrap, 1)?;
        store_sessions(&house, sessions)?;
        houses.push((format!("{sessions} stored sessions"), house));
    }
    for kilobytes in [1, 10, 100, 1000, 10_000] {
        let house = House::new(options, Runtime::Bubblewrap, 1)?;
        store_history(&house, kilobytes * 1000)?;
        houses.push((format!("a conversation of {kilobytes} kB"), house));
    }
    for (_, house) in &mut houses {
        house.start()?;
    }
    Ok(houses)
}

fn each<'a>(
    houses: &'a [(String, House)],
    what: &str,
    act: fn(&House) -> Result<std::time::Duration>,
) -> Vec<Variant<'a>> {
    let variant = |(name, house): &'a (String, House)| {
        Variant::timed(format!("{what}, {name}"), move || act(house))
    };
    houses.iter().map(variant).collect()
}

fn prompt(house: &House) -> Result<std::time::Duration> {
    let body = json!({"message": "go", "sessionKey": KEY});
    let begun = Instant::now();
    http::post(&house.api(), "/api/agents/a1/prompt", &body)?.sound()?;
    Ok(begun.elapsed())
}

fn exec(house: &House) -> Result<std::time::Duration> {
    let mut frames = Frames::open(&house.api(), "a1")?;
    let begun = Instant::now();
    frames.run(&["true"])?;
    Ok(begun.elapsed())
}

fn starts(rounds: usize, houses: &mut [(String, House)]) -> Result<Vec<Row>> {
    let mut times = vec![Vec::new(); houses.len()];
    for _ in 0..rounds {
        for ((_, house), times) in houses.iter_mut().zip(&mut times) {
            times.push(milliseconds(house.start()?.answering));
            house.stop()?;
        }
    }
    let named = houses.iter().zip(times);
    let row = |((name, _), times): (&(String, House), _)| {
        Some(Row::new(format!("start, {name}"), Unit::Milliseconds, Spread::of(times)?))
    };
    Ok(named.filter_map(row).collect())
}

/// Stores so many conversations of a few words, each with a key.
fn store_sessions(house: &House, count: usize) -> Result<()> {
    let mut map = Map::new();
    for number in 0..count {
        let key = format!("api:{number}");
        map.insert(key.clone(), store(house, &key, number, 300)?);
    }
    write_map(house, map)
}

/// Stores one conversation of about so many bytes under [`KEY`].
fn store_history(house: &House, bytes: usize) -> Result<()> {
    let mut map = Map::new();
    map.insert(KEY.to_owned(), store(house, KEY, 0, bytes)?);
    write_map(house, map)
}

fn write_map(house: &House, map: Map<String, serde_json::Value>) -> Result<()> {
    let file = house.home().join("sessions/session-map.json");
    Ok(fs::write(file, serde_json::Value::Object(map).to_string())?)
}

/// Writes a session file as docs/sessions.md has it; its entry in the map.
fn store(house: &House, key: &str, number: usize, bytes: usize) -> Result<serde_json::Value> {
    const TIME: &str = "2026-01-01T00:00:00.000Z";
    let folder = house.home().join("sessions/a1");
    fs::create_dir_all(&folder)?;
    let name = format!("20260101-000000-{number:06x}.jsonl");
    let mut file = BufWriter::new(fs::File::create(folder.join(&name))?);
    let header = json!({"type": "session", "version": 3, "id": format!("{number:032x}"),
        "timestamp": TIME, "cwd": "/workspace", "beige": {"key": key}});
    writeln!(file, "{header}")?;
    let text = "some words of a conversation, ".repeat(25.min(bytes / 30));
    let (mut written, mut parent, mut turn) = (200, serde_json::Value::Null, 0);
    while written < bytes || turn % 2 == 1 {
        let id = json!(format!("{turn:08x}"));
        let message = if turn % 2 == 0 {
            json!({"role": "user", "content": text})
        } else {
            json!({"role": "assistant", "content": [{"type": "text", "text": text}],
                "provider": "p", "model": "m", "stopReason": "stop"})
        };
        let entry = json!({"type": "message", "id": id, "parentId": parent, "timestamp": TIME,
            "message": message});
        let line = entry.to_string();
        writeln!(file, "{line}")?;
        (written, parent, turn) = (written + line.len(), id, turn + 1);
    }
    file.flush()?;
    Ok(json!({"agentName": "a1", "sessionFile": name, "createdAt": TIME}))
}
