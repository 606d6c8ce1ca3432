//! Rust as words and marks, as far as the rules look at it; no parser.

/// The tokens without items behind `#[cfg(test)]`, and how many lines those
/// items have.
pub(super) fn without_tests(tokens: Vec<Token>) -> (Vec<Token>, usize) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut lines = 0;
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].len() >= MARK.len() && tokens[at..at + MARK.len()].iter().eq(&MARK) {
            let end = end_of_item(&tokens, at + MARK.len());
            lines += tokens[end - 1].line - tokens[at].line + 1;
            at = end;
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    (kept, lines)
}

/// Just behind the item that begins there: behind its body, or its semicolon.
fn end_of_item(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(start) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            ";" if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

impl PartialEq<&str> for Token {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

/// Words, `::` and single marks; comments are left out, and of texts only
/// their place is kept.
pub(super) fn lex(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { rest: text, line: 1, tokens: Vec::new() };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    lexer.tokens
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn step(&mut self) {
        let rest = self.rest;
        let word = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
        if rest.starts_with("//") {
            self.skip(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.skip(length_of_comment(rest));
        } else if let Some(length) = length_of_text(rest) {
            self.push(length, "\"\"");
        } else if word > 0 {
            self.push(word, &rest[..word]);
        } else if rest.starts_with("::") {
            self.push(2, "::");
        } else {
            let mark = rest.chars().next().map_or(1, char::len_utf8);
            if rest[..mark].trim().is_empty() {
                self.skip(mark);
            } else {
                self.push(mark, &rest[..mark]);
            }
        }
    }

    fn push(&mut self, length: usize, text: &str) {
        self.tokens.push(Token { text: text.to_owned(), line: self.line });
        self.skip(length);
    }

    fn skip(&mut self, length: usize) {
        self.line += self.rest[..length].matches('\n').count();
        self.rest = &self.rest[length..];
    }
}

/// Comments of this form can hold others.
fn length_of_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text.as_bytes()[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text.as_bytes()[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of the string or character that begins here, if one does.
fn length_of_text(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r"].into_iter().find(|it| text.starts_with(it));
    let prefix = prefix.unwrap_or("");
    let body = &text[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let inner = body[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = inner.find(&end).unwrap_or(inner.len() - end.len());
        return Some(prefix.len() + hashes + 1 + length + end.len());
    }
    if body.starts_with('"') {
        return Some(prefix.len() + length_of_quoted(body, '"'));
    }
    let character = body.strip_prefix('\'')?;
    let mut inside = character.chars();
    let is_lifetime = inside.next() != Some('\\') && inside.next() != Some('\'');
    if is_lifetime {
        return None;
    }
    Some(prefix.len() + length_of_quoted(body, '\''))
}

fn length_of_quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            it if it == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}
