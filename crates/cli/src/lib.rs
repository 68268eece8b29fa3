//! The command line: one file a command under `commands`; exit codes are decided in `outcome`.
//!
//! Two programs are made of it: `canopy`, and `canopy-sql` with the SQL engine inside, which
//! `canopy` runs for what needs it (`companion`). Users see one command.

// Docs of arguments are what `--help` prints: those without any are shown by their names alone.
#![allow(missing_docs)]

pub mod commands;
mod companion;
mod config;
pub mod interrupt;
pub mod limits;
pub mod options;
mod outcome;
pub mod places;
mod replacement;

pub use outcome::{Outcome, message, say};

use canopy_index::Writer;
use std::path::PathBuf;
use std::process::ExitCode;

/// The functions that need the SQL engine, which only `canopy-sql` has.
#[derive(Clone, Copy)]
pub struct Engine {
    /// Carries out `canopy sql`.
    pub sql: fn(Option<PathBuf>, commands::sql::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy table`.
    pub table: fn(Option<PathBuf>, commands::table::Arguments) -> anyhow::Result<Outcome>,
    /// Computes all derived tables anew, with that many threads, for the generation that the
    /// writer publishes next.
    pub refresh: fn(&mut Writer, usize) -> anyhow::Result<Outcome>,
}

/// Parses and runs the command line and returns its exit code. Without an engine, `canopy-sql` is
/// run for what needs one.
pub fn main(engine: Option<&Engine>) -> ExitCode {
    if engine.is_none() {
        companion::run_early();
    }
    let done = companion::check_version(engine)
        .and_then(|()| commands::run(options::Cli::of_process(), engine));
    outcome::exit_code(done)
}
