//! Listings from entries: hands the contents of one directory after the other over to a sink.

use crate::error::{Error, RunError};
use crate::tree::{Tree, with_permissions};
use canopy_model::{
    Acl, Attributes, ClassTable, Device, Listing, Rows, Sink, SourcePath, Xattr, escape,
};
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries after which the listing of a directory is handed over and goes on as another part.
const PART_ROWS: usize = 64 * 1024;

/// Bytes of names, targets and extended attributes after which it is handed over.
const PART_BYTES: usize = 64 << 20;

/// Counts of what an import has read so far. Other threads can read them while it runs.
#[derive(Debug, Default)]
pub struct Counts {
    /// Entries, directories among them, without the root.
    pub entries: AtomicU64,
    /// Directories.
    pub directories: AtomicU64,
}

/// An entry that is not a directory.
pub(crate) struct NewEntry<'a, X> {
    pub name: &'a [u8],
    pub attributes: Attributes,
    pub target: &'a [u8],
    /// Names and values of extended attributes.
    pub xattrs: X,
}

/// Collects the entries of a directory.
pub(crate) struct Emitter<'a, S> {
    pub tree: &'a Tree,
    pub sink: S,
    classes: &'a ClassTable,
    counts: &'a Counts,
    /// Device of the source.
    dev: Device,
    dir: u32,
    part: u32,
    rows: Rows,
    /// Hashes of the names of the directory. Users choose names: the hash is one that they cannot
    /// make collide.
    seen: HashSet<u64, BuildHasherDefault<Identity>>,
    hash: RandomState,
}

impl<'a, S: Sink<Error: std::error::Error>> Emitter<'a, S> {
    pub(crate) fn new(
        tree: &'a Tree,
        classes: &'a ClassTable,
        counts: &'a Counts,
        dev: Device,
        sink: S,
    ) -> Self {
        let (rows, seen, hash) = (Rows::default(), HashSet::default(), RandomState::new());
        Emitter { tree, sink, classes, counts, dev, dir: 0, part: 0, rows, seen, hash }
    }

    /// Begins the listing of a directory; its subdirectories are known from the tree.
    pub(crate) fn begin(&mut self, dir: u32) -> Result<(), RunError<S::Error>> {
        (self.dir, self.part) = (dir, 0);
        self.rows.clear();
        if self.seen.capacity() > 4 * PART_ROWS {
            self.seen = HashSet::default();
        }
        self.seen.clear();
        let tree = self.tree;
        let listing = tree.access(dir).listing;
        for &child in tree.children(dir) {
            self.make_room()?;
            self.seen.insert(self.hash.hash_one(tree.name(child).as_bytes()));
            self.rows.push(tree.name(child), tree.dirs[child as usize].attributes, "");
            for (key, value, audience) in tree.xattr_audiences(child, listing, self.classes) {
                self.rows.push_xattr(Xattr { key, value: Some((value, audience)) });
            }
        }
        Ok(())
    }

    /// Adds an entry, which is not a directory. Returns false, and adds nothing, if the directory
    /// has one of this name.
    pub(crate) fn push<'b, X>(&mut self, entry: NewEntry<'_, X>) -> Result<bool, RunError<S::Error>>
    where
        X: Iterator<Item = (&'b [u8], &'b [u8])> + Clone,
    {
        let name = escape(entry.name);
        if !self.seen.insert(self.hash.hash_one(name.as_bytes())) {
            return Ok(false);
        }
        self.make_room()?;
        self.rows.push(&name, entry.attributes, &escape(entry.target));
        if entry.xattrs.clone().next().is_some() {
            let acl = entry.xattrs.clone().find(|(key, _)| *key == Acl::XATTR_NAME.as_bytes());
            let acl = acl.map(|(_, value)| Acl::decode(value));
            let (rows, classes) = (&mut self.rows, self.classes);
            let listing = self.tree.access(self.dir).listing;
            with_permissions(&entry.attributes, acl, false, |permissions| {
                for (key, value) in entry.xattrs {
                    let key = escape(key);
                    let audience = classes.value_audience(listing, &key, permissions);
                    rows.push_xattr(Xattr { key: &key, value: Some((value, audience)) });
                }
            });
        }
        Ok(true)
    }

    /// Ends the listing.
    pub(crate) fn finish(&mut self) -> Result<(), RunError<S::Error>> {
        if self.part == 0 || !self.rows.is_empty() {
            self.hand_over()?;
        }
        self.counts.directories.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Hands over the listings of directories that the input does not have.
    pub(crate) fn made_up(&mut self) -> Result<(), RunError<S::Error>> {
        for dir in self.tree.first_made_up..self.tree.dirs.len() as u32 {
            self.begin(dir)?;
            self.finish()?;
        }
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), RunError<S::Error>> {
        if self.rows.len() >= PART_ROWS || self.rows.bytes() >= PART_BYTES {
            self.hand_over()?;
            self.rows.clear();
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), RunError<S::Error>> {
        self.counts.entries.fetch_add(self.rows.len() as u64, Ordering::Relaxed);
        let dir = &self.tree.dirs[self.dir as usize];
        let listing = Listing {
            path: SourcePath::escaped(self.tree.path(self.dir)),
            depth: dir.depth,
            part: self.part,
            dev: self.dev,
            directory: &dir.attributes,
            access: self.tree.access(self.dir),
            rows: &self.rows,
        };
        self.part =
            self.part.checked_add(1).ok_or_else(|| Error::Input("too many parts".to_owned()))?;
        self.sink.listing(&listing).map_err(RunError::Sink)
    }
}

/// Passes on numbers that are hashes already.
#[derive(Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
