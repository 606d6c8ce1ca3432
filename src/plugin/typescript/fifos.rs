//! The pair of FIFOs by which a plugin asks and waits without its event loop:
//! it writes a request, a line of JSON-RPC, into one and blocks until the answer
//! comes by the other. A thread answers them one after the other, as the plugin
//! can ask but one at a time.
//!
//! We hold both ends of both FIFOs, so that nothing we do waits for the plugin to
//! open them; the plugin, which holds one of each, sees our end as the end of the
//! file.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::Value;

use crate::error::{During, Kind, Result};
use crate::plugin::child::is_passing;
use crate::plugin::connection::Connection;
use crate::plugin::desk::{Desk, Request};
use crate::plugin::rpc::lines::{Line, Lines};
use crate::plugin::rpc::{self, BAD_PARAMS, LONGEST, Message, Refusal};
use crate::worker::{Cancel, Canceller, Worker};

const PIECE: usize = 16 * 1024;

/// A pair that nobody serves yet.
pub(in crate::plugin) struct Fifos {
    /// Where the plugin writes what it asks for.
    pub(super) ask: PathBuf,
    /// Where it reads the answers.
    pub(super) answer: PathBuf,
    asked: File,
    answers: File,
}

/// What answers a pair; dropping it ends that.
pub(in crate::plugin) struct Served {
    /// Dropped first: that calls off what is worked on.
    _canceller: Canceller,
    _thread: Worker,
    _names: Names,
}

/// The names of a pair, which go with it. The plugin takes them away itself once
/// it has opened them.
struct Names([PathBuf; 2]);

impl Drop for Names {
    fn drop(&mut self) {
        self.0.iter().for_each(|it| drop(fs::remove_file(it)));
    }
}

impl Fifos {
    /// Makes a pair of its own name in a private folder.
    pub(super) fn make(place: &Path) -> Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = |what: &str| place.join(format!("{what}-{process}-{number}"));
        let (ask, answer) = (path("ask"), path("answer"));
        let (asked, answers) = (make(&ask)?, make(&answer)?);
        Ok(Self { ask, answer, asked, answers })
    }

    /// Has what is asked answered at the desk, as if it had come by the
    /// connection.
    pub(in crate::plugin) fn serve(
        self,
        plugin: &str,
        desk: Arc<dyn Desk>,
        connection: Arc<Connection>,
    ) -> Result<Served> {
        let Self { ask, answer, asked, answers } = self;
        let (canceller, cancel) = Cancel::pair();
        let clerk = Clerk { plugin: plugin.to_owned(), desk, connection, asked, answers, cancel };
        let thread = Worker::spawn(format!("plug-{plugin}-sync"), move || clerk.run())?;
        Ok(Served { _canceller: canceller, _thread: thread, _names: Names([ask, answer]) })
    }
}

fn make(path: &Path) -> Result<File> {
    let what = || format!("make the FIFO {}", path.display());
    // Of a process that had our id before.
    let _ = fs::remove_file(path);
    let made = mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
    made.during(Kind::Internal, what())?;
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    opened.during(Kind::Internal, what())
}

/// Who answers.
struct Clerk {
    plugin: String,
    desk: Arc<dyn Desk>,
    connection: Arc<Connection>,
    asked: File,
    answers: File,
    cancel: Cancel,
}

impl Clerk {
    fn run(mut self) {
        let Ok(Some(hang_up)) = self.cancel.hang_up() else { return };
        let mut lines = Lines::within(LONGEST);
        let mut piece = vec![0; PIECE];
        loop {
            let count = match self.asked.read(&mut piece) {
                Ok(count) => count,
                Err(error) if is_passing(&error) => 0,
                Err(_) => return,
            };
            if count == 0 && !is_ready(&self.asked, PollFlags::IN, hang_up.as_fd()) {
                return;
            }
            let mut found = Vec::new();
            lines.take(&piece[..count], &mut |it| found.push(it));
            for line in found {
                let answer = self.answer(line);
                if !self.write(&answer, hang_up.as_fd()) {
                    return;
                }
            }
        }
    }

    /// The answer to a line, whatever it is: who asked waits for one.
    fn answer(&self, line: Line) -> Vec<u8> {
        let refused = |why: &str| rpc::bounded_answer(&Value::Null, &Err(refusal(why)));
        let Line::Whole(line) = line else { return refused("the request is too long") };
        let message = match rpc::parse(&line) {
            Ok(mut messages) => messages.pop(),
            Err(why) => return refused(why),
        };
        let Some(Message::Request { id, method, params }) = message else {
            return refused("it asks for nothing");
        };
        let request = Request {
            plugin: &self.plugin,
            id: &id,
            method: &method,
            params: &params,
            connection: &self.connection,
            cancel: &self.cancel,
        };
        rpc::bounded_answer(&id, &self.desk.request(&request))
    }

    /// `false` if nobody is to be answered any more.
    fn write(&mut self, mut line: &[u8], hang_up: BorrowedFd<'_>) -> bool {
        while !line.is_empty() {
            match self.answers.write(line) {
                Ok(count) => line = &line[count..],
                Err(error) if is_passing(&error) => {
                    if !is_ready(&self.answers, PollFlags::OUT, hang_up) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }
}

fn refusal(why: &str) -> Refusal {
    Refusal::new(BAD_PARAMS, why)
}

/// Waits until it is; `false` once it is called off.
fn is_ready(file: &File, wanted: PollFlags, hang_up: BorrowedFd<'_>) -> bool {
    let mut polled =
        [PollFd::new(file, wanted), PollFd::from_borrowed_fd(hang_up, PollFlags::empty())];
    match poll(&mut polled, None) {
        Ok(_) => polled[1].revents().is_empty(),
        Err(error) => error == rustix::io::Errno::INTR,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use serde_json::json;

    use super::*;
    use crate::plugin::tests::Scratch;

    /// Answers with what it is asked, or not before it is called off.
    struct Echo;

    impl Desk for Echo {
        fn request(&self, request: &Request<'_>) -> std::result::Result<Value, Refusal> {
            if request.method == "wait" {
                let _ = request.cancel.gone().recv();
            }
            Ok(request.params.clone())
        }

        fn notice(&self, _: &str, _: &Connection, _: &str, _: &Value) {}
    }

    /// A pair that is served, and its ends as a plugin has them.
    fn served(scratch: &Scratch) -> (Served, File, BufReader<File>) {
        let fifos = Fifos::make(scratch.path()).expect("a pair");
        let ask = OpenOptions::new().write(true).open(&fifos.ask).expect("it opens");
        let answer = File::open(&fifos.answer).expect("it opens");
        let (connection, _) = Connection::open();
        let served = fifos.serve("p", Arc::new(Echo), connection).expect("served");
        (served, ask, BufReader::new(answer))
    }

    #[track_caller]
    fn check(ask: &mut File, answer: &mut BufReader<File>, line: &str, want: &Value) {
        ask.write_all(line.as_bytes()).expect("written");
        let mut told = String::new();
        answer.read_line(&mut told).expect("an answer");
        assert_eq!(serde_json::from_str::<Value>(&told).expect("JSON"), *want, "{line}");
    }

    #[test]
    fn what_is_asked_is_answered_whatever_it_is() {
        let scratch = Scratch::new();
        let (served, mut ask, mut answer) = served(&scratch);
        // More than a pipe holds, both ways.
        let text = "x".repeat(1024 * 1024);
        for params in [json!({"a": 1}), json!({"text": text})] {
            let line = json!({"jsonrpc": "2.0", "id": 7, "method": "m", "params": params});
            let want = json!({"jsonrpc": "2.0", "id": 7, "result": params});
            check(&mut ask, &mut answer, &format!("{line}\n"), &want);
        }
        for (line, why) in [
            ("junk\n", "it is not JSON"),
            ("{\"method\": \"m\"}\n", "it asks for nothing"),
            ("[]\n", "it asks for nothing"),
        ] {
            let error = json!({"code": BAD_PARAMS, "message": why});
            let want = json!({"jsonrpc": "2.0", "id": null, "error": error});
            check(&mut ask, &mut answer, line, &want);
        }
        drop(served);
        assert_eq!(fs::read_dir(scratch.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn whoever_waits_for_an_answer_hears_of_the_end() {
        let scratch = Scratch::new();
        let (served, mut ask, mut answer) = served(&scratch);
        ask.write_all(b"{\"id\": 1, \"method\": \"wait\"}\n").expect("written");
        drop(served);
        let mut told = String::new();
        // The answer of what was called off may still come; then the end does.
        while answer.read_line(&mut told).expect("it reads") > 0 {}
        assert!(ask.write_all(b"x\n").is_err(), "nobody reads any more");
    }
}
