//! Flat rows: one for every entry, directories among them, with its full path.

use crate::error::Result;
use arrow::array::{
    ArrayRef, RecordBatch, StringArray, StringBuilder, UInt32Array, UInt64Array, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use canopy_index::column::*;
use canopy_index::{ColumnId, FileKind};
use canopy_model::{FileType, base_name};
use canopy_read::inode::{ENTRY, one_row};
use canopy_read::locate::{Start, absolute_path};
use canopy_read::plan::{self, Placed, Unit};
use canopy_read::work::by_workers;
use canopy_text::{group_name, user_name};
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

/// Takes the rows that one worker makes.
pub(super) trait BatchSink {
    /// Takes a batch with the columns of [`schema`].
    fn batch(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Tells that the worker has no more.
    fn finish(self) -> Result<()>;
}

/// A column of flat rows.
#[derive(Clone, Copy)]
enum FlatColumn {
    Path,
    Source,
    Type,
    Depth,
    /// Names of the owner and of the group.
    User,
    Group,
    /// As the index has it.
    Stored(ColumnId),
}

use FlatColumn::{Depth, Group, Path, Source, Stored, Type, User};

/// The columns, in order.
const COLUMNS: [FlatColumn; 22] = [
    Path,
    Source,
    Stored(NAME.id()),
    Type,
    Depth,
    Stored(INO.id()),
    Stored(MODE.id()),
    Stored(NLINK.id()),
    Stored(UID.id()),
    Stored(GID.id()),
    User,
    Group,
    Stored(SIZE.id()),
    Stored(BLKSIZE.id()),
    Stored(BLOCKS.id()),
    Stored(ATIME.id()),
    Stored(MTIME.id()),
    Stored(CTIME.id()),
    Stored(BTIME.id()),
    Stored(TARGET.id()),
    Stored(RDEV.id()),
    Stored(XATTRS.id()),
];

impl FlatColumn {
    fn field(self) -> Field {
        match self {
            Path => Field::new("path", DataType::Utf8, false),
            Source => Field::new("source", DataType::Utf8, false),
            Type => Field::new("type", DataType::Utf8, false),
            Depth => Field::new("depth", DataType::UInt32, false),
            User => Field::new("user", DataType::Utf8, true),
            Group => Field::new("group", DataType::Utf8, true),
            Stored(column) => Field::new(column.name(), column.data_type(), column.is_nullable()),
        }
    }
}

/// Gives the columns of flat rows. Texts are escaped, times are UTC.
pub(super) fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> =
        LazyLock::new(|| Arc::new(Schema::new(COLUMNS.map(FlatColumn::field).to_vec())));
    SCHEMA.clone()
}

/// Gives the rows of all starts to sinks, one a worker, in no certain order.
pub(super) fn write<S: BatchSink>(
    starts: &[Start],
    threads: usize,
    sink: impl Fn() -> Result<S> + Sync,
) -> Result<()> {
    // Rows below each start, and the start itself, whose row no listing below it holds.
    let mut sources: Vec<(&Start, Option<Unit>)> = Vec::new();
    for start in starts {
        sources.push((start, None));
        if !start.is_dir() {
            continue;
        }
        for range in plan::below(&start.view, start.source.id, start.path.as_path())? {
            for kind in [FileKind::Dirs, FileKind::Entries] {
                let units = range.units(kind, &range.rows(kind)?);
                sources.extend(units.into_iter().map(|unit| (start, Some(unit))));
            }
        }
    }
    let work = |sink: &mut S, (start, unit): &(&Start, Option<Unit>)| {
        let Some(unit) = unit else { return sink.batch(&start_row(start)?) };
        for placed in unit.read_placed(ENTRY, &unit.rows, false)? {
            sink.batch(&flat(start, &placed?)?)?;
        }
        Ok(())
    };
    by_workers(threads, &sources, |_| sink(), work, S::finish)
}

/// Makes flat rows of rows of `entries` or `dirs`.
fn flat(start: &Start, placed: &Placed) -> Result<RecordBatch> {
    let batch = &placed.batch;
    let (listings, names) = (LISTING.of(batch)?, NAME.of(batch)?);
    let rows = batch.num_rows();
    let mut paths = StringBuilder::with_capacity(rows, rows * 80);
    let mut depths = Vec::with_capacity(rows);
    let mut directory = String::new();
    let (mut last, mut depth) = (None, 0);
    for (at, listing) in listings.iter().enumerate() {
        if last != Some(listing) {
            let head = placed.listing(at)?;
            directory = absolute_path(&start.source, head.path);
            if !directory.ends_with('/') {
                directory.push('/');
            }
            (last, depth) = (Some(listing), head.depth() + 1);
        }
        // A builder of strings never fails.
        let _ = paths.write_str(&directory);
        paths.append_value(names.value(at));
        depths.push(depth);
    }
    with_columns(&start.source.name, batch, Arc::new(paths.finish()), depths)
}

/// Makes the row of a start itself.
fn start_row(start: &Start) -> Result<RecordBatch> {
    let path = absolute_path(&start.source, start.path.as_path());
    let batch = one_row(base_name(&path), &start.inode);
    with_columns(&start.source.name, &batch, repeated(&path, 1), vec![start.depth()])
}

/// Makes flat rows of a batch with the columns of inodes, and of paths and depths.
fn with_columns(
    source: &str,
    batch: &RecordBatch,
    paths: ArrayRef,
    depths: Vec<u32>,
) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let depths: ArrayRef = Arc::new(UInt32Array::from(depths));
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(COLUMNS.len());
    for column in COLUMNS {
        columns.push(match column {
            Path => paths.clone(),
            Source => repeated(source, rows),
            Type => {
                let letters = MODE.of(batch)?.iter().map(|&mode| letter(mode));
                Arc::new(StringArray::from_iter_values(letters))
            }
            Depth => depths.clone(),
            User => named(UID.of(batch)?, user_name),
            Group => named(GID.of(batch)?, group_name),
            Stored(column) => match batch.column_by_name(column.name()) {
                Some(values) => values.clone(),
                None if column.is_nullable() => new_null_array(&column.data_type(), rows),
                // Directories have no rdev.
                None => Arc::new(UInt64Array::from(vec![0; rows])),
            },
        });
    }
    Ok(RecordBatch::try_new(schema(), columns).map_err(std::io::Error::other)?)
}

fn letter(mode: u32) -> String {
    FileType::of_mode(mode).letter().to_string()
}

fn repeated(text: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)))
}

/// Gives the names of ids. Neighbours mostly have the same.
fn named(ids: &[u32], name: fn(u32) -> Option<String>) -> ArrayRef {
    let mut names = StringBuilder::with_capacity(ids.len(), ids.len() * 8);
    let mut last: Option<(u32, Option<String>)> = None;
    for &id in ids {
        let known = last.as_ref().is_some_and(|(known, _)| *known == id);
        if !known {
            last = Some((id, name(id)));
        }
        names.append_option(last.as_ref().and_then(|(_, name)| name.as_deref()));
    }
    Arc::new(names.finish())
}
