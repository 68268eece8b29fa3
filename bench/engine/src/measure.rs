//! Measures one engine in one process. Every figure goes to stdout as soon as it is known, as its
//! name, a tab and a number.

use crate::engines::{self, Engine};
use crate::latency::Latencies;
use crate::process::{Watch, cpu_seconds, disk_bytes, written_bytes};
use crate::records::{CHANGED, Record, Records, VALUE, absent_key, key_of};
use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Records that are loaded in one batch.
const BATCH: usize = 1000;

/// Look-ups of each kind, directories listed, and beginnings of directories.
const LOOKUPS: usize = 300_000;
const LISTINGS: usize = 500;
const BEGINNINGS: usize = 20_000;

/// Records that are read at the beginning of a directory.
const BEGINNING: usize = 20;

/// Bytes of a record in canopy-store's log beside its key and value. They make all logs equally
/// long.
const LOG_RECORD_BYTES: usize = 7;

fn report(figure: &str, value: f64) {
    println!("{figure}\t{value}");
    let _ = std::io::stdout().flush();
}

/// Time and resources that pass during an operation.
struct Passing {
    begin: Instant,
    cpu_seconds: f64,
    written_bytes: u64,
}

impl Passing {
    fn begin() -> Self {
        let (cpu_seconds, written_bytes) = (cpu_seconds(), written_bytes());
        Passing { begin: Instant::now(), cpu_seconds, written_bytes }
    }

    fn rate(&self, count: usize) -> f64 {
        count as f64 / self.begin.elapsed().as_secs_f64() / 1e3
    }

    /// Reports how many were done a second, and the time of processors that each took.
    fn report(&self, figure: &str, count: usize) {
        report(&format!("{figure}_k"), self.rate(count));
        report(&format!("{figure}_cpu_us"), self.cpu_seconds() * 1e6 / count as f64);
    }

    fn cpu_seconds(&self) -> f64 {
        cpu_seconds() - self.cpu_seconds
    }

    fn amplification(&self, bytes: usize) -> f64 {
        (written_bytes() - self.written_bytes) as f64 / bytes as f64
    }
}

struct Measured<'a> {
    engine: Box<dyn Engine>,
    records: &'a Records,
    watch: Watch,
}

/// Measures everything but recovery.
pub fn measure(name: &str, directory: &Path, records: &Records, updates: usize) -> Result<()> {
    let watch = Watch::start(directory);
    let engine = engines::open(name, directory, records, false)?;
    let measured = Measured { engine, records, watch };
    measured.load()?;
    measured.compact()?;
    measured.look_up("")?;
    measured.scan()?;
    measured.report_memory("read_mb");
    measured.update(updates)?;
    measured.look_up("_dirty")?;
    if measured.engine.has_change() {
        measured.change(updates)?;
    }
    measured.report_memory("late_mb");
    if let Some(took) = measured.engine.merge_runs(records)? {
        report("merge_k", records.len() as f64 / took.as_secs_f64() / 1e3);
    }
    measured.report_memory("merge_mb");
    report("disk_gb", measured.watch.disk_bytes() as f64 / 1e9);
    Ok(())
}

impl Measured<'_> {
    fn report_memory(&self, figure: &str) {
        report(figure, self.watch.memory_bytes() as f64 / 1e6);
    }

    fn load(&self) -> Result<()> {
        let (count, passing) = (self.records.len(), Passing::begin());
        let mut latencies = Latencies::new();
        for start in (0..count).step_by(BATCH) {
            let mut batch = (start..count.min(start + BATCH)).map(|at| self.records.shuffled(at));
            let begin = Instant::now();
            self.engine.put_all(&mut batch)?;
            latencies.add(begin.elapsed());
        }
        self.engine.sync()?;
        self.engine.flush()?;
        report("load_k", passing.rate(count));
        report("load_cpu_s", passing.cpu_seconds());
        report("load_wa", passing.amplification(self.records.bytes()));
        report("load_most_ms", latencies.most_us() / 1e3);
        report("load_runs", self.engine.runs()? as f64);
        self.report_memory("load_mb");
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        let is_one = self.engine.runs()? <= 1;
        let (count, passing) = (self.records.len(), Passing::begin());
        self.engine.compact()?;
        if !is_one {
            report("compact_k", passing.rate(count));
            report("compact_cpu_s", passing.cpu_seconds());
        }
        report("bytes_a_record", self.engine.live_bytes()? as f64 / count as f64);
        self.report_memory("compact_mb");
        Ok(())
    }

    /// Looks keys up, after as many others were, so that caches have what they can have.
    fn look_up(&self, when: &str) -> Result<()> {
        let mut random = StdRng::seed_from_u64(8);
        let count = LOOKUPS.min(self.records.len());
        let mut passing = Passing::begin();
        for round in 0..2 {
            // To fetch the keys from the records would take a fifth of the time.
            let keys =
                Vec::from_iter((0..count).map(|_| {
                    self.records.at(random.random_range(0..self.records.len())).key.to_vec()
                }));
            passing = Passing::begin();
            for key in &keys {
                ensure!(self.engine.get(key)?, "a record is missing in round {round}");
            }
        }
        passing.report(&format!("get{when}"), count);
        let absent = Vec::from_iter((0..count).map(|at| {
            let directory = key_of(self.records.shuffled(at).key).directory;
            absent_key(directory, at)
        }));
        for _ in 0..2 {
            passing = Passing::begin();
            for key in &absent {
                ensure!(!self.engine.get(key)?, "there is a key that nobody put there");
            }
        }
        passing.report(&format!("absent{when}"), count);
        Ok(())
    }

    fn scan(&self) -> Result<()> {
        let passing = Passing::begin();
        let count = self.engine.scan(None, usize::MAX)?;
        ensure!(count == self.records.len(), "{count} records in a scan of all");
        passing.report("scan", count);
        let directory = |at| key_of(self.records.shuffled(at).key).directory;
        let (mut count, passing) = (0, Passing::begin());
        for at in 0..LISTINGS {
            count += self.engine.scan(Some(directory(at)), usize::MAX)?;
        }
        passing.report("list", count);
        let passing = Passing::begin();
        for at in 0..BEGINNINGS.min(self.records.len()) {
            self.engine.scan(Some(directory(at)), BEGINNING)?;
        }
        passing.report("begin", BEGINNINGS.min(self.records.len()));
        Ok(())
    }

    /// Gives records new sizes and times at random, while the engine flushes and compacts.
    fn update(&self, updates: usize) -> Result<()> {
        let mut value = [0; VALUE];
        self.write(updates, "update", |record, operand| {
            value.copy_from_slice(record.value);
            for (place, part) in CHANGED.into_iter().zip(operand.chunks(8)) {
                value[place].copy_from_slice(part);
            }
            self.engine.put(Record { key: record.key, value: &value })
        })
    }

    /// The same, as changes of values that are not read.
    fn change(&self, updates: usize) -> Result<()> {
        self.write(updates, "change", |record, operand| self.engine.change(record.key, operand))
    }

    fn write(
        &self,
        updates: usize,
        what: &str,
        mut write: impl FnMut(Record<'_>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut random = StdRng::seed_from_u64(3);
        let (mut latencies, mut bytes) = (Latencies::new(), 0);
        self.watch.memory_bytes();
        let passing = Passing::begin();
        for at in 0..updates {
            let record = self.records.at(random.random_range(0..self.records.len()));
            // Sizes and times are near to what they were: a file grows, now.
            let mut operand = [0; 24];
            for (place, part) in CHANGED.into_iter().zip(operand.chunks_mut(8)) {
                part.copy_from_slice(&record.value[place]);
                part[..3].copy_from_slice(&(at as u32).to_le_bytes()[..3]);
            }
            bytes += record.key.len() + record.value.len();
            let begin = Instant::now();
            write(record, &operand)?;
            latencies.add(begin.elapsed());
        }
        self.engine.sync()?;
        report(&format!("{what}_k"), passing.rate(updates));
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            report(&format!("{what}_{name}_us"), latencies.at_us(share));
        }
        report(&format!("{what}_most_us"), latencies.most_us());
        report(&format!("{what}_stalls"), latencies.stalls as f64);
        report(&format!("{what}_wa"), passing.amplification(bytes));
        report(&format!("{what}_cpu_s"), passing.cpu_seconds());
        report(&format!("{what}_runs"), self.engine.runs()? as f64);
        self.report_memory(&format!("{what}_mb"));
        Ok(())
    }
}

/// Writes so many bytes into the log alone, says so, and waits to be killed.
pub fn fill(name: &str, directory: &Path, records: &Records, log_bytes: usize) -> Result<()> {
    let engine = engines::open(name, directory, records, true)?;
    let (mut bytes, mut count) = (0, 0);
    while bytes < log_bytes {
        let batch = Vec::from_iter((0..BATCH).map(|at| {
            let record = records.shuffled((count + at) % records.len());
            bytes += record.key.len() + record.value.len() + LOG_RECORD_BYTES;
            record
        }));
        engine.put_all(&mut batch.into_iter())?;
        count += BATCH;
    }
    engine.sync()?;
    report("log_gb", disk_bytes(directory) as f64 / 1e9);
    report("log_records_k", count as f64 / 1e3);
    report("log_is_full", 1.0);
    std::thread::sleep(Duration::from_secs(3600));
    Ok(())
}

/// Opens what [`fill`] left.
pub fn recover(name: &str, directory: &Path, records: &Records) -> Result<()> {
    let watch = Watch::start(directory);
    let begin = Instant::now();
    let engine = engines::open(name, directory, records, false)?;
    report("recovery_s", begin.elapsed().as_secs_f64());
    for at in 0..1000 {
        ensure!(engine.get(records.shuffled(at).key)?, "a record is lost");
    }
    report("recovery_mb", watch.memory_bytes() as f64 / 1e6);
    Ok(())
}
