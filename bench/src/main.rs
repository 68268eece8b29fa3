//! Benchmarks of Canopy. Each subcommand is one measurement; `run` does all of them, interleaved,
//! and prints the table that `RESULTS.md` keeps.

mod cluster;
mod day;
mod generate;
mod gufi;
mod layouts;
mod live;
mod lustre;
mod mdtest;
mod measure;
mod process;
mod queries;
mod run;
mod sweep;
mod update;
mod walk;
mod watch;

use canopy_index::WriterOptions;
use clap::{Parser, Subcommand};
use generate::Site;
use std::path::PathBuf;

/// Measure Canopy.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Walk a tree with getdents64 and statx on as many threads and drop the results: the limit of
    /// any scan
    Walk {
        /// The tree
        path: PathBuf,
        /// How many threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Make all system calls of a scan: for extended attributes, and for permissions before
        /// and after
        #[arg(long)]
        of_scan: bool,
    },
    /// Feed generated metadata of a site to the builders of an index
    Generate {
        /// Where to make the index
        index: PathBuf,
        /// How many files
        #[arg(long, default_value_t = 10_000_000)]
        files: u64,
        /// How many directories
        #[arg(long, default_value_t = 1_000_000)]
        dirs: u64,
        /// The same seed gives the same site
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many users; more make more access classes
        #[arg(long, default_value_t = 200)]
        users: u64,
        /// How many of a hundred subdirectories are closed further
        #[arg(long, default_value_t = 10)]
        closed: u64,
        /// How many of a hundred files have an extended attribute
        #[arg(long, default_value_t = 0)]
        xattrs: u64,
        /// Memory of the builders in MiB, which decides how large shards are
        #[arg(long, default_value_t = 256)]
        memory: usize,
        /// How many threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
    },
    /// Compare with GUFI, whose programs are in the directory that GUFI_BIN names
    Gufi(gufi::Arguments),
    /// Sizes of shards, numbers of classes and numbers of entries against time and space
    Sweep(sweep::Arguments),
    /// Compare searches with find, fd and bfs (FD_BIN, BFS_BIN), plocate (PLOCATE_BIN,
    /// UPDATEDB_BIN), ls and du
    Live(live::Arguments),
    /// The layouts of an index side by side, on flat and on deep trees; needs root
    Layouts(layouts::Arguments),
    /// Updates of single directories, incremental scans, and searches after them
    Update(update::Arguments),
    /// A day of changes: what updates cost, and what becomes of the space of the index
    Day(day::Arguments),
    /// The daemon that follows a tree while files are created in it; needs root
    Watch(watch::Arguments),
    /// Change logs of Lustre, from records to suspects
    Lustre(lustre::Arguments),
    /// Servers of a namespace as processes: rates beside their goals, and the figures of GIGA+
    Cluster(cluster::Arguments),
    /// Create, stat, read and remove files and directories, as the benchmark mdtest does; also under
    /// mpirun
    Mdtest(mdtest::Arguments),
    /// Run a command and say what it took
    #[command(hide = true)]
    Cost {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run all measurements and print their table
    Run(run::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Walk { path, threads, of_scan } => {
            let calls = if of_scan { walk::Calls::OfScan } else { walk::Calls::Bare };
            println!("{} entries", walk::walk(&path, threads, calls)?);
            Ok(())
        }
        Command::Generate { index, files, dirs, seed, users, closed, xattrs, memory, threads } => {
            let site =
                Site { files, dirs, seed, users, closed_percent: closed, xattrs_percent: xattrs };
            let options =
                WriterOptions { threads, memory_bytes: memory << 20, ..WriterOptions::default() };
            println!("{}", generate::generate(&index, site, options)?);
            Ok(())
        }
        Command::Gufi(arguments) => gufi::run(arguments),
        Command::Sweep(arguments) => sweep::run(arguments),
        Command::Layouts(arguments) => layouts::run(&arguments),
        Command::Live(arguments) => live::run(&arguments),
        Command::Update(arguments) => update::run(&arguments),
        Command::Day(arguments) => day::run(&arguments),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::Lustre(arguments) => lustre::run(&arguments),
        Command::Cluster(arguments) => cluster::run(&arguments),
        Command::Mdtest(arguments) => mdtest::run(&arguments),
        Command::Cost { command } => process::print_cost(&command),
        Command::Run(arguments) => run::run(arguments),
    }
}
