//! `sql`: the index as tables of DataFusion, read-only.
//!
//! `tables` has the tables of rows, which `reader` reads (those that `acls` and `lustre` make of
//! values of extended attributes, through `decoded`), `summaries` those of statistics, which
//! `summary_rows` makes and whose columns are in `statistics`; `queue` lets threads share the work
//! of either. `seen` is what a statement sees of the index. `restriction` turns predicates into
//! `places` of the tree, shards and row groups that need not be read and `prefilter` into rows,
//! `provider` hands the tables to the engine, `functions` adds what people ask of metadata, `own`
//! has the tables that the administrator adds, `grammar` what the planner would pass over, `exact`
//! whole numbers that do not wrap, `hints` what conditions that never hold may mean, `gufi` what
//! queries that were written for GUFI ask for. `session` answers one statement after the other, `statements` finds where each ends,
//! `output` prints answers, `grid` those for people, `messages` says what the engine refuses.

mod acls;
mod decoded;
mod error;
mod exact;
mod functions;
mod grammar;
mod grid;
mod gufi;
mod hints;
mod lustre;
mod messages;
mod output;
mod own;
mod places;
mod prefilter;
mod provider;
mod queue;
mod reader;
mod restriction;
mod scan;
mod seen;
mod session;
mod statements;
mod statistics;
mod summaries;
mod summary_rows;
mod tables;
mod titles;

pub use error::{Error, Result, StatementPosition};
pub use grid::{TableForm, TableStyle};
pub use output::AnswerFormat;
pub use own::{
    AttachedFormat, DerivedRows, FileError, TableError, attach, check_name, derive, follow_all,
    refresh, refresh_all,
};
pub use session::{Answered, Progress, Running, Session, SessionOptions};
pub use statements::{blank, statement_end};

use canopy_index::Index;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;
use summaries::SummaryTable;
use tables::{IndexTable, TABLES};

/// Makes a session that knows all tables and functions but those of `gufi`; with `described`,
/// queries may ask for their names and columns too.
fn plan_session(
    index: &Arc<Index>,
    threads: usize,
    described: bool,
    environment: Arc<RuntimeEnv>,
) -> Result<SessionContext> {
    let mut config = SessionConfig::new()
        .with_target_partitions(threads.max(1))
        .with_information_schema(described);
    // So that errors say where.
    config.options_mut().sql_parser.collect_spans = true;
    // So that LIMIT takes the first rows of a subquery that is sorted, as in PostgreSQL.
    config.options_mut().sql_parser.enable_subquery_sort_elimination = false;
    let mut context = SessionContext::new_with_config_rt(config, environment);
    for table in TABLES {
        context
            .register_table(table.name, Arc::new(IndexTable::new(index.clone(), table, threads)))?;
    }
    for table in summaries::TABLES {
        context.register_table(
            table.name,
            Arc::new(SummaryTable::new(index.clone(), table, threads)),
        )?;
    }
    functions::register(&context);
    grammar::register(&context);
    exact::register(&mut context)?;
    own::register(&context, index);
    Ok(context)
}
