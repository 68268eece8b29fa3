//! A session: the index opened once, statement after statement answered from it, each of which can
//! be stopped.
//!
//! A statement runs as a task of the session's own threads and hands its batches over through a
//! short channel, so that whoever waits for them can go away at any moment. Statements leave
//! nothing behind for the next one: each is planned in a copy of the session's tables and
//! functions.

use super::output::{Style, Writer};
use super::{AnswerFormat, TABLES, gufi, plan_session, summaries};
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use canopy_index::Index;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use futures::channel::mpsc;
use futures::future::{AbortHandle, Abortable};
use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::runtime::Runtime;

/// Batches that may wait to be printed.
const WAITING: usize = 2;

/// Tables and functions of an index, for one statement after the other.
pub struct Session {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    index: Arc<Index>,
    context: SessionContext,
    gufi: bool,
    running: Running,
}

/// The statement that a session works on, for other threads.
#[derive(Clone, Default)]
pub struct Running {
    statement: Arc<Mutex<Option<Statement>>>,
}

/// How to stop a statement, and what its threads count.
type Statement = (AbortHandle, Arc<Counters>);

/// How far a statement is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that were read.
    pub rows: u64,
    /// Units of the index (row groups or the like) that were begun.
    pub begun: usize,
    /// Units that there are in the tables whose reading has begun.
    pub units: usize,
}

/// What the threads of one statement count together.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) rows: AtomicU64,
    pub(super) begun: AtomicUsize,
    pub(super) units: AtomicUsize,
}

/// What a statement hands over.
enum Part {
    /// Its columns, first; whether lines of its texts are lines of the answer, as of `EXPLAIN`.
    Begin(SchemaRef, bool),
    Rows(RecordBatch),
}

impl Running {
    /// Stops the statement under way, whose answer ends in [`Error::Stopped`]. Does nothing between
    /// statements.
    pub fn stop(&self) {
        if let Some((abort, _)) = &*self.statement.lock() {
            abort.abort();
        }
    }

    /// Returns how far the statement under way is; `None` between statements.
    pub fn progress(&self) -> Option<Progress> {
        let statement = self.statement.lock();
        let (_, counters) = statement.as_ref()?;
        Some(Progress {
            rows: counters.rows.load(Ordering::Relaxed),
            begun: counters.begun.load(Ordering::Relaxed),
            units: counters.units.load(Ordering::Relaxed),
        })
    }
}

impl Session {
    /// Makes the tables of an index known; opens nothing else. With `gufi`, names mean GUFI's
    /// tables wherever both have them.
    pub fn open(index: Index, threads: usize, gufi: bool) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .build()
            .map_err(Error::Output)?;
        let index = Arc::new(index);
        let context = plan_session(&index, threads, true)?;
        gufi::register(&context, index.clone(), threads, gufi)?;
        Ok(Session { runtime: Some(runtime), index, context, gufi, running: Running::default() })
    }

    /// Returns the statement under way, for threads that stop or watch it.
    pub fn running(&self) -> Running {
        self.running.clone()
    }

    /// Runs one statement and writes its rows as they come; statements that would change anything
    /// are refused. With `terminal`, the form `table` shows control characters escaped. Returns
    /// how many rows there were. Blocks.
    pub fn run(
        &self,
        statement: &str,
        format: AnswerFormat,
        terminal: bool,
        output: &mut (dyn Write + Send),
    ) -> Result<u64> {
        let runtime = self.runtime.as_ref().expect("it is there until the session is dropped");
        let counters = Arc::new(Counters::default());
        let (mut sender, parts) = mpsc::channel(WAITING);
        let (context, gufi, text) = (self.copy(&counters), self.gufi, statement.to_owned());
        let (abort, registration) = AbortHandle::new_pair();
        *self.running.statement.lock() = Some((abort.clone(), counters));
        let task = runtime.spawn(async move {
            if let Err(error) = execute(&context, &text, gufi, &mut sender).await {
                // Nobody waits any more where sending fails.
                let _ = sender.send(Err(error)).await;
            }
        });
        // Not the task is waited for, which may not look up for a while, but what it hands over.
        let print = print(parts, &abort, format, terminal, output);
        let done = runtime.block_on(Abortable::new(print, registration));
        task.abort();
        *self.running.statement.lock() = None;
        done.unwrap_or(Err(Error::Stopped))
    }

    /// Returns the names of all tables, sorted; those of the views for GUFI only in a session for
    /// them.
    pub fn tables(&self) -> Vec<String> {
        let added = self.index.tables().iter().map(|table| table.name.clone());
        let schemas: &[&str] = if self.gufi { &["public", gufi::SCHEMA] } else { &["public"] };
        let catalogs =
            self.context.catalog_names().into_iter().filter_map(|name| self.context.catalog(&name));
        let named = catalogs.flat_map(|catalog| {
            let schemas =
                schemas.iter().filter_map(|schema| catalog.schema(schema)).collect::<Vec<_>>();
            schemas.into_iter().flat_map(|schema| schema.table_names())
        });
        added.chain(named).collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Returns the names and types of the columns of a table, in their order. Opens the file of an
    /// attached table.
    pub fn columns(&self, table: &str) -> Result<Vec<(String, String)>> {
        let runtime = self.runtime.as_ref().expect("it is there until the session is dropped");
        let table = runtime.block_on(self.context.table_provider(table))?;
        let column = |field: &Arc<arrow::datatypes::Field>| {
            (field.name().clone(), field.data_type().to_string())
        };
        Ok(table.schema().fields().iter().map(column).collect())
    }

    /// Returns the names of the columns of the index's own tables, sorted.
    pub fn own_columns(&self) -> Vec<String> {
        let own = TABLES.iter().map(|table| table.name);
        let tables = own.chain(summaries::TABLES.iter().map(|table| table.name));
        let columns =
            tables.filter_map(|table| self.columns(table).ok()).flatten().map(|(name, _)| name);
        columns.collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Returns the names of all functions, sorted.
    pub fn functions(&self) -> Vec<String> {
        let state = self.context.state();
        let names = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
        let names = names.chain(state.window_functions().keys()).cloned();
        names.collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Copies the session's tables and functions for one statement, which may make more known.
    fn copy(&self, counters: &Arc<Counters>) -> SessionContext {
        let mut state = self.context.state();
        state.config_mut().set_extension(counters.clone());
        SessionContext::new_with_state(state)
    }
}

impl Drop for Session {
    /// Does not wait for a statement that was stopped and has not noticed yet.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

type Sender = mpsc::Sender<Result<Part>>;

/// Hands over the columns of a statement, then its rows.
async fn execute(
    context: &SessionContext,
    statement: &str,
    gufi: bool,
    sender: &mut Sender,
) -> Result<()> {
    let options =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let plan = gufi::plan(context, statement, gufi).await?;
    options.verify_plan(&plan)?;
    let explains = matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
    let frame = context.execute_logical_plan(plan).await?;
    let task = Arc::new(frame.task_ctx());
    let plan = yielding(frame.create_physical_plan().await?)?;
    let mut rows = execute_stream(plan, task)?;
    let mut sent = sender.send(Ok(Part::Begin(rows.schema(), explains))).await;
    while let (Ok(()), Some(batch)) = (&sent, rows.next().await) {
        sent = sender.send(Ok(Part::Rows(batch?))).await;
    }
    Ok(())
}

/// Makes joins look up now and then, which can go on for hours on what they have read. The engine
/// sees to everything else.
fn yielding(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let wrapped = plan.transform_up(|node| {
        Ok(match node.name().ends_with("JoinExec") {
            true => {
                Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>)
            }
            false => Transformed::no(node),
        })
    })?;
    Ok(wrapped.data)
}

async fn print(
    mut parts: mpsc::Receiver<Result<Part>>,
    abort: &AbortHandle,
    format: AnswerFormat,
    terminal: bool,
    output: &mut (dyn Write + Send),
) -> Result<u64> {
    let (schema, lines) = match parts.next().await {
        Some(Ok(Part::Begin(schema, lines))) => (schema, lines),
        Some(Err(error)) => return Err(error),
        Some(Ok(Part::Rows(_))) | None => {
            return Err(Error::Sql("the query ended early".to_owned()));
        }
    };
    let style = Style { escaped: terminal, lines: lines || !terminal };
    let mut writer = Writer::new(format, schema, style, output)?;
    let mut rows = 0;
    while let Some(part) = parts.next().await {
        // Where batches come faster than they are printed, nothing else would notice.
        if abort.is_aborted() {
            return Err(Error::Stopped);
        }
        if let Part::Rows(batch) = part? {
            rows += batch.num_rows() as u64;
            writer.write(batch)?;
        }
    }
    writer.finish()?;
    Ok(rows)
}
