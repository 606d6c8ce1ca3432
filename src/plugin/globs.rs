//! File patterns of `private`: `*` and `?` stay within one name, `**` goes
//! through folders. A pattern without `/` is compared with every name, one
//! with `/` with the path from the plugin's folder. Pure.

/// Whether the pattern names this path (`/` between names, none at the
/// beginning or end).
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    let anchored = pattern.trim_start_matches("./").trim_start_matches('/').trim_end_matches('/');
    if anchored.contains('/') || pattern.starts_with('/') {
        let pattern: Vec<&str> = anchored.split('/').collect();
        let path: Vec<&str> = path.split('/').collect();
        return path_matches(&pattern, &path);
    }
    path.rsplit('/').next().is_some_and(|name| name_matches(anchored, name))
}

/// Names one by one; `**` takes any number of them. The last `**` alone has
/// to be tried again, so the work is at most the product of the lengths.
fn path_matches(pattern: &[&str], path: &[&str]) -> bool {
    match_with_star(pattern, path, |it| *it == "**", |part, name| name_matches(part, name))
}

fn name_matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    match_with_star(&pattern, &name, |it| *it == '*', |part, it| *part == '?' || part == it)
}

fn match_with_star<P, T>(
    pattern: &[P],
    text: &[T],
    is_star: impl Fn(&P) -> bool,
    is_same: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut retry = None;
    while seen < text.len() {
        if pattern.get(at).is_some_and(&is_star) {
            retry = Some((at + 1, seen));
            at += 1;
        } else if pattern.get(at).is_some_and(|it| is_same(it, &text[seen])) {
            at += 1;
            seen += 1;
        } else if let Some((after_star, taken)) = retry {
            retry = Some((after_star, taken + 1));
            (at, seen) = (after_star, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(is_star)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, path: &str, want: bool) {
        assert_eq!(matches(pattern, path), want, "{pattern} on {path}");
    }

    #[test]
    fn a_pattern_without_a_slash_is_compared_with_every_name() {
        check("*.pem", "a.pem", true);
        check("*.pem", "deep/er/a.pem", true);
        check("*.pem", "a.pem.txt", false);
        check("secret?", "secrets", true);
        check("secret?", "secret", false);
        check("*", "a/b", true);
        check("é?", "éé", true);
    }

    #[test]
    fn a_pattern_with_a_slash_is_compared_with_the_path() {
        check("src/*.ts", "src/a.ts", true);
        check("src/*.ts", "src/deep/a.ts", false);
        check("src/*.ts", "lib/src/a.ts", false);
        check("src/**", "src/deep/a.ts", true);
        check("**/a.ts", "src/deep/a.ts", true);
        check("./state/", "state", true);
        check("/state", "state", true);
        check("/state", "deep/state", false);
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_long_time() {
        let pattern = "*a".repeat(200) + "b";
        check(&pattern, &"a".repeat(4_000), false);
    }
}
