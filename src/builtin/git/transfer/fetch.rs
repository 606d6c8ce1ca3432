//! Clone, fetch and pull: from the remote into the mirror, and from there as
//! git does it. Of a remote that the repository knows, those refs are fetched
//! that its `fetch` lines or the arguments name.

use super::super::arguments::Parsed;
use super::super::failed;
use super::super::remotes::Remote;
use super::super::scratch::{HEAD, MIRROR, Refs};
use super::super::work::{Printed, Work};
use super::{Link, told};
use crate::builtin::Answer;

/// Options about how much history there is; both steps get them.
const DEPTH: [&str; 5] =
    ["--depth", "--deepen", "--shallow-since", "--shallow-exclude", "--unshallow"];

/// Most refs of a repository that are offered to a remote.
const MOST_REFS: usize = 20_000;

pub(super) fn clone(work: &Work<'_>, parsed: &Parsed<'_>) -> Result<Printed, Answer> {
    let Some(url) = parsed.operands.first() else {
        return Err(Answer::wrong("say which repository to clone"));
    };
    let remote = work.settings.remote(url).map_err(Answer::wrong)?;
    work.scratch.place_mirror().map_err(failed)?;
    let options =
        ["--single-branch", "--no-single-branch", "-b", "--branch", "--no-tags", "-4", "-6"];
    let mut words = ["clone", "--bare", "--quiet"].map(str::to_owned).to_vec();
    words.extend(parsed.only(&options));
    words.extend(parsed.only(&DEPTH));
    words.extend(["--", url, MIRROR].map(str::to_owned));
    let got = Link::open(work, &remote)?.git(&words)?;
    if got.code != 0 {
        return Ok(told(got, &remote));
    }
    work.asked(remote.scheme)
}

pub(super) fn fetch(work: &Work<'_>, parsed: &Parsed<'_>) -> Result<Printed, Answer> {
    let remote = remote(work, parsed.operands.first().copied())?;
    make_mirror(work)?;
    let mut words = ["fetch", "--quiet", "--no-auto-maintenance"].map(str::to_owned).to_vec();
    words.extend(parsed.only(&DEPTH));
    words.extend(parsed.only(&["-t", "--tags", "--no-tags", "--update-shallow", "-4", "-6"]));
    words.extend(["--".to_owned(), remote.url.clone()]);
    words.extend(refspecs(work, parsed)?);
    let got = Link::open(work, &remote)?.git(&words)?;
    if got.code != 0 {
        return Ok(told(got, &remote));
    }
    work.asked(remote.scheme)
}

/// The remote of that name or URL, or the one that git would take; checked.
pub(super) fn remote(work: &Work<'_>, name: Option<&str>) -> Result<Remote, Answer> {
    let words = ["ls-remote", "--get-url", "--"].into_iter().chain(name);
    let found = work.quietly(&words.collect::<Vec<_>>())?;
    if found.code != 0 {
        return Err(found.into());
    }
    work.settings.remote(found.out.trim_end_matches('\n')).map_err(Answer::wrong)
}

/// The remote that git takes when none is named.
pub(super) fn default_remote(work: &Work<'_>, field: &str) -> Result<String, Answer> {
    let head = work.quietly(&["symbolic-ref", "--quiet", "HEAD"])?;
    let format = format!("--format=%({field}:remotename)");
    let found = work.quietly(&["for-each-ref", &format, head.out.trim()])?;
    let name = if head.code == 0 { found.out.trim() } else { "" };
    Ok(if name.is_empty() { "origin".to_owned() } else { name.to_owned() })
}

/// A mirror that knows what the repository has.
fn make_mirror(work: &Work<'_>) -> Result<(), Answer> {
    let listed = work.quietly(&["for-each-ref", "--format=%(objectname)"])?;
    if listed.code != 0 {
        return Err(listed.into());
    }
    let mut ids: Vec<&str> = listed.out.lines().filter(|it| is_id(it)).collect();
    ids.sort_unstable();
    ids.dedup();
    let ids = ids.into_iter().take(MOST_REFS).enumerate();
    let refs = ids.map(|(number, id)| (format!("refs/have/{number:05}"), id.to_owned())).collect();
    make_mirror_of(work, &refs)
}

/// A mirror with the repository's objects and those refs.
pub(super) fn make_mirror_of(work: &Work<'_>, refs: &Refs) -> Result<(), Answer> {
    let words = ["rev-parse", "--path-format=absolute", "--git-path"];
    let path = |name| work.quietly(&[&words[..], &[name]].concat());
    let objects = path("objects")?;
    if objects.code != 0 {
        return Err(objects.into());
    }
    let shallow = work.file(path("shallow")?.out.trim_end_matches('\n'))?;
    let shallow: String =
        shallow.lines().filter(|it| is_id(it)).map(|it| format!("{it}\n")).collect();
    let objects = objects.out.trim_end_matches('\n');
    work.scratch.make_mirror(objects, refs, &shallow).map_err(failed)
}

/// Whether it names an object by its whole name.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|it| it.is_ascii_hexdigit())
}

/// What the mirror fetches.
fn refspecs(work: &Work<'_>, parsed: &Parsed<'_>) -> Result<Vec<String>, Answer> {
    if parsed.operands.len() > 1 {
        return Ok(parsed.operands.iter().skip(1).flat_map(|it| sources(it)).collect());
    }
    let name = match parsed.operands.first() {
        Some(name) => (*name).to_owned(),
        None => default_remote(work, "upstream")?,
    };
    let lines = work.quietly(&["config", "--get-all", &format!("remote.{name}.fetch")])?;
    let lines: Vec<String> = lines.out.lines().flat_map(sources).collect();
    Ok(if lines.is_empty() { sources("HEAD") } else { lines })
}

/// The refspecs by which the mirror gets what one of the repository's names.
/// Names that could be a branch or a tag are both, by patterns, which may match
/// nothing.
pub(super) fn sources(refspec: &str) -> Vec<String> {
    if refspec.starts_with('^') {
        return Vec::new();
    }
    let source = refspec.trim_start_matches('+').split(':').next().unwrap_or_default();
    let same = |it: &str| format!("+{it}:{it}");
    match source {
        "" | "HEAD" | "@" => vec![format!("+HEAD:{HEAD}")],
        it if it.starts_with("refs/") => vec![same(it)],
        it if it.starts_with("heads/") || it.starts_with("tags/") => {
            vec![same(&format!("refs/{it}"))]
        }
        it if is_id(it) => vec![format!("+{it}:refs/beige/{it}")],
        it => ["heads", "tags"]
            .map(|kind| same(&format!("refs/{kind}/{}*", it.trim_end_matches('*'))))
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_gets_what_a_refspec_takes() {
        let id = "0123456789012345678901234567890123456789";
        for (refspec, want) in [
            ("+refs/heads/*:refs/remotes/origin/*", vec!["+refs/heads/*:refs/heads/*"]),
            ("refs/pull/1/head:pr", vec!["+refs/pull/1/head:refs/pull/1/head"]),
            (
                "main",
                vec!["+refs/heads/main*:refs/heads/main*", "+refs/tags/main*:refs/tags/main*"],
            ),
            ("heads/main:x", vec!["+refs/heads/main:refs/heads/main"]),
            ("HEAD", vec!["+HEAD:refs/beige/HEAD"]),
            (":x", vec!["+HEAD:refs/beige/HEAD"]),
            ("^refs/heads/x", vec![]),
            (id, vec![&*format!("+{id}:refs/beige/{id}")]),
        ] {
            assert_eq!(sources(refspec), want, "{refspec}");
        }
    }
}
