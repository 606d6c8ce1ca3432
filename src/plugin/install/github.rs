//! Archives of GitHub, or of what an enterprise has in its place: of a branch,
//! tag or commit, by way of its API.

use std::path::Path;

use super::download::{Net, Wanted};
use super::npm::{LARGEST_ARCHIVE, download_to};
use crate::error::{Kind, Result};
use crate::secret::Secret;

/// Where the API is unless the environment names another place.
const PUBLIC: &str = "https://api.github.com";

/// Names another, as GitHub's own programs have it.
const NAMED: &str = "GITHUB_API_URL";

/// Downloads the archive of a repository into a new file.
pub(super) fn download(
    net: &Net<'_>,
    owner: &str,
    repository: &str,
    reference: Option<&str>,
    to: &Path,
) -> Result<()> {
    let named = net.variable(NAMED);
    let base = named.as_deref().unwrap_or(PUBLIC).trim_end_matches('/');
    let reference = reference.map_or_else(String::new, |it| format!("/{}", it.replace('+', "%2B")));
    let wanted = Wanted {
        url: &format!("{base}/repos/{owner}/{repository}/tarball{reference}"),
        accept: "application/vnd.github+json",
        token: net.variable("GITHUB_TOKEN").map(Secret::new),
        largest: LARGEST_ARCHIVE,
    };
    download_to(net, &wanted, to).map(|_| ()).map_err(|it| {
        let what = format!("github:{owner}/{repository}");
        match it.kind() {
            Kind::Missing | Kind::Denied => {
                it.within(what + " (for a private one set GITHUB_TOKEN)")
            }
            _ => it.within(what),
        }
    })
}
