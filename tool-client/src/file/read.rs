//! Shows a file: text by whole lines within two bounds, images as they are,
//! folders as a list, the rest described. Reads no further than it shows, and
//! holds no more than it shows.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

use super::failure::{Code, Failure};
use super::listing;
use super::open::{Opened, open_file, open_it};
use super::talk::Talk;
use super::text::{self, Kind};
use super::{Place, sized};
use crate::fields::Fields;

/// Text shown at most, whatever is asked for, in bytes.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// How far the end of a line that was cut is looked for, in bytes.
const MOST_SKIPPED: u64 = 64 * 1024 * 1024;

/// What part of a text is shown, and how much at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The first line, counted from 1.
    first: u64,
    /// Lines.
    lines: u64,
    /// Bytes of text.
    bytes: usize,
    /// Bytes of an image.
    image_bytes: u64,
}

/// What was shown of a text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    text: Vec<u8>,
    lines: u64,
    /// The line to go on with.
    next: Option<u64>,
    /// The one line shown is only the beginning of a longer one.
    cut_line: bool,
    /// The text ends before the first line.
    past_end: bool,
    /// Lines in all, where the end was seen.
    total: Option<u64>,
}

impl Bounds {
    /// Takes the fields `offset`, `limit`, `maxLines`, `maxBytes` and
    /// `maxImageBytes`.
    pub(crate) fn parse(fields: &mut Fields) -> Result<Self, String> {
        let most_lines = fields.number("maxLines")?.unwrap_or(2000);
        let bytes = fields.number("maxBytes")?.unwrap_or(51_200).clamp(1, MOST_BYTES);
        Ok(Self {
            first: fields.number("offset")?.unwrap_or(1).max(1),
            lines: fields.number("limit")?.unwrap_or(most_lines).min(most_lines),
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            image_bytes: fields.number("maxImageBytes")?.unwrap_or(10 * 1024 * 1024),
        })
    }
}

/// Shows what the path leads to.
pub(crate) fn read(
    talk: &mut Talk<'_>,
    place: &Place<'_>,
    bounds: &Bounds,
) -> Result<Value, Failure> {
    let failed = |error: io::Error| Failure::of(&error, "read", &place.asked);
    let (file, size) = match open_it(place, "read")? {
        Opened::File(file, stat) => (file, u64::try_from(stat.st_size).unwrap_or(0)),
        Opened::Folder(folder) => return listing::list(&folder).map_err(failed),
    };
    match text::kind(&head(&file).map_err(failed)?) {
        Kind::Image(mime) => read_image(talk, place, file, mime, bounds.image_bytes),
        Kind::Binary => Ok(json!({ "kind": "binary", "bytes": size })),
        Kind::Text => {
            let shown = show(BufReader::with_capacity(64 * 1024, file), bounds, || talk.stay())
                .map_err(|it| it.unwrap_or_else(failed))?;
            talk.give(&shown.text)?;
            Ok(shown.to_json(bounds.first, size))
        }
    }
}

/// Gives the raw bytes of a file, `most` at most.
pub(crate) fn fetch(talk: &mut Talk<'_>, place: &Place<'_>, most: u64) -> Result<Value, Failure> {
    let (file, _) = open_file(place, "read")?;
    let (bytes, truncated) = copy(talk, place, file, most)?;
    let mut result = sized(bytes);
    result["truncated"] = truncated.into();
    Ok(result)
}

fn read_image(
    talk: &mut Talk<'_>,
    place: &Place<'_>,
    file: File,
    mime: &str,
    most: u64,
) -> Result<Value, Failure> {
    let size = file.metadata().map_or(0, |it| it.len());
    if size > most {
        let text = format!(
            "cannot show {}: the image has {size} bytes, {most} at most can be shown; make it smaller first",
            place.asked.display()
        );
        return Err(Failure::new(Code::TooLarge, text).with("bytes", size));
    }
    let (bytes, _) = copy(talk, place, file, most)?;
    Ok(json!({ "kind": "image", "mime": mime, "bytes": bytes }))
}

/// Sends a file's bytes, `most` at most; says how many, and whether there are
/// more.
fn copy(
    talk: &mut Talk<'_>,
    place: &Place<'_>,
    file: File,
    most: u64,
) -> Result<(u64, bool), Failure> {
    let mut buffer = vec![0; 64 * 1024];
    let mut from = file.take(most.saturating_add(1));
    let mut sent = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((sent, false)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::of(&error, "read", &place.asked)),
        };
        let room = usize::try_from(most - sent).unwrap_or(usize::MAX).min(count);
        talk.give(&buffer[..room])?;
        sent += room as u64;
        if room < count {
            return Ok((sent, true));
        }
    }
}

fn head(file: &File) -> io::Result<Vec<u8>> {
    let mut head = vec![0; text::HEAD];
    let mut filled = 0;
    while filled < head.len() {
        match file.read_at(&mut head[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(filled);
    Ok(head)
}

/// A failure of the file, or (`Ok`) one that is complete.
type Broken = Result<Failure, io::Error>;

/// Takes the wanted lines from a text; `stay` may end what takes long.
fn show(
    mut from: impl BufRead,
    bounds: &Bounds,
    mut stay: impl FnMut() -> Result<(), Failure>,
) -> Result<Shown, Broken> {
    let mut shown = Shown::default();
    for line in 1..bounds.first {
        if !skip_line(&mut from, u64::MAX, &mut stay)? {
            shown.past_end = true;
            shown.total = Some(line - 1);
            return Ok(shown);
        }
    }
    if bounds.first > 1 && at_end(&mut from).map_err(Err)? {
        shown.past_end = true;
    }
    while shown.lines < bounds.lines && !at_end(&mut from).map_err(Err)? {
        let before = shown.text.len();
        let mut line = (&mut from).take((bounds.bytes - before) as u64);
        let count = line.read_until(b'\n', &mut shown.text).map_err(Err)?;
        let ended = count > 0 && shown.text.ends_with(b"\n");
        if !ended && !at_end(&mut from).map_err(Err)? {
            return finish_cut(shown, from, bounds, before, stay);
        }
        shown.lines += 1;
    }
    shown.finish(bounds, at_end(&mut from).map_err(Err)?);
    Ok(shown)
}

/// The line that began at `before` does not fit: the first one is shown in
/// part, any other not at all.
fn finish_cut(
    mut shown: Shown,
    mut from: impl BufRead,
    bounds: &Bounds,
    before: usize,
    mut stay: impl FnMut() -> Result<(), Failure>,
) -> Result<Shown, Broken> {
    if shown.lines > 0 {
        shown.text.truncate(before);
        shown.finish(bounds, false);
        return Ok(shown);
    }
    // A few bytes more tell whether the cut goes through a character.
    let wanted = shown.text.len();
    (&mut from).take(3).read_to_end(&mut shown.text).map_err(Err)?;
    let newline = shown.text[wanted..].iter().position(|it| *it == b'\n');
    let more_was_read = newline.is_some_and(|it| wanted + it + 1 < shown.text.len());
    let fitting = text::cut(&shown.text, wanted).len();
    shown.text.truncate(fitting);
    shown.lines = 1;
    shown.cut_line = true;
    if newline.is_none() {
        skip_line(&mut from, MOST_SKIPPED, &mut stay)?;
    }
    shown.finish(bounds, !more_was_read && at_end(&mut from).map_err(Err)?);
    Ok(shown)
}

/// Skips to the start of the next line, looking no further than `most` bytes;
/// false if the text ended before this line began.
fn skip_line(
    from: &mut impl BufRead,
    most: u64,
    stay: &mut impl FnMut() -> Result<(), Failure>,
) -> Result<bool, Broken> {
    let mut skipped: u64 = 0;
    loop {
        let piece = from.fill_buf().map_err(Err)?;
        if piece.is_empty() {
            return Ok(skipped > 0);
        }
        let newline = piece.iter().position(|it| *it == b'\n');
        let count = newline.map_or(piece.len(), |it| it + 1);
        from.consume(count);
        skipped += count as u64;
        if newline.is_some() || skipped >= most {
            return Ok(true);
        }
        stay().map_err(Ok)?;
    }
}

fn at_end(from: &mut impl BufRead) -> io::Result<bool> {
    Ok(from.fill_buf()?.is_empty())
}

impl Shown {
    fn finish(&mut self, bounds: &Bounds, at_end: bool) {
        let after = bounds.first.saturating_add(self.lines);
        self.next = (!at_end).then_some(after);
        self.total = at_end.then(|| after - 1);
    }

    fn to_json(&self, first: u64, size: u64) -> Value {
        json!({
            "kind": "text", "firstLine": first, "lines": self.lines, "next": self.next,
            "bytes": size, "cutLine": self.cut_line, "pastEnd": self.past_end,
            "totalLines": self.total,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(first: u64, lines: u64, bytes: usize) -> Bounds {
        Bounds { first, lines, bytes, image_bytes: 0 }
    }

    /// Text, lines, next, cut_line, past_end, total.
    type Want<'a> = (&'a str, u64, Option<u64>, bool, bool, Option<u64>);

    #[track_caller]
    fn check(text: &str, bounds: &Bounds, want: Want<'_>) {
        // Every size of the reader's buffer, so that no border matters.
        for size in 1..=text.len() + 1 {
            let shown = show(BufReader::with_capacity(size, text.as_bytes()), bounds, || Ok(()));
            let Ok(it) = shown else { unreachable!("reading memory fails") };
            let got = String::from_utf8_lossy(&it.text);
            let got = (&*got, it.lines, it.next, it.cut_line, it.past_end, it.total);
            assert_eq!(got, want, "with a buffer of {size}");
        }
    }

    #[test]
    fn whole_lines_are_shown_within_the_bounds() {
        let text = "one\ntwo\nthree";
        check(text, &bounds(1, 9, 99), ("one\ntwo\nthree", 3, None, false, false, Some(3)));
        check(text, &bounds(2, 1, 99), ("two\n", 1, Some(3), false, false, None));
        check(text, &bounds(1, 9, 8), ("one\ntwo\n", 2, Some(3), false, false, None));
        check(text, &bounds(1, 9, 9), ("one\ntwo\n", 2, Some(3), false, false, None));
        check(text, &bounds(1, 9, 13), ("one\ntwo\nthree", 3, None, false, false, Some(3)));
        check(text, &bounds(3, 9, 99), ("three", 1, None, false, false, Some(3)));
        check("one\n", &bounds(1, 1, 99), ("one\n", 1, None, false, false, Some(1)));
        check("one\n", &bounds(1, 1, 4), ("one\n", 1, None, false, false, Some(1)));
        check("\n\n", &bounds(1, 9, 99), ("\n\n", 2, None, false, false, Some(2)));
        check("", &bounds(1, 9, 99), ("", 0, None, false, false, Some(0)));
    }

    #[test]
    fn an_offset_past_the_end_says_how_many_lines_there_are() {
        check("one\ntwo", &bounds(3, 9, 99), ("", 0, None, false, true, Some(2)));
        check("one\ntwo\n", &bounds(3, 9, 99), ("", 0, None, false, true, Some(2)));
        check("one\ntwo\n", &bounds(9, 9, 99), ("", 0, None, false, true, Some(2)));
        check("", &bounds(2, 9, 99), ("", 0, None, false, true, Some(0)));
    }

    #[test]
    fn a_line_over_the_bound_is_cut_between_characters() {
        check("aé語𝄞z\nb", &bounds(1, 9, 4), ("aé", 1, Some(2), true, false, None));
        check("aé語𝄞z\nb", &bounds(1, 9, 6), ("aé語", 1, Some(2), true, false, None));
        check("aé語𝄞z", &bounds(1, 9, 9), ("aé語", 1, None, true, false, Some(1)));
        check("aé語𝄞z\n", &bounds(1, 9, 9), ("aé語", 1, None, true, false, Some(1)));
        check("a\n語語\nb", &bounds(2, 9, 5), ("語", 1, Some(3), true, false, None));
    }

    #[test]
    fn every_bound_gives_whole_characters() {
        let text = "語é𝄞".repeat(5);
        for most in 1..text.len() {
            let shown = show(text.as_bytes(), &bounds(1, 9, most), || Ok(()));
            let Ok(it) = shown else { unreachable!("reading memory fails") };
            assert!(std::str::from_utf8(&it.text).is_ok() && it.text.len() <= most, "{most}");
            assert!(it.text.len() + 3 >= most, "{most}");
        }
    }
}
