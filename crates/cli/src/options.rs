//! What the command line takes.

use crate::commands::staleness;
use crate::invocation::Invocation;
use crate::outcome::{error_chain, message, message_lines};
use crate::suggestions;
use canopy_index::{Index, Moment};
pub use canopy_ingest::system_clock as now_ns;
use canopy_site::{Opened, age_ns};
pub use canopy_text::clock::age;
use canopy_text::safe::{self, TerminalWriter};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
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
    /// Directory of the index [default: as configured, else /var/lib/canopy/index for root and
    /// $XDG_DATA_HOME/canopy/index for others, who read root's where they have none]
    #[arg(long, global = true, value_name = "DIR")]
    pub index: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

/// Columns of the help: those of the terminal, but lines of more than 100 are hard to read.
fn help_width() -> usize {
    let terminal = std::io::stdout().is_terminal();
    if terminal { crate::commands::ls::width(true).clamp(40, 100) } else { 100 }
}

// The arguments of a command are made when it is known which one it is.
#[derive(Subcommand)]
#[command(defer = true)]
pub enum Command {
    Index(crate::commands::index::Arguments),
    Update(crate::commands::update::Arguments),
    Compact(crate::commands::compact::Arguments),
    Check(crate::commands::check::Arguments),
    Import(crate::commands::import::Arguments),
    Find(crate::commands::find::Arguments),
    Locate(crate::commands::locate::Arguments),
    Du(crate::commands::du::Arguments),
    Ls(crate::commands::ls::Arguments),
    Stat(crate::commands::stat::Arguments),
    Sql(crate::commands::sql::Arguments),
    Table(crate::commands::table::Arguments),
    Diff(crate::commands::diff::Arguments),
    History(crate::commands::history::Arguments),
    Export(crate::commands::export::Arguments),
    Report(crate::commands::report::Arguments),
    Top(crate::commands::top::Arguments),
    Source(crate::commands::source::Arguments),
    Watch(crate::commands::watch::Arguments),
    Info(crate::commands::info::Arguments),
    Mount(crate::commands::mount::Arguments),
    Unmount(crate::commands::mount::Unmount),
    Store(crate::commands::store::Arguments),
    Ns(crate::commands::ns::Arguments),
    Help(crate::commands::help::Arguments),
    Completions(crate::commands::generate::CompletionsArguments),
    Man(crate::commands::generate::ManArguments),
}

impl Cli {
    /// Parses the command line of the process. Ends it where that asks for help or is wrong.
    pub fn of_process() -> Self {
        let mut command = Cli::command();
        let name = command_name(std::env::args_os());
        if name.as_ref().is_none_or(|name| command.find_subcommand(name).is_none()) {
            // Help tells of all commands.
            command.build();
        }
        let words = crate::commands::unabbreviated(name.as_deref(), std::env::args_os());
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
    pub fn invocation(&self) -> anyhow::Result<Invocation> {
        match self.command.is_configured() {
            true => Invocation::load(self.index.clone(), self.command.scans()),
            false => Ok(Invocation::unconfigured(self.index.clone())),
        }
    }
}

/// Ends the process with what help was asked for, or with what is wrong, as other errors are told.
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
    // Where nobody listens there is nothing to say.
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

/// Returns what is wrong with a command line in fewer lines than clap takes.
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

/// Returns the name of the command in a command line, the first word that is no option, as clap
/// finds it; `None` where that is not plain.
pub fn command_name(words: impl Iterator<Item = OsString>) -> Option<OsString> {
    let mut words = words.skip(1);
    loop {
        let word = words.next()?;
        match word.as_bytes() {
            b"--index" => {
                words.next().filter(|value| !value.as_bytes().starts_with(b"-"))?;
            }
            option if option.starts_with(b"--index=") => {}
            option if option.starts_with(b"-") => return None,
            _ => return Some(word),
        }
    }
}

impl Command {
    /// Returns whether the command reads sources, so that a wrong configuration could have it read
    /// what it must not.
    pub fn scans(&self) -> bool {
        match self {
            Command::Index(_) | Command::Update(_) | Command::Import(_) | Command::Watch(_) => true,
            Command::Check(arguments) => arguments.repair,
            _ => false,
        }
    }

    /// Returns whether the configuration matters: what explains canopy works with a broken one too,
    /// and what looks into tables.
    pub fn is_configured(&self) -> bool {
        !matches!(
            self,
            Command::Help(_)
                | Command::Completions(_)
                | Command::Man(_)
                | Command::Store(_)
                | Command::Ns(_)
                | Command::Unmount(_)
        )
    }
}

/// Options of all commands that read an index.
#[derive(Args)]
pub struct ReadOptions {
    /// Answer as the index was then: at a time such as 2026-06-01, '3 days ago' or 7d, or with the
    /// generation of a number; for those alone who write the index ('canopy info' lists what is
    /// kept)
    #[arg(long, value_name = "TIME|GENERATION", value_parser = moment)]
    pub at: Option<Moment>,
    /// Say on standard error which generation answers and how old it is
    #[arg(long)]
    pub verbose: bool,
    /// Threads that read [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

impl ReadOptions {
    /// Returns the number of threads that read.
    pub fn threads(&self, invocation: &Invocation) -> usize {
        invocation.threads(self.threads)
    }

    /// Opens the indexes as one. Prints which generation answers, if asked.
    pub fn open(&self, invocation: &Invocation) -> anyhow::Result<Index> {
        self.open_each(invocation).map(Opened::joined)
    }

    /// Opens the indexes as one for answers about these paths, or about all sources if there are
    /// none. On a terminal, a footer warns if it is old.
    pub fn open_to_answer(
        &self,
        invocation: &Invocation,
        paths: &[OsString],
    ) -> anyhow::Result<Index> {
        let opened = self.open_each(invocation)?;
        if self.at.is_none() {
            staleness::note(invocation, &opened, paths);
        }
        Ok(opened.joined())
    }

    /// Opens the indexes. Prints which generation answers, if asked.
    pub fn open_each(&self, invocation: &Invocation) -> anyhow::Result<Opened> {
        let opened = invocation.open_indexes(self.at)?;
        if self.verbose {
            opened.iter().for_each(report_age);
        }
        Ok(opened)
    }
}

/// Parses the number of a generation, an age such as 7d, or a time as date(1) takes it. Of eight
/// digits, those that are a date of this century are one: no index has so many generations.
pub fn moment(text: &str) -> Result<Moment, String> {
    let now_ns = now_ns();
    let is_date = text.len() == 8
        && text.starts_with("20")
        && canopy_tools::find::parse_moment(text, now_ns).is_some();
    if let Some(number) = text.parse().ok().filter(|_| !is_date) {
        return Ok(Moment::Generation(number));
    }
    let time_ns = match age_ns(text) {
        Some(age_ns) => Some(now_ns.saturating_sub(age_ns)),
        None => canopy_tools::find::parse_moment(text, now_ns).filter(|_| !text.trim().is_empty()),
    };
    // To date(1), a letter is a time zone.
    let time_ns = time_ns.filter(|_| text.trim().len() > 1);
    let wrong = || "give a generation's number, a time such as 2026-06-01 or '3 days ago', or 7d";
    let time_ns = time_ns.ok_or_else(wrong)?;
    // To date(1), '7days' is in a week.
    if time_ns > now_ns {
        return Err("that is in the future; an age is written as 7d or '7 days ago'".to_owned());
    }
    Ok(Moment::Time(time_ns))
}

/// Prints which generation of an index answers, and its age.
fn report_age(index: &Index) {
    message(format_args!(
        "{} answers from generation {}, published {} ago",
        index.path().display(),
        index.generation(),
        age(now_ns().saturating_sub(index.published_ns())),
    ));
    for source in index.sources() {
        let age = age(now_ns().saturating_sub(source.scanned_ns));
        let root = canopy_read::to_path(&source.root);
        message(format_args!("{} was scanned {age} ago", root.display()));
    }
}

/// Returns standard output for JSON and text in which control characters above 127 are as they are:
/// a terminal gets `?` for them, and for all bytes that it would take for one.
pub fn stdout_for_json() -> BufWriter<Box<dyn Write>> {
    let stdout = std::io::stdout();
    BufWriter::with_capacity(
        1 << 16,
        match stdout.is_terminal() {
            true => Box::new(TerminalWriter::new(stdout)),
            false => Box::new(stdout),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn what_is_wrong_with_a_command_line_is_told_in_few_lines() {
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
