//! `sql`: the index as tables of DataFusion, read-only.
//!
//! `tables` gives the tables and reads them, `summaries` those of statistics, whose columns are in `statistics`; `units` lets
//! threads share the work of either. `restriction` turns predicates into shards and row groups that need not be read and
//! `prefilter` into rows, `functions` adds what people ask of metadata, `own` has the tables that the administrator
//! adds, `gufi` what queries that were written for GUFI ask for, `output` prints answers.

mod acls;
mod functions;
mod gufi;
mod output;
mod own;
mod prefilter;
mod restriction;
mod statistics;
mod summaries;
mod tables;
mod units;

pub use output::Format;
pub use own::{Rows, attach, check_name, derive, refresh, refresh_all};

use crate::error::{Error, Result};
use canopy_index::Index;
use datafusion::execution::context::SQLOptions;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use std::io::Write;
use std::sync::Arc;
use summaries::SummaryTable;
use tables::{IndexTable, TABLES};

/// Runs one query and writes its rows as they come, except for `table`, which needs all to set column widths.
/// Statements that would change anything are refused. With `gufi`, names mean GUFI's tables wherever both have them. Blocks.
pub fn run(
    index: Index,
    query: &str,
    format: Format,
    threads: usize,
    gufi: bool,
    output: &mut (dyn Write + Send),
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .build()
        .map_err(Error::Output)?;
    runtime.block_on(async {
        let stream = execute(Arc::new(index), query, threads, gufi).await?;
        write_all(stream, format, output).await
    })
}

async fn execute(
    index: Arc<Index>,
    query: &str,
    threads: usize,
    gufi: bool,
) -> Result<SendableRecordBatchStream> {
    let context = session(&index, threads, true)?;
    gufi::register(&context, index, threads, gufi)?;
    let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let plan = gufi::plan(&context, query, gufi).await?;
    options.verify_plan(&plan)?;
    let frame = context.execute_logical_plan(plan).await?;
    Ok(frame.execute_stream().await?)
}

/// A session that knows all tables and functions but those of `gufi`; `described` if queries may ask for their names and
/// columns too.
fn session(index: &Arc<Index>, threads: usize, described: bool) -> Result<SessionContext> {
    let config =
        SessionConfig::new().with_target_partitions(threads.max(1)).with_information_schema(described);
    let context = SessionContext::new_with_config(config);
    for table in TABLES {
        context.register_table(table.name, Arc::new(IndexTable::new(index.clone(), table, threads)))?;
    }
    for table in summaries::TABLES {
        context.register_table(table.name, Arc::new(SummaryTable::new(index.clone(), table, threads)))?;
    }
    functions::register(&context);
    own::register(&context, index);
    Ok(context)
}

async fn write_all(
    mut stream: SendableRecordBatchStream,
    format: Format,
    output: &mut (dyn Write + Send),
) -> Result<()> {
    let schema = stream.schema();
    let mut writer = output::Writer::new(format, schema, output)?;
    while let Some(batch) = stream.next().await {
        writer.write(batch?)?;
    }
    writer.finish()
}
