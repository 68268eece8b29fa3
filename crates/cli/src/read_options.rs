//! Options of commands that read indexes.

use crate::invocation::Invocation;
use crate::outcome::message;
use crate::staleness;
use canopy_index::{Index, Moment};
use canopy_ingest::now_ns;
use canopy_site::{Opened, age_ns};
use canopy_text::clock::age;
use clap::Args;
use std::ffi::OsString;

/// Options of all commands that read an index.
#[derive(Args)]
pub struct ReadOptions {
    /// Query the index as it was at a time, such as 2026-06-01, '3 days ago' or 7d, or the
    /// generation with a number. Only the owner of the index can; 'canopy info' lists the
    /// generations that are kept
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
    ///
    /// # Errors
    ///
    /// If no index can be opened.
    pub fn open(&self, invocation: &Invocation) -> anyhow::Result<Index> {
        self.open_each(invocation).map(Opened::joined)
    }

    /// Opens the indexes as one for answers about these paths, or about all sources if there are
    /// none. On a terminal, a footer warns if it is old.
    ///
    /// # Errors
    ///
    /// If no index can be opened.
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
    ///
    /// # Errors
    ///
    /// If no index can be opened.
    pub fn open_each(&self, invocation: &Invocation) -> anyhow::Result<Opened> {
        let opened = invocation.open_indexes(self.at)?;
        if self.verbose {
            opened.iter().for_each(report_age);
        }
        Ok(opened)
    }
}

/// Parses the number of a generation, an age such as 7d, or a time as date(1) takes it. Eight
/// digits that form a date of this century are a date: no index has that many generations.
///
/// # Errors
///
/// If the text is neither a generation nor a time.
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
