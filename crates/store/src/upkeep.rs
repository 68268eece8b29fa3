//! What a table that is written needs done beside: its log synced, memtables flushed, runs
//! compacted. Threads do it here; who has no threads calls the same methods.

use crate::compaction::compact;
use crate::error::{Error, Result};
use crate::table::Table;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the log is synced if nobody asks for it: what a crash may take away.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// How often to look for memtables to flush and runs to compact, and how long to wait after a
/// failure.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The threads that look after a table. They end when this is dropped.
pub struct Upkeep {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
    failure: Mutex<Option<String>>,
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

    fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }
}

impl Upkeep {
    /// Looks after a table in threads of its own.
    pub fn start(table: &Arc<Table>) -> Self {
        let stop = Arc::new(Stop::default());
        let spawn = |interval, work: fn(&Table) -> Result<bool>| {
            let (table, stop) = (table.clone(), stop.clone());
            std::thread::spawn(move || {
                while stop.wait(interval) {
                    let done = repeat(&table, &stop, work);
                    let failure = done.as_ref().err().map(Error::to_string);
                    if let Some(failure) = failure {
                        *stop.failure.lock() = Some(failure);
                    }
                    if let Err(Error::Fenced(_)) = done {
                        stop.set();
                    }
                }
            })
        };
        let threads = vec![
            spawn(SYNC_INTERVAL, |table| table.sync().map(|()| false)),
            spawn(LOOK_INTERVAL, Table::flush_frozen),
            spawn(LOOK_INTERVAL, |table| {
                let (environment, id, tables, options) = table.parts();
                let compacted = compact(environment, id, tables, options)?;
                if compacted {
                    table.refresh()?;
                }
                Ok(compacted)
            }),
        ];
        Upkeep { stop, threads }
    }

    /// Returns what failed last, if anything did.
    pub fn failure(&self) -> Option<String> {
        self.stop.failure.lock().clone()
    }
}

/// Works until there is nothing to do.
fn repeat(table: &Table, stop: &Stop, work: fn(&Table) -> Result<bool>) -> Result<()> {
    while work(table)? && !*stop.is_set.lock() {}
    Ok(())
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.stop.set();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
