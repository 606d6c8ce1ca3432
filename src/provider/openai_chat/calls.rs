//! Puts the pieces of tool calls to their calls. Pure. Servers differ in how
//! they say which call a piece is of: by index, by id, by both, by neither, by
//! an index that is always 0, by an id that is new in every piece.

use std::fmt;

use serde_json::Value;

use crate::provider::field::{number, text};
use crate::provider::{CallPiece, Delta};

/// Most calls of one answer.
const MOST_CALLS: usize = 1_024;

/// A name in pieces that is longer is told no further, in bytes: it is told anew
/// with each.
const LONGEST_NAME: usize = 1_024;

/// The answer has more than [`MOST_CALLS`] calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooMany;

/// The tool calls of one answer on their way.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// How many there were before this chunk.
    before_chunk: usize,
}

/// What has come of one call.
#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Outline,
    has_signature: bool,
}

/// How far the JSON text of some arguments has come: enough to tell whether a
/// further piece can belong to them, without reading them again each time.
#[derive(Debug, Default)]
struct Outline {
    begun: bool,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

/// One piece as it came.
struct Piece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: String,
    signature: &'a str,
}

/// In words.
impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it has more than {MOST_CALLS} tool calls")
    }
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes the pieces of one chunk.
    pub(super) fn take(
        &mut self,
        pieces: &[Value],
        deltas: &mut Vec<Delta>,
    ) -> Result<(), TooMany> {
        self.before_chunk = self.calls.len();
        for piece in pieces {
            self.take_piece(Piece::read(piece), deltas)?;
        }
        Ok(())
    }

    fn take_piece(&mut self, piece: Piece<'_>, deltas: &mut Vec<Delta>) -> Result<(), TooMany> {
        let place = match self.place_of(&piece) {
            Some(place) => place,
            None if piece.is_empty() => return Ok(()),
            None if self.calls.len() == MOST_CALLS => return Err(TooMany),
            None => {
                self.calls.push(Call { index: piece.index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[place];
        deltas.push(Delta::ToolCall(call.add(place as u64, &piece)));
        if !piece.signature.is_empty() && !std::mem::replace(&mut call.has_signature, true) {
            deltas.push(Delta::Signature(piece.signature.to_owned()));
        }
        Ok(())
    }

    /// The call that a piece continues; none if it begins one.
    fn place_of(&self, piece: &Piece<'_>) -> Option<usize> {
        let find = |fits: &dyn Fn(&Call) -> bool| self.calls.iter().rposition(fits);
        let by_id = || find(&|it| !piece.id.is_empty() && it.id == piece.id);
        let found = match piece.index {
            Some(index) => find(&|it| it.index == Some(index))
                .or_else(|| by_id().filter(|place| self.calls[*place].index.is_none())),
            None if !piece.id.is_empty() => by_id(),
            None => self.calls.len().checked_sub(1),
        };
        found.filter(|place| !self.begins_another(&self.calls[*place], *place, piece))
    }

    /// Whether a piece that seems to continue a call is another call's start.
    fn begins_another(&self, call: &Call, place: usize, piece: &Piece<'_>) -> bool {
        if piece.name.is_empty() {
            return false;
        }
        let is_whole = call.arguments.is_whole();
        if !piece.id.is_empty() && piece.id == call.id {
            // A stuttering server tells it again: a call of its own, which is
            // held against the other one when all are there.
            return is_whole && !piece.arguments.trim().is_empty();
        }
        let other_id = !piece.id.is_empty() && !call.id.is_empty();
        match piece.index {
            Some(_) => {
                (other_id && (is_whole || !is_continued(&call.name, piece.name)))
                    || (is_whole && !piece.arguments.is_empty())
            }
            None => {
                let same_chunk = place >= self.before_chunk;
                is_whole || same_chunk || (call.arguments.begun && call.name != piece.name)
            }
        }
    }
}

/// Whether a name may be another piece of the same name: the whole of it
/// again, or more of it.
fn is_continued(name: &str, piece: &str) -> bool {
    name.is_empty() || piece.starts_with(name)
}

impl Call {
    fn add(&mut self, slot: u64, piece: &Piece<'_>) -> CallPiece {
        let new_id = self.id.is_empty() && !piece.id.is_empty();
        if new_id {
            self.id = piece.id.to_owned();
        }
        let new_name = self.add_name(piece.name);
        self.arguments.add(&piece.arguments);
        CallPiece {
            slot,
            id: new_id.then(|| self.id.clone()),
            name: new_name.then(|| self.name.clone()),
            arguments: piece.arguments.clone(),
        }
    }

    /// Adds to the name: it comes whole, whole in every piece, or in pieces.
    fn add_name(&mut self, piece: &str) -> bool {
        if piece.is_empty() || piece == self.name {
            return false;
        }
        if piece.starts_with(&self.name) {
            self.name = piece.to_owned();
            return true;
        }
        let in_pieces = !self.arguments.begun && self.name.len() <= LONGEST_NAME;
        if in_pieces {
            self.name.push_str(piece);
        }
        in_pieces
    }
}

impl<'a> Piece<'a> {
    /// Reads a piece, also where its function's fields stand in itself.
    fn read(piece: &'a Value) -> Self {
        let function = piece.get("function").filter(|it| it.is_object()).unwrap_or(piece);
        let signature = piece.pointer("/extra_content/google/thought_signature");
        Self {
            index: piece.get("index").and_then(number),
            id: text(piece, "id"),
            name: text(function, "name"),
            arguments: arguments(function.get("arguments")),
            signature: signature.and_then(Value::as_str).unwrap_or_default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.id.is_empty() && self.name.is_empty() && self.arguments.is_empty()
    }
}

/// More of the arguments' text. Some servers give them as an object; an empty
/// one says nothing, also where the text still comes.
fn arguments(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(it)) => it.clone(),
        Some(Value::Object(it)) if it.is_empty() => String::new(),
        Some(it) => it.to_string(),
    }
}

impl Outline {
    fn add(&mut self, more: &str) {
        for byte in more.bytes() {
            self.begun |= !byte.is_ascii_whitespace();
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => (),
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => (),
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.begun && self.depth == 0 && !self.in_string
    }
}
