//! The listings of one class, kept in memory until they become a shard.
//!
//! The memory for builders decides how large shards are. With too little, queries pay for many
//! small shards.

use crate::digest::Digests;
use canopy_model::{
    Attributes, Device, Listing, Rows, SourcePath, Xattr, XattrAccess, compare_paths, xattr_names,
};
use std::ops::Range;
use std::sync::Arc;

/// Most entries of a shard; bounds ordinals and the memory that one shard takes while it is
/// written.
pub(crate) const SHARD_ROWS_MAX: usize = 1 << 20;

/// Most bytes of paths, or of names, targets and extended attributes, of a shard; places in them
/// are kept in 32 bits.
pub(crate) const SHARD_BYTES_MAX: usize = 1 << 30;

/// Collects listings in any order.
#[derive(Clone, Default)]
pub(crate) struct Builder {
    pub(crate) heads: Vec<Head>,
    paths: String,
    /// Entries that are not directories, by listing in the order of `heads`, sorted by name within
    /// each.
    pub(crate) entries: Rows,
    /// Entries that are directories.
    pub(crate) dirs: Rows,
    /// Values of extended attributes of entries, whose listings may be of another class.
    pub(crate) values: Vec<Value>,
    /// Bytes of memory held by `values` besides their elements.
    text_bytes: usize,
}

/// The value of an extended attribute.
#[derive(Clone)]
pub(crate) struct Value {
    /// Path of the entry's directory.
    pub(crate) path: Arc<str>,
    pub(crate) name: String,
    pub(crate) key: String,
    /// Escaped.
    pub(crate) value: String,
    pub(crate) attributes: Attributes,
}

/// One listing without its entries.
#[derive(Clone)]
pub(crate) struct Head {
    path: Range<u32>,
    pub(crate) depth: u32,
    pub(crate) part: u32,
    pub(crate) dev: Device,
    pub(crate) directory: Attributes,
    pub(crate) digests: Digests,
    /// Rows of `entries`.
    pub(crate) entries: Range<u32>,
    /// Rows of `dirs`.
    pub(crate) dirs: Range<u32>,
}

impl Builder {
    /// Adds a listing; `order` is scratch space.
    pub(crate) fn push(&mut self, listing: &Listing<'_>, digests: Digests, order: &mut Vec<u32>) {
        let rows = listing.rows;
        order.clear();
        order.extend(0..rows.len() as u32);
        order.sort_unstable_by(|&a, &b| rows.name(a as usize).cmp(rows.name(b as usize)));
        let (first_entry, first_dir) = (self.entries.len() as u32, self.dirs.len() as u32);
        for &at in order.iter() {
            let row = rows.row(at as usize);
            let target = if row.attributes.mode & 0o170_000 == 0o040_000 {
                &mut self.dirs
            } else {
                &mut self.entries
            };
            target.push(row.name, *row.attributes, row.target);
            // Names for all who may see the listing; values go to the builders of their classes.
            let xattrs = rows.xattrs(at as usize);
            for Xattr { key, .. } in xattrs.filter(|xattr| XattrAccess::shows_name(xattr.key)) {
                target.push_xattr(Xattr { key, value: None });
            }
        }
        let path_start = self.paths.len() as u32;
        self.paths.push_str(listing.path.as_str());
        self.heads.push(Head {
            path: path_start..self.paths.len() as u32,
            depth: listing.depth,
            part: listing.part,
            dev: listing.dev,
            directory: *listing.directory,
            digests,
            entries: first_entry..self.entries.len() as u32,
            dirs: first_dir..self.dirs.len() as u32,
        });
    }

    /// Adds all that another builder has.
    pub(crate) fn append(&mut self, other: Builder) {
        let shift = |range: &Range<u32>, by: usize| range.start + by as u32..range.end + by as u32;
        let (paths, entries, dirs) = (self.paths.len(), self.entries.len(), self.dirs.len());
        self.heads.extend(other.heads.iter().map(|head| Head {
            path: shift(&head.path, paths),
            entries: shift(&head.entries, entries),
            dirs: shift(&head.dirs, dirs),
            ..head.clone()
        }));
        self.paths.push_str(&other.paths);
        for (rows, others) in [(&mut self.entries, &other.entries), (&mut self.dirs, &other.dirs)] {
            for (at, row) in others.iter().enumerate() {
                rows.push(row.name, *row.attributes, row.target);
                others.xattrs(at).for_each(|xattr| rows.push_xattr(xattr));
            }
        }
        self.values.extend(other.values);
        self.text_bytes += other.text_bytes;
    }

    /// Adds the value of an extended attribute.
    pub(crate) fn push_value(&mut self, value: Value) {
        // The path is shared, but is written with each value.
        self.text_bytes += value.path.len() + value.name.capacity();
        self.text_bytes += value.key.capacity() + value.value.capacity();
        self.values.push(value);
    }

    /// Returns the path of a listing.
    pub(crate) fn path(&self, head: &Head) -> SourcePath<'_> {
        SourcePath::escaped(&self.paths[head.path.start as usize..head.path.end as usize])
    }

    /// Returns how many entries there are.
    pub(crate) fn rows(&self) -> usize {
        self.entries.len() + self.dirs.len() + self.values.len()
    }

    /// Returns whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.values.is_empty()
    }

    /// Returns the bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.heads.capacity() * size_of::<Head>()
            + self.paths.capacity()
            + self.entries.capacity_bytes()
            + self.dirs.capacity_bytes()
            + self.values.capacity() * size_of::<Value>()
            + self.text_bytes
    }

    /// Returns whether no further listing of ordinary size may be added.
    pub(crate) fn is_full(&self) -> bool {
        self.rows() >= SHARD_ROWS_MAX
            || self.heads.len() >= SHARD_ROWS_MAX
            || [self.paths.len(), self.entries.bytes(), self.dirs.bytes()]
                .into_iter()
                .any(|bytes| bytes >= SHARD_BYTES_MAX)
    }

    /// Puts the listings in path order, parts of a directory one after the other.
    pub(crate) fn sort(&mut self) {
        let mut heads = std::mem::take(&mut self.heads);
        heads.sort_by(|a, b| self.path(a).cmp(&self.path(b)).then(a.part.cmp(&b.part)));
        self.heads = heads;
        self.values.sort_by(|a, b| {
            compare_paths(&a.path, &b.path).then_with(|| (&a.name, &a.key).cmp(&(&b.name, &b.key)))
        });
    }
}

/// Returns the names of extended attributes that all may know who know the entry, as the column
/// `xattrs` has them; empty for none.
pub(crate) fn shown_names<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    xattr_names::encode(keys.filter(|key| XattrAccess::shows_name(key)))
}
