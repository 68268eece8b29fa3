//! The scan of a table in a plan: `EXPLAIN` shows what predicates have ruled out, and the engine's
//! own scan of streams does everything else.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};
use std::fmt;
use std::sync::Arc;

/// The part of a table that is read, out of all that the asking user can read.
#[derive(Debug)]
pub(super) struct Extent {
    /// The name of the table.
    pub(super) table: String,
    /// Kind of thing, number read, and number in all.
    pub(super) counts: Vec<(&'static str, usize, usize)>,
}

/// A scan in front of the engine's, which it stands for in every way but its name.
#[derive(Debug)]
pub(super) struct IndexScan {
    pub(super) extent: Arc<Extent>,
    pub(super) inner: Arc<dyn ExecutionPlan>,
}

impl IndexScan {
    fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(IndexScan { extent: self.extent.clone(), inner })
    }
}

impl DisplayAs for IndexScan {
    fn fmt_as(&self, form: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = self.extent.counts.iter();
        if form == DisplayFormatType::TreeRender {
            writeln!(formatter, "table={}", self.extent.table)?;
            return counts
                .try_for_each(|(what, read, all)| writeln!(formatter, "{what}={read} of {all}"));
        }
        write!(formatter, "IndexScan: table={}", self.extent.table)?;
        counts.try_for_each(|(what, read, all)| write!(formatter, ", {what}={read} of {all}"))?;
        let columns: Vec<String> =
            self.inner.schema().fields().iter().map(|field| field.name().clone()).collect();
        write!(formatter, ", columns=[{}]", columns.join(", "))?;
        self.inner.fetch().map_or(Ok(()), |rows| write!(formatter, ", fetch={rows}"))
    }
}

impl ExecutionPlan for IndexScan {
    fn name(&self) -> &str {
        "IndexScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn fetch(&self) -> Option<usize> {
        self.inner.fetch()
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.around(self.inner.with_fetch(limit)?))
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = self.inner.clone().replace_children(children, options)?;
        Ok(self.around(inner))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.inner.execute(partition, context)
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        Ok(self.inner.try_swapping_with_projection(projection)?.map(|inner| self.around(inner)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }
}
