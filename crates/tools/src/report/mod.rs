//! Reports: who and what takes how much, and which entries stand out.
//!
//! 1. `breakdown` adds up stored statistics: usage by owner and kind, histograms.
//! 2. `scan` passes once over entries and directories for what no statistics tell, `directories`
//!    once over listings. Each is left out if no section asks for it, and reads the columns that
//!    sections ask for.
//! 3. `details` reads what the chosen rows are called; `duplicates`, `links` and `symlinks` finish
//!    theirs.
//! 4. `view` makes tables and bars of the answers, which `text` and `html` show. JSON is [`Report`]
//!    itself.
//!
//! The steps come one after the other so that the memory of each serves the next: see there for how
//! much it is.
//!
//! Not its job: deciding who may see what. All rows come from shards that the caller could open.

mod best;
pub(crate) mod breakdown;
mod details;
mod directories;
mod document;
mod duplicates;
mod gather;
mod html;
mod links;
mod parts;
mod scan;
mod sections;
mod symlinks;
mod text;
mod tree_sums;
mod trees;
mod view;
mod wording;

pub use document::{Answers, Report};
pub use html::write_html;
pub use sections::{Section, Sections};
pub use text::{TextOptions, write_text};

use crate::error::{Error, Result};
use canopy_index::Index;
use canopy_model::is_below;
use canopy_read::locate::{Start, absolute_path, locate};
use canopy_text::user_name;
use document::{Covered, Owner};
use std::ffi::OsString;
use std::sync::Arc;

/// What to report.
#[derive(Clone, Copy, Debug)]
pub struct ReportOptions {
    /// Sections to answer.
    pub sections: Sections,
    /// Most rows of a list.
    pub top: usize,
    /// Owner of the entries to report on, all if there is none.
    pub owner: Option<u32>,
    /// How many threads read.
    pub threads: usize,
}

/// Reports on directories: those that are named, else the working directory, else (if no source
/// covers it) all sources. Gives the paths that could not be answered too; other errors end it.
/// Blocks.
pub fn report(
    index: &Index,
    paths: &[OsString],
    options: ReportOptions,
) -> Result<(Report, Vec<Error>)> {
    let (starts, failed) = starts(index, paths)?;
    let answers = gather::gather(&starts, &options)?;
    let owner = |id: u32| Owner { id, name: user_name(id) };
    let covered = starts.iter().map(|start| Covered {
        path: absolute_path(&start.source, &start.path),
        scanned_ns: start.source.scanned_ns,
    });
    let report = Report {
        generation: index.generation(),
        published_ns: index.published_ns(),
        asked_by: owner(rustix::process::geteuid().as_raw()),
        owner: options.owner.map(owner),
        top: options.top,
        paths: covered.collect(),
        answers,
    };
    Ok((report, failed))
}

/// The id of a user that is named or numbered.
pub fn user_id(name: &str) -> Option<u32> {
    canopy_text::user_id(name)
}

/// The directories to report on, none below another one.
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
                let view = Arc::new(index.clone());
                starts.extend(index.sources().iter().map(|source| Start::of_source(&view, source)));
            }
            Err(error) if error.is_of_path() => failed.push(error.into()),
            Err(error) => return Err(error.into()),
        }
    }
    let place = |start: &Start| (start.source.id, start.path.clone());
    let places: Vec<(u32, String)> = starts.iter().map(place).collect();
    let mut at = 0;
    starts.retain(|start| {
        let (own, path) = (at, &start.path);
        at += 1;
        // Of the same directory twice, the first stays.
        let covers = |(other, (source, above)): (usize, &(u32, String))| {
            *source == start.source.id && is_below(path, above) && (above != path || other < own)
        };
        !places.iter().enumerate().any(covers)
    });
    Ok((starts, failed))
}
