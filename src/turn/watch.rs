//! How long a call to a model takes, and what is told of it at its end.

use std::time::{Duration, Instant};

use super::ModelCallEnd;
use crate::provider::{Answer, Delta, Failure};
use crate::usage::Role;

/// A call under way.
#[derive(Debug)]
pub struct Watch {
    begun: Instant,
    first: Option<Duration>,
}

impl Watch {
    /// A call that begins now.
    pub fn start() -> Self {
        Self { begun: Instant::now(), first: None }
    }

    /// Notes the first that a model says; figures and marks are not said.
    pub fn saw(&mut self, delta: &Delta) {
        let is_said = !matches!(delta, Delta::Usage(_) | Delta::Stop(_) | Delta::Mark(_));
        if is_said && self.first.is_none() {
            self.first = Some(self.begun.elapsed());
        }
    }

    /// How the call ended, which was made for this.
    pub fn ended(&self, called: &Result<Answer, Box<Failure>>, role: Role) -> ModelCallEnd {
        let (message, fault) = match called {
            Ok(answer) => (&answer.message, None),
            Err(failure) => (&failure.partial, Some(failure.fault.clone())),
        };
        ModelCallEnd {
            role,
            output_bytes: message.text().len() as u64,
            usage: message.usage.clone(),
            fault,
            duration: self.begun.elapsed(),
            first_token: self.first,
        }
    }
}
