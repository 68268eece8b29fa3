//! Tables that the administrator adds: what an index knows of them, and the files of derived ones.
//!
//! An *attached* table is a file somewhere else; the index keeps where it is, and whoever asks for
//! it opens it, so that the kernel decides. The rows of a *derived* table are in the index: for
//! each class a Parquet file with what the table's query gives of that class alone, in the class's
//! directory. Records are public, with names and types of columns; queries are not. A change of a
//! source takes away all derived rows, since they may tell of what was closed meanwhile.

use crate::block_file::BlockFile;
use crate::column::time_type;
use crate::disk::{Disk, DiskFile};
use crate::encoder::write_error;
use crate::error::Result;
use crate::parquet_file::{self, PageFile};
use crate::schema::ROW_GROUP_ROWS;
use crate::shard::read_error;
use crate::shard_record::FileRecord;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use canopy_model::Generation;
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table that was added to the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRecord {
    /// Its name in SQL.
    pub name: String,
    /// Where its rows are.
    pub kind: TableKind,
}

impl TableRecord {
    /// Returns whether its rows are computed from the index.
    pub fn is_derived(&self) -> bool {
        matches!(self.kind, TableKind::Derived { .. })
    }
}

/// Where the rows of a table are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TableKind {
    /// In a file elsewhere.
    Attached {
        /// Absolute path of the file, escaped.
        file: String,
        /// Format of the file.
        format: TableFormat,
    },
    /// In the directories of the classes.
    Derived {
        /// Its columns.
        columns: Vec<TableColumn>,
        /// Whether they are computed from the sources as they are now. If not, there are no rows.
        fresh: bool,
    },
}

/// The format of an attached file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TableFormat {
    /// Comma-separated values with a header.
    Csv,
    /// A Parquet file.
    Parquet,
    /// A table of an SQLite database.
    Sqlite {
        /// Its name.
        table: String,
    },
}

/// A column of a derived table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Type of its values.
    pub holds: ColumnType,
}

/// The types of columns of derived tables. All may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColumnType {
    /// Text.
    Text,
    /// Whole numbers of 64 bits.
    Int,
    /// Whole numbers of 64 bits that are not negative.
    UInt,
    /// Whole numbers of 32 bits that are not negative.
    UInt32,
    /// Numbers.
    Float,
    /// Truth values.
    Bool,
    /// Times in UTC, in nanoseconds.
    Time,
    /// Bytes.
    Bytes,
}

impl ColumnType {
    /// Returns the type that holds values of a type of Arrow; `None` if none does.
    pub fn of(data_type: &DataType) -> Option<Self> {
        use DataType::*;
        Some(match data_type {
            Utf8 | LargeUtf8 | Utf8View | Null => ColumnType::Text,
            Int8 | Int16 | Int32 | Int64 => ColumnType::Int,
            UInt8 | UInt16 | UInt32 => ColumnType::UInt32,
            UInt64 => ColumnType::UInt,
            Float16 | Float32 | Float64 => ColumnType::Float,
            Boolean => ColumnType::Bool,
            Timestamp(..) | Date32 | Date64 => ColumnType::Time,
            Binary | LargeBinary | BinaryView => ColumnType::Bytes,
            Dictionary(_, values) => return Self::of(values),
            _ => return None,
        })
    }

    /// Returns the type of Arrow that it is kept as.
    pub fn data_type(self) -> DataType {
        match self {
            ColumnType::Text => DataType::Utf8,
            ColumnType::Int => DataType::Int64,
            ColumnType::UInt => DataType::UInt64,
            ColumnType::UInt32 => DataType::UInt32,
            ColumnType::Float => DataType::Float64,
            ColumnType::Bool => DataType::Boolean,
            ColumnType::Time => time_type(),
            ColumnType::Bytes => DataType::Binary,
        }
    }
}

/// Returns the columns of a derived table as Arrow has them.
pub fn table_schema(columns: &[TableColumn]) -> SchemaRef {
    let field = |column: &TableColumn| Field::new(&column.name, column.holds.data_type(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// The rows that one class has of a derived table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TableFileRecord {
    /// Name of the table.
    pub(crate) table: String,
    /// Generation in which the file was written.
    pub(crate) generation: Generation,
    pub(crate) file: FileRecord,
    /// CRC-32 of each block of 64 KiB of the file.
    pub(crate) sums: Vec<u32>,
}

impl TableFileRecord {
    /// Returns whether its file is in the directory of its class.
    pub(crate) fn is_sound(&self) -> bool {
        self.table.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    /// Reads all of its file in the directory of its class; fails if that is damaged or missing.
    pub(crate) fn check(&self, directory: &Path) -> Result<()> {
        let path = directory.join(self.file_name());
        let file = BlockFile::open(&path, self.file.bytes, self.sums.clone())?;
        file.check().map_err(|error| read_error(&path, error))
    }

    pub(crate) fn file_name(&self) -> String {
        crate::names::table_file(&self.table, self.generation)
    }
}

/// A file with rows of a derived table that the caller may read.
#[derive(Debug)]
pub struct TableFile {
    record: TableFileRecord,
    path: PathBuf,
}

impl TableFile {
    pub(crate) fn new(record: TableFileRecord, directory: &Path) -> Self {
        let path = directory.join(record.file_name());
        TableFile { record, path }
    }

    /// Returns how many rows it has.
    pub fn rows(&self) -> u64 {
        self.record.file.rows
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.record.file.bytes
    }

    /// Reads columns of all rows, in the order of the table. `schema` is that of the whole table.
    /// Blocks.
    pub fn read(
        &self,
        schema: &SchemaRef,
        columns: &[&str],
        batch_rows: usize,
    ) -> Result<TableRead> {
        let file = BlockFile::open(&self.path, self.record.file.bytes, self.record.sums.clone())?;
        let options = ArrowReaderOptions::new()
            .with_schema(schema.clone())
            .with_offset_index_policy(PageIndexPolicy::Optional);
        let (width, rows) = (schema.fields().len(), self.record.file.rows);
        let metadata = parquet_file::load(&self.path, &file, options, width, rows)?;
        let mask = ProjectionMask::columns(metadata.parquet_schema(), columns.iter().copied());
        let build = || {
            ParquetRecordBatchReaderBuilder::new_with_metadata(PageFile(file), metadata)
                .with_projection(mask)
                .with_batch_size(batch_rows)
                .build()
        };
        let reader = parquet_file::guarded(&self.path, build)?;
        Ok(TableRead { reader, path: self.path.clone() })
    }
}

/// The rows of a read, batch by batch.
pub struct TableRead {
    reader: ParquetRecordBatchReader,
    path: PathBuf,
}

impl Iterator for TableRead {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let TableRead { reader, path } = self;
        parquet_file::guarded(path, || reader.next().transpose()).transpose()
    }
}

/// The rows of one class, written but not published.
pub struct WrittenRows(pub(crate) TableFileRecord);

impl WrittenRows {
    /// Returns how many they are.
    pub fn rows(&self) -> u64 {
        self.0.file.rows
    }
}

/// Writes the rows of one class.
pub struct TableWriter {
    path: PathBuf,
    writer: ArrowWriter<DiskFile>,
    record: TableFileRecord,
}

impl TableWriter {
    pub(crate) fn create(
        disk: &Disk,
        directory: &Path,
        table: &str,
        generation: Generation,
        schema: SchemaRef,
    ) -> Result<Self> {
        let file = FileRecord { rows: 0, bytes: 0 };
        let record =
            TableFileRecord { table: table.to_owned(), generation, file, sums: Vec::new() };
        let path = directory.join(record.file_name());
        let properties = WriterProperties::builder()
            .set_created_by("canopy".to_owned())
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_statistics_enabled(EnabledStatistics::None)
            .set_compression(Compression::LZ4_RAW)
            .build();
        let file = disk.create(&path, 0o644)?;
        let writer = ArrowWriter::try_new(file, schema, Some(properties))
            .map_err(|error| write_error(&path, error))?;
        Ok(TableWriter { path, writer, record })
    }

    /// Adds rows, in the schema of the table.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.record.file.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|error| write_error(&self.path, error))
    }

    /// Ends the file.
    pub fn finish(self) -> Result<WrittenRows> {
        let TableWriter { path, writer, mut record } = self;
        let file = writer.into_inner().map_err(|error| write_error(&path, error))?;
        (record.file.bytes, record.sums) = file.finish(false)?;
        Ok(WrittenRows(record))
    }
}
