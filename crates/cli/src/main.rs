//! The `canopy` command: one file a command under `commands`; exit codes are decided in `outcome`.

mod commands;
mod options;
mod outcome;

use clap::Parser;
use options::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let index = cli.index;
    let outcome = match cli.command {
        Command::Index(arguments) => commands::index::run(index, arguments),
        Command::Find(arguments) => commands::find::run(index, arguments),
        Command::Du(arguments) => commands::du::run(index, arguments),
        Command::Sql(arguments) => commands::sql::run(index, arguments),
        Command::Info(arguments) => commands::info::run(index, arguments),
    };
    outcome::exit_code(outcome)
}
