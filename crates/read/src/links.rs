//! Where symbolic links lead, by what the index has: component by component, as the kernel goes,
//! `..` from where a link has led.
//!
//! Nobody learns of anything that is not in the shards that they can read: what lies in a directory
//! that they cannot list, or outside of all sources, is unknown.

use crate::contents::Contents;
use crate::error::Result;
use crate::inode::Inode;
use crate::locate::{look_up, may_search, source_of};
use canopy_index::Index;
use canopy_model::{FileType, base_name, is_below, join_absolute};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Links that the kernel follows for one path.
pub(crate) const LINKS_MAX: u32 = 40;

/// What a link leads to.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// This.
    Entry(Box<ResolvedEntry>),
    /// Nothing.
    Missing,
    /// Something in what is no directory.
    NotDirectory,
    /// Itself, or too many links.
    Loop,
    /// The index does not know.
    Unknown,
}

/// An entry that a link leads to.
#[derive(Clone, Debug)]
pub struct ResolvedEntry {
    /// Its absolute path, escaped.
    pub absolute: String,
    /// Its path in its source.
    pub path: String,
    /// What it is.
    pub inode: Inode,
    /// How many links were followed, those before this one included.
    pub links: u32,
}

/// What a name in a directory is.
#[derive(Clone, Debug)]
pub enum NameKind {
    /// A directory.
    Directory,
    /// A symbolic link with this target.
    Link(String),
    /// Something else.
    Other,
    /// Nothing.
    Missing,
    /// Nobody can tell.
    Unseen,
}

impl NameKind {
    /// Returns what a name is whose directory is in a source, by what was found there. `listed`
    /// tells whether the caller sees all of the directory.
    pub(crate) fn of(
        found: Option<Inode>,
        listed: impl FnOnce() -> Result<bool>,
    ) -> Result<NameKind> {
        Ok(match found {
            Some(inode) => match inode.attributes.file_type() {
                FileType::Directory => NameKind::Directory,
                FileType::Symlink => NameKind::Link(inode.target),
                _ => NameKind::Other,
            },
            None if listed()? => NameKind::Missing,
            None => NameKind::Unseen,
        })
    }
}

/// Where following a link ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrailEnd {
    /// At the entry with this absolute path.
    At(String),
    /// At nothing.
    Missing,
    /// At something in what is no directory.
    NotDirectory,
    /// At itself, or after too many links.
    Loop,
    /// Where the index does not know.
    Unknown,
}

/// Where following a path or a link has come to.
pub struct Trail {
    /// Absolute path of a real directory.
    directory: String,
    /// Whether it is known that it may be searched: something was looked up in it or below.
    searched: bool,
    /// What is to be followed from there, the next last; an empty name asks for a directory.
    rest: Vec<String>,
    /// How many links were followed.
    links: u32,
}

impl Trail {
    /// Begins at a link in a directory with this absolute path; all escaped.
    pub fn new(directory: &str, target: &str) -> Self {
        let searched = !target.starts_with('/');
        Trail { links: 1, searched, ..Trail::of_path(directory, target) }
    }

    /// Begins at a path, absolute or relative to a directory with this absolute path; all escaped.
    pub fn of_path(directory: &str, path: &str) -> Self {
        let (directory, searched) = (directory.to_owned(), false);
        let mut trail = Trail { directory, searched, rest: Vec::new(), links: 0 };
        trail.lead(path);
        trail
    }

    /// Makes a path what is to be followed next.
    fn lead(&mut self, path: &str) {
        if path.starts_with('/') {
            self.directory = "/".to_owned();
            self.searched = false;
        }
        if path.ends_with('/') {
            self.rest.push(String::new());
        }
        self.rest.extend(path.split('/').rev().filter(|name| !name.is_empty()).map(str::to_owned));
    }

    /// Follows as far as `known` can tell what names in directories are; `None` if it cannot yet.
    /// The name `.` asks whether a directory may be searched, which `.` and `..` in it need.
    pub fn go(
        &mut self,
        index: &Index,
        mut known: impl FnMut(&str, &str) -> Result<Option<NameKind>>,
    ) -> Result<Option<TrailEnd>> {
        while let Some(name) = self.rest.pop() {
            let (path, asked, sure) = match name.as_str() {
                "" => continue,
                "." | ".." => {
                    let sure = self.searched || is_above_source(index, &self.directory);
                    let above =
                        if name == "." { &self.directory } else { parent_of(&self.directory) };
                    (above.to_owned(), ".", sure)
                }
                name => {
                    let path = join_absolute(&self.directory, name);
                    let sure = leads_to_source(index, &path);
                    (path, name, sure)
                }
            };
            let what = match sure {
                true => NameKind::Directory,
                false => match known(&self.directory, asked)? {
                    Some(what) => what,
                    None => {
                        self.rest.push(name);
                        return Ok(None);
                    }
                },
            };
            // Above a directory that may be searched, all may be.
            self.searched = asked == "." || matches!(what, NameKind::Link(_));
            match what {
                NameKind::Directory => self.directory = path,
                NameKind::Other if self.rest.is_empty() => return Ok(Some(TrailEnd::At(path))),
                NameKind::Other => return Ok(Some(TrailEnd::NotDirectory)),
                NameKind::Missing => return Ok(Some(TrailEnd::Missing)),
                NameKind::Unseen => return Ok(Some(TrailEnd::Unknown)),
                NameKind::Link(_) if self.links >= LINKS_MAX => return Ok(Some(TrailEnd::Loop)),
                // A target that could not be read.
                NameKind::Link(target) if target.is_empty() => return Ok(Some(TrailEnd::Unknown)),
                NameKind::Link(target) => {
                    self.links += 1;
                    self.lead(&target);
                }
            }
        }
        Ok(Some(TrailEnd::At(self.directory.clone())))
    }

    /// Calls `ask` with the next name and its directory, and with those that come after it, up to
    /// a `..`, if all are directories. Returns the path of the last one.
    pub fn ahead(&self, mut ask: impl FnMut(&str, &str)) -> String {
        let mut directory = self.directory.clone();
        let mut searched = self.searched;
        for name in self.rest.iter().rev().filter(|name| !name.is_empty()) {
            if name == "." || name == ".." {
                if !searched {
                    ask(&directory, ".");
                }
                searched = true;
                if name == ".." {
                    break;
                }
                continue;
            }
            ask(&directory, name);
            directory = join_absolute(&directory, name);
            searched = false;
        }
        directory
    }

    /// Returns how many links were followed.
    pub fn links(&self) -> u32 {
        self.links
    }

    /// Returns the directory that was reached.
    pub fn directory(&self) -> &str {
        &self.directory
    }
}

/// Entries of a directory above which names in it are looked up one by one.
const DIRECTORY_MAX: usize = 10_000;

/// Entries that are remembered of all directories; then it begins anew.
const KNOWN_MAX: usize = 200_000;

/// Follows links, remembering the directories on their way.
pub struct Links {
    index: Arc<Index>,
    known: Mutex<Directories>,
}

/// Directories that were read, by absolute path.
#[derive(Default)]
struct Directories {
    by_path: FxHashMap<String, Arc<Directory>>,
    entries: usize,
}

enum Directory {
    Listed(FxHashMap<String, Inode>),
    /// Too large to be remembered.
    Large,
    /// Not for the caller to list: of this one, single names that were looked up.
    Unlisted(Mutex<FxHashMap<String, Option<Inode>>>),
}

impl Links {
    /// For links of an index.
    pub fn new(index: Arc<Index>) -> Self {
        Links { index, known: Mutex::default() }
    }

    /// Where the link at an absolute path leads; both escaped. A file that cannot be read counts as
    /// unknown.
    pub fn follow(&self, absolute: &str, target: &str) -> Resolved {
        self.follow_after(0, absolute, target)
    }

    /// Where the link leads if so many others were followed on the way to it.
    pub fn follow_after(&self, before: u32, absolute: &str, target: &str) -> Resolved {
        match target {
            "" => Resolved::Unknown,
            _ if before >= LINKS_MAX => Resolved::Loop,
            target => self.go(before, parent_of(absolute), target).unwrap_or(Resolved::Unknown),
        }
    }

    fn go(&self, before: u32, directory: &str, target: &str) -> Result<Resolved> {
        let known = |directory: &str, name: &str| {
            let listed = || self.lists(directory);
            Ok(Some(match name {
                "." if listed()? || self.may_search(directory)? => NameKind::Directory,
                "." => NameKind::Unseen,
                name => NameKind::of(self.inode(&join_absolute(directory, name))?, listed)?,
            }))
        };
        let mut trail = Trail::new(directory, target);
        trail.links += before;
        Ok(match trail.go(&self.index, known)? {
            Some(TrailEnd::At(absolute)) => {
                match (self.inode(&absolute)?, source_of(&self.index, &absolute)) {
                    (Some(inode), Some((_, path))) => {
                        let links = trail.links;
                        Resolved::Entry(Box::new(ResolvedEntry { absolute, path, inode, links }))
                    }
                    _ => Resolved::Unknown,
                }
            }
            Some(TrailEnd::Missing) => Resolved::Missing,
            Some(TrailEnd::NotDirectory) => Resolved::NotDirectory,
            Some(TrailEnd::Loop) => Resolved::Loop,
            Some(TrailEnd::Unknown) | None => Resolved::Unknown,
        })
    }

    fn inode(&self, absolute: &str) -> Result<Option<Inode>> {
        let Some((source, path)) = source_of(&self.index, absolute) else { return Ok(None) };
        let look_up = || look_up(&self.index, source, &path);
        if path.is_empty() {
            return look_up();
        }
        match &*self.directory(parent_of(absolute))? {
            Directory::Listed(names) => Ok(names.get(base_name(&path)).cloned()),
            Directory::Large => look_up(),
            Directory::Unlisted(names) => {
                let known = || names.lock();
                if let Some(inode) = known().get(base_name(&path)) {
                    return Ok(inode.clone());
                }
                let inode = look_up()?;
                known().insert(base_name(&path).to_owned(), inode.clone());
                Ok(inode)
            }
        }
    }

    /// Returns whether the caller sees the listing of a directory, so that what is not in it does
    /// not exist.
    fn lists(&self, absolute: &str) -> Result<bool> {
        Ok(!matches!(*self.directory(absolute)?, Directory::Unlisted(_)))
    }

    fn may_search(&self, absolute: &str) -> Result<bool> {
        match (source_of(&self.index, absolute), self.inode(absolute)?) {
            (Some((source, path)), Some(inode)) => may_search(&self.index, source, &path, &inode),
            _ => Ok(false),
        }
    }

    fn directory(&self, absolute: &str) -> Result<Arc<Directory>> {
        let known = || self.known.lock();
        if let Some(directory) = known().by_path.get(absolute) {
            return Ok(directory.clone());
        }
        let contents = match source_of(&self.index, absolute) {
            Some((source, path)) => Contents::of(&self.index, source, &path, DIRECTORY_MAX)?,
            None => Contents::Unlisted,
        };
        let (entries, directory) = match contents {
            Contents::Listed(all) => (all.len(), Directory::Listed(all.into_iter().collect())),
            Contents::TooMany => (0, Directory::Large),
            Contents::Unlisted => (0, Directory::Unlisted(Mutex::default())),
        };
        let directory = Arc::new(directory);
        let mut known = known();
        if known.entries + entries > KNOWN_MAX {
            *known = Directories::default();
        }
        known.entries += entries;
        known.by_path.insert(absolute.to_owned(), directory.clone());
        Ok(directory)
    }
}

/// The directory of an absolute path.
pub fn parent_of(absolute: &str) -> &str {
    match absolute.rfind('/') {
        None | Some(0) => "/",
        Some(end) => &absolute[..end],
    }
}

/// Returns whether a path is that of a source or of a directory above one: those are real
/// directories.
fn leads_to_source(index: &Index, path: &str) -> bool {
    index.sources().iter().any(|source| source.root == path) || is_above_source(index, path)
}

/// Returns whether a path is that of a directory above a source, which whoever may know of the
/// source may search.
pub(crate) fn is_above_source(index: &Index, path: &str) -> bool {
    index.sources().iter().any(|source| source.root != path && is_at_or_below(&source.root, path))
}

/// Returns whether an absolute path is that of a directory or lies below it.
pub(crate) fn is_at_or_below(path: &str, directory: &str) -> bool {
    is_below(path.trim_start_matches('/'), directory.trim_start_matches('/'))
}
