//! `canopy du`

mod settled;
mod switches;

pub(crate) use switches::Du;

use crate::invocation::Invocation;
use crate::outcome::{Outcome, Wrong, message};
use crate::read_options::ReadOptions;
use crate::switches::{Switches, quoted, refused};
use crate::terminal::stdout_for_json;
use anyhow::{Context, bail};
use canopy_tools::du;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, Read};
use std::os::unix::ffi::OsStrExt;

/// Add up the space that directories take, as du(1) does, answered from the index
///
/// Example: canopy du -sh /home/*
///
/// Example: canopy du --by user --top 10 -h /data
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    #[command(flatten)]
    switches: Switches<Du>,
    /// Files and directories to add up [default: the working directory]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Carries the command out.
///
/// # Errors
///
/// If options are refused, no index answers, or output cannot be written.
pub fn run(invocation: &Invocation, mut arguments: Arguments) -> anyhow::Result<Outcome> {
    let mut asked = Du::new(arguments.read.threads(invocation));
    arguments.switches.apply(&mut asked)?;
    let mut unnamed = 0;
    let files = asked.files.take();
    asked.options.once = files.is_some();
    let options = asked.options().map_err(|error| refused::<Du>(&error))?;
    if let Some(file) = files {
        let named = files_from(&file, arguments.paths.first());
        (arguments.paths, unnamed) = named.map_err(|error| refused::<Du>(&error))?;
    } else if arguments.paths.is_empty() {
        arguments.paths.push(".".into());
    }
    let index = arguments.read.open_to_answer(invocation, &arguments.paths)?;
    let mut output = match options.json {
        true => stdout_for_json(),
        false => BufWriter::with_capacity(1 << 16, Box::new(std::io::stdout()) as _),
    };
    let failed = du::run(&index, &arguments.paths, &options, &mut output)?;
    failed.iter().for_each(message);
    Ok(if unnamed > 0 { Outcome::Partial } else { Outcome::of_errors(&failed) })
}

/// Reads the names to add up. There may be no operand beside them. Returns the number of names that
/// name nothing, which messages have reported.
fn files_from(file: &OsStr, operand: Option<&OsString>) -> anyhow::Result<(Vec<OsString>, usize)> {
    if let Some(operand) = operand {
        let told = "file operands cannot be combined with --files0-from";
        bail!(Wrong::Usage(format!("extra operand {}\n{told}", quoted(operand))));
    }
    let shown = file.display();
    let mut text = Vec::new();
    if file == "-" {
        std::io::stdin().read_to_end(&mut text).context("cannot read names")?;
    } else {
        let mut opened = std::fs::File::open(file)
            .with_context(|| format!("cannot open '{shown}' for reading"))?;
        opened.read_to_end(&mut text).with_context(|| format!("{shown}: read error"))?;
    }
    let (mut names, mut unnamed) = (Vec::new(), 0);
    if text.is_empty() {
        return Ok((names, unnamed));
    }
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    for (number, name) in text.split(|byte| *byte == 0).enumerate() {
        if name.is_empty() {
            message(format_args!("{shown}:{}: invalid zero-length file name", number + 1));
            unnamed += 1;
        } else if name == b"-" && file == "-" {
            message("when reading file names from stdin, no file name of '-' allowed");
            unnamed += 1;
        } else {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok((names, unnamed))
}
