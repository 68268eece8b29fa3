//! The `canopy-store` command, which `canopy` runs for `canopy store`: it looks into the tables of
//! the engine (`docs/engine.md`) and changes nothing. One file a subcommand; `storage` is the only
//! way to what lies in storage. Only `probe` writes: into a directory of its own, and the notes of
//! machines that passed.

mod dump;
mod list;
mod manifest;
mod probe;
mod show;
mod sstable;
mod stat;
mod storage;
mod verify;

use canopy::Outcome;
use canopy::commands::store::{Arguments, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    canopy::main_of_store(run, |error| error.downcast_ref().map(canopy_store::Error::kind))
}

fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    match arguments.command {
        Command::List { storage, json } => list::run(&storage, json),
        Command::Stat { storage, table: Some(table), json } => stat::run(&storage, &table, json),
        Command::Stat { storage, table: None, json } => sstable::run(&storage, json),
        Command::Verify { storage, tables } => verify::run(&storage, &tables),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
    }
}
