//! The `canopy-ns` command, which `canopy` runs for `canopy ns`: it makes, checks and mounts
//! namespaces. One file a subcommand; `place` is the only way to where one lies.

mod check;
mod copy;
mod create;
mod du;
mod export;
mod faults;
mod import;
mod index;
mod info;
mod mount;
mod names;
mod paths;
mod place;
mod unmount;

use canopy::Outcome;
use canopy::commands::ns::{Arguments, Command};
use std::process::ExitCode;

/// See `canopy`'s own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    canopy::main_of_namespace(run)
}

fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    match arguments.command {
        Command::Create { namespace, inline, indexes } => create::run(&namespace, inline, &indexes),
        Command::Info { namespace, json } => info::run(&namespace, json),
        Command::Check { place } => check::run(&place),
        Command::Index(arguments) => index::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Du(arguments) => du::run(&arguments),
        Command::Export { source, directory } => export::run(&source, &directory),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Unmount { directory } => unmount::run(&directory),
    }
}
