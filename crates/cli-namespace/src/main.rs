//! The `canopy-ns` command, which `canopy` runs for `canopy ns`, `mount` and `unmount`: it makes,
//! checks, mounts and indexes (`source`) namespaces, and mounts indexes. One file a subcommand;
//! `place` is the only way to where a namespace lies.
//!
//! `viewed` reads a namespace without changing it, `records` answers `canopy ns find`, and `source`
//! feeds the index.

mod check;
mod copy;
mod create;
mod daemon;
mod du;
mod export;
mod faults;
mod find;
mod import;
mod index;
mod index_mount;
mod info;
mod moment;
mod mount;
mod mount_options;
mod mount_servers;
mod names;
mod paths;
mod place;
mod query;
mod quota;
mod records;
mod servers;
mod snapshot;
mod source;
mod unmount;
mod view;
mod viewed;

use canopy::commands::ns::{Arguments, Command};
use canopy::{ErrorKind, Mounts, Outcome};
use std::process::ExitCode;

/// See `canopy`'s own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A process that has become the user finds the entries that an index shows to that user.
    let served = canopy_as_user::serve_if_asked(&[&canopy_index_mount::VIEW]);
    served.unwrap_or_else(run_command)
}

fn run_command() -> ExitCode {
    canopy::main_of_namespace(&Mounts {
        namespace: run,
        kind_of,
        namespaces: &source::Source,
        mount: index_mount::run,
        unmount: |arguments| unmount::run(&arguments.directory),
    })
}

fn kind_of(error: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    let of_namespace = error.downcast_ref().map(canopy_namespace::Error::kind);
    let of_connection = || error.downcast_ref().map(canopy_cluster::ConnectionError::kind);
    let of_store = || error.downcast_ref().map(canopy_store::Error::kind);
    of_namespace.or_else(of_connection).or_else(of_store)
}

fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    carry_out(arguments).map_err(|error| place::advised(None, error))
}

fn carry_out(arguments: Arguments) -> anyhow::Result<Outcome> {
    match arguments.command {
        Command::Create(arguments) => create::run(&arguments),
        Command::Info { namespace, json } => info::run(&namespace, json),
        Command::Check(arguments) => check::run(&arguments),
        Command::Index(arguments) => index::run(&arguments),
        Command::Quota(arguments) => quota::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Du(arguments) => du::run(&arguments),
        Command::Find(arguments) => find::run(&arguments.arguments),
        Command::Export { source, directory, snapshot } => {
            export::run(&source, &directory, snapshot.as_deref())
        }
        Command::Snapshot(arguments) => snapshot::run(&arguments),
        Command::View(arguments) => view::run(&arguments),
        Command::Query { path, explain } => query::run(&path, explain),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Unmount { directory } => unmount::run(&directory),
    }
}
