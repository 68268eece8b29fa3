//! Work that the threads of a scan share: each takes the next unit from one queue.

use super::scan::{Extent, IndexScan};
use super::session::Counters;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The rows of one unit of work.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Plans a scan on so many threads. `read` gives the rows of a unit, with the columns of `schema`;
/// `extent` is what is shown of the scan.
pub(super) fn scan<U: Send + 'static>(
    extent: Extent,
    schema: SchemaRef,
    units: VecDeque<U>,
    threads: usize,
    limit: Option<usize>,
    read: impl Fn(U) -> Result<Batches> + Send + Sync + 'static,
) -> Result<Arc<dyn ExecutionPlan>> {
    let queue =
        Arc::new(Queue { unannounced: AtomicUsize::new(units.len()), left: Mutex::new(units) });
    let read = Arc::new(read);
    let partition = || -> Arc<dyn PartitionStream> {
        Arc::new(Partition { schema: schema.clone(), queue: queue.clone(), read: read.clone() })
    };
    let partitions = (0..threads.max(1)).map(|_| partition()).collect();
    let scan = StreamingTableExec::try_new(schema.clone(), partitions, None, [], false, limit)?;
    Ok(Arc::new(IndexScan { extent: Arc::new(extent), inner: Arc::new(scan) }))
}

/// The remaining work.
struct Queue<U> {
    /// How many units the statement's counters do not have yet: all of them, or none.
    unannounced: AtomicUsize,
    left: Mutex<VecDeque<U>>,
}

impl<U> Queue<U> {
    fn next(&self, counters: &Counters) -> Option<U> {
        let unit = self.left.lock().pop_front()?;
        counters.begun.fetch_add(1, Ordering::Relaxed);
        Some(unit)
    }
}

/// A thread of a scan.
struct Partition<U, F> {
    schema: SchemaRef,
    queue: Arc<Queue<U>>,
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
        let (queue, read) = (self.queue.clone(), self.read.clone());
        let counters = context.session_config().get_extension::<Counters>().unwrap_or_default();
        let units = queue.unannounced.swap(0, Ordering::Relaxed);
        counters.units.fetch_add(units, Ordering::Relaxed);
        let counted = counters.clone();
        let batches = std::iter::from_fn(move || queue.next(&counters))
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
