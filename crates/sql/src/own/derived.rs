//! Derived tables: rows that the index holds, in the directories of the classes that they were
//! computed from.

use crate::provider::{Provider, ScanRequest, Scannable};
use crate::queue::{self, Batches};
use crate::scan::Extent;
use crate::tables::{batch_of, external};
use arrow::datatypes::SchemaRef;
use canopy_index::{Index, TableColumn, TableFile, table_schema};
use canopy_read::plan::BATCH_ROWS;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use std::collections::VecDeque;
use std::sync::Arc;

/// A derived table as its caller sees it.
#[derive(Debug)]
pub(super) struct DerivedTable {
    name: String,
}

impl DerivedTable {
    /// Describes a table of an index to the engine; opens nothing.
    pub(super) fn new(index: Arc<Index>, name: &str, columns: &[TableColumn]) -> Provider<Self> {
        let table = DerivedTable { name: name.to_owned() };
        Provider { index, schema: table_schema(columns), table }
    }
}

impl Scannable for DerivedTable {
    fn scan(&self, request: ScanRequest<'_>) -> Result<Arc<dyn ExecutionPlan>> {
        let ScanRequest { session, seen, schema, limit, .. } = request;
        let files = seen.index.table_files(&self.name).map_err(external)?;
        let files = VecDeque::from(files);
        let (all, threads) = (request.all.clone(), session.config().target_partitions());
        let wanted = schema.clone();
        let extent =
            Extent { table: self.name.clone(), counts: vec![("files", files.len(), files.len())] };
        queue::scan(extent, schema, files, threads, limit, move |file| rows(&file, &all, &wanted))
    }
}

fn rows(file: &TableFile, all: &SchemaRef, schema: &SchemaRef) -> Result<Batches> {
    let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let read = file.read(all, &columns, BATCH_ROWS).map_err(external)?;
    let schema = schema.clone();
    Ok(Box::new(read.map(move |batch| {
        let batch = batch.map_err(external)?;
        let columns = schema.fields().iter().map(|field| batch.schema().index_of(field.name()));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        let columns = columns.into_iter().map(|at| batch.column(at).clone()).collect();
        Ok(batch_of(&schema, columns, batch.num_rows())?)
    })))
}
