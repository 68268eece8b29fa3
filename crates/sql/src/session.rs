//! A session: opens the index once and answers statement after statement from it, each with a limit
//! of time and memory.
//!
//! A statement runs as a task of the session's own threads and hands its batches over through a
//! short channel. So a caller that waits for them can leave at any moment. A statement that has
//! begun ends only with the process: the engine may compute for hours without checking. To cancel
//! one and go on, run it in a process of its own. Statements leave nothing behind for the next one:
//! each is planned in a copy of the session's tables and functions.

use super::output::{self, Style, Writer};
use super::seen::Named;
use super::tables::batch_of;
use super::{AnswerFormat, TABLES, gufi, hints, plan_session, summaries, titles};
use crate::error::{Error, Result};
use crate::grid::TableStyle;
use crate::messages::{no_table, of_statement};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use canopy_index::Index;
use canopy_model::ErrorKind;
use datafusion::execution::TaskContext;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Batches that may wait to be printed.
const WAITING: usize = 2;

/// How statements are answered.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// How many threads read and compute.
    pub threads: usize,
    /// Whether names mean GUFI's tables wherever both have them.
    pub gufi: bool,
    /// How long a statement may take; no limit if there is none.
    pub time: Option<Duration>,
    /// Bytes of memory that a statement may use for groups, sorts, and sides of joins; unlimited if
    /// there is none.
    pub memory_bytes: Option<usize>,
    /// Directory for data that does not fit into memory; nowhere if there is none.
    pub spill_directory: Option<PathBuf>,
    /// How answers as tables look.
    pub table: TableStyle,
}

/// Tables and functions of an index, for one statement after the other.
pub struct Session {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    index: Arc<Index>,
    context: SessionContext,
    options: SessionOptions,
    running: Running,
}

/// The statement that a session works on, for other threads.
#[derive(Clone, Default)]
pub struct Running {
    /// Counters of its threads.
    statement: Arc<Mutex<Option<Arc<Counters>>>>,
}

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

/// Counters that all threads of one statement share.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) rows: AtomicU64,
    pub(super) begun: AtomicUsize,
    pub(super) units: AtomicUsize,
}

/// Summary of an answer that has been written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// How many rows it has.
    pub rows: u64,
    /// Notes on rows that it does not show, and why: one line each.
    pub notes: Vec<String>,
}

/// A piece of a statement's output.
enum StatementOutput {
    /// The columns, which come first; whether lines of its texts are lines of the answer, as of
    /// `EXPLAIN`; notes on the answer.
    Begin {
        schema: SchemaRef,
        explains: bool,
        notes: Vec<String>,
    },
    Rows(RecordBatch),
}

impl Running {
    /// Returns how far the statement under way is; `None` between statements.
    pub fn progress(&self) -> Option<Progress> {
        let statement = self.statement.lock();
        let counters = statement.as_ref()?;
        Some(Progress {
            rows: counters.rows.load(Ordering::Relaxed),
            begun: counters.begun.load(Ordering::Relaxed),
            units: counters.units.load(Ordering::Relaxed),
        })
    }
}

/// Stack of a thread in bytes: the engine goes down into expressions, one call for each of thousands
/// of conditions.
const STACK_BYTES: usize = 256 << 20;

impl Session {
    /// Makes the tables of an index known; opens nothing else.
    pub fn open(index: Index, options: SessionOptions) -> Result<Self> {
        let SessionOptions { threads, gufi, .. } = options;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .thread_stack_size(STACK_BYTES)
            .enable_time()
            .build()
            .map_err(Error::Output)?;
        let index = Arc::new(index);
        let spills = match &options.spill_directory {
            Some(directory) => DiskManagerMode::Directories(vec![directory.clone()]),
            None => DiskManagerMode::Disabled,
        };
        let spills = DiskManagerBuilder::default().with_mode(spills);
        let mut environment = RuntimeEnvBuilder::new().with_disk_manager_builder(spills);
        if let Some(bytes) = options.memory_bytes {
            environment = environment.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
        }
        let context = plan_session(&index, threads, true, environment.build_arc()?)?;
        gufi::register(&context, index.clone(), threads, gufi)?;
        let running = Running::default();
        Ok(Session { runtime: Some(runtime), index, context, options, running })
    }

    /// Returns how answers as tables look, to be changed between statements.
    pub fn table_style(&mut self) -> &mut TableStyle {
        &mut self.options.table
    }

    /// Returns the statement under way, for threads that watch it.
    pub fn running(&self) -> Running {
        self.running.clone()
    }

    /// Runs one statement and writes its rows as they come; statements that would change anything
    /// are refused. With `terminal`, the form `table` shows control characters escaped. Blocks.
    /// After an error, work that the statement has begun may go on until the process ends.
    pub fn run(
        &self,
        statement: &str,
        format: AnswerFormat,
        terminal: bool,
        output: &mut (dyn Write + Send),
    ) -> Result<Answered> {
        let runtime = self.runtime.as_ref().expect("it is there until the session is dropped");
        let counters = Arc::new(Counters::default());
        let (mut sender, parts) = mpsc::channel(WAITING);
        let (context, index) = (self.copy(&counters), self.index.clone());
        let gufi = self.options.gufi;
        let text = statement.to_owned();
        *self.running.statement.lock() = Some(counters);
        let task = runtime.spawn(async move {
            if let Err(error) = execute(&context, &index, &text, gufi, &mut sender).await {
                // Nobody waits any more where sending fails.
                let _ = sender.send(Err(error)).await;
            }
        });
        let end = task.abort_handle();
        let limit =
            self.options.time.and_then(|time| Some((Instant::now().checked_add(time)?, time)));
        let parts = Parts { received: parts, task: Some(task), limit };
        let style =
            Style { escaped: terminal, lines: !terminal, table: self.options.table.clone() };
        // Not by the statement's threads: while all of them compute, none of them looks at the clock.
        let waiting = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let waiting = waiting.map_err(Error::Output)?;
        let done = waiting.block_on(print(parts, format, style, output));
        end.abort();
        *self.running.statement.lock() = None;
        done.map_err(|error| match (error, self.options.memory_bytes) {
            (Error::Memory { detail, .. }, Some(limit_bytes)) => {
                Error::Memory { limit_bytes, detail }
            }
            (Error::NoTable { name, place }, _) => {
                let said = of_statement(&no_table(&name, &self.tables()), statement, place);
                Error::Sql { kind: ErrorKind::NotFound, said }
            }
            (Error::Refused { said, place }, _) => {
                let said = of_statement(&said, statement, place);
                Error::Sql { kind: ErrorKind::Invalid, said }
            }
            (error, _) => error,
        })
    }

    /// Returns the names of all tables, sorted; those of the views for GUFI only in a session for
    /// them.
    pub fn tables(&self) -> Vec<String> {
        let mut names = self.table_names("public");
        if self.options.gufi {
            names.extend(self.table_names(gufi::SCHEMA));
        }
        names.into_iter().collect()
    }

    /// Returns the names of all tables by where they are from, sorted, each kind with its title:
    /// the index's own, those that were added, and the views for GUFI.
    pub fn table_groups(&self) -> [(&'static str, Vec<String>); 3] {
        let added: BTreeSet<String> =
            self.index.tables().iter().map(|table| table.name.clone()).collect();
        let own = self.table_names("public");
        let own = own.into_iter().filter(|name| !added.contains(name)).collect();
        let gufi = self.table_names(gufi::SCHEMA).into_iter().collect();
        let added = added.into_iter().collect();
        [("tables", own), ("added ('canopy table list')", added), ("for GUFI's queries", gufi)]
    }

    /// Returns the names of the tables of a schema, with those that were added.
    fn table_names(&self, schema: &str) -> BTreeSet<String> {
        let added = self.index.tables().iter().map(|table| table.name.clone());
        let added = added.filter(|_| schema == "public");
        let catalogs =
            self.context.catalog_names().into_iter().filter_map(|name| self.context.catalog(&name));
        let schemas = catalogs.filter_map(|catalog| catalog.schema(schema)).collect::<Vec<_>>();
        added.chain(schemas.into_iter().flat_map(|schema| schema.table_names())).collect()
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

    /// Returns the names of the index's own tables.
    pub fn own_tables(&self) -> impl Iterator<Item = &'static str> + use<> {
        let own = TABLES.iter().map(|table| table.name);
        own.chain(summaries::TABLES.iter().map(|table| table.name))
    }

    /// Returns the names of the columns of the index's own tables, sorted.
    pub fn own_columns(&self) -> Vec<String> {
        let tables = self.own_tables();
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
    /// Does not wait for a statement that has failed and has not noticed yet.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

type Sender = mpsc::Sender<Result<StatementOutput>>;

/// Hands over the columns of a statement, then its rows.
async fn execute(
    context: &SessionContext,
    index: &Arc<Index>,
    statement: &str,
    gufi: bool,
    sender: &mut Sender,
) -> Result<()> {
    let options =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let plan = gufi::plan(context, statement, gufi).await?;
    options.verify_plan(&plan)?;
    let hints = hints::of(&plan)?;
    let explains = matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
    let (mut state, plan) = context.execute_logical_plan(plan).await?.into_parts();
    let simplified = state.optimize(&plan)?;
    let (seen, mut notes) = Named::new(&plan, &simplified)?.seen(index)?;
    notes.extend(hints);
    state.config_mut().set_extension(Arc::new(seen));
    let plan = state.query_planner().create_physical_plan(&simplified, &state).await?;
    let mut rows = execute_stream(plan, Arc::new(TaskContext::from(&state)))?;
    let schema = titles::typed(statement, &rows.schema());
    let begin = StatementOutput::Begin { schema: schema.clone(), explains, notes };
    let mut sent = sender.send(Ok(begin)).await;
    while let (Ok(()), Some(batch)) = (&sent, rows.next().await) {
        let batch = batch?;
        // Under the titles that were typed.
        let batch = batch_of(&schema, batch.columns().to_vec(), batch.num_rows());
        let batch = batch.map_err(output::arrow_error)?;
        sent = sender.send(Ok(StatementOutput::Rows(batch))).await;
    }
    Ok(())
}

/// Output of a statement, with its time limit.
struct Parts {
    received: mpsc::Receiver<Result<StatementOutput>>,
    /// The statement, until it has ended.
    task: Option<JoinHandle<()>>,
    /// When its time is up, and how much it had.
    limit: Option<(Instant, Duration)>,
}

impl Parts {
    /// Waits for the next part; `None` once the statement has ended, and not if it was broken off.
    async fn next(&mut self) -> Result<Option<StatementOutput>> {
        let Some((end, time)) = self.limit else { return self.wait().await };
        // Where parts come faster than they are printed, none is waited for.
        if Instant::now() >= end {
            return Err(Error::Time(time));
        }
        tokio::time::timeout_at(end, self.wait()).await.unwrap_or(Err(Error::Time(time)))
    }

    async fn wait(&mut self) -> Result<Option<StatementOutput>> {
        if let Some(part) = self.received.next().await {
            return part.map(Some);
        }
        // A channel that closes may have done so because of a panic.
        match self.task.take() {
            Some(task) => {
                task.await.map(|()| None).map_err(|error| Error::Broken(error.to_string()))
            }
            None => Ok(None),
        }
    }
}

async fn print(
    mut parts: Parts,
    format: AnswerFormat,
    mut style: Style,
    output: &mut (dyn Write + Send),
) -> Result<Answered> {
    let Some(StatementOutput::Begin { schema, explains, notes }) = parts.next().await? else {
        return Err(Error::Sql {
            kind: ErrorKind::Internal,
            said: "the query ended early".to_owned(),
        });
    };
    style.lines |= explains;
    if explains {
        // Plans are read by their indentation.
        style.table.width = None;
    }
    let mut writer = Writer::new(format, schema, style, output)?;
    let mut rows = 0;
    while let Some(part) = parts.next().await? {
        if let StatementOutput::Rows(batch) = part {
            rows += batch.num_rows() as u64;
            writer.write(batch)?;
        }
    }
    writer.finish()?;
    Ok(Answered { rows, notes })
}

#[cfg(test)]
mod tests;
