//! The `canopy-cluster` command, which `canopy` runs for `canopy cluster`: it runs and looks after
//! namespaces on several servers. One file a subcommand; `place` is the only way to the storage of one.
//!
//! Unlike the other programs, it is linked at a random address: it listens on a network.

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
    match arguments.command {
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
