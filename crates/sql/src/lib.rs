//! SQL: the index as read-only tables of DataFusion.
//!
//! | to change | read |
//! | --- | --- |
//! | the part of the index that a statement sees | `seen` |
//! | tables of rows | `tables`; `reader` reads them, `decoded` reads those of `acls` and `lustre` |
//! | tables of statistics | `summaries`; columns: `statistics`, rows: `summary_rows` |
//! | threads that share this work | `queue` |
//! | predicates | `restriction` (skips shards and row groups, by `places`), `prefilter` (rows) |
//! | how the engine gets tables | `provider` |
//! | functions on metadata | `functions` |
//! | clauses that the planner ignores or misreads | `grammar` |
//! | whole numbers that would wrap | `exact` |
//! | conditions that never hold | `hints` |
//! | GUFI's queries | `gufi`: `views.rs` and `summary.rs` (columns), `dialect.rs` (SQLite) |
//! | tables that the administrator adds | `own` |
//! | statements, their limits | `statements` (where each ends), `session` |
//! | printed answers | `output`, `grid` (tables), `titles` (names of columns) |
//! | errors of statements | `messages` |
//!
//! Invariants:
//!
//! - Every absolute path in a statement is a start, from which rows behind gates are visible.
//! - No other crate knows DataFusion.
//! - Answers are right or errors: whole numbers never wrap.

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
