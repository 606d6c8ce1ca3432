//! One answer through the gateway, `POST /api/chat/stream`, beside the same
//! answer of the same model server without one: how much later the first word
//! and each event come, how many events a second pass, and what many streams
//! and long ones take of memory.

use std::io::BufRead;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::memory;
use super::streams::lateness;
use crate::arguments::Options;
use crate::crowd::watched;
use crate::direct::Direct;
use crate::figures::{Row, Spread, Unit};
use crate::house::{House, Runtime};
use crate::model::{self, Pace};
use crate::rounds::milliseconds;
use crate::{Result, http, process};

const PATH: &str = "/api/chat/stream";

/// Streams at the same time.
const MANY: usize = 200;

/// Stack of one of many threads, in bytes.
const SMALL_STACK: usize = 256 * 1024;

/// What was heard of answers, in milliseconds.
#[derive(Default)]
struct Heard {
    /// From the request to the first word, one an answer.
    first: Vec<f64>,
    /// By how much each word was late.
    late: Vec<f64>,
}

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let mut rows = added(options)?;
    rows.extend(rates(options)?);
    rows.extend(long_with_partial(options)?);
    rows.extend(many(options)?);
    Ok(rows)
}

/// Answers in turns, one through the gateway and one without it.
fn added(options: &Options) -> Result<Vec<Row>> {
    let pace = Pace { events: 20, pause: Duration::from_millis(2) };
    let mut house = House::paced(options, Runtime::Bubblewrap, 1, pace)?;
    house.start()?;
    let mut direct = Direct::open(&model::serve(pace)?)?;
    let (mut without, mut through) = (Heard::default(), Heard::default());
    for round in 0..=options.rounds(200) {
        if round == 1 {
            // What the first one costs once is nobody's added time.
            (without, through) = (Heard::default(), Heard::default());
        }
        if round % 2 == 0 {
            ask_directly(&mut direct, &mut without)?;
            ask_through(&house, &mut through)?;
        } else {
            ask_through(&house, &mut through)?;
            ask_directly(&mut direct, &mut without)?;
        }
    }
    let mut rows = compared("the first word", without.first, through.first);
    rows.extend(compared("an event", without.late, through.late));
    Ok(rows)
}

fn ask_directly(direct: &mut Direct, heard: &mut Heard) -> Result<()> {
    let body = json!({"model": "m", "stream": true,
        "messages": [{"role": "system", "content": "sys"}, {"role": "user", "content": "go"}]});
    let begun = Instant::now();
    let mut is_first = true;
    direct.ask(&body, |text| {
        let at = model::now();
        if std::mem::take(&mut is_first) {
            heard.first.push(milliseconds(begun.elapsed()));
        }
        heard.late.extend(lateness(text, at));
    })
}

fn ask_through(house: &House, heard: &mut Heard) -> Result<()> {
    let begun = Instant::now();
    let lines = http::post_stream(&house.api(), PATH, &request(false))?;
    let mut is_first = true;
    each_word(lines, |text, at| {
        if std::mem::take(&mut is_first) {
            heard.first.push(milliseconds(begun.elapsed()));
        }
        heard.late.extend(lateness(text, at));
    })
}

fn request(has_partial: bool) -> Value {
    let messages = json!([{"role": "user", "content": "go", "timestamp": 0}]);
    json!({"provider": "p", "modelId": "m", "agentName": "a1",
        "context": {"systemPrompt": "sys", "messages": messages},
        "options": {"partial": has_partial}})
}

/// Passes on the text of each piece, and when it came.
fn each_word(mut lines: impl BufRead, mut each: impl FnMut(&str, u64)) -> Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Err("the stream was cut".into());
        }
        let at = model::now();
        // An empty line is a sign of life.
        if line.len() == 1 {
            continue;
        }
        let event: Value = serde_json::from_str(&line)?;
        match event["type"].as_str() {
            Some("text_delta") => each(event["delta"].as_str().unwrap_or_default(), at),
            Some("done") => return Ok(()),
            Some("error") => return Err(event.to_string().into()),
            _ => {}
        }
    }
}

/// Both ways, and what one adds to the other: of the medians, and of what 99 of
/// 100 are below.
fn compared(what: &str, without: Vec<f64>, through: Vec<f64>) -> Vec<Row> {
    let added = |share| at(&through, share) - at(&without, share);
    let (median, most) = (added(0.5), added(0.99));
    let row = |way: &str, times: Vec<f64>| {
        let spread = Spread::of(times)?;
        Some(Row::new(format!("{what} comes after, {way}"), Unit::Milliseconds, spread))
    };
    let mut rows: Vec<Row> = row("without a gateway", without).into_iter().collect();
    rows.extend(row("through the gateway", through));
    rows.push(Row::once(format!("{what}: added, median"), Unit::Milliseconds, median));
    rows.push(Row::once(format!("{what}: added, 99 of 100"), Unit::Milliseconds, most));
    rows
}

/// What that share of the values is not above.
fn at(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = (values.len() as f64 * share).ceil() as usize;
    values.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// A model that speaks as fast as it can: events a second, by the clock and by
/// the processor time that the gateway took.
fn rates(options: &Options) -> Result<Vec<Row>> {
    let pace = Pace { events: options.rounds(100_000), pause: Duration::ZERO };
    let mut house = House::paced(options, Runtime::Bubblewrap, 1, pace)?;
    house.start()?;
    count_lines(&house)?;
    let (begun, busy) = (Instant::now(), process::busy_seconds(house.pid()?)?);
    let events = count_lines(&house)? as f64;
    let (wall, busy) = (begun.elapsed().as_secs_f64(), process::busy_seconds(house.pid()?)? - busy);
    Ok(vec![
        Row::once("one stream: events", Unit::PerSecond, events / wall),
        Row::once("one stream: events a second of one processor", Unit::PerSecond, events / busy),
    ])
}

/// The lines of one answer that hold a piece; not read further, since that
/// would be measured too.
fn count_lines(house: &House) -> Result<usize> {
    let mut lines = http::post_stream(&house.api(), PATH, &request(false))?;
    let (mut line, mut count) = (Vec::new(), 0);
    while lines.read_until(b'\n', &mut line)? > 0 {
        count += usize::from(line.starts_with(b"{\"type\":\"text_delta\""));
        if line.starts_with(b"{\"type\":\"done\"") {
            return Ok(count);
        }
        line.clear();
    }
    Err(format!("the stream was cut after {count} events").into())
}

/// Five thousand pieces in one answer, each line with the message so far.
fn long_with_partial(options: &Options) -> Result<Vec<Row>> {
    let pace = Pace { events: options.rounds(5_000), pause: Duration::from_micros(100) };
    let mut house = House::paced(options, Runtime::Bubblewrap, 1, pace)?;
    house.start()?;
    let what = format!("{} pieces with the message in each line", pace.events);
    let (mut bytes, mut took) = (0, 0.0);
    let act = || {
        let begun = Instant::now();
        let mut lines = http::post_stream(&house.api(), PATH, &request(true))?;
        bytes = std::io::copy(&mut lines, &mut std::io::sink())?;
        took = milliseconds(begun.elapsed());
        Ok(())
    };
    let ((), course) = watched(house.pid()?, act)?;
    let mut rows = vec![Row::once(format!("{what}: time"), Unit::Milliseconds, took)];
    rows.push(Row::once(format!("{what}: sent"), Unit::Megabytes, process::megabytes(bytes)));
    rows.extend(memory(&what, &course));
    Ok(rows)
}

/// Many answers at the same time, and then as many that are ten times as long.
fn many(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for events in [options.rounds(50), options.rounds(500)] {
        let pace = Pace { events, pause: Duration::from_millis(10) };
        let mut house = House::paced(options, Runtime::Bubblewrap, 1, pace)?;
        house.without_line()?;
        house.start()?;
        let what = format!("{MANY} streams of {events} events");
        let (heard, course) = watched(house.pid()?, || at_once(&house))?;
        let late = Spread::of(heard).ok_or("no event came")?;
        rows.push(Row::new(format!("{what}: an event is later by"), Unit::Milliseconds, late));
        rows.extend(memory(&what, &course));
    }
    Ok(rows)
}

fn at_once(house: &House) -> Result<Vec<f64>> {
    let (address, token) = house.door()?;
    // As many as each of the two ways in serves.
    let listen = |number: usize| -> Result<Vec<f64>> {
        let mut late = Vec::new();
        let each = |text: &str, at| late.extend(lateness(text, at));
        match number % 4 {
            0 => each_word(http::post_stream(&house.api(), PATH, &request(false))?, each)?,
            _ => {
                let lines = http::post_stream_by_tcp(&address, &token, PATH, &request(false))?;
                each_word(lines, each)?;
            }
        }
        Ok(late)
    };
    let listen = &listen;
    thread::scope(|scope| {
        let mut listeners = Vec::with_capacity(MANY);
        for number in 0..MANY {
            let builder = thread::Builder::new().stack_size(SMALL_STACK);
            listeners.push(builder.spawn_scoped(scope, move || listen(number))?);
        }
        let mut all = Vec::new();
        for listener in listeners {
            all.extend(listener.join().map_err(|_| "a thread panicked")??);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_values_is_below() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!((at(&values, 0.5), at(&values, 0.99), at(&values, 1.0)), (50.0, 99.0, 100.0));
        assert_eq!((at(&[7.0], 0.5), at(&[], 0.5)), (7.0, 0.0));
    }

    #[test]
    fn pieces_are_heard_up_to_the_end() {
        let stream = "{\"type\":\"start\"}\n\n{\"type\":\"text_delta\",\"delta\":\"a\"}\n\
                      {\"type\":\"done\"}\n";
        let mut heard = String::new();
        assert!(each_word(stream.as_bytes(), |text, _| heard.push_str(text)).is_ok());
        assert_eq!(heard, "a");
        assert!(each_word(&b"{\"type\":\"start\"}\n"[..], |_, _| ()).is_err());
    }
}
