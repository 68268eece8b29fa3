//! Servers of a namespace as processes: the rates that they have to reach, and the figures of GIGA+
//! (Patil and Gibson, FAST 2011). A machine with few cores cannot show the wall time of many servers, so
//! the tables show CPU time of servers per operation, and messages.
//!
//! The programs `canopy-ns` and `canopy-cluster` have to be built.

mod figures;
pub mod load;
mod rates;
mod site;

use anyhow::{Context, Result};
use std::path::PathBuf;

/// Arguments of `canopy-bench cluster`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The tables to print
    #[arg(value_enum, default_value = "rates")]
    table: Table,
    /// Files that each measurement creates; the paper has 400,000 for each server
    #[arg(long, default_value_t = 200_000)]
    files: u32,
    /// Directory for the namespaces: one in memory measures the servers alone
    #[arg(long, default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Directory on a disk, for Figure 10
    #[arg(long)]
    disk: Option<PathBuf>,
    /// Bucket for Figure 10, as s3://BUCKET/PREFIX
    #[arg(long)]
    bucket: Option<String>,
    /// Directory of the programs [default: that of this one]
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Numbers of servers in the figures
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    servers: Vec<u32>,
}

/// The measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Table {
    /// Rates beside their goals
    Rates,
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
    /// All of these
    All,
}

/// Measures, and prints tables in Markdown.
pub fn run(arguments: &Arguments) -> Result<()> {
    let is_wanted = |table| [table, Table::All].contains(&arguments.table);
    type Print = fn(&Arguments) -> Result<()>;
    let all: [(Table, Print); 6] = [
        (Table::Rates, rates::run),
        (Table::Figure4, figures::scaling),
        (Table::Figure5, figures::growth),
        (Table::Figure6, figures::policies),
        (Table::Figure8, figures::splitting),
        (Table::Figure10, figures::storage),
    ];
    for (table, print) in all {
        if is_wanted(table) {
            println!("\n## {table:?}\n");
            print(arguments)?;
        }
    }
    Ok(())
}

impl Arguments {
    fn programs(&self) -> Result<PathBuf> {
        match &self.programs {
            Some(programs) => Ok(programs.clone()),
            None => Ok(std::env::current_exe()?.parent().context("a directory")?.into()),
        }
    }

    /// Returns the place of namespaces in memory.
    fn place(&self) -> String {
        self.scratch.display().to_string()
    }
}

/// Prints a row of the table of rates.
fn heading(measure: &str, goal: &str, figure: &str) {
    println!("| {measure} | {goal} | {figure} |");
}
