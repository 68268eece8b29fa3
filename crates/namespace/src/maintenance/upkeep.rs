//! Background work of an open namespace: the engine's upkeep, and changes in memory that are
//! written every few seconds. A caller without threads calls [`Namespace::sync`].

use crate::error::Result;
use crate::namespace::Namespace;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often to look for indexes that have to be built.
const BUILD_INTERVAL: Duration = Duration::from_millis(500);

/// The threads that look after a namespace. When this is dropped, they end, and everything is
/// synced.
pub struct Upkeep {
    namespace: Arc<Namespace>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    /// Dropped after our own thread has ended.
    table: Option<canopy_store::Upkeep>,
}

#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
    failure: Mutex<Option<String>>,
}

impl Upkeep {
    /// Looks after a namespace in threads of its own.
    pub fn start(namespace: &Arc<Namespace>) -> Self {
        let stop = Arc::new(Stop::default());
        let interval = Duration::from_millis(namespace.settings().flush_interval_ms.max(10));
        let spawn = |interval, work: fn(&Namespace, &Stop) -> Result<()>| {
            let (namespace, stop) = (namespace.clone(), stop.clone());
            std::thread::spawn(move || {
                while stop.wait(interval) {
                    if let Err(error) = work(&namespace, &stop) {
                        *stop.failure.lock() = Some(error.to_string());
                    }
                }
            })
        };
        let threads = vec![
            spawn(interval, |namespace, _| namespace.sync()),
            spawn(BUILD_INTERVAL, |namespace, stop| {
                namespace.reclaim_if_short()?;
                namespace.remove_strays()?;
                namespace.tablet.find_labels(|| !*stop.is_set.lock())?;
                namespace.build_indexes(|| !*stop.is_set.lock()).map(drop)
            }),
        ];
        // The engine's removes what nobody needs any more.
        let is_writable = !namespace.is_read_only();
        let table = is_writable.then(|| canopy_store::Upkeep::start(namespace.table()));
        Upkeep { namespace: namespace.clone(), stop, threads, table }
    }

    /// Returns what failed last, if anything did.
    pub fn failure(&self) -> Option<String> {
        let own = self.stop.failure.lock().clone();
        own.or_else(|| self.table.as_ref().and_then(canopy_store::Upkeep::failure))
    }
}

impl Stop {
    /// Waits; returns whether to go on.
    fn wait(&self, duration: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        if !*is_set {
            self.changed.wait_for(&mut is_set, duration);
        }
        !*is_set
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        *self.stop.is_set.lock() = true;
        self.stop.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        // A caller that must know whether that worked syncs before.
        let _ = self.namespace.close();
        self.table.take();
    }
}
