//! `canopy find`

use crate::options::{ReadOptions, now_ns};
use crate::outcome::{Outcome, message};
use canopy_query::find::{self, RunOptions};
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal};
use std::path::PathBuf;

/// Find entries with find(1)'s expressions, answered from the index
///
/// PATHs are those of the indexed file system; the default is the working directory. Options of canopy come before
/// the first PATH or test.
///
/// Tests: -name -iname -path -ipath -regex -type -size -empty -mtime -mmin -atime -amin -ctime -cmin -newer -anewer
/// -cnewer -user -group -uid -gid -perm -links -inum -true -false; -acl, -xattr NAME[=VALUE] (patterns).
/// Actions: -print -print0 -ls -printf -prune. Limits: -maxdepth -mindepth. Operators: ( ) ! -a -o.
///
/// Example: canopy find /data -name '*.h5' -size +1G -mtime +365 -printf '%s %p\n'
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Paths, then an expression
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PATH... EXPRESSION")]
    arguments: Vec<OsString>,
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<Outcome> {
    let now_ns = now_ns();
    let find = find::parse(&arguments.arguments, now_ns).map_err(anyhow::Error::msg)?;
    let index = arguments.read.open(index)?;
    let stdout = std::io::stdout();
    let options = RunOptions { threads: arguments.read.threads(), terminal: stdout.is_terminal(), now_ns };
    let failed = find::run(&index, &find, options, &mut BufWriter::with_capacity(1 << 16, stdout))?;
    failed.iter().for_each(message);
    Ok(if failed.is_empty() { Outcome::Complete } else { Outcome::Partial })
}
