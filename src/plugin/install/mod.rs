//! Installs plugins into the state folder, updates and removes them. A source
//! is listed and checked ([`listing`]), then staged beside its place, then its
//! `plugin.json` is checked there, and only then it takes its place in one step
//! that can be taken back. The entry in `config.json5` is written in between,
//! so that what fails leaves both as they were. What is downloaded is checked
//! like an archive of this host.
//!
//! Runs nothing of a plugin, and asks nobody: that is the command line's.

pub mod absent;
pub mod entry;
pub mod import;
pub mod node;

mod archive;
mod download;
mod folder;
mod github;
mod gzip;
mod listing;
mod npm;
mod source;
mod tar;
mod version;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::Value;

pub use download::Net;
pub use source::Source;

use archive::Archive;
use listing::{Item, Listing};

use crate::config::Home;
use crate::config::file_lock::{self, Held};
use crate::config::home::create_private;
use crate::error::{During, Error, Kind, Result};
use crate::plugin::manifest::{self, Manifest};

/// How long another installation may hold the shelf: a person may be asked
/// meanwhile, so it is not waited for to the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the folders of unfinished work are called.
const STAGING: &str = ".staging-";

/// The folders of installed plugins, locked.
#[derive(Debug)]
pub struct Shelf {
    home: Home,
    _lock: Held,
}

/// Plugins that are checked and not yet in their place. Dropping it removes
/// what was staged.
#[derive(Debug)]
pub struct Staged {
    folder: Scratch,
    /// What is moved to `target`.
    content: PathBuf,
    target: PathBuf,
    /// Where it came from.
    pub source: Source,
    /// What is in it.
    pub plugins: Vec<StagedPlugin>,
    /// Number of its files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// One of them.
#[derive(Debug)]
pub struct StagedPlugin {
    /// Its `plugin.json`; the folder in it is that of the staging.
    pub manifest: Manifest,
    /// The folder it will have.
    pub folder: PathBuf,
}

/// Plugins in their place. Dropping it takes that back, unless it is kept.
#[derive(Debug)]
pub struct Placed {
    staged: Staged,
    replaced: bool,
    kept: bool,
}

/// A folder that goes when its owner does, with shelves that hold nothing.
#[derive(Debug)]
struct Scratch(PathBuf, Home);

impl Shelf {
    /// Locks the folders of a home. [`Kind::Busy`] while somebody else installs.
    pub fn open(home: &Home) -> Result<Self> {
        create_private(&home.data())?;
        let lock = file_lock::hold(&home.plugins_lock(), PATIENCE)
            .map_err(|it| it.within("another `beige plugins` is at work"))?;
        let shelf = Self { home: home.clone(), _lock: lock };
        shelf.clear_unfinished();
        Ok(shelf)
    }

    /// Copies a source beside its place, by way of `net` if it is not of this
    /// host, and checks it there.
    pub fn stage(&self, source: Source, net: &Net<'_>) -> Result<Staged> {
        self.refuse_own(&source)?;
        let scratch = self.scratch()?;
        let tree = scratch.0.join("tree");
        create_private(&tree)?;
        let archive = scratch.0.join("archive.tar.gz");
        let (listing, inner) = match &source {
            Source::Folder(path) => {
                let listing = folder::list(path)?;
                plugins_in(&listing, &source)?;
                folder::copy(path, &listing, &tree)?;
                (listing, PathBuf::new())
            }
            Source::Archive(path) => (unpacked(path, &source, None, &tree)?, PathBuf::new()),
            Source::Npm { name, wanted } => {
                npm::download(net, name, wanted.as_deref(), &archive)?;
                let listing = unpacked(&archive, &source, Some(Path::new("")), &tree)?;
                let inner = listing.top().unwrap_or_default();
                (listing, inner)
            }
            Source::GitHub { owner, repository, folder, reference } => {
                github::download(net, owner, repository, reference.as_deref(), &archive)?;
                let listing = unpacked(&archive, &source, Some(folder), &tree)?;
                let inner = listing.top().unwrap_or_default().join(folder);
                (listing, inner)
            }
        };
        let tree: PathBuf = tree.components().chain(inner.components()).collect();
        self.checked(source, &listing.below(&inner)?, &tree, scratch)
    }

    /// Takes the folder of an installed plugin away; whether it was one. What a
    /// person keeps elsewhere is never touched. `others` are the folders of the
    /// plugins that stay.
    pub fn discard(&self, folder: &Path, others: &[PathBuf]) -> Result<bool> {
        let Some(whole) = self.installed(folder) else { return Ok(false) };
        if others.iter().any(|it| it.starts_with(&whole)) {
            return Ok(false);
        }
        let scratch = self.scratch()?;
        let moved = fs::rename(&whole, scratch.0.join("removed"));
        moved.during(Kind::Internal, format!("remove {}", whole.display()))?;
        Ok(true)
    }

    /// The folder on the shelf that a plugin's folder is or lies in. Links are
    /// not followed: what leads elsewhere is a person's own.
    pub fn installed(&self, folder: &Path) -> Option<PathBuf> {
        let shelves = [self.home.plugins(), self.home.plugin_packages()];
        let (shelf, rest) =
            shelves.iter().find_map(|it| folder.strip_prefix(it).ok().map(|rest| (it, rest)))?;
        let leads_out = rest.components().any(|it| !matches!(it, std::path::Component::Normal(_)));
        let whole = shelf.join(rest.components().next().filter(|_| !leads_out)?);
        let is_folder = fs::symlink_metadata(&whole).is_ok_and(|it| it.is_dir());
        is_folder.then_some(whole)
    }

    fn checked(
        &self,
        source: Source,
        listing: &Listing,
        tree: &Path,
        scratch: Scratch,
    ) -> Result<Staged> {
        let plugins = plugins_in(listing, &source)?;
        let manifests: Vec<Manifest> =
            plugins.iter().map(|it| read(tree, it)).collect::<Result<_>>()?;
        refuse_doubles(&manifests)?;
        let (content, target) = match (plugins.as_slice(), manifests.as_slice()) {
            ([below], [only]) => (tree.join(below), self.home.plugins().join(&only.name)),
            _ => (tree.to_owned(), self.home.plugin_packages().join(package_name(&source)?)),
        };
        let folder_of = |below: &PathBuf| match plugins.len() {
            1 => target.clone(),
            _ => target.join(below),
        };
        let (files, bytes) = match plugins.as_slice() {
            [below] => listing.below(below)?.size(),
            _ => listing.size(),
        };
        let plugins = manifests
            .into_iter()
            .zip(&plugins)
            .map(|(manifest, below)| StagedPlugin { manifest, folder: folder_of(below) })
            .collect();
        Ok(Staged { folder: scratch, content, target, source, plugins, files, bytes })
    }

    /// What lies on the shelf, or holds it, is no source: it would be put into
    /// itself.
    fn refuse_own(&self, source: &Source) -> Result<()> {
        let own = self.home.root().canonicalize().unwrap_or_else(|_| self.home.root().to_owned());
        let Some(path) = source.path() else { return Ok(()) };
        let is_shelf = |it: PathBuf| own.join(it.strip_prefix(self.home.root()).unwrap_or(&it));
        let on_shelf = [self.home.plugins(), self.home.plugin_packages()]
            .into_iter()
            .any(|it| path.starts_with(is_shelf(it)));
        if on_shelf || (matches!(source, Source::Folder(_)) && own.starts_with(path)) {
            let what = format!(
                "{} cannot be installed: it lies among the installed plugins, or they in it",
                path.display()
            );
            return Err(Error::new(Kind::Denied, what));
        }
        Ok(())
    }

    /// A new folder in the same file system as the places of plugins.
    fn scratch(&self) -> Result<Scratch> {
        let folder = self.home.plugins().join(format!("{STAGING}{}", process::id()));
        let _ = fs::remove_dir_all(&folder);
        create_private(&folder)?;
        Ok(Scratch(folder, self.home.clone()))
    }

    /// Whoever holds the lock is alone: what others left is of the dead.
    fn clear_unfinished(&self) {
        let Ok(entries) = fs::read_dir(self.home.plugins()) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(STAGING) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        tidy(&self.home);
    }
}

impl Staged {
    /// Folders that will be replaced.
    pub fn replaces(&self) -> Option<&Path> {
        fs::symlink_metadata(&self.target).is_ok().then_some(self.target.as_path())
    }

    /// Where it will lie.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The version of the package, if it says one.
    pub fn version(&self) -> Option<String> {
        node::version_in(&self.content)
    }

    /// Whether the very same lies there already, but for what a package manager
    /// has added.
    pub fn is_there(&self) -> Result<bool> {
        if !self.target.is_dir() {
            return Ok(false);
        }
        let (new, old) = (folder::list(&self.content)?, folder::list(&self.target)?);
        let is_old = |path: &Path, item: &Item| old.listed(path, item).is_some();
        let is_known = |path: &Path| node::is_added(path) || new.holds(path);
        if !new.items().all(|(path, item)| is_old(path, item))
            || !old.items().all(|(path, _)| is_known(path))
        {
            return Ok(false);
        }
        let files = new.items().filter(|(_, item)| matches!(item, Item::File { .. }));
        for (path, _) in files {
            if !folder::is_same(&self.content.join(path), &self.target.join(path))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts all of it in its place, in one step.
    pub fn place(self) -> Result<Placed> {
        let what = || format!("put {} in its place", self.target.display());
        if let Some(shelf) = self.target.parent() {
            create_private(shelf)?;
        }
        let replaced = self.replaces().is_some();
        swap(&self.content, &self.target, &self.folder.0).during(Kind::Internal, what())?;
        Ok(Placed { staged: self, replaced, kept: false })
    }
}

impl Placed {
    /// Lets it stay; what was there before goes.
    pub fn keep(mut self) {
        self.kept = true;
    }

    /// What is in it.
    pub fn staged(&self) -> &Staged {
        &self.staged
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let Staged { content, target, folder, .. } = &self.staged;
        let undone = match self.replaced {
            true => swap(content, target, &folder.0),
            false => fs::rename(target, content),
        };
        if let Err(error) = undone {
            log::warn!("take {} back: {error}", target.display());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.0) {
            // It became what was installed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => log::warn!("remove {}: {error}", self.0.display()),
            Ok(()) => {}
        }
        tidy(&self.1);
    }
}

/// Shelves that hold nothing go.
fn tidy(home: &Home) {
    let _ = fs::remove_dir(home.plugins());
    let _ = fs::remove_dir(home.plugin_packages());
}

/// Puts `new` at `target`, and what was there at `new`. Where the file system
/// cannot exchange two names it takes two steps, by way of `aside`.
fn swap(new: &Path, target: &Path, aside: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT) => return fs::rename(new, target),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        done => return done.map_err(Into::into),
    }
    let old = aside.with_extension("old");
    fs::rename(target, &old)?;
    fs::rename(new, target).inspect_err(|_| {
        let _ = fs::rename(&old, target);
    })?;
    fs::rename(&old, new)
}

/// Unpacks an archive once it is seen that there are plugins in it: below that
/// folder of the one that holds all the rest, or anywhere.
fn unpacked(file: &Path, source: &Source, below: Option<&Path>, to: &Path) -> Result<Listing> {
    let mut archive = Archive::open(file)?;
    let listing = archive.list().map_err(|it| it.within(source.text()))?;
    match below {
        None => plugins_in(&listing, source)?,
        Some(folder) => {
            let top = listing.top().ok_or_else(|| {
                let what = format!("{}: its archive is not one folder", source.text());
                Error::new(Kind::Denied, what)
            })?;
            plugins_in(&listing.below(&top.join(folder))?, source)?
        }
    };
    archive.unpack(&listing, to)?;
    Ok(listing)
}

fn plugins_in(listing: &Listing, source: &Source) -> Result<Vec<PathBuf>> {
    let plugins = listing.plugins();
    if plugins.is_empty() {
        let what = format!(
            "{} holds no plugin.json, so it is no plugin; an MCP server needs none: name it in \
             the configuration, as plugins.NAME.command",
            source.text()
        );
        return Err(Error::new(Kind::Missing, what));
    }
    if let [below] = plugins.as_slice() {
        listing.below(below)?;
    }
    Ok(plugins)
}

fn read(staging: &Path, below: &Path) -> Result<Manifest> {
    let folder = staging.join(below);
    manifest::read(&folder).map_err(|wrong| {
        let inside = format!("{}/", staging.display());
        let wrong: Vec<String> = wrong.iter().map(|it| it.replace(&inside, "")).collect();
        let place = match below.as_os_str().is_empty() {
            true => String::new(),
            false => format!("{}: ", below.display()),
        };
        Error::new(Kind::Denied, format!("{place}{}", wrong.join(&format!("\n{place}"))))
    })
}

fn refuse_doubles(manifests: &[Manifest]) -> Result<()> {
    let mut names: Vec<&str> = manifests.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|it| it[0] == it[1]) {
        Some(it) => Err(Error::new(Kind::Denied, format!("it holds two plugins `{}`", it[0]))),
        None => Ok(()),
    }
}

fn package_name(source: &Source) -> Result<String> {
    source::fitted(&source.stem()).ok_or_else(|| {
        let what = format!("{} needs a name with letters in it", source.text());
        Error::new(Kind::Usage, what)
    })
}

/// The names of the tools that an entry of `agents` asks for and that are of
/// that plugin.
pub fn tools_of<'a>(agent: &'a Value, plugin: &str) -> Vec<&'a str> {
    let tools = agent["tools"].as_array().into_iter().flatten().filter_map(Value::as_str);
    tools.filter(|it| it.split('.').next() == Some(plugin)).collect()
}

#[cfg(test)]
mod tests;
