//! Reports: who and what takes how much, and which entries stand out.
//!
//! `sections` has the sections, one struct in one file each, and lists them once. They say what
//! they need; `facts` reads that, stage by stage, and answers each as soon as all is there:
//!
//! 1. `statistics` adds up what the index keeps: usage by owner and kind, histograms.
//! 2. `entries` passes once over entries and directories for what no statistics tell, with the
//!    columns that sections ask for; `details` then reads what the chosen rows are called.
//! 3. `link_names` reads the names of inodes with several, for sums that count each once.
//! 4. `listings` passes once over listings for what single directories and trees hold.
//!
//! `view` is what sections make of their answers, tables and bars, which `text`, `html` and `csv` show.
//! JSON is [`Report`] itself.
//!
//! The stages come one after the other so that the memory of each serves the next: see there for
//! how much it is.
//!
//! Not its job: deciding who may see what. All rows come from shards that the caller could open.

mod csv;
mod details;
mod entries;
mod facts;
mod format;
mod html;
mod limits;
mod link_names;
mod listings;
mod parts;
mod sections;
mod statistics;
mod text;
mod top_k;
mod tree_sums;
mod view;

pub use csv::write_csv;
pub use html::write_html;
pub use limits::{Limit, Limits, LimitsError};
pub use sections::{DuplicateRule, Section, Sections};
pub use text::{TextOptions, write_text};

use crate::error::{Error, Result};
use canopy_index::{Failure, Index};
use canopy_model::{Generation, is_below};
use canopy_read::locate::{Start, absolute_path};
use canopy_read::resolve::locate;
use canopy_text::user_name;
use sections::Answers;
use serde::Serialize;
use std::ffi::OsString;
use std::sync::Arc;

/// A report. Its JSON is exactly this.
///
/// Sizes are bytes, `disk_bytes` is space taken, times are nanoseconds since 1970. Paths are
/// absolute and, as names, escaped (see `canopy_model::escape`). Lists are in the order of what
/// they are about, ties by directory in path order, then by name.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Generation of the index that answered.
    pub generation: Generation,
    /// When it was published.
    pub published_ns: i64,
    /// The user who asked; the report contains everything that this user sees.
    pub asked_by: Owner,
    /// Owner of the reported entries; none for all owners.
    pub owner: Option<Owner>,
    /// Most rows of a list.
    pub top: usize,
    /// Time of the report. Not in JSON: the report of a generation stays equal.
    #[serde(skip)]
    pub reported_ns: i64,
    /// Directories that it covers.
    pub paths: Vec<Covered>,
    /// Problems when these were scanned last, as far as the caller may know.
    pub problems: Vec<Problem>,
    #[serde(flatten)]
    answers: Answers,
}

impl Report {
    /// Gives the users in the section `users`, those who take most space first.
    pub fn users(&self) -> impl Iterator<Item = u32> {
        self.answers.users()
    }

    /// Gives the number of candidates for duplicates whose contents could not be compared, since
    /// the caller may not read them or they have changed.
    pub fn duplicates_not_read(&self) -> i64 {
        self.answers.duplicates_not_read()
    }
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// The number.
    pub id: u32,
    /// Its name on this system, if any.
    pub name: Option<String>,
}

/// A directory that a report is about.
#[derive(Clone, Debug, Serialize)]
pub struct Covered {
    /// Its absolute path.
    pub path: String,
    /// When the scan of its source began.
    pub scanned_ns: i64,
    /// When the last scan of it or of a part of it began.
    pub updated_ns: i64,
}

/// A problem of the index of a source.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// Absolute path of its root.
    pub root: String,
    /// When the first of the runs failed that have since.
    pub since_ns: i64,
    /// When the last one did.
    pub last_ns: i64,
    /// The reason, or a description of the missing parts.
    pub reason: String,
    /// Whether something was published nevertheless.
    pub published: bool,
}

/// Settings of a report.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Sections to answer.
    pub sections: Sections,
    /// Most rows of a list.
    pub top: usize,
    /// Owner of the entries to report on, all if there is none.
    pub owner: Option<u32>,
    /// Limits to compare with the usage of owners, if any.
    pub limits: Option<Limits>,
    /// The files that count as duplicates of each other.
    pub duplicates: DuplicateRule,
    /// The time at which it is made.
    pub now_ns: i64,
    /// How many threads read.
    pub threads: usize,
}

/// Reports on directories: those that are named, else the working directory, else (if no source
/// covers it) all sources. Gives the paths that could not be answered too; other errors end it.
/// Blocks.
pub fn report(
    index: &Index,
    paths: &[OsString],
    options: &ReportOptions,
) -> Result<(Report, Vec<Error>)> {
    let (starts, failed) = starts(index, paths)?;
    let answers = facts::answer(&starts, options)?;
    let owner = |id: u32| Owner { id, name: user_name(id) };
    let covered = starts.iter().map(|start| Covered {
        path: absolute_path(&start.source, start.path.as_path()),
        scanned_ns: start.source.scanned_ns,
        updated_ns: start.source.updated_ns,
    });
    let paths: Vec<Covered> = covered.collect();
    let (generation, published_ns) = index.published_of(starts.iter().map(|start| start.source.id));
    let report = Report {
        generation,
        published_ns,
        asked_by: owner(rustix::process::geteuid().as_raw()),
        owner: options.owner.map(owner),
        top: options.top,
        reported_ns: options.now_ns,
        problems: problems(index, &paths)?,
        paths,
        answers,
    };
    Ok((report, failed))
}

/// Finds what is wrong with sources that hold some of these directories, or lie in them. Where there
/// is no directory, since nothing could be indexed, all counts.
fn problems(index: &Index, covered: &[Covered]) -> Result<Vec<Problem>> {
    let rootless = |path: &str| path.trim_start_matches('/').to_owned();
    let related = |root: &str| {
        let root = rootless(root);
        let related = |path: String| is_below(&root, &path) || is_below(&path, &root);
        covered.is_empty() || covered.iter().any(|covered| related(rootless(&covered.path)))
    };
    let failures = index.failures()?.into_iter().filter(|failure| related(&failure.root));
    let problem = |Failure { root, since_ns, last_ns, reason, published }| Problem {
        root,
        since_ns,
        last_ns,
        reason,
        published,
    };
    Ok(failures.map(problem).collect())
}

/// Finds the directories to report on, none below another one.
fn starts(index: &Index, paths: &[OsString]) -> Result<(Vec<Start>, Vec<Error>)> {
    let mut failed = Vec::new();
    let mut starts: Vec<Start> = Vec::new();
    let here = [OsString::from(".")];
    for path in if paths.is_empty() { &here } else { paths } {
        match locate(index, path) {
            Ok(start) if start.is_dir() => starts.push(start),
            Ok(start) => {
                failed
                    .push(Error::NotDirectory(String::from_utf8_lossy(&start.given).into_owned()));
            }
            Err(canopy_read::Error::NotCovered { .. }) if paths.is_empty() => {
                let view = Arc::new(index.clone().flattened());
                starts.extend(view.sources().iter().map(|source| Start::of_source(&view, source)));
            }
            Err(error) if error.is_of_path() => failed.push(error.into()),
            Err(error) => return Err(error.into()),
        }
    }
    let all = starts.clone();
    let mut at = 0..;
    starts.retain(|start| {
        let own = at.next();
        // The first of equal directories stays.
        let covers = |(other, above): (usize, &Start)| {
            above.source.id == start.source.id
                && start.path.as_path().is_below(above.path.as_path())
                && (above.path != start.path || Some(other) < own)
        };
        !all.iter().enumerate().any(covers)
    });
    Ok((starts, failed))
}
