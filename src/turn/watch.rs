//! The clock of one model call: from its start to the first that the model says
//! and to its end.

use std::time::{Duration, Instant};

use super::ModelCallEnd;
use crate::provider::{Answer, Delta, Failure};
use crate::usage::Role;

/// How long a call takes.
#[derive(Debug)]
pub struct CallWatch {
    begun: Instant,
    first: Option<Duration>,
}

impl CallWatch {
    /// A call that is made now.
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

    /// How the call ended, now; `role` is what it was for.
    pub fn end(&self, called: &Result<Answer, Box<Failure>>, role: Role) -> ModelCallEnd {
        let (message, fault) = match called {
            Ok(answer) => (&answer.message, None),
            Err(failure) => (&failure.partial, Some(failure.fault.clone())),
        };
        ModelCallEnd {
            output_bytes: message.text().len() as u64,
            usage: message.usage.clone(),
            fault,
            role,
            duration: self.begun.elapsed(),
            first_token: self.first,
        }
    }
}
