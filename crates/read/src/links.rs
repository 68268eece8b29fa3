//! Where symbolic links lead, by what the index has: component by component, as the kernel goes,
//! `..` from where a link has led.
//!
//! Nobody learns of anything that is not in the shards that they can read, or sealed for those who
//! know its path, as whoever reads a link does: all else, and what lies outside of all sources, is
//! unknown.
//!
//! Directories of up to 10,000 entries are read as a whole and remembered: one look-up decodes a
//! page of names anyway.

use crate::contents::Contents;
use crate::error::Result;
use crate::inode::Inode;
use crate::locate::{is_closed, lists, look_up, may_search, source_of};
use canopy_index::{Index, SourceRecord};
use canopy_model::{
    AbsolutePath, FileType, SourcePath, SourcePathBuf, is_below, join_absolute, unescape,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Links that the kernel follows for one path.
pub(crate) const LINKS_MAX: u32 = 40;

/// The end of a symbolic link.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// This.
    Entry(Box<ResolvedEntry>),
    /// Nothing.
    Missing,
    /// Something in what is not a directory.
    NotDirectory,
    /// Itself, or too many links.
    Loop,
    /// A name of more bytes than the kernel takes.
    LongName,
    /// Something in a directory that the caller may not search.
    Denied,
    /// The index does not know.
    Unknown,
}

/// An entry that a link leads to.
#[derive(Clone, Debug)]
pub struct ResolvedEntry {
    /// Its absolute path, escaped.
    pub absolute: String,
    /// Its path in its source.
    pub path: SourcePathBuf,
    /// Its attributes.
    pub inode: Inode,
    /// How many links were followed, those before this one included.
    pub links: u32,
    /// Whether it was found behind gates, so that it has to be looked at from there.
    pub by_name: bool,
}

/// The kind of entry that a name in a directory stands for.
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
    /// Not for the caller to know: the directory may not be searched.
    Closed,
    /// Unknown.
    Unseen,
}

impl NameKind {
    /// Returns the kind of a name whose directory is in a source, by the entry that was found
    /// there. `listed` states whether the caller sees all of the directory.
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

    /// Replaces an absent name by `Closed` if its directory is closed to the caller. In a user's own
    /// index, the listing of a closed directory is empty.
    fn unless_closed(self, is_closed: impl FnOnce() -> Result<bool>) -> Result<NameKind> {
        let is_absent = matches!(self, NameKind::Unseen | NameKind::Missing);
        Ok(if is_absent && is_closed()? { NameKind::Closed } else { self })
    }
}

/// Where following a link ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrailEnd {
    /// At the entry with this absolute path.
    At(String),
    /// At nothing.
    Missing,
    /// At something in what is not a directory.
    NotDirectory,
    /// At itself, or after too many links.
    Loop,
    /// At a name of more bytes than the kernel takes.
    LongName,
    /// At a directory that the caller may not search.
    Denied,
    /// Where the index does not know.
    Unknown,
}

/// Where following a path or a link has come to.
#[derive(Clone)]
pub struct Trail {
    /// Absolute path of a real directory.
    directory: String,
    /// Whether it is known that it may be searched: something was looked up in it or below.
    searched: bool,
    /// The names to follow from there, the next last; an empty name asks for a directory.
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

    /// Follows as far as `known` knows the names in directories; `None` if it does not know yet.
    /// The name `.` asks whether a directory may be searched, which `.` and `..` in it need.
    ///
    /// # Errors
    ///
    /// Fails with the first error of `known`, and with `Index` if the index cannot be read.
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
                NameKind::Missing if is_too_long(asked) => return Ok(Some(TrailEnd::LongName)),
                NameKind::Missing => return Ok(Some(TrailEnd::Missing)),
                NameKind::Closed => return Ok(Some(TrailEnd::Denied)),
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

    /// Follows by the names on the way, as users do who know it: nobody else sees entries behind
    /// gates. `view` returns the index as it is seen from a path; `outside` returns the entry at a
    /// path that is in no source.
    pub(crate) fn go_by_name(
        &mut self,
        mut view: impl FnMut(&str) -> Result<Arc<Index>>,
        outside: impl Fn(&str) -> NameKind,
    ) -> Result<TrailEnd> {
        loop {
            let ahead = self.ahead(|_, _| ());
            let view = view(&ahead)?;
            let known = |directory: &str, name: &str| {
                let path = if name == "." { directory } else { &join_absolute(directory, name) };
                match is_at_or_below(&ahead, path) {
                    true => kind_of(&view, directory, name, &outside).map(Some),
                    false => Ok(None),
                }
            };
            if let Some(end) = self.go(&view, known)? {
                return Ok(end);
            }
        }
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

/// Returns whether the kernel takes a name, escaped, for too long.
pub(crate) fn is_too_long(name: &str) -> bool {
    const NAME_MAX: usize = 255;
    name.len() > NAME_MAX && unescape(name).len() > NAME_MAX
}

/// Returns what a name in a directory with an absolute path is.
pub(crate) fn kind_of(
    view: &Index,
    directory: &str,
    name: &str,
    outside: impl Fn(&str) -> NameKind,
) -> Result<NameKind> {
    let Some((source, path)) = source_of(view, AbsolutePath::new(directory)) else {
        return Ok(outside(&join_absolute(directory, name)));
    };
    let kind = match name {
        "." => match look_up(view, source, path)? {
            Some(inode) if may_search(view, source, path, &inode)? => NameKind::Directory,
            _ => NameKind::Unseen,
        },
        name => {
            let absolute = join_absolute(directory, name);
            let below = source_of(view, AbsolutePath::new(&absolute));
            let found = below.map(|(source, path)| look_up(view, source, path)).transpose()?;
            NameKind::of(found.flatten(), || lists(view, source, path))?
        }
    };
    kind.unless_closed(|| match look_up(view, source, path)? {
        Some(inode) => is_closed(view, source, path, &inode),
        None => Ok(false),
    })
}

/// Entries of a directory above which names in it are looked up one by one.
const DIRECTORY_MAX: usize = 10_000;

/// Views that are remembered.
const VIEWS_MAX: usize = 16;

/// Entries that are remembered of all directories; then it begins anew.
const KNOWN_MAX: usize = 200_000;

/// Follows links, remembering the directories on their way.
pub struct Links {
    index: Arc<Index>,
    known: Mutex<Directories>,
    /// The index as it is seen from paths behind gates, each with the directory of its path; those
    /// that served last come first.
    views: Mutex<Vec<(String, Arc<Index>)>>,
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
        Links { index, known: Mutex::default(), views: Mutex::default() }
    }

    /// Returns what follows links of an index: the last one, if that is of the same.
    pub fn of<'l>(last: &'l mut Option<Links>, index: &Arc<Index>) -> &'l Links {
        if last.as_ref().is_some_and(|links| !Arc::ptr_eq(&links.index, index)) {
            *last = None;
        }
        last.get_or_insert_with(|| Links::new(index.clone()))
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
            target => {
                let mut trail = Trail::new(parent_of(absolute), target);
                trail.links += before;
                let resolved = self.go(trail.clone()).unwrap_or(Resolved::Unknown);
                match resolved {
                    Resolved::Unknown => self.go_by_name(trail).unwrap_or(Resolved::Unknown),
                    known => known,
                }
            }
        }
    }

    /// Follows through directories that the caller may list.
    fn go(&self, mut trail: Trail) -> Result<Resolved> {
        let known = |directory: &str, name: &str| {
            let listed = || self.lists(directory);
            let kind = match name {
                "." if self.may_search(directory)? => NameKind::Directory,
                "." => NameKind::Unseen,
                name => NameKind::of(self.inode(&join_absolute(directory, name))?, listed)?,
            };
            kind.unless_closed(|| self.is_closed(directory)).map(Some)
        };
        let Some(end) = trail.go(&self.index, known)? else { return Ok(Resolved::Unknown) };
        resolved(&self.index, end, &trail, |absolute, _, _| self.inode(absolute))
    }

    /// Follows through directories that the caller may search but not list, too.
    fn go_by_name(&self, mut trail: Trail) -> Result<Resolved> {
        let end = trail.go_by_name(|ahead| self.view(ahead), |_| NameKind::Unseen)?;
        let TrailEnd::At(absolute) = &end else {
            return resolved(&self.index, end, &trail, |_, _, _| Ok(None));
        };
        let view = self.view(absolute)?;
        let mut found =
            resolved(&view, end, &trail, |_, source, path| look_up(&view, source, path));
        if let Ok(Resolved::Entry(entry)) = &mut found {
            entry.by_name = true;
        }
        found
    }

    /// Returns the index as it is seen from a path, or from another one that shows as much: from
    /// where the directory of the path is listed, or from another name in it that is of a source.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn view(&self, absolute: &str) -> Result<Arc<Index>> {
        let directory = parent_of(absolute);
        let known = self.views.lock().clone();
        for (at, (of, view)) in known.iter().enumerate() {
            let is_listed = || match source_of(view, AbsolutePath::new(directory)) {
                Some((source, path)) => lists(view, source, path),
                None => Ok(false),
            };
            if of == directory && source_of(view, AbsolutePath::new(absolute)).is_some()
                || is_listed()?
            {
                if at > 0 {
                    let mut views = self.views.lock();
                    views.retain(|(_, other)| !Arc::ptr_eq(other, view));
                    views.insert(0, known[at].clone());
                }
                return Ok(view.clone());
            }
        }
        let view = Arc::new(self.index.seen_from(AbsolutePath::new(absolute))?);
        let mut views = self.views.lock();
        views.insert(0, (directory.to_owned(), view.clone()));
        views.truncate(VIEWS_MAX);
        Ok(view)
    }

    fn inode(&self, absolute: &str) -> Result<Option<Inode>> {
        let Some((source, path)) = source_of(&self.index, AbsolutePath::new(absolute)) else {
            return Ok(None);
        };
        let look_up = || look_up(&self.index, source, path);
        if path.is_root() {
            return look_up();
        }
        match &*self.directory(parent_of(absolute))? {
            Directory::Listed(names) => Ok(names.get(path.base_name()).cloned()),
            Directory::Large => look_up(),
            Directory::Unlisted(names) => {
                let known = || names.lock();
                if let Some(inode) = known().get(path.base_name()) {
                    return Ok(inode.clone());
                }
                let inode = look_up()?;
                known().insert(path.base_name().to_owned(), inode.clone());
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
        match (source_of(&self.index, AbsolutePath::new(absolute)), self.inode(absolute)?) {
            (Some((source, path)), Some(inode)) => may_search(&self.index, source, path, &inode),
            _ => Ok(false),
        }
    }

    fn is_closed(&self, absolute: &str) -> Result<bool> {
        match (source_of(&self.index, AbsolutePath::new(absolute)), self.inode(absolute)?) {
            (Some((source, path)), Some(inode)) => is_closed(&self.index, source, path, &inode),
            _ => Ok(false),
        }
    }

    fn directory(&self, absolute: &str) -> Result<Arc<Directory>> {
        let known = || self.known.lock();
        if let Some(directory) = known().by_path.get(absolute) {
            return Ok(directory.clone());
        }
        let contents = match source_of(&self.index, AbsolutePath::new(absolute)) {
            Some((source, path)) => Contents::of(&self.index, source, path, DIRECTORY_MAX)?,
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

/// Returns what a link leads to that ends there; `inode` looks an entry of a source up.
fn resolved(
    view: &Index,
    end: TrailEnd,
    trail: &Trail,
    inode: impl FnOnce(&str, &SourceRecord, SourcePath<'_>) -> Result<Option<Inode>>,
) -> Result<Resolved> {
    let absolute = match end {
        TrailEnd::At(absolute) => absolute,
        TrailEnd::Missing => return Ok(Resolved::Missing),
        TrailEnd::NotDirectory => return Ok(Resolved::NotDirectory),
        TrailEnd::Loop => return Ok(Resolved::Loop),
        TrailEnd::LongName => return Ok(Resolved::LongName),
        TrailEnd::Denied => return Ok(Resolved::Denied),
        TrailEnd::Unknown => return Ok(Resolved::Unknown),
    };
    let Some((source, path)) = source_of(view, AbsolutePath::new(&absolute)) else {
        return Ok(Resolved::Unknown);
    };
    Ok(match inode(&absolute, source, path)? {
        Some(inode) => {
            let (path, links) = (path.to_buf(), trail.links);
            let entry = ResolvedEntry { absolute, path, inode, links, by_name: false };
            Resolved::Entry(Box::new(entry))
        }
        None => Resolved::Unknown,
    })
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
