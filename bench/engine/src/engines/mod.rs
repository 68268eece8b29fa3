//! The engines, behind what is measured of them. README.md says what each is set to, and why.

mod canopy;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "slatedb")]
mod slatedb;

use crate::records::{Record, Records};
use anyhow::{Result, bail};
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Memory for the memtable of each engine, where it takes such an option.
pub const MEMTABLE_BYTES: usize = 64 << 20;
/// All memtables together.
pub const MEMTABLES_BYTES: usize = 256 << 20;
/// Blocks, indexes and filters together.
pub const CACHE_BYTES: usize = 512 << 20;
/// The bits of a filter that a key takes.
pub const FILTER_BITS: u32 = 10;
/// How often the log is synced: what a crash may take away.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Threads that flush and compact.
pub const THREADS: usize = 2;
/// A memtable that the whole log of the measured recovery fits into.
const LARGE_MEMTABLE_BYTES: usize = 16 << 30;

/// Settings of the engines, printed above the results.
pub const SETTINGS: &str =
    "                      canopy         slatedb        fjall          rocksdb
memtable              64 MiB         64 MiB         64 MiB         64 MiB
all memtables         256 MiB        256 MiB        4 + 1          4
blocks and indexes    512 MiB        512 MiB        512 MiB *      512 MiB
block                 own            4 KiB          4 KiB          4 KiB
compression           own, lz4       lz4            lz4            lz4
filter                10 bits        10 bits        10 bits        10 bits
threads               1 + 2          2 (tokio)      2              2
compaction            tiered, 4      tiered, 4-8    leveled        leveled
log synced every      100 ms         100 ms         100 ms         100 ms
files synced          yes            yes            yes            yes
* pins indexes and filters of its upper levels beside them
";

/// An engine that is measured.
pub trait Engine {
    /// Writes one record; readers see it once this returns, and it outlasts a crash soon.
    fn put(&self, record: Record<'_>) -> Result<()>;

    /// Writes records in one batch, likewise.
    fn put_all(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<()>;

    /// Changes a part of a value (`records::CHANGED`) without reading it.
    fn change(&self, _key: &[u8], _operand: &[u8]) -> Result<()> {
        bail!("not measured for this engine")
    }

    /// Returns whether there is a key, after its value was there to be read.
    fn get(&self, key: &[u8]) -> Result<bool>;

    /// Reads records of a directory, or of all, so many at most; returns how many.
    fn scan(&self, directory: Option<u64>, most: usize) -> Result<usize>;

    /// Makes everything written so far outlast a crash.
    fn sync(&self) -> Result<()>;

    /// Writes everything written so far into sorted files.
    fn flush(&self) -> Result<()>;

    /// Merges everything in sorted files into one run.
    fn compact(&self) -> Result<()>;

    /// Returns the bytes of the sorted files that count.
    fn live_bytes(&self) -> Result<u64>;

    /// Returns how many runs a look-up may have to ask.
    fn runs(&self) -> Result<u64>;

    /// Makes 8 runs of all records anew and merges them; returns how long the merge took.
    fn merge_runs(&self, _records: &Records) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// Whether [`Engine::change`] is there.
    fn has_change(&self) -> bool {
        false
    }
}

/// The engines of this build, in the order of a round.
pub const NAMES: &[&str] = &[
    "canopy",
    #[cfg(feature = "slatedb")]
    "slatedb",
    #[cfg(feature = "fjall")]
    "fjall",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
];

/// Opens an engine in a directory, or makes it there. With `holds_log` nothing leaves the log until
/// the process ends.
pub fn open(
    name: &str,
    directory: &Path,
    records: &Records,
    holds_log: bool,
) -> Result<Box<dyn Engine>> {
    let memtable_bytes = if holds_log { LARGE_MEMTABLE_BYTES } else { MEMTABLE_BYTES };
    Ok(match name {
        "canopy" => Box::new(canopy::Canopy::open(directory, records, memtable_bytes)?),
        #[cfg(feature = "fjall")]
        "fjall" => Box::new(fjall::Fjall::open(directory, memtable_bytes)?),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(rocksdb::RocksDb::open(directory, memtable_bytes)?),
        #[cfg(feature = "slatedb")]
        "slatedb" => Box::new(slatedb::SlateDb::open(directory, memtable_bytes)?),
        _ => bail!("there is no engine {name:?} in this build; there are {NAMES:?}"),
    })
}

/// Does something every [`SYNC_INTERVAL`], for engines that do not sync their log themselves.
struct Syncing {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[cfg_attr(not(any(feature = "fjall", feature = "rocksdb")), expect(dead_code))]
impl Syncing {
    fn start(sync: impl Fn() + Send + 'static) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let asked = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut is_over = asked.0.lock();
            while !*is_over {
                asked.1.wait_for(&mut is_over, SYNC_INTERVAL);
                sync();
            }
        });
        Syncing { stop, thread: Some(thread) }
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
