//! The command line: one file a command under `commands`; exit codes are decided in `outcome`.
//!
//! Five programs are made of it: `canopy`, and those that it runs for some commands (`companion`),
//! `canopy-sql` with the SQL engine inside, `canopy-store`, `canopy-ns` and `canopy-cluster`. Users see
//! one command.
//!
//! | to change | read |
//! | --- | --- |
//! | which commands there are | `command_line` |
//! | options and messages of a command | its file in `commands`, with a directory for long ones |
//! | flags of du, ls and stat | `commands/ls/switches.rs` and its like, on `switches` |
//! | values that every command gets | `invocation` |
//! | functions that only some programs have | `engine` |
//! | options of commands that read indexes; the age of answers | `read_options`; `staleness` |
//! | the past | `commands/diff.rs`, `growth.rs`, `history.rs`, `past.rs` |
//! | names in all sources | `commands/locate.rs`, which asks find |
//! | files that a command replaces as a whole | `new_files` |
//! | processes of `canopy watch` | `verb_processes`; `parent` |
//! | Ctrl-C; closed standard streams; progress | `interrupt`; `streams`; `progress` |
//! | safe messages, exit codes | `outcome` (`message`, `SeveralLines`), on `canopy_text::safe` |
//! | variables of the environment | `environment` |
//! | suggestions for wrong words | `suggestions` |
//!
//! Imports between files have two circles:
//!
//! - `command_line`, `commands/generate`, `commands/help`, `commands/manual`: topics of help are names
//!   of commands.
//! - `engine`, `commands/index`: only `canopy-sql` shares scans.
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

mod command_line;
pub mod commands;
mod companion;
mod engine;
mod environment;
mod events;

pub mod interrupt;
mod invocation;
pub mod limits;
pub mod new_files;
mod offered;
mod outcome;
pub mod output_name;
mod parent;
mod progress;
mod read_options;
mod staleness;

mod streams;
mod suggestions;
mod switches;
pub mod terminal;
mod verb_processes;

pub use engine::{Engine, Mounts};
pub use events::print_events;
pub use invocation::Invocation;
pub use outcome::{
    KindOf, Outcome, SeveralLines, answer, answer_json, error_chain, message, message_lines, say,
    say_json,
};
pub use progress::with_progress;

pub use canopy_model::ErrorKind;

use canopy_ingest::NeedsDerivedTables;
use canopy_watch::requests;
use companion::Companion;
pub use companion::become_cluster;
use std::process::ExitCode;

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
    let done = checked.and_then(|()| {
        let cli = command_line::Cli::of_process();
        let invocation = cli.invocation()?;
        let outcome = command_line::run(&invocation, cli.command, engine);
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
        Companion::Store.check_version().and_then(|()| {
            match command_line::Cli::of_process().command {
                command_line::Command::Store(arguments) => store(arguments),
                _ => anyhow::bail!("canopy-store carries out 'canopy store' alone"),
            }
        });
    outcome::exit_code(done, Some(kind_of))
}

/// Like [`main_of_store`], for `canopy-cluster`.
pub fn main_of_cluster(
    cluster: fn(commands::cluster::Arguments) -> anyhow::Result<Outcome>,
    kind_of: KindOf,
) -> ExitCode {
    streams::prepare();
    let done =
        Companion::Cluster.check_version().and_then(|()| {
            match command_line::Cli::of_process().command {
                command_line::Command::Cluster(arguments) => cluster(arguments),
                _ => anyhow::bail!("canopy-cluster carries out 'canopy cluster' alone"),
            }
        });
    outcome::exit_code(done, Some(kind_of))
}

/// Like [`main_of_store`], for `canopy-ns`, which also indexes namespaces, and mounts.
pub fn main_of_namespace(mounts: &Mounts<'_>) -> ExitCode {
    streams::prepare();
    let run = || {
        Companion::Namespace.check_version()?;
        let cli = command_line::Cli::of_process();
        let invocation = cli.invocation()?;
        invocation.end(match cli.command {
            command_line::Command::Ns(arguments) => (mounts.namespace)(arguments),
            command_line::Command::Index(arguments) if arguments.follows() => {
                commands::index::follow::run(&invocation, &arguments, mounts.namespaces)
            }
            command_line::Command::Index(arguments) => {
                commands::index::run(&invocation, arguments, None, Some(mounts.namespaces))
            }
            command_line::Command::Mount(arguments) => (mounts.mount)(&invocation, arguments),
            command_line::Command::Unmount(arguments) => (mounts.unmount)(arguments),
            _ => anyhow::bail!("canopy-ns carries out 'canopy ns', 'index' and 'mount' alone"),
        })
    };
    outcome::exit_code(run(), Some(mounts.kind_of))
}
