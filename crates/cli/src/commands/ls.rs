//! `canopy ls` and `canopy stat`

use crate::options::{ReadOptions, now_ns};
use crate::outcome::{Outcome, message};
use canopy_query::ls::{self, LsOptions};
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal};
use std::path::PathBuf;

/// List directories, as ls(1) does, answered from the index
///
/// After the mode, '+' says that an entry has an ACL, and '@' that it has other extended attributes.
///
/// Example: canopy ls -l /data
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Print attributes
    #[arg(short)]
    long: bool,
    /// Show names that begin with a dot
    #[arg(short = 'A', long, visible_short_alias = 'a')]
    almost_all: bool,
    /// Show directories themselves instead of what is in them
    #[arg(short, long)]
    directory: bool,
    /// What to list [default: the working directory]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, mut arguments: Arguments) -> anyhow::Result<Outcome> {
    if arguments.paths.is_empty() {
        arguments.paths.push(".".into());
    }
    let index = arguments.read.open(index)?;
    let stdout = std::io::stdout();
    let options = LsOptions {
        long: arguments.long,
        all: arguments.almost_all,
        directory: arguments.directory,
        terminal: stdout.is_terminal(),
        now_ns: now_ns(),
    };
    let mut output = BufWriter::with_capacity(1 << 16, stdout);
    let failed = ls::ls(&index, &arguments.paths, options, &mut output)?;
    failed.iter().for_each(message);
    Ok(if failed.is_empty() { Outcome::Complete } else { Outcome::Partial })
}

/// Print all that is known of entries, as stat(1) does, answered from the index
///
/// Example: canopy stat /data/run.h5
#[derive(clap::Args)]
pub struct StatArguments {
    #[command(flatten)]
    read: ReadOptions,
    /// What to look at
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Carries `canopy stat` out.
pub fn run_stat(index: Option<PathBuf>, arguments: StatArguments) -> anyhow::Result<Outcome> {
    let index = arguments.read.open(index)?;
    let stdout = std::io::stdout();
    let terminal = stdout.is_terminal();
    let failed = ls::stat(&index, &arguments.paths, terminal, &mut BufWriter::new(stdout))?;
    failed.iter().for_each(message);
    Ok(if failed.is_empty() { Outcome::Complete } else { Outcome::Partial })
}
