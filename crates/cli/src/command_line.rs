//! The command line: which commands there are, and which function carries each out.

use crate::commands::{
    check, cluster, compact, diff, du, export, find, generate, help, history, import, index, info,
    locate, ls, mount, ns, report, source, sql, stat, store, table, top, update, watch,
};
use crate::companion::{Companion, command_name};
use crate::engine::Engine;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, Refused, error_chain, message, message_lines};
use crate::{suggestions, terminal};
use canopy_text::safe;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// Index file systems and search their metadata, as any user, in milliseconds.
#[derive(Parser)]
#[command(
    name = "canopy",
    version,
    propagate_version = true,
    term_width = help_width(),
    disable_help_subcommand = true
)]
pub struct Cli {
    /// Directory of the index [default: as configured; else /var/lib/canopy/index for root, and for
    /// other users $XDG_DATA_HOME/canopy/index, or root's index if they have none]
    #[arg(long, global = true, value_name = "DIR")]
    pub index: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

/// Columns of the help: those of the terminal, but lines of more than 100 are hard to read.
fn help_width() -> usize {
    let terminal = std::io::stdout().is_terminal();
    if terminal { terminal::width(true).clamp(40, 100) } else { 100 }
}

// The arguments of a command are made when it is known which one it is.
#[derive(Subcommand)]
#[command(defer = true)]
pub enum Command {
    Index(index::Arguments),
    Update(update::Arguments),
    Compact(compact::Arguments),
    Check(check::Arguments),
    Import(import::Arguments),
    Find(find::Arguments),
    Locate(locate::Arguments),
    Du(du::Arguments),
    Ls(ls::Arguments),
    Stat(stat::Arguments),
    Sql(sql::Arguments),
    Table(table::Arguments),
    Diff(diff::Arguments),
    History(history::Arguments),
    Export(export::Arguments),
    Report(report::Arguments),
    Top(top::Arguments),
    Source(source::Arguments),
    Watch(watch::Arguments),
    Info(info::Arguments),
    Mount(mount::Arguments),
    Unmount(mount::Unmount),
    Store(store::Arguments),
    Ns(ns::Arguments),
    Cluster(cluster::Arguments),
    Help(help::Arguments),
    Completions(generate::CompletionsArguments),
    Man(generate::ManArguments),
}

impl Cli {
    /// Parses the command line of the process. Ends it where that asks for help or is wrong.
    pub fn of_process() -> Self {
        let mut command = Cli::command();
        let name = command_name(std::env::args_os());
        if name.as_ref().is_none_or(|name| command.find_subcommand(name).is_none()) {
            // Help lists all commands.
            command.build();
        }
        let words = unabbreviated(name.as_deref(), std::env::args_os());
        let words = words.unwrap_or_else(|refused| {
            message_lines(&refused);
            std::process::exit(refused.code.into())
        });
        let matches = command.try_get_matches_from(words).unwrap_or_else(|mut error| {
            suggestions::improve(&mut error, name.as_ref().and_then(|name| name.to_str()));
            end(&error)
        });
        let parsed = Cli::from_arg_matches(&matches);
        parsed.unwrap_or_else(|error| end(&error.format(&mut Cli::command())))
    }
}

impl Cli {
    /// Reads the configuration, where it matters to the command.
    ///
    /// # Errors
    ///
    /// Those of [`Invocation::load`].
    pub fn invocation(&self) -> anyhow::Result<Invocation> {
        match self.command.is_configured() {
            true => Invocation::load(self.index.clone(), self.command.scans()),
            false => Ok(Invocation::unconfigured(self.index.clone())),
        }
    }
}

/// Ends the process: prints the help that was asked for, or the error as other errors are printed.
fn end(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        match error.print().and_then(|()| std::io::stdout().flush()) {
            Err(failed) if failed.kind() != std::io::ErrorKind::BrokenPipe => {
                message(error_chain(&anyhow::Error::from(failed).context("cannot print the help")));
                std::process::exit(2)
            }
            _ => std::process::exit(0),
        }
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.exit();
    }
    let told = usage_error(&in_lines_of_ours(error.render().to_string(), std::env::args_os()));
    // A closed standard error is not a failure.
    let _ = std::io::stderr().write_all(safe::message_lines(&told).as_bytes());
    std::process::exit(error.exit_code())
}

/// Returns clap's message without line ends that come from words of the command line.
fn in_lines_of_ours(rendered: String, words: impl Iterator<Item = OsString>) -> String {
    words.fold(rendered, |rendered, word| {
        let word = word.to_string_lossy();
        let value = word.split_once('=').map(|(_, value)| value);
        [Some(&*word), value].into_iter().flatten().fold(rendered, |rendered, piece| {
            match safe::message_line(piece) {
                Cow::Owned(line) => rendered.replace(piece, &line),
                Cow::Borrowed(_) => rendered,
            }
        })
    })
}

/// Shortens clap's message about a wrong command line.
fn usage_error(rendered: &str) -> String {
    const MISSING: &str = "the following required arguments were not provided:";
    let rendered = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let mut told = "canopy: ".to_owned();
    let mut lines = rendered.lines().filter(|line| !line.trim().is_empty()).peekable();
    if lines.next_if_eq(&MISSING).is_some() {
        told += "missing";
        while let Some(line) = lines.next_if(|line| line.starts_with("  ")) {
            told = format!("{told} {}", line.trim());
        }
        told.push('\n');
    }
    // Hardly anybody wants an option that does not exist as a value.
    for line in lines.filter(|line| !line.starts_with("  tip: to pass '")) {
        let line = line.trim_start().replace("invalid digit found in string", "give a number");
        told = format!("{told}{line}\n");
    }
    told
}

impl Command {
    /// Returns whether the command reads sources. With a wrong configuration, it could read
    /// excluded ones.
    pub fn scans(&self) -> bool {
        match self {
            Command::Index(_) | Command::Update(_) | Command::Import(_) | Command::Watch(_) => true,
            Command::Check(arguments) => arguments.repair,
            _ => false,
        }
    }

    /// Returns whether the configuration matters. Commands that explain canopy, or look into
    /// tables, work even if it is broken.
    pub fn is_configured(&self) -> bool {
        !matches!(
            self,
            Command::Help(_)
                | Command::Completions(_)
                | Command::Man(_)
                | Command::Store(_)
                | Command::Ns(_)
                | Command::Cluster(_)
                | Command::Unmount(_)
        )
    }
}

/// Checks options of tools that others have defined, and writes abbreviated ones out, as those take
/// them.
fn unabbreviated(
    command: Option<&OsStr>,
    words: impl Iterator<Item = OsString>,
) -> Result<Vec<OsString>, Refused> {
    match command.and_then(OsStr::to_str) {
        Some("du") => crate::switches::unabbreviated::<du::Du>(words),
        Some("ls") => crate::switches::unabbreviated::<ls::Ls>(words),
        Some("stat") => crate::switches::unabbreviated::<stat::Stat>(words),
        _ => Ok(words.collect()),
    }
}

/// Runs the command that the command line names.
///
/// # Errors
///
/// Those of the command.
pub fn run(
    invocation: &Invocation,
    command: Command,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    match command {
        Command::Index(arguments) => index::run(invocation, arguments, engine, None),
        Command::Update(arguments) => update::run(invocation, arguments, engine),
        Command::Compact(arguments) => compact::run(invocation, arguments),
        Command::Check(arguments) => check::run(invocation, arguments, engine),
        Command::Import(arguments) => match engine {
            Some(engine) => (engine.import)(invocation, arguments),
            None => Companion::Sql.run(),
        },
        Command::Find(arguments) => find::run(invocation, arguments),
        Command::Locate(arguments) => locate::run(invocation, arguments),
        Command::Diff(arguments) => diff::run(invocation, arguments),
        Command::History(arguments) => history::run(invocation, arguments),
        Command::Du(arguments) => du::run(invocation, arguments),
        Command::Ls(arguments) => ls::run(invocation, arguments),
        Command::Stat(arguments) => stat::run(invocation, arguments),
        Command::Sql(arguments) => match engine {
            Some(engine) => (engine.sql)(invocation, arguments),
            None => Companion::Sql.run(),
        },
        Command::Table(arguments) => match engine {
            Some(engine) => (engine.table)(invocation, arguments),
            None => Companion::Sql.run(),
        },
        Command::Store(_) => Companion::Store.run(),
        Command::Cluster(_) => Companion::Cluster.run(),
        Command::Ns(_) | Command::Mount(_) | Command::Unmount(_) => Companion::Namespace.run(),
        Command::Export(arguments) => export::run(invocation, arguments),
        Command::Report(arguments) => report::run(invocation, arguments),
        Command::Top(arguments) => top::run(invocation, arguments),
        Command::Source(arguments) => source::run(invocation, arguments, engine),
        Command::Watch(arguments) => watch::run(invocation, arguments),
        Command::Info(arguments) => info::run(invocation, arguments),
        Command::Help(arguments) => help::run(arguments, Cli::command()),
        Command::Completions(arguments) => generate::completions(arguments, Cli::command()),
        Command::Man(arguments) => generate::man(arguments, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn messages_about_wrong_command_lines_are_short() {
        for (words, expected) in [
            (
                &["top"][..],
                "canopy: missing <QUESTION>\nUsage: canopy top <QUESTION> [PATH]...\n\
                 For more information, try '--help'.\n",
            ),
            (
                &["index", "--no-prun"],
                "canopy: unexpected argument '--no-prun' found\n\
                 tip: a similar argument exists: '--no-prune'\n\
                 Usage: canopy index --no-prune <PATH|--threads <N>|--max-rate <N>",
            ),
            (
                &["du", "--threads", "x"],
                "canopy: invalid value 'x' for '--threads <N>': give a number\n",
            ),
            (&["info", "--nonsense"], "canopy: unexpected argument '--nonsense' found\nUsage: "),
            (
                &["export", "--format", "x"],
                "canopy: invalid value 'x' for '--format <FORMAT>'\n[possible values: gufi-trace, ",
            ),
        ] {
            let words = ["canopy"].iter().chain(words);
            let Err(error) = Cli::command().try_get_matches_from(words) else { panic!() };
            let told = usage_error(&error.render().to_string());
            let start = &expected[..expected.len().min(100)];
            assert!(told.starts_with(start), "{told}");
        }
    }

    #[test]
    fn the_name_of_the_command_is_the_one_that_clap_finds() {
        for (words, expected) in [
            ("sql", Some("sql")),
            ("sql --format csv SELECT", Some("sql")),
            ("--index sql table list", Some("table")),
            ("--index=/i sql SELECT", Some("sql")),
            ("sql --index /i SELECT", Some("sql")),
            ("du sql", Some("du")),
            ("find table", Some("find")),
            ("--index sql du", Some("du")),
            ("sqlite", Some("sqlite")),
            ("", None),
            ("--index sql", None),
            ("--index", None),
            ("--index --help sql", None),
            ("--indexed sql", None),
            ("--help sql", None),
            ("-V sql", None),
            ("-- sql", None),
        ] {
            let words: Vec<&str> = ["canopy"].into_iter().chain(words.split(' ')).collect();
            let words = words.into_iter().filter(|word| !word.is_empty());
            let found = command_name(words.clone().map(OsString::from));
            assert_eq!(found.as_deref(), expected.map(OsStr::new), "{words:?}");
            if let Ok(matches) = Cli::command().try_get_matches_from(words.clone()) {
                assert_eq!(matches.subcommand_name(), expected, "{words:?}");
            }
        }
    }
}
