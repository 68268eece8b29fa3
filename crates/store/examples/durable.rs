//! How fast durable writes are from several threads: `cargo run --release -p canopy-store --example
//! durable [SECONDS [DIRECTORY]]`. Prints thousands of writes per second, and writes per sync of
//! the log, in a directory, in a directory that machines share, and in memory.

use bytes::Bytes;
use canopy_store::storage::{
    Append, Created, Listed, LocalStorage, MemoryStorage, SharedDirectory, Storage,
};
use canopy_store::{
    Batch, Durability, Environment, Key, Layout, Options, Result, SstableCache, Table, create,
};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Storage that counts what makes a part of a log durable.
struct Counting {
    storage: Arc<dyn Storage>,
    syncs: Arc<AtomicU64>,
}

struct CountingAppend(Box<dyn Append>, Arc<AtomicU64>);

impl Append for CountingAppend {
    fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.0.reserve(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.sync()
    }
}

impl Storage for Counting {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.storage.read_range(name, range)
    }

    fn has_ordered_listings(&self) -> bool {
        self.storage.has_ordered_listings()
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.storage.read(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.storage.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.storage.list(prefix, after)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.storage.remove(name)
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        let append = self.storage.append_to(name)?;
        let counting = |append| Box::new(CountingAppend(append, self.syncs.clone())) as _;
        Ok(append.map(counting))
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.storage.lock(name)
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|seconds| seconds.parse().ok()).unwrap_or(2.0);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let local = tempfile::tempdir_in(&directory).expect("a directory");
    let shared = tempfile::tempdir_in(&directory).expect("a directory");
    let storages: [(&str, Arc<dyn Storage>); 3] = [
        ("directory", Arc::new(LocalStorage::new(local.path())?)),
        ("shared directory", Arc::new(SharedDirectory::make(shared.path())?)),
        ("memory", Arc::new(MemoryStorage::default())),
    ];
    println!("storage           threads  writes/s  writes/sync");
    for (name, storage) in storages {
        for threads in [1, 8, 64] {
            let (writes, syncs) = measure(storage.clone(), threads, seconds)?;
            let rate = writes as f64 / seconds;
            let share = writes as f64 / syncs as f64;
            println!("{name:<16} {threads:>8}  {rate:>8.0}  {share:>11.1}");
        }
    }
    Ok(())
}

/// Returns how many writes and syncs a table took.
fn measure(storage: Arc<dyn Storage>, threads: u64, seconds: f64) -> Result<(u64, u64)> {
    let syncs = Arc::new(AtomicU64::new(0));
    let counting = Counting { storage, syncs: syncs.clone() };
    let environment = Environment::system(Arc::new(counting));
    let id = create(&environment, Layout::default(), &Options::default())?;
    let cache = SstableCache::new(&environment, 64 << 20);
    let table = Table::open(&environment, id, cache, Options::default())?;
    let (is_over, before) = (AtomicBool::new(false), syncs.load(Ordering::Relaxed));
    let writes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (table, is_over, writes) = (&table, &is_over, &writes);
            scope.spawn(move || {
                let mut batch = Batch::new();
                let mut count = 0u64;
                while !is_over.load(Ordering::Relaxed) {
                    batch.clear();
                    let key = Key::named(thread, &count.to_le_bytes());
                    batch.put(key.as_ref(), &[7; 100]).expect("a batch");
                    table.write(&batch, Durability::Durable).expect("a write");
                    count += 1;
                }
                writes.fetch_add(count, Ordering::Relaxed);
            });
        }
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < seconds {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    Ok((writes.into_inner(), syncs.load(Ordering::Relaxed) - before))
}
