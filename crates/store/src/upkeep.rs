//! Upkeep of a table that is written: sync its log, flush memtables, compact runs. Threads do it
//! here; a caller without threads calls the same methods.

use crate::collect::collect;
use crate::compaction::compact;
use crate::error::Result;
use crate::table::Table;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the log is synced if nobody asks for it: what a crash may take away.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// How often to look for memtables to flush.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How often to look for runs to compact.
const COMPACT_INTERVAL: Duration = Duration::from_millis(250);

/// How often to ask storage for what other processes did: each time may be a request that costs.
const OTHERS_INTERVAL: Duration = Duration::from_secs(2);

/// Most compactions at once. With two, one can merge large runs while the other keeps the number of
/// new small ones low. With one alone, that number grows with the table.
const COMPACTIONS: usize = 2;

/// Longest interval between retries of failed work, which back off up to it.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// How often what nobody needs is removed.
const COLLECT_INTERVAL: Duration = Duration::from_secs(30);

/// The threads that look after a table. They end, and the log is synced, when this is dropped.
pub struct Upkeep {
    table: Arc<Table>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

/// Does something for a table, and returns whether there is more to do.
type Work = Box<dyn Fn(&Table) -> Result<bool> + Send>;

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
        let spawn = |interval, work: Work| {
            let (table, stop) = (table.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut wait = interval;
                while stop.wait(wait) {
                    wait = match repeat(&table, &stop, &work) {
                        Ok(()) => interval,
                        Err(error) => {
                            *stop.failure.lock() = Some(error.to_string());
                            (2 * wait).min(RETRY_INTERVAL_MAX.max(interval))
                        }
                    };
                    // Others may end a compaction; the writer goes on then.
                    if table.has_ended() {
                        stop.set();
                    }
                }
            })
        };
        let mut threads = vec![
            spawn(SYNC_INTERVAL, Box::new(|table| table.sync().map(|()| false))),
            spawn(LOOK_INTERVAL, Box::new(Table::flush_frozen)),
            spawn(
                COLLECT_INTERVAL,
                Box::new(|table| {
                    let (environment, id, cache, _) = table.parts();
                    cache.close_removed();
                    collect(environment, id).map(|_| false)
                }),
            ),
        ];
        threads.extend((0..COMPACTIONS).map(|_| {
            let looked = Mutex::new((0, Instant::now()));
            spawn(COMPACT_INTERVAL, Box::new(move |table| compact_runs(table, &mut looked.lock())))
        }));
        Upkeep { table: table.clone(), stop, threads }
    }

    /// Returns what failed last, if anything did.
    pub fn failure(&self) -> Option<String> {
        self.stop.failure.lock().clone()
    }
}

/// Makes some runs one and shows readers what became of them, and what other processes did. Looks
/// again only at other versions than the one it `looked` at last, and asks for those of others now
/// and then: nobody pays for a table in which nothing happens.
fn compact_runs(table: &Table, looked: &mut (u64, Instant)) -> Result<bool> {
    let (looked_at, asked) = looked;
    if table.manifest().version.number == *looked_at && asked.elapsed() < OTHERS_INTERVAL {
        return Ok(false);
    }
    let version = table.refresh_if_changed()?;
    *asked = Instant::now();
    if *looked_at == version {
        return Ok(false);
    }
    let (environment, id, cache, options) = table.parts();
    let compacted = compact(environment, id, cache, options)?;
    match compacted {
        true => table.refresh()?,
        false => *looked_at = version,
    }
    Ok(compacted)
}

/// Works until there is nothing to do.
fn repeat(table: &Table, stop: &Stop, work: &Work) -> Result<()> {
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
        // Sync the unsynced writes, which would be lost with the process. The error is dropped: a
        // caller that must know syncs itself.
        let _ = self.table.sync();
    }
}
