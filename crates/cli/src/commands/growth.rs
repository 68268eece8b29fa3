//! `canopy top growth`: largest growth between two generations.

use super::diff::path_of;
use super::past::warn_of_past;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, message};
use crate::read_options::{ReadOptions, moment};
use crate::terminal::stdout_for_json;
use canopy_index::{Index, Moment};
use canopy_model::Generation;
use canopy_site::Opened;
use canopy_text::safe::{one_line, report_name};
use canopy_text::{group_name, human_size, user_name};
use canopy_tools::diff::{Difference, Entry, differences, relative};
use canopy_tools::json::exact_lines;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::Write;

/// Grouping of growth.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum By {
    /// Each file
    File,
    /// Directories, with the files that are in each itself
    Directory,
    /// The entries of each user
    User,
    /// The entries of each group
    Group,
}

/// Arguments of the question.
pub struct Growth<'a> {
    pub read: &'a ReadOptions,
    /// Without one, a week ago, or since the oldest generation that is there.
    pub since: Option<Moment>,
    pub by: By,
    pub count: usize,
    pub json: bool,
    pub paths: &'a [OsString],
}

/// The output of `--json`.
#[derive(Serialize)]
struct Json {
    generations: [Generation; 2],
    growth: Vec<BTreeMap<&'static str, Value>>,
}

/// A value of a row of `--json`.
#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Key(String),
    Bytes(i128),
}

/// Prints the largest growth first.
///
/// # Errors
///
/// If the index cannot be read, or output cannot be written.
pub fn run(invocation: &Invocation, asked: &Growth<'_>) -> anyhow::Result<Outcome> {
    let opened = asked.read.open_each(invocation)?;
    let mut outcome = Outcome::Complete;
    for path in asked.paths {
        if warn_of_past(&opened, path) != Outcome::Complete {
            outcome = Outcome::Partial;
        }
    }
    let new = opened.written();
    let old = match asked.since {
        Some(since) => invocation.open_indexes(Some(since))?.joined(),
        None => a_week_ago(invocation, &new)?,
    };
    let mut paths: Vec<Option<String>> = Vec::new();
    for path in asked.paths {
        paths.push(Some(path_of([&new, &old], path)?));
    }
    let paths = outermost(paths);
    anyhow::ensure!(
        old.generation() <= new.generation(),
        "--since is generation {}, which came after {}",
        old.generation(),
        new.generation()
    );
    let mut grown: HashMap<String, i128> = HashMap::new();
    for path in &paths {
        for difference in differences(&old, &new, path.as_deref())? {
            add(&mut grown, &difference, asked.by);
        }
    }
    let mut grown: Vec<(String, i128)> =
        grown.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    grown.sort_by(|(a, more), (b, less)| (Reverse(more), a).cmp(&(Reverse(less), b)));
    grown.truncate(asked.count);
    let name = match asked.by {
        By::File | By::Directory => "path",
        By::User => "user",
        By::Group => "group",
    };
    if asked.json {
        let row = |(key, bytes): &(String, i128)| {
            BTreeMap::from([(name, Value::Key(key.clone())), ("grown_bytes", Value::Bytes(*bytes))])
        };
        let growth = grown.iter().map(row).collect();
        let json = Json { generations: [old.generation(), new.generation()], growth };
        let mut output = stdout_for_json();
        let document = serde_json::to_string_pretty(&json).map_err(std::io::Error::from)?;
        writeln!(output, "{}", exact_lines(&document))?;
        output.flush()?;
        return Ok(outcome);
    }
    if grown.is_empty() {
        message(format_args!("nothing has grown since generation {}", old.generation()));
    }
    let mut output = stdout_for_json();
    for (key, bytes) in &grown {
        let key = match asked.by {
            By::File | By::Directory => report_name(key),
            By::User | By::Group => one_line(key),
        };
        writeln!(output, "{:>7}  {key}", human_size(*bytes))?;
    }
    output.flush()?;
    Ok(outcome)
}

/// Returns paths without those below another one of them, which count once. Without any, returns
/// `None`, which stands for everything.
fn outermost(mut paths: Vec<Option<String>>) -> Vec<Option<String>> {
    let given = paths.clone();
    let is_below = |path: &str, other: &str| path != other && relative(path, other).is_some();
    paths.retain(|path| {
        let path = path.as_deref().unwrap_or_default();
        !given.iter().flatten().any(|other| is_below(path, other))
    });
    paths.sort_unstable();
    paths.dedup();
    if paths.is_empty() {
        paths.push(None);
    }
    paths
}

/// Opens the generation that was current a week ago, or the oldest one before `new`.
fn a_week_ago(invocation: &Invocation, new: &Index) -> anyhow::Result<Index> {
    let week = moment("7d").expect("an age");
    invocation.open_indexes(Some(week)).map(Opened::joined).or_else(|error| {
        match error.downcast_ref() {
            Some(&canopy_index::Error::BeforeOldest(oldest)) if oldest < new.generation() => {
                Ok(invocation.open_indexes(Some(Moment::Generation(oldest)))?.joined())
            }
            _ => Err(error),
        }
    })
}

/// Adds the sizes of a difference.
fn add(grown: &mut HashMap<String, i128>, difference: &Difference, by: By) {
    let key = |path: &str, entry: &Entry| match by {
        By::File => difference.path.clone(),
        By::Directory => match path.rsplit_once('/') {
            Some(("", _)) | None => "/".to_owned(),
            Some((directory, _)) => directory.to_owned(),
        },
        By::User => user_name(entry.uid).unwrap_or_else(|| entry.uid.to_string()),
        By::Group => group_name(entry.gid).unwrap_or_else(|| entry.gid.to_string()),
    };
    let old_path = difference.old_path.as_ref().unwrap_or(&difference.path);
    let counts = |entry: &&Entry| entry.counted_bytes != 0;
    if let Some(old) = difference.old.as_ref().filter(counts) {
        *grown.entry(key(old_path, old)).or_default() -= i128::from(old.counted_bytes);
    }
    if let Some(new) = difference.new.as_ref().filter(counts) {
        *grown.entry(key(&difference.path, new)).or_default() += i128::from(new.counted_bytes);
    }
}
