//! How fast tables are: `cargo run --release -p canopy-store --example engine`, with the number of
//! records and a directory for the files as arguments. The files are in the page cache. The
//! allocator is that of the commands.

mod inodes;

use canopy_store::storage::LocalStorage;
use canopy_store::{
    Batch, Direction, Durability, Environment, Ingestion, Key, KeyRange, Options, Result,
    SstableCache, Table, TableId, Upkeep, compact_all, create,
};
use inodes::{Data, data};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs that are merged, and so many rounds of what is short.
const RUNS: usize = 8;
const ROUNDS: usize = 3;

fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64() / 1e3
}

fn report(what: &str, count: usize, took: Duration) {
    println!("{what:<34} {:>8.0} k/s", rate(count, took));
}

/// The fastest of several rounds would flatter; this is the one in the middle.
fn median(mut round: impl FnMut() -> Duration) -> Duration {
    let mut all = Vec::from_iter((0..ROUNDS).map(|_| round()));
    all.sort();
    all[ROUNDS / 2]
}

struct Bench {
    environment: Environment,
    options: Options,
    data: Data,
    /// The records in an order without a rule.
    shuffled: Vec<usize>,
}

impl Bench {
    /// Makes a table of all records in so many runs.
    fn ingest(&self, runs: usize) -> Result<TableId> {
        let id = create(&self.environment, self.data.layout.clone(), &self.options)?;
        for part in self.shuffled.chunks(self.shuffled.len().div_ceil(runs)) {
            let large = Options { memtable_bytes: 1 << 40, ..self.options.clone() };
            let mut ingestion = Ingestion::begin(&self.environment, id, &large)?;
            part.iter().try_for_each(|at| ingestion.add(self.data.at(*at)))?;
            ingestion.commit()?;
        }
        Ok(id)
    }

    fn cache(&self) -> Arc<SstableCache> {
        SstableCache::new(&self.environment, 512 << 20)
    }

    fn open(&self, id: TableId) -> Result<Table> {
        Table::open(&self.environment, id, self.cache(), self.options.clone())
    }
}

fn lookups(bench: &Bench, table: &Table) -> Result<()> {
    let some = &bench.shuffled[..bench.shuffled.len().min(500_000)];
    let took = median(|| {
        let begin = Instant::now();
        for at in some {
            let found = table.get(bench.data.entries[*at].key.as_ref()).expect("a look-up");
            assert!(black_box(found).is_some());
        }
        begin.elapsed()
    });
    report("look-ups", some.len(), took);
    let absent = Vec::from_iter(some.iter().map(|at| {
        let directory = bench.data.entries[*at].key.directory;
        Key::named(directory, format!("absent {at}").as_bytes())
    }));
    let took = median(|| {
        let begin = Instant::now();
        for key in &absent {
            assert!(black_box(table.get(key.as_ref()).expect("a look-up")).is_none());
        }
        begin.elapsed()
    });
    report("look-ups of absent keys", absent.len(), took);
    Ok(())
}

fn scans(table: &Table, count: usize) -> Result<()> {
    for direction in [Direction::Forward, Direction::Backward] {
        let took = median(|| {
            let begin = Instant::now();
            let mut scan = table.scan(&KeyRange::all(), direction).expect("a scan");
            let mut records = 0;
            while let Some(record) = scan.next().expect("a record") {
                black_box(record);
                records += 1;
            }
            assert_eq!(records, count);
            begin.elapsed()
        });
        report(&format!("scan, {direction:?}"), count, took);
    }
    Ok(())
}

/// Updates records at random while threads flush and compact.
fn updates(bench: &Bench, id: TableId, count: usize) -> Result<()> {
    let table = Arc::new(bench.open(id)?);
    let upkeep = Upkeep::start(&table);
    let mut random = StdRng::seed_from_u64(3);
    let mut latencies = Vec::with_capacity(count);
    let begin = Instant::now();
    let mut batch = Batch::new();
    for _ in 0..count {
        let record = bench.data.at(random.random_range(0..bench.data.entries.len()));
        batch.clear();
        batch.record(record)?;
        let begin = Instant::now();
        table.write(&batch, Durability::Visible)?;
        latencies.push(begin.elapsed());
    }
    report("random updates, compacting", count, begin.elapsed());
    latencies.sort_unstable();
    let at = |share: f64| latencies[(share * (count - 1) as f64) as usize].as_secs_f64() * 1e3;
    println!(
        "  latency of an update: median {:.4} ms, p99.9 {:.3} ms, most {:.1} ms",
        at(0.5),
        at(0.999),
        at(1.0)
    );
    drop(upkeep);
    let written = table.manifest().state.next_job;
    println!("  runs {}, jobs {written}", table.manifest().state.runs.len());
    Ok(())
}

/// Opens a table whose log has a gigabyte.
fn recovery(bench: &Bench) -> Result<()> {
    let id = create(&bench.environment, bench.data.layout.clone(), &bench.options)?;
    let large = Options { memtable_bytes: 1 << 40, memory_bytes: 1 << 40, ..bench.options.clone() };
    let table = Table::open(&bench.environment, id, bench.cache(), large)?;
    let (mut bytes, mut count) = (0, 0);
    let begin = Instant::now();
    for at in bench.shuffled.iter().cycle() {
        let mut batch = Batch::new();
        batch.record(bench.data.at(*at))?;
        bytes += batch.size_bytes();
        count += 1;
        table.write(&batch, Durability::Visible)?;
        if bytes >= 1 << 30 {
            break;
        }
    }
    table.sync()?;
    report("updates of one memtable", count, begin.elapsed());
    drop(table);
    let begin = Instant::now();
    let table = bench.open(id)?;
    println!("recovery of a log of 1 GiB         {:>8.2} s", begin.elapsed().as_secs_f64());
    drop(table);
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(2_000_000);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory).expect("a directory for the files");
    let environment = Environment::system(Arc::new(LocalStorage::new(directory.path())?));
    let data = data(count);
    let count = data.entries.len();
    let mut shuffled = Vec::from_iter(0..count);
    shuffled.shuffle(&mut StdRng::seed_from_u64(5));
    let bench = Bench { environment, options: Options::default(), data, shuffled };
    println!("{count} records");

    let mut id = None;
    let took = median(|| {
        let begin = Instant::now();
        id = Some(bench.ingest(1).expect("an ingestion"));
        begin.elapsed()
    });
    report("log, sort, write", count, took);
    let id = id.expect("a round was run");
    let table = bench.open(id)?;
    let bytes: u64 = table.manifest().state.runs.iter().map(|run| run.size_bytes()).sum();
    println!("  bytes a record                   {:>8.1}", bytes as f64 / count as f64);
    lookups(&bench, &table)?;
    scans(&table, count)?;
    drop(table);

    let several = bench.ingest(RUNS)?;
    let begin = Instant::now();
    compact_all(&bench.environment, several, &bench.cache(), &bench.options)?;
    report(&format!("merge of {RUNS} runs"), count, begin.elapsed());
    updates(&bench, id, (count * 2).min(6_000_000))?;
    recovery(&bench)
}
