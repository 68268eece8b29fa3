//! The command line: one file a command under `commands`; exit codes are decided in `outcome`.
//!
//! Four programs are made of it: `canopy`, and those that it runs for some commands (`companion`),
//! `canopy-sql` with the SQL engine inside, `canopy-store` and `canopy-ns`. Users see one command.
//!
//! | to change | read |
//! | --- | --- |
//! | options and messages of a command | its file in `commands`; flags of du, ls, stat are rows there |
//! | configuration, limits of queries | `config`, `query_limits` |
//! | which index is read and written | `places`; two as one: `reader/joined.rs` of the index |
//! | `canopy index` | `commands/index_run.rs` (trees, in order), `resuming.rs`, `index_workers.rs` |
//! | `canopy update` | `commands/update.rs`, `update_request.rs` (to the daemon), `update_costs.rs` |
//! | `canopy watch` | `commands/watch_apply.rs`; turns under `--max-rate`: `turn_of` there |
//! | following namespaces | `commands/following.rs`, `index_namespace.rs` (`NamespaceSource`) |
//! | the past | `commands/diff.rs`, `growth.rs`, `history.rs` |
//! | checking, repairing, compacting | `commands/check.rs`, `compact.rs` |
//! | names in all sources | `commands/locate.rs`, which asks find |
//! | the age of answers | `commands/staleness.rs` |
//! | files that a command replaces as a whole | `new_files` |
//! | Ctrl-C; closed standard streams | `interrupt`; `streams` |
//! | safe messages | `outcome` (`message`, `SeveralLines`), on `canopy_text::safe` |
//! | suggestions for wrong words | `suggestions` |
//!
//! Errors of single entries make a run partial (exit code 1). Entries that vanished count: a
//! directory that moved while it waited to be read is missing at its new place.
//!
//! Start-up time:
//!
//! - clap builds the arguments of a command only once the command is known (`defer`), which saves
//!   0.2 ms. Commands of a companion start it before anything is parsed, which saves 0.4 ms.
//! - Programs are linked at a fixed address; `build.rs` has the figures.
//! - mimalloc keeps freed buffers. With the C library's allocator, the kernel cleared pages for
//!   half of a scan's time. Recovery of an engine's log took 3.7 s instead of 2.1 s.
//! - mimalloc stays at version 2. Version 3 has the kernel clear a huge page at once, a tenth of a
//!   short command.

// Docs of arguments are what `--help` prints: those without any are shown by their names alone.
#![allow(missing_docs)]

pub mod commands;
mod companion;

pub mod interrupt;
mod invocation;
pub mod limits;
pub mod new_files;
mod offered;
pub mod options;
mod outcome;
pub mod output_name;
mod progress;

mod streams;
mod suggestions;

pub use canopy_text::counted;
pub use invocation::Invocation;
pub use outcome::{Outcome, SeveralLines, error_chain, message, message_lines, say, say_json};
pub use progress::with_progress;

pub use canopy_model::ErrorKind;

use canopy_ingest::{DerivedTables, Namespaces, NeedsDerivedTables};
use canopy_watch::requests;
use companion::Companion;
use std::path::Path;
use std::process::ExitCode;

/// Returns the kind of an error, if it is one of those that only some programs know.
pub type KindOf = fn(&(dyn std::error::Error + 'static)) -> Option<ErrorKind>;

/// The functions that need the SQL engine, which only `canopy-sql` has.
#[derive(Clone, Copy)]
pub struct Engine {
    /// Carries out `canopy sql`.
    pub sql: fn(&Invocation, commands::sql::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy table`.
    pub table: fn(&Invocation, commands::table::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy import`.
    pub import: fn(&Invocation, commands::import::Arguments) -> anyhow::Result<Outcome>,
    /// Computes derived tables anew.
    pub derived: &'static dyn DerivedTables,
    /// Returns the kind of an error of the SQL engine.
    pub kind_of: KindOf,
    /// Carries out `canopy index` for scans that several workers share.
    pub share:
        fn(&Invocation, &Path, &commands::index::Arguments, &Engine) -> anyhow::Result<Outcome>,
}

/// Parses and runs the command line and returns its exit code. Without an engine, `canopy-sql` is
/// run for what needs one.
pub fn main(engine: Option<&Engine>) -> ExitCode {
    streams::prepare();
    // What a user may ask a daemon for is found out by a process that has become that user.
    if std::env::args_os().nth(1).is_some_and(|first| first == requests::ARGUMENT) {
        let checked = requests::check_as_user();
        return if checked.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let checked = match engine {
        Some(_) => Companion::Sql.check_version(),
        None => {
            companion::run_early();
            Ok(())
        }
    };
    let done = checked.and_then(|()| {
        let cli = options::Cli::of_process();
        let mut invocation = cli.invocation()?;
        let outcome = commands::run(&mut invocation, cli.command, engine);
        invocation.end(match outcome {
            Err(error) if engine.is_none() && error.is::<NeedsDerivedTables>() => {
                Companion::Sql.run()
            }
            outcome => outcome,
        })
    });
    outcome::exit_code(done, engine.map(|engine| engine.kind_of))
}

/// Parses the command line of `canopy-store`, has `store` carry it out and returns its exit code,
/// from the kinds that `kind_of` returns. Other commands are errors: they would make it as large as
/// `canopy`.
pub fn main_of_store(
    store: fn(commands::store::Arguments) -> anyhow::Result<Outcome>,
    kind_of: KindOf,
) -> ExitCode {
    streams::prepare();
    let done =
        Companion::Store.check_version().and_then(|()| match options::Cli::of_process().command {
            options::Command::Store(arguments) => store(arguments),
            _ => anyhow::bail!("canopy-store carries out 'canopy store' alone"),
        });
    outcome::exit_code(done, Some(kind_of))
}

/// The functions that `canopy-ns` has.
#[derive(Clone, Copy)]
pub struct Mounts<'a> {
    /// Carries out `canopy ns`.
    pub namespace: fn(commands::ns::Arguments) -> anyhow::Result<Outcome>,
    /// Returns the kind of an error of a namespace.
    pub kind_of: KindOf,
    /// Opens namespaces that are indexed.
    pub namespaces: &'a dyn Namespaces,
    /// Carries out `canopy mount`.
    pub mount: fn(&Invocation, commands::mount::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy unmount`.
    pub unmount: fn(commands::mount::Unmount) -> anyhow::Result<Outcome>,
}

/// The same of `canopy-ns`, which also indexes what namespaces have, and mounts.
pub fn main_of_namespace(mounts: &Mounts<'_>) -> ExitCode {
    streams::prepare();
    let run = || {
        Companion::Namespace.check_version()?;
        let cli = options::Cli::of_process();
        let invocation = cli.invocation()?;
        invocation.end(match cli.command {
            options::Command::Ns(arguments) => (mounts.namespace)(arguments),
            options::Command::Index(arguments) if arguments.follows() => {
                commands::index_follow::run(&invocation, &arguments, mounts.namespaces)
            }
            options::Command::Index(arguments) => {
                commands::index::run(&invocation, arguments, None, Some(mounts.namespaces))
            }
            options::Command::Mount(arguments) => (mounts.mount)(&invocation, arguments),
            options::Command::Unmount(arguments) => (mounts.unmount)(arguments),
            _ => anyhow::bail!("canopy-ns carries out 'canopy ns', 'index' and 'mount' alone"),
        })
    };
    outcome::exit_code(run(), Some(mounts.kind_of))
}
