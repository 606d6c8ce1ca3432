//! What SIGINT and SIGTERM do to a prompt. The first one calls the turn off,
//! here or in the gateway, whose last word is then waited for, but not for
//! long. A second one ends the process as if nobody caught it, unless the turn is
//! in this process: that one always comes to its own end, which leaves a sound
//! session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Sender, after, bounded, select};
use serde_json::json;
use signal_hook::low_level::emulate_default_handler;

use super::super::client::{self, Api};
use super::super::stdin::{SignalWatch, on_signals};
use crate::config::Home;
use crate::error::Result;
use crate::gateway::PromptRequest;
use crate::worker::{Cancel, Canceller, Worker};

/// How long a gateway may take to call a turn off and to tell its end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The signals of a prompt, caught until it is dropped.
pub(super) struct Interrupts {
    /// Called off by the first of them.
    pub(super) cancel: Cancel,
    watch: SignalWatch,
    has_turn: Arc<AtomicBool>,
}

impl Interrupts {
    /// Catches them from now on.
    pub(super) fn catch() -> Result<Self> {
        let (canceller, cancel) = Cancel::pair();
        let has_turn = Arc::new(AtomicBool::new(false));
        let stays = Arc::clone(&has_turn);
        let watch = on_signals(move |count, number| {
            canceller.cancel();
            if count > 0 && !stays.load(Ordering::SeqCst) {
                // It ends the process; if it cannot, the first signal stands.
                let _ = emulate_default_handler(number);
            }
        })?;
        Ok(Self { cancel, watch, has_turn })
    }

    /// The first signal that came; asked once, at the end.
    pub(super) fn caught(&self) -> Option<u8> {
        self.watch.caught()
    }

    /// What calls off the turn that begins in this process now.
    pub(super) fn of_turn_here(&self) -> &Cancel {
        self.has_turn.store(true, Ordering::SeqCst);
        &self.cancel
    }

    /// Runs `ask` with an API through which a gateway has the turn of
    /// `request`. `is_ours` says whether what runs in its session is this turn.
    pub(super) fn at_gateway<T>(
        &self,
        home: &Home,
        request: &PromptRequest,
        is_ours: Arc<AtomicBool>,
        ask: impl FnOnce(&Api) -> Result<T>,
    ) -> Result<T> {
        let (cutter, cut) = Cancel::pair();
        let _passing = Passing::start(&self.cancel, home, request, is_ours, cutter)?;
        ask(&Api::called_off_by(home, cut))
    }
}

/// A thread that passes the call-off on to the gateway; dropping it ends it.
struct Passing {
    _over: Sender<()>, // Dropped first: closing it is what ends the thread.
    _thread: Worker,
}

impl Passing {
    fn start(
        cancel: &Cancel,
        home: &Home,
        request: &PromptRequest,
        is_ours: Arc<AtomicBool>,
        cutter: Canceller,
    ) -> Result<Self> {
        let (agent, session) = (&request.agent, request.session_key.as_deref());
        let session = client::encoded(session.unwrap_or_default());
        let path = format!("/api/agents/{}/sessions/{session}/abort", client::encoded(agent));
        let (cancel, home) = (cancel.clone(), home.clone());
        let (over, is_over) = bounded::<()>(0);
        let thread = Worker::spawn("prompt-abort", move || {
            select! {
                recv(cancel.gone()) -> _ => {}
                // Nothing is cut any more; the canceller goes with the thread.
                recv(is_over) -> _ => return,
            }
            if is_ours.load(Ordering::SeqCst) && is_called_off(&home, &path) {
                select! {
                    recv(is_over) -> _ => {}
                    recv(after(PATIENCE)) -> _ => {}
                }
            }
            // A gateway whose client hangs up drops the turn.
            cutter.cancel();
        })?;
        Ok(Self { _over: over, _thread: thread })
    }
}

/// Whether the gateway has called off what runs in that session.
fn is_called_off(home: &Home, path: &str) -> bool {
    let reply = Api::with_limit(home, PATIENCE).post(path, &json!({}));
    reply.is_ok_and(|it| it.status == 200)
}
