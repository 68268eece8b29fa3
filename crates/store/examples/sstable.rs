//! How fast SSTables are, and how large: `cargo run --release -p canopy-store --example sstable`,
//! with the number of records, the rounds, the bytes of a block and a part of the names of what is
//! to be measured as arguments. Prints medians of the time of one core, with the file in the page
//! cache.

mod inodes;

use canopy_store::sstable::{BlockCache, Builder, BuilderOptions, Sstable, SstableInfo};
use canopy_store::storage::{LocalStorage, Storage};
use canopy_store::{Key, KeyRange, Result};
use inodes::{COLUMNS, Data, data};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::hint::black_box;
use std::sync::Arc;

/// Returns the time that this thread has run, in nanoseconds: others use the machine, too.
fn running_ns() -> f64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    times.split(' ').next().and_then(|time| time.parse().ok()).expect("a kernel with schedstat")
}

/// Prints the median of what `round` does so many times, in thousands a second.
fn measure(what: &str, rounds: usize, count: usize, mut round: impl FnMut()) {
    if std::env::args().nth(4).is_some_and(|wanted| !what.contains(&wanted)) {
        return;
    }
    let mut rates: Vec<f64> = (0..rounds)
        .map(|_| {
            let begin_ns = running_ns();
            round();
            count as f64 * 1e6 / (running_ns() - begin_ns)
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{what:<28} {:>8.0} k/s", rates[rounds / 2]);
}

fn build(data: &Data, options: &BuilderOptions) -> Result<(bytes::Bytes, SstableInfo)> {
    let mut builder = Builder::new(&data.layout, options.clone());
    for at in 0..data.entries.len() {
        builder.add(data.at(at))?;
    }
    builder.finish()
}

fn print_sizes(table: &Sstable) -> Result<()> {
    let records = table.info().records as f64;
    let print = |what: &str, bytes: usize| println!("  {what:<26} {:>8.2}", bytes as f64 / records);
    let mut sums = [0; 4];
    let mut bits = [0.0; COLUMNS.len()];
    table.describe_blocks(|block| {
        let block = block?;
        let parts = [block.column_bytes, block.text_bytes, block.name_bytes, block.tail_bytes];
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        for (sum, (_, bits)) in bits.iter_mut().zip(&block.columns) {
            *sum += f64::from(*bits) * block.records as f64;
        }
        Ok::<_, canopy_store::Error>(())
    })?;
    println!("{} records, {} blocks; bytes a record:", records, table.blocks());
    print("file", table.info().size_bytes as usize);
    print("columns", sums[0]);
    print("text", sums[1]);
    print("names before lz4", sums[2]);
    print("tails before lz4", sums[3]);
    let [range_deletes, index, filter] = table.tail_parts();
    print("range deletes", range_deletes);
    print("index", index);
    print("filter", filter);
    for ((name, ..), bits) in COLUMNS.iter().zip(bits) {
        println!("    {name:<24} {:>8.1} bits", bits / records);
    }
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "one course of steps")]
fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let records = arguments.next().unwrap_or(2_000_000);
    let rounds = arguments.next().unwrap_or(5);
    let options = BuilderOptions {
        block_bytes: arguments.next().unwrap_or(BuilderOptions::default().block_bytes),
    };
    let data = data(records);
    let records = data.entries.len();
    measure("build", rounds, records, || drop(black_box(build(&data, &options))));
    let (file, info) = build(&data, &options)?;
    let directory = tempfile::tempdir().expect("a directory for the file");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(directory.path())?);
    storage.create("sst/1", file)?;
    let open = |cache| {
        Sstable::open(storage.clone(), "sst/1".into(), &info, Arc::new(BlockCache::new(cache)))
    };
    let table = Arc::new(open(4 << 20)?);
    print_sizes(&table)?;
    measure("open", rounds, 100, || (0..100).for_each(|_| drop(black_box(open(0)))));
    measure("verify", 1, records, || table.verify().expect("a sound file"));
    let scan = |is_forward: bool| {
        let mut cursor = table.cursor(KeyRange::all());
        let mut sum = 0;
        if !is_forward {
            cursor.to_end();
        }
        while if is_forward { cursor.advance() } else { cursor.retreat() }.expect("a sound file") {
            let record = cursor.record().expect("a record");
            sum += record.key.hash as usize + record.value.len() + usize::from(record.value[16]);
        }
        black_box(sum);
    };
    measure("scan", rounds, records, || scan(true));
    measure("scan backward", rounds, records, || scan(false));
    let mut random = StdRng::seed_from_u64(8);
    let mut order: Vec<u32> = (0..records as u32).collect();
    order.shuffle(&mut random);
    order.truncate(300_000);
    // Close to each other in memory, so that only the table's own accesses are measured.
    let keys: Vec<Key> = order.iter().map(|at| data.entries[*at as usize].key.clone()).collect();
    let look_up = |table: &Sstable| {
        for key in &keys {
            let found = table.get(key.as_ref()).expect("a sound file");
            assert!(black_box(found).is_some());
        }
    };
    measure("look-ups, small cache", rounds, order.len(), || look_up(&table));
    let large = open(4 << 30)?;
    look_up(&large);
    measure("look-ups, cached", rounds, order.len(), || look_up(&large));
    let absent: Vec<Key> = order
        .iter()
        .map(|at| Key::named(data.entries[*at as usize].key.directory, &at.to_le_bytes()))
        .collect();
    measure("look-ups, absent", rounds, absent.len(), || {
        absent.iter().for_each(|key| drop(black_box(table.get(key.as_ref()))));
    });
    let starts: Vec<u64> =
        order.iter().take(20_000).map(|at| data.entries[*at as usize].key.directory).collect();
    let mut seen = 0;
    let mut list = || {
        seen = 0;
        for directory in &starts {
            let mut cursor = table.cursor(KeyRange::directory(*directory));
            for _ in 0..20 {
                seen += usize::from(cursor.advance().expect("a sound file"));
            }
        }
        black_box(seen);
    };
    measure("first 20 of a directory", rounds, starts.len(), &mut list);
    Ok(())
}
