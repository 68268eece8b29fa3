//! Flat rows: one for every entry, directories among them, with its full path.

use super::xattrs::{self, Xattrs};
use crate::error::Result;
use arrow::array::{
    ArrayRef, RecordBatch, StringArray, StringBuilder, UInt32Array, UInt64Array, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use canopy_index::column::time_type;
use canopy_index::{FileKind, RowRange, Shard};
use canopy_model::{FileType, base_name};
use canopy_read::columns::{INODE, numbers, row_of, strings};
use canopy_read::listings::ListingHeads;
use canopy_read::locate::{Start, absolute_path};
use canopy_read::work::by_workers;
use canopy_text::{group_name, user_name};
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

/// Rows of a batch.
pub(super) const BATCH_ROWS: usize = 8192;

/// Takes the rows that one worker makes.
pub(super) trait Sink {
    /// Takes a batch with the columns of [`schema`].
    fn batch(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Says that the worker has no more.
    fn finish(self) -> Result<()>;
}

/// The columns. Texts are escaped, times are UTC.
pub(super) fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
        let number = |name: &str| {
            let schema = FileKind::Entries.schema();
            let field = schema.field_with_name(name).cloned();
            field.unwrap_or_else(|_| Field::new(name, time_type(), false))
        };
        let mut fields: Vec<Field> =
            ["path", "source", "name", "type"].map(|name| text(name, false)).into();
        fields.push(Field::new("depth", DataType::UInt32, false));
        fields.extend(["ino", "mode", "nlink", "uid", "gid"].map(number));
        fields.extend(["user", "group"].map(|name| text(name, true)));
        fields
            .extend(["size", "blksize", "blocks", "atime", "mtime", "ctime", "btime"].map(number));
        fields.extend([text("target", true), number("rdev"), text(xattrs::COLUMN, true)]);
        Arc::new(Schema::new(fields))
    });
    SCHEMA.clone()
}

/// A piece of work.
enum Piece<'a> {
    /// The row of a start itself, which no listing below it holds.
    Start(&'a Start),
    /// Rows of one row group.
    Rows { start: &'a Start, shard: &'a Shard, kind: FileKind, rows: RowRange },
}

/// Gives the rows of all starts to sinks, one a worker, in no certain order.
pub(super) fn write<S: Sink>(
    starts: &[Start],
    threads: usize,
    sink: impl Fn() -> Result<S> + Sync,
) -> Result<()> {
    let mut pieces = Vec::new();
    for start in starts {
        pieces.push(Piece::Start(start));
        if !start.is_dir() {
            continue;
        }
        for shard in start.view.shards_of(start.source.id) {
            let listings = shard.listings_below(&start.path)?;
            if listings.is_empty() {
                continue;
            }
            let (entries, dirs) = shard.rows_of(listings)?;
            for (kind, range) in [(FileKind::Dirs, dirs), (FileKind::Entries, entries)] {
                for group in shard.row_groups(kind) {
                    let rows = range.start.max(group.start)..range.end.min(group.end);
                    if !rows.is_empty() {
                        pieces.push(Piece::Rows { start, shard, kind, rows });
                    }
                }
            }
        }
    }
    let work = |sink: &mut S, piece: &Piece<'_>| match piece {
        Piece::Start(start) => sink.batch(&start_row(start)?),
        Piece::Rows { start, shard, kind, rows } => {
            let mut columns = INODE.to_vec();
            columns.extend(["listing", "name", "target", "rdev", xattrs::COLUMN]);
            for batch in shard.read(*kind, &columns, std::slice::from_ref(rows), BATCH_ROWS)? {
                sink.batch(&flat(start, shard, *kind, &batch?)?)?;
            }
            Ok(())
        }
    };
    by_workers(threads, &pieces, |_| sink(), work, S::finish)
}

/// Flat rows from rows of `entries` or `dirs`.
fn flat(start: &Start, shard: &Shard, kind: FileKind, batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let listings = numbers::<UInt32Type>(batch, "listing").values();
    let heads = ListingHeads::read(shard, listings)?;
    let names = strings(batch, "name");
    let mut paths = StringBuilder::with_capacity(rows, rows * 80);
    let mut depths = Vec::with_capacity(rows);
    let mut directory = String::new();
    let (mut last, mut depth) = (None, 0);
    for (at, &listing) in listings.iter().enumerate() {
        if last != Some(listing) {
            let bad = || shard.corrupt(kind, "it names a listing that does not exist");
            let head = heads.get(listing).ok_or_else(bad)?;
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
    with_columns(&start.source.name, batch, Arc::new(paths.finish()), &depths)
}

/// The row of a start itself.
fn start_row(start: &Start) -> Result<RecordBatch> {
    let path = absolute_path(&start.source, &start.path);
    let batch = row_of(base_name(&path), &start.inode);
    with_columns(&start.source.name, &batch, repeated(&path, 1), &[start.depth()])
}

/// Flat rows from a batch with the columns of inodes, and from paths and depths.
fn with_columns(
    source: &str,
    batch: &RecordBatch,
    paths: ArrayRef,
    depths: &[u32],
) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let modes = numbers::<UInt32Type>(batch, "mode").values();
    let schema = schema();
    let columns = schema.fields().iter().map(|field| -> ArrayRef {
        match field.name().as_str() {
            "path" => paths.clone(),
            "source" => repeated(source, rows),
            "type" => {
                Arc::new(StringArray::from_iter_values(modes.iter().map(|&mode| letter(mode))))
            }
            "depth" => Arc::new(UInt32Array::from(depths.to_vec())),
            "user" => named(numbers::<UInt32Type>(batch, "uid").values(), user_name),
            "group" => named(numbers::<UInt32Type>(batch, "gid").values(), group_name),
            xattrs::COLUMN => {
                let xattrs = Xattrs::of(batch);
                Arc::new((0..rows).map(|at| xattrs.names(at)).collect::<StringArray>())
            }
            name => match (batch.column_by_name(name), field.is_nullable()) {
                (Some(column), _) => column.clone(),
                (None, true) => new_null_array(field.data_type(), rows),
                // Directories have no rdev.
                (None, false) => Arc::new(UInt64Array::from(vec![0; rows])),
            },
        }
    });
    let columns: Vec<ArrayRef> = columns.collect();
    Ok(RecordBatch::try_new(schema.clone(), columns).map_err(std::io::Error::other)?)
}

fn letter(mode: u32) -> String {
    FileType::of_mode(mode).letter().to_string()
}

fn repeated(text: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)))
}

/// Names of ids. Neighbours mostly have the same.
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
