//! `canopy du`

use crate::options::ReadOptions;
use crate::outcome::{Outcome, message};
use canopy_query::du::{self, DuOptions, Measure};
use std::ffi::OsString;
use std::io::BufWriter;
use std::path::PathBuf;

/// Add up the space that directories take, as du(1) does, answered from the index
///
/// Example: canopy du -sh /home/*
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Print sizes for people, such as 4.0K or 12M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print one line for each PATH
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Print a line for every file too
    #[arg(short, long)]
    all: bool,
    /// Print a grand total
    #[arg(short = 'c', long)]
    total: bool,
    /// Print lines for directories at most N levels below a PATH
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<u32>,
    /// Add up sizes instead of the space taken on disk
    #[arg(long)]
    apparent_size: bool,
    /// Count files and directories instead of their space
    #[arg(long, conflicts_with = "apparent_size")]
    inodes: bool,
    /// End lines with NUL
    #[arg(short = '0', long)]
    null: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// What to add up [default: the working directory]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, mut arguments: Arguments) -> anyhow::Result<Outcome> {
    if arguments.paths.is_empty() {
        arguments.paths.push(".".into());
    }
    let index = arguments.read.open(index)?;
    let options = DuOptions {
        measure: match (arguments.apparent_size, arguments.inodes) {
            (true, _) => Measure::Apparent,
            (_, true) => Measure::Inodes,
            _ => Measure::Disk,
        },
        all: arguments.all,
        depth_max: if arguments.summarize { Some(0) } else { arguments.max_depth },
        total: arguments.total,
        human: arguments.human_readable,
        null: arguments.null,
        threads: arguments.read.threads(),
    };
    let mut output = BufWriter::with_capacity(1 << 16, std::io::stdout());
    let failed = du::run(&index, &arguments.paths, options, &mut output)?;
    failed.iter().for_each(message);
    Ok(if failed.is_empty() { Outcome::Complete } else { Outcome::Partial })
}
