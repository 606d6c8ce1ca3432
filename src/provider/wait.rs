//! How long a provider asks to be left alone, by the headers of its answer.
//! Pure. A moment that is past means a second, more than a day means a day,
//! and what does not read is not there.

use crate::clock::Time;

/// Longest wait that is believed, in milliseconds: a day.
const LONGEST: f64 = 86_400_000.0;

/// The wait for a moment that is past, in milliseconds.
const SHORTEST: f64 = 1_000.0;

/// From here on a number is seconds since 1970, and from there on milliseconds.
const EPOCH_SECONDS: f64 = 1e9;
const EPOCH_MILLIS: f64 = 1e12;

/// The wait in milliseconds, 1,000 to a day. Names of `headers` are lower-case.
pub(super) fn asked(headers: &[(String, String)], now: Time) -> Option<u64> {
    let header = |name: &str| {
        let found = headers.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.trim())
    };
    let millis = header("retry-after-ms").and_then(number);
    let millis = millis.or_else(|| retry_after(header("retry-after")?, now));
    let millis = millis.or_else(|| {
        let of = |what: &str| {
            let remaining = header(&format!("x-ratelimit-remaining-{what}")).and_then(number)?;
            let reset = header(&format!("x-ratelimit-reset-{what}"))?;
            (remaining <= 0.0).then(|| self::reset(reset, now))?
        };
        // Both are used up: the later one is the end of it.
        of("requests").into_iter().chain(of("tokens")).reduce(f64::max)
    })?;
    Some(bounded(millis))
}

/// The same where it stands in the text of an error, as `17s`.
pub(super) fn written(text: &str) -> Option<u64> {
    duration(text).map(bounded)
}

/// A cast from a float is bounded by its target.
fn bounded(millis: f64) -> u64 {
    let millis = if millis > 0.0 { millis } else { SHORTEST };
    millis.min(LONGEST).ceil() as u64
}

/// Seconds, or a date as HTTP writes it; in milliseconds from now.
fn retry_after(text: &str, now: Time) -> Option<f64> {
    match number(text) {
        Some(seconds) => Some(seconds * 1_000.0),
        None => http_date(text).map(|it| until(it, now)),
    }
}

/// `1h2m3.5s`, seconds, a moment in RFC 3339 or since 1970; in milliseconds
/// from now.
fn reset(text: &str, now: Time) -> Option<f64> {
    if let Some(number) = number(text) {
        return Some(match number {
            it if it >= EPOCH_MILLIS => it - now.unix_millis() as f64,
            it if it >= EPOCH_SECONDS => it * 1_000.0 - now.unix_millis() as f64,
            it => it * 1_000.0,
        });
    }
    duration(text).or_else(|| Time::parse(text).map(|it| until(it, now)))
}

fn until(moment: Time, now: Time) -> f64 {
    moment.unix_millis().saturating_sub(now.unix_millis()) as f64
}

/// A number of digits, a sign and a point; neither `inf` nor an exponent.
fn number(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|it| it.is_ascii_digit() || matches!(it, b'.' | b'-' | b'+'));
    if is_plain { text.parse::<f64>().ok().filter(|it| it.is_finite()) } else { None }
}

/// `1h2m3.5s`, `6m0s`, `120ms`, in milliseconds.
fn duration(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut millis = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (amount, behind) = rest.split_at(digits);
        let end = behind.find(|it: char| it.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        millis += number(amount)? * unit_millis(unit.trim())?;
        rest = behind;
    }
    (!text.is_empty()).then_some(millis)
}

fn unit_millis(unit: &str) -> Option<f64> {
    Some(match unit {
        "d" => 86_400_000.0,
        "h" => 3_600_000.0,
        "m" => 60_000.0,
        "s" => 1_000.0,
        "ms" => 1.0,
        "us" | "µs" | "μs" => 1e-3,
        "ns" => 1e-6,
        _ => return None,
    })
}

/// The three forms of a date in HTTP, all of them in UTC:
/// `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT`,
/// `Sun Nov  6 08:49:37 1994`.
fn http_date(text: &str) -> Option<Time> {
    let words: Vec<&str> = text.split([' ', ',', '-']).filter(|it| !it.is_empty()).collect();
    let (day, month, year, clock) = match words.as_slice() {
        [_, day, month, year, clock, "GMT" | "UTC"] => (*day, *month, *year, *clock),
        [_, month, day, clock, year] => (*day, *month, *year, *clock),
        _ => return None,
    };
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|it| *it == month)? + 1;
    let year: u32 = year.parse().ok()?;
    // Of two digits: none of these dates is older than this gateway.
    let year = if year < 100 { 2000 + year } else { year };
    let day: u32 = day.parse().ok()?;
    Time::parse(&format!("{year:04}-{month:02}-{day:02}T{clock}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30T04:16:34.668Z
    const NOW: Time = Time::from_unix_millis(1_796_012_194_668);

    #[track_caller]
    fn check(headers: &[(&str, &str)], want: Option<u64>) {
        let headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(asked(&headers, NOW), want, "{headers:?}");
    }

    #[test]
    fn retry_after_is_milliseconds_then_seconds_then_a_date() {
        check(&[], None);
        check(&[("retry-after", "20")], Some(20_000));
        check(&[("retry-after", " 1.5 ")], Some(1_500));
        check(&[("retry-after-ms", "250"), ("retry-after", "20")], Some(250));
        check(&[("retry-after-ms", "x"), ("retry-after", "20")], Some(20_000));
        check(&[("retry-after-ms", "1.25")], Some(2));
        check(&[("retry-after", "Mon, 30 Nov 2026 04:16:40 GMT")], Some(5_332));
        check(&[("retry-after", "Monday, 30-Nov-26 04:16:40 GMT")], Some(5_332));
        check(&[("retry-after", "Mon Nov 30 04:16:40 2026")], Some(5_332));
        check(&[("retry-after", "Thu Dec  3 04:16:34 2026")], Some(86_400_000));
        check(&[("retry-after", "Tue Dec  1 04:16:34 2026")], Some(86_399_332));
    }

    #[test]
    fn the_past_is_a_second_and_more_than_a_day_is_a_day() {
        for past in ["0", "-1", "-0", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            check(&[("retry-after", past)], Some(1_000));
        }
        check(&[("retry-after-ms", "0")], Some(1_000));
        check(&[("retry-after", "86401")], Some(86_400_000));
        check(&[("retry-after", "99999999999999999999")], Some(86_400_000));
        check(&[("retry-after-ms", "99999999999999999999")], Some(86_400_000));
        check(&[("retry-after", "Wed, 21 Oct 2036 07:28:00 GMT")], Some(86_400_000));
    }

    #[test]
    fn what_does_not_read_is_not_there() {
        for odd in [
            "",
            "nan",
            "inf",
            "1e3",
            "soon",
            "1s",
            "Wed, 21 Oct 2026",
            "Wed, 99 Oct 2026 07:28:00 GMT",
            "Wed, 21 Okt 2026 07:28:00 GMT",
            "Wed, 21 Oct 2026 07:28:00 CET",
            "2026-11-30T04:16:40Z",
            "é",
        ] {
            check(&[("retry-after", odd)], None);
        }
    }

    #[track_caller]
    fn check_reset(text: &str, want: Option<u64>) {
        for what in ["requests", "tokens"] {
            let (remaining, reset) =
                (format!("x-ratelimit-remaining-{what}"), format!("x-ratelimit-reset-{what}"));
            check(&[(&remaining, "0"), (&reset, text)], want);
        }
    }

    #[test]
    fn a_reset_has_many_forms() {
        check_reset("1h2m3.5s", Some(3_723_500));
        check_reset("6m0s", Some(360_000));
        check_reset("120ms", Some(120));
        check_reset("1m30ms", Some(60_030));
        check_reset("0s", Some(1_000));
        check_reset("2d", Some(86_400_000));
        check_reset("20", Some(20_000));
        check_reset("0.5", Some(500));
        check_reset("999999999", Some(86_400_000));
        check_reset("1796012200", Some(5_332));
        check_reset("1796012200.5", Some(5_832));
        check_reset("1796012200000", Some(5_332));
        check_reset("1796012194", Some(1_000));
        check_reset("1000000000", Some(1_000));
        check_reset("1000000000000", Some(1_000));
        check_reset("2026-11-30T04:16:40Z", Some(5_332));
        check_reset("2026-11-30T05:16:40+01:00", Some(5_332));
        check_reset("2025-11-30T04:16:40Z", Some(1_000));
        for odd in ["", "soon", "1x", "h", "1h2", "1.2.3s", "-", ".", "1y"] {
            check_reset(odd, None);
        }
    }

    #[test]
    fn only_an_allowance_that_is_used_up_counts() {
        let requests = |left| ("x-ratelimit-remaining-requests", left);
        let tokens = |left| ("x-ratelimit-remaining-tokens", left);
        let resets = [("x-ratelimit-reset-requests", "7s"), ("x-ratelimit-reset-tokens", "9s")];
        let both = |one, other| [&[requests(one), tokens(other)][..], &resets].concat();
        check(&both("0", "5"), Some(7_000));
        check(&both("5", "0"), Some(9_000));
        check(&both("0", "0"), Some(9_000));
        check(&both("5", "5"), None);
        check(&resets, None);
        check(&[("retry-after", "2"), requests("0"), resets[0]], Some(2_000));
        check(&[("retry-after", "soon"), requests("0"), resets[0]], Some(7_000));
    }
}
