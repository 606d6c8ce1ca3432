//! Where a plugin is installed from, as a person writes it and as an entry
//! keeps it. Names that are put into addresses are checked here, so that none
//! can lead elsewhere. Nothing is downloaded here.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::error::{During, Error, Kind, Result};

/// Longest version, tag, range or reference, in bytes.
const LONGEST_WORD: usize = 128;

/// Longest name of a package, as npm has it.
const LONGEST_NAME: usize = 214;

/// What is installed; the paths of this host are absolute, links resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder of this host.
    Folder(PathBuf),
    /// A `.tar.gz` of this host.
    Archive(PathBuf),
    /// `npm:NAME[@WANTED]`.
    Npm {
        /// With its scope, if it has one.
        name: String,
        /// A version, tag or range.
        wanted: Option<String>,
    },
    /// `github:OWNER/REPOSITORY[/FOLDER][#REFERENCE]`.
    GitHub {
        /// Whose it is.
        owner: String,
        /// The repository.
        repository: String,
        /// The folder in it; empty for all of it.
        folder: PathBuf,
        /// A branch, tag or commit; the default branch without one.
        reference: Option<String>,
    },
}

impl Source {
    /// Reads what a person wrote, or what an entry keeps as `_source`.
    pub fn parse(text: &str) -> Result<Self> {
        let read = match text.split_once(':') {
            Some(("npm", rest)) => npm(rest),
            Some(("github", rest)) => github(rest),
            _ => return local(text),
        };
        read.map_err(|it| Error::new(Kind::Usage, format!("`{text}`: {it}")))
    }

    /// Where it lies on this host; `None` for what is downloaded.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Folder(path) | Self::Archive(path) => Some(path),
            Self::Npm { .. } | Self::GitHub { .. } => None,
        }
    }

    /// As an entry keeps it.
    pub fn text(&self) -> String {
        let behind = |mark: char, it: &Option<String>| {
            it.as_ref().map_or_else(String::new, |it| format!("{mark}{it}"))
        };
        match self {
            Self::Folder(path) | Self::Archive(path) => path.to_string_lossy().into_owned(),
            Self::Npm { name, wanted } => format!("npm:{name}{}", behind('@', wanted)),
            Self::GitHub { owner, repository, folder, reference } => {
                let whole = Path::new(owner).join(repository);
                let whole: PathBuf = whole.components().chain(folder.components()).collect();
                format!("github:{}{}", whole.display(), behind('#', reference))
            }
        }
    }

    /// A name for a folder with all that is in it.
    pub(super) fn stem(&self) -> String {
        let name = |it: &Path| it.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match self {
            Self::Folder(path) => name(path),
            Self::Archive(path) => {
                let name = name(path);
                let stem = [".tar.gz", ".tgz"].iter().find_map(|it| name.strip_suffix(it));
                stem.unwrap_or(&name).to_owned()
            }
            Self::Npm { name, .. } => name.clone(),
            Self::GitHub { owner, repository, folder, .. } => {
                format!("{owner}-{repository}-{}", folder.display())
            }
        }
    }
}

fn local(text: &str) -> Result<Source> {
    let what = || format!("install from `{text}`");
    let path = Path::new(text).canonicalize().during(Kind::Missing, what())?;
    if path.to_str().is_none() {
        return Err(Error::new(Kind::Usage, format!("`{text}`: its path is not UTF-8")));
    }
    let metadata = fs::metadata(&path).during(Kind::Missing, what())?;
    match (metadata.is_dir(), metadata.is_file()) {
        (true, _) => Ok(Source::Folder(path)),
        (_, true) => Ok(Source::Archive(path)),
        _ => Err(Error::new(Kind::Usage, format!("`{text}` is neither a folder nor a file"))),
    }
}

fn npm(text: &str) -> Result<Source, &'static str> {
    let (name, wanted) = match text.get(1..).and_then(|it| it.find('@')) {
        Some(at) => (&text[..=at], Some(&text[at + 2..])),
        None => (text, None),
    };
    let bare = match name.strip_prefix('@').map(|it| it.split_once('/')) {
        Some(Some((scope, name))) if is_word(scope) => name,
        Some(_) => "",
        None => name,
    };
    if !is_word(bare) || name.len() > LONGEST_NAME {
        return Err("write npm:NAME, npm:@SCOPE/NAME, and @VERSION behind it");
    }
    let is_wanted = |it: &str| {
        !it.is_empty()
            && it.len() <= LONGEST_WORD
            && it.chars().all(|it| it.is_ascii_graphic() && !"/:@\\".contains(it) || it == ' ')
    };
    if wanted.is_some_and(|it| !is_wanted(it)) {
        return Err("behind the @ stands a version, a tag or a range, such as 1.2.3, next or ^1.2");
    }
    Ok(Source::Npm { name: name.to_owned(), wanted: wanted.map(str::to_owned) })
}

fn github(text: &str) -> Result<Source, &'static str> {
    let (place, reference) = match text.split_once('#') {
        Some((place, reference)) => (place, Some(reference)),
        None => (text, None),
    };
    let mut parts = place.splitn(3, '/');
    let mut part = || parts.next().unwrap_or_default();
    let (owner, repository, folder) = (part(), part(), part());
    if !is_word(owner) || !is_word(repository) {
        return Err(
            "write github:OWNER/REPOSITORY, /FOLDER behind it, and #BRANCH, #TAG or #COMMIT",
        );
    }
    let folder: PathBuf = Path::new(folder).components().collect();
    if !folder.components().all(|it| matches!(it, Component::Normal(_))) {
        return Err("the folder leads out of the repository");
    }
    let is_fitting = |it: &str| {
        let fits = |it: char| it.is_ascii_alphanumeric() || "._-/+@".contains(it);
        it.len() <= LONGEST_WORD && it.chars().all(fits) && it.split('/').all(is_part)
    };
    if reference.is_some_and(|it| !is_fitting(it)) {
        return Err("behind the # stands a branch, a tag or a commit");
    }
    Ok(Source::GitHub {
        owner: owner.to_owned(),
        repository: repository.to_owned(),
        folder,
        reference: reference.map(str::to_owned),
    })
}

/// A name of npm or GitHub, which stands in an address as it is.
fn is_word(word: &str) -> bool {
    let fits = |it: char| it.is_ascii_alphanumeric() || "._-~".contains(it);
    is_part(word) && word.chars().all(fits)
}

fn is_part(part: &str) -> bool {
    !part.is_empty() && !part.starts_with(['.', '-'])
}

/// A word made to fit what plugins may be called; `None` if nothing of it does.
pub(super) fn fitted(word: &str) -> Option<String> {
    let fitting = |it: char| match it.to_ascii_lowercase() {
        it if it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_' => it,
        _ => '-',
    };
    let word: String = word.chars().map(fitting).collect();
    let word: String = word.trim_start_matches(['-', '_']).chars().take(40).collect();
    let word = word.trim_end_matches('-');
    (!word.is_empty()).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let error = Source::parse(text).map_err(|it| it.to_string()).err().unwrap_or_default();
        assert!(error.contains(want), "{text}: {error}");
    }

    #[test]
    fn what_is_no_source_is_refused_with_what_one_looks_like() {
        check("no/such/folder", "install from `no/such/folder`: No such file");
        check("/dev/null", "neither a folder nor a file");
        for bad in ["", "..", "@scope", "@/x", "@../x", "a/b", "@a/../b", "a%2fb", "-x", "a b"] {
            check(&format!("npm:{bad}"), "write npm:NAME");
        }
        for bad in ["", "a/b", "file:x", "1@2", "https://x"] {
            check(&format!("npm:x@{bad}"), "a version, a tag or a range");
        }
        for bad in ["", "owner", "owner/", "../x", "o/..", "o p/x", "o/x?y"] {
            check(&format!("github:{bad}"), "write github:OWNER/REPOSITORY");
        }
        check("github:o/r/../x", "leads out");
        for bad in ["", "a/../b", "-x", "a?b", "a/", "a b", "a%2f"] {
            check(&format!("github:o/r#{bad}"), "a branch, a tag or a commit");
        }
    }

    #[test]
    fn what_is_downloaded_is_kept_as_it_was_written() {
        let check = |text: &str, stem: &str| {
            let source = Source::parse(text).unwrap_or_else(|it| panic!("{it}"));
            assert_eq!((source.text(), fitted(&source.stem())), (text.into(), Some(stem.into())));
        };
        check("npm:x", "x");
        check("npm:@scope/pkg@^1.2 || 2", "scope-pkg");
        check("npm:pkg@next", "pkg");
        check("github:Owner/re.po", "owner-re-po");
        check("github:o/r/tools/x#feature/y", "o-r-tools-x");
    }

    #[test]
    fn a_word_is_made_to_fit() {
        let check = |word: &str, want: Option<&str>| assert_eq!(fitted(word).as_deref(), want);
        check("My Server.v2", Some("my-server-v2"));
        check("--_x--", Some("x"));
        check("@scope/pkg", Some("scope-pkg"));
        check("…", None);
        check(&"a".repeat(50), Some(&"a".repeat(40)));
    }
}
