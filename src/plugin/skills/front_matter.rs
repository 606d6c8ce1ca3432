//! The front matter of a `SKILL.md`: YAML between two lines `---`, of which only
//! `key: text` is read, plain, in quotes or as a block (`>`, `|`). What else
//! YAML knows is passed over under keys that nobody asks for, and refused with
//! its line under those that count. Pure.

/// Keys that the convention knows; the others are odd.
const KNOWN: [&str; 7] =
    ["name", "description", "license", "compatibility", "metadata", "allowed-tools", "version"];

/// What begins a value of YAML that is no plain text.
const OTHER_FORMS: [char; 10] = ['[', '{', '&', '*', '!', '%', '@', '`', ']', '}'];

/// The entries between the two lines.
#[derive(Debug, PartialEq)]
pub(super) struct FrontMatter<'a> {
    entries: Vec<Entry<'a>>,
}

#[derive(Debug, PartialEq)]
struct Entry<'a> {
    /// Counted from 1, in the file.
    line: usize,
    key: &'a str,
    /// What stands behind the key.
    first: &'a str,
    /// The lines below that belong to it.
    more: Vec<&'a str>,
}

impl<'a> FrontMatter<'a> {
    /// Reads the front matter that the text begins with; what is wrong names
    /// its line.
    pub(super) fn read(text: &'a str) -> Result<Self, String> {
        let mut lines = text.lines().zip(1..);
        if lines.next().is_none_or(|(it, _)| it.trim_end() != "---") {
            return Err("line 1: must be `---`, with `name` and `description` below it, or there \
                        must be a skill.json"
                .into());
        }
        let mut entries: Vec<Entry<'a>> = Vec::new();
        for (text, line) in lines {
            if matches!(text.trim_end(), "---" | "...") {
                return Ok(Self { entries });
            }
            let belongs = text.trim().is_empty() || text.starts_with([' ', '\t', '-']);
            match entries.last_mut() {
                Some(entry) if belongs => entry.more.push(text),
                _ if text.trim().is_empty() || text.starts_with('#') => {}
                _ => entries.push(Entry::begin(text, line)?),
            }
        }
        Err("line 1: the front matter has no end; close it with a line `---`".into())
    }

    /// The text under that key; an error says why there is none.
    pub(super) fn text(&self, key: &str) -> Result<String, String> {
        let mut entries = self.entries.iter().filter(|it| it.key == key);
        let entry = entries.next().ok_or_else(|| format!("`{key}` is missing"))?;
        match entries.next() {
            Some(it) => {
                Err(format!("line {}: `{key}` stands in line {} already", it.line, entry.line))
            }
            None => entry.text(),
        }
    }

    /// Keys that the convention does not know.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &'a str> {
        self.entries.iter().map(|it| it.key).filter(|it| !KNOWN.contains(it))
    }
}

impl<'a> Entry<'a> {
    fn begin(text: &'a str, line: usize) -> Result<Self, String> {
        match key_of(text) {
            Some((key, first)) => Ok(Self { line, key, first, more: Vec::new() }),
            None => Err(format!("line {line}: expected `key: text`")),
        }
    }

    fn text(&self) -> Result<String, String> {
        let text =
            self.written().map_err(|it| format!("line {}: `{}` {it}", self.line, self.key))?;
        match text.trim().is_empty() {
            true => Err(format!("line {}: `{}` is empty", self.line, self.key)),
            false => Ok(text.trim().to_owned()),
        }
    }

    /// The text, in whichever way it is written. Line breaks are blanks, since
    /// all that is asked for is one line of words.
    fn written(&self) -> Result<String, String> {
        let first = self.first.trim();
        if first.starts_with(['>', '|']) {
            return match without_comment(&first[1..]).trim() {
                "" | "-" | "+" => Ok(joined(self.more.iter().copied())),
                _ => {
                    Err("has a block whose first line holds more than `>`, `|`, `-` or `+`".into())
                }
            };
        }
        let lines = [first].into_iter().chain(self.more.iter().map(|it| it.trim()));
        let all = joined(lines.clone());
        if let Some(quoted) = all.strip_prefix('"') {
            return double_quoted(quoted);
        }
        if let Some(quoted) = all.strip_prefix('\'') {
            return single_quoted(quoted);
        }
        let below = self.more.iter().find(|it| !it.trim().is_empty());
        let is_map = first.is_empty() && below.is_some_and(|it| key_of(it.trim()).is_some());
        if is_map || all.starts_with(OTHER_FORMS) || all.starts_with("- ") {
            return Err("is a list, a map or something else that is not read here; write a text, \
                        in quotes if it begins with such a sign"
                .into());
        }
        Ok(joined(lines.map(without_comment)))
    }
}

/// `key: text` in its parts.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, text) = line.split_once(':')?;
    let plain = |it: char| it.is_ascii_alphanumeric() || "_-.".contains(it);
    let is_key = !key.is_empty() && key.chars().all(plain);
    (is_key && (text.is_empty() || text.starts_with([' ', '\t']))).then_some((key, text))
}

fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<&str> = lines.map(str::trim).filter(|it| !it.is_empty()).collect();
    lines.join(" ")
}

/// A `#` begins a comment at the start of a text or behind a blank.
fn without_comment(text: &str) -> &str {
    let is_comment = |at: usize| text[..at].ends_with([' ', '\t']) || at == 0;
    let begin = text.match_indices('#').map(|it| it.0).find(|it| is_comment(*it));
    &text[..begin.unwrap_or(text.len())]
}

/// What stands up to the closing quote; two of them are one that is meant.
fn single_quoted(text: &str) -> Result<String, String> {
    let mut read = String::new();
    let mut rest = text.chars();
    while let Some(it) = rest.next() {
        if it != '\'' {
            read.push(it);
        } else if rest.as_str().starts_with('\'') {
            read.push('\'');
            rest.next();
        } else {
            return closed(read, rest.as_str());
        }
    }
    Err("has a quote that is not closed".into())
}

/// The same with `\` before what is meant otherwise.
fn double_quoted(text: &str) -> Result<String, String> {
    let mut read = String::new();
    let mut rest = text.chars();
    while let Some(it) = rest.next() {
        match it {
            '"' => return closed(read, rest.as_str()),
            '\\' => read.push(escaped(&mut rest)?),
            it => read.push(it),
        }
    }
    Err("has a quote that is not closed".into())
}

fn escaped(rest: &mut std::str::Chars<'_>) -> Result<char, String> {
    let digits = match rest.next() {
        Some(it @ ('"' | '\\' | '/' | ' ')) => return Ok(it),
        Some('n' | 'r' | 't') => return Ok(' '),
        Some('x') => 2,
        Some('u') => 4,
        Some('U') => 8,
        _ => return Err("has an escape that is not read here; write the character itself".into()),
    };
    let number: String = rest.take(digits).collect();
    let found = u32::from_str_radix(&number, 16).ok().filter(|_| number.len() == digits);
    found.and_then(char::from_u32).ok_or_else(|| "has an escape that is no character".into())
}

fn closed(read: String, rest: &str) -> Result<String, String> {
    match without_comment(rest).trim().is_empty() {
        true => Ok(read),
        false => Err("goes on behind its closing quote; put quotes around all of it".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The description in a front matter of these lines.
    fn description(lines: &str) -> Result<String, String> {
        let text = format!("---\nname: x\n{lines}\n---\nbody: [not read\n");
        FrontMatter::read(&text)?.text("description")
    }

    #[track_caller]
    fn check(lines: &str, want: &str) {
        assert_eq!(description(lines).as_deref(), Ok(want), "{lines}");
    }

    #[track_caller]
    fn check_refused(lines: &str, want: &str) {
        let refused = description(lines).err();
        assert!(refused.as_ref().is_some_and(|it| it.contains(want)), "{lines}: {refused:?}");
    }

    #[test]
    fn a_text_is_read_however_it_is_written() {
        check("description: Reads PDFs.", "Reads PDFs.");
        check("description:\tUse when: always, C# too", "Use when: always, C# too");
        check("description: one # of two", "one");
        check("description: one\n  two\n\n  three", "one two three");
        check("description:\n  one\n  two", "one two");
        check("description: >\n  one\n  two\n\n  three # four", "one two three # four");
        check("description: |- # kept short\n    one\n      two", "one two");
        check("description: >+\n  key: text", "key: text");
        check("description: \"a: \\\"b\\\" \\u00e9\\n# c\" # d", "a: \"b\" é # c");
        check("description: \"one\n  two\"", "one two");
        check("description: 'it''s \\n' # so", "it's \\n");
        check("description: a\r\nlicense: MIT\r", "a");
        check("# comment\n\ndescription: a - b", "a - b");
    }

    #[test]
    fn what_nobody_asks_for_is_passed_over() {
        check(
            "license: [MIT, {a: b}]\nmetadata:\n  author: me\n  tags:\n    - a\nodd: &x *y\n\
             list:\n- one\n- two\ndescription: read",
            "read",
        );
        let text = "---\nname: x\nallowed-tools: Bash(git:*)\nodd: 1\n---\n";
        let unknown = FrontMatter::read(text).map(|it| it.unknown().collect::<Vec<_>>());
        assert_eq!(unknown, Ok(vec!["odd"]));
    }

    #[test]
    fn what_is_no_text_names_its_line() {
        for value in ["[a, b]", "{a: b}", "&a b", "*a", "!!str a", "\n  - a", "\n- a", "\n  a: b"] {
            check_refused(&format!("description: {value}"), "line 3: `description` is a list");
        }
        check_refused("description: >2\n  a", "line 3: `description` has a block");
        check_refused("description: \"a", "line 3: `description` has a quote that is not closed");
        check_refused("description: 'a", "line 3: `description` has a quote that is not closed");
        check_refused("description: 'a' b", "line 3: `description` goes on behind");
        check_refused("description: \"\\q\"", "line 3: `description` has an escape");
        check_refused("description: \"\\u12\"", "line 3: `description` has an escape");
        check_refused("description: \"\\ud800\"", "line 3: `description` has an escape");
        for nothing in ["", " # a", " \"\"", " ''", " >\n"] {
            check_refused(&format!("description:{nothing}"), "line 3: `description` is empty");
        }
        check_refused("license: x\ndescription", "line 4: expected `key: text`");
        check_refused("description:a", "line 3: expected `key: text`");
        check_refused("a b: c", "line 3: expected `key: text`");
        check_refused("license: x", "`description` is missing");
        let twice = "description: x\nlicense: y\ndescription: z";
        check_refused(twice, "line 5: `description` stands in line 3 already");
    }

    #[test]
    fn it_has_a_begin_and_an_end() {
        for text in ["", "# Title\n", "\n---\nname: x\n---\n", "--- \u{0}\n", "----\n"] {
            let refused = FrontMatter::read(text).err().unwrap_or_default();
            assert!(refused.starts_with("line 1: must be `---`"), "{text:?}: {refused}");
        }
        for text in ["---\n", "---\nname: x\n", "---\nname: x\n ---\n"] {
            let refused = FrontMatter::read(text).err().unwrap_or_default();
            assert!(refused.starts_with("line 1: the front matter has no end"), "{refused}");
        }
        assert!(FrontMatter::read("--- \r\nname: x\r\n...\r\n").is_ok());
        assert!(FrontMatter::read("---\n  - a\n---\n").is_err_and(|it| it.starts_with("line 2")));
    }

    #[test]
    fn no_text_ends_in_a_panic() {
        for text in ["---\n: a\n---", "---\né: \"\\", "---\ndescription: \"\\xé\"\n---\n"] {
            let _ = FrontMatter::read(text).map(|it| it.text("description"));
        }
    }
}
