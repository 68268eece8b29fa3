//! The `canopy` command: one file a command under `commands`; exit codes are decided in `outcome`.

mod commands;
mod config;
mod options;
mod outcome;
mod prompt;

use clap::Parser;
use options::{Cli, Command};
use std::process::ExitCode;

/// Queries allocate and free large buffers all the time. The allocator of the C library gives each back to the kernel, which
/// then clears its pages anew: half of the time of a scan.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let index = cli.index;
    if cli.command.is_configured()
        && let Err(error) = config::load()
    {
        return outcome::exit_code(Err(error));
    }
    let outcome = match cli.command {
        Command::Index(arguments) => commands::index::run(index, arguments),
        Command::Import(arguments) => commands::import::run(index, arguments),
        Command::Find(arguments) => commands::find::run(index, arguments),
        Command::Du(arguments) => commands::du::run(index, arguments),
        Command::Ls(arguments) => commands::ls::run(index, arguments),
        Command::Stat(arguments) => commands::stat::run(index, arguments),
        Command::Sql(arguments) => commands::sql::run(index, arguments),
        Command::Table(arguments) => commands::table::run(index, arguments),
        Command::Export(arguments) => commands::export::run(index, arguments),
        Command::Report(arguments) => commands::report::run(index, arguments),
        Command::Top(arguments) => commands::top::run(index, arguments),
        Command::Info(arguments) => commands::info::run(index, arguments),
        Command::Help(arguments) => commands::help::run(arguments),
        Command::Completions(arguments) => commands::generate::completions(arguments),
        Command::Man(arguments) => commands::generate::man(arguments),
    };
    outcome::exit_code(outcome)
}
