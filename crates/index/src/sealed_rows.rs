//! Few rows of a shard, packed into a sealed record.

use crate::builder::{Builder, Value};
use crate::digest::Digests;
use canopy_model::{
    Access, Attributes, Device, Listing, Rows, SourcePath, SourcePathBuf, Xattr, xattr_names,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The rows of a [`Builder`]. Paths are kept below that of the passage they are behind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SealedRows {
    listings: Vec<PackedListing>,
    values: Vec<PackedValue>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PackedListing {
    path: String,
    part: u32,
    dev: Device,
    directory: PackedAttributes,
    entries: Vec<PackedRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PackedRow {
    name: String,
    attributes: PackedAttributes,
    target: String,
    /// Names of extended attributes, joined as in the column `xattrs`.
    xattrs: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PackedValue {
    path: String,
    name: String,
    key: String,
    value: String,
    attributes: PackedAttributes,
}

/// Attributes, with times as distances from each other: most are few bytes then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct PackedAttributes {
    ino: u64,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    size_bytes: i64,
    blksize_bytes: u32,
    blocks: i64,
    mtime_ns: i64,
    ctime_after_mtime_ns: i64,
    btime_after_mtime_ns: i64,
    atime_after_btime_ns: i64,
    rdev: u64,
}

impl SealedRows {
    /// Packs what lies behind the passage with this path.
    pub(crate) fn pack(mut builder: Builder, passage: SourcePath<'_>) -> Self {
        builder.sort();
        let below = |path: SourcePath<'_>| below(path, passage).to_owned();
        let pack_rows = |rows: &Rows, range: &std::ops::Range<u32>| -> Vec<PackedRow> {
            let range = range.start as usize..range.end as usize;
            let row = |at: usize| PackedRow {
                name: rows.name(at).to_owned(),
                attributes: rows.attributes()[at].into(),
                target: rows.target(at).to_owned(),
                xattrs: xattr_names::encode(rows.xattrs(at).map(|xattr| xattr.key)),
            };
            range.map(row).collect()
        };
        let listings = builder.heads.iter().map(|head| {
            let mut entries = pack_rows(&builder.entries, &head.entries);
            entries.extend(pack_rows(&builder.dirs, &head.dirs));
            PackedListing {
                path: below(builder.path(head)),
                part: head.part,
                dev: head.dev,
                directory: head.directory.into(),
                entries,
            }
        });
        let values = builder.values.iter().map(|value| PackedValue {
            path: below(SourcePath::escaped(&value.path)),
            name: value.name.clone(),
            key: value.key.clone(),
            value: value.value.clone(),
            attributes: value.attributes.into(),
        });
        SealedRows { listings: listings.collect(), values: values.collect() }
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.listings.is_empty() && self.values.is_empty()
    }

    /// Adds the rows to a builder.
    pub(crate) fn unpack(&self, builder: &mut Builder, passage: SourcePath<'_>) {
        let mut rows = Rows::default();
        let mut order = Vec::new();
        let whole = |path: &str| join_below(passage, path);
        for listing in &self.listings {
            rows.clear();
            for row in &listing.entries {
                rows.push(&row.name, row.attributes.into(), &row.target);
                for key in xattr_names::decode(&row.xattrs) {
                    rows.push_xattr(Xattr { key: &key, value: None });
                }
            }
            let path = whole(&listing.path);
            let depth = match path.as_str() {
                "" => 0,
                path => path.split('/').count() as u32,
            };
            let listing = Listing {
                path: path.as_path(),
                depth,
                part: listing.part,
                dev: listing.dev,
                directory: &listing.directory.into(),
                access: &Access::EVERYONE,
                rows: &rows,
            };
            // Nobody compares what is behind a passage: it is written anew.
            builder.push(&listing, Digests::default(), &mut order);
        }
        for value in &self.values {
            builder.push_value(Value {
                path: Arc::from(whole(&value.path).as_str()),
                name: value.name.clone(),
                key: value.key.clone(),
                value: value.value.clone(),
                attributes: value.attributes.into(),
            });
        }
    }

    /// Returns whether anything is in one of some directories, where the passage has this path.
    pub(crate) fn holds(
        &self,
        passage: SourcePath<'_>,
        is_one: impl Fn(SourcePath<'_>) -> bool,
    ) -> bool {
        let paths = self.listings.iter().map(|listing| &listing.path);
        let mut paths = paths.chain(self.values.iter().map(|value| &value.path));
        paths.any(|path| is_one(join_below(passage, path).as_path()))
    }

    /// Takes away what is in some directories, where the passage has this path.
    pub(crate) fn cut(&mut self, passage: SourcePath<'_>, is_one: impl Fn(SourcePath<'_>) -> bool) {
        let stays = |path: &str| !is_one(join_below(passage, path).as_path());
        self.listings.retain(|listing| stays(&listing.path));
        self.values.retain(|value| stays(&value.path));
    }

    /// Returns the names of the directories in the listing of a directory behind the passage with
    /// this path.
    pub(crate) fn subdirectories<'a>(
        &'a self,
        passage: SourcePath<'a>,
        directory: SourcePath<'a>,
    ) -> impl Iterator<Item = &'a str> {
        let below = below(directory, passage);
        let listings = self.listings.iter().filter(move |listing| listing.path == below);
        let rows = listings.flat_map(|listing| &listing.entries);
        let is_dir = |row: &&PackedRow| row.attributes.mode & 0o170_000 == 0o040_000;
        rows.filter(is_dir).map(|row| row.name.as_str())
    }
}

/// Returns the part of a path below a passage.
fn below<'a>(path: SourcePath<'a>, passage: SourcePath<'_>) -> &'a str {
    let path = path.as_str();
    path.strip_prefix(passage.as_str()).unwrap_or(path).trim_start_matches('/')
}

/// Returns the path of what lies at or below a passage, by its path below that.
fn join_below(passage: SourcePath<'_>, below: &str) -> SourcePathBuf {
    if below.is_empty() { passage.to_buf() } else { passage.child(below) }
}

impl From<Attributes> for PackedAttributes {
    fn from(a: Attributes) -> Self {
        PackedAttributes {
            ino: a.ino,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            size_bytes: a.size_bytes,
            blksize_bytes: a.blksize_bytes,
            blocks: a.blocks,
            mtime_ns: a.mtime_ns,
            ctime_after_mtime_ns: a.ctime_ns.wrapping_sub(a.mtime_ns),
            btime_after_mtime_ns: a.btime_ns.wrapping_sub(a.mtime_ns),
            atime_after_btime_ns: a.atime_ns.wrapping_sub(a.btime_ns),
            rdev: a.rdev,
        }
    }
}

impl From<PackedAttributes> for Attributes {
    fn from(a: PackedAttributes) -> Self {
        let btime_ns = a.btime_after_mtime_ns.wrapping_add(a.mtime_ns);
        Attributes {
            ino: a.ino,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            size_bytes: a.size_bytes,
            blksize_bytes: a.blksize_bytes,
            blocks: a.blocks,
            atime_ns: a.atime_after_btime_ns.wrapping_add(btime_ns),
            mtime_ns: a.mtime_ns,
            ctime_ns: a.ctime_after_mtime_ns.wrapping_add(a.mtime_ns),
            btime_ns,
            rdev: a.rdev,
        }
    }
}
