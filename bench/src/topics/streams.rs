//! Streams of a turn: how much later than the model said it a word arrives,
//! and how many events a second pass. The model stamps each word with the time
//! at which it is written; both ends are this process, so it is one clock.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::arguments::Options;
use crate::figures::{Row, Spread, Unit};
use crate::house::{House, Runtime};
use crate::model::{self, Pace};
use crate::rounds::milliseconds;
use crate::{Result, http};

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let paced = Pace { events: options.rounds(500), pause: Duration::from_millis(2) };
    let mut house = House::paced(options, Runtime::Bubblewrap, 1, paced)?;
    house.start()?;
    listen(&house, 0)?;
    let late = Spread::of(listen(&house, 0)?.late).ok_or("no event came")?;
    let mut rows = vec![Row::new("one stream: an event is later by", Unit::Milliseconds, late)];
    let crowded: Vec<f64> = at_once(&house, 10)?.into_iter().flat_map(|it| it.late).collect();
    let late = Spread::of(crowded).ok_or("no event came")?;
    rows.push(Row::new("10 streams: an event is later by", Unit::Milliseconds, late));
    drop(house);

    let flood = Pace { events: options.rounds(20_000), pause: Duration::ZERO };
    let mut house = House::paced(options, Runtime::Bubblewrap, 1, flood)?;
    house.start()?;
    for streams in [1, 10] {
        let begun = Instant::now();
        let heard = at_once(&house, streams)?;
        let events: usize = heard.iter().map(|it| it.late.len()).sum();
        let rate = events as f64 / begun.elapsed().as_secs_f64();
        rows.push(Row::once(format!("{streams} streams: events"), Unit::PerSecond, rate));
    }
    Ok(rows)
}

/// What one listener heard.
struct Heard {
    /// Milliseconds by which each event was late.
    late: Vec<f64>,
}

fn at_once(house: &House, streams: usize) -> Result<Vec<Heard>> {
    thread::scope(|scope| {
        let listeners: Vec<_> =
            (0..streams).map(|number| scope.spawn(move || listen(house, number))).collect();
        let heard = listeners.into_iter().map(|it| it.join().map_err(|_| "a thread panicked")?);
        heard.collect()
    })
}

/// Prompts the agent and listens to the end of the turn.
fn listen(house: &House, number: usize) -> Result<Heard> {
    let body = json!({"message": "go", "sessionKey": format!("api:{number}")});
    let mut lines = http::post_stream(&house.api(), "/api/agents/a1/prompt/stream", &body)?;
    let mut heard = Heard { late: Vec::new() };
    while let Some((event, at)) = next_event(&mut lines)? {
        match event["type"].as_str() {
            Some("text_delta") => {
                let text = event["delta"].as_str().unwrap_or_default();
                heard.late.extend(lateness(text, at));
            }
            Some("done") => return Ok(heard),
            Some("error") => return Err(event.to_string().into()),
            _ => {}
        }
    }
    Err(format!("the stream was cut after {} events", heard.late.len()).into())
}

/// The next event, and when it came.
fn next_event(lines: &mut BufReader<UnixStream>) -> Result<Option<(Value, u64)>> {
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let at = model::now();
        // An empty line is a sign of life.
        if line.len() > 1 {
            return Ok(Some((serde_json::from_str(&line)?, at)));
        }
    }
}

/// How late each word of an event is; one event may have several.
pub(super) fn lateness(text: &str, at: u64) -> Vec<f64> {
    let words = text.split_whitespace();
    let said = words.filter_map(|it| it.parse::<u64>().ok());
    said.map(|it| milliseconds(Duration::from_nanos(at.saturating_sub(it)))).collect()
}
