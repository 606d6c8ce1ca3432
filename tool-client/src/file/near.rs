//! Names near one that does not exist: most often a letter was wrong, or the
//! case, or the end was left off.

use rustix::fs::{Dir, OFlags};

use super::Place;

/// Names suggested at most.
const MOST: usize = 5;

/// Entries of a folder that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// Paths near the one asked for, the nearest first, written as it was: up to
/// its first folder that does not exist, with another name there.
pub(crate) fn near(place: &Place<'_>) -> Vec<String> {
    let mut path = place.path.as_path();
    let mut asked = place.asked.as_path();
    loop {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Vec::new();
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        if let Ok(entries) = place.root.open_at(folder, flags).and_then(Dir::read_from) {
            let names = entries
                .take(MOST_ENTRIES)
                .filter_map(|it| it.ok()?.file_name().to_str().ok().map(String::from))
                .filter(|it| it != "." && it != ".." && name.to_str() != Some(it));
            let prefix = asked.parent();
            return nearest(&name.to_string_lossy(), names)
                .into_iter()
                .map(|it| {
                    prefix.map_or(it.clone(), |prefix| prefix.join(&it).to_string_lossy().into())
                })
                .collect();
        }
        path = folder;
        asked = match asked.parent() {
            Some(parent) if parent.file_name().is_some() => parent,
            _ => return Vec::new(),
        };
    }
}

/// The nearest of those names.
fn nearest(name: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let mut found: Vec<(usize, String)> =
        names.filter_map(|it| Some((distance(name, &it)?, it))).collect();
    found.sort_unstable();
    found.truncate(MOST);
    found.into_iter().map(|(_, it)| it).collect()
}

/// How far apart two names are; `None` if too far to be meant.
fn distance(name: &str, other: &str) -> Option<usize> {
    let (name, other) = (name.to_lowercase(), other.to_lowercase());
    if name == other {
        return Some(0);
    }
    let stem = |it: &str| it.rsplit_once('.').map_or(it.to_owned(), |(stem, _)| stem.to_owned());
    let begins = name.len() >= 3 && (other.starts_with(&name) || name.starts_with(&other));
    let same_stem = stem(&name).len() >= 3 && stem(&name) == stem(&other);
    let most = (name.chars().count() / 3).clamp(1, 4);
    let edits = edits(&name, &other, most);
    edits.or_else(|| (begins || same_stem).then_some(most + 1))
}

/// Edits that make one of the other: letters put in, left out, changed, or
/// two beside each other swapped; `None` if more than `most`.
fn edits(one: &str, other: &str, most: usize) -> Option<usize> {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len().abs_diff(other.len()) > most {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for line in 1..=one.len() {
        let mut row = vec![line];
        for column in 1..=other.len() {
            let change = above[column - 1] + usize::from(one[line - 1] != other[column - 1]);
            let mut least = change.min(above[column] + 1).min(row[column - 1] + 1);
            if line > 1
                && column > 1
                && one[line - 1] == other[column - 2]
                && one[line - 2] == other[column - 1]
            {
                least = least.min(before[column - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().filter(|it| *it <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::root::Root;
    use std::fs;

    #[track_caller]
    fn check(name: &str, names: &[&str], want: &[&str]) {
        assert_eq!(nearest(name, names.iter().map(|it| (*it).into())), want);
    }

    #[test]
    fn a_wrong_letter_case_or_end_is_forgiven() {
        check("mian.rs", &["main.rs", "lib.rs"], &["main.rs"]);
        check("readme.md", &["README.md", "main.rs"], &["README.md"]);
        check("notes", &["notes.txt", "other"], &["notes.txt"]);
        check("app.js", &["app.ts", "zzz"], &["app.ts"]);
        check("x", &["y", "long-name"], &["y"]);
        check("日本語.txt", &["日本誤.txt"], &["日本誤.txt"]);
    }

    #[test]
    fn what_is_far_off_is_not_suggested_and_five_are_enough() {
        check("config.json", &["main.rs", "Makefile"], &[]);
        check(
            "abc",
            &["abd", "abe", "abf", "abg", "abh", "abi"],
            &["abd", "abe", "abf", "abg", "abh"],
        );
    }

    #[test]
    fn the_first_missing_folder_is_what_is_near() {
        let scratch = crate::scratch::Scratch::new();
        assert!(fs::create_dir(scratch.path().join("src")).is_ok());
        let Ok(root) = Root::open() else { unreachable!("there is a root") };
        let place = |asked: &str| Place {
            root: &root,
            path: scratch.path().join(asked),
            asked: asked.into(),
        };
        assert_eq!(near(&place("scr/main.rs")), ["src"]);
        assert_eq!(near(&place("src/main.rs")), [] as [&str; 0]);
        assert!(fs::write(scratch.path().join("src/main.rs"), "").is_ok());
        assert_eq!(near(&place("src/mian.rs")), ["src/main.rs"]);
    }
}
