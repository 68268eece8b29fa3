//! Making derived tables.
//!
//! The query of a derived table runs once for each access class, over what that class holds and
//! nothing else, and its rows are stored in the class. So a row is computed from what all of its
//! readers may read, and each reader gets the rows of the classes that the kernel lets that reader
//! into. Sums and counts are per class; a reader adds them up again.

use super::error::TableError;
use crate::error::{Error, Result};
use crate::exact::LARGE;
use crate::{gufi, plan_session};
use arrow::array::RecordBatch;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::SchemaRef;
use canopy_index::{
    ColumnType, Index, TableColumn, TableKind, TableRecord, TableWriter, Writer, WrittenRows,
    table_schema,
};
use canopy_model::ClassId;
use canopy_read::work::in_parallel;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{DataFrame, SessionContext};
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Longest name of a table, since it is part of names of files.
const NAME_BYTES_MAX: usize = 64;

/// Entries from which on all threads work on one class.
const LARGE_ENTRIES: i64 = 500_000;

/// How many rows a derived table has, and in how many classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct DerivedRows {
    /// Rows of all classes.
    pub rows: u64,
    /// Classes that have any.
    pub classes: u64,
}

/// Checks that a table can have this name: an identifier that needs no quotes, and not the name of
/// one of the index's own tables. Tables added before are not checked.
pub fn check_name(writer: &Writer, name: &str) -> Result<()> {
    if !is_identifier(name) || name.chars().any(|letter| letter.is_ascii_uppercase()) {
        return Err(TableError::BadName(name.to_owned()).into());
    }
    let view = Arc::new(writer.view(None));
    let context = plan_session(&view, 1, false, Arc::default())?;
    gufi::register(&context, view, 1, false)?;
    if context.table_exist(name)? && !writer.tables().iter().any(|table| table.name == name) {
        return Err(TableError::NameOfIndex(name.to_owned()).into());
    }
    let state = context.state();
    let query = format!("SELECT * FROM {name}");
    let statement = state.sql_to_statement(&query, &state.config_options().sql_parser.dialect);
    let named = statement.and_then(|statement| state.resolve_table_references(&statement));
    if !named.is_ok_and(|tables| tables.len() == 1 && tables[0].table() == name) {
        return Err(TableError::NameOfSql(name.to_owned()).into());
    }
    Ok(())
}

/// Returns whether a name can be a column that everybody may know of: no text of the query is.
fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    let first = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
    first
        && name.len() <= NAME_BYTES_MAX
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Returns the record of a derived table whose rows are all to be computed.
fn stale(name: &str) -> TableRecord {
    let kind = TableKind::Derived { columns: Vec::new(), fresh: false };
    TableRecord { name: name.to_owned(), kind }
}

/// Adds a derived table to the next publication of the writer. Blocks.
pub fn derive(writer: &mut Writer, name: &str, query: &str, threads: usize) -> Result<DerivedRows> {
    check_name(writer, name)?;
    writer.add_table(stale(name), Some(query.to_owned()))?;
    refresh(writer, name, threads)
}

/// Computes a derived table anew for the next publication of the writer. Blocks.
pub fn refresh(writer: &mut Writer, name: &str, threads: usize) -> Result<DerivedRows> {
    if writer.table_query(name).is_some() {
        writer.replace_table(stale(name))?;
    }
    follow(writer, name, threads)
}

/// Computes those rows of a derived table anew that the writer's changes touch, and all of one that
/// is not fresh.
fn follow(writer: &mut Writer, name: &str, threads: usize) -> Result<DerivedRows> {
    let query = writer.table_query(name).map(str::to_owned);
    let query = query.ok_or_else(|| TableError::NotDerived(name.to_owned()))?;
    let threads = threads.max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build()?;
    let empty = Arc::new(writer.view(None));
    let columns = runtime.block_on(async {
        let frame = plan(&plan_session(&empty, threads, false, Arc::default())?, &query).await?;
        // Whether it can run shows when it is planned in full.
        let columns = columns(&frame)?;
        frame.create_physical_plan().await?;
        Ok::<_, Error>(columns)
    })?;
    let classes = writer.classes_to_compute(name, &columns)?;
    let table = Table { name, query: &query, schema: table_schema(&columns) };
    let written = table.write(writer, classes, &runtime, threads)?;
    let made = DerivedRows {
        rows: written.iter().map(|(_, rows)| rows.rows()).sum(),
        classes: written.len() as u64,
    };
    written.into_iter().for_each(|(class, rows)| writer.add_rows(class, rows));
    Ok(made)
}

/// Computes all derived tables anew, as [`follow_all`] does if it has to.
pub fn refresh_all(writer: &mut Writer, threads: usize) -> Result<Vec<(String, Error)>> {
    for name in derived_names(writer) {
        writer.replace_table(stale(&name))?;
    }
    follow_all(writer, threads)
}

fn derived_names(writer: &Writer) -> Vec<String> {
    let derived = |table: &&TableRecord| matches!(table.kind, TableKind::Derived { .. });
    writer.tables().iter().filter(derived).map(|table| table.name.clone()).collect()
}

/// Computes those rows of all derived tables anew that the writer's changes touch. Tables that
/// cannot be computed are published without rows, and are returned with the reason.
pub fn follow_all(writer: &mut Writer, threads: usize) -> Result<Vec<(String, Error)>> {
    let mut failed = Vec::new();
    for name in derived_names(writer) {
        if let Err(error) = follow(writer, &name, threads) {
            writer.replace_table(stale(&name))?;
            failed.push((name, error));
        }
    }
    writer.derived_are_computed();
    Ok(failed)
}

/// Plans a query that must do nothing but select.
async fn plan(context: &SessionContext, query: &str) -> Result<DataFrame> {
    let options =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let plan = gufi::plan_own(context, query).await?;
    options.verify_plan(&plan)?;
    let frame = context.execute_logical_plan(plan).await?;
    match frame.logical_plan() {
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_) => {
            Err(TableError::NotSelect.into())
        }
        _ => Ok(frame),
    }
}

/// Returns the columns of the answer as they are stored. Everybody may know their names, so none is
/// made of the query's text.
fn columns(frame: &DataFrame) -> Result<Vec<TableColumn>> {
    let mut columns: Vec<TableColumn> = Vec::new();
    let mut names = HashSet::new();
    for field in frame.schema().fields() {
        let name = field.name();
        if !is_identifier(name) {
            return Err(TableError::UnnamedColumn(name.clone()).into());
        }
        if !names.insert(name.clone()) {
            return Err(TableError::SameColumns(name.clone()).into());
        }
        let holds = match field.data_type() {
            // Sums of whole numbers are kept in 64 bits; one that needs more is an error.
            sum if *sum == LARGE => Some(ColumnType::Int),
            data_type => ColumnType::of(data_type),
        };
        let holds = holds.ok_or_else(|| TableError::ColumnType {
            column: name.clone(),
            data_type: field.data_type().to_string(),
        })?;
        columns.push(TableColumn { name: name.clone(), holds });
    }
    Ok(columns)
}

/// A table in the making.
struct Table<'a> {
    name: &'a str,
    query: &'a str,
    schema: SchemaRef,
}

impl Table<'_> {
    /// Runs the query over each class. All threads work on one large class, and each on a small one
    /// of its own.
    fn write(
        &self,
        writer: &Writer,
        classes: Vec<ClassId>,
        runtime: &Runtime,
        threads: usize,
    ) -> Result<Vec<(ClassId, WrittenRows)>> {
        let (mut large, mut small) = (Vec::new(), Vec::new());
        for class in classes {
            let (_, _, totals) = writer.view(Some(class)).extent(None)?;
            let entries = totals.entries + totals.dirs;
            if entries >= LARGE_ENTRIES { large.push(class) } else { small.push(class) }
        }
        let written = Mutex::new(Vec::new());
        let keep = |class, rows: Option<WrittenRows>| {
            written.lock().extend(rows.map(|rows| (class, rows)));
        };
        for class in large {
            keep(class, runtime.block_on(self.of_class(writer, class, threads))?);
        }
        in_parallel(threads, &small, |&class| -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            keep(class, runtime.block_on(self.of_class(writer, class, 1))?);
            Ok(())
        })?;
        Ok(written.into_inner())
    }

    /// Runs the query over one class. `None` if it gives no rows.
    async fn of_class(
        &self,
        writer: &Writer,
        class: ClassId,
        threads: usize,
    ) -> Result<Option<WrittenRows>> {
        let view: Arc<Index> = Arc::new(writer.view(Some(class)));
        let frame = plan(&plan_session(&view, threads, false, Arc::default())?, self.query).await?;
        let mut stream = frame.execute_stream().await?;
        let mut file: Option<TableWriter> = None;
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            let file = match &mut file {
                Some(file) => file,
                none => none.insert(writer.table_writer(class, self.name)?),
            };
            file.write(&self.stored(&batch)?)?;
        }
        Ok(file.map(TableWriter::finish).transpose()?)
    }

    /// Rows in the types that are stored.
    fn stored(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().zip(self.schema.fields());
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let columns =
            columns.map(|(column, field)| cast_with_options(column, field.data_type(), &options));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>();
        let batch = columns.and_then(|columns| RecordBatch::try_new(self.schema.clone(), columns));
        Ok(batch.map_err(TableError::Rows)?)
    }
}
