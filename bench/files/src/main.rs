//! Measures file systems through system calls, in turns: what the tables of the paper on Loris'
//! metadata measure, and rates of single operations. See README.md.

mod application;
mod bench;
mod jobs;
mod micro;
mod place;
mod postmark;
mod rates;
mod report;
mod run;
mod search;
mod source;
mod tree;
mod walk;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Measure file systems through system calls, beside each other")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure directories in turns and print medians, and ratios to the first directory
    Run(run::Run),
}

fn main() -> Result<ExitCode> {
    let Task::Run(run) = Arguments::parse().command;
    run::run(&run)
}
