//! The hands of a real turn: tools run by the toolbox, model calls stand in
//! the audit log like any other act.

use std::cell::RefCell;

use super::{Hands, ModelCallEnd};
use crate::audit::{Act, Audit, Entry, Finish, Target};
use crate::config::ModelRef;
use crate::error::Result;
use crate::plugin::hooks::{ModelSwitch, Occasion};
use crate::tool::{Answer, Call, Caller, CoreCall, Toolbox};
use crate::worker::Cancel;

/// The toolbox and the audit log, on behalf of one caller.
pub struct Equipped<'a> {
    toolbox: &'a Toolbox,
    audit: &'a Audit,
    /// Its `model` names the one that was asked last.
    caller: RefCell<Caller>,
    counted: &'a dyn Fn(&ModelRef, &ModelCallEnd),
}

impl<'a> Equipped<'a> {
    /// Tools run by that toolbox, model calls known to that log, on behalf of
    /// that caller; `counted` is told of each model call that has ended.
    pub fn new(
        toolbox: &'a Toolbox,
        audit: &'a Audit,
        caller: Caller,
        counted: &'a dyn Fn(&ModelRef, &ModelCallEnd),
    ) -> Self {
        Self { toolbox, audit, caller: RefCell::new(caller), counted }
    }
}

impl Hands for Equipped<'_> {
    fn run(
        &self,
        call: CoreCall,
        printed: &mut dyn FnMut(String),
        cancel: &Cancel,
    ) -> Result<Answer> {
        let caller = self.caller.borrow().clone();
        self.toolbox.run(&caller, Call::Core(call, printed), cancel)
    }

    fn model_call_begins(&self, model: &ModelRef) -> Result<Box<dyn FnOnce(ModelCallEnd) + '_>> {
        let pending = self.audit.begin(&entry(&self.caller.borrow(), model))?;
        self.caller.borrow_mut().model = Some(model.to_string());
        let model = model.clone();
        Ok(Box::new(move |end| {
            (self.counted)(&model, &end);
            pending.finish(&Finish {
                exit_code: Some(i32::from(end.fault.is_some())),
                output_bytes: Some(end.output_bytes),
                error: end.fault.map(|it| it.to_string()),
            });
        }))
    }

    fn model_switches(&self, switch: &ModelSwitch<'_>, cancel: &Cancel) {
        self.toolbox.plugins().tell_of_switch(switch, &self.occasion(), None, cancel);
    }

    fn response(&self, response: String, cancel: &Cancel) -> Result<String, String> {
        let plugins = self.toolbox.plugins();
        if !plugins.has_servers() {
            return Ok(response);
        }
        let response = self.toolbox.mask(&response);
        plugins.post_response(response, &self.occasion(), cancel).map_err(|it| it.withheld())
    }
}

impl Equipped<'_> {
    fn occasion(&self) -> Occasion {
        self.caller.borrow().occasion()
    }
}

/// The audit line of a model call.
fn entry(caller: &Caller, model: &ModelRef) -> Entry {
    let name = model.to_string();
    let session = caller.session.as_ref();
    Entry {
        agent: caller.agent.clone(),
        act: Act::Llm,
        tool: name.clone(),
        args: Vec::new(),
        target: Some(Target::Gateway),
        session: session.map(|it| it.session_key.clone()),
        claimed_session: caller.claimed_session.clone(),
        channel: session.and_then(|it| it.channel.clone()),
        model: Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::SessionRef;

    #[test]
    fn a_model_call_is_told_by_its_model_and_its_session() {
        let session = SessionRef {
            session_key: "api:a:default".into(),
            channel: Some("api".into()),
            chat_id: None,
            thread_id: None,
        };
        let caller = Caller {
            agent: "a".into(),
            session: Some(session),
            claimed_session: None,
            model: None,
        };
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let want = Entry {
            agent: "a".into(),
            act: Act::Llm,
            tool: "p/m".into(),
            args: Vec::new(),
            target: Some(Target::Gateway),
            session: Some("api:a:default".into()),
            claimed_session: None,
            channel: Some("api".into()),
            model: Some("p/m".into()),
        };
        assert_eq!(entry(&caller, &model), want);
    }
}
