//! `canopy ls`

mod settled;
mod switches;
mod words;

pub(crate) use switches::Ls;

use crate::invocation::Invocation;
use crate::outcome::{Outcome, message};
use crate::read_options::ReadOptions;
use crate::switches::{Switches, refused};
use crate::terminal::stdout_for_json;
use canopy_tools::ls;
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal};

/// List directories, as ls(1) does, answered from the index
///
/// After the mode, '+' says that an entry has an ACL, '@' that it has other extended attributes. On
/// a terminal names are in columns and colours, and quoted where they would disturb it; NO_COLOR
/// keeps colours away.
///
/// Example: canopy ls -l /data
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    #[command(flatten)]
    switches: Switches<Ls>,
    /// Files and directories to list [default: the working directory]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Carries the command out.
///
/// # Errors
///
/// If options are refused, no index answers, or output cannot be written.
pub fn run(invocation: &Invocation, mut arguments: Arguments) -> anyhow::Result<Outcome> {
    if arguments.paths.is_empty() {
        arguments.paths.push(".".into());
    }
    let stdout = std::io::stdout();
    let mut asked = Ls::new(stdout.is_terminal());
    arguments.switches.apply(&mut asked)?;
    let options = asked.options().map_err(|error| refused::<Ls>(&error))?;
    let index = arguments.read.open_to_answer(invocation, &arguments.paths)?;
    let mut output = match options.json {
        true => stdout_for_json(),
        false => BufWriter::with_capacity(1 << 16, Box::new(stdout) as _),
    };
    let failed = ls::ls(&index, &arguments.paths, &options, &mut output)?;
    failed.errors.iter().for_each(message);
    Ok(match failed.arguments {
        true => Outcome::Serious,
        false => Outcome::of_errors(&failed.errors),
    })
}
