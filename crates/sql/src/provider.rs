//! The common part of the engine's tables over an index. Predicates only prune data that need not
//! be read; the engine checks them again.

use super::restriction::Restriction;
use super::seen::Seen;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use canopy_index::Index;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::fmt;
use std::sync::Arc;

/// A table whose rows are in an index.
pub(super) trait Scannable: fmt::Debug + Send + Sync + 'static {
    /// Plans a scan; reads no rows yet.
    fn scan(&self, request: ScanRequest<'_>) -> Result<Arc<dyn ExecutionPlan>>;
}

/// A query's request to a table.
pub(super) struct ScanRequest<'a> {
    pub(super) session: &'a dyn Session,
    /// The part of the index that the statement sees.
    pub(super) seen: Arc<Seen>,
    /// The schema of all columns of the table.
    pub(super) all: &'a SchemaRef,
    /// The columns of the answer, by their numbers in the table.
    pub(super) columns: Vec<usize>,
    /// The schema of these columns.
    pub(super) schema: SchemaRef,
    /// Predicates, all of which hold for each row of the query's answer.
    pub(super) filters: &'a [Expr],
    /// Bounds that the predicates set on rows.
    pub(super) restriction: Restriction,
    /// How many rows are enough.
    pub(super) limit: Option<usize>,
}

/// A table of an index as the engine takes it.
#[derive(Debug)]
pub(super) struct Provider<T> {
    pub(super) index: Arc<Index>,
    /// The schema of all its columns.
    pub(super) schema: SchemaRef,
    pub(super) table: T,
}

#[async_trait]
impl<T: Scannable> TableProvider for Provider<T> {
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
        let all = &self.schema;
        let columns = projection.cloned().unwrap_or_else(|| (0..all.fields().len()).collect());
        let schema = Arc::new(all.project(&columns)?);
        let restriction = Restriction::new(filters);
        let seen = session.config().get_extension::<Seen>();
        let seen = seen.unwrap_or_else(|| Arc::new(Seen::listed(self.index.clone())));
        self.table.scan(ScanRequest {
            session,
            seen,
            all,
            columns,
            schema,
            filters,
            restriction,
            limit,
        })
    }
}
