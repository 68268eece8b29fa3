//! Measures many open tablets in a process that does nothing with them: `cargo run --release -p
//! canopy-namespace --example tablets [TABLETS [DIRECTORY]]`. Prints the process' memory, threads,
//! open files, and CPU time per second, after each tablet has executed some creates.

use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Operation};
use canopy_namespace::{
    EntryName, New, NoOpenFiles, Ownership, ProcessMemory, ROOT, Settings, Tablet, TabletRange,
    create_table, system_clock,
};
use canopy_store::storage::LocalStorage;
use canopy_store::{Environment, UpkeepThreads};
use std::borrow::Cow;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Files that each tablet makes.
const FILES: u32 = 100;

/// Budget of all tablets together.
const MEMORY_BYTES: u64 = 512 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(Ok(256), |count| count.parse::<usize>())?;
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory)?;
    let environment = Environment::system(Arc::new(LocalStorage::new(directory.path())?));
    let clock = system_clock();
    let begin = Instant::now();
    let mut tables = Vec::new();
    for number in 0..count {
        let settings = Settings::default();
        tables.push(create_table(&environment, &settings, Ownership::ROOT, &clock, number == 0)?);
    }
    println!("created {count} tables in {:.2} s", begin.elapsed().as_secs_f64());
    report("before they are opened");
    let begin = Instant::now();
    let memory = ProcessMemory::new(&environment, MEMORY_BYTES);
    let threads = UpkeepThreads::start();
    let (mut tablets, mut upkeeps) = (Vec::new(), Vec::new());
    for table in tables {
        let table = memory.open_table(table)?;
        upkeeps.push(threads.look_after(&table));
        let (range, files) = (TabletRange::All, Arc::new(NoOpenFiles));
        tablets.push(Tablet::sharing(&memory, table, range, clock.clone(), files)?);
    }
    println!("opened them in {:.2} s", begin.elapsed().as_secs_f64());
    report("open");
    for tablet in &tablets {
        for file in 0..FILES {
            let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
            let name = format!("file{file}");
            let name = EntryName::new(ROOT, name.as_bytes());
            tablet.execute(&Operation::Change(Change::Create {
                name,
                new: Cow::Owned(new),
                holds: false,
            }))?;
        }
        tablet.table().sync()?;
    }
    report(&format!("{FILES} files made in each"));
    let (before, begin) = (cpu_time(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let share = (cpu_time() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    println!("idle: {:.1} % of a processor", 100.0 * share);
    Ok(())
}

/// Prints what this process takes now.
fn report(when: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
    };
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    println!(
        "{when}: {} MB resident, {} threads, {files} open files",
        field("VmRSS:") / 1024,
        field("Threads:")
    );
}

/// Returns the CPU time of this process.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
