//! `canopy stat`

use super::report::speaks_utf8;
use super::switches::{Switch, Switches, Tool, Value, both, long};
use crate::options::ReadOptions;
use crate::outcome::{Outcome, message};
use canopy_text::{Quoting, Style};
use canopy_tools::ls::{StatFormat, StatOptions, stat};
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const SWITCHES: &[Switch] = &[
    both('L', "dereference", Value::None, "Follow symbolic links"),
    both(
        'c',
        "format",
        Value::Needed("FORMAT"),
        "Print FORMAT, with an end of line after each PATH",
    ),
    long(
        "printf",
        Value::Needed("FORMAT"),
        "Print FORMAT, with backslash escapes and no end of line",
    ),
    both('t', "terse", Value::None, "Print all in one line"),
];

/// Print all that is known of entries, as stat(1) does, answered from the index
///
/// Directives of FORMAT: %a %A permissions, %b %B blocks and their size, %d %D %Hd %Ld device, %f
/// mode, %F type, %g %G group, %h links, %i inode, %n %N name, %o size for I/O, %r %R %Hr %Lr %t %T
/// device type, %s size, %u %U owner, %w %W birth, %x %X access, %y %Y modification, %z %Z change.
/// What metadata does not tell (%m, %C) is '?'.
///
/// Example: canopy stat -c '%U %s %n' /data/run.h5
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    #[command(flatten)]
    switches: Switches<Stat>,
    /// What to look at
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

struct Stat;

impl Tool for Stat {
    const SWITCHES: &'static [Switch] = SWITCHES;
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<Outcome> {
    let stdout = std::io::stdout();
    let mut options = StatOptions {
        format: StatFormat::Full,
        dereference: false,
        // How `%N` quotes.
        quoting: Quoting {
            style: Style::from_environment().unwrap_or(Style::ShellEscapeAlways),
            utf8: speaks_utf8(),
            ..Quoting::default()
        },
        terminal: stdout.is_terminal(),
    };
    // A format counts before --terse, wherever they stand.
    for (id, value) in arguments.switches.given {
        match id {
            "dereference" => options.dereference = true,
            "format" => options.format = StatFormat::Line(value.into_vec()),
            "printf" => options.format = StatFormat::Escaped(value.into_vec()),
            _ if matches!(options.format, StatFormat::Full) => options.format = StatFormat::Terse,
            _ => {}
        }
    }
    let index = arguments.read.open(index)?;
    let failed = stat(&index, &arguments.paths, &options, &mut BufWriter::new(stdout))?;
    failed.iter().for_each(message);
    Ok(Outcome::of_errors(&failed))
}
