//! One conversation over HTTP: how a message is sent, in which session, and what
//! is done where its answer does not come whole. A session that the server has
//! forgotten is begun anew, and what was refused for it is sent again; nothing
//! else is ever sent twice, since the server may have done it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{after, select};
use serde_json::{Value, json};
use ureq::http::{Method, Request, Response};
use ureq::{AsSendBody, Body};

use super::TAKING;
use super::answer::{self, Ear, Heard, Trouble};
use super::lanes::{Key, Lane, Lanes, NoLane};
use crate::config::Endpoint;
use crate::plugin::connection::{Connection, Unanswered};
use crate::plugin::host::complaints::Complaints;
use crate::plugin::host::greeting::PROTOCOL;
use crate::plugin::host::hearing::Hearing;
use crate::plugin::host::{GREETING, LEAVING};
use crate::plugin::mcp::server::Server;
use crate::plugin::rpc::{self, FAILED, Message, Refusal};
use crate::provider::Client;
use crate::worker::Cancel;

const SESSION: &str = "mcp-session-id";

/// Longest name of a session that is sent back, in bytes.
const LONGEST_SESSION: usize = 1024;

/// The first pause before the rest of an answer is asked for; each further one
/// is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How much longer than who asks a thread waits for an answer.
const MARGIN: Duration = Duration::from_secs(1);

/// The conversation with one server.
pub(super) struct Talk {
    pub(super) lanes: Lanes,
    pub(super) connection: Arc<Connection>,
    pub(super) ended: Cancel,
    pub(super) mcp: Arc<Server>,
    hearing: Hearing,
    complaints: Complaints,
    session: Mutex<Session>,
    /// Held by who begins a session anew, for all who need it.
    renewing: Mutex<()>,
    /// Held by who has a large message.
    large: Mutex<()>,
}

/// What the greeting gave.
#[derive(Clone, Default)]
pub(super) struct Session {
    /// Unlike that of every other session of this conversation; 0 before the
    /// first.
    number: u64,
    id: Option<Arc<str>>,
    version: Option<Arc<str>>,
    /// Our `initialize`, by its id, to say again.
    greeting: Option<(u64, Arc<[u8]>)>,
}

impl Talk {
    pub(super) fn new(
        endpoint: &Endpoint,
        connection: Arc<Connection>,
        hearing: Hearing,
        complaints: Complaints,
        mcp: Arc<Server>,
        ended: Cancel,
    ) -> Self {
        Self {
            lanes: Lanes::to(Client::new(endpoint)),
            connection,
            ended,
            mcp,
            hearing,
            complaints,
            session: Mutex::default(),
            renewing: Mutex::default(),
            large: Mutex::default(),
        }
    }

    /// Sends a request, hears its answer, and sees that who waits for it is told.
    pub(super) fn ask(&self, id: u64, line: &[u8], until: Instant) {
        let why = match self.try_ask(id, line, until) {
            Ok(()) => return,
            Err(Trouble::Cut) => Unanswered::CalledOff,
            Err(Trouble::Refused(_, words)) => Unanswered::Refused(Refusal::new(FAILED, words)),
            Err(Trouble::Expired) => Unanswered::Lost("knows none of its own sessions".into()),
            Err(Trouble::Lost(what)) => Unanswered::Lost(what),
        };
        // Who has left waits for nothing, and is not told.
        if self.connection.waits_for(id) {
            self.connection.unanswered(id, why);
        }
    }

    fn try_ask(&self, id: u64, line: &[u8], until: Instant) -> Result<(), Trouble> {
        let lane = self.lanes.enter(Key::Request(id))?;
        let session = self.session();
        if session.number == 0 {
            self.greet(&lane, id, line, until)?;
            lane.keep();
            return Ok(());
        }
        match self.post(&lane, line, &session, until) {
            Err(Trouble::Expired) => {
                let session = self.renew(&lane, session.number)?;
                let response = self.post(&lane, line, &session, until)?;
                self.hear(id, response, lane, &session, until)
            }
            response => self.hear(id, response?, lane, &session, until),
        }
    }

    /// Hears until that request is answered. The rest of a stream that breaks
    /// off is asked for, where the server says how.
    fn hear(
        &self,
        id: u64,
        mut response: Response<Body>,
        lane: Lane<'_>,
        session: &Session,
        until: Instant,
    ) -> Result<(), Trouble> {
        let is_enough = || !self.connection.waits_for(id);
        let mut last_id = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let heard = self.hear_all(response, &is_enough, &mut last_id);
            if is_enough() {
                // Of a stream that is left the connection goes, and no more.
                lane.keep();
                return Ok(());
            }
            match heard {
                Ok(Heard::Whole) => return Err(lost("answers something that was not asked")),
                other => other?,
            };
            let broken = || lost("broke off in the middle of its answer");
            let Some(last_id) = &last_id else { return Err(broken()) };
            self.pause(pause)?;
            if lane.is_cut() || until <= Instant::now() {
                return Err(Trouble::Cut);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            response = self.get(&lane, session, Some(last_id), until).map_err(|_| broken())?;
        }
    }

    /// Tells something that is not answered; whether the server takes it changes
    /// nothing.
    pub(super) fn tell(&self, line: &[u8], until: Instant) {
        if let Err(trouble) = self.try_tell(line, until) {
            log::debug!("a notice to a plugin is not taken: {trouble:?}");
        }
    }

    fn try_tell(&self, line: &[u8], until: Instant) -> Result<(), Trouble> {
        let lane = self.lanes.enter_any()?;
        let response = self.post(&lane, line, &self.session(), until)?;
        let mut body = response.into_body().into_reader();
        if std::io::Read::read(&mut body, &mut [0]).is_ok_and(|it| it == 0) {
            drop(body);
            lane.keep();
        }
        Ok(())
    }

    /// Begins a session. What the server answers is kept before it is told, so
    /// that whatever follows is said in that session.
    fn greet(&self, lane: &Lane<'_>, id: u64, line: &[u8], until: Instant) -> Result<(), Trouble> {
        let before = self.session().number;
        let response = self.post(lane, line, &Session::default(), until)?;
        let session = answer::header(response.headers(), SESSION).to_owned();
        if session.len() > LONGEST_SESSION || !session.bytes().all(|it| it.is_ascii_graphic()) {
            return Err(lost("gives its session a name that no header can have"));
        }
        let take = |bytes: &[u8]| {
            self.take_each(bytes, &|message| {
                if let Message::Answer { id: of, outcome: Ok(greeting) } = message
                    && *of == id
                {
                    self.begin_session(&session, greeting, id, line);
                }
            });
        };
        let is_enough = || self.session().number != before;
        let ear = Ear { is_enough: &is_enough, take: &take, large: &self.large };
        answer::hear(response, &ear, &mut None)?;
        let is_answered = is_enough() || (before == 0 && !self.connection.waits_for(id));
        is_answered.then_some(()).ok_or_else(|| lost("does not answer `initialize`"))
    }

    fn begin_session(&self, id: &str, greeting: &Value, of: u64, line: &[u8]) {
        let is_version = |it: &&str| it.len() <= 32 && it.bytes().all(|it| it.is_ascii_graphic());
        let version = greeting["protocolVersion"].as_str().filter(is_version);
        let mut session = locked(&self.session);
        *session = Session {
            number: session.number + 1,
            id: (!id.is_empty()).then(|| id.into()),
            version: Some(version.unwrap_or(PROTOCOL).into()),
            greeting: Some((of, line.into())),
        };
    }

    /// A session in the place of one that the server does not know any more: one
    /// thread begins it, the others wait for that.
    pub(super) fn renew(&self, lane: &Lane<'_>, stale: u64) -> Result<Session, Trouble> {
        let _only_one = locked(&self.renewing);
        let session = self.session();
        let Some((id, line)) = session.greeting.clone().filter(|_| session.number == stale) else {
            return Ok(session);
        };
        self.greet(lane, id, &line, Instant::now() + GREETING)?;
        let session = self.session();
        if let Ok(line) = rpc::notice("notifications/initialized", &json!({})) {
            self.post(lane, &line, &session, Instant::now() + TAKING)?;
        }
        self.mcp.outdate();
        Ok(session)
    }

    /// Takes all that a server says.
    pub(super) fn hear_all(
        &self,
        response: Response<Body>,
        is_enough: &dyn Fn() -> bool,
        last_id: &mut Option<String>,
    ) -> Result<Heard, Trouble> {
        let take = |bytes: &[u8]| self.take_each(bytes, &|_| ());
        answer::hear(response, &Ear { is_enough, take: &take, large: &self.large }, last_id)
    }

    fn take_each(&self, bytes: &[u8], first: &dyn Fn(&Message)) {
        match rpc::parse(bytes) {
            Ok(messages) => messages.into_iter().for_each(|it| {
                first(&it);
                self.hearing.message(it, &self.complaints);
            }),
            Err(why) => self.hearing.junk(bytes, why, &self.complaints),
        }
    }

    fn post(
        &self,
        lane: &Lane<'_>,
        line: &[u8],
        session: &Session,
        until: Instant,
    ) -> Result<Response<Body>, Trouble> {
        let ours = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        self.run(lane, Method::POST, line, &ours, session, until)
    }

    /// The server's own stream, or with an id the rest of one.
    pub(super) fn get(
        &self,
        lane: &Lane<'_>,
        session: &Session,
        last_id: Option<&str>,
        until: Instant,
    ) -> Result<Response<Body>, Trouble> {
        let mut ours = vec![("accept", "text/event-stream")];
        ours.extend(last_id.map(|it| ("last-event-id", it)));
        self.run(lane, Method::GET, (), &ours, session, until)
    }

    fn run(
        &self,
        lane: &Lane<'_>,
        method: Method,
        body: impl AsSendBody,
        ours: &[(&str, &str)],
        session: &Session,
        until: Instant,
    ) -> Result<Response<Body>, Trouble> {
        let client = &self.lanes.client;
        let request = self.request(method, body, ours, session).map_err(Trouble::Lost)?;
        let left = until.saturating_duration_since(Instant::now()) + MARGIN;
        let request = lane.agent.configure_request(request).timeout_global(Some(left)).build();
        match lane.agent.run(request) {
            Ok(response) => answer::check(response, client, session.id.is_some()),
            Err(_) if lane.is_cut() => Err(Trouble::Cut),
            Err(error) => Err(Trouble::Lost(client.told(&error))),
        }
    }

    fn request<B>(
        &self,
        method: Method,
        body: B,
        ours: &[(&str, &str)],
        session: &Session,
    ) -> Result<Request<B>, String> {
        let mut ours = ours.to_vec();
        ours.extend(session.id.as_deref().map(|it| (SESSION, it)));
        ours.extend(session.version.as_deref().map(|it| ("mcp-protocol-version", it)));
        let headers = self.lanes.client.headers(&ours)?;
        let request = Request::builder().method(method).uri(self.lanes.client.url()).body(body);
        let mut request = request.map_err(|it| format!("cannot be asked: {it}"))?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Waits, unless the conversation ends.
    pub(super) fn pause(&self, pause: Duration) -> Result<(), Trouble> {
        select! {
            recv(self.ended.gone()) -> _ => Err(Trouble::Cut),
            recv(after(pause)) -> _ => Ok(()),
        }
    }

    /// Ends everything that is on its way, and the session.
    pub(super) fn end(&self) {
        self.connection.end("was stopped");
        self.lanes.end();
        self.complaints.end();
        let session = self.session();
        if session.id.is_none() {
            return;
        }
        let request = self.request(Method::DELETE, (), &[], &session);
        let (Ok(request), Ok(agent)) = (request, self.lanes.client.agent()) else { return };
        let request = agent.configure_request(request).timeout_global(Some(LEAVING)).build();
        if let Err(error) = agent.run(request) {
            log::debug!("a plugin is not told of its end: {}", self.lanes.client.told(&error));
        }
    }

    pub(super) fn session(&self) -> Session {
        locked(&self.session).clone()
    }
}

impl Session {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl From<NoLane> for Trouble {
    fn from(none: NoLane) -> Self {
        match none {
            NoLane::Cut => Self::Cut,
            NoLane::Wrong(what) => Self::Lost(format!("cannot be asked: {what}")),
        }
    }
}

fn lost(what: &str) -> Trouble {
    Trouble::Lost(what.to_owned())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
