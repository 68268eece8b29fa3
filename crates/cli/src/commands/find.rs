//! `canopy find`

use crate::environment::{colors, no_color};
use crate::invocation::Invocation;
use crate::outcome::{Outcome, message, message_lines};
use crate::read_options::ReadOptions;
use canopy_ingest::now_ns;
use canopy_text::safe::message_line;
use canopy_tools::find::{self, ColorWhen, Find, RunOptions};
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, IsTerminal};

/// Find entries with find(1)'s expressions, answered from the index or, with --live, by walking the
/// file system
///
/// PATHs are those of the indexed file system; the default is the working directory. Options of
/// canopy come before the first PATH or test.
///
/// Tests: -name -iname -path -ipath -lname -ilname -regex -iregex -type -xtype -size -empty -mtime
/// -mmin -atime -amin -ctime -cmin -used -newer -anewer -cnewer -newerXY -user -group -uid -gid
/// -nouser -nogroup -perm -readable -writable -executable -links -inum -samefile -fstype -true
/// -false; -mine (your own entries); -acl, -xattr NAME[=VALUE] (patterns); for Lustre, as in lfs
/// find: -ost -pool -stripe-count -stripe-size -component-count -mdt-index -hsm-state -projid.
/// Actions: -print -print0 -ls -printf -fprint -fprint0 -fls -fprintf -exec -execdir -ok -okdir
/// -prune -quit; with --live also -delete. Options: -H -L -P -follow -maxdepth -mindepth -depth
/// -xdev -mount -daystart -regextype -files0-from. Operators: ( ) ! -a -o ,
///
/// Besides, before the first path or in the expression: --live --sort FIELD --reverse --limit N
/// --mine --user NAME --count --sum --json --ndjson --0 --color[=always|auto|never] -j N. --sum
/// prints the space that entries take, and how much deleting them would free. A file with several
/// hard links is freed only if all of them are found. On a terminal, -print shows names in the
/// colours of LS_COLORS, unless NO_COLOR is set. With -j N, up to N commands of -exec and -execdir
/// run at once, in any order, with empty standard input.
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

/// Carries the command out. A wrong expression ends with exit code 1, as in find(1).
///
/// # Errors
///
/// If the expression is refused, no index answers, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let now_ns = now_ns();
    let mut find = match find::parse(&arguments.arguments, now_ns) {
        Ok(find) => find,
        Err(error) => {
            message_lines(error);
            if arguments.arguments.iter().any(|word| is_option_of_ours(word)) {
                message("--at, --index, --threads and --verbose go before paths and expression");
            }
            return Ok(Outcome::Partial);
        }
    };
    anyhow::ensure!(
        !find.is_live() || arguments.read.at.is_none(),
        "--live walks the file system as it is now, which has no past for --at"
    );
    let said = find.warnings.iter().chain(&find.wrong_starts).cloned();
    said.map(find::in_locale).for_each(message);
    let stdout = std::io::stdout();
    color(&mut find, stdout.is_terminal());
    let options = RunOptions {
        threads: arguments.read.threads(invocation),
        terminal: stdout.is_terminal(),
        now_ns,
        // A name with an end of line must not look like another message.
        reports_unlisted: true,
        diagnostic: |text| message(message_line(text)),
    };
    let mut output = BufWriter::with_capacity(1 << 16, stdout);
    let ended = match find.is_live() {
        true => find::run_live(&find, options, &mut output)?,
        false => find::run(
            &arguments.read.open_to_answer(invocation, &find.starts)?,
            &find,
            options,
            &mut output,
        )?,
    };
    ended.failed.iter().for_each(message);
    let whole = ended.failed.is_empty() && !ended.partial && find.wrong_starts.is_empty();
    Ok(if whole { Outcome::Complete } else { Outcome::Partial })
}

/// Has names shown in colours if that is asked for, or usual on a terminal.
pub fn color(find: &mut Find, terminal: bool) {
    let is_dumb = || std::env::var_os("TERM").is_none_or(|name| name == "dumb");
    let is_wanted = match find.color() {
        ColorWhen::Always => true,
        ColorWhen::Auto => terminal && !no_color() && !is_dumb(),
        ColorWhen::Never => false,
    };
    if let Some(colors) = is_wanted.then(colors).flatten() {
        find.set_colors(&colors);
    }
}

/// Returns whether a word is an option that find(1) does not have and no expression either.
fn is_option_of_ours(word: &OsStr) -> bool {
    let name = word.to_str().and_then(|word| word.split('=').next());
    name.is_some_and(|name| ["--at", "--index", "--threads", "--verbose"].contains(&name))
}
