//! How fast a namespace executes operations, without the kernel: `cargo run --release -p
//! canopy-namespace --example namespace`, with the number of files, a directory for the records, the
//! indexes (names with commas, or `none`) and the tree (`one`, `many` or `both`) as arguments. One
//! thread makes everything, in one directory and in many; the log is written all the time, as it is
//! on a mount. On a machine that does other work too, what a second of the thread's CPU time does is
//! steadier.

use canopy_model::Credentials;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Changer, Moment, Read};
use canopy_namespace::{
    Contents, EntryName, Execute, FileId, Listing, Namespace, New, Operation, Ownership, ROOT,
    Reply, SetAttributes, Settings, Upkeep, create_namespace, system_clock,
};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::borrow::Cow;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The files of the tree of many directories lie in so many.
const DIRECTORIES: usize = 100_000;

/// Look-ups and updates that are measured.
const SAMPLES: usize = 500_000;

/// Returns the CPU time that this thread has had.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Returns the memory of the process, in MB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}

fn open(directory: &Path, indexes: &[&str]) -> Arc<Namespace> {
    let storage = LocalStorage::new(directory).expect("a storage");
    let environment = Environment::system(Arc::new(storage));
    let settings = Settings::default().with_indexes(indexes).expect("settings");
    create_namespace(&environment, &settings, Ownership::ROOT, &system_clock())
        .expect("a namespace");
    let contents = Contents::new(&directory.join("contents")).expect("a directory");
    Arc::new(Namespace::open(&environment, contents, system_clock()).expect("a namespace"))
}

fn name(at: usize) -> String {
    format!("sample_{at:08}.fastq.gz")
}

fn create(execute: &dyn Execute, parent: FileId, name: &str, mode: u32) -> FileId {
    let new = Cow::Owned(New { mode, uid: 1000, gid: 100, ..New::default() });
    let name = EntryName::new(parent, name.as_bytes());
    let create = Operation::Change(Change::Create { name, new, holds: false });
    match execute.execute(&create).expect("a file") {
        Reply::Inode(inode) => inode.id,
        other => panic!("{other:?}"),
    }
}

fn measure(what: &str, count: usize, work: impl FnOnce()) {
    let (begin, cpu_begin) = (Instant::now(), cpu_time());
    work();
    let thousands = |took: Duration| count as f64 / took.as_secs_f64() / 1e3;
    let [rate, cpu_rate] = [begin.elapsed(), cpu_time() - cpu_begin].map(thousands);
    println!("{what:<38} {rate:>8.0} k/s {cpu_rate:>8.0} k/s of CPU");
}

fn one_directory(namespace: &Namespace, count: usize) {
    println!("one directory");
    let execute: &dyn Execute = namespace;
    let directory = create(execute, ROOT, "one", file_type::DIRECTORY | 0o755);
    let mut longest = Duration::ZERO;
    measure("  creates", count, || {
        for at in 0..count {
            let begin = Instant::now();
            create(execute, directory, &name(at), file_type::REGULAR | 0o644);
            longest = longest.max(begin.elapsed());
        }
    });
    println!("  longest create                       {:>8.1} ms", longest.as_secs_f64() * 1e3);
    namespace.sync().expect("a sync");
    let samples = SAMPLES.min(count);
    let mut random = StdRng::seed_from_u64(1);
    let mut ids = Vec::with_capacity(samples);
    measure("  stats by name, at random", samples, || {
        for _ in 0..samples {
            let name = name(random.random_range(0..count));
            let name = EntryName::new(directory, name.as_bytes());
            let found = execute.lookup(Moment::Now, name).expect("a file");
            ids.push(black_box(found).id);
        }
    });
    measure("  stats by id", samples, || {
        for id in &ids {
            black_box(execute.inode(Moment::Now, *id).expect("a file"));
        }
    });
    list(execute, directory, count);
    measure("  chmod, at random", samples, || {
        for id in &ids {
            let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
            execute.set_attributes(*id, &set, Changer::Privileged).expect("a change");
        }
    });
    let removed = (count / 4).min(SAMPLES);
    measure("  unlinks", removed, || {
        for at in 0..removed {
            let name = name(at);
            execute.unlink(EntryName::new(directory, name.as_bytes())).expect("a file");
        }
    });
    by_user(execute, samples);
}

/// Measures operations of a user, whose rights the namespace checks.
fn by_user(execute: &dyn Execute, count: usize) {
    let who = Credentials::new(1000, [100]);
    let directory = create(execute, ROOT, "user", file_type::DIRECTORY | 0o755);
    let ask = |operation: &Operation<'_>| {
        let reply = execute.execute_for(Caller::User(&who), operation);
        black_box(reply.expect("what a user may"));
    };
    measure("  creates by a user, checked", count, || {
        for at in 0..count {
            let mode = file_type::REGULAR | 0o644;
            let new = Cow::Owned(New { mode, uid: 1000, gid: 100, ..New::default() });
            let name = name(at);
            let name = EntryName::new(directory, name.as_bytes());
            ask(&Operation::Change(Change::Create { name, new, holds: false }));
        }
    });
    let mut random = StdRng::seed_from_u64(3);
    measure("  stats by name by a user, checked", count, || {
        for _ in 0..count {
            let name = name(random.random_range(0..count));
            let name = EntryName::new(directory, name.as_bytes());
            ask(&Operation::Read(Moment::Now, Read::Lookup(name)));
        }
    });
}

fn list(execute: &dyn Execute, directory: FileId, count: usize) {
    let mut listed = 0;
    measure("  listing with attributes", count, || {
        let tell = |entry: canopy_namespace::Entry<'_>| {
            black_box(entry.inode);
            listed += 1;
            true
        };
        let mut listing = Listing::new(directory);
        execute.list(Moment::Now, &mut listing, 0, tell).expect("a listing");
    });
    assert_eq!(listed, count);
}

fn many_directories(namespace: &Namespace, count: usize) {
    println!("{DIRECTORIES} directories");
    let execute: &dyn Execute = namespace;
    let mut directories = Vec::with_capacity(DIRECTORIES);
    measure("  mkdirs", DIRECTORIES, || {
        let top = create(execute, ROOT, "many", file_type::DIRECTORY | 0o755);
        for at in 0..DIRECTORIES {
            let name = format!("run{at:06}");
            directories.push(create(execute, top, &name, file_type::DIRECTORY | 0o755));
        }
    });
    measure("  creates, one directory after another", count, || {
        for at in 0..count {
            let parent = directories[at * DIRECTORIES / count];
            create(execute, parent, &name(at), file_type::REGULAR | 0o644);
        }
    });
    let mut random = StdRng::seed_from_u64(2);
    let samples = SAMPLES.min(count);
    measure("  stats by name, at random", samples, || {
        for _ in 0..samples {
            let at = random.random_range(0..count);
            let parent = directories[at * DIRECTORIES / count];
            let name = name(at);
            let name = EntryName::new(parent, name.as_bytes());
            black_box(execute.lookup(Moment::Now, name).expect("a file"));
        }
    });
    let mut listed = 0;
    measure("  listing all with attributes", count, || {
        for directory in &directories {
            let tell = |entry: canopy_namespace::Entry<'_>| {
                black_box(entry.inode);
                listed += 1;
                true
            };
            let mut listing = Listing::new(*directory);
            execute.list(Moment::Now, &mut listing, 0, tell).expect("a listing");
        }
    });
    assert_eq!(listed, count);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let indexes = arguments.next().unwrap_or_else(|| "none".into());
    let indexes: Vec<&str> = indexes.split(',').filter(|one| *one != "none").collect();
    let place = tempfile::tempdir_in(directory).expect("a directory for the records");
    let wanted = arguments.next().unwrap_or_else(|| "both".into());
    println!("{count} files, indexes: {}", indexes.join(", "));
    let trees: [(&str, fn(&Namespace, usize)); 2] =
        [("one", one_directory), ("many", many_directories)];
    for (which, tree) in trees.into_iter().filter(|(which, _)| [which, "both"].contains(&&*wanted))
    {
        let at = place.path().join(which);
        let namespace = open(&at, &indexes);
        let upkeep = Upkeep::start(&namespace);
        tree(&namespace, count);
        drop(upkeep);
        let state = namespace.table().manifest();
        let bytes: u64 = state.state.runs.iter().map(|run| run.size_bytes()).sum();
        println!("  memory                               {:>8} MB", memory());
        println!("  SSTables                             {:>8} MB", bytes >> 20);
        drop(namespace);
        std::fs::remove_dir_all(&at).expect("a directory to remove");
    }
}
