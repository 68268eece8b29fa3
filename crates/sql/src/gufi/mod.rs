//! SQL for users of GUFI: its views, its functions and SQLite's dialect, over the index's own
//! tables.
//!
//! `views` and `summary` say what each column is, `provider` gives them to the engine, `dialect`
//! puts statements in the engine's words, `functions` and `aggregates` are GUFI's own. Nothing of
//! this is set up for a statement that uses none of it.
//!
//! Not its job: permissions. The views read the index's own tables and nothing else.

mod aggregates;
mod dialect;
mod error;
mod functions;
mod histograms;
mod paths;
mod provider;
mod summary;
mod text;
mod values;
mod views;

use super::grammar::{self, Prepared};
use canopy_index::Index;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use provider::Views;
use std::collections::HashSet;
use std::sync::Arc;

pub(super) use views::{ENTRY, PATH};

/// The schema that has all of GUFI's names.
pub(super) const SCHEMA: &str = "gufi";

/// Makes GUFI's views known, beside the tables that are registered already. Cheap: nothing is
/// planned before it is named. With `default`, names that both have mean GUFI's.
pub(super) fn register(
    context: &SessionContext,
    index: Arc<Index>,
    threads: usize,
    default: bool,
) -> Result<()> {
    let missing = || DataFusionError::Internal("no default schema".to_owned());
    let options = context.state_ref();
    let (catalog, schema) = {
        let state = options.read();
        let catalog = &state.config_options().catalog;
        (catalog.default_catalog.clone(), catalog.default_schema.clone())
    };
    let catalog = context.catalog(&catalog).ok_or_else(missing)?;
    let own = catalog.schema(&schema).ok_or_else(missing)?;
    let views = |first| Arc::new(Views { own: own.clone(), index: index.clone(), threads, first });
    catalog.register_schema(&schema, views(false))?;
    catalog.register_schema(SCHEMA, views(true))?;
    if default {
        options.write().config_mut().options_mut().catalog.default_schema = SCHEMA.to_owned();
    }
    Ok(())
}

/// Returns whether a table of the engine is one of the views.
pub(super) fn is_view(table: &str) -> bool {
    views::named(table.strip_suffix(dialect::WITH_PATHS).unwrap_or(table)).is_some()
}

/// Plans a statement. It is read as GUFI's if it names one of GUFI's views, or if `gufi` says so.
pub(super) async fn plan(context: &SessionContext, query: &str, gufi: bool) -> Result<LogicalPlan> {
    let mut state = context.state();
    let mut statement =
        state.sql_to_statement(query, &state.config_options().sql_parser.dialect)?;
    let mut prepared = Prepared::default();
    if let Some(inner) = inner(&mut statement) {
        let tables = dialect::tables(inner, gufi);
        let rewritten = gufi || tables.iter().any(|(_, view)| *view);
        let unknown = dialect::functions(inner).into_iter().find(|name| !is_known(&state, name));
        if rewritten || unknown.is_some() {
            functions::all().into_iter().for_each(|function| context.register_udf(function));
            aggregates::all().into_iter().for_each(|function| context.register_udaf(function));
            state = context.state();
        }
        if rewritten {
            let columns = columns(context, &tables).await;
            dialect::rewrite(inner, gufi, columns);
        }
        dialect::check(inner)?;
        let is_scalar = |name: &str| state.scalar_functions().contains_key(name);
        prepared = grammar::prepare(inner, &is_scalar, rewritten)?;
    }
    let plan = state.statement_to_plan(statement).await?;
    prepared.check(&plan)?;
    Ok(plan)
}

/// Plans a statement that is never read as GUFI's.
pub(super) async fn plan_own(context: &SessionContext, query: &str) -> Result<LogicalPlan> {
    let state = context.state();
    let mut statement =
        state.sql_to_statement(query, &state.config_options().sql_parser.dialect)?;
    let mut prepared = Prepared::default();
    if let Some(inner) = inner(&mut statement) {
        let is_scalar = |name: &str| state.scalar_functions().contains_key(name);
        prepared = grammar::prepare(inner, &is_scalar, false)?;
    }
    let plan = state.statement_to_plan(statement).await?;
    prepared.check(&plan)?;
    Ok(plan)
}

fn inner(statement: &mut Statement) -> Option<&mut ast::Statement> {
    match statement {
        Statement::Statement(statement) => Some(statement),
        Statement::Explain(explained) => inner(&mut explained.statement),
        _ => None,
    }
}

fn is_known(state: &SessionState, function: &str) -> bool {
    state.scalar_functions().contains_key(function)
        || state.aggregate_functions().contains_key(function)
        || state.window_functions().contains_key(function)
}

/// Returns the names of the columns of all tables of a statement.
async fn columns(context: &SessionContext, tables: &[(String, bool)]) -> HashSet<String> {
    let mut names = HashSet::new();
    for (table, view) in tables {
        if *view {
            let columns = views::named(table).map(|view| view.columns).unwrap_or_default();
            names.extend(columns.into_iter().map(|column| column.name.into_owned()));
        } else if let Ok(table) = context.table_provider(table.as_str()).await {
            names.extend(table.schema().fields().iter().map(|field| field.name().clone()));
        }
    }
    names
}
