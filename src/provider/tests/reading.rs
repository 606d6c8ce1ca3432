//! A stream as a decoder reads it, cut anywhere, and the answer that comes of
//! it.

use crate::clock::Time;
use crate::config::ModelRef;
use crate::provider::assemble::{Answer, Assembly};
use crate::provider::measured::Measured;
use crate::provider::{Decoder, Delta, Failure, Fault};

/// What comes of a stream: its deltas, neighbours of one kind joined, and
/// whether its end mark was seen, or how it failed.
pub(in crate::provider) type Came = (Vec<Delta>, Result<bool, Fault>);

/// How streams of a protocol are read.
pub(in crate::provider) struct Reading {
    /// The protocol's name.
    pub(in crate::provider) api: &'static str,
    /// What reads one stream.
    pub(in crate::provider) decoder: fn() -> Box<dyn Decoder>,
}

impl Reading {
    /// What comes of a stream that comes in these pieces.
    pub(in crate::provider) fn of<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Came {
        let mut decoder = (self.decoder)();
        let mut deltas = Vec::new();
        let mut fed = Ok(());
        for piece in pieces {
            fed = decoder.feed(piece, &mut deltas);
            if fed.is_err() || decoder.is_done() {
                break;
            }
        }
        let ended = fed.and_then(|()| decoder.end(&mut deltas)).map(|()| decoder.is_done());
        (joined(deltas), ended)
    }

    /// What comes of a stream however it is cut: in pieces of one size, and in
    /// two at each place.
    #[track_caller]
    pub(in crate::provider) fn however_cut(&self, stream: &[u8]) -> Came {
        let whole = self.of([stream]);
        for size in [1, 2, 3, 7, 64] {
            assert_eq!(self.of(stream.chunks(size)), whole, "pieces of {size}");
        }
        for place in 1..stream.len() {
            let (first, second) = stream.split_at(place);
            assert_eq!(self.of([first, second]), whole, "cut at {place}");
        }
        whole
    }

    /// The answer that is stored of what came.
    pub(in crate::provider) fn stored(&self, came: Came) -> Result<Answer, Box<Failure>> {
        let model = ModelRef { provider: "acme".into(), model: "m".into() };
        let mut assembly = Assembly::new(self.api, &model, Time::from_unix_millis(7));
        let (deltas, ended) = came;
        deltas.into_iter().for_each(|it| assembly.take(it));
        match ended {
            Ok(_) => assembly.finish(),
            Err(fault) => Err(assembly.fail(fault)),
        }
    }
}

/// A decoder that says the same at every feed and at its end, whatever it reads.
pub(in crate::provider) struct Saying {
    said: Vec<Delta>,
    fault: Option<Fault>,
}

impl Saying {
    pub(in crate::provider) fn of(said: &[Delta]) -> Self {
        Self { said: said.to_vec(), fault: None }
    }

    /// The same; each feed fails once that is said.
    pub(in crate::provider) fn and_failing(self, fault: Fault) -> Self {
        Self { fault: Some(fault), ..self }
    }
}

impl Decoder for Saying {
    fn feed(&mut self, _: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        self.end(deltas)?;
        self.fault.clone().map_or(Ok(()), Err)
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        deltas.extend_from_slice(&self.said);
        Ok(())
    }
}

/// A decoder with the bound that stands around each.
pub(in crate::provider) fn measured(decoder: Box<dyn Decoder>) -> Box<dyn Decoder> {
    Box::new(Measured::new("acme", decoder))
}

fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
    let mut joined: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (joined.last_mut(), delta) {
            (Some(Delta::Text(it)), Delta::Text(more)) => it.push_str(&more),
            (Some(Delta::Thinking(it)), Delta::Thinking(more)) => it.push_str(&more),
            (_, delta) => joined.push(delta),
        }
    }
    joined
}
