//! Derived tables: rows that the index holds, in the directories of the classes that they were
//! computed from.

use crate::queue::{self, Batches};
use crate::restriction::Restriction;
use crate::scan::Extent;
use crate::tables::external;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use canopy_index::{Index, TableColumn, TableFile, table_schema};
use canopy_read::plan::BATCH_ROWS;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// A derived table as its caller sees it.
pub(super) struct DerivedTable {
    index: Arc<Index>,
    name: String,
    schema: SchemaRef,
}

impl DerivedTable {
    /// Describes a table of an index to the engine; opens nothing.
    pub(super) fn new(index: Arc<Index>, name: &str, columns: &[TableColumn]) -> Self {
        DerivedTable { index, name: name.to_owned(), schema: table_schema(columns) }
    }
}

impl fmt::Debug for DerivedTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DerivedTable({})", self.name)
    }
}

#[async_trait]
impl TableProvider for DerivedTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        let restriction = Restriction::new(filters);
        let index = restriction.view(&self.index)?;
        let files = VecDeque::from(index.table_files(&self.name));
        let (all, threads) = (self.schema.clone(), session.config().target_partitions());
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
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    })))
}
