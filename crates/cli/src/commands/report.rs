//! `canopy report`

pub(crate) use super::report_per_user::PAGE;
use super::report_per_user::{AT_A_TIME, PageRequest, write_pages};
use crate::invocation::Invocation;
use crate::new_files::{Directory, NewFiles, Old};
use crate::offered::Offered;
use crate::outcome::{Outcome, message};
use crate::output_name;
use crate::read_options::ReadOptions;
use crate::terminal::stdout_for_json;
use anyhow::Context;
use canopy_ingest::now_ns;
use canopy_text::{locale::is_utf8, user_id, user_or_number};
use canopy_tools::json::exact_lines;
use canopy_tools::report::{
    self, DuplicateRule, Limits, Report, ReportOptions, Section, Sections, TextOptions,
};
use clap::builder::TypedValueParser;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Most rows of a list: what is shown of a report has to fit into memory.
const TOP_MAX: u64 = 10_000;

/// Most bytes of a table of limits.
const LIMITS_BYTES_MAX: u64 = 16 << 20;

/// Report who and what takes how much, and what stands out
///
/// The answer is of what you see. Sections: totals, quotas, users, groups, user_ages, user_groups, types,
/// extensions, sizes, ages, largest, newest, oldest, used, unused, trees, outliers, directories,
/// deepest, empty, duplicates, links, symlinks, storage, sparse, permissions, owners, names, future.
///
/// Example: canopy report -o report.html /data
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Report only on entries of this user, by name or id (with --per-user, can be repeated)
    #[arg(long, value_name = "NAME|UID", value_parser = parse_user)]
    user: Vec<u32>,
    /// Report only on your own entries
    #[arg(long, conflicts_with_all = ["user", "per_user"])]
    mine: bool,
    /// Rows of each list
    #[arg(
        long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=TOP_MAX)
    )]
    top: u64,
    /// Only these sections
    #[arg(
        long, value_name = "NAME,...", value_delimiter = ',', hide_possible_values = true,
        value_parser = Offered(section_names).try_map(|name| parse_section(&name))
    )]
    section: Vec<Section>,
    /// Compare what owners have with their limits: CSV with columns user, group, bytes, files
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Print a page of HTML that needs nothing else
    #[arg(long)]
    html: bool,
    /// Print one section as CSV, or with -o DIR write a CSV file of each section. Values that a
    /// spreadsheet would compute get an apostrophe
    #[arg(long, conflicts_with_all = ["html", "json"])]
    csv: bool,
    /// Draw bars with '#' [default: unless the locale is UTF-8]
    #[arg(long)]
    ascii: bool,
    /// Write to FILE, in the format of its name (.html, .json, .csv), or CSV to a directory [default:
    /// standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Make DIR and in it, for each user who has anything, the page NAME.html: what that user sees,
    /// about the own files (for root alone)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "csv", "output", "at"])]
    per_user: Option<PathBuf>,
    /// Directories to report on [default: the working directory, or all sources if none covers it]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Reads a user, given by name or id.
pub fn parse_user(text: &str) -> Result<u32, String> {
    user_id(text).ok_or_else(|| "no such user".to_owned())
}

fn parse_section(name: &OsStr) -> Result<Section, String> {
    name.to_str()
        .and_then(Section::named)
        .ok_or_else(|| format!("no such section; there are {}", section_names().join(", ")))
}

fn section_names() -> Vec<&'static str> {
    Section::ALL.iter().map(|section| section.name()).collect()
}

/// Returns the sections that are asked for. Fails where they do not go with the limits.
fn sections_of(arguments: &Arguments, has_limits: bool) -> anyhow::Result<Sections> {
    let sections: Sections = match arguments.section.is_empty() {
        true if !has_limits => Sections::all().without(Section::Quotas),
        true => Sections::all(),
        false => arguments.section.iter().copied().collect(),
    };
    anyhow::ensure!(
        has_limits || !sections.has(Section::Quotas),
        "the section quotas compares with limits: say with --limits which file has them"
    );
    anyhow::ensure!(
        !has_limits || sections.has(Section::Quotas),
        "--limits is for the section quotas, which --section leaves out"
    );
    Ok(sections)
}

/// Carries the command out.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let mut arguments = arguments;
    if arguments.mine {
        arguments.user = vec![nix::unistd::geteuid().as_raw()];
    }
    form_of_name(&mut arguments)?;
    anyhow::ensure!(
        arguments.user.len() < 2 || arguments.per_user.is_some(),
        "a report is on one user, or a page on each (--per-user DIR)"
    );
    anyhow::ensure!(
        !arguments.csv || arguments.section.len() == 1 || arguments.output.is_some(),
        "--csv is of one section (--section NAME), or writes a file of each into a directory (-o)"
    );
    let limits = arguments.limits.as_deref().map(read_limits).transpose()?;
    let sections = sections_of(&arguments, limits.is_some())?;
    let threads = arguments.read.threads(invocation);
    if let Some(directory) = &arguments.per_user {
        anyhow::ensure!(
            nix::unistd::geteuid().is_root(),
            "--per-user is for root alone, who can become each user"
        );
        // That of root, whoever reads it.
        return per_user(invocation, &arguments, directory, (sections, limits));
    }
    let files = arguments.output.as_ref().map(|_| NewFiles::new()).transpose()?;
    let index = arguments.read.open_to_answer(invocation, &arguments.paths)?;
    let options = ReportOptions {
        sections,
        top: usize::try_from(arguments.top)?,
        owner: arguments.user.first().copied(),
        limits,
        duplicates: DuplicateRule::SizeTimeAndName,
        now_ns: now_ns(),
        threads,
    };
    let (mut report, failed) = report::report(&index, &arguments.paths, &options)?;
    if arguments.read.at.is_some() {
        // They are those of now.
        report.problems.clear();
    }
    failed.iter().for_each(message);
    if !failed.is_empty() && report.paths.is_empty() {
        return Ok(Outcome::Partial);
    }
    let to = arguments.output.as_deref().zip(files.as_ref());
    if let (true, Some((directory, files))) = (arguments.csv, to)
        && (arguments.section.len() != 1 || directory.is_dir())
    {
        write_each_csv(&report, &options, directory, files)?;
        return Ok(Outcome::of_errors(&failed));
    }
    let write = |output: &mut dyn Write| write_as_asked(&report, &arguments, output);
    match to {
        Some((path, files)) => {
            let (directory, name) = Directory::of(path)?;
            write(&mut BufWriter::new(files.create(&directory, name, Old::Replaced)?))?;
            files.publish()?;
        }
        None => write(&mut stdout_for_json())?,
    }
    Ok(Outcome::of_errors(&failed))
}

/// Writes a report in the format that is asked for.
fn write_as_asked(
    report: &Report,
    arguments: &Arguments,
    output: &mut dyn Write,
) -> anyhow::Result<()> {
    if arguments.json {
        write_json(report, output)?;
    } else if arguments.csv {
        report::write_csv(report, arguments.section[0], output)?;
    } else if arguments.html {
        report::write_html(report, output)?;
    } else {
        let options = TextOptions { ascii: arguments.ascii || !is_utf8(), heading: true };
        report::write_text(report, options, output)?;
    }
    Ok(output.flush()?)
}

/// Writes a page for each user who has anything, or for those of them who are named.
fn per_user(
    invocation: &Invocation,
    arguments: &Arguments,
    directory: &Path,
    (sections, limits): (Sections, Option<Limits>),
) -> anyhow::Result<Outcome> {
    let options = ReportOptions {
        sections: [Section::Users].into_iter().collect(),
        top: usize::MAX,
        owner: None,
        limits: None,
        duplicates: DuplicateRule::SizeTimeAndName,
        now_ns: now_ns(),
        threads: arguments.read.threads(invocation),
    };
    let (report, failed) =
        report::report(&arguments.read.open(invocation)?, &arguments.paths, &options)?;
    failed.iter().for_each(message);
    if report.paths.is_empty() && !failed.is_empty() {
        return Ok(Outcome::Partial);
    }
    let named = &arguments.user;
    let mut users: Vec<u32> = report.users().collect();
    for uid in named.iter().filter(|uid| !users.contains(uid)) {
        message(format_args!("{} has nothing there, and gets no page", user_or_number(*uid)));
    }
    users.retain(|uid| named.is_empty() || named.contains(uid));
    let request = PageRequest {
        index: invocation.site.index_to_write()?,
        sections,
        top: arguments.top,
        threads: options.threads.div_ceil(AT_A_TIME),
        is_verbose: arguments.read.verbose,
    };
    let written = write_pages(directory, users, (&request, &arguments.paths), limits.as_ref())?;
    Ok(if failed.is_empty() { written } else { Outcome::Partial })
}

/// The error of names that promise a form that reports do not have.
const OTHER_FORM: &str = "a report is text, or HTML, JSON or CSV (-o x.html, x.json, x.csv); canopy \
                          export and canopy sql have other forms";

/// Takes the form that the name of the file promises where none was asked for.
fn form_of_name(arguments: &mut Arguments) -> anyhow::Result<()> {
    let Some(output) = arguments.output.as_deref() else { return Ok(()) };
    let ending = output_name::ending(output)?;
    if arguments.json || arguments.html || arguments.csv {
        return Ok(());
    }
    match ending.as_str() {
        "json" => arguments.json = true,
        "html" | "htm" => arguments.html = true,
        "csv" => {
            anyhow::ensure!(
                arguments.section.len() == 1,
                "a CSV file has one section (--section NAME); --csv -o DIR writes a file of each"
            );
            arguments.csv = true;
        }
        "parquet" | "ndjson" | "jsonl" | "md" => anyhow::bail!("{OTHER_FORM}"),
        other if output_name::OTHER_FORMS.contains(&other) => anyhow::bail!("{OTHER_FORM}"),
        _ => {}
    }
    Ok(())
}

fn read_limits(path: &Path) -> anyhow::Result<Limits> {
    let read = || -> anyhow::Result<Limits> {
        let mut text = String::new();
        let read = File::open(path)?.take(LIMITS_BYTES_MAX + 1).read_to_string(&mut text)?;
        anyhow::ensure!(read as u64 <= LIMITS_BYTES_MAX, "it has more than 16 MiB");
        Ok(Limits::parse(&text)?)
    };
    read().with_context(|| format!("cannot use the limits of {}", path.display()))
}

/// Writes a file `SECTION.csv` of each section into a directory, which is made if it is missing.
fn write_each_csv(
    report: &Report,
    options: &ReportOptions,
    directory: &Path,
    files: &NewFiles,
) -> anyhow::Result<()> {
    let opened = Directory::make_own(directory)?;
    for section in Section::ALL.iter().filter(|section| options.sections.has(**section)) {
        let name = format!("{}.csv", section.name());
        let file = files.create(&opened, name.as_ref(), Old::Distrusted)?;
        let mut output = BufWriter::new(file);
        report::write_csv(report, *section, &mut output)?;
        output.flush()?;
    }
    files.publish()
}

/// Writes a report as JSON, with an end of line.
pub fn write_json(report: &Report, output: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(output, "{}", exact_lines(&serde_json::to_string_pretty(report)?))?;
    output.flush()?;
    Ok(())
}
