//! The proof: whether every line is what the next one says it was, numbers
//! have no gap, and the log reaches as far as its head was noted. Holds two
//! lines at a time.
//!
//! What it cannot see: a chain written anew from some line on, unless a head
//! kept elsewhere names a later line; a change in the line before a torn one,
//! since the torn one has lost what it said.

use std::fmt;

use super::read::{Line, Snapshot};
use super::record::{NO_LINE, sha256};
use super::tail::{Head, Link};
use crate::config::Home;
use crate::error::Result;

/// Findings kept; of further ones only the number.
const MOST_FINDINGS: usize = 100;

/// What was read and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Lines that are records.
    pub records: u64,
    /// Files of the log.
    pub files: usize,
    /// Number of the first record.
    pub first: Option<u64>,
    /// Number of the last record.
    pub last: Option<u64>,
    /// Lines that are torn: no records, though each took a number.
    pub torn: u64,
    /// The first hundred findings.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub more: u64,
    /// What became of the head that was kept elsewhere, if one was given.
    pub kept: Option<KeptHead>,
}

/// A head that was kept elsewhere, held against the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptHead {
    /// The number that it names.
    pub seq: u64,
    /// Whether that very line is still there.
    pub holds: bool,
}

/// A line, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub file: String,
    /// Line in it, from 1.
    pub line: u64,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The line is not what was written.
    Changed(Place),
    /// Records are missing before this line.
    Gap {
        /// The line after them.
        place: Place,
        /// How many.
        missing: u64,
    },
    /// A crash or a full disk left half a line; the chain goes on over it.
    Torn(Place),
    /// Records before the oldest are missing that were not rotated out.
    Beginning {
        /// Its number.
        first: u64,
    },
    /// The log ends before the record that `audit.head` names.
    Cut {
        /// The number that it names.
        head: u64,
        /// The last number in the log; 0 if it is empty.
        last: u64,
    },
    /// The line that the kept head names is not there: its number has another
    /// one, is older than the log, or was not reached. That says nothing of
    /// the lines that are there.
    HeadLost {
        /// The number that it names.
        head: u64,
        /// The first number in the log.
        first: Option<u64>,
        /// The last number in the log; 0 if it is empty.
        last: u64,
    },
    /// `audit.head` cannot be read.
    NoHead(String),
}

/// Proves the log of a home against `audit.head`, and against a head that was
/// kept elsewhere. Fails only if a file cannot be read.
pub fn verify(home: &Home, head: Option<Head>) -> Result<Report> {
    let snapshot = Snapshot::take(home)?;
    let mut proof = Proof::default();
    match snapshot.head {
        Ok(noted) => proof.heads.extend(noted.map(|it| Mark::new(it, false))),
        Err(error) => proof.find(Finding::NoHead(error.to_string())),
    }
    proof.heads.extend(head.map(|it| Mark::new(it, true)));
    proof.report.files = snapshot.files.len();
    proof.has_older_files = snapshot.files.len() > 1;
    for file in snapshot.files {
        let name = file.name.clone();
        let mut lines = file.lines(0)?;
        let mut number = 0;
        while let Some(line) = lines.next()? {
            number += 1;
            proof.take(Step::of(&line, Place { file: name.clone(), line: number }));
        }
    }
    Ok(proof.end())
}

impl Report {
    /// Whether the log is what was written, as far as it tells by itself: torn
    /// lines are told and no more.
    pub fn is_sound(&self) -> bool {
        let is_harmless = |it: &Finding| matches!(it, Finding::Torn(_) | Finding::HeadLost { .. });
        self.more == 0 && self.findings.iter().all(is_harmless)
    }

    /// Whether it is sound and holds the line that the kept head names.
    pub fn is_proven(&self) -> bool {
        self.is_sound() && self.kept.is_none_or(|it| it.holds)
    }
}

/// One sentence, then one for each finding.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.is_sound(), self.is_proven()) {
            (false, _) => "is NOT sound",
            (true, false) => "is sound in itself and does NOT hold the given head",
            (true, true) => "is sound",
        };
        write!(f, "The audit log {verdict}: ")?;
        let plural = |count| if count == 1 { "" } else { "s" };
        match (self.first, self.last) {
            (Some(first), Some(last)) => {
                let (records, files) = (self.records, self.files);
                let s = plural(records);
                write!(f, "{records} record{s}, {first} to {last}, ")?;
                write!(f, "in {files} file{}", plural(files as u64))?;
            }
            _ => write!(f, "it holds no records")?,
        }
        match self.torn {
            0 => write!(f, ".")?,
            torn => write!(f, "; {torn} torn line{} took a number too.", plural(torn))?,
        }
        self.findings.iter().try_for_each(|it| write!(f, "\n{it}"))?;
        if let Some(KeptHead { seq, holds: true }) = self.kept {
            write!(f, "\nRecord {seq} is the one that the given head names.")?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}", self.file, self.line)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(place) => write!(f, "changed: {place} is not what was written"),
            Self::Gap { place, missing } => {
                let are = if *missing == 1 { "record is" } else { "records are" };
                write!(f, "gap: {missing} {are} missing before {place}")
            }
            Self::Torn(place) => {
                write!(f, "torn: {place} was cut short by a crash or a full disk; the chain holds")
            }
            Self::Beginning { first } => {
                write!(f, "beginning missing: the records before {first} were not rotated out")
            }
            Self::Cut { head, last } => {
                write!(f, "cut: the log ends at record {last}, but record {head} was written")
            }
            Self::HeadLost { head, first: Some(first), .. } if head < first => write!(
                f,
                "head lost: record {head} is older than the log, which begins with {first}; if it \
                 was rotated out, only a head that is kept from later on can prove more"
            ),
            Self::HeadLost { head, last, .. } if head > last => write!(
                f,
                "head lost: record {head} is not in the log, which ends with {last}; if it was \
                 this log's, what came after {last} was cut off"
            ),
            Self::HeadLost { head, .. } => write!(
                f,
                "head lost: the given head does not fit record {head}; if it was this log's, the \
                 log was written anew"
            ),
            Self::NoHead(why) => write!(f, "head unreadable: {why}"),
        }
    }
}

/// What the proof needs of a line.
struct Step {
    place: Place,
    hash: String,
    /// `None` if the line is no record.
    link: Option<Link>,
    is_closed: bool,
    /// No writer of ours writes so much.
    is_foreign: bool,
    /// It says that the line before it was another one. Which of the two was
    /// changed is told by the line after it.
    doubts: bool,
}

/// A line that the proof is done with.
struct Judged {
    place: Place,
    /// Its number: its own, or what it must be if that cannot be trusted.
    seq: Option<u64>,
}

/// A head to be met on the way.
struct Mark {
    head: Head,
    /// Whether it was kept elsewhere, and its record may have been rotated out
    /// since.
    is_kept: bool,
    is_met: bool,
    /// Whether that line had the hash it names.
    agrees: bool,
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Sound,
    /// It is not what was written.
    Changed,
    /// The line before it is not what was written.
    OtherChanged,
    /// So many records are missing before it.
    Gap(u64),
    /// It or the next one was changed; the next one knows.
    Open,
}

#[derive(Default)]
struct Proof {
    report: Report,
    heads: Vec<Mark>,
    has_older_files: bool,
    /// Lines before the first record that are none.
    broken_before_first: u64,
    before: Option<Judged>,
    waiting: Option<Step>,
}

impl Mark {
    fn new(head: Head, is_kept: bool) -> Self {
        Self { head, is_kept, is_met: false, agrees: false }
    }
}

impl Step {
    fn of(line: &Line<'_>, place: Place) -> Self {
        Self {
            place,
            hash: sha256(line.bytes),
            link: serde_json::from_slice(line.bytes).ok(),
            is_closed: line.is_closed,
            is_foreign: line.is_overlong,
            doubts: false,
        }
    }

    /// Whether it says that the line before it had another hash. A torn line
    /// says nothing.
    fn contradicts(&self, hash: &str) -> bool {
        self.link.as_ref().is_some_and(|it| it.prev != hash)
    }

    /// How far its number is from the one that is due.
    fn distance(&self, due: Option<u64>) -> i128 {
        match (&self.link, due) {
            (Some(link), Some(due)) => i128::from(link.seq) - i128::from(due),
            _ => 0,
        }
    }
}

impl Proof {
    fn take(&mut self, mut step: Step) {
        match self.waiting.take() {
            None => self.begin(&mut step),
            Some(waiting) => {
                let is_confirmed = !step.contradicts(&waiting.hash);
                step.doubts = self.settle(waiting, is_confirmed) == Verdict::Open;
            }
        }
        if let Some(link) = &step.link {
            self.report.records += 1;
            self.report.first.get_or_insert(link.seq);
        } else if self.report.first.is_none() {
            self.broken_before_first += 1;
        }
        self.waiting = Some(step);
    }

    /// The very first line is the only one that no line stands before.
    fn begin(&self, step: &mut Step) {
        let is_first = step.link.as_ref().is_some_and(|it| it.seq == 1);
        step.doubts = is_first && step.contradicts(NO_LINE);
    }

    fn end(mut self) -> Report {
        if let Some(waiting) = self.waiting.take() {
            let place = waiting.place.clone();
            if self.settle(waiting, true) == Verdict::Open {
                self.find(Finding::Changed(place));
            }
        }
        self.check_beginning();
        self.check_end();
        self.check_kept();
        self.report
    }

    /// Decides about a line, of which the next one has spoken.
    fn settle(&mut self, step: Step, is_confirmed: bool) -> Verdict {
        let due = self.before.as_ref().and_then(|it| it.seq?.checked_add(1));
        let number = step.link.as_ref().map(|it| it.seq).or(due);
        let is_confirmed = self.meets_heads(number, &step.hash) && is_confirmed;
        let verdict = judge(&step, is_confirmed, step.distance(due));
        self.tell(&step, &verdict);
        let seq = if verdict == Verdict::Changed { due.or(number) } else { number };
        if step.link.is_some() {
            self.report.last = seq;
        }
        self.before = Some(Judged { place: step.place, seq });
        verdict
    }

    fn tell(&mut self, step: &Step, verdict: &Verdict) {
        let place = step.place.clone();
        match verdict {
            Verdict::Changed => self.find(Finding::Changed(place)),
            Verdict::OtherChanged => {
                let other = self.before.as_ref().map_or(place, |it| it.place.clone());
                self.find(Finding::Changed(other));
            }
            Verdict::Gap(missing) => self.find(Finding::Gap { place, missing: *missing }),
            Verdict::Sound if step.link.is_none() || !step.is_closed => {
                self.report.torn += u64::from(step.link.is_none());
                self.find(Finding::Torn(place));
            }
            Verdict::Sound | Verdict::Open => (),
        }
    }

    /// Whether `audit.head` does not say that the line with this number had
    /// another hash. One that was kept may be of another log, and blames none.
    fn meets_heads(&mut self, number: Option<u64>, hash: &str) -> bool {
        let mut agree = true;
        for mark in self.heads.iter_mut().filter(|it| Some(it.head.seq) == number) {
            mark.is_met = true;
            mark.agrees = mark.head.hash == hash;
            agree &= mark.agrees || mark.is_kept;
        }
        agree
    }

    /// Number of the last line, a torn one included; 0 if there is none.
    fn reached(&self) -> u64 {
        self.before.as_ref().and_then(|it| it.seq).unwrap_or(0)
    }

    fn check_beginning(&mut self) {
        let Some(first) = self.report.first else { return };
        let is_whole = first == 1 + self.broken_before_first;
        let is_behind = |it: &Mark| !it.is_kept && it.head.seq < first && !it.is_met;
        if !is_whole && !self.has_older_files || self.heads.iter().any(is_behind) {
            self.find(Finding::Beginning { first });
        }
    }

    fn check_end(&mut self) {
        let last = self.reached();
        let noted = self.heads.iter().find(|it| !it.is_kept).map(|it| it.head.seq);
        if let Some(head) = noted.filter(|it| *it > last) {
            self.find(Finding::Cut { head, last });
        }
    }

    fn check_kept(&mut self) {
        let Some(mark) = self.heads.iter().find(|it| it.is_kept) else { return };
        let kept = KeptHead { seq: mark.head.seq, holds: mark.agrees };
        self.report.kept = Some(kept);
        if !kept.holds {
            let (first, last) = (self.report.first, self.reached());
            self.find(Finding::HeadLost { head: kept.seq, first, last });
        }
    }

    fn find(&mut self, finding: Finding) {
        if self.report.findings.contains(&finding) {
            return;
        }
        if self.report.findings.len() < MOST_FINDINGS {
            self.report.findings.push(finding);
        } else {
            self.report.more += 1;
        }
    }
}

/// The line, what the next one says of it, and how far its number is from the
/// one that is due. Blames as few lines as explain what was seen.
fn judge(step: &Step, is_confirmed: bool, distance: i128) -> Verdict {
    let is_odd = step.link.is_none() || distance != 0;
    match (step.doubts, is_confirmed) {
        _ if step.is_foreign || distance < 0 => Verdict::Changed,
        (true, false) => Verdict::Changed,
        (false, false) if is_odd => Verdict::Changed,
        (false, false) => Verdict::Open,
        (_, true) if distance > 0 => Verdict::Gap(u64::try_from(distance).unwrap_or(u64::MAX)),
        (true, true) => Verdict::OtherChanged,
        (false, true) => Verdict::Sound,
    }
}
