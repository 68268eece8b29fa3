//! The benchmark mdtest: its flags, its phases and its table, by a program of our own. mdtest is in no
//! registry. Processes are started by mpirun, srun or `--ranks`; they meet by files in a directory.

mod places;
mod ranks;
mod tree;

use anyhow::{Context, Result, ensure};
use places::{Files, Library, Place};
use ranks::Ranks;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tree::Tree;

/// Arguments of `canopy-bench mdtest`, named as mdtest names them.
#[derive(clap::Args)]
pub struct Arguments {
    /// Items that each process makes
    #[arg(short = 'n', value_name = "N", conflicts_with = "per_directory")]
    items: Option<u64>,
    /// Items in each directory of the tree
    #[arg(short = 'I', value_name = "N")]
    per_directory: Option<u64>,
    /// The directory to work in
    #[arg(short = 'd', value_name = "DIR", default_value = "out")]
    directory: PathBuf,
    /// A tree of its own for each process
    #[arg(short = 'u')]
    unique: bool,
    /// Depth of the tree
    #[arg(short = 'z', value_name = "N", default_value_t = 0)]
    depth: u32,
    /// Branches of each directory of the tree
    #[arg(short = 'b', value_name = "N", default_value_t = 1)]
    branches: u64,
    /// Items only in the leaves of the tree
    #[arg(short = 'L')]
    leaves: bool,
    /// Only files
    #[arg(short = 'F', conflicts_with = "only_directories")]
    only_files: bool,
    /// Only directories
    #[arg(short = 'D')]
    only_directories: bool,
    /// Only create (and the phases of the next three options, if given)
    #[arg(short = 'C')]
    create: bool,
    /// Only stat
    #[arg(short = 'T')]
    stat: bool,
    /// Only read files
    #[arg(short = 'E')]
    read: bool,
    /// Only remove
    #[arg(short = 'r')]
    remove: bool,
    /// Iterations
    #[arg(short = 'i', value_name = "N", default_value_t = 1)]
    iterations: u32,
    /// Stat and read what the process so many ranks further has made
    #[arg(short = 'N', value_name = "N", default_value_t = 0)]
    stride: u64,
    /// Bytes to write to each file
    #[arg(short = 'w', value_name = "BYTES", default_value_t = 0)]
    write_bytes: usize,
    /// Bytes to read from each file
    #[arg(short = 'e', value_name = "BYTES", default_value_t = 0)]
    read_bytes: usize,
    /// Sync each file after it was written
    #[arg(short = 'y')]
    sync: bool,
    /// Stat in a random order
    #[arg(short = 'R')]
    random: bool,
    /// Seconds to wait before each iteration
    #[arg(short = 'p', value_name = "SECONDS", default_value_t = 0)]
    pause: u64,
    /// Start so many processes
    #[arg(long, value_name = "N", conflicts_with = "meet")]
    ranks: Option<u32>,
    /// A directory in which the processes meet, which all of them share [default: one of this machine]
    #[arg(long, value_name = "DIR")]
    meet: Option<PathBuf>,
    /// Use Canopy's library, and no mount: addresses of processes of a cluster
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    cluster: Vec<String>,
}

/// The operation on each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Create,
    Stat,
    Read,
    Remove,
}

/// Rates of an operation in all iterations.
struct Row {
    name: String,
    rates: Vec<f64>,
}

/// Runs the benchmark; the first process prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(count) = arguments.ranks {
        return ranks::start(count);
    }
    let mut ranks = Ranks::from_environment(arguments.meet.as_deref())?;
    let mut rows: Vec<Row> = Vec::new();
    let place: Box<dyn Place> = match arguments.cluster.as_slice() {
        [] => Box::new(Files { sync: arguments.sync }),
        addresses => {
            ensure!(
                arguments.write_bytes + arguments.read_bytes == 0,
                "-w and -e need a mount: the library has no contents here"
            );
            Box::new(Library::connect(addresses, ranks.rank())?)
        }
    };
    let tree = tree_of(arguments)?;
    for iteration in 0..arguments.iterations {
        std::thread::sleep(Duration::from_secs(arguments.pause));
        let mut run =
            Run { arguments, place: &*place, tree: &tree, ranks: &mut ranks, rows: &mut rows };
        run.iteration(iteration)?;
    }
    if ranks.rank() == 0 {
        print(arguments, &tree, ranks.size(), &rows);
    }
    ranks.end()
}

fn tree_of(arguments: &Arguments) -> Result<Tree> {
    ensure!(arguments.branches > 0, "-b: at least 1 is possible");
    let tree = Tree::new(arguments.depth, arguments.branches, arguments.leaves)?;
    let places = tree.places().count() as u64;
    let each = match (arguments.per_directory, arguments.items) {
        (Some(each), _) => each,
        (None, Some(items)) => items / places,
        (None, None) => 0,
    };
    Ok(tree.with_items(each))
}

struct Run<'a> {
    arguments: &'a Arguments,
    place: &'a dyn Place,
    tree: &'a Tree,
    ranks: &'a mut Ranks,
    rows: &'a mut Vec<Row>,
}

impl Run<'_> {
    fn iteration(&mut self, iteration: u32) -> Result<()> {
        let Arguments { unique, only_files, only_directories, .. } = *self.arguments;
        let top = self.arguments.directory.join(format!("test-dir.0-{iteration}"));
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let own = |rank: u64| top.join(format!("mdtest_tree.{}", if unique { rank } else { 0 }));
        let makes_tree = unique || rank == 0;
        if self.has(Phase::Create) {
            if rank == 0 {
                self.place.make_directories(&top)?;
            }
            let count = if makes_tree { self.tree.directories() } else { 0 };
            self.timed("Tree creation", count, |run| {
                if makes_tree { run.tree.make(run.place, &own(rank)) } else { Ok(()) }
            })?;
        }
        let neighbor = (rank + self.arguments.stride) % size;
        for is_directory in [true, false] {
            if is_directory && only_files || !is_directory && only_directories {
                continue;
            }
            for phase in [Phase::Create, Phase::Stat, Phase::Read, Phase::Remove] {
                if !self.has(phase) || is_directory && phase == Phase::Read {
                    continue;
                }
                let of =
                    if [Phase::Create, Phase::Remove].contains(&phase) { rank } else { neighbor };
                self.timed(name_of(phase, is_directory), self.tree.items(), |run| {
                    run.items(phase, is_directory, &own(of), of)
                })?;
            }
        }
        if self.has(Phase::Remove) {
            let count = if makes_tree { self.tree.directories() } else { 0 };
            self.timed("Tree removal", count, |run| {
                if makes_tree { run.tree.remove(run.place, &own(rank)) } else { Ok(()) }
            })?;
            if rank == 0 {
                self.place.remove_directory(&top)?;
            }
        }
        self.ranks.meet("")?;
        Ok(())
    }

    fn has(&self, phase: Phase) -> bool {
        let Arguments { create, stat, read, remove, .. } = *self.arguments;
        let is_given = match phase {
            Phase::Create => create,
            Phase::Stat => stat,
            Phase::Read => read,
            Phase::Remove => remove,
        };
        is_given || !(create || stat || read || remove)
    }

    /// Has all processes do something at once, and notes the rate of all.
    fn timed(
        &mut self,
        name: &str,
        count: u64,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.ranks.meet("")?;
        let begin = now()?;
        let worked = work(self);
        let end = now()?;
        let said = match &worked {
            Ok(()) => format!("{count} {begin} {end}"),
            Err(_) => "failed".to_owned(),
        };
        let all = self.ranks.meet(&said)?;
        worked.with_context(|| format!("{name}: process {}", self.ranks.rank()))?;
        let (mut sum, mut first, mut last) = (0.0, f64::MAX, f64::MIN);
        for said in &all {
            let numbers = said.split(' ').map(str::parse::<f64>).collect::<Result<Vec<_>, _>>();
            let numbers = numbers.map_err(|_| anyhow::anyhow!("{name}: a process failed"))?;
            let [count, begin, end] = numbers[..] else { continue };
            (sum, first, last) = (sum + count, first.min(begin), last.max(end));
        }
        let rate = sum / (last - first).max(1e-9);
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.rates.push(rate),
            None => self.rows.push(Row { name: name.to_owned(), rates: vec![rate] }),
        }
        Ok(())
    }

    fn items(
        &self,
        phase: Phase,
        is_directory: bool,
        root: &std::path::Path,
        rank: u64,
    ) -> Result<()> {
        let Arguments { write_bytes, read_bytes, random, .. } = *self.arguments;
        let kind = if is_directory { "dir" } else { "file" };
        self.tree.each_item(root, random && phase == Phase::Stat, |directory, number| {
            let path = directory.join(format!("{kind}.mdtest.{rank}.{number}"));
            let place = self.place;
            let done = match (phase, is_directory) {
                (Phase::Create, true) => place.make_directory(&path),
                (Phase::Create, false) => place.create(&path, write_bytes),
                (Phase::Stat, _) => place.stat(&path),
                (Phase::Read, _) => place.read(&path, read_bytes),
                (Phase::Remove, true) => place.remove_directory(&path),
                (Phase::Remove, false) => place.remove(&path),
            };
            done.with_context(|| path.display().to_string())
        })
    }
}

fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

fn name_of(phase: Phase, is_directory: bool) -> &'static str {
    match (phase, is_directory) {
        (Phase::Create, true) => "Directory creation",
        (Phase::Stat, true) => "Directory stat",
        (Phase::Remove, true) => "Directory removal",
        (Phase::Create, false) => "File creation",
        (Phase::Stat, false) => "File stat",
        (Phase::Read, _) => "File read",
        (Phase::Remove, false) => "File removal",
    }
}

fn print(arguments: &Arguments, tree: &Tree, size: u64, rows: &[Row]) {
    println!("-- started by canopy-bench mdtest: {size} task(s) --\n");
    println!(
        "{size} tasks, {} files/directories{}",
        size * tree.items(),
        if arguments.unique { ", a tree for each task" } else { "" }
    );
    println!("\nSUMMARY rate: (of {} iterations)", arguments.iterations);
    println!("   {:<26}{:>14}{:>15}{:>15}{:>15}", "Operation", "Max", "Min", "Mean", "Std Dev");
    println!("   {:<26}{:>14}{:>15}{:>15}{:>15}", "---------", "---", "---", "----", "-------");
    for Row { name, rates } in rows {
        let count = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / count;
        let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count;
        let most = rates.iter().copied().fold(f64::MIN, f64::max);
        let least = rates.iter().copied().fold(f64::MAX, f64::min);
        let deviation = variance.sqrt();
        println!("   {name:<26}{most:>14.3}{least:>15.3}{mean:>15.3}{deviation:>15.3}");
    }
    println!("\n-- finished --");
}
