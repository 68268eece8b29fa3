//! The command line.

use anyhow::{Context, bail};
use std::path::PathBuf;

/// Output of `--help`.
pub const HELP: &str = "\
Check a file system against what POSIX and Linux ask of it.

Usage: canopy-conformance DIRECTORY [--filter TEXT] [--known FILE] [--script FILE] [--json]
                                    [--also DIRECTORY] [--every N]
       canopy-conformance --list [--filter TEXT]

Runs as root and makes calls as several users in a new directory below DIRECTORY, which is removed
afterwards. Prints a line for each case that fails or is skipped, and a summary.

  --filter TEXT   only cases whose name contains TEXT
  --known FILE    cases that are known to fail, one a line: a name, or the beginning of names and *
  --script FILE   the cases of a file instead (crates/conformance/src/script.rs says how they read)
  --also DIR      deal the steps of each case to DIRECTORY and DIR, another mount of the same file
                  system (crates/conformance/src/deal.rs says how); may be given again
  --every N       only each Nth case
  --json          print one JSON object instead
  --list          print the names of cases and run none

Exit codes: 0 nothing unexpected failed, 1 something did, 2 the suite could not run.

Example: canopy-conformance /mnt/namespace --filter rename/
";

/// Task of a run of the program.
#[derive(Debug, PartialEq, Eq)]
pub enum Mode {
    /// Print the help.
    Help,
    /// Print names of cases.
    List,
    /// Run cases below a directory.
    Run(PathBuf),
    /// Make calls as somebody for another process of this program.
    Worker(String),
}

/// The command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Task of the run.
    pub mode: Mode,
    /// Text that names of cases must contain.
    pub filter: String,
    /// The file whose cases are to run instead of the suite's.
    pub script: Option<PathBuf>,
    /// The file that lists the cases known to fail.
    pub known: Option<PathBuf>,
    /// Other mounts of the same file system, to which steps are dealt, too.
    pub also: Vec<PathBuf>,
    /// Only each case of this many is run.
    pub every: usize,
    /// Whether to print JSON.
    pub json: bool,
}

impl Arguments {
    /// Reads the words behind the program's name.
    pub fn parse(words: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let mut words = words.into_iter();
        let (mut mode, mut filter, mut json) = (None, String::new(), false);
        let (mut known, mut script, mut also, mut every) = (None, None, Vec::new(), 1);
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--filter" => filter = value()?,
                "--known" => known = Some(value()?.into()),
                "--script" => script = Some(value()?.into()),
                "--also" => also.push(value()?.into()),
                "--every" => {
                    every = value()?.parse().context("--every needs a number")?;
                }
                "--json" => json = true,
                "--list" => mode = Some(Mode::List),
                "--help" => mode = Some(Mode::Help),
                crate::actors::WORKER => mode = Some(Mode::Worker(value()?)),
                option if option.starts_with('-') => bail!("no option is named {option}"),
                directory if mode.is_none() => mode = Some(Mode::Run(directory.into())),
                more => bail!("one directory at a time: {more}"),
            }
        }
        let mode = mode.context("which directory? (see --help)")?;
        Ok(Self { mode, filter, script, known, also, every: every.max(1), json })
    }
}
