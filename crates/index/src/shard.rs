//! Reading one shard: its columns and, in `lookup`, which rows belong to a subtree.

mod high;
mod live;
mod lookup;

use crate::block_file::BlockFile;
use crate::builder::Builder;
use crate::column::*;
use crate::encoder::{MemoryFiles, ShardTarget, encode_shard};
use crate::error::{Error, Result};
use crate::listing_ordinal::{ListingOrdinal, ListingRange};
use crate::parquet_file::{self, PageFile};
use crate::schema::{FileKind, ROW_GROUP_ROWS};
use crate::shard_record::{Cover, HardLink, ShardRecord};
use crate::source_id::SourceId;
use crate::summaries::{self, BlockSummary};
use arrow::array::{Array, RecordBatch, TimestampNanosecondArray};
use arrow::datatypes::{Field, Schema};
use arrow::error::ArrowError;
use canopy_model::Ownership;
pub(crate) use high::HIGH_KEY;
pub use high::{Highs, SumColumn};
pub(crate) use live::SMALL_ROWS_MAX;
use lookup::Pages;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::arrow::{ArrowSchemaConverter, ProjectionMask};
use parquet::file::metadata::{PageIndexPolicy, ParquetStatisticsPolicy};
use parquet::file::statistics::Statistics;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};

/// Rows that are decoded at a time where all are wanted.
const BATCH_ROWS: usize = 2048;

/// A range of rows of one file of a shard.
pub type RowRange = Range<usize>;

/// A shard of the generation that was opened. Its files are opened when they are first needed, and
/// stay open until [`Shard::close`].
pub struct Shard {
    record: ShardRecord,
    pub(crate) place: Arc<ClassDir>,
    files: [Mutex<Option<Arc<OpenFile>>>; FileKind::COUNT],
    /// Its files, if it is in memory.
    memory: Option<MemoryFiles>,
}

/// Where the shards of one class are.
pub(crate) struct ClassDir {
    /// Worked out when it is first needed: most commands open few classes of those they may read.
    pub(crate) directory: LazyLock<PathBuf, Box<dyn FnOnce() -> PathBuf + Send>>,
}

impl ClassDir {
    pub(crate) fn new(directory: impl FnOnce() -> PathBuf + Send + 'static) -> Self {
        ClassDir { directory: LazyLock::new(Box::new(directory)) }
    }
}

struct OpenFile {
    path: PathBuf,
    file: BlockFile,
    metadata: ArrowReaderMetadata,
    /// Pages of `listings` that look-ups have read.
    pages: Pages,
    /// Sums above 64 bits in `listings`, once decoded.
    highs: OnceLock<Arc<Highs>>,
}

impl Shard {
    pub(crate) fn new(record: ShardRecord, place: Arc<ClassDir>) -> Self {
        Shard { record, place, files: Default::default(), memory: None }
    }

    /// Makes a shard in memory of the rows that were collected. `directory` is for messages.
    pub(crate) fn in_memory(
        source: SourceId,
        directory: PathBuf,
        builder: Builder,
    ) -> Result<Self> {
        let id = "memory".to_owned();
        let target = ShardTarget { disk: None, directory: &directory, id, source };
        let (record, memory) = encode_shard(target, builder)?;
        let place = Arc::new(ClassDir::new(|| directory));
        Ok(Shard { memory: Some(memory), ..Shard::new(record, place) })
    }

    /// Returns what the manifest says of it.
    pub fn record(&self) -> &ShardRecord {
        &self.record
    }

    /// Returns how many rows one of its files has, dead ones among them; which count say
    /// [`Shard::live_listings`], [`Shard::rows_of`] and [`Shard::live_values`].
    pub fn rows(&self, kind: FileKind) -> usize {
        self.record.rows(kind) as usize
    }

    /// Returns the path of one of its files, for messages.
    pub fn path(&self, kind: FileKind) -> PathBuf {
        self.place.directory.join(self.record.file_name(kind))
    }

    /// Returns an error that says that a file of this shard does not hold what it must.
    pub fn corrupt(&self, kind: FileKind, detail: impl std::fmt::Display) -> Error {
        Error::corrupt(&self.path(kind), detail)
    }

    /// Closes a file, whose memory serves the next one then. It is opened again where it is needed
    /// again.
    pub fn close(&self, kind: FileKind) {
        *self.files[kind as usize].lock() = None;
    }

    fn open(&self, kind: FileKind) -> Result<Arc<OpenFile>> {
        let place = &self.files[kind as usize];
        if let Some(open) = &*place.lock() {
            return Ok(open.clone());
        }
        let path = self.path(kind);
        let record = self
            .record
            .file(kind)
            .ok_or_else(|| Error::corrupt(&path, "the manifest says that it does not exist"))?;
        let file = match &self.memory {
            Some(files) => BlockFile::in_memory(files[kind as usize].clone().unwrap_or_default()),
            None => {
                let sums = self.unpacked(self.record.sums.get())?;
                let sums = sums.get(kind as usize).cloned().unwrap_or_default();
                BlockFile::open(&path, record.bytes, sums).map_err(missing)?
            }
        };
        let columns = kind.columns().len();
        let metadata =
            parquet_file::load(&path, &file, reader_options(kind), columns, record.rows)?;
        let open = Arc::new(OpenFile {
            path,
            file,
            metadata,
            pages: Pages::default(),
            highs: OnceLock::new(),
        });
        let mut place = place.lock();
        // Another thread may have opened it meanwhile.
        Ok(place.get_or_insert(open).clone())
    }

    /// Reads all of a file; fails if it is damaged or missing.
    pub(crate) fn check(&self, kind: FileKind) -> Result<()> {
        let open = self.open(kind)?;
        self.close(kind);
        open.file.check().map_err(|error| read_error(&open.path, error))
    }

    /// Decodes a list of the manifest.
    fn unpacked<'a, T>(&self, list: postcard::Result<&'a [T]>) -> Result<&'a [T]> {
        list.map_err(|error| {
            Error::corrupt(&self.place.directory, format!("its manifest: {error}"))
        })
    }

    /// Returns the consecutive ranges of listings that together are all of the shard.
    pub fn covers(&self) -> Result<&[Cover]> {
        let covers = self.unpacked(self.record.covers.get())?;
        let mut at = ListingOrdinal(0);
        let follow = |cover: &Cover| {
            let begins = std::mem::replace(&mut at, cover.end) == cover.first;
            begins && cover.first < cover.end
        };
        if covers.iter().all(follow) && u64::from(at.0) == self.record.rows(FileKind::Listings) {
            return Ok(covers);
        }
        let detail = "its manifest: the covers of a shard are out of order";
        Err(Error::corrupt(&self.place.directory, detail))
    }

    /// Returns whether any of its entries has several links.
    pub fn has_hardlinks(&self) -> bool {
        !self.record.links.is_empty() || self.record.file(FileKind::Hardlinks).is_some()
    }

    /// Returns the entries with several links in ranges of listings, sorted and disjoint, by listing.
    pub fn hardlinks(&self, listings: &[ListingRange]) -> Result<Vec<HardLink>> {
        let within = |link: &HardLink| holds(listings, link.listing);
        if self.record.file(FileKind::Hardlinks).is_none() {
            let links = self.unpacked(self.record.links.get())?;
            return Ok(links.iter().filter(|link| within(link)).copied().collect());
        }
        let mut found = Vec::new();
        let rows = 0..self.rows(FileKind::Hardlinks);
        let columns = LISTING | DEV | INO | SIZE | BLOCKS;
        for batch in
            self.read(FileKind::Hardlinks, columns, std::slice::from_ref(&rows), BATCH_ROWS)?
        {
            let batch = batch?;
            let ordinals = LISTING.of(&batch)?;
            let (devs, inodes) = (DEV.of(&batch)?, INO.of(&batch)?);
            let (sizes, blocks) = (SIZE.of(&batch)?, BLOCKS.of(&batch)?);
            let links = (0..batch.num_rows()).map(|at| HardLink {
                listing: ordinals.value(at),
                dev: devs.value(at),
                ino: inodes[at],
                size_bytes: sizes[at],
                blocks: blocks[at],
            });
            found.extend(links.filter(within));
        }
        Ok(found)
    }

    /// Returns the statistics of its blocks of listings, by block, owner and group, with extensions
    /// or without. Listings without entries may be in no block. A block with dead listings counts
    /// them.
    pub fn summaries(&self, extensions: bool) -> Result<Vec<BlockSummary>> {
        let mut found = Vec::new();
        if self.record.file(FileKind::Summaries).is_none() {
            return Ok(found);
        }
        let corrupt = |detail: &dyn std::fmt::Display| self.corrupt(FileKind::Summaries, detail);
        let rows = 0..self.rows(FileKind::Summaries);
        let columns = FIRST_LISTING | END_LISTING | UID | GID | SUMMARY;
        let columns = columns | Columns::from(EXTENSIONS).when(extensions);
        for batch in
            self.read(FileKind::Summaries, columns, std::slice::from_ref(&rows), BATCH_ROWS)?
        {
            let batch = batch?;
            let (first, end) = (FIRST_LISTING.of(&batch)?, END_LISTING.of(&batch)?);
            let (uids, gids) = (UID.of(&batch)?, GID.of(&batch)?);
            let encoded = SUMMARY.of(&batch)?;
            let lists = EXTENSIONS.find(&batch);
            for at in 0..batch.num_rows() {
                let listings = first.value(at)..end.value(at);
                if listings.is_empty() || listings.end.row() > self.rows(FileKind::Listings) {
                    return Err(corrupt(&"a block names listings that do not exist"));
                }
                let owner = Ownership { uid: uids[at], gid: gids[at] };
                let list = lists.filter(|lists| !lists.is_null(at)).map(|lists| lists.value(at));
                let summary =
                    summaries::decode(encoded.value(at), list).map_err(|error| corrupt(&error))?;
                found.push(BlockSummary { listings, owner, summary, extensions: list.is_some() });
            }
        }
        Ok(found)
    }

    /// Reads columns of listings, sorted and disjoint, in batches of up to `batch_rows`.
    pub fn read_listings(
        &self,
        columns: impl Into<Columns>,
        listings: &[ListingRange],
        batch_rows: usize,
    ) -> Result<ShardRead> {
        self.read_columns_of(columns.into(), listings, batch_rows)
    }

    fn read_columns_of(
        &self,
        columns: Columns,
        listings: &[ListingRange],
        batch_rows: usize,
    ) -> Result<ShardRead> {
        let rows: Vec<RowRange> = listings.iter().map(ListingOrdinal::rows).collect();
        self.read_columns(FileKind::Listings, columns, &rows, batch_rows)
    }

    /// Returns the smallest and largest value of a column in each row group, where known. Columns
    /// of numbers and times that searches ask for have them; see `column`.
    pub fn bounds(
        &self,
        kind: FileKind,
        column: impl Into<ColumnId>,
    ) -> Result<Vec<Option<(i64, i64)>>> {
        let column = column.into();
        if !column.summands().is_empty() {
            let bounds = column.summands().iter().map(|&summand| self.bounds(kind, summand));
            return Ok(sums_of_bounds(&bounds.collect::<Result<Vec<_>>>()?));
        }
        let open = self.open(kind)?;
        let Some(at) = kind.columns().iter().position(|known| known.name() == column.name()) else {
            return Ok(vec![None; open.metadata.metadata().num_row_groups()]);
        };
        let bounds = open.metadata.metadata().row_groups().iter().map(|group| {
            match group.column(at).statistics()? {
                // Unsigned values of 32 bits are kept as signed ones; those that wrap have no use
                // here.
                Statistics::Int32(values) => {
                    let (min, max) = (*values.min_opt()? as u32, *values.max_opt()? as u32);
                    (min <= max).then_some((i64::from(min), i64::from(max)))
                }
                Statistics::Int64(values) => {
                    let (min, max) = (*values.min_opt()?, *values.max_opt()?);
                    (min <= max).then_some((min, max))
                }
                _ => None,
            }
        });
        Ok(bounds.collect())
    }

    /// Returns the rows of each row group of a file.
    pub fn row_groups(&self, kind: FileKind) -> Vec<RowRange> {
        let rows = self.rows(kind);
        (0..rows)
            .step_by(ROW_GROUP_ROWS)
            .map(|start| start..rows.min(start + ROW_GROUP_ROWS))
            .collect()
    }

    /// Returns the part of the sums in `listings` that lies above 64 bits.
    pub fn highs(&self) -> Result<Arc<Highs>> {
        high::highs_of(&*self.open(FileKind::Listings)?)
    }

    /// Reads columns of the given rows, those of them that the file has. `rows` are sorted and
    /// disjoint. Pages that hold none of them are not read. Blocks.
    pub fn read(
        &self,
        kind: FileKind,
        columns: impl Into<Columns>,
        rows: &[RowRange],
        batch_rows: usize,
    ) -> Result<ShardRead> {
        self.read_columns(kind, columns.into(), rows, batch_rows)
    }

    fn read_columns(
        &self,
        kind: FileKind,
        columns: Columns,
        rows: &[RowRange],
        batch_rows: usize,
    ) -> Result<ShardRead> {
        let open = self.open(kind)?;
        let sums: Vec<ColumnId> =
            columns.iter().filter(|column| !column.summands().is_empty()).collect();
        let summands = sums.iter().flat_map(|sum| sum.summands()).copied();
        let names = columns.iter().chain(summands).map(ColumnId::name);
        let mask = ProjectionMask::columns(open.metadata.parquet_schema(), names);
        let (groups, selection) = select(&self.row_groups(kind), rows);
        let build = || {
            ParquetRecordBatchReaderBuilder::new_with_metadata(
                PageFile(open.file.clone()),
                open.metadata.clone(),
            )
            .with_projection(mask)
            .with_row_groups(groups)
            .with_row_selection(selection)
            .with_batch_size(batch_rows)
            .build()
        };
        let reader = parquet_file::guarded(&open.path, build)?;
        Ok(ShardRead { reader, sums, path: open.path.clone() })
    }
}

/// Returns the error of a file of which a block cannot be read, or is damaged.
pub(crate) fn read_error(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::InvalidData => Error::corrupt(path, error),
        _ => Error::io("read", path)(error),
    }
}

/// Returns what a file that cannot be opened means: its generation may be gone or for the writer
/// alone by now.
pub(crate) fn missing(error: Error) -> Error {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    match error {
        Error::Io { path, source, .. } if matches!(source.kind(), NotFound | PermissionDenied) => {
            Error::ShardFile { path, source }
        }
        other => other,
    }
}

/// Returns whether a row or a listing is in one of the ranges, which are sorted and disjoint.
pub fn holds<T: PartialOrd>(ranges: &[Range<T>], row: T) -> bool {
    let behind = ranges.partition_point(|range| range.end <= row);
    ranges.get(behind).is_some_and(|range| range.start <= row)
}

/// Returns the row groups that hold any of the rows, and which rows of those row groups to read.
fn select(row_groups: &[RowRange], rows: &[RowRange]) -> (Vec<usize>, RowSelection) {
    let mut groups = Vec::new();
    let mut selectors = Vec::new();
    let mut ranges = rows.iter().filter(|range| !range.is_empty()).peekable();
    for (number, group) in row_groups.iter().enumerate() {
        if ranges.peek().is_none_or(|range| range.start >= group.end) {
            continue;
        }
        groups.push(number);
        let mut at = group.start;
        while let Some(range) = ranges.peek().filter(|range| range.start < group.end) {
            let (start, end) = (range.start.max(at), range.end.min(group.end));
            selectors.push(RowSelector::skip(start - at));
            selectors.push(RowSelector::select(end - start));
            at = end;
            if range.end > group.end {
                // The rest is in the next row group.
                break;
            }
            ranges.next();
        }
        selectors.push(RowSelector::skip(group.end - at));
    }
    (groups, RowSelection::from(selectors))
}

/// Says how a file of a kind is read: of its footer, only what [`Shard`] uses.
fn reader_options(kind: FileKind) -> ArrowReaderOptions {
    static OPTIONS: LazyLock<[ArrowReaderOptions; FileKind::COUNT]> = LazyLock::new(|| {
        FileKind::ALL.map(|kind| {
            let columns = ArrowSchemaConverter::new().convert(&kind.schema());
            ArrowReaderOptions::new()
                .with_schema(kind.schema())
                .with_parquet_schema(Arc::new(columns.expect("all columns have types of Parquet")))
                .with_column_index_policy(PageIndexPolicy::Skip)
                .with_offset_index_policy(PageIndexPolicy::Optional)
                .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
                .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
        })
    });
    OPTIONS[kind as usize].clone()
}

/// The rows of a read, batch by batch.
pub struct ShardRead {
    reader: ParquetRecordBatchReader,
    /// Columns to be added up from their summands.
    sums: Vec<ColumnId>,
    path: PathBuf,
}

/// Adds the columns that are sums to a batch that has their summands.
fn with_sums(
    batch: RecordBatch,
    sums: &[ColumnId],
) -> std::result::Result<RecordBatch, ArrowError> {
    if sums.is_empty() {
        return Ok(batch);
    }
    let mut fields = batch.schema().fields().to_vec();
    let mut columns = batch.columns().to_vec();
    for sum in sums {
        let mut values = vec![0_i64; batch.num_rows()];
        for summand in sum.summands() {
            let column = batch.column_by_name(summand.name()).ok_or_else(|| {
                ArrowError::SchemaError(format!("the column {} is missing", summand.name()))
            })?;
            // Not `arrow::compute::cast`, which would bring 5 MB of code into the command.
            let summand = Time::of(column).or_else(|| i64::of(column)).ok_or_else(|| {
                ArrowError::SchemaError(format!("the column {} is not a number", summand.name()))
            })?;
            let pairs = values.iter_mut().zip(summand);
            pairs.for_each(|(value, more)| *value = value.wrapping_add(*more));
        }
        fields.push(Arc::new(Field::new(sum.name(), sum.data_type(), false)));
        columns.push(Arc::new(TimestampNanosecondArray::from(values).with_timezone("UTC")));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// Returns the bounds of the sum of columns in each row group, from the bounds of each column.
fn sums_of_bounds(columns: &[Vec<Option<(i64, i64)>>]) -> Vec<Option<(i64, i64)>> {
    let groups = columns.iter().map(Vec::len).min().unwrap_or(0);
    let sum = |group: usize| {
        columns.iter().try_fold((0_i64, 0_i64), |(low, high), bounds| {
            let (first, last) = bounds[group]?;
            // A sum that wraps has no bounds.
            Some((low.checked_add(first)?, high.checked_add(last)?))
        })
    };
    (0..groups).map(sum).collect()
}

impl Iterator for ShardRead {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let ShardRead { reader, sums, path } = self;
        let next = || match reader.next() {
            Some(batch) => batch.and_then(|batch| with_sums(batch, sums)).map(Some),
            None => Ok(None),
        };
        parquet_file::guarded(path, next).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_on_in_the_next_row_group() {
        let row_groups: Vec<RowRange> = vec![0..10, 10..20, 20..30, 30..35];
        for rows in [
            vec![5..25],
            vec![0..35],
            vec![9..11, 12..13, 19..31],
            vec![0..10, 20..30],
            vec![3..4],
            vec![34..35],
            vec![],
        ] {
            let (groups, selection) = select(&row_groups, &rows);
            let held: Vec<usize> =
                groups.iter().flat_map(|&group| row_groups[group].clone()).collect();
            let mut at = 0;
            let mut selected = Vec::new();
            for selector in selection.iter() {
                if !selector.skip {
                    selected.extend_from_slice(&held[at..at + selector.row_count]);
                }
                at += selector.row_count;
            }
            assert_eq!(selected, rows.iter().cloned().flatten().collect::<Vec<_>>(), "{rows:?}");
        }
    }
}
