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

    /// Reads RFC 3339 (`2026-11-30T04:16:34.668Z`, `…+01:00`); `None` if it is
    /// something else. Digits beyond the millisecond are dropped.
    pub fn parse(text: &str) -> Option<Self> {
        let clock = text.get(11..)?;
        if !matches!(text.as_bytes()[10], b'T' | b't' | b' ') || !text.is_ascii() {
            return None;
        }
        let zone = clock.find(['Z', 'z', '+', '-'])?;
        let days = days_since_1970(text.get(..10)?)?;
        let millis = millis_of_day(&clock[..zone])? - zone_minutes(&clock[zone..])? * 60_000;
        Some(Self { millis: days * 86_400_000 + millis })
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

/// `yyyy-mm-dd`, by the inverse of [`Time::date`].
fn days_since_1970(date: &str) -> Option<i64> {
    let (year, month_and_day) = date.split_once('-')?;
    let (month, day) = month_and_day.split_once('-')?;
    let (year, month, day) = (digits(year, 4)?, digits(month, 2)?, digits(day, 2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let year_of_era = year.rem_euclid(400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = year.div_euclid(400) * 146_097 + day_of_era - 719_468;
    // The 30th of February would be the 2nd of March.
    let same = Time::from_unix_millis(days * 86_400_000).date().2 == day;
    same.then_some(days)
}

/// `hh:mm:ss`, with or without a fraction.
fn millis_of_day(time: &str) -> Option<i64> {
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let (hour, minute_and_second) = time.split_once(':')?;
    let (minute, second) = minute_and_second.split_once(':')?;
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    let padded = format!("{fraction:0<3}");
    let millis = digits(&padded[..3], 3)?;
    let sound =
        hour < 24 && minute < 60 && second <= 60 && digits(fraction, fraction.len()).is_some();
    sound.then_some(((hour * 60 + minute) * 60 + second) * 1_000 + millis)
}

/// `Z` or `+hh:mm`, in minutes east.
fn zone_minutes(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    let east = hours * 60 + minutes;
    (hours < 24 && minutes < 60).then_some(if zone.starts_with('-') { -east } else { east })
}

/// Exactly so many digits, as a number; `i64` takes 18.
fn digits(text: &str, count: usize) -> Option<i64> {
    let sound = (1..=18).contains(&count) && text.len() == count;
    (sound && text.bytes().all(|it| it.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_parse(text: &str, want: Option<i64>) {
        assert_eq!(Time::parse(text).map(Time::unix_millis), want, "{text}");
    }

    #[test]
    fn a_time_is_read_back_as_it_was_written() {
        for millis in [0, -1, 951_782_400_000, 1_709_251_199_999, 4_107_542_400_000] {
            check_parse(&Time::from_unix_millis(millis).to_string(), Some(millis));
        }
    }

    #[test]
    fn zones_and_fractions_of_rfc_3339_are_read() {
        check_parse("1970-01-01T01:00:00+01:00", Some(0));
        check_parse("1969-12-31 23:00:00.5-01:30", Some(1_800_500));
        check_parse("1970-01-01t00:00:00.0019999z", Some(1));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "1h",
            "2026-11-30",
            "2026-11-30T04:16:34",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T04:16:34.Z",
            "2026-11-30T04:16:34.xZ",
            "2026-11-30T+4:16:34Z",
            "2026-11-30T04:16:34+1:00",
            "2026-11-30T04:16:3€Z",
            "€€€€€€€€€€€€€€",
        ] {
            check_parse(text, None);
        }
    }

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
