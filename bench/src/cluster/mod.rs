//! Servers of a namespace as processes: the rates that they have to reach, the figures of GIGA+
//! (Patil and Gibson, FAST 2011), and peers. A machine with few cores cannot show the wall time of many
//! servers, so the tables show CPU time of servers per operation, and messages.
//!
//! The programs `canopy-ns` and `canopy-cluster` have to be built. Parts that need a program that is
//! not there print that they were skipped.

mod availability;
mod bucket;
mod figures;
pub mod load;
mod mounts;
mod peers;
mod rates;
mod scale;
mod site;

use anyhow::{Context, Result, bail};
use site::Place;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `canopy-bench cluster`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The tables to print
    #[arg(value_enum, default_value = "rates")]
    table: Table,
    /// Only the rates with this in their names: creates, CPU time by servers, stats, listing, splits,
    /// kill -9 and drain, a server that is added, renames, mount, one machine
    #[arg(long)]
    only: Option<String>,
    /// Files that each figure creates for each server; the paper has 400,000
    #[arg(long, default_value_t = 100_000)]
    files: u32,
    /// Files that are looked up at random
    #[arg(long, default_value_t = 1_000_000)]
    looked_up: u32,
    /// Entries that are listed
    #[arg(long, default_value_t = 1_000_000)]
    listed: u32,
    /// Files that each of eight processes creates on a mount
    #[arg(long, default_value_t = 2_000)]
    mounted: u32,
    /// Times that a rate of a mount is measured, for its median
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// Directory for the namespaces: one in memory measures the servers alone
    #[arg(long, default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Directory on a disk, for Figure 10
    #[arg(long, default_value = "/var/tmp")]
    disk: PathBuf,
    /// Bucket for Figure 10, as s3://BUCKET/PREFIX [default: one of Garage, if it is installed]
    #[arg(long)]
    bucket: Option<String>,
    /// Directory of the programs [default: that of this one]
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Directory of canopy-ns before a change, to compare a namespace without servers
    #[arg(long)]
    before: Option<PathBuf>,
    /// Numbers of servers in the figures
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    servers: Vec<u32>,
}

/// The measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Table {
    /// Rates beside their goals
    Rates,
    /// Table 1: messages for each operation
    Table1,
    /// Figure 4: creates by the number of servers
    Figure4,
    /// Figure 5: creates per second in the first seconds
    Figure5,
    /// Figure 6: one partition a server against many
    Figure6,
    /// Figure 8: cost of splitting, by partitions a server
    Figure8,
    /// Figure 10: storage in memory, on a disk and in a bucket
    Figure10,
    /// CephFS, MooseFS, Redis and bindfs in the same test
    Peers,
    /// All of these
    All,
}

/// Measures, and prints tables in Markdown.
pub fn run(arguments: &Arguments) -> Result<()> {
    let is_wanted = |table| [table, Table::All].contains(&arguments.table);
    type Print = fn(&Arguments) -> Result<()>;
    let all: [(Table, &str, Print); 8] = [
        (Table::Rates, "Rates", rates::run),
        (Table::Table1, "Table 1", mounts::messages),
        (Table::Figure4, "Figure 4", figures::scaling),
        (Table::Figure5, "Figure 5", figures::growth),
        (Table::Figure6, "Figure 6", figures::policies),
        (Table::Figure8, "Figure 8", figures::splitting),
        (Table::Figure10, "Figure 10", figures::storage),
        (Table::Peers, "Peers", peers::run),
    ];
    let mut failed = 0;
    for (table, title, print) in all {
        if is_wanted(table) {
            let begin = Instant::now();
            println!("\n### {title}\n");
            if let Err(error) = print(arguments) {
                println!("\nfailed: {error:#}");
                failed += 1;
            }
            eprintln!("{title}: {:.0} s", begin.elapsed().as_secs_f64());
        }
    }
    if failed > 0 { bail!("{failed} tables failed") } else { Ok(()) }
}

impl Arguments {
    fn programs(&self) -> Result<PathBuf> {
        match &self.programs {
            Some(programs) => Ok(programs.clone()),
            None => Ok(std::env::current_exe()?.parent().context("a directory")?.into()),
        }
    }

    /// Returns the place of namespaces in memory.
    fn place(&self) -> Place {
        Place { within: self.scratch.display().to_string(), ..Place::default() }
    }
}

/// Finds a program: by a variable of its name, such as `MFSMASTER`, or in PATH, or where
/// administrators have theirs.
fn find_program(name: &str) -> Option<PathBuf> {
    let variable = name.to_ascii_uppercase().replace('-', "_");
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|directory| directory.join(name)).find(|path| Path::is_file(path))
}
