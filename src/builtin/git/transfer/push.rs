//! Push. git says what it would do, against a mirror that has the remote's refs;
//! that is looked at, and exactly that is sent, object names and all, by the box
//! with the network. So a `+` in a configuration, or a branch that changes
//! meanwhile, sends nothing that was not looked at. Then git is asked again, for
//! what it notes of a push.

use super::super::arguments::Parsed;
use super::super::failed;
use super::super::remotes::Remote;
use super::super::scratch::Refs;
use super::super::work::{Printed, Work};
use super::fetch::{default_remote, is_id, make_mirror_of};
use super::{Link, told};
use crate::builtin::Answer;

/// One ref over there, and what becomes of it.
#[derive(Debug, PartialEq)]
pub(super) struct Update {
    /// As git says it: ` `, `+`, `-`, `*`.
    kind: char,
    from: String,
    to: String,
    /// What `from` is; empty to remove it.
    id: String,
}

/// Options that decide what is pushed.
const SELECTING: [&str; 14] = [
    "--all",
    "--branches",
    "--tags",
    "--follow-tags",
    "--no-follow-tags",
    "--atomic",
    "-f",
    "--force",
    "--force-with-lease",
    "--force-if-includes",
    "-d",
    "--delete",
    "--mirror",
    "--prune",
];

/// Options that go out.
const SENDING: [&str; 12] = [
    "--atomic",
    "--no-atomic",
    "-o",
    "--push-option",
    "--thin",
    "--no-thin",
    "-4",
    "-6",
    "-q",
    "--quiet",
    "-v",
    "--verbose",
];

pub(super) fn push(work: &Work<'_>, parsed: &Parsed<'_>) -> Result<Printed, Answer> {
    let may_force = work.settings.allow_force_push;
    if let Some(word) = parsed.forces().filter(|_| !may_force) {
        return Err(Answer::wrong(format!("`{word}` {FORCED}")));
    }
    let remote = remote(work, parsed)?;
    make_mirror_of(work, &Refs::new())?;
    let link = Link::open(work, &remote)?;
    let words = ["ls-remote", "--refs", "--", &remote.url, "refs/heads/*", "refs/tags/*"];
    let listed = link.git(&words.map(str::to_owned))?;
    if listed.code != 0 {
        return Ok(told(listed, &remote));
    }
    let mut refs = read_refs(&listed.out);
    work.scratch.write_refs(&refs).map_err(failed)?;
    if parsed.has(&["-n", "--dry-run"]) {
        return work.asked(remote.scheme);
    }
    let mut updates = match foreseen(work, parsed, &remote)? {
        Ok(updates) => updates,
        Err(refused) => return Ok(refused),
    };
    if let Some(it) = updates.iter().find(|it| "+-".contains(it.kind) && !may_force) {
        return Err(Answer::failed(format!("{} {FORCED}", it.to)));
    }
    name_objects(work, &mut updates)?;
    if updates.is_empty() {
        return work.asked(remote.scheme);
    }
    let sent = link.git(&sending(parsed, &remote, &refs, &updates))?;
    let mut sent = readable(sent, &updates);
    if sent.code == 0 && updates.iter().all(|it| !it.id.is_empty()) {
        refs.extend(updates.into_iter().map(|it| (it.to, it.id)));
        work.scratch.write_refs(&refs).map_err(failed)?;
        sent.out = work.asked(remote.scheme)?.out;
    }
    Ok(sent)
}

const FORCED: &str = "would overwrite or remove what is over there, which is not allowed here; a \
                      person can allow it by `allowForcePush`";

/// Where git would push to: one place, checked.
fn remote(work: &Work<'_>, parsed: &Parsed<'_>) -> Result<Remote, Answer> {
    let name = match parsed.operands.first() {
        Some(name) => (*name).to_owned(),
        None => default_remote(work, "push")?,
    };
    let found = work.quietly(&["remote", "get-url", "--push", "--all", "--", &name])?;
    if found.code != 0 && parsed.operands.is_empty() {
        return Err(Answer::failed("there is no remote to push to; add one by `git remote add`"));
    }
    let url = if found.code == 0 { found.out.trim_end_matches('\n') } else { &name };
    if url.contains('\n') {
        return Err(Answer::wrong(format!("the remote `{name}` has several URLs; push to one")));
    }
    work.settings.remote(url).map_err(Answer::wrong)
}

/// Lines of `ls-remote`.
pub(super) fn read_refs(listed: &str) -> Refs {
    let pairs = listed.lines().filter_map(|it| it.split_once('\t'));
    let pairs = pairs.filter(|(id, name)| is_id(id) && name.starts_with("refs/"));
    pairs.map(|(id, name)| (name.to_owned(), id.to_owned())).collect()
}

/// What git would change over there; the inner error is its own refusal.
fn foreseen(
    work: &Work<'_>,
    parsed: &Parsed<'_>,
    remote: &Remote,
) -> Result<Result<Vec<Update>, Printed>, Answer> {
    let said = dry_run(work, parsed, remote, &["--porcelain"])?;
    let is_refused = said.out.lines().any(|it| it.starts_with("!\t"));
    if said.code != 0 || is_refused {
        // The same again, for a person.
        return Ok(Err(dry_run(work, parsed, remote, &[])?));
    }
    Ok(Ok(said.out.lines().filter_map(read_update).collect()))
}

fn dry_run(
    work: &Work<'_>,
    parsed: &Parsed<'_>,
    remote: &Remote,
    options: &[&str],
) -> Result<Printed, Answer> {
    let selecting = parsed.only(&SELECTING);
    let selecting = selecting.iter().map(String::as_str);
    let words = ["push", "--dry-run", "--no-verify"].into_iter().chain(options.iter().copied());
    let words = words.chain(selecting).chain(["--"]).chain(parsed.operands.iter().copied());
    work.local(&words.collect::<Vec<_>>(), None, remote.scheme)
}

/// A line of `push --porcelain`; `None` if nothing is to be done for it.
pub(super) fn read_update(line: &str) -> Option<Update> {
    let (kind, rest) = line.split_once('\t')?;
    let mut kind = kind.chars();
    let (Some(kind), None) = (kind.next(), kind.next()) else { return None };
    let (from, to) = rest.split('\t').next()?.rsplit_once(':')?;
    let is_news = " +-*".contains(kind) && to.starts_with("refs/");
    is_news.then(|| Update { kind, from: from.to_owned(), to: to.to_owned(), id: String::new() })
}

/// From here on a branch that moves changes nothing.
fn name_objects(work: &Work<'_>, updates: &mut [Update]) -> Result<(), Answer> {
    for update in updates.iter_mut().filter(|it| it.kind != '-') {
        let found = work.quietly(&["rev-parse", "--verify", "--end-of-options", &update.from])?;
        let id = found.out.trim().to_owned();
        // Nothing but zeros would remove what is over there.
        if !is_id(&id) || id.bytes().all(|it| it == b'0') {
            return Err(found.into());
        }
        update.id = id;
    }
    Ok(())
}

/// The words that send exactly that. What is overwritten must still be what was
/// seen.
pub(super) fn sending(
    parsed: &Parsed<'_>,
    remote: &Remote,
    refs: &Refs,
    updates: &[Update],
) -> Vec<String> {
    let mut words = ["push", "--no-verify", "--no-progress"].map(str::to_owned).to_vec();
    words.extend(parsed.only(&SENDING));
    let forced = updates.iter().filter(|it| "+-".contains(it.kind));
    words.extend(forced.map(|Update { to, .. }| {
        let seen = refs.get(to).map_or("", String::as_str);
        format!("--force-with-lease={to}:{seen}")
    }));
    words.extend(["--".to_owned(), remote.url.clone()]);
    words.extend(updates.iter().map(|it| format!("{}:{}", it.id, it.to)));
    words
}

/// Names in the place of object names.
fn readable(printed: Printed, updates: &[Update]) -> Printed {
    let named = updates.iter().filter(|it| !it.id.is_empty());
    let err = named.fold(printed.err, |text, it| {
        let short = it.from.trim_start_matches("refs/heads/").trim_start_matches("refs/tags/");
        text.replace(&format!("{} -> ", it.id), &format!("{short} -> "))
    });
    Printed { err, ..printed }
}

#[cfg(test)]
mod tests {
    use super::super::super::commands::named;
    use super::*;
    use crate::builtin::git::arguments::parse;

    fn update(kind: char, from: &str, to: &str, id: &str) -> Update {
        Update { kind, from: from.into(), to: to.into(), id: id.into() }
    }

    #[test]
    fn only_lines_that_change_something_are_updates() {
        let read = |it: &str| read_update(it);
        assert_eq!(
            read(" \trefs/heads/a:refs/heads/b\t1..2"),
            Some(update(' ', "refs/heads/a", "refs/heads/b", ""))
        );
        assert_eq!(
            read("+\tHEAD:x:refs/heads/b\t1...2 (forced update)"),
            Some(update('+', "HEAD:x", "refs/heads/b", ""))
        );
        assert_eq!(read("-\t:refs/heads/b\t[deleted]"), Some(update('-', "", "refs/heads/b", "")));
        for line in ["To x", "Done", "=\ta:refs/heads/b\t[up to date]", "!\ta:refs/heads/b\tx", ""]
        {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn exactly_what_was_seen_is_sent_and_only_over_what_was_seen() -> Result<(), String> {
        let parsed = parse(named("push").ok_or("none")?, &["-fq", "--atomic", "o", "x"])?;
        let remote = Remote::read("https://h/x")?;
        let refs = Refs::from([("refs/heads/b".to_owned(), "1".to_owned())]);
        let updates = [
            update('*', "a", "refs/heads/a", "7"),
            update('+', "b", "refs/heads/b", "8"),
            update('-', "", "refs/heads/c", ""),
        ];
        let words = sending(&parsed, &remote, &refs, &updates).join(" ");
        assert_eq!(
            words,
            "push --no-verify --no-progress -q --atomic --force-with-lease=refs/heads/b:1 \
             --force-with-lease=refs/heads/c: -- https://h/x 7:refs/heads/a 8:refs/heads/b \
             :refs/heads/c"
        );
        Ok(())
    }
}
