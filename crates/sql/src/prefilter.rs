//! Late materialization: predicates are evaluated over the columns that they ask for, and all other
//! columns, paths above all, are read and made for the rows that pass alone.
//!
//! The engine checks all predicates again.

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use canopy_index::RowRange;
use canopy_read::plan::{push_row, row_count};
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::common::cast::as_boolean_array;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;

/// Predicates over some columns of a table. The engine checks all predicates again.
pub(super) struct Prefilter {
    predicate: Arc<dyn PhysicalExpr>,
    /// The columns that it reads, by their numbers in the table, which ascend.
    pub(super) columns: Vec<usize>,
}

impl Prefilter {
    /// Takes the predicates that read nothing but cheap columns, if there are any.
    pub(super) fn new(
        session: &dyn Session,
        schema: &SchemaRef,
        filters: &[Expr],
        cheap: impl Fn(usize) -> bool,
    ) -> Result<Option<Self>> {
        let is_cheap = |name: &str| schema.index_of(name).is_ok_and(&cheap);
        let reads_cheap = |filter: &&Expr| {
            let columns = filter.column_refs();
            !columns.is_empty()
                && columns.iter().all(|column| is_cheap(&column.name))
                && !filter.is_volatile()
        };
        let usable: Vec<Expr> = filters.iter().filter(reads_cheap).cloned().collect();
        let mut columns: Vec<usize> = Vec::new();
        for column in usable.iter().flat_map(Expr::column_refs) {
            columns.push(schema.index_of(&column.name)?);
        }
        columns.sort_unstable();
        columns.dedup();
        let Some(predicate) = conjunction(usable) else { return Ok(None) };
        let schema = DFSchema::try_from(schema.project(&columns)?)?;
        let predicate = session.create_physical_expr(predicate, &schema)?;
        Ok(Some(Prefilter { predicate, columns }))
    }

    /// Returns those of some rows that may pass. `batches` have the columns of them.
    pub(super) fn select(
        &self,
        rows: &[RowRange],
        batches: impl Iterator<Item = Result<RecordBatch>>,
    ) -> Result<Vec<RowRange>> {
        let mut selected: Vec<RowRange> = Vec::new();
        let mut numbers = rows.iter().cloned().flatten();
        let mut count = 0;
        for batch in batches {
            let batch = batch?;
            let passed = self.predicate.evaluate(&batch)?.into_array(batch.num_rows())?;
            let passed: &BooleanArray = as_boolean_array(&passed)?;
            for (at, row) in (0..passed.len()).zip(&mut numbers) {
                if passed.is_null(at) || !passed.value(at) {
                    continue;
                }
                count += 1;
                push_row(&mut selected, row);
            }
        }
        // Skipping single rows costs more than it saves where many pass.
        Ok(if count > row_count(rows) / 4 { rows.to_vec() } else { selected })
    }
}
