//! Calls that a stuttering server told more than once. Pure. What makes two of
//! them one is the id that the server gave: the same id, tool and arguments are
//! one call, and so is one that broke off and began anew. Calls with ids of
//! their own, or without any, stay several however alike they are: a model may
//! mean to do the same twice, and nobody can tell. So do calls of one id and
//! different arguments, since some servers give one id to all.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{MOST_VALUES, Part, arguments};

/// A call as its server named it: id and tool.
type Name<'a> = (&'a str, &'a str);

/// Leaves each call once.
pub(super) fn drop_from(parts: &mut Vec<Part>) {
    let repeated = repeated(parts);
    let mut place = 0;
    parts.retain(|_| {
        place += 1;
        !repeated.contains(&(place - 1))
    });
}

/// The places of the calls that say nothing of their own.
fn repeated(parts: &[Part]) -> HashSet<usize> {
    let (mut repeated, mut told) = (HashSet::new(), HashSet::new());
    let mut last: HashMap<Name<'_>, (usize, &str)> = HashMap::new();
    let several = ids_of_several(parts);
    for (place, name, text) in calls(parts).filter(|(_, name, _)| several.contains(name.0)) {
        match last.get(&name) {
            _ if !told.insert((name, canonical(text))) => drop(repeated.insert(place)),
            Some((_, before)) if is_begun_again(text, before) => drop(repeated.insert(place)),
            Some((before, begun)) if is_begun_again(begun, text) => {
                repeated.insert(*before);
                last.insert(name, (place, text));
            }
            _ => drop(last.insert(name, (place, text))),
        }
    }
    repeated
}

/// The calls with an id, each with its place and the text of its arguments.
fn calls(parts: &[Part]) -> impl Iterator<Item = (usize, Name<'_>, &str)> {
    parts.iter().enumerate().filter_map(|(place, it)| match it {
        Part::Call { call, arguments } if !call.id.is_empty() => {
            Some((place, (call.id.as_str(), call.name.as_str()), arguments.as_str()))
        }
        _ => None,
    })
}

fn ids_of_several(parts: &[Part]) -> HashSet<&str> {
    let mut ids = HashSet::new();
    calls(parts).filter(|it| !ids.insert(it.1.0)).map(|it| it.1.0).collect()
}

/// Whether a text is the beginning of another one and no arguments by itself.
fn is_begun_again(begun: &str, whole: &str) -> bool {
    whole.starts_with(begun) && arguments(begun, MOST_VALUES).is_err()
}

/// The same for all texts that mean the same.
fn canonical(text: &str) -> String {
    let read = arguments(text, MOST_VALUES);
    read.map_or_else(|_| text.to_owned(), |it| Value::Object(it).to_string())
}
