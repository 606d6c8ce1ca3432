//! Timestamps. Only this module asks the system what time it is; everything
//! else takes a [`Time`], so that decisions can be tested at any moment.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment in UTC, to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    millis: i64,
}

/// Now. A clock before 1970 counts as 1970.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Time::from_unix_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl Time {
    /// The moment so many milliseconds after 1970 began.
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self { millis }
    }

    /// Milliseconds since 1970 began.
    pub const fn unix_millis(self) -> i64 {
        self.millis
    }

    /// The moment `earlier` before this one.
    #[must_use]
    pub fn before(self, earlier: Duration) -> Self {
        let millis = i64::try_from(earlier.as_millis()).unwrap_or(i64::MAX);
        Self { millis: self.millis.saturating_sub(millis) }
    }

    /// `yyyymmdd-hhmmss`, for file names that sort by time.
    pub fn compact(self) -> String {
        let (year, month, day) = self.date();
        let (hour, minute, second) = self.time_of_day();
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }

    /// The civil date (proleptic Gregorian), by the era arithmetic of Howard
    /// Hinnant's "chrono-Compatible Low-Level Date Algorithms".
    fn date(self) -> (i64, i64, i64) {
        let days = self.millis.div_euclid(86_400_000) + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        (year_of_era + era * 400 + i64::from(month <= 2), month, day)
    }

    fn time_of_day(self) -> (i64, i64, i64) {
        let seconds = self.millis.div_euclid(1_000).rem_euclid(86_400);
        (seconds / 3_600, seconds / 60 % 60, seconds % 60)
    }
}

/// RFC 3339 in UTC with milliseconds; texts of this form sort by time.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        let (hour, minute, second) = self.time_of_day();
        let millis = self.millis.rem_euclid(1_000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(millis: i64, want: &str) {
        assert_eq!(Time::from_unix_millis(millis).to_string(), want);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        check(0, "1970-01-01T00:00:00.000Z");
        check(-1, "1969-12-31T23:59:59.999Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(1_709_251_199_999, "2024-02-29T23:59:59.999Z");
        check(1_796_012_194_668, "2026-11-30T04:16:34.668Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn the_compact_form_names_files() {
        assert_eq!(Time::from_unix_millis(1_796_012_194_668).compact(), "20261130-041634");
    }
}
