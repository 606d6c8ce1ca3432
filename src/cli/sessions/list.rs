//! `beige sessions list`: a row a session, in columns as wide as names need
//! within bounds, written as it is read.

use super::super::columns::{columns, fitted, in_one_line, padded, shortened};
use super::super::{tell, terminal_width};
use super::{Piece, as_json, masked};
use crate::config::nearest;
use crate::error::Result;
use crate::secret::Redactor;
use crate::session::{Listed, Store, Which};

/// Rows by which the columns of a list are measured.
const MEASURED: usize = 100;

pub(super) fn list(store: &Store, which: &Which, redactor: &Redactor) -> Result<()> {
    let (mut piece, mut first, mut page) = (Piece::default(), Vec::new(), None);
    store.list(which, &mut |session| {
        let session = masked(session, redactor);
        match &page {
            Some(page) => piece.add(&row(&session, page))?,
            None => first.push(session),
        }
        if first.len() == MEASURED {
            page = Some(begin(&mut piece, std::mem::take(&mut first))?);
        }
        Ok(true)
    })?;
    if page.is_none() && first.is_empty() {
        return tell_of_none(store, which);
    }
    if page.is_none() {
        begin(&mut piece, first)?;
    }
    piece.out()
}

/// The first rows, by which the columns of all are measured.
fn begin(piece: &mut Piece, first: Vec<Listed>) -> Result<Page> {
    let page = Page::of(&first, terminal_width());
    piece.add(&page.head().unwrap_or_default())?;
    first.iter().try_for_each(|it| piece.add(&row(it, &page)))?;
    Ok(page)
}

/// What rows are shown on.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Columns of the terminal; `None` if it is none.
    width: Option<usize>,
    agent: usize,
    key: usize,
}

impl Page {
    /// Wide enough for those sessions, within what leaves room for their text.
    fn of(sessions: &[Listed], width: Option<usize>) -> Self {
        let is_narrow = width.is_some_and(|it| it < 120);
        let (most_agent, most_key) = if is_narrow { (10, 20) } else { (20, 36) };
        let agents = sessions.iter().map(|it| columns(&in_one_line(&it.agent_name)));
        let keys = sessions.iter().filter_map(|it| it.key.as_deref());
        let keys = keys.map(|it| columns(&in_one_line(it)));
        let agent = agents.max().unwrap_or(0).clamp(10, most_agent);
        Self { width, agent, key: keys.max().unwrap_or(0).clamp(20, most_key) }
    }

    /// What stands above the rows for a person.
    fn head(&self) -> Option<String> {
        self.width?;
        let start = self.start("when (UTC)", "agent", "session", "msgs");
        Some(self.line(&start, "key", "name or first message"))
    }

    /// What comes first in a row: it names the session.
    fn start(&self, when: &str, agent: &str, id: &str, messages: &str) -> String {
        let (agent, id) = (self.cell(agent, self.agent), padded(id, 22));
        format!("{}  {agent}  {id}  {messages:>5}  ", padded(when, 16))
    }

    fn line(&self, start: &str, key: &str, said: &str) -> String {
        let line = format!("{start}{}  {said}", self.cell(key, self.key));
        let line = line.trim_end();
        match self.width {
            // The text gives way, then the key; what is before them names it.
            Some(width) => format!("{}\n", shortened(line, width.max(columns(start.trim_end())))),
            None => format!("{line}\n"),
        }
    }

    /// A program gets names whole.
    fn cell(&self, text: &str, width: usize) -> String {
        if self.width.is_some() { fitted(text, width) } else { padded(text, width) }
    }
}

/// Nothing may be what there is, or a typing mistake.
fn tell_of_none(store: &Store, which: &Which) -> Result<()> {
    let Some(agent) = &which.agent else {
        tell("no sessions");
        return Ok(());
    };
    let mut known = Vec::new();
    store.list(&Which { agent: None, of_agents_too: true }, &mut |it| {
        if !known.contains(&it.agent_name) {
            known.push(it.agent_name);
        }
        Ok(true)
    })?;
    let hint = nearest(agent, known.iter().map(String::as_str).filter(|it| it != agent))
        .map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
    tell(&format!("no sessions of an agent `{agent}`{hint}"));
    Ok(())
}

/// One line: when, whose, id, number of messages, key, name or first message.
fn row(session: &Listed, page: &Page) -> String {
    let when = session.updated_at.replacen('T', " ", 1);
    let when = in_one_line(when.get(..16).unwrap_or(&when));
    let (agent, id) = (in_one_line(&session.agent_name), in_one_line(&session.session_id));
    let start = page.start(&when, &agent, &id, &session.messages.to_string());
    let key = in_one_line(session.key.as_deref().unwrap_or("-"));
    let model = session.model.as_ref().map(|it| in_one_line(&format!("[{it}] ")));
    let said = in_one_line(session.name.as_deref().unwrap_or(&session.first_message));
    page.line(&start, &key, &(model.unwrap_or_default() + &said))
}

/// `{"sessions":[…]}`, written as it is read.
pub(super) fn list_as_json(store: &Store, which: &Which, redactor: &Redactor) -> Result<()> {
    let mut piece = Piece(String::from("{\"sessions\":["));
    let mut separator = "\n";
    store.list(which, &mut |session| {
        let text = as_json(&masked(session, redactor))?;
        piece.add(&format!("{separator}{text}"))?;
        separator = ",\n";
        Ok(true)
    })?;
    piece.add("\n]}\n")?;
    piece.out()
}

#[cfg(test)]
mod tests {
    use super::super::heading;
    use super::*;
    use crate::config::ModelRef;

    fn page(session: &Listed, width: Option<usize>) -> Page {
        Page::of(std::slice::from_ref(session), width)
    }

    #[test]
    fn columns_are_as_wide_as_names_need_within_bounds() {
        let of = |agent: &str, key: &str| Listed {
            session_id: "20261130-041634-k8kod2".into(),
            agent_name: agent.into(),
            key: Some(key.into()),
            updated_at: "2026-11-30T04:16:34.668Z".into(),
            first_message: "@".into(),
            ..Listed::default()
        };
        let all = [of("a", "k"), of("a-release-builder", &"k".repeat(60)), of("b", "cli:b:work")];
        for width in [100, 160] {
            let page = Page::of(&all, Some(width));
            let starts = all.iter().map(|it| {
                let row = super::row(it, &page);
                row.split_once('@').map(|it| columns(it.0))
            });
            let mut starts: Vec<_> = starts.collect();
            let head = page.head().expect("a head");
            assert!(columns(head.trim_end()) <= width, "{head}");
            starts.push(head.split_once("name or").map(|it| columns(it.0)));
            assert!(starts.iter().all(|it| it.is_some() && *it == starts[0]), "{starts:?}");
        }
        let wide = Page::of(&all, Some(160));
        assert_eq!((wide.agent, wide.key), (17, 36));
        let piped = Page::of(&all, None);
        assert!(super::row(&all[1], &piped).contains(&"k".repeat(60)));
        assert_eq!(piped.head(), None);
    }

    #[test]
    fn a_row_fits_the_terminal_and_drives_none() {
        let session = Listed {
            session_id: "20261130-041634-k8kod2".into(),
            agent_name: "a\u{1b}[2J".into(),
            key: Some("tui:a:default".into()),
            updated_at: "2026-11-30T04:16:34.668Z".into(),
            first_message: "那".repeat(100),
            messages: 12,
            ..Listed::default()
        };
        for width in [80, 100, 200] {
            let row = row(&session, &page(&session, Some(width)));
            assert!(columns(row.trim_end()) <= width, "{row}");
            assert!(!row.contains('\u{1b}'), "{row}");
            assert!(row.starts_with("2026-11-30 04:16  a"), "{row}");
            assert!(row.contains("  20261130-041634-k8kod2     12  "), "{row}");
        }
        let row = |it: &Listed| super::row(it, &page(it, None));
        assert!(row(&session).ends_with("那\n"));
        let model = Some(ModelRef { provider: "q".into(), model: "n\u{1b}".into() });
        let chosen = Listed { model, name: Some("taxes".into()), ..session };
        assert!(row(&chosen).ends_with("  [q/n\\u{1b}] taxes\n"), "{}", row(&chosen));
        assert!(heading(&chosen).contains("\nmodel     q/n"), "{}", heading(&chosen));
    }
}
