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
mod config;
mod counted;
pub mod interrupt;
pub mod limits;
pub mod new_files;
mod offered;
pub mod options;
mod outcome;
pub mod output_name;
pub mod places;
pub mod query_limits;
mod streams;
mod suggestions;

pub use counted::counted;
pub use outcome::{
    Outcome, SeveralLines, error_chain, message, message_lines, say, say_json, warn_of,
};

pub use canopy_model::ErrorKind;

use canopy_index::Writer;
use canopy_watch::requests;
use companion::Companion;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Returns the kind of an error, if it is one of those that only some programs know.
pub type KindOf = fn(&(dyn std::error::Error + 'static)) -> Option<ErrorKind>;

/// The functions that need the SQL engine, which only `canopy-sql` has.
#[derive(Clone, Copy)]
pub struct Engine {
    /// Carries out `canopy sql`.
    pub sql: fn(Option<PathBuf>, commands::sql::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy table`.
    pub table: fn(Option<PathBuf>, commands::table::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy import`.
    pub import: fn(Option<PathBuf>, commands::import::Arguments) -> anyhow::Result<Outcome>,
    /// Computes anew what changes touch of derived tables, with that many threads, for the
    /// generation that the writer publishes next.
    pub refresh: fn(&mut Writer, usize) -> anyhow::Result<Outcome>,
    /// Returns the kind of an error of the SQL engine.
    pub kind_of: KindOf,
    /// Carries out `canopy index` for scans that several workers share.
    pub share: fn(&Path, &commands::index::Arguments, &Engine) -> anyhow::Result<Outcome>,
}

/// Parses and runs the command line and returns its exit code. Without an engine, `canopy-sql` is
/// run for what needs one.
pub fn main(engine: Option<&Engine>) -> ExitCode {
    // Requests for a daemon and pages of reports belong to users, whom a process becomes for them.
    let served = canopy_as_user::serve_if_asked(&[&requests::CHECKER, &commands::report::PAGE]);
    served.unwrap_or_else(|| run_command(engine))
}

fn run_command(engine: Option<&Engine>) -> ExitCode {
    streams::prepare();
    let checked = match engine {
        Some(_) => Companion::Sql.check_version(),
        None => {
            companion::run_early();
            Ok(())
        }
    };
    let done = checked.and_then(|()| commands::run(options::Cli::of_process(), engine));
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
    /// Indexes what namespaces have.
    pub source: &'a commands::index_namespace::NamespaceSource,
    /// Carries out `canopy mount`.
    pub mount: fn(Option<PathBuf>, commands::mount::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy unmount`.
    pub unmount: fn(commands::mount::Unmount) -> anyhow::Result<Outcome>,
}

/// The same of `canopy-ns`, which also indexes what namespaces have, and mounts.
pub fn main_of_namespace(mounts: &Mounts<'_>) -> ExitCode {
    streams::prepare();
    let run = || {
        Companion::Namespace.check_version()?;
        let cli = options::Cli::of_process();
        if cli.command.is_configured() {
            config::load(cli.command.scans())?;
        }
        match cli.command {
            options::Command::Ns(arguments) => (mounts.namespace)(arguments),
            options::Command::Index(arguments) if arguments.follows() => {
                commands::following::run(cli.index, &arguments, mounts.source)
            }
            options::Command::Index(arguments) => {
                commands::index::run(cli.index, arguments, None, Some(mounts.source))
            }
            options::Command::Mount(arguments) => (mounts.mount)(cli.index, arguments),
            options::Command::Unmount(arguments) => (mounts.unmount)(arguments),
            _ => anyhow::bail!("canopy-ns carries out 'canopy ns', 'index' and 'mount' alone"),
        }
    };
    outcome::exit_code(run(), Some(mounts.kind_of))
}
