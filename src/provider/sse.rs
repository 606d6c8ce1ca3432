//! Reads server-sent events from bytes cut anywhere. Pure. A byte is looked at
//! once and only whole lines are understood, so neither a character that is
//! cut nor a large event costs anything. What no field names is left out, as
//! the standard has it; what is larger than [`LARGEST_EVENT`] is refused.

use std::fmt;

/// Largest event, in bytes: an image or a long tool call in one piece fits.
const LARGEST_EVENT: usize = 16 * 1024 * 1024;

/// Longest id of an event that is kept, in bytes.
const LONGEST_ID: usize = 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An event is larger than [`LARGEST_EVENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its `event:` field; empty if it has none.
    pub name: String,
    /// Its `data:` lines, joined by line feeds.
    pub data: Vec<u8>,
}

/// A stream of events on its way.
#[derive(Debug, Default)]
pub struct EventReader {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    after_return: bool,
    past_first_line: bool,
    /// What the event that is on its way is called by, and what the last whole
    /// one was.
    next_id: Option<String>,
    last_id: Option<String>,
}

/// In words.
impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event is larger than {LARGEST_EVENT} bytes")
    }
}

impl EventReader {
    /// Adds the events that these bytes complete.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLarge> {
        let mut rest = bytes;
        while let Some((&first, others)) = rest.split_first() {
            // A line feed right after a carriage return belongs to it, also
            // where the two came by different reads.
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                rest = others;
                continue;
            }
            let end = rest.iter().position(|it| matches!(it, b'\n' | b'\r'));
            let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.hold(piece)?;
            let Some((&ending, others)) = after.split_first() else { break };
            self.after_return = ending == b'\r';
            self.end_line(events);
            rest = others;
        }
        Ok(())
    }

    /// The bytes have ended: a last event needs neither its line end nor the
    /// empty line after it.
    pub fn end(mut self) -> Option<Event> {
        let mut events = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut events);
        }
        self.end_event(&mut events);
        events.pop()
    }

    /// The id of the last event that was whole, by which the rest can be asked
    /// for.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    fn hold(&mut self, piece: &[u8]) -> Result<(), TooLarge> {
        if self.line.len() + self.event.data.len() + piece.len() > LARGEST_EVENT {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) {
        let mut line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.past_first_line, true);
        if is_first && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if line.is_empty() {
            return self.end_event(events);
        }
        let (field, value) = split_field(&line);
        match field {
            b"data" => {
                let before = line.len() - value.len();
                self.add_data(line, before);
            }
            b"event" => self.event.name = String::from_utf8_lossy(value).into_owned(),
            b"id" => self.next_id = id_of(value).or(self.next_id.take()),
            // A comment has an empty field name.
            _ => (),
        }
    }

    /// The value begins behind so many bytes. The first line becomes the data
    /// itself: a large event is not held twice.
    fn add_data(&mut self, mut line: Vec<u8>, before: usize) {
        if std::mem::replace(&mut self.has_data, true) {
            self.event.data.push(b'\n');
            self.event.data.extend_from_slice(&line[before..]);
        } else {
            line.drain(..before);
            self.event.data = line;
        }
    }

    fn end_event(&mut self, events: &mut Vec<Event>) {
        let event = std::mem::take(&mut self.event);
        self.last_id = self.next_id.take().or(self.last_id.take());
        if std::mem::take(&mut self.has_data) {
            events.push(event);
        }
    }
}

/// What can be said again in a header.
fn id_of(value: &[u8]) -> Option<String> {
    let is_fit = value.len() <= LONGEST_ID && value.iter().all(|it| (0x20..0x7f).contains(it));
    is_fit.then(|| String::from_utf8_lossy(value).into_owned())
}

/// A field's name and value; one space after the colon belongs to neither.
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = line.iter().position(|&it| it == b':') else { return (line, b"") };
    let value = &line[colon + 1..];
    (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &[u8], size: usize) -> Result<Vec<Event>, TooLarge> {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for piece in stream.chunks(size) {
            reader.feed(piece, &mut events)?;
        }
        events.extend(reader.end());
        Ok(events)
    }

    #[track_caller]
    fn check(stream: &str, want: &[(&str, &str)]) {
        let event = |(name, data): &(&str, &str)| Event {
            name: (*name).into(),
            data: data.as_bytes().into(),
        };
        let want: Vec<Event> = want.iter().map(event).collect();
        for size in 1..=stream.len().max(1) {
            assert_eq!(read(stream.as_bytes(), size), Ok(want.clone()), "pieces of {size}");
        }
    }

    #[test]
    fn lines_end_in_any_of_the_three_ways() {
        let want = [("", "那"), ("", "b")];
        check("data: 那\n\ndata: b\n\n", &want);
        check("data: 那\r\n\r\ndata: b\r\n\r\n", &want);
        check("data: 那\r\rdata: b\r\r", &want);
        check("data: 那\r\n\ndata: b\n\r\n", &want);
    }

    #[test]
    fn comments_and_unknown_fields_are_left_out() {
        check(": OPENROUTER PROCESSING\n\n:\n\nid: 7\nretry: 1\ndata: a\n: ka\n\n", &[("", "a")]);
        check("data\n\n", &[("", "")]);
        check("\n\n\n", &[]);
        check("event: ping\n\ndata: a\n\n", &[("", "a")]);
    }

    #[test]
    fn data_lines_of_one_event_are_joined() {
        check("event: error\ndata: a\ndata:b\ndata:  c\n\n", &[("error", "a\nb\n c")]);
    }

    #[test]
    fn the_id_of_the_last_whole_event_is_known() {
        #[track_caller]
        fn check(stream: &str, want: Option<&str>) {
            let mut reader = EventReader::default();
            assert_eq!(reader.feed(stream.as_bytes(), &mut Vec::new()), Ok(()));
            assert_eq!(reader.last_id(), want, "{stream}");
        }
        check("data: a\n\n", None);
        check("id: 7\ndata: a\n\nid: 8\ndata: b\n", Some("7"));
        check("id: 7\n\ndata: a\n\n", Some("7"));
        check(&format!("id: 7\n\nid: {}\n\n", "x".repeat(2000)), Some("7"));
    }

    #[test]
    fn a_byte_order_mark_is_only_one_at_the_start() {
        check("\u{feff}data: a\n\n\u{feff}data: b\n\n", &[("", "a")]);
    }

    #[test]
    fn the_last_event_needs_no_empty_line() {
        check("data: a\n\ndata: b\n", &[("", "a"), ("", "b")]);
        check("data: a\n\ndata: b", &[("", "a"), ("", "b")]);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let piece = vec![b'a'; 1024 * 1024];
        let mut reader = EventReader::default();
        let fed = (0..17).map(|_| reader.feed(&piece, &mut Vec::new()));
        assert_eq!(fed.filter(Result::is_err).count(), 1);
        let line = [b"data: ", &piece[..], b"\n"].concat();
        let mut reader = EventReader::default();
        let fed = (0..17).map(|_| reader.feed(&line, &mut Vec::new()));
        assert!(fed.filter(Result::is_err).count() > 0);
    }
}
