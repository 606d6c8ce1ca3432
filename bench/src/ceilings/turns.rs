//! Memory after ten thousand turns.

use serde_json::json;

use super::Line;
use crate::Result;
use crate::arguments::Options;
use crate::crowd::in_turns;
use crate::house::House;
use crate::http::{self, Reply};
use crate::process;

/// Sessions that are prompted at the same time.
const SESSIONS: usize = 8;

/// Turns of a conversation before its key gets a fresh one: a longer
/// conversation takes more memory while it is read, which is no growth of the
/// gateway's.
const TURNS: usize = 50;

/// Until the allocator has come to rest: what the threads of turns leave in its
/// arenas grows for some ten thousand of them, more slowly each time, and then no
/// more.
const WARM_UP: usize = 10_000;

pub(super) fn check(options: &Options) -> Result<Vec<Line>> {
    let count = if options.quick { 1000 } else { 10_000 };
    let mut house = House::in_memory(options, 2)?;
    house.start()?;
    let pid = house.pid()?;
    let warm_up = if options.quick { 1000 } else { WARM_UP };
    in_turns(SESSIONS, warm_up, |session, turn| prompt(&house, session, turn))?;
    let before = process::when_quiet(pid)?;
    in_turns(SESSIONS, count, |session, turn| prompt(&house, session, turn))?;
    let what = format!("growth after {count} turns");
    let after = process::when_quiet(pid)?;
    Ok(vec![Line::growth(what, before.resident, after.resident, 1.0)])
}

fn prompt(house: &House, session: usize, turn: usize) -> Result<Reply> {
    let (api, agent) = (house.api(), session % 2 + 1);
    let key = format!("api:{session}");
    if turn.is_multiple_of(TURNS) {
        let path = format!("/api/agents/a{agent}/sessions/new");
        http::post(&api, &path, &json!({"sessionKey": key}))?;
    }
    let body = json!({"message": "go", "sessionKey": key});
    http::post(&api, &format!("/api/agents/a{agent}/prompt"), &body)
}
