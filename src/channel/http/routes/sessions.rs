//! The routes of stored sessions, each on a thread of its own: they read and
//! write files.

use serde::Serialize;
use serde_json::{Value, json};

use super::array::Array;
use super::requests::Checked;
use super::{Call, refusal, send};
use crate::channel::http::answer::Answer;
use crate::channel::http::engine::Engine;
use crate::config::ModelRef;
use crate::error::{During, Kind, Result};
use crate::gateway::SessionChange;
use crate::session::{Page, Which};

/// Messages of a history that does not say how many.
const PAGE: usize = 1_000;

/// Messages of a history at most.
const LARGEST_PAGE: usize = 10_000;

/// What is asked of an agent's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionTask {
    List(Which),
    History { agent: String, session: String, page: Page },
    Change { agent: String, change: SessionChange },
    Choose { agent: String, key: String, model: ModelRef },
}

impl<E: Engine> Call<E> {
    pub(super) fn session(self, task: SessionTask) {
        match task {
            SessionTask::List(which) => self.sessions(&which),
            SessionTask::History { agent, session, page } => self.history(&agent, &session, &page),
            SessionTask::Choose { agent, key, model } => {
                let answer = match self.engine.choose_model(&agent, &key, &model) {
                    Ok(()) => Answer::json(&json!({ "ok": true })),
                    Err(error) => refusal(&self.engine, &error),
                };
                send(self.reply, &answer);
            }
            SessionTask::Change { agent, change } => {
                let changed = self.engine.change_session(&agent, &change);
                let answer = match changed.and_then(|it| masked_value(&self.engine, &it)) {
                    Ok(session) => Answer::json(&session),
                    Err(error) => refusal(&self.engine, &error),
                };
                send(self.reply, &answer);
            }
        }
    }

    fn sessions(self, which: &Which) {
        let mut list = Array::new(self.reply, "{\"sessions\":[");
        let told = self.engine.sessions(which, &mut |session| {
            list.add(&masked(&self.engine, &session)?).map(|()| true)
        });
        list.finish(&self.engine, told.map(|()| "}".into()));
    }

    fn history(self, agent: &str, session: &str, page: &Page) {
        let list = std::cell::RefCell::new(Array::new(self.reply, ""));
        let mut first = |session| {
            let session = masked(&self.engine, &session).unwrap_or_default();
            list.borrow_mut().open(format!("{{\"session\":{session},\"messages\":["));
        };
        let mut each =
            |message| list.borrow_mut().add(&masked(&self.engine, &message)?).map(|()| true);
        let told = self.engine.session_history(agent, session, page, &mut first, &mut each);
        let end = told.map(|more| format!(",\"more\":{more}}}"));
        list.into_inner().finish(&self.engine, end);
    }
}

/// As JSON, with no known secret in its texts.
fn masked(engine: &impl Engine, document: &impl Serialize) -> Result<String> {
    let value = masked_value(engine, document)?;
    serde_json::to_string(&value).during(Kind::Internal, "write an answer")
}

fn masked_value(engine: &impl Engine, document: &impl Serialize) -> Result<Value> {
    let value = serde_json::to_value(document);
    let mut value = value.during(Kind::Internal, "write an answer")?;
    mask(engine, &mut value);
    Ok(value)
}

fn mask(engine: &impl Engine, value: &mut Value) {
    match value {
        Value::String(text) => *text = engine.mask(text),
        Value::Array(values) => values.iter_mut().for_each(|it| mask(engine, it)),
        Value::Object(fields) => fields.values_mut().for_each(|it| mask(engine, it)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The filter of a list.
pub(super) fn which(agent: String, query: Vec<(String, String)>) -> Checked<Which> {
    let mut which = Which { agent: Some(agent), of_agents_too: false };
    for (name, value) in query {
        match (name.as_str(), value.as_str()) {
            ("all", "" | "1" | "true") => which.of_agents_too = true,
            ("all", "0" | "false") => which.of_agents_too = false,
            ("all", _) => return Err("`all` must be true or false".into()),
            (other, _) => return Err(format!("`{other}` is no filter: all is")),
        }
    }
    Ok(which)
}

/// The page of a history.
pub(super) fn page(query: Vec<(String, String)>) -> Checked<Page> {
    let mut page = Page { limit: PAGE, before: None };
    for (name, value) in query {
        match name.as_str() {
            "limit" => {
                let limit = value.parse().ok().filter(|it| (1..=LARGEST_PAGE).contains(it));
                page.limit = limit
                    .ok_or_else(|| format!("`limit` must be a number, 1 to {LARGEST_PAGE}"))?;
            }
            "before" => page.before = Some(value),
            other => return Err(format!("`{other}` is no filter: limit, before are")),
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn a_page_is_bounded_and_what_is_wrong_with_it_is_named() {
        assert_eq!(page(pairs(&[])), Ok(Page { limit: PAGE, before: None }));
        let want = Page { limit: 7, before: Some("a".into()) };
        assert_eq!(page(pairs(&[("limit", "7"), ("before", "a")])), Ok(want));
        for wrong in ["0", "10001", "-1", "x", ""] {
            assert!(page(pairs(&[("limit", wrong)])).is_err_and(|it| it.contains("`limit`")));
        }
        assert!(page(pairs(&[("limt", "1")])).is_err_and(|it| it.contains("`limt`")));
    }

    #[test]
    fn sessions_that_an_agent_started_are_asked_for() {
        let all = |value: &str| which("a".into(), pairs(&[("all", value)]));
        assert_eq!(all("").map(|it| it.of_agents_too), Ok(true));
        assert_eq!(all("false").map(|it| it.of_agents_too), Ok(false));
        assert!(all("maybe").is_err_and(|it| it.contains("`all`")));
        assert!(which("a".into(), pairs(&[("x", "")])).is_err());
    }
}
