//! Taking a directory and all below it out of the shards of a source, so that another scan of it
//! takes their place.
//!
//! 1. Find which of the source's shards hold anything at or below the directory: listings, values
//!    of extended attributes.
//! 2. Write what else they hold as new shards. Shards that hold nothing else are left out, and all
//!    others are not touched.
//!
//! The row of the directory itself and its values belong to the listing that it is in, and stay. A
//! source with sealed records is not cut.

use super::sources::Above;
use super::{Held, Writer};
use crate::builder::{Builder, Value};
use crate::column::*;
use crate::error::Result;
use crate::schema::FileKind;
use crate::shard::{ClassDir, RowRange, Shard};
use arrow::array::{Array, RecordBatch};
use canopy_model::{Access, Attributes, ClassId, Listing, Rows, Xattr, is_below, xattr_names};
use std::sync::Arc;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// Listings whose entries are in memory at a time.
const LISTINGS: usize = 4096;

/// The columns that an entry is made of.
const ENTRY: [ColumnId; 5] = [NAME.id(), LISTING.id(), XATTRS.id(), TARGET.id(), RDEV.id()];

impl Writer {
    /// Writes anew what stays of the shards of a source when what is at and below `above` goes, for
    /// the subtree that was begun under this number.
    pub(super) fn cut(&self, subtree: u32, above: &Above) -> Result<()> {
        let Some(begun) = self.begun.get(&subtree) else { return Ok(()) };
        let shards = self.shards_of(above.id);
        for (class, shard) in shards {
            let listings = shard.listings_below(&above.path)?;
            if listings.is_empty() && !holds_values(&shard, &above.path)? {
                continue;
            }
            let mut rest = Builder::default();
            for kept in [0..listings.start, listings.end..shard.rows(FileKind::Listings)] {
                self.copy_listings(&shard, kept, &mut rest)?;
            }
            copy_values(&shard, &above.path, &mut rest)?;
            begun.cut.lock().push((class, shard.record().id.clone()));
            if !rest.is_empty() {
                let id = self.write_shard(class, subtree, rest)?;
                begun.rewritten.lock().insert(id);
            }
        }
        Ok(())
    }

    /// Returns the shards of a source that are in the manifests.
    pub(super) fn shards_of(&self, source: u32) -> Vec<(ClassId, Shard)> {
        let mut found = Vec::new();
        for (&class, Held { manifest, .. }) in &self.classes {
            let directory = self.names.class(self.table.grants_of(class));
            let place = Arc::new(ClassDir::new(|| directory));
            let shards = manifest.shards.iter().filter(|shard| shard.source == source);
            found.extend(shards.map(|shard| (class, Shard::new(shard.clone(), place.clone()))));
        }
        found
    }

    fn copy_listings(&self, shard: &Shard, kept: RowRange, rest: &mut Builder) -> Result<()> {
        // The builder does not ask who may see a listing: that is the class it is of.
        let access = &Access::EVERYONE;
        let mut order = Vec::new();
        for start in kept.clone().step_by(LISTINGS) {
            let chunk = start..kept.end.min(start + LISTINGS);
            let mut rows = vec![Rows::default(); chunk.len()];
            let (entries, dirs) = shard.rows_of(chunk.clone())?;
            for (kind, range) in [(FileKind::Entries, entries), (FileKind::Dirs, dirs)] {
                let mut columns = INODE;
                let own = ENTRY.into_iter().filter(|column| kind.columns().contains(column));
                own.for_each(|column| columns.add(column));
                for batch in read(shard, kind, columns, &range)? {
                    copy_rows(shard, kind, &batch?, &chunk, &mut rows)?;
                }
            }
            for (head, rows) in heads(shard, &chunk)?.iter().zip(&rows) {
                let listing = Listing {
                    path: &head.path,
                    depth: head.depth,
                    part: head.part,
                    dev: head.dev,
                    directory: &head.directory,
                    access,
                    rows,
                };
                rest.push(&listing, &mut order);
            }
        }
        Ok(())
    }
}

/// A listing without its entries.
struct Head {
    path: String,
    depth: u32,
    part: u32,
    dev: u64,
    directory: Attributes,
}

fn heads(shard: &Shard, listings: &RowRange) -> Result<Vec<Head>> {
    let mut heads = Vec::with_capacity(listings.len());
    let columns = INODE | PATH | DEPTH | PART | DEV;
    for batch in read(shard, FileKind::Listings, columns, listings)? {
        let batch = batch?;
        let (paths, depths) = (PATH.of(&batch)?, DEPTH.of(&batch)?);
        let (parts, devs) = (PART.of(&batch)?, DEV.of(&batch)?);
        for at in 0..batch.num_rows() {
            heads.push(Head {
                path: paths.value(at).to_owned(),
                depth: depths[at],
                part: parts[at],
                dev: devs[at],
                directory: attributes(&batch, at)?,
            });
        }
    }
    match heads.len() == listings.len() {
        true => Ok(heads),
        false => Err(shard.corrupt(FileKind::Listings, "rows are missing")),
    }
}

fn copy_rows(
    shard: &Shard,
    kind: FileKind,
    batch: &RecordBatch,
    listings: &RowRange,
    rows: &mut [Rows],
) -> Result<()> {
    let (ordinals, names) = (LISTING.of(batch)?, NAME.of(batch)?);
    let (targets, xattrs) = (TARGET.find(batch), XATTRS.of(batch)?);
    for (at, &ordinal) in ordinals.iter().enumerate() {
        let rows = &mut rows[place_of(shard, kind, listings, ordinal)?];
        let target = targets.filter(|targets| !targets.is_null(at));
        let target = target.map_or("", |targets| targets.value(at));
        rows.push(names.value(at), attributes(batch, at)?, target);
        let keys = if xattrs.is_null(at) { "" } else { xattrs.value(at) };
        for key in xattr_names::decode(keys) {
            rows.push_xattr(Xattr { key: &key, value: None });
        }
    }
    Ok(())
}

/// Returns the place of a listing among those that are read.
fn place_of(shard: &Shard, kind: FileKind, listings: &RowRange, ordinal: u32) -> Result<usize> {
    let ordinal = ordinal as usize;
    match listings.contains(&ordinal) {
        true => Ok(ordinal - listings.start),
        false => Err(shard.corrupt(kind, "it names a listing that does not exist")),
    }
}

fn holds_values(shard: &Shard, directory: &str) -> Result<bool> {
    let rows = 0..shard.rows(FileKind::Xattrs);
    for batch in read(shard, FileKind::Xattrs, VALUE_PATH, &rows)? {
        let batch = batch?;
        let paths = VALUE_PATH.of(&batch)?;
        if (0..batch.num_rows()).any(|at| is_below(paths.value(at), directory)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn copy_values(shard: &Shard, directory: &str, rest: &mut Builder) -> Result<()> {
    let rows = 0..shard.rows(FileKind::Xattrs);
    let columns: Columns = FileKind::Xattrs.columns().iter().copied().collect();
    for batch in read(shard, FileKind::Xattrs, columns, &rows)? {
        let batch = batch?;
        let (paths, names) = (VALUE_PATH.of(&batch)?, NAME.of(&batch)?);
        let (keys, values) = (KEY.of(&batch)?, VALUE.of(&batch)?);
        for at in (0..batch.num_rows()).filter(|&at| !is_below(paths.value(at), directory)) {
            rest.push_value(Value {
                path: paths.value(at).into(),
                name: names.value(at).to_owned(),
                key: keys.value(at).to_owned(),
                value: values.value(at).to_owned(),
                attributes: Attributes {
                    ino: INO.of(&batch)?[at],
                    mode: MODE.of(&batch)?[at],
                    uid: UID.of(&batch)?[at],
                    gid: GID.of(&batch)?[at],
                    size_bytes: SIZE.of(&batch)?[at],
                    mtime_ns: MTIME.of(&batch)?[at],
                    ..Attributes::default()
                },
            });
        }
    }
    Ok(())
}

fn read(
    shard: &Shard,
    kind: FileKind,
    columns: impl Into<Columns>,
    rows: &RowRange,
) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
    let read = match rows.is_empty() {
        true => None,
        false => Some(shard.read(kind, columns, std::slice::from_ref(rows), BATCH_ROWS)?),
    };
    Ok(read.into_iter().flatten())
}

fn attributes(batch: &RecordBatch, at: usize) -> Result<Attributes> {
    Ok(Attributes {
        ino: INO.of(batch)?[at],
        mode: MODE.of(batch)?[at],
        nlink: NLINK.of(batch)?[at],
        uid: UID.of(batch)?[at],
        gid: GID.of(batch)?[at],
        size_bytes: SIZE.of(batch)?[at],
        blksize_bytes: BLKSIZE.of(batch)?[at],
        blocks: BLOCKS.of(batch)?[at],
        atime_ns: ATIME.of(batch)?[at],
        mtime_ns: MTIME.of(batch)?[at],
        ctime_ns: CTIME.of(batch)?[at],
        btime_ns: BTIME.of(batch)?[at],
        rdev: RDEV.find(batch).map_or(0, |values| values[at]),
    })
}
