//! Work that the threads of a scan share: each takes the next piece from one queue.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

/// The rows of one piece of work.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Plans a scan on so many threads. `read` gives the rows of a unit, with the columns of `schema`.
pub(super) fn plan<U: Send + 'static>(
    schema: SchemaRef,
    units: VecDeque<U>,
    threads: usize,
    limit: Option<usize>,
    read: impl Fn(U) -> Result<Batches> + Send + Sync + 'static,
) -> Result<Arc<dyn ExecutionPlan>> {
    let units = Arc::new(Mutex::new(units));
    let read = Arc::new(read);
    let partition = || -> Arc<dyn PartitionStream> {
        Arc::new(Partition { schema: schema.clone(), units: units.clone(), read: read.clone() })
    };
    let partitions = (0..threads.max(1)).map(|_| partition()).collect();
    Ok(Arc::new(StreamingTableExec::try_new(schema.clone(), partitions, None, [], false, limit)?))
}

/// A thread of a scan.
struct Partition<U, F> {
    schema: SchemaRef,
    units: Arc<Mutex<VecDeque<U>>>,
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

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (units, read) = (self.units.clone(), self.read.clone());
        let next = move || units.lock().expect("no thread panics while it holds the lock").pop_front();
        let batches = std::iter::from_fn(next)
            .flat_map(move |unit| read(unit).unwrap_or_else(|error| Box::new(std::iter::once(Err(error)))));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), futures::stream::iter(batches)))
    }
}
