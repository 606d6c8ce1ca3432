//! Where the entries of a JSON5 text's objects stand: of key, value and comma
//! the bytes. The text is known to be JSON5; arrays are not looked into.

use std::ops::Range;

use crate::config::position::{Lexer, Token, TokenKind, decode_key};

/// An object of the text.
#[derive(Debug)]
pub(super) struct Object {
    /// Offset of its `{`.
    pub(super) open: usize,
    /// Offset of its `}`.
    pub(super) close: usize,
    /// In the order of the text.
    pub(super) entries: Vec<Entry>,
}

/// An entry of an object.
#[derive(Debug)]
pub(super) struct Entry {
    /// What the key means, without quotes and escapes.
    pub(super) name: String,
    /// Where the key stands.
    pub(super) key: Range<usize>,
    /// Where the value stands.
    pub(super) value: Range<usize>,
    /// The value, if it is an object.
    pub(super) inner: Option<Object>,
    /// Offset of the comma behind it.
    pub(super) comma: Option<usize>,
}

impl Object {
    /// The object that the text is; `None` if it is another value.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut lexer = Lexer::new(text);
        let open = lexer.next().filter(|it| it.text == "{")?;
        object(&mut lexer, open.start)
    }

    /// The entry of that name.
    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|it| it.name == name)
    }
}

fn object(lexer: &mut Lexer<'_>, open: usize) -> Option<Object> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let token = lexer.next()?;
        match token.kind {
            TokenKind::Close => return Some(Object { open, close: token.start, entries }),
            TokenKind::Comma => entries.last_mut()?.comma = Some(token.start),
            TokenKind::Quoted | TokenKind::Word => entries.push(entry(lexer, token)?),
            TokenKind::Open | TokenKind::Colon => return None,
        }
    }
}

fn entry(lexer: &mut Lexer<'_>, key: Token<'_>) -> Option<Entry> {
    let name = decode_key(key.text)?;
    lexer.next().filter(|it| it.kind == TokenKind::Colon)?;
    let first = lexer.next()?;
    let (inner, end) = match first.text {
        "{" => {
            let inner = object(lexer, first.start)?;
            let end = inner.close + 1;
            (Some(inner), end)
        }
        "[" => (None, end_of_array(lexer)?),
        scalar => (None, first.start + scalar.len()),
    };
    let key = key.start..key.start + key.text.len();
    Some(Entry { name, key, value: first.start..end, inner, comma: None })
}

fn end_of_array(lexer: &mut Lexer<'_>) -> Option<usize> {
    let mut depth = 1;
    while depth > 0 {
        let token = lexer.next()?;
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(token.start + 1);
        }
    }
    None
}
