//! Directories of a source that a walk lists, if most of the source is known and stays.
//!
//! A scan of a part begins at the root of the source, and passes the directories on the way. So one
//! code computes classes, approaches and changes for whole and partial scans. A directory on the
//! way whose permissions differ from those in the index is listed with all below it.

use canopy_model::{Access, Attributes, Device, Listing, SourcePath, escape, unescape};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

/// Levels of a selection: of what is deeper, the last of them is listed with all below it.
const LEVELS_MAX: usize = 4096;

/// Directories to be listed again, as a tree of names from the root of a source.
#[derive(Debug, Default)]
pub struct Selection {
    /// Whether all below is listed, too.
    whole: bool,
    /// Whether the directory itself is listed; becomes so where a directory in it is gone.
    listed: AtomicBool,
    /// Whether its children were taken on without listing it.
    passed: AtomicBool,
    children: BTreeMap<Vec<u8>, Selection>,
}

/// Earlier knowledge of a source. Names are escaped.
pub trait Known: Sync {
    /// Returns the directories in a directory, by name, as they were when it was listed.
    fn subdirectories(&self, path: SourcePath<'_>) -> HashMap<String, Attributes>;

    /// Returns whether the listing of a directory is known: of the same inode, and for those who
    /// may see it now.
    fn has(&self, path: SourcePath<'_>, dev: Device, ino: u64, access: &Access) -> bool;

    /// Takes note that a directory is not as it was known, so that all below it is listed.
    fn replaces(&self, path: SourcePath<'_>);

    /// Returns whether a directory need not be read, since its own attributes, given as a listing
    /// without rows, show that its listing is as it was known. `look` looks at the directories that
    /// were known in it; `None` if that cannot be done.
    fn has_unread(
        &self,
        listing: &Listing<'_>,
        look: &mut dyn FnMut(&str) -> Option<Attributes>,
    ) -> bool;

    /// Takes note that the listing of a directory that was not read stays; returns how many entries
    /// it has.
    fn keeps(&self, listing: &Listing<'_>) -> u64;
}

impl Selection {
    /// Adds a directory; with `whole`, also all below it.
    pub fn add(&mut self, path: SourcePath<'_>, mut whole: bool) {
        let mut at = self;
        for (level, name) in path.as_str().split('/').filter(|name| !name.is_empty()).enumerate() {
            if level == LEVELS_MAX {
                whole = true;
                break;
            }
            at = at.children.entry(unescape(name).into_owned()).or_default();
        }
        at.whole |= whole;
        *at.listed.get_mut() = true;
    }

    /// Calls `each` with every directory that was added, its path and whether all below it was
    /// asked for, too.
    pub fn each(&self, each: &mut dyn FnMut(SourcePath<'_>, bool)) {
        self.each_below(SourcePath::ROOT, each);
    }

    pub(crate) fn each_below(
        &self,
        path: SourcePath<'_>,
        each: &mut dyn FnMut(SourcePath<'_>, bool),
    ) {
        if self.is_listed() {
            each(path, self.whole);
        }
        if !self.whole {
            for (name, child) in &self.children {
                child.each_below(path.child(&escape(name)).as_path(), each);
            }
        }
    }

    /// Returns whether all below the directory is listed.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns whether the directory itself is.
    pub fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// Has the directory listed; returns whether it was not going to be.
    pub(crate) fn list_too(&self) -> bool {
        !self.listed.swap(true, Ordering::AcqRel)
    }

    /// Returns the children, none if they were taken on before.
    pub(crate) fn take_on(&self) -> impl Iterator<Item = (&Vec<u8>, &Selection)> {
        let first = !self.passed.swap(true, Ordering::AcqRel);
        self.children.iter().filter(move |_| first)
    }

    /// Returns what is selected of children, by their names.
    pub fn children(&self) -> impl Iterator<Item = (&[u8], &Selection)> {
        self.children.iter().map(|(name, child)| (name.as_slice(), child))
    }

    /// Returns what is selected of a child, by its name.
    pub fn child(&self, name: &[u8]) -> Option<&Selection> {
        self.children.get(name)
    }

    /// Returns whether the children were taken on without listing the directory.
    pub(crate) fn is_passed(&self) -> bool {
        self.passed.load(Ordering::Acquire)
    }
}

/// Part of a directory, and of its subtree, to be listed.
#[derive(Clone, Copy)]
pub(crate) enum Selected<'s> {
    /// All of it.
    Whole,
    /// The selected part.
    Part(&'s Selection),
    /// All of it, unless it is as it was known.
    IfChanged,
    /// The directory itself, and nothing below.
    Alone,
}

impl Selected<'_> {
    /// Returns whether all of it is to be listed.
    pub(crate) fn is_whole(self) -> bool {
        match self {
            Selected::Whole => true,
            Selected::Part(selection) => selection.whole,
            Selected::IfChanged | Selected::Alone => false,
        }
    }
}
