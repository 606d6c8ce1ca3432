//! Versions of npm packages, and which of them a person means. Pure. Of ranges
//! it knows the simple ones: `^1.2.3`, `~1.2`, `1.x`, `>=1.2`, `*`.

use std::cmp::Ordering;

/// Longest version, in bytes, as npm has it.
const LONGEST: usize = 256;

/// `1.2.3-rc.1`; what stands behind a `+` counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    /// What makes it one before the release.
    before: Vec<String>,
}

/// From one version on, up to another and without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    from: Version,
    to: Option<[u64; 3]>,
}

impl Version {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (numbers, before) = partial(text)?;
        let numbers = <[u64; 3]>::try_from(numbers).ok()?;
        Some(Self { numbers, before })
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.before.is_empty(), other.before.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => compare(&self.before, &other.before),
            }
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Range {
    /// `None` for what is no range, or none that is known here.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (sign, rest) = match text {
            _ if text.starts_with(">=") => (">=", &text[2..]),
            _ if text.starts_with(['^', '~']) => text.split_at(1),
            _ => ("", text),
        };
        let (numbers, before) = partial(rest.trim())?;
        let at = |it: usize| numbers.get(it).copied().unwrap_or(0);
        let from = Version { numbers: [at(0), at(1), at(2)], before };
        // The number that must stay, counted from the left.
        let fixed = match sign {
            ">=" => 0,
            "~" => numbers.len().min(2),
            "^" => {
                let zeros = numbers.iter().take_while(|it| **it == 0).count();
                (zeros + 1).min(numbers.len())
            }
            _ => numbers.len(),
        };
        let to = fixed.checked_sub(1).map(|last| {
            let mut to = [0; 3];
            to[..last].copy_from_slice(&from.numbers[..last]);
            to[last] = from.numbers[last].saturating_add(1);
            to
        });
        Some(Self { from, to })
    }

    /// Whether it is in it. One before a release is only where the range begins
    /// with one of the same release.
    pub(super) fn holds(&self, version: &Version) -> bool {
        let is_meant = version.before.is_empty()
            || (!self.from.before.is_empty() && self.from.numbers == version.numbers);
        is_meant && *version >= self.from && self.to.is_none_or(|it| version.numbers < it)
    }
}

/// Up to three numbers, of which `x` and `*` end the row, and the words behind
/// a `-`.
fn partial(text: &str) -> Option<(Vec<u64>, Vec<String>)> {
    if text.len() > LONGEST {
        return None;
    }
    let text = text.strip_prefix('v').unwrap_or(text);
    let text = text.split_once('+').map_or(text, |it| it.0);
    let (numbers, before) = text.split_once('-').map_or((text, None), |it| (it.0, Some(it.1)));
    let mut found = Vec::new();
    let mut is_open = false;
    for (place, part) in numbers.split('.').enumerate() {
        match part {
            _ if place > 2 => return None,
            "x" | "X" | "*" => is_open = true,
            // npm takes any `.x` behind another, and no number.
            _ if is_open => return None,
            _ if part.bytes().all(|it| it.is_ascii_digit()) => found.push(part.parse().ok()?),
            _ => return None,
        }
    }
    if before.is_some() && found.len() < 3 {
        return None;
    }
    let before: Vec<String> =
        before.into_iter().flat_map(|it| it.split('.')).map(str::to_owned).collect();
    let is_word = |it: &String| {
        !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
    };
    before.iter().all(is_word).then_some((found, before))
}

fn compare(one: &[String], other: &[String]) -> Ordering {
    let number = |it: &String| it.parse::<u64>().ok();
    let mut pairs = one.iter().zip(other).map(|(one, other)| match (number(one), number(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    });
    pairs.find(|it| it.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_an_order() {
        let ordered = [
            "0.9.10",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.10.0",
            "v2.0.0+build",
        ];
        let versions: Vec<_> = ordered.iter().filter_map(|it| Version::parse(it)).collect();
        assert_eq!(versions.len(), ordered.len());
        assert!(versions.windows(2).all(|it| it[0] < it[1]), "{versions:?}");
        for bad in [
            "",
            "1",
            "1.2",
            "1.2.x",
            "1.2.3.4",
            "a.b.c",
            "1.2.3-",
            "1.2.-3",
            "+1.2.3",
            "1.2.3-a b",
            "1.2.3-\u{1b}",
        ] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }

    #[track_caller]
    fn check(range: &str, inside: &[&str], outside: &[&str]) {
        let Some(range) = Range::parse(range) else { panic!("{range} is no range") };
        for (versions, want) in [(inside, true), (outside, false)] {
            for version in versions {
                let held = Version::parse(version).map(|it| range.holds(&it));
                assert_eq!(held, Some(want), "{range:?}: {version}");
            }
        }
    }

    #[test]
    fn simple_ranges_hold_what_npm_says_they_hold() {
        check("^1.2.3", &["1.2.3", "1.9.0"], &["1.2.2", "2.0.0", "1.3.0-rc", "2.0.0-rc"]);
        check("^0.2.3", &["0.2.3", "0.2.9"], &["0.3.0", "0.2.2"]);
        check("^0.0.3", &["0.0.3"], &["0.0.4"]);
        check("^0", &["0.9.9"], &["1.0.0"]);
        check("^0.0", &["0.0.9"], &["0.1.0"]);
        check("^1", &["1.0.0", "1.9.9"], &["2.0.0"]);
        check("~1.2.3", &["1.2.3", "1.2.9"], &["1.3.0"]);
        check("~1", &["1.9.9"], &["2.0.0"]);
        check("1", &["1.0.0", "1.9.9"], &["2.0.0", "0.9.9"]);
        check("1.2.x", &["1.2.0"], &["1.3.0"]);
        check("1.x.x", &["1.2.0"], &["2.3.0"]);
        check("*", &["0.0.0", "9.9.9"], &["1.0.0-rc"]);
        check(">= 1.2", &["1.2.0", "9.0.0"], &["1.1.9"]);
        check("^1.2.3-rc.1", &["1.2.3-rc.2", "1.2.3", "1.3.0"], &["1.2.3-beta", "1.3.0-rc.2"]);
        for bad in ["next", "1 || 2", "1 - 2", "<2", "^", "", "1.x.3", "^1.2-rc"] {
            assert_eq!(Range::parse(bad), None, "{bad}");
        }
    }
}
