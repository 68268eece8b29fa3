//! Measures the frames of `canopy_cluster::wire` beside tonic: rates, and the time of the processor
//! that client and server use for an operation. See README.md.

mod certificates;
mod frames;
mod grpc;
mod run;

use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes of a request, about those of a create.
const REQUEST: usize = 60;
/// Bytes of an answer, about those of an inode.
const ANSWER: usize = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// A call of gRPC for each operation.
    Unary,
    /// A stream of gRPC with a message for each operation.
    Streamed,
    /// Frames of our own.
    Frames,
    /// Frames of our own, whose calls another thread answers.
    Elsewhere,
}

/// Measures the frames of a cluster beside tonic
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure all cases and print the table
    Run {
        /// Measure for this long in each round of a case
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Measure this many rounds, and print medians
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Measure only cases whose name contains this
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Serve one case, for `run`
    #[command(hide = true)]
    Serve {
        protocol: Protocol,
        /// Number of addresses
        clients: usize,
        /// Directory of certificates
        #[arg(long)]
        tls: Option<PathBuf>,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Run { seconds, rounds, only } => run::run(seconds, rounds, &only),
        Command::Serve { protocol, clients, tls } => match protocol {
            Protocol::Frames => frames::serve(clients, tls.as_deref(), false),
            Protocol::Elsewhere => frames::serve(clients, tls.as_deref(), true),
            _ => grpc::serve(tls.as_deref()),
        },
    }
}
