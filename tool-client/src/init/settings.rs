//! How `--init` is called.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What the arguments after `--init` say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `--leave-after SECONDS`: it says READY on standard output, and ends once
    /// for so long nobody listened who would have it, and no call ran. Without
    /// it, it never ends.
    pub(crate) leave_after: Option<Duration>,
    /// `--at FOLDER`: where the link sockets are; `/beige` but in tests.
    pub(crate) folder: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self { leave_after: None, folder: "/beige".into() }
    }
}

impl Settings {
    /// Reads the arguments; `None` if they make no sense.
    pub(crate) fn parse(arguments: &[OsString]) -> Option<Self> {
        let mut settings = Self::default();
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            let value = rest.next()?;
            match flag.to_str()? {
                "--leave-after" => {
                    let seconds: u32 = value.to_str()?.parse().ok()?;
                    settings.leave_after = Some(Duration::from_secs(seconds.into()));
                }
                "--at" => settings.folder = value.into(),
                _ => return None,
            }
        }
        Some(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], want: Option<Settings>) {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        assert_eq!(Settings::parse(&arguments), want);
    }

    #[test]
    fn every_flag_has_its_value_and_nothing_else_is_taken() {
        let leave_after = Some(Duration::from_secs(60));
        check(&[], Some(Settings::default()));
        check(&["--leave-after", "60"], Some(Settings { leave_after, ..Settings::default() }));
        check(
            &["--at", "/x", "--leave-after", "60"],
            Some(Settings { leave_after, folder: "/x".into() }),
        );
        check(&["--leave-after"], None);
        check(&["--leave-after", "-1"], None);
        check(&["60"], None);
    }
}
