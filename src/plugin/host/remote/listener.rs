//! The server's own stream, by which it tells what belongs to no request of ours,
//! such as that its tools have changed. It is held open as long as the server has
//! one, and opened again after growing pauses; what may have been missed meanwhile
//! is asked for anew when it is needed.

use std::time::{Duration, Instant};

use super::answer::{self, Trouble};
use super::talk::Talk;

/// The first pause before it is opened again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest of these pauses. A stream that lasted longer was no failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long one stream is held, so that nothing that comes by it takes for ever.
const LONGEST_STREAM: Duration = Duration::from_secs(60 * 60);

/// How one stream ended.
enum Ended {
    /// There is none, or nobody listens any more.
    ForGood,
    /// It is opened again.
    ForNow,
}

impl Talk {
    /// Listens until the conversation ends, or the server has no such stream.
    pub(super) fn listen(&self) {
        let mut last_id = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let since = Instant::now();
            if let Ended::ForGood = self.listen_once(&mut last_id) {
                return;
            }
            if since.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            if self.pause(pause).is_err() {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn listen_once(&self, last_id: &mut Option<String>) -> Ended {
        let Ok(lane) = self.lanes.enter_any() else { return Ended::ForGood };
        let (session, since) = (self.session(), Instant::now());
        let response = match self.get(&lane, &session, last_id.as_deref(), since + LONGEST_STREAM) {
            Ok(response) if answer::is_stream(&response) => response,
            // A success that is no stream is none, as is any other refusal.
            Ok(_) | Err(Trouble::Refused(..) | Trouble::Cut) => return Ended::ForGood,
            Err(Trouble::Expired) => {
                *last_id = None;
                let _ = self.renew(&lane, session.number());
                return Ended::ForNow;
            }
            Err(Trouble::Lost(_)) => return Ended::ForNow,
        };
        let heard = self.hear_all(response, &|| lane.is_cut(), last_id);
        if last_id.is_none() {
            self.mcp.outdate();
        }
        match heard {
            Err(Trouble::Lost(what)) => {
                log::warn!("a plugin's stream of notices is opened again: it {what}");
                Ended::ForNow
            }
            _ if lane.is_cut() => Ended::ForGood,
            _ => Ended::ForNow,
        }
    }
}
