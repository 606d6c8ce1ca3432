//! What is about to be installed, path by path, before any of it is written.
//! A path that leads out, a link that does, a name given twice, and more than
//! the bounds allow are refused here, for folders and archives alike. Pure.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Kind, Result};

/// Most bytes of all files.
pub(super) const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Most files, folders and links.
pub(super) const MAX_ITEMS: usize = 50_000;

/// Deepest path, in names.
const DEEPEST: usize = 32;

/// Longest name, in bytes, as file systems have it.
const LONGEST_NAME: usize = 255;

/// Longest path, in bytes: with the state folder before it the kernel takes it.
const LONGEST_PATH: usize = 2048;

/// How deep plugins are looked for, in folders.
const PLUGINS_WITHIN: usize = 6;

/// Folders that hold what others wrote.
const NOT_LOOKED_INTO: [&str; 2] = ["node_modules", ".git"];

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Folder,
    File { bytes: u64, is_program: bool },
    Link(PathBuf),
}

/// All that is to be installed; each folder stands before what is in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    items: BTreeMap<PathBuf, Item>,
    bytes: u64,
}

impl Listing {
    /// Takes one in, with the folders above it; gives the path as it is kept.
    pub(super) fn add(&mut self, path: &Path, item: Item) -> Result<PathBuf> {
        let path = plain(path)?;
        self.add_folders_above(&path)?;
        if let Item::File { bytes, .. } = &item {
            self.bytes = self.bytes.saturating_add(*bytes);
        }
        match self.items.get(&path) {
            _ if path.as_os_str().is_empty() && item == Item::Folder => {}
            _ if path.as_os_str().is_empty() => return Err(refused(&path, "it has no name")),
            Some(Item::Folder) if item == Item::Folder => {}
            Some(_) => return Err(refused(&path, "it is there twice")),
            None => {
                self.items.insert(path.clone(), item);
            }
        }
        self.check_bounds(&path)?;
        Ok(path)
    }

    /// Refuses links that lead out, that lead nowhere, or that lead over
    /// another link. Asked once all is listed.
    pub(super) fn check_links(&self) -> Result<()> {
        for (path, item) in &self.items {
            if let Item::Link(target) = item {
                self.check_link(path, target).map_err(|why| refused(path, &why))?;
            }
        }
        Ok(())
    }

    /// The folders with a `plugin.json`, from the top; none within another.
    pub(super) fn plugins(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for (path, item) in &self.items {
            let folder = path.parent().unwrap_or(Path::new(""));
            let is_manifest = path.file_name() == Some(OsStr::new("plugin.json"))
                && matches!(item, Item::File { .. });
            let is_left_out = folder
                .components()
                .any(|it| NOT_LOOKED_INTO.iter().any(|no| it.as_os_str() == *no));
            if is_manifest && !is_left_out && folder.components().count() <= PLUGINS_WITHIN {
                found.push(folder.to_owned());
            }
        }
        found.sort();
        let all = found.clone();
        found.retain(|it| !it.ancestors().skip(1).any(|above| all.iter().any(|it| it == above)));
        found
    }

    /// What lies in one of its folders, as a listing of its own; refuses links
    /// that lead out of that one.
    pub(super) fn below(&self, folder: &Path) -> Result<Self> {
        let mut listing = Self::default();
        for (path, item) in &self.items {
            if let Ok(rest) = path.strip_prefix(folder)
                && !rest.as_os_str().is_empty()
            {
                listing.add(rest, item.clone())?;
            }
        }
        listing.check_links()?;
        Ok(listing)
    }

    /// The path as it is kept, if that very item was listed there.
    pub(super) fn listed(&self, path: &Path, item: &Item) -> Option<PathBuf> {
        let path = plain(path).ok()?;
        (self.items.get(&path) == Some(item)).then_some(path)
    }

    /// Whether anything stands there.
    pub(super) fn holds(&self, path: &Path) -> bool {
        self.items.contains_key(path)
    }

    /// The one folder that holds all the rest.
    pub(super) fn top(&self) -> Option<PathBuf> {
        let first = PathBuf::from(self.items.keys().next()?.components().next()?.as_os_str());
        let is_top = self.items.get(&first) == Some(&Item::Folder)
            && self.items.keys().all(|it| it.starts_with(&first));
        is_top.then_some(first)
    }

    /// Files in it, and their bytes.
    pub(super) fn size(&self) -> (usize, u64) {
        let files = self.items.values().filter(|it| matches!(it, Item::File { .. }));
        (files.count(), self.bytes)
    }

    /// Every path with what stands there.
    pub(super) fn items(&self) -> impl Iterator<Item = (&Path, &Item)> {
        self.items.iter().map(|(path, item)| (path.as_path(), item))
    }

    fn add_folders_above(&mut self, path: &Path) -> Result<()> {
        for above in path.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()) {
            match self.items.get(above) {
                Some(Item::Folder) => break,
                Some(_) => return Err(refused(path, "it lies below what is no folder")),
                None => {
                    self.items.insert(above.to_owned(), Item::Folder);
                }
            }
        }
        Ok(())
    }

    fn check_bounds(&self, path: &Path) -> Result<()> {
        let most = if self.bytes > MAX_BYTES {
            format!("more than {} MiB", MAX_BYTES >> 20)
        } else if self.items.len() > MAX_ITEMS {
            format!("more than {MAX_ITEMS} files and folders")
        } else {
            return Ok(());
        };
        let what = format!("{most}, counted up to `{}`: too much for a plugin", path.display());
        Err(Error::new(Kind::TooLarge, what))
    }

    fn check_link(&self, path: &Path, target: &Path) -> Result<(), String> {
        let shown = target.display();
        let mut at = path.parent().unwrap_or(Path::new("")).to_owned();
        let leads_out = || format!("a link that leads out, to `{shown}`");
        let last = target.components().count().saturating_sub(1);
        for (place, step) in target.components().enumerate() {
            match step {
                Component::CurDir => {}
                Component::ParentDir if at.pop() => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(leads_out());
                }
                Component::Normal(name) => at.push(name),
            }
            match self.items.get(&at) {
                Some(Item::Link(_)) if place < last => {
                    return Err(format!("a link over another link, to `{shown}`"));
                }
                None if !at.as_os_str().is_empty() => {
                    return Err(format!("a link that leads nowhere, to `{shown}`"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A path as it is kept: names only.
fn plain(path: &Path) -> Result<PathBuf> {
    let mut names = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) if name.len() > LONGEST_NAME => {
                return Err(refused(path, "a name in it is too long"));
            }
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err(refused(path, "it leads out by `..`")),
            Component::RootDir | Component::Prefix(_) => {
                return Err(refused(path, "it is an absolute path"));
            }
        }
    }
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(refused(path, "it holds a NUL byte"));
    }
    let is_long = names.as_os_str().len() > LONGEST_PATH || names.components().count() > DEEPEST;
    if is_long {
        return Err(refused(path, "it is too deep or too long"));
    }
    Ok(names)
}

/// The error for what is not installed, and why.
pub(super) fn refused(path: &Path, why: &str) -> Error {
    let shown: String = path.to_string_lossy().chars().take(200).collect();
    Error::new(Kind::Denied, format!("`{shown}` is refused: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Item = Item::File { bytes: 1, is_program: false };

    fn listed(items: &[(&str, Item)]) -> Result<Listing> {
        let mut listing = Listing::default();
        for (path, item) in items {
            listing.add(Path::new(path), item.clone())?;
        }
        listing.check_links()?;
        Ok(listing)
    }

    fn link(target: &str) -> Item {
        Item::Link(target.into())
    }

    #[track_caller]
    fn check_refused(items: &[(&str, Item)], want: &str) {
        let error = listed(items).map_err(|it| it.to_string()).err();
        assert!(error.as_ref().is_some_and(|it| it.contains(want)), "{items:?}: {error:?}");
    }

    #[test]
    fn a_path_that_leads_out_is_refused() {
        check_refused(&[("../x", FILE)], "leads out by `..`");
        check_refused(&[("a/../../x", FILE)], "leads out by `..`");
        check_refused(&[("a/../x", FILE)], "leads out by `..`");
        check_refused(&[("/etc/x", FILE)], "an absolute path");
        check_refused(&[("", FILE)], "it has no name");
        check_refused(&[("./.", FILE)], "it has no name");
        check_refused(&[("a\0b", FILE)], "a NUL byte");
        check_refused(&[(&"x".repeat(256), FILE)], "a name in it is too long");
        check_refused(&[(&"x/".repeat(33), Item::Folder)], "too deep");
        check_refused(
            &[(&format!("{0}/{0}/{0}/{0}/{0}/{0}/{0}/{0}/{0}", "x".repeat(250)), FILE)],
            "too long",
        );
    }

    #[test]
    fn a_name_is_there_once_and_below_folders_only() {
        check_refused(&[("a", FILE), ("./a", FILE)], "there twice");
        check_refused(&[("a", FILE), ("a/b", FILE)], "below what is no folder");
        check_refused(&[("b", FILE), ("a", link("b")), ("a/c", FILE)], "below what is no folder");
        check_refused(&[("a/b", FILE), ("a", FILE)], "there twice");
        check_refused(&[("a/b", FILE), ("a", link("b"))], "there twice");
        assert!(listed(&[("a", Item::Folder), ("a/", Item::Folder), ("a/b", FILE)]).is_ok());
        assert!(listed(&[("./", Item::Folder), ("a/b", FILE)]).is_ok());
    }

    #[test]
    fn a_link_stays_inside() {
        for target in ["../../x", "/etc", "../..", "..", "b/../../../x"] {
            let want = if target == "b/../../../x" { "nowhere" } else { "leads out" };
            let path = if target == ".." { "a" } else { "d/a" };
            check_refused(&[("d/c", FILE), (path, link(target))], want);
        }
        check_refused(&[("a", link("b"))], "leads nowhere");
        // By names alone it stays inside; as the kernel walks it, it does not.
        check_refused(
            &[("a/b/d", link("..")), ("x", FILE), ("l", link("a/b/d/../../x"))],
            "over another link",
        );
        let inside = [("bin/x", link("../lib/x")), ("lib/x", FILE), ("y", link("./bin/x"))];
        assert!(listed(&inside).is_ok());
    }

    #[test]
    fn there_is_a_bound_on_bytes_and_on_items() {
        let half = Item::File { bytes: MAX_BYTES / 2 + 1, is_program: false };
        check_refused(&[("a", half.clone()), ("b", half)], "more than 256 MiB");
        check_refused(&[("a", Item::File { bytes: u64::MAX, is_program: true })], "256 MiB");
        let mut listing = Listing::default();
        let refused =
            (0..=MAX_ITEMS).find_map(|it| listing.add(Path::new(&it.to_string()), FILE).err());
        assert!(refused.is_some_and(|it| it.to_string().contains("more than 50000 files")));
    }

    #[test]
    fn plugins_are_found_at_any_depth_and_not_within_one_another() -> Result<()> {
        let mut listing = listed(&[
            ("r/a/plugin.json", FILE),
            ("r/a/examples/plugin.json", FILE),
            ("r/a-b/plugin.json", FILE),
            ("r/node_modules/x/plugin.json", FILE),
            ("r/c/plugin.json/x", FILE),
            ("1/2/3/4/5/6/7/plugin.json", FILE),
        ])?;
        assert_eq!(listing.plugins(), [Path::new("r/a"), Path::new("r/a-b")]);
        listing.add(Path::new("plugin.json"), FILE)?;
        assert_eq!(listing.plugins(), [Path::new("")]);
        Ok(())
    }
}
