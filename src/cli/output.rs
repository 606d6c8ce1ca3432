//! What the command line writes, and where: data on standard output, words for
//! people on standard error, and on a terminal nothing that drives it.

use std::io::{self, ErrorKind, IsTerminal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::audit::{escaped_as_json, is_active};
use crate::error::{Error, Kind, Result};

/// Whether anything has been written on standard output: one document must
/// stay one.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// Whether anything has been written on standard output.
pub(super) fn has_printed() -> bool {
    HAS_PRINTED.load(Ordering::Relaxed)
}

/// Writes to standard output. A reader that went away (`| head`) is
/// [`Kind::Cancelled`], on which the command ends quietly.
pub(super) fn print(text: &str) -> Result<()> {
    write_to(io::stdout(), text)
}

/// Writes what others wrote to standard output: byte for byte for a program,
/// and so that it cannot drive the terminal for a person.
pub(super) fn present(text: &str) -> Result<()> {
    match io::stdout().is_terminal() {
        true => print(&inert(text)),
        false => print(text),
    }
}

/// Writes JSON to standard output: byte for byte for a program. On a terminal
/// what that would obey is escaped as JSON has it: it is the same document.
pub(super) fn print_json(text: &str) -> Result<()> {
    match io::stdout().is_terminal() {
        true => print(&inert_json(text)),
        false => print(text),
    }
}

/// JSON with everything escaped that a terminal would obey. Such characters
/// stand in its texts only, but for the white space between them.
fn inert_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for it in json.chars() {
        match it {
            '\n' | '\t' => shown.push(it),
            it if is_active(it) => shown.push_str(&escaped_as_json(it)),
            it => shown.push(it),
        }
    }
    shown
}

/// Writes to standard error, for people; nothing in it drives their terminal.
pub(super) fn tell(text: &str) {
    // Nobody is left to hear about a closed standard error.
    let _ = write_through(io::stderr(), format!("{}\n", inert(text)).as_bytes());
}

/// Says in passing what is done meanwhile: as [`tell`], dim where it can be.
pub(super) fn remark(text: &str) {
    let line = format!("{}\n", dim(&inert(text), takes_colours(io::stderr())));
    let _ = write_through(io::stderr(), line.as_bytes());
}

/// Harmless text that stands behind what matters more.
pub(super) fn dim(text: &str, coloured: bool) -> String {
    if coloured { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
}

/// The text with everything escaped that a terminal would obey or not show;
/// its lines stay lines.
pub(super) fn inert(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for it in text.replace("\r\n", "\n").chars() {
        match it {
            '\n' | '\t' => shown.push(it),
            it if is_active(it) => shown.extend(it.escape_default()),
            it => shown.push(it),
        }
    }
    shown
}

/// Whether standard output takes colours: a terminal that knows any, and no
/// `NO_COLOR`.
pub(super) fn colours() -> bool {
    takes_colours(io::stdout())
}

fn takes_colours(stream: impl IsTerminal) -> bool {
    let is_plain = std::env::var_os("TERM").is_some_and(|it| it == "dumb");
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    stream.is_terminal() && !is_plain && !is_unwanted
}

/// Whether a person reads standard output: it is a terminal.
pub(super) fn is_on_screen() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal that standard output is, `$COLUMNS` before what the
/// terminal says; `None` if it is none.
pub(super) fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let named = std::env::var("COLUMNS").ok().and_then(|it| it.trim().parse().ok());
    let seen = || rustix::termios::tcgetwinsize(&stdout).ok().map(|it| usize::from(it.ws_col));
    named.or_else(seen).filter(|it| *it > 0).or(Some(80))
}

/// Whether a person watches: standard error is a terminal.
pub(super) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

fn write_to(out: impl AsFd, text: &str) -> Result<()> {
    HAS_PRINTED.store(true, Ordering::Relaxed);
    write_through(out, text.as_bytes()).map_err(|error| {
        let kind =
            if error.kind() == ErrorKind::BrokenPipe { Kind::Cancelled } else { Kind::Internal };
        Error::new(kind, format!("write to standard output: {error}"))
    })
}

/// Writes all of it, past any buffer. A stream that somebody else has set not
/// to block is waited for: it is neither gone nor full.
pub(super) fn write_through(to: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&to, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_drives_no_terminal() {
        let check = |text: &str, want: &str| assert_eq!(inert(text), want);
        check("a\tb\r\nc\n", "a\tb\nc\n");
        check("é e\u{301} 那 👩\u{200d}👩 \\ \"", "é e\u{301} 那 👩\u{200d}👩 \\ \"");
        check("\x1b[2Jx\rok\x07", "\\u{1b}[2Jx\\rok\\u{7}");
        check("❤\u{fe0f} 龍\u{e0100}", "❤\u{fe0f} 龍\u{e0100}");
        check("a\u{61c}\u{200b}b\u{feff}", "a\\u{61c}\\u{200b}b\\u{feff}");
        check("a\u{e0041}\u{e007f}\u{2060}", "a\\u{e0041}\\u{e007f}\\u{2060}");
        check("\u{9b}2J \u{202e}x", "\\u{9b}2J \\u{202e}x");
    }

    #[test]
    fn json_that_drives_no_terminal_is_the_same_document() -> serde_json::Result<()> {
        let document = serde_json::json!({"\u{9b}k": ["\u{9b}2J\u{202e}\u{7f}\x1b[m\n\u{200b}\u{e0041}", "é 👩 \\ \""]});
        for text in [document.to_string(), serde_json::to_string_pretty(&document)?] {
            let shown = inert_json(&text);
            assert!(!shown.chars().any(|it| is_active(it) && it != '\n'), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown)?, document);
        }
        Ok(())
    }
}
