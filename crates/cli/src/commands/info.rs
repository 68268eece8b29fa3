//! `canopy info`

mod document;
mod lines;
mod metrics;

use crate::invocation::Invocation;
use crate::outcome::{Outcome, answered, message};
use crate::read_options::ReadOptions;
use crate::staleness::{listed, old_sources};
use crate::terminal::stdout_for_json;
use anyhow::Context;
use canopy_index::Index;
use canopy_read::to_path;
use canopy_site::max_age;
use canopy_text::clock::age;
use canopy_text::counted;
use canopy_text::safe::one_line;
use canopy_tools::json::exact;
use document::document;
use lines::print;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;

/// Print the contents of the index, and the part that you can see
///
/// Entries are as many as find(1) prints: directories, including the root of each source, and files,
/// which are all entries that are not directories. --verbose adds the access classes and shards that
/// the index is divided into.
///
/// Example: canopy info --max-age 26h
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only whether every source is newer than AGE, such as 26h or 7d, with exit code 1 if
    /// one is older. The age is the time since a scan, an update, or a check that found no change.
    /// For sources that 'canopy watch' follows, it is the time that the index is behind
    #[arg(long, value_name = "AGE", value_parser = max_age, conflicts_with = "json")]
    max_age: Option<i64>,
    /// Write numbers for node_exporter's textfile collector to FILE, and print nothing
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    prometheus: Option<PathBuf>,
}

/// Carries the command out.
///
/// # Errors
///
/// If no index can be read, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let opened = arguments.read.open_each(invocation)?;
    if let Some(file) = &arguments.prometheus {
        metrics::write(opened.iter().last().context("there is no index")?, file)?;
    }
    if let Some(age_ns) = arguments.max_age {
        return say_age(opened.iter(), age_ns);
    }
    if arguments.json {
        let mut all = opened.iter().map(document).collect::<anyhow::Result<Vec<Value>>>()?;
        let mut info = all.remove(0);
        // Users may have an index of their own.
        if let Some(own) = all.pop() {
            info["own"] = own;
        }
        let mut output = stdout_for_json();
        writeln!(output, "{:#}", exact(info))?;
        output.flush()?;
        return Ok(Outcome::Complete);
    }
    if arguments.prometheus.is_some() {
        return Ok(Outcome::Complete);
    }
    let mut output = std::io::stdout().lock();
    for (number, index) in opened.iter().enumerate() {
        if number > 0 {
            writeln!(output)?;
        }
        print(index, arguments.read.verbose, &mut output)?;
    }
    Ok(Outcome::Complete)
}

/// Says whether all sources are younger than that.
fn say_age<'a>(indexes: impl Iterator<Item = &'a Index>, age_ns: i64) -> anyhow::Result<Outcome> {
    let (mut old, mut never, mut sources) = (Vec::new(), Vec::new(), 0);
    for index in indexes {
        sources += index.sources().len();
        old.extend(old_sources(index, age_ns, false));
        let is_source = |root: &str| index.sources().iter().any(|source| source.root == root);
        let failed = index.failures()?.into_iter().map(|failure| failure.root);
        never.extend(failed.filter(|root| !is_source(root)));
    }
    for root in &never {
        let root = one_line(&to_path(root).display().to_string());
        message(format_args!("{root} was never indexed"));
    }
    let limit = age(age_ns);
    match (sources, old.len()) {
        (0, _) => {
            message("the index has no sources");
            Ok(Outcome::Partial)
        }
        (_, 0) if !never.is_empty() => Ok(Outcome::Partial),
        (_, 0) => {
            let all = counted(sources, "source");
            answered(writeln!(std::io::stdout(), "{all} indexed within {limit}"))?;
            Ok(Outcome::Complete)
        }
        _ => {
            message(format_args!("older than {limit}: {}", listed(&old)));
            Ok(Outcome::Partial)
        }
    }
}
