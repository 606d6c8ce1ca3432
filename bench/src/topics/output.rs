//! 100 MB of a command's output, through `beige exec` and through the API's
//! stream: what the gateway's memory does meanwhile, and how long it takes.

use std::io::{BufRead, Read};
use std::process::{Child, Stdio};
use std::time::Instant;

use serde_json::json;

use super::memory;
use crate::arguments::Options;
use crate::crowd::watched;
use crate::figures::{Row, Unit};
use crate::house::{House, Runtime};
use crate::rounds::milliseconds;
use crate::{Result, http};

/// Bytes that the command says.
const BYTES: u64 = 100_000_000;

pub(super) fn measure(options: &Options) -> Result<Vec<Row>> {
    let house = House::started(options, Runtime::Bubblewrap, 1)?;
    let mut rows = through("`beige exec`", &house, by_process)?;
    rows.extend(through("the API's stream", &house, by_stream)?);
    Ok(rows)
}

fn through(what: &str, house: &House, say: fn(&House, u64) -> Result<()>) -> Result<Vec<Row>> {
    // What the first command costs once is no part of the growth.
    say(house, BYTES / 100)?;
    let mut took = 0.0;
    let act = || {
        let begun = Instant::now();
        say(house, BYTES)?;
        took = milliseconds(begun.elapsed());
        Ok(())
    };
    let ((), course) = watched(house.pid()?, act)?;
    let mut rows = vec![Row::once(format!("{what}: time"), Unit::Milliseconds, took)];
    rows.extend(memory(what, &course));
    Ok(rows)
}

/// Through the command line, which writes it to a pipe.
pub(crate) fn by_process(house: &House, bytes: u64) -> Result<()> {
    let count = bytes.to_string();
    let arguments = ["exec", "a1", "--", "head", "-c", &count, "/dev/zero"];
    let mut child: Child = house.command(&arguments).stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().ok_or("no pipe")?;
    let came = std::io::copy(&mut output, &mut std::io::sink())?;
    let status = child.wait()?;
    if status.success() && came == bytes {
        return Ok(());
    }
    Err(format!("beige exec: {status} after {came} of {bytes} bytes").into())
}

/// Through the API, as lines of base64.
fn by_stream(house: &House, bytes: u64) -> Result<()> {
    let argv = json!({"argv": ["head", "-c", bytes.to_string(), "/dev/zero"]});
    let mut lines = http::post_stream(&house.api(), "/api/agents/a1/exec/stream", &argv)?;
    let (mut line, mut coded) = (Vec::new(), 0);
    while (&mut lines).take(1 << 24).read_until(b'\n', &mut line)? > 0 {
        // The last event is short, and base64 has no quotation marks.
        if line.len() < 1000 && line.windows(6).any(|it| it == b"\"exit\"") {
            // Base64 has four characters for each three bytes.
            return if coded >= bytes / 3 * 4 { Ok(()) } else { Err("output is missing".into()) };
        }
        coded += line.len() as u64;
        line.clear();
    }
    Err("the stream ended without its exit event".into())
}
