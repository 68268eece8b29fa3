//! Writes the files of a shard from a builder.
//!
//! Few hard links of a shard are stored in its manifest instead of a file. Otherwise `du -s` of a
//! whole site would open a thousand small files. Where all names of an inode are in one shard, the
//! record has the sum that they count too often. So `du -s` of one directory compares only the
//! other inodes across shards.

use crate::builder::{Builder, Head, Value, shown_names};
use crate::covers::{common_directory, covers};
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::listing_ordinal::ListingOrdinal;
use crate::packed::PackedList;
use crate::schema::{FENCE_ROWS, FENCES_END, FENCES_KEY, FileKind};
use crate::shard::{HIGH_KEY, Highs};
use crate::shard_record::{Cover, FileRecord, HardLink, ShardRecord};
use crate::source_id::SourceId;
use crate::summaries::of_blocks;
use arrow::array::{
    ArrayRef, BinaryArray, Int64Array, RecordBatch, StringBuilder, TimestampNanosecondArray,
    UInt32Array, UInt64Array,
};
use bytes::Bytes;
use canopy_model::{Attributes, Device, FileType, Ownership, Rows, Totals};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::KeyValue;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows turned from structures into columns at a time: few enough to stay in the cache.
const BATCH_ROWS: usize = 4096;

/// Bytes of text in them after which a batch ends: it lies in memory beside the builder, and an
/// array of text has offsets of 31 bits.
const BATCH_BYTES: usize = 4 << 20;

/// Most rows of `hardlinks` that go into the manifest instead of a file.
const INLINE_LINKS_MAX: usize = 1024;

/// Where a shard goes and what it is called.
pub(crate) struct ShardTarget<'a> {
    /// `None` for the memory.
    pub(crate) disk: Option<&'a Disk>,
    pub(crate) directory: &'a Path,
    pub(crate) id: String,
    pub(crate) source: SourceId,
}

/// The files of a shard that is kept in memory, by kind.
pub(crate) type MemoryFiles = [Option<Bytes>; FileKind::COUNT];

/// Writes all files of a shard. They are durable only after a sync.
pub(crate) fn write_shard(place: ShardTarget<'_>, builder: Builder) -> Result<ShardRecord> {
    Ok(encode_shard(place, builder)?.0)
}

/// Writes all files of a shard, or returns them where they go to the memory.
pub(crate) fn encode_shard(
    place: ShardTarget<'_>,
    mut builder: Builder,
) -> Result<(ShardRecord, MemoryFiles)> {
    builder.sort();
    let mut record = ShardRecord {
        id: place.id.clone(),
        source: place.source,
        files: Default::default(),
        totals: Totals::default(),
        parts: builder.heads.iter().any(|head| head.part > 0),
        prefix: String::new(),
        sums: PackedList::default(),
        links: PackedList::default(),
        repeats: Totals::default(),
        open_links: None,
        covers: PackedList::default(),
        dead: PackedList::default(),
        dead_values: PackedList::default(),
        values_prefix: None,
        dead_since_ns: None,
    };
    let directories = builder.values.iter().map(|value| &*value.path);
    let values_prefix = directories.reduce(|a, b| common_directory(a, b).0);
    record.values_prefix = values_prefix.map(str::to_owned);
    let sums: Vec<Sums> = builder.heads.iter().map(|head| Sums::of(&builder, head)).collect();
    let mut before = Vec::with_capacity(sums.len() + 1);
    for sum in &sums {
        before.push(record.totals);
        record.totals += sum.totals;
    }
    before.push(record.totals);
    let covers = covers(&builder, &before);
    if let (Some(first), Some(last)) = (builder.heads.first(), builder.heads.last()) {
        let (first, last) = (builder.path(first), builder.path(last));
        record.prefix = common_directory(first.as_str(), last.as_str()).0.to_owned();
    }

    let mut checksums = vec![Vec::new(); FileKind::COUNT];
    let mut memory = MemoryFiles::default();
    let encoder = Encoder {
        place: &place,
        record: &mut record,
        covers: &covers,
        checksums: &mut checksums,
        memory: &mut memory,
    };
    encoder
        .listings(&builder, &sums, &before)?
        .entries(&builder)?
        .dirs(&builder)?
        .usage(&builder)?
        .hardlinks(&builder)?
        .summaries(&builder)?
        .xattrs(&builder)?;
    record.sums = packed(&place, checksums)?;
    record.covers = packed(&place, covers)?;
    Ok((record, memory))
}

/// Finds what entries with several links count too often, by their links and how many each has,
/// as far as all of an entry's are here; and the links of the others.
fn once(links: &[(HardLink, u32)]) -> (Totals, Vec<HardLink>) {
    #[derive(Default)]
    struct Names {
        here: u32,
        all: u32,
        counted: bool,
    }
    let mut inodes: FxHashMap<(Device, u64), Names> = FxHashMap::default();
    for (link, nlink) in links {
        let names = inodes.entry(link.id()).or_default();
        names.here += 1;
        names.all = names.all.max(*nlink);
    }
    let (mut repeats, mut open) = (Totals::default(), Vec::new());
    for (link, _) in links {
        let names = inodes.entry(link.id()).or_default();
        if names.here < names.all {
            open.push(*link);
        } else if std::mem::replace(&mut names.counted, true) {
            repeats += link.once();
        }
    }
    (repeats, open)
}

struct Encoder<'a> {
    place: &'a ShardTarget<'a>,
    record: &'a mut ShardRecord,
    covers: &'a [Cover],
    /// Checksums of the files written so far, by kind.
    checksums: &'a mut [Vec<u32>],
    /// The files themselves, where they go to the memory.
    memory: &'a mut MemoryFiles,
}

/// Encodes a list for the manifest.
fn packed<T: Serialize>(place: &ShardTarget<'_>, list: Vec<T>) -> Result<PackedList<T>> {
    PackedList::new(list).map_err(|error| {
        Error::io("encode the manifest of", place.directory)(std::io::Error::other(
            error.to_string(),
        ))
    })
}

impl Encoder<'_> {
    /// Opens the file of one kind.
    fn open(&self, kind: FileKind, rows: usize) -> Result<Output> {
        let path = self.place.directory.join(self.record.file_name(kind));
        let file = match self.place.disk {
            Some(disk) => OutputFile::Disk(disk.create(&path, 0o644)?),
            None => OutputFile::Memory(Vec::new()),
        };
        let options = ArrowWriterOptions::new()
            .with_properties(kind.properties(rows))
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, kind.schema(), options)
            .map_err(|error| write_error(&path, error))?;
        Ok(Output { path, kind, writer, rows: 0 })
    }

    fn listings(self, builder: &Builder, sums: &[Sums], before: &[Totals]) -> Result<Self> {
        if builder.heads.is_empty() {
            return Ok(self);
        }
        let mut output = self.open(FileKind::Listings, builder.heads.len())?;
        let heads = &builder.heads;
        let fences: Vec<&str> =
            heads.iter().step_by(FENCE_ROWS).map(|head| builder.path(head).as_str()).collect();
        let fences = KeyValue::new(FENCES_KEY.to_owned(), fences.join(FENCES_END));
        output.writer.append_key_value_metadata(fences);
        let rows = before.iter().zip(sums).map(|(before, sum)| {
            let Totals { bytes, dir_bytes, blocks, .. } = *before;
            [bytes, dir_bytes, blocks, sum.totals.bytes, sum.entry_blocks]
        });
        if let Some(highs) = Highs::of(rows).encode() {
            let highs = KeyValue::new(HIGH_KEY.to_owned(), highs);
            output.writer.append_key_value_metadata(highs);
        }
        for range in batches(heads, |head| builder.path(head).as_str().len()) {
            let (heads, sums, before) =
                (&heads[range.clone()], &sums[range.clone()], &before[range]);
            let mut columns: Vec<ArrayRef> = vec![
                strings(heads.iter().map(|head| Some(builder.path(head).as_str()))),
                u32s(heads.iter().map(|head| head.depth)),
                u32s(heads.iter().map(|head| head.part)),
                u64s(heads.iter().map(|head| head.dev.0)),
            ];
            inode_columns(&mut columns, || heads.iter().map(|head| &head.directory));
            for number in Sums::NUMBERS {
                columns.push(low_i64s(sums.iter().map(number)));
            }
            columns.push(u32s(before.iter().map(|totals| totals.entries as u32)));
            columns.push(u32s(before.iter().map(|totals| totals.dirs as u32)));
            columns.push(low_i64s(before.iter().map(|totals| totals.bytes)));
            columns.push(low_i64s(before.iter().map(|totals| totals.dir_bytes)));
            columns.push(low_i64s(before.iter().map(|totals| totals.blocks)));
            columns.push(u64s(heads.iter().map(|head| head.digests.content)));
            columns.push(u64s(heads.iter().map(|head| head.digests.access)));
            output.write(columns)?;
        }
        self.close(output)
    }

    fn entries(self, builder: &Builder) -> Result<Self> {
        if builder.entries.is_empty() {
            return Ok(self);
        }
        let output = self.open(FileKind::Entries, builder.entries.len())?;
        self.rows(output, &builder.entries, builder.heads.iter().map(|head| head.entries.clone()))
    }

    fn dirs(self, builder: &Builder) -> Result<Self> {
        if builder.dirs.is_empty() {
            return Ok(self);
        }
        let output = self.open(FileKind::Dirs, builder.dirs.len())?;
        self.rows(output, &builder.dirs, builder.heads.iter().map(|head| head.dirs.clone()))
    }

    /// Writes rows, listing by listing.
    fn rows(
        self,
        mut output: Output,
        rows: &Rows,
        listings: impl Iterator<Item = std::ops::Range<u32>>,
    ) -> Result<Self> {
        let mut ordinals = Vec::with_capacity(BATCH_ROWS);
        let mut places = Vec::with_capacity(BATCH_ROWS);
        let mut bytes = 0;
        for (ordinal, range) in listings.enumerate() {
            for at in range {
                ordinals.push(ordinal as u32);
                places.push(at as usize);
                bytes += rows.bytes_of(at as usize);
                if places.len() == BATCH_ROWS || bytes >= BATCH_BYTES {
                    output.write(row_columns(output.kind, &mut ordinals, &places, rows))?;
                    places.clear();
                    bytes = 0;
                }
            }
        }
        if !places.is_empty() {
            output.write(row_columns(output.kind, &mut ordinals, &places, rows))?;
        }
        self.close(output)
    }

    fn usage(self, builder: &Builder) -> Result<Self> {
        if builder.entries.is_empty() {
            return Ok(self);
        }
        let mut output = self.open(FileKind::Usage, builder.heads.len())?;
        let mut rows: Vec<UsageRow> = Vec::with_capacity(BATCH_ROWS + 64);
        let mut of_owners: FxHashMap<Ownership, usize> = FxHashMap::default();
        for (ordinal, head) in builder.heads.iter().enumerate() {
            let first = rows.len();
            of_owners.clear();
            for attributes in attributes_of(&builder.entries, &head.entries) {
                let owner = attributes.ownership();
                // Most entries have the owner of the one before.
                let last = rows.len().checked_sub(1).filter(|&last| last >= first);
                let at = match last.filter(|&last| rows[last].owner == owner) {
                    Some(last) => last,
                    None => *of_owners.entry(owner).or_insert_with(|| {
                        let listing = ordinal as u32;
                        rows.push(UsageRow { listing, owner, ..UsageRow::default() });
                        rows.len() - 1
                    }),
                };
                if !rows[at].add(attributes) {
                    // The sums would not fit: the rest is in a further row of the owner.
                    let listing = ordinal as u32;
                    let mut further = UsageRow { listing, owner, ..UsageRow::default() };
                    further.add(attributes);
                    of_owners.insert(owner, rows.len());
                    rows.push(further);
                }
            }
            rows[first..].sort_unstable_by_key(|row| row.owner);
            if rows.len() >= BATCH_ROWS {
                output.write(usage_columns(&rows))?;
                rows.clear();
            }
        }
        if !rows.is_empty() {
            output.write(usage_columns(&rows))?;
        }
        self.close(output)
    }

    fn hardlinks(self, builder: &Builder) -> Result<Self> {
        let linked = |(ordinal, head): (usize, &Head)| {
            let dev = head.dev;
            let entries = attributes_of(&builder.entries, &head.entries).iter();
            entries.filter(|attributes| attributes.nlink > 1).map(move |attributes| {
                let link = HardLink {
                    listing: ListingOrdinal::of_row(ordinal),
                    dev,
                    ino: attributes.ino,
                    size_bytes: attributes.size_bytes,
                    blocks: attributes.blocks,
                };
                (link, attributes.nlink)
            })
        };
        let rows: Vec<(HardLink, u32)> =
            builder.heads.iter().enumerate().flat_map(linked).collect();
        let (repeats, open) = once(&rows);
        self.record.repeats = repeats;
        if open.len() <= INLINE_LINKS_MAX {
            self.record.open_links = Some(packed(self.place, open)?);
        }
        let rows: Vec<HardLink> = rows.into_iter().map(|(link, _)| link).collect();
        if rows.len() <= INLINE_LINKS_MAX {
            self.record.links = packed(self.place, rows)?;
            return Ok(self);
        }
        let mut output = self.open(FileKind::Hardlinks, rows.len())?;
        for rows in rows.chunks(BATCH_ROWS) {
            output.write(vec![
                u32s(rows.iter().map(|row| row.listing.0)),
                u64s(rows.iter().map(|row| row.dev.0)),
                u64s(rows.iter().map(|row| row.ino)),
                i64s(rows.iter().map(|row| row.size_bytes)),
                i64s(rows.iter().map(|row| row.blocks)),
            ])?;
        }
        self.close(output)
    }

    fn summaries(self, builder: &Builder) -> Result<Self> {
        let blocks = of_blocks(builder, self.covers);
        if blocks.is_empty() {
            return Ok(self);
        }
        let mut output = self.open(FileKind::Summaries, blocks.len())?;
        for blocks in blocks.chunks(BATCH_ROWS) {
            let failed = Error::encode::<postcard::Error>(&output.path);
            let mut summaries = Vec::with_capacity(blocks.len());
            let mut extensions = Vec::with_capacity(blocks.len());
            for block in blocks {
                let (summary, counts) = block.encode().map_err(&failed)?;
                summaries.push(summary);
                extensions.push(counts);
            }
            output.write(vec![
                u32s(blocks.iter().map(|block| block.listings.start.0)),
                u32s(blocks.iter().map(|block| block.listings.end.0)),
                u32s(blocks.iter().map(|block| block.owner.uid)),
                u32s(blocks.iter().map(|block| block.owner.gid)),
                Arc::new(BinaryArray::from_iter_values(summaries)),
                Arc::new(BinaryArray::from_iter(extensions)),
            ])?;
        }
        self.close(output)
    }

    fn xattrs(self, builder: &Builder) -> Result<Self> {
        if builder.values.is_empty() {
            return Ok(self);
        }
        let mut output = self.open(FileKind::Xattrs, builder.values.len())?;
        let bytes = |row: &Value| row.path.len() + row.name.len() + row.key.len() + row.value.len();
        for range in batches(&builder.values, bytes) {
            let rows = &builder.values[range];
            output.write(vec![
                strings(rows.iter().map(|row| Some(&*row.path))),
                strings(rows.iter().map(|row| Some(row.name.as_str()))),
                strings(rows.iter().map(|row| Some(row.key.as_str()))),
                strings(rows.iter().map(|row| Some(row.value.as_str()))),
                u64s(rows.iter().map(|row| row.attributes.ino)),
                u32s(rows.iter().map(|row| row.attributes.mode)),
                u32s(rows.iter().map(|row| row.attributes.uid)),
                u32s(rows.iter().map(|row| row.attributes.gid)),
                i64s(rows.iter().map(|row| row.attributes.size_bytes)),
                times(rows.iter().map(|row| row.attributes.mtime_ns)),
            ])?;
        }
        self.close(output)
    }

    fn close(self, output: Output) -> Result<Self> {
        let Output { path, kind, writer, rows } = output;
        let (bytes, sums) = match writer.into_inner().map_err(|error| write_error(&path, error))? {
            OutputFile::Disk(file) => file.finish(false)?,
            OutputFile::Memory(file) => {
                let bytes = file.len() as u64;
                self.memory[kind as usize] = Some(Bytes::from(file));
                (bytes, Vec::new())
            }
        };
        self.record.files[kind as usize] = Some(FileRecord { rows, bytes });
        self.checksums[kind as usize] = sums;
        Ok(self)
    }
}

/// A file that is being written.
struct Output {
    path: PathBuf,
    kind: FileKind,
    writer: ArrowWriter<OutputFile>,
    rows: u64,
}

/// Where a file is written.
enum OutputFile {
    Disk(DiskFile),
    Memory(Vec<u8>),
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            OutputFile::Disk(file) => file.write(bytes),
            OutputFile::Memory(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            OutputFile::Disk(file) => file.flush(),
            OutputFile::Memory(_) => Ok(()),
        }
    }
}

impl Output {
    fn write(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        let batch = RecordBatch::try_new(self.kind.schema(), columns)
            .expect("the encoder makes the columns that the schema names");
        self.rows += batch.num_rows() as u64;
        self.writer.write(&batch).map_err(|error| write_error(&self.path, error))
    }
}

pub(crate) fn write_error(path: &Path, error: parquet::errors::ParquetError) -> Error {
    let source = match error {
        parquet::errors::ParquetError::External(cause) => {
            match cause.downcast::<std::io::Error>() {
                Ok(cause) => *cause,
                Err(cause) => std::io::Error::other(cause),
            }
        }
        other => std::io::Error::other(other),
    };
    Error::io("write", path)(source)
}

/// Cuts rows into batches, given the bytes of text in each.
fn batches<T>(
    rows: &[T],
    bytes_of: impl Fn(&T) -> usize,
) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |row: &&T| {
            let fits = bytes < BATCH_BYTES;
            bytes += bytes_of(row);
            fits
        };
        let count = rows[start..].iter().take(BATCH_ROWS).take_while(fits).count();
        let range = start..start + count;
        start = range.end;
        (count > 0).then_some(range)
    })
}

fn attributes_of<'a>(rows: &'a Rows, range: &std::ops::Range<u32>) -> &'a [Attributes] {
    &rows.attributes()[range.start as usize..range.end as usize]
}

/// Aggregates of one listing.
struct Sums {
    totals: Totals,
    files: i64,
    symlinks: i64,
    entry_blocks: i128,
}

impl Sums {
    /// The numeric columns from `files` to `entry_blocks`, in order.
    const NUMBERS: [fn(&Sums) -> i128; 6] = [
        |s| s.files.into(),
        |s| s.symlinks.into(),
        |s| (s.totals.entries - s.files - s.symlinks).into(),
        |s| s.totals.dirs.into(),
        |s| s.totals.bytes,
        |s| s.entry_blocks,
    ];

    fn of(builder: &Builder, head: &Head) -> Sums {
        let mut sums = Sums { totals: Totals::default(), files: 0, symlinks: 0, entry_blocks: 0 };
        let entries = attributes_of(&builder.entries, &head.entries);
        for attributes in entries {
            let file_type = attributes.file_type();
            sums.files += i64::from(file_type == FileType::Regular);
            sums.symlinks += i64::from(file_type == FileType::Symlink);
            sums.totals += Totals::of_entry(attributes.size_bytes, attributes.blocks);
        }
        sums.entry_blocks = sums.totals.blocks;
        for attributes in attributes_of(&builder.dirs, &head.dirs) {
            sums.totals += Totals::of_directory(attributes.size_bytes, attributes.blocks);
        }
        sums
    }
}

#[derive(Clone, Copy, Default)]
struct UsageRow {
    listing: u32,
    owner: Ownership,
    count: i64,
    size: i64,
    blocks: i64,
}

impl UsageRow {
    /// Takes in an entry, unless a sum would need more than 64 bits.
    fn add(&mut self, attributes: &Attributes) -> bool {
        let size = self.size.checked_add(attributes.size_bytes);
        let Some((size, blocks)) = size.zip(self.blocks.checked_add(attributes.blocks)) else {
            return false;
        };
        *self = UsageRow { count: self.count + 1, size, blocks, ..*self };
        true
    }
}

fn usage_columns(rows: &[UsageRow]) -> Vec<ArrayRef> {
    vec![
        u32s(rows.iter().map(|row| row.listing)),
        u32s(rows.iter().map(|row| row.owner.uid)),
        u32s(rows.iter().map(|row| row.owner.gid)),
        i64s(rows.iter().map(|row| row.count)),
        i64s(rows.iter().map(|row| row.size)),
        i64s(rows.iter().map(|row| row.blocks)),
    ]
}

fn row_columns(
    kind: FileKind,
    ordinals: &mut Vec<u32>,
    places: &[usize],
    rows: &Rows,
) -> Vec<ArrayRef> {
    let attributes = rows.attributes();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(16);
    columns.push(Arc::new(UInt32Array::from(std::mem::replace(
        ordinals,
        Vec::with_capacity(BATCH_ROWS),
    ))));
    columns.push(strings(places.iter().map(|&at| Some(rows.name(at)))));
    inode_columns(&mut columns, || places.iter().map(|&at| &attributes[at]));
    if kind == FileKind::Entries {
        columns.push(strings(
            places.iter().map(|&at| Some(rows.target(at)).filter(|t| !t.is_empty())),
        ));
        columns.push(u64s(places.iter().map(|&at| attributes[at].rdev)));
    }
    if rows.has_xattrs() {
        let names = |at: usize| shown_names(rows.xattrs(at).map(|xattr| xattr.key));
        let names: Vec<String> = places.iter().map(|&at| names(at)).collect();
        columns.push(strings(
            names.iter().map(|names| Some(names.as_str()).filter(|n| !n.is_empty())),
        ));
    } else {
        columns.push(arrow::array::new_null_array(&arrow::datatypes::DataType::Utf8, places.len()));
    }
    columns
}

/// Adds the columns that every inode has.
fn inode_columns<'a, I>(columns: &mut Vec<ArrayRef>, rows: impl Fn() -> I)
where
    I: Iterator<Item = &'a Attributes>,
{
    columns.push(u64s(rows().map(|a| a.ino)));
    columns.push(u32s(rows().map(|a| a.mode)));
    columns.push(u32s(rows().map(|a| a.nlink)));
    columns.push(u32s(rows().map(|a| a.uid)));
    columns.push(u32s(rows().map(|a| a.gid)));
    columns.push(i64s(rows().map(|a| a.size_bytes)));
    columns.push(u32s(rows().map(|a| a.blksize_bytes)));
    columns.push(i64s(rows().map(|a| a.blocks)));
    columns.push(i64s(rows().map(|a| a.atime_ns.wrapping_sub(a.btime_ns))));
    columns.push(times(rows().map(|a| a.mtime_ns)));
    columns.push(i64s(rows().map(|a| a.ctime_ns.wrapping_sub(a.mtime_ns))));
    columns.push(i64s(rows().map(|a| a.btime_ns.wrapping_sub(a.mtime_ns))));
}

fn u32s(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn u64s(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn i64s(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// Makes a column of the lowest 64 bits of sums; [`Highs`] has the others.
fn low_i64s(values: impl Iterator<Item = i128>) -> ArrayRef {
    i64s(values.map(|value| value as i64))
}

fn times(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampNanosecondArray::from_iter_values(values).with_timezone("UTC"))
}

fn strings<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    let mut builder = StringBuilder::with_capacity(BATCH_ROWS, BATCH_ROWS * 24);
    values.for_each(|value| builder.append_option(value));
    Arc::new(builder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_end_with_their_rows_or_their_bytes() {
        let cut = |rows: &[usize]| batches(rows, |&bytes| bytes).collect::<Vec<_>>();
        assert!(cut(&[]).is_empty());
        assert_eq!(cut(&[1; BATCH_ROWS + 2]), [0..BATCH_ROWS, BATCH_ROWS..BATCH_ROWS + 2]);
        // 4,200 values with paths of 1 MiB each have more bytes than an array has offsets.
        let cuts = cut(&[1 << 20; 4200]);
        assert_eq!((cuts.len(), cuts[0].clone(), cuts[1049].end), (1050, 0..4, 4200));
        assert_eq!(cut(&[usize::MAX >> 1, 1]), [0..1, 1..2]);
    }

    #[test]
    fn links_count_once_where_all_of_an_inode_are_here() {
        let link = |listing, dev, ino| HardLink { listing, dev, ino, size_bytes: 10, blocks: 8 };
        // One inode with all its three names, one of the same number on another device, one with a
        // name elsewhere.
        let (whole, other, part) = (
            |at| link(at, Device(1), 5),
            link(ListingOrdinal(4), Device(2), 5),
            |at| link(at, Device(1), 6),
        );
        let links = [
            (whole(ListingOrdinal(0)), 3),
            (part(ListingOrdinal(0)), 3),
            (whole(ListingOrdinal(1)), 3),
            (other, 2),
            (whole(ListingOrdinal(2)), 3),
            (part(ListingOrdinal(2)), 3),
        ];
        let (repeats, open) = once(&links);
        assert_eq!(repeats, Totals { entries: 2, bytes: 20, blocks: 16, ..Totals::default() });
        assert_eq!(open, [part(ListingOrdinal(0)), other, part(ListingOrdinal(2))]);
    }
}
