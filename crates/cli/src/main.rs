//! The `canopy` command: one file a command under `commands`; exit codes are decided in `outcome`.

mod commands;
mod config;
mod options;
mod outcome;
mod prompt;

use clap::Parser;
use std::process::ExitCode;

/// Queries allocate and free large buffers all the time. The allocator of the C library gives each
/// back to the kernel, which then clears its pages anew: half of the time of a scan.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    outcome::exit_code(commands::run(options::Cli::parse()))
}
