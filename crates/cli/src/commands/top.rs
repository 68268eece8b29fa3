//! `canopy top`

use super::growth::{self, By, Growth};
use super::report::{parse_user, write_json};
use crate::invocation::Invocation;
use crate::outcome::{Outcome, message};
use crate::read_options::{ReadOptions, moment};
use crate::terminal::stdout_for_json;
use canopy_index::Moment;
use canopy_ingest::now_ns;
use canopy_text::counted;
use canopy_text::locale::is_utf8;
use canopy_tools::report::{self, DuplicateRule, ReportOptions, Section, TextOptions};
use std::ffi::OsString;

/// Answer a single question of a report, such as which files are largest
///
/// Example: canopy top unused --mine -n 20 /data
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Only entries of this user, by name or id
    #[arg(long, value_name = "NAME|UID", value_parser = parse_user, conflicts_with = "mine")]
    user: Option<u32>,
    /// Only your own entries
    #[arg(long)]
    mine: bool,
    /// Rows to show
    #[arg(
        short = 'n', long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=10_000)
    )]
    count: u64,
    /// Print JSON, as 'canopy report' has it
    #[arg(long)]
    json: bool,
    /// Draw bars with '#' [default: unless the locale is UTF-8]
    #[arg(long)]
    ascii: bool,
    /// For growth: since when, as for --at [default: 7d, or since the oldest generation]
    #[arg(long, value_name = "TIME|GENERATION", value_parser = moment)]
    since: Option<Moment>,
    /// For growth: the kind of entry to compare [default: file]
    #[arg(long, value_enum)]
    by: Option<By>,
    /// For duplicates, compare the contents of files of the same size, if you may read them
    #[arg(long)]
    verify: bool,
    /// The question
    #[arg(value_enum, value_name = "QUESTION")]
    question: Question,
    /// Directories to look at [default: the working directory, or all sources if none covers it]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Question {
    /// Largest files
    Largest,
    /// Files modified last
    Newest,
    /// Files not modified for longest
    Oldest,
    /// Files used last
    Used,
    /// Files not used for longest
    Unused,
    /// Directories with most in them
    Directories,
    /// Directories that take most space, with all below them
    Trees,
    /// Directories that take far more or less than those beside them
    Outliers,
    /// Deepest directories
    Deepest,
    /// Empty directories
    Empty,
    /// Files of the same size, which may be copies of each other; with --verify only those that are
    Duplicates,
    /// Inodes with several names
    Links,
    /// Broken and looping symbolic links
    Symlinks,
    /// Sparse files
    Sparse,
    /// Usage by user
    Users,
    /// Usage by group
    Groups,
    /// Usage by extension
    Extensions,
    /// Largest growth since a time, for the owner of the index
    Growth,
}

impl Question {
    /// Returns the section of a report that answers; `None` if two generations do.
    fn section(self) -> Option<Section> {
        Some(match self {
            Question::Largest => Section::Largest,
            Question::Newest => Section::Newest,
            Question::Oldest => Section::Oldest,
            Question::Used => Section::Used,
            Question::Unused => Section::Unused,
            Question::Directories => Section::Directories,
            Question::Trees => Section::Trees,
            Question::Outliers => Section::Outliers,
            Question::Deepest => Section::Deepest,
            Question::Empty => Section::Empty,
            Question::Duplicates => Section::Duplicates,
            Question::Links => Section::Links,
            Question::Symlinks => Section::Symlinks,
            Question::Sparse => Section::Sparse,
            Question::Users => Section::Users,
            Question::Groups => Section::Groups,
            Question::Extensions => Section::Extensions,
            Question::Growth => return None,
        })
    }
}

/// Carries the command out.
///
/// # Errors
///
/// If no index answers, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let is_duplicates = matches!(arguments.question, Question::Duplicates);
    anyhow::ensure!(is_duplicates || !arguments.verify, "--verify is for 'canopy top duplicates'");
    let Some(section) = arguments.question.section() else {
        anyhow::ensure!(
            arguments.user.is_none() && !arguments.mine,
            "growth is told of all users; --by user tells it of each"
        );
        return growth::run(
            invocation,
            &Growth {
                read: &arguments.read,
                since: arguments.since,
                by: arguments.by.unwrap_or(By::File),
                count: usize::try_from(arguments.count)?,
                json: arguments.json,
                paths: &arguments.paths,
            },
        );
    };
    anyhow::ensure!(
        arguments.since.is_none() && arguments.by.is_none(),
        "--since and --by are for 'canopy top growth'"
    );
    let index = arguments.read.open_to_answer(invocation, &arguments.paths)?;
    let mine = arguments.mine.then(|| nix::unistd::geteuid().as_raw());
    let options = ReportOptions {
        sections: [section].into_iter().collect(),
        top: usize::try_from(arguments.count)?,
        owner: arguments.user.or(mine),
        limits: None,
        duplicates: match arguments.verify {
            true => DuplicateRule::Contents,
            false => DuplicateRule::Size,
        },
        now_ns: now_ns(),
        threads: arguments.read.threads(invocation),
    };
    let (report, failed) = report::report(&index, &arguments.paths, &options)?;
    failed.iter().for_each(message);
    if !failed.is_empty() && report.paths.is_empty() {
        return Ok(Outcome::Partial);
    }
    if arguments.json {
        write_json(&report, &mut stdout_for_json())?;
    } else {
        let mut output = stdout_for_json();
        let options = TextOptions { ascii: arguments.ascii || !is_utf8(), heading: false };
        report::write_text(&report, options, &mut output)?;
    }
    let not_read = report.duplicates_not_read();
    if not_read > 0 {
        message(format_args!(
            "{} could not be read or changed since the scan: not compared",
            counted(not_read as u64, "file")
        ));
        return Ok(Outcome::Partial);
    }
    Ok(Outcome::of_errors(&failed))
}
