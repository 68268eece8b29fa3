//! A thread that reads and writes connections.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

/// A thread with a runtime of its own. Its tasks end when it stops.
pub(crate) struct Worker {
    handle: Handle,
    stop: Arc<Notify>,
    tasks: Arc<AtomicUsize>,
}

/// Counts a task until this is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    /// Starts a thread.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let worker = Worker {
            handle: runtime.handle().clone(),
            stop: Arc::default(),
            tasks: Arc::default(),
        };
        let stop = worker.stop.clone();
        let thread = std::thread::Builder::new().name(name.into());
        thread.spawn(move || runtime.block_on(stop.notified()))?;
        Ok(worker)
    }

    /// Runs a task on the thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self.tasks.clone());
        self.handle.spawn(async move {
            task.await;
            drop(counted);
        });
    }

    /// Returns the number of tasks on the thread.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.load(Ordering::Relaxed)
    }

    /// Returns the runtime of the thread.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the thread and its tasks, soon.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }
}
