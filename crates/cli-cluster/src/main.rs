//! The `canopy-cluster` command, which `canopy` runs for `canopy cluster`: it runs and looks after
//! namespaces on several servers. One file a subcommand; `place` is the only way to the storage of one.
//!
//! Unlike the other programs, it is linked at a random address: it listens on a network.

mod advertised;
mod certificate;
mod check;
mod grow;
mod metrics;
mod numbers;
mod partitions;
mod place;
mod reach;
mod settings;
mod start;
mod status;

use canopy::commands::cluster::{Arguments, Command};
use canopy::{ErrorKind, Outcome};
use canopy_cluster::ConnectionError;
use canopy_cluster::certificates::CertificateError;
use canopy_cluster::membership::MembershipError;
use std::path::Path;
use std::process::ExitCode;

/// See `canopy`'s own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    canopy::main_of_cluster(run, kind_of)
}

fn kind_of(error: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    let of_certificate = error.downcast_ref().map(CertificateError::kind);
    let of_membership = || error.downcast_ref().map(MembershipError::kind);
    let of_connection = || error.downcast_ref().map(ConnectionError::kind);
    let of_namespace = || error.downcast_ref().map(canopy_namespace::Error::kind);
    let of_store = || error.downcast_ref().map(canopy_store::Error::kind);
    of_certificate
        .or_else(of_membership)
        .or_else(of_connection)
        .or_else(of_namespace)
        .or_else(of_store)
}

fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let namespace = namespace_of(&arguments.command).to_owned();
    run_command(arguments.command).map_err(|error| place::named(&namespace, error))
}

fn namespace_of(command: &Command) -> &Path {
    match command {
        Command::Certificate(arguments) => &arguments.namespace,
        Command::Partitions(arguments) => &arguments.namespace,
        Command::Spread(arguments) => &arguments.namespace,
        Command::Start(arguments) => &arguments.namespace,
        Command::Status(arguments) => &arguments.namespace,
        Command::Drain(arguments) => &arguments.namespace,
        Command::Add(arguments) => &arguments.namespace,
        Command::Check(arguments) => &arguments.namespace,
        Command::Balance(arguments) => &arguments.namespace,
    }
}

fn run_command(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Certificate(arguments) => certificate::run(&arguments),
        Command::Partitions(arguments) => partitions::run(&arguments),
        Command::Spread(arguments) => partitions::spread(&arguments),
        Command::Start(arguments) => start::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Drain(arguments) => status::drain(&arguments),
        Command::Add(arguments) => grow::add(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Balance(arguments) => grow::balance(&arguments),
    }
}
