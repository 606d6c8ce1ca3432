//! Did-you-mean: the known word that a mistyped one was most likely meant to
//! be. Pure; used for fields, values, commands and flags alike.

use std::cmp::Reverse;

/// Longest word that is compared, in characters: a longer one is no typing
/// slip, and the cost grows with the square.
const LONGEST: usize = 64;

/// The known word nearest to `word`, if one is near enough to be meant: at
/// most a third of its characters differ, and never more than three. Of several
/// as near it is the one that begins like it for longest: people leave an end
/// out rather than write another. Never the very word.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().take(LONGEST + 1).count();
    if length > LONGEST {
        return None;
    }
    let allowed = (length / 3).clamp(1, 3);
    known
        .into_iter()
        .filter(|it| *it != word)
        .map(|it| (distance(word, it), it))
        .filter(|(steps, _)| *steps <= allowed)
        .min_by_key(|(steps, it)| (*steps, Reverse(shared_beginning(word, it))))
        .map(|(_, it)| it)
}

/// Characters with which both begin, without regard to case.
fn shared_beginning(left: &str, right: &str) -> usize {
    let of = |word: &str| word.chars().flat_map(char::to_lowercase).collect::<Vec<_>>();
    of(left).iter().zip(of(right)).take_while(|(one, other)| **one == *other).count()
}

/// Edit distance without regard to case; two neighbours swapped are one step.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.to_lowercase().chars().collect();
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, from) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, to) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(from != to);
            let mut steps = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            let swapped =
                row > 0 && column > 0 && *from == right[column - 1] && left[row - 1] == *to;
            if swapped {
                steps = steps.min(before[column - 1] + 1);
            }
            current.push(steps);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, ["agents", "plugins", "port", "cpus", "größe"]), expected);
    }

    #[test]
    fn a_slip_of_the_hand_finds_the_word_that_was_meant() {
        check("agnets", Some("agents"));
        check("plugin", Some("plugins"));
        check("PORT", Some("port"));
        check("cpu", Some("cpus"));
        check("grösse", Some("größe"));
    }

    #[test]
    fn of_words_as_near_the_one_that_begins_alike_is_meant() {
        let limits = ["maxTurns", "maxTurnSeconds", "maxTurnTokens", "maxTurnCostUsd"];
        let check = |word, expected| assert_eq!(nearest(word, limits), Some(expected));
        check("maxTurnCost", "maxTurnCostUsd");
        check("maxTurnCostUSD", "maxTurnCostUsd");
        check("maxTurn", "maxTurns");
        assert_eq!(nearest("port", ["sort", "pore"]), Some("pore"));
        assert_eq!(nearest("port", ["sort", "fort"]), Some("sort"));
    }

    #[test]
    fn a_word_far_from_all_others_finds_none() {
        check("", None);
        check("nope", None);
        check("xyz", None);
        check(&"agents".repeat(50_000), None);
    }
}
