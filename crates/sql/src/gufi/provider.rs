//! GUFI's views as tables of the engine: made when a statement names them, joined when it is known
//! which columns count.

use super::super::restriction::Restriction;
use super::super::tables::{self, IndexTable};
use super::dialect::WITH_PATHS;
use super::views::{self, Column, GufiTable, NAMES_OF_VIEWS};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use canopy_index::Index;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::common::{Column as Name, DataFusionError};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, LogicalPlanBuilder, TableProviderFilterPushDown, TableType, cast, ident,
};
use datafusion::physical_plan::ExecutionPlan;
use std::fmt;
use std::sync::Arc;

/// Names of the index's directories with all that is kept of them, which no query can name by
/// accident.
const LISTINGS: &str = " listings";

/// The tables of a schema: the views, and the index's own tables where names differ.
pub(super) struct Views {
    /// The index's own tables.
    pub(super) own: Arc<dyn SchemaProvider>,
    pub(super) index: Arc<Index>,
    pub(super) threads: usize,
    /// Whether a name that both have means the view.
    pub(super) first: bool,
}

impl Views {
    fn view(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let view = match name.strip_suffix(WITH_PATHS) {
            Some(name) => views::named(name)?.with_paths(),
            None => views::named(name)?,
        };
        let field =
            |column: &Column| Field::new(column.name.as_ref(), column.data_type.clone(), true);
        let schema = Arc::new(Schema::new(view.columns.iter().map(field).collect::<Vec<_>>()));
        Some(Arc::new(ViewTable { view, schema }))
    }
}

impl fmt::Debug for Views {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Views(first: {})", self.first)
    }
}

#[async_trait]
impl SchemaProvider for Views {
    /// Names the views, or the index's own tables where those come first: both are found under
    /// either.
    fn table_names(&self) -> Vec<String> {
        match self.first {
            true => NAMES_OF_VIEWS.map(str::to_owned).to_vec(),
            false => self.own.table_names(),
        }
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if name == LISTINGS {
            let listings = IndexTable::new(self.index.clone(), &tables::LISTINGS, self.threads);
            return Ok(Some(Arc::new(listings)));
        }
        let own = self.own.table(name).await?;
        Ok(match self.first {
            true => self.view(name).or(own),
            false => own.or_else(|| self.view(name)),
        })
    }

    fn table_exist(&self, name: &str) -> bool {
        self.own.table_exist(name) || self.view(name).is_some()
    }
}

/// A view: a query over the index's own tables, which depends on the columns that are asked for.
#[derive(Debug)]
struct ViewTable {
    view: GufiTable,
    schema: SchemaRef,
}

impl ViewTable {
    /// Writes the query of the columns in a projection and in predicates.
    fn query(&self, projection: &[usize], filters: &[Expr]) -> String {
        let read: Vec<&Name> = filters.iter().flat_map(Expr::column_refs).collect();
        let wanted = |(at, column): &(usize, &Column)| {
            projection.contains(at) || read.iter().any(|name| name.name == column.name)
        };
        let columns = self.view.columns.iter().enumerate().filter(wanted).map(|(_, column)| column);
        let columns: Vec<&Column> = columns.collect();
        self.view.query(&columns, Self::directory(filters).as_deref())
    }

    /// Returns a directory at or below which all rows that pass are.
    fn directory(filters: &[Expr]) -> Option<String> {
        let restriction = Restriction::new(filters);
        let directory = restriction.directory().filter(|directory| !directory.is_empty())?;
        Some(format!("/{directory}"))
    }
}

#[async_trait]
impl TableProvider for ViewTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Exact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let state = session.as_any().downcast_ref::<SessionState>();
        let state =
            state.ok_or_else(|| DataFusionError::Internal("a session without SQL".to_owned()))?;
        let all: Vec<usize> = (0..self.view.columns.len()).collect();
        let projection = projection.unwrap_or(&all);
        let filters = unnormalize_cols(filters.iter().cloned());
        let plan = state.create_logical_plan(&self.query(projection, &filters)).await?;
        // Types are made those of the schema before the predicates are applied, which were made for
        // it.
        let (fields, plan_schema) = (self.schema.fields(), plan.schema().clone());
        let typed = plan_schema.fields().iter().map(|field| {
            let data_type =
                self.schema.field_with_name(field.name()).map(|field| field.data_type().clone());
            cast(ident(field.name()), data_type.unwrap_or(DataType::Int64)).alias(field.name())
        });
        let mut builder = LogicalPlanBuilder::from(plan).project(typed.collect::<Vec<_>>())?;
        if let Some(filter) = conjunction(filters) {
            builder = builder.filter(filter)?;
        }
        builder = builder.project(projection.iter().map(|at| ident(fields[*at].name())))?;
        builder = builder.limit(0, limit)?;
        state.create_physical_plan(&builder.build()?).await
    }
}
