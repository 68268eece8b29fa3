//! Copying rows of shards, as they are, into builders.

use crate::builder::{Builder, Value};
use crate::column::*;
use crate::digest::Digests;
use crate::error::Result;
use crate::listing_ordinal::{ListingOrdinal, ListingRange};
use crate::schema::FileKind;
use crate::shard::{RowRange, Shard};
use arrow::array::{Array, RecordBatch};
use canopy_model::{
    Access, Attributes, Device, Listing, Rows, SourcePath, SourcePathBuf, Xattr, xattr_names,
};

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// Listings whose entries are in memory at a time.
pub(super) const LISTINGS: usize = 4096;

/// The columns that an entry is made of.
const ENTRY: [ColumnId; 5] = [NAME.id(), LISTING.id(), XATTRS.id(), TARGET.id(), RDEV.id()];

/// Adds listings of a shard to a builder.
pub(super) fn copy_listings(shard: &Shard, kept: ListingRange, rest: &mut Builder) -> Result<()> {
    // The builder does not ask who may see a listing: that is the class it is of.
    let access = &Access::EVERYONE;
    let mut order = Vec::new();
    for chunk in chunks(&kept) {
        let mut rows = vec![Rows::default(); chunk.end - chunk.start];
        let (entries, dirs) = shard.rows_of_range(chunk.clone())?;
        for (kind, range) in [(FileKind::Entries, entries), (FileKind::Dirs, dirs)] {
            let mut columns = INODE;
            let own = ENTRY.into_iter().filter(|column| kind.columns().contains(column));
            own.for_each(|column| columns.add(column));
            for batch in read(shard, kind, columns, &[range])? {
                copy_rows(shard, kind, &batch?, &chunk, &mut rows)?;
            }
        }
        for (head, rows) in heads(shard, &chunk)?.iter().zip(&rows) {
            let listing = Listing {
                path: head.path.as_path(),
                depth: head.depth,
                part: head.part,
                dev: head.dev,
                directory: &head.directory,
                access,
                rows,
            };
            rest.push(&listing, head.digests, &mut order);
        }
    }
    Ok(())
}

/// A listing without its entries.
pub(super) struct Head {
    pub(super) path: SourcePathBuf,
    depth: u32,
    part: u32,
    dev: Device,
    directory: Attributes,
    digests: Digests,
}

/// Reads listings without their entries.
pub(super) fn heads(shard: &Shard, listings: &ListingRange) -> Result<Vec<Head>> {
    let count = listings.end - listings.start;
    let mut heads = Vec::with_capacity(count);
    let columns = INODE | PATH | DEPTH | PART | DEV | CONTENT | ACCESS;
    for batch in read_listings(shard, columns, std::slice::from_ref(listings))? {
        let batch = batch?;
        let (paths, depths) = (PATH.of(&batch)?, DEPTH.of(&batch)?);
        let (parts, devs) = (PART.of(&batch)?, DEV.of(&batch)?);
        let (contents, accesses) = (CONTENT.of(&batch)?, ACCESS.of(&batch)?);
        for at in 0..batch.num_rows() {
            heads.push(Head {
                path: SourcePath::escaped(paths.value(at)).to_buf(),
                depth: depths[at],
                part: parts[at],
                dev: devs.value(at),
                directory: attributes(&batch, at)?,
                digests: Digests { content: contents[at], access: accesses[at] },
            });
        }
    }
    match heads.len() == count {
        true => Ok(heads),
        false => Err(shard.corrupt(FileKind::Listings, "rows are missing")),
    }
}

fn copy_rows(
    shard: &Shard,
    kind: FileKind,
    batch: &RecordBatch,
    listings: &ListingRange,
    rows: &mut [Rows],
) -> Result<()> {
    let (ordinals, names) = (LISTING.of(batch)?, NAME.of(batch)?);
    let (targets, xattrs) = (TARGET.find(batch), XATTRS.of(batch)?);
    for (at, ordinal) in ordinals.iter().enumerate() {
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
pub(super) fn place_of(
    shard: &Shard,
    kind: FileKind,
    listings: &ListingRange,
    ordinal: ListingOrdinal,
) -> Result<usize> {
    match listings.contains(&ordinal) {
        true => Ok(ordinal - listings.start),
        false => Err(shard.corrupt(kind, "it names a listing that does not exist")),
    }
}

/// Adds values of extended attributes in some rows of a shard to a builder.
pub(super) fn copy_values(shard: &Shard, rows: &[RowRange], rest: &mut Builder) -> Result<()> {
    let columns: Columns = FileKind::Xattrs.columns().iter().copied().collect();
    for batch in read(shard, FileKind::Xattrs, columns, rows)? {
        let batch = batch?;
        let (paths, names) = (VALUE_PATH.of(&batch)?, NAME.of(&batch)?);
        let (keys, values) = (KEY.of(&batch)?, VALUE.of(&batch)?);
        for at in 0..batch.num_rows() {
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

/// Cuts a range of listings into pieces of [`LISTINGS`].
pub(super) fn chunks(listings: &ListingRange) -> impl Iterator<Item = ListingRange> {
    let rows = ListingOrdinal::rows(listings);
    let end = rows.end;
    rows.step_by(LISTINGS).map(move |start| ListingOrdinal::range(start..end.min(start + LISTINGS)))
}

/// Reads columns of listings; opens nothing where there are none.
pub(super) fn read_listings(
    shard: &Shard,
    columns: impl Into<Columns>,
    listings: &[ListingRange],
) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
    let read = match listings.iter().all(ListingRange::is_empty) {
        true => None,
        false => Some(shard.read_listings(columns, listings, BATCH_ROWS)?),
    };
    Ok(read.into_iter().flatten())
}

/// Reads columns of rows; opens nothing where there are none.
pub(super) fn read(
    shard: &Shard,
    kind: FileKind,
    columns: impl Into<Columns>,
    rows: &[RowRange],
) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
    let read = match rows.iter().all(RowRange::is_empty) {
        true => None,
        false => Some(shard.read(kind, columns, rows, BATCH_ROWS)?),
    };
    Ok(read.into_iter().flatten())
}

/// Returns the attributes in a row.
pub(super) fn attributes(batch: &RecordBatch, at: usize) -> Result<Attributes> {
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
