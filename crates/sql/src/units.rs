//! Work that the threads of a scan share: each takes the next piece from one queue.

use super::scan::{Extent, IndexScan};
use super::session::Counters;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The rows of one piece of work.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Plans a scan on so many threads. `read` gives the rows of a unit, with the columns of `schema`;
/// `extent` is what is shown of the scan.
pub(super) fn plan<U: Send + 'static>(
    extent: Extent,
    schema: SchemaRef,
    units: VecDeque<U>,
    threads: usize,
    limit: Option<usize>,
    read: impl Fn(U) -> Result<Batches> + Send + Sync + 'static,
) -> Result<Arc<dyn ExecutionPlan>> {
    let units = Arc::new(Units {
        count: units.len(),
        told: AtomicBool::new(false),
        left: Mutex::new(units),
    });
    let read = Arc::new(read);
    let partition = || -> Arc<dyn PartitionStream> {
        Arc::new(Partition { schema: schema.clone(), units: units.clone(), read: read.clone() })
    };
    let partitions = (0..threads.max(1)).map(|_| partition()).collect();
    let scan = StreamingTableExec::try_new(schema.clone(), partitions, None, [], false, limit)?;
    Ok(Arc::new(IndexScan::new(Arc::new(extent), Arc::new(scan))))
}

/// What is left of the work.
struct Units<U> {
    /// How many there were.
    count: usize,
    /// Whether a statement's counters know of them.
    told: AtomicBool,
    left: Mutex<VecDeque<U>>,
}

impl<U> Units<U> {
    fn next(&self, counters: &Counters) -> Option<U> {
        let unit =
            self.left.lock().expect("no thread panics while it holds the lock").pop_front()?;
        counters.begun.fetch_add(1, Ordering::Relaxed);
        Some(unit)
    }
}

/// A thread of a scan.
struct Partition<U, F> {
    schema: SchemaRef,
    units: Arc<Units<U>>,
    read: Arc<F>,
}

impl<U, F> fmt::Debug for Partition<U, F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Partition")
    }
}

impl<U, F> PartitionStream for Partition<U, F>
where
    U: Send + 'static,
    F: Fn(U) -> Result<Batches> + Send + Sync + 'static,
{
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (units, read) = (self.units.clone(), self.read.clone());
        let counters = context.session_config().get_extension::<Counters>().unwrap_or_default();
        if !units.told.swap(true, Ordering::Relaxed) {
            counters.pieces.fetch_add(units.count, Ordering::Relaxed);
        }
        let counted = counters.clone();
        let batches = std::iter::from_fn(move || units.next(&counters))
            .flat_map(move |unit| {
                read(unit).unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
            })
            .inspect(move |batch| {
                let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
                counted.rows.fetch_add(rows as u64, Ordering::Relaxed);
            });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), futures::stream::iter(batches)))
    }
}
