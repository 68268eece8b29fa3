//! Benchmarks of Canopy. Each subcommand is one measurement; `run` does all of them, interleaved, and prints the table
//! that `RESULTS.md` keeps.

mod generate;
mod measure;
mod run;
mod walk;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Measure Canopy.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Walk a tree with getdents64 and statx on as many threads and drop the results: the limit of any scan
    Walk {
        /// The tree
        path: PathBuf,
        /// How many threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
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
        /// How many threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
    },
    /// Run all measurements and print their table
    Run(run::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Walk { path, threads } => {
            println!("{} entries", walk::walk(&path, threads)?);
            Ok(())
        }
        Command::Generate { index, files, dirs, seed, threads } => {
            generate::generate(&index, generate::Site { files, dirs, seed }, threads)
        }
        Command::Run(arguments) => run::run(arguments),
    }
}
