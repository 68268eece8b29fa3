//! Contents of directories, as a user sees them.

use crate::protocol::{Entry, Failure};
use crate::view::{Result, is_under};
use canopy_index::{Index, SourceRecord};
use canopy_model::{SourcePath, unescape};
use canopy_read::Inode;
use canopy_read::contents::Contents;
use nix::errno::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// Directories with more entries cannot be listed.
const ENTRIES_MAX: usize = 4_000_000;

/// Most entries of directories in memory.
const KEPT_ENTRIES_MAX: usize = 500_000;

/// Most directories in memory.
const KEPT_MAX: usize = 10_000;

/// The kind of a directory, and the permissions of one above all sources.
const DIRECTORY: u32 = 0o040_000;
const ABOVE: u32 = DIRECTORY | 0o555;

/// A name and its entry.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) name: Box<[u8]>,
    pub(crate) entry: Entry,
    /// Names of its extended attributes, as `canopy_model` joins them.
    pub(crate) xattrs: Box<str>,
}

impl Item {
    /// `name` is escaped.
    pub(crate) fn new(name: &str, inode: Inode) -> Self {
        let a = &inode.attributes;
        let entry = Entry {
            dev: inode.dev,
            ino: a.ino,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            size: a.size_bytes.try_into().unwrap_or(0),
            blksize: a.blksize_bytes,
            blocks: a.blocks.try_into().unwrap_or(0),
            atime_ns: a.atime_ns,
            mtime_ns: a.mtime_ns,
            ctime_ns: a.ctime_ns,
            btime_ns: a.btime_ns,
            // The low half has all of it as long as there are less than 4,096 kinds of devices.
            rdev: a.rdev as u32,
            target: unescape(&inode.target).into_owned(),
            has_xattrs: !inode.xattrs.is_empty(),
        };
        let name = unescape(name).into_owned().into_boxed_slice();
        Item { name, entry, xattrs: inode.xattrs.into_boxed_str() }
    }

    /// A directory above the root of a source, of which the index has nothing but its name.
    pub(crate) fn above_sources(name: &str, time_ns: i64) -> Self {
        let entry = Entry {
            mode: ABOVE,
            nlink: 2,
            blksize: 4096,
            atime_ns: time_ns,
            mtime_ns: time_ns,
            ctime_ns: time_ns,
            btime_ns: time_ns,
            ..Entry::default()
        };
        let name = unescape(name).into_owned().into_boxed_slice();
        Item { name, entry, xattrs: Box::default() }
    }
}

impl Entry {
    pub(crate) fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == DIRECTORY
    }
}

/// All entries of a directory, by name.
pub(crate) struct Listing {
    pub(crate) items: Vec<Item>,
}

impl Listing {
    fn new(mut items: Vec<Item>) -> Self {
        items.sort_by(|one, other| one.name.cmp(&other.name));
        Listing { items }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Item> {
        let at = self.items.binary_search_by(|item| (*item.name).cmp(name)).ok()?;
        self.items.get(at)
    }
}

/// Returns the contents of a directory above sources, at an absolute path.
pub(crate) fn above(view: &Index, absolute: &str, root: &str) -> Result<Listing> {
    let prefix = format!("{}/", absolute.trim_end_matches('/'));
    let mut items: Vec<Item> = Vec::new();
    for source in view.sources().iter().filter(|source| is_under(&source.root, absolute)) {
        let Some(rest) = source.root.strip_prefix(&prefix) else { continue };
        let (name, is_root) = match rest.split_once('/') {
            Some((name, _)) => (name, false),
            None => (rest, true),
        };
        let inode = Inode {
            attributes: source.attributes,
            target: String::new(),
            dev: source.dev,
            xattrs: source.xattrs.clone(),
        };
        let item = match is_root {
            true => Item::new(name, inode),
            false => Item::above_sources(name, view.published_ns()),
        };
        items.push(item);
    }
    if items.is_empty() && absolute != root {
        return Err(Errno::ENOENT.into());
    }
    items.sort_by(|one, other| one.name.cmp(&other.name));
    items.dedup_by(|one, other| one.name == other.name);
    Ok(Listing { items })
}

/// Reads the contents of a directory of a source; `None` if the user may not list it, or there is
/// none.
pub(crate) fn read(
    view: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
) -> Result<Option<Listing>> {
    match Contents::of(view, source, path, ENTRIES_MAX)? {
        Contents::Listed(all) => {
            let items = all.into_iter().map(|(name, inode)| Item::new(&name, inode));
            Ok(Some(Listing::new(items.collect())))
        }
        Contents::TooMany => {
            let (root, path) = (&source.root, path.as_str());
            let log = format!("{root}/{path} has more than {ENTRIES_MAX} entries");
            Err(Failure { errno: Errno::EFBIG as i32, log: Some(log) })
        }
        Contents::Unlisted => Ok(None),
    }
}

/// Contents of the directories that were looked at last, by absolute path.
#[derive(Default)]
pub(crate) struct Listings {
    by_path: HashMap<String, (Arc<Listing>, u64)>,
    entries: usize,
    clock: u64,
}

impl Listings {
    pub(crate) fn get(&mut self, path: &str) -> Option<Arc<Listing>> {
        self.clock += 1;
        let (listing, used) = self.by_path.get_mut(path)?;
        *used = self.clock;
        Some(listing.clone())
    }

    /// Keeps a listing. If there are too many entries, the half goes that was not used for longest.
    pub(crate) fn insert(&mut self, path: &str, listing: Arc<Listing>) {
        self.entries += listing.items.len();
        self.clock += 1;
        let before = self.by_path.insert(path.to_owned(), (listing, self.clock));
        self.entries -= before.map_or(0, |(before, _)| before.items.len());
        if self.entries > KEPT_ENTRIES_MAX || self.by_path.len() > KEPT_MAX {
            let mut used: Vec<u64> = self.by_path.values().map(|(_, used)| *used).collect();
            used.sort_unstable();
            // The last one stays, however large.
            let middle = used.get(used.len() / 2).copied().unwrap_or(0);
            self.by_path.retain(|_, (_, used)| *used >= middle);
            self.entries = self.by_path.values().map(|(listing, _)| listing.items.len()).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_listings_are_bounded() {
        let mut listings = Listings::default();
        let item = Item::above_sources("name", 0);
        for number in 0..3 {
            let items = vec![item.clone(); KEPT_ENTRIES_MAX / 2];
            listings.insert(&format!("/{number}"), Arc::new(Listing { items }));
        }
        assert!(listings.get("/0").is_none() && listings.get("/2").is_some());
        assert!(listings.entries <= KEPT_ENTRIES_MAX);
        for number in 0..2 * KEPT_MAX {
            listings.insert(&format!("/{number}"), Arc::new(Listing { items: Vec::new() }));
        }
        assert!(listings.by_path.len() <= KEPT_MAX);
    }
}
