//! Makes rows of the tables of rows of those that the shards' files hold.

use super::decoded;
use super::prefilter::Prefilter;
use super::queue::Batches;
use super::seen::Unlisted;
use super::tables::TableColumn::{Decoded, Depth, Dev, Path, Source, Stored, Type};
use super::tables::{Table, TableColumn, Work, batch_of, external};
use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, StringArray, StringBuilder, TimestampNanosecondArray,
    UInt32Array, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::take_record_batch;
use arrow::datatypes::{Schema, SchemaRef, TimestampNanosecondType};
use canopy_index::column::*;
use canopy_index::{ColumnId, Columns, FileKind, SourceRecord};
use canopy_model::{FileType, SourcePath, base_name};
use canopy_read::Inode;
use canopy_read::inode::one_row;
use canopy_read::listings::depth;
use canopy_read::locate::{absolute_path, root_inode};
use canopy_read::plan::{Placed, Unit};
use datafusion::error::Result;
use std::sync::Arc;

/// Some columns of a table.
#[derive(Debug)]
pub(super) struct Projection {
    /// The table.
    pub(super) table: &'static Table,
    /// The columns, in the order that was asked for.
    pub(super) columns: Vec<TableColumn>,
    /// The schema of these columns in the engine.
    pub(super) schema: SchemaRef,
}

/// Reads rows of a table.
#[derive(Clone)]
pub(super) struct Reader {
    answer: Arc<Projection>,
    prefilter: Option<Arc<(Projection, Prefilter)>>,
}

/// Closes the files of a unit when its rows have been read, or nobody wants more of them.
struct Closing(Unit);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Reader {
    /// Makes a reader of the columns that are asked for, which first looks for the rows that pass a
    /// prefilter.
    pub(super) fn new(answer: Projection, prefilter: Option<(Projection, Prefilter)>) -> Self {
        Reader { answer: Arc::new(answer), prefilter: prefilter.map(Arc::new) }
    }

    /// Gives the rows of a piece of work, in batches.
    pub(super) fn read(&self, work: Work) -> Result<Batches> {
        match work {
            Work::Unit(source, unit) => self.unit(source, Closing(unit)),
            Work::Root(source) => Ok(Box::new(std::iter::once(self.answer.root(&source)))),
            Work::Unlisted(entry) => Ok(Box::new(std::iter::once(self.answer.unlisted(&entry)))),
        }
    }

    fn unit(&self, source: Arc<SourceRecord>, unit: Closing) -> Result<Batches> {
        let selected = match self.prefilter.as_deref() {
            Some((first, prefilter)) => {
                let unit = &unit.0;
                let read = unit.read(first.file_columns()).map_err(external)?;
                let batches =
                    read.map(|batch| first.batch(&source, unit, batch.map_err(external)?));
                prefilter.select(&unit.rows, batches)?
            }
            None => unit.0.rows.clone(),
        };
        if selected.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let answer = self.answer.clone();
        let of_values = answer.table.decoder.is_some();
        let columns = answer.file_columns() | decoded::columns().when(of_values);
        let read = unit.0.read_rows(columns, &selected).map_err(external)?;
        let unit = Arc::new(unit);
        Ok(Box::new(read.flat_map(move |batch| -> Batches {
            let (answer, source, unit) = (answer.clone(), source.clone(), unit.clone());
            let pieces = batch.map_err(external).and_then(|batch| match of_values {
                true => decoded::pieces(batch),
                false => Ok(vec![batch]),
            });
            match pieces {
                Err(error) => Box::new(std::iter::once(Err(error))),
                Ok(pieces) => Box::new(
                    pieces
                        .into_iter()
                        .map(move |piece| answer.batch(&source, &unit.0, answer.decoded(piece)?)),
                ),
            }
        })))
    }
}

impl Projection {
    fn has(&self, column: TableColumn) -> bool {
        self.columns.contains(&column)
    }

    /// Returns the columns of the file that its own are made of.
    fn file_columns(&self) -> Columns {
        let mut columns = Columns::NONE;
        for column in &self.columns {
            columns.add(match (column, self.table.kind) {
                (Path, FileKind::Listings) => PATH.into(),
                (Path, FileKind::Usage) | (Depth | Dev, _) => LISTING.into(),
                (Path, FileKind::Xattrs) => VALUE_PATH | NAME,
                (Path, _) => LISTING | NAME,
                (Source, _) => Columns::NONE,
                (Type, _) => MODE.into(),
                (Stored(column), _) => (*column).into(),
                (Decoded(_), _) => Columns::NONE,
            });
        }
        columns
    }

    /// Makes rows of values of extended attributes, if those of the table are made of them.
    fn decoded(&self, batch: RecordBatch) -> Result<RecordBatch> {
        match self.table.decoder {
            Some(decoder) => decoded::decode(decoder, &batch),
            None => Ok(batch),
        }
    }

    /// Makes its columns of those of rows of a file.
    fn batch(&self, source: &SourceRecord, unit: &Unit, batch: RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let placed = match LISTING.is_in(&batch) {
            true => Some(Placed::new(&unit.shard, unit.kind, batch.clone(), self.has(Dev))),
            false => None,
        };
        let placed = placed.transpose().map_err(external)?;
        let column = |column: &TableColumn| -> canopy_read::Result<ArrayRef> {
            Ok(match column {
                Path => paths(source, unit.kind, &batch, placed.as_ref())?,
                Source => repeated(&source.name, rows),
                Depth => {
                    let listings = placed_rows(placed.as_ref())?.listings()?;
                    let depths = listings.map(|listing| Ok(listing?.depth() + 1));
                    Arc::new(UInt32Array::from(depths.collect::<canopy_read::Result<Vec<u32>>>()?))
                }
                Dev => {
                    let listings = placed_rows(placed.as_ref())?.listings()?;
                    let devs = listings.map(|listing| Ok(listing?.dev.map(|dev| dev.0)));
                    Arc::new(devs.collect::<canopy_read::Result<UInt64Array>>()?)
                }
                Type => {
                    let modes = MODE.of(&batch)?.iter();
                    let letter = |&mode: &u32| FileType::of_mode(mode).letter().to_string();
                    Arc::new(StringArray::from_iter_values(modes.map(letter)))
                }
                Stored(column) => stored(*column, &batch)?,
                Decoded(column) => column.array(&batch)?.clone(),
            })
        };
        let columns: canopy_read::Result<Vec<_>> = self.columns.iter().map(column).collect();
        Ok(batch_of(&self.schema, columns.map_err(external)?, rows)?)
    }

    /// Makes the row of a source's root.
    fn root(&self, source: &SourceRecord) -> Result<RecordBatch> {
        let inode = root_inode(source);
        self.single(source, SourcePath::ROOT, &inode, one_row(base_name(&source.root), &inode))
    }

    /// Makes the rows of an entry of a gate: one, or one for each of its attributes.
    fn unlisted(&self, unlisted: &Unlisted) -> Result<RecordBatch> {
        let Unlisted { source, path, entry } = unlisted;
        let path = path.as_path();
        let row = one_row(path.base_name(), &entry.inode);
        if self.table.kind != FileKind::Xattrs {
            return self.single(source, path, &entry.inode, row);
        }
        let repeat = UInt32Array::from(vec![0; entry.xattrs.len()]);
        let rows = take_record_batch(&row, &repeat)?;
        let mut fields = rows.schema().fields().to_vec();
        let mut columns = rows.columns().to_vec();
        let (keys, values): (Vec<&str>, Vec<&str>) =
            entry.xattrs.iter().map(|(key, value)| (key.as_str(), value.as_str())).unzip();
        for (column, texts) in [(KEY.id(), keys), (VALUE.id(), values)] {
            fields.push(Arc::new(column.field()));
            columns.push(Arc::new(StringArray::from(texts)));
        }
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        self.single(source, path, &entry.inode, self.decoded(rows)?)
    }

    /// Makes its columns of rows of one entry of a source.
    fn single(
        &self,
        source: &SourceRecord,
        path: SourcePath<'_>,
        inode: &Inode,
        rows: RecordBatch,
    ) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let kind = inode.attributes.file_type().letter().to_string();
        let column = |column: &TableColumn| -> canopy_index::Result<ArrayRef> {
            Ok(match column {
                Path => repeated(&absolute_path(source, path), count),
                Source => repeated(&source.name, count),
                Depth => Arc::new(UInt32Array::from(vec![depth(path); count])),
                Type => repeated(&kind, count),
                Dev => Arc::new(UInt64Array::from(vec![inode.dev.0; count])),
                Stored(column) => stored(*column, &rows)?,
                Decoded(column) => column.array(&rows)?.clone(),
            })
        };
        let columns: canopy_index::Result<Vec<_>> = self.columns.iter().map(column).collect();
        Ok(batch_of(&self.schema, columns.map_err(external)?, count)?)
    }
}

/// Makes the absolute paths of rows of a file.
fn paths(
    source: &SourceRecord,
    kind: FileKind,
    batch: &RecordBatch,
    placed: Option<&Placed>,
) -> canopy_read::Result<ArrayRef> {
    let rows = batch.num_rows();
    let mut paths = StringBuilder::with_capacity(rows, rows * 64);
    let mut add = |path: SourcePath<'_>| paths.append_value(absolute_path(source, path));
    match kind {
        FileKind::Listings => {
            PATH.of(batch)?.iter().flatten().for_each(|path| add(SourcePath::escaped(path)))
        }
        FileKind::Xattrs => {
            let (directories, names) = (VALUE_PATH.of(batch)?, NAME.of(batch)?);
            (0..rows).for_each(|at| {
                let directory = SourcePath::escaped(directories.value(at));
                add(directory.child(names.value(at)).as_path())
            });
        }
        FileKind::Usage => {
            for listing in placed_rows(placed)?.listings()? {
                add(listing?.path);
            }
        }
        _ => {
            let names = NAME.of(batch)?;
            for (at, listing) in placed_rows(placed)?.listings()?.enumerate() {
                add(listing?.path.child(names.value(at)).as_path());
            }
        }
    }
    Ok(Arc::new(paths.finish()))
}

/// Takes a column of the file; of births, those that are not known, which are 0 there, are null.
fn stored(column: ColumnId, batch: &RecordBatch) -> canopy_index::Result<ArrayRef> {
    let array = column.array(batch)?;
    let births = array.as_primitive_opt::<TimestampNanosecondType>();
    let Some(births) = births.filter(|_| column == BTIME.id()) else { return Ok(array.clone()) };
    let known: NullBuffer = births.values().iter().map(|birth_ns| *birth_ns != 0).collect();
    let known = Some(known).filter(|known| known.null_count() > 0);
    let births = TimestampNanosecondArray::new(births.values().clone(), known);
    Ok(Arc::new(births.with_data_type(array.data_type().clone())))
}

fn placed_rows(placed: Option<&Placed>) -> canopy_index::Result<&Placed> {
    placed.ok_or(canopy_index::Error::NotRead(LISTING.name()))
}

/// Makes a column of one text.
pub(super) fn repeated(text: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)))
}
