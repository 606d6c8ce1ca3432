//! What is wrong with a configuration: every finding with its place in the
//! file, printed one a line. Collected while the file is loaded, so that all
//! are reported at once; no text holds the value of a secret.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::key_path::{KeyPath, Position};
use crate::config::position::Places;
use crate::error::{Error, Kind, Result};

/// Most findings of one severity that are kept: a broken file of a megabyte
/// must not become a report of a hundred.
const MOST_FINDINGS: usize = 200;

/// Everything found in one file, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The file, as it was named.
    pub file: PathBuf,
    /// What was found, by position.
    pub findings: Vec<Finding>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Where in the file; none when the file could not be read at all.
    pub position: Option<Position>,
    /// The keys that lead to it; empty for the file as a whole.
    pub path: KeyPath,
    /// What is wrong and what to do about it.
    pub message: String,
}

/// Whether the configuration can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, though hardly as meant.
    Warning,
}

impl Severity {
    /// The name in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

impl Report {
    /// A file of which nothing more is known than why it cannot be read.
    pub(crate) fn unreadable(file: &Path, message: String) -> Self {
        Self::single(file, None, message)
    }

    /// A file that is not JSON5.
    pub(crate) fn single(file: &Path, position: Option<Position>, message: String) -> Self {
        let path = KeyPath::default();
        let finding = Finding { severity: Severity::Error, position, path, message };
        Self { file: file.to_owned(), findings: vec![finding] }
    }

    /// Takes in what was found later; the order is that of the file.
    pub(crate) fn add(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.findings.sort_by_key(|it| it.position.map(|it| (it.line, it.column)));
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether the configuration cannot be used.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|it| it.severity == Severity::Error)
    }
}

/// One finding a line: `FILE:LINE:COLUMN: key.path: text`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, finding) in self.findings.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:{finding}", self.file.display())?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        if self.severity == Severity::Warning {
            f.write_str(" warning:")?;
        }
        if !self.path.steps().is_empty() {
            write!(f, " {}:", self.path)?;
        }
        write!(f, " {}", self.message)
    }
}

impl From<Report> for Error {
    fn from(report: Report) -> Self {
        Self::new(Kind::Config, report.to_string())
    }
}

/// Findings while they are being collected: by key path, positions come last.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<(Severity, KeyPath, String)>,
    errors: usize,
    warnings: usize,
}

impl Findings {
    /// Adds what makes the configuration useless.
    pub fn error(&mut self, path: &KeyPath, message: impl Into<String>) {
        self.errors += 1;
        if self.errors <= MOST_FINDINGS {
            self.list.push((Severity::Error, path.clone(), on_one_line(message.into())));
        }
    }

    /// Every finding so far, as `key.path: text`.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.list.iter().map(|(_, path, message)| format!("{path}: {message}"))
    }

    /// An error ([`Kind::Config`]) of all errors, one a line, if there is one.
    pub fn refuse(&self) -> Result<()> {
        let errors = self.list.iter().filter(|it| it.0 == Severity::Error);
        let lines: Vec<String> = errors.map(|(_, path, text)| format!("{path}: {text}")).collect();
        if lines.is_empty() {
            return Ok(());
        }
        Err(Error::new(Kind::Config, lines.join("\n")))
    }

    /// Whether something wrong was found at this very place.
    pub(crate) fn has_error(&self, path: &KeyPath) -> bool {
        self.list.iter().any(|(severity, it, _)| *severity == Severity::Error && it == path)
    }

    /// Adds what a person should know.
    pub fn warn(&mut self, path: &KeyPath, message: impl Into<String>) {
        self.warnings += 1;
        if self.warnings <= MOST_FINDINGS {
            self.list.push((Severity::Warning, path.clone(), on_one_line(message.into())));
        }
    }

    /// The same findings with their positions, in the order of the file.
    /// What equals one of `secrets` is taken out of every text.
    pub(crate) fn into_report(
        mut self,
        file: &Path,
        places: &Places<'_>,
        hide: &dyn Fn(&str) -> String,
    ) -> Report {
        self.count_the_rest();
        let offsets: Vec<usize> = self.list.iter().map(|it| places.offset(&it.1)).collect();
        let positions = places.positions(&offsets);
        let mut findings: Vec<_> = self.list.into_iter().zip(positions).collect();
        findings.sort_by_key(|(_, position)| (position.line, position.column));
        let findings = findings
            .into_iter()
            .map(|((severity, path, message), position)| Finding {
                severity,
                position: Some(position),
                path,
                message: hide(&message),
            })
            .collect();
        Report { file: file.to_owned(), findings }
    }

    fn count_the_rest(&mut self) {
        for (severity, count) in
            [(Severity::Error, self.errors), (Severity::Warning, self.warnings)]
        {
            if count > MOST_FINDINGS {
                let message = format!("{} more findings are not shown", count - MOST_FINDINGS);
                self.list.push((severity, KeyPath::default(), message));
            }
        }
    }
}

/// A finding is a line: what stands in files of others may hold no other.
fn on_one_line(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let shown = |it: char| match it.is_control() {
        true => it.escape_default().to_string(),
        false => it.to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_path_reads_as_in_the_file() {
        let path = KeyPath::from(["agents", "a", "tools"]).index(2);
        assert_eq!(path.to_string(), "agents.a.tools[2]");
        assert_eq!(KeyPath::from(["x", "/a b"]).to_string(), r#"x["/a b"]"#);
    }

    #[test]
    fn a_report_prints_one_finding_a_line() {
        let finding = |severity, position, path, message: &str| Finding {
            severity,
            position,
            path,
            message: message.into(),
        };
        let at = Some(Position { line: 3, column: 7 });
        let report = Report {
            file: "c.json5".into(),
            findings: vec![
                finding(Severity::Error, None, KeyPath::default(), "is a folder"),
                finding(Severity::Error, at, KeyPath::from(["gateway", "port"]), "too large"),
                finding(Severity::Warning, at, KeyPath::from(["nope"]), "unknown field"),
            ],
        };
        assert_eq!(
            report.to_string(),
            "c.json5: is a folder\n\
             c.json5:3:7: gateway.port: too large\n\
             c.json5:3:7: warning: nope: unknown field"
        );
    }

    #[test]
    fn a_report_of_ten_thousand_findings_is_cut_and_says_so() {
        let mut findings = Findings::default();
        for _ in 0..10_000 {
            findings.warn(&KeyPath::default(), "odd");
        }
        findings.error(&KeyPath::default(), "wrong");
        let report = findings.into_report(Path::new("f"), &Places::default(), &|it| it.to_owned());
        assert_eq!(report.findings.len(), MOST_FINDINGS + 2);
        assert!(report.has_errors());
        assert!(report.to_string().contains("9800 more findings are not shown"));
    }
}
