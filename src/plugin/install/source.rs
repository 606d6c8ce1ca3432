//! Where a plugin is installed from, as a person writes it. Nothing is
//! downloaded by this version.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{During, Error, Kind, Result};

/// What is installed; the paths are absolute, links resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder of this host.
    Folder(PathBuf),
    /// A `.tar.gz` of this host.
    Archive(PathBuf),
}

impl Source {
    /// Reads what a person wrote, or what an entry keeps as `_source`.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(place) = ["npm", "github"].into_iter().find(|it| is_from(text, it)) {
            let what = format!(
                "`{text}`: installing from {place} is not built yet in this version; download it as \
                 a .tar.gz and give that file, or give a folder that it was unpacked into"
            );
            return Err(Error::new(Kind::Missing, what));
        }
        let what = || format!("install from `{text}`");
        let path = Path::new(text).canonicalize().during(Kind::Missing, what())?;
        if path.to_str().is_none() {
            return Err(Error::new(Kind::Usage, format!("`{text}`: its path is not UTF-8")));
        }
        let metadata = fs::metadata(&path).during(Kind::Missing, what())?;
        match (metadata.is_dir(), metadata.is_file()) {
            (true, _) => Ok(Self::Folder(path)),
            (_, true) => Ok(Self::Archive(path)),
            _ => Err(Error::new(Kind::Usage, format!("`{text}` is neither a folder nor a file"))),
        }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        match self {
            Self::Folder(path) | Self::Archive(path) => path,
        }
    }

    /// The name of the folder or archive, without what says which it is.
    pub(super) fn stem(&self) -> String {
        let name = self.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ends = [".tar.gz", ".tgz"];
        match (self, ends.iter().find_map(|it| name.strip_suffix(it))) {
            (Self::Archive(_), Some(stem)) => stem.to_owned(),
            _ => name,
        }
    }
}

fn is_from(text: &str, place: &str) -> bool {
    text.strip_prefix(place).is_some_and(|it| it.starts_with(':'))
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
    fn what_would_be_downloaded_is_refused_with_a_way_out() {
        check("npm:@scope/pkg@1.0.0", "from npm is not built yet in this version; download it as");
        check("github:owner/repo/path#ref", "from github is not built yet");
        check("no/such/folder", "install from `no/such/folder`: No such file");
        check("/dev/null", "neither a folder nor a file");
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
