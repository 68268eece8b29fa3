//! Options of `canopy report`.

use crate::offered::Offered;
use crate::output_name;
use crate::read_options::ReadOptions;
use anyhow::Context;
use canopy_text::user_id;
use canopy_tools::report::{Limits, Section, Sections};
use clap::builder::TypedValueParser;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most rows of a list: the rows of a report have to fit into memory.
const TOP_MAX: u64 = 10_000;

/// Most bytes of a table of limits.
const LIMITS_BYTES_MAX: u64 = 16 << 20;

/// Report which users, types and directories take how much space, and which stand out
///
/// The report covers the entries that you see. Sections: totals, quotas, users, groups, user_ages,
/// user_groups, types, extensions, sizes, ages, largest, newest, oldest, used, unused, trees,
/// outliers, directories, deepest, empty, duplicates, links, symlinks, storage, sparse,
/// permissions, owners, names, future.
///
/// Example: canopy report -o report.html /data
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) read: ReadOptions,
    /// Report only on entries of this user, by name or id (with --per-user, can be repeated)
    #[arg(long, value_name = "NAME|UID", value_parser = parse_user)]
    pub(super) user: Vec<u32>,
    /// Report only on your own entries
    #[arg(long, conflicts_with_all = ["user", "per_user"])]
    pub(super) mine: bool,
    /// Rows of each list
    #[arg(
        long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=TOP_MAX)
    )]
    pub(super) top: u64,
    /// Only these sections
    #[arg(
        long, value_name = "NAME,...", value_delimiter = ',', hide_possible_values = true,
        value_parser = Offered(section_names).try_map(|name| parse_section(&name))
    )]
    pub(super) section: Vec<Section>,
    /// Compare the usage of owners with their limits: CSV with columns user, group, bytes, files
    #[arg(long, value_name = "FILE")]
    pub(super) limits: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "html")]
    pub(super) json: bool,
    /// Print a page of HTML that needs nothing else
    #[arg(long)]
    pub(super) html: bool,
    /// Print one section as CSV, or with -o DIR write a CSV file of each section. Values that a
    /// spreadsheet would compute get an apostrophe
    #[arg(long, conflicts_with_all = ["html", "json"])]
    pub(super) csv: bool,
    /// Draw bars with '#' [default: unless the locale is UTF-8]
    #[arg(long)]
    pub(super) ascii: bool,
    /// Write to FILE, in the format of its name (.html, .json, .csv), or CSV to a directory [default:
    /// standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Make DIR and in it a page NAME.html for each user who owns anything. It covers the user's
    /// own files, as that user sees them (for root alone)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "csv", "output", "at"])]
    pub(super) per_user: Option<PathBuf>,
    /// Directories to report on [default: the working directory, or all sources if none covers it]
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<OsString>,
}

/// Reads a user, given by name or id.
///
/// # Errors
///
/// If there is no such user.
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
pub(super) fn sections_of(arguments: &Arguments, has_limits: bool) -> anyhow::Result<Sections> {
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

/// The error of names that promise a form that reports do not have.
const OTHER_FORM: &str = "a report is text, or HTML, JSON or CSV (-o x.html, x.json, x.csv); canopy \
                          export and canopy sql have other forms";

/// Takes the form that the name of the file promises where none was asked for.
pub(super) fn form_of_name(arguments: &mut Arguments) -> anyhow::Result<()> {
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

/// Reads a table of limits.
pub(super) fn read_limits(path: &Path) -> anyhow::Result<Limits> {
    let read = || -> anyhow::Result<Limits> {
        let mut text = String::new();
        let read = File::open(path)?.take(LIMITS_BYTES_MAX + 1).read_to_string(&mut text)?;
        anyhow::ensure!(read as u64 <= LIMITS_BYTES_MAX, "it has more than 16 MiB");
        Ok(Limits::parse(&text)?)
    };
    read().with_context(|| format!("cannot use the limits of {}", path.display()))
}
