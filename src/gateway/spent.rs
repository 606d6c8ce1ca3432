//! A model call that has ended: counted, and written into the usage log.

use std::time::Duration;

use super::Engine;
use crate::clock;
use crate::config::ModelRef;
use crate::message::Usage;
use crate::provider::Fault;
use crate::turn::{Bill, ModelCallEnd};
use crate::usage::{Call, Role};

impl Engine {
    /// Counts a call that an agent made in a session. What a call took is noted
    /// whoever asked for it: each call to a model ends here.
    pub(super) fn model_call_ended(
        &self,
        agent: &str,
        session: &str,
        model: &ModelRef,
        end: &ModelCallEnd,
    ) {
        self.meter.model_call_ended(model, end);
        self.note_call(None, agent, session, model, end);
    }

    /// The same in a turn, which another may pay for.
    pub(super) fn turn_call_ended(
        &self,
        bill: &Bill,
        agent: &str,
        model: &ModelRef,
        end: &ModelCallEnd,
    ) {
        self.meter.model_call_ended(model, end);
        bill.charge(&end.usage);
        let payer = bill.payer();
        let role = match end.role {
            Role::Main if payer.is_some() => Role::Subagent,
            role => role,
        };
        self.note_call(payer, agent, bill.session(), model, &ModelCallEnd { role, ..end.clone() });
    }

    fn note_call(
        &self,
        payer: Option<&str>,
        agent: &str,
        session: &str,
        model: &ModelRef,
        end: &ModelCallEnd,
    ) {
        let is_priced = self.providers.facts(model).cost.is_some();
        let call = call(agent, session, model, end, is_priced);
        // A client's word may be a secret by mistake.
        let masked = |it: &str| self.redactor.mask(it).into_owned();
        let session = call.session.as_deref().map(masked);
        self.usage.note(&Call { session, billed_to: payer.map(masked), ..call });
    }
}

fn call(agent: &str, session: &str, model: &ModelRef, end: &ModelCallEnd, is_priced: bool) -> Call {
    let usage = &end.usage;
    Call {
        ts: clock::now().to_string(),
        agent: agent.to_owned(),
        session: Some(session.to_owned()).filter(|it| !it.is_empty()),
        billed_to: None,
        provider: model.provider.clone(),
        model: model.model.clone(),
        role: end.role,
        input: usage.input,
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        cost_usd: cost(end, is_priced),
        duration_ms: millis(end.duration),
        first_token_ms: end.first_token.map(millis),
        failure: end.fault.as_ref().map(Fault::category),
    }
}

/// What a call costs, nothing if it was turned away; `None` where nobody can
/// know: the price is not known, or the model has spoken and the provider never
/// said how many tokens that were.
fn cost(end: &ModelCallEnd, is_priced: bool) -> Option<f64> {
    let total = end.usage.cost.total;
    if end.usage == Usage::default() {
        return (!is_at_work(end)).then_some(0.0);
    }
    (is_priced || total > 0.0).then_some(total)
}

/// Whether a model has been at work: of a call that was turned away nothing is
/// charged.
fn is_at_work(end: &ModelCallEnd) -> bool {
    let was_turned_away = matches!(
        end.fault,
        Some(
            Fault::RateLimited(..)
                | Fault::Unavailable(_)
                | Fault::Slow(_)
                | Fault::Refused(_)
                | Fault::TooLong(_)
                | Fault::Stale(_)
                | Fault::Ours(_)
        )
    );
    end.first_token.is_some() || !was_turned_away
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Cost;

    fn usage(total: f64) -> Usage {
        let cost = Cost { total, ..Cost::default() };
        Usage { input: 7, output: 3, total_tokens: 10, cost, ..Usage::default() }
    }

    #[track_caller]
    fn check(end: ModelCallEnd, is_priced: bool, want: Option<f64>) {
        assert_eq!(cost(&end, is_priced), want);
    }

    #[test]
    fn a_price_that_nobody_knows_is_never_nothing() {
        let end = |usage| ModelCallEnd { usage, ..ModelCallEnd::default() };
        check(end(usage(0.5)), true, Some(0.5));
        check(end(usage(0.0)), true, Some(0.0));
        check(end(usage(0.0)), false, None);
        // The provider has said it itself.
        check(end(usage(0.5)), false, Some(0.5));
        // An answer, and no word about tokens.
        check(end(Usage::default()), true, None);
    }

    #[test]
    fn a_call_that_was_turned_away_costs_nothing_and_one_that_was_cut_nobody_knows() {
        let failed = |fault, first_token| ModelCallEnd {
            fault: Some(fault),
            first_token,
            ..ModelCallEnd::default()
        };
        let spoke = Some(Duration::from_millis(5));
        check(failed(Fault::RateLimited(None, String::new()), None), true, Some(0.0));
        let turned_away = || failed(Fault::Refused(String::new()), None);
        check(turned_away(), false, Some(0.0));
        let charged = ModelCallEnd { usage: usage(0.0), ..turned_away() };
        check(charged, false, None);
        check(failed(Fault::Unavailable(String::new()), spoke), true, None);
        check(failed(Fault::Cut(String::new()), None), true, None);
        check(failed(Fault::Cancelled, spoke), true, None);
    }

    #[test]
    fn a_line_says_who_asked_whom_and_what_it_took() {
        let model = ModelRef { provider: "p".into(), model: "m".into() };
        let end = ModelCallEnd {
            usage: usage(0.5),
            fault: Some(Fault::Cut("cut".into())),
            duration: Duration::from_micros(12_700),
            first_token: Some(Duration::from_millis(9)),
            ..ModelCallEnd::default()
        };
        let want = Call {
            ts: String::new(),
            agent: "a".into(),
            session: Some("s".into()),
            provider: "p".into(),
            model: "m".into(),
            input: 7,
            output: 3,
            cost_usd: Some(0.5),
            duration_ms: 12,
            first_token_ms: Some(9),
            failure: Some("cut"),
            ..Call::default()
        };
        assert_eq!(Call { ts: String::new(), ..call("a", "s", &model, &end, true) }, want);
        assert_eq!(call("a", "", &model, &end, true).session, None);
    }
}
