//! `canopy diff`

use super::past::warn_of_past;
use crate::invocation::Invocation;
use crate::outcome::Outcome;
use crate::read_options::moment;
use crate::terminal::stdout_for_json;
use canopy_index::{Index, Moment};
use canopy_model::AbsolutePath;
use canopy_read::locate::{absolute_path, source_of};
use canopy_read::resolve::locate;
use canopy_text::human_size;
use canopy_text::safe::report_name;
use canopy_tools::diff::{ChangeKind, Difference, differences};
use canopy_tools::json::{exact, exact_lines};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;

/// Print the differences between two generations of the index: created, deleted, changed, moved
///
/// FROM and TO are numbers of generations, ages such as 7d, or times, as for --at of other
/// commands; 'now' is the current one. Moved entries are recognized by inode and time of birth;
/// entries that moved along with their directory are not printed again. A directory counts as
/// changed by its owner, group, mode, ACLs and extended attributes alone. Sizes are the bytes by
/// which files have grown. Only the owner of the index can read its past.
///
/// Example: canopy diff 1d now /proj
#[derive(clap::Args)]
pub struct Arguments {
    /// Print an object a line
    #[arg(long)]
    json: bool,
    /// Print how many there are, and by how many bytes they have grown, alone
    #[arg(long)]
    count: bool,
    /// The older generation
    #[arg(value_parser = moment)]
    from: Moment,
    /// The newer one
    #[arg(value_parser = moment)]
    to: Moment,
    /// Only entries at and below this path
    path: Option<OsString>,
}

const CHANGES: [ChangeKind; 4] =
    [ChangeKind::Created, ChangeKind::Deleted, ChangeKind::Changed, ChangeKind::Moved];

/// Carries the command out.
///
/// # Errors
///
/// If the index does not have both states, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let old = invocation.open_indexes(Some(arguments.from))?.joined();
    let new = invocation.open_indexes(Some(arguments.to))?.joined();
    let path = arguments.path.as_ref().map(|path| path_of([&new, &old], path)).transpose()?;
    let outcome = match &arguments.path {
        Some(path) => warn_of_past(&invocation.open_indexes(None)?, path),
        None => Outcome::Complete,
    };
    let found = differences(&old, &new, path.as_deref())?;
    let mut output = stdout_for_json();
    if arguments.count {
        count(&found, arguments.json, &mut output)?;
    } else {
        for difference in &found {
            match arguments.json {
                true => writeln!(output, "{}", exact(as_json(difference)))?,
                false => line(difference, &mut output)?,
            }
        }
    }
    output.flush()?;
    Ok(outcome)
}

/// Returns the absolute path, escaped, of a path that a user gave, as one of the generations
/// contains it.
pub(super) fn path_of(generations: [&Index; 2], given: &OsStr) -> anyhow::Result<String> {
    let mut first = None;
    for index in generations {
        match locate(index, given) {
            Ok(start) => return Ok(absolute_path(&start.source, start.path.as_path())),
            Err(error) => first = first.or(Some(error)),
        }
    }
    // A directory above sources.
    let path = std::path::absolute(given)?;
    let path = canopy_model::escape(path.as_os_str().as_encoded_bytes()).into_owned();
    let is_above = |index: &&Index| {
        let mut roots = index.sources().iter().map(|source| &source.root);
        source_of(index, AbsolutePath::new(&path)).is_none()
            && roots.any(|root| canopy_tools::diff::relative(root, &path).is_some())
    };
    match (generations.iter().any(is_above), first) {
        (false, Some(error)) => Err(error.into()),
        _ => Ok(path),
    }
}

fn word(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Created => "created",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Changed => "changed",
        ChangeKind::Moved => "moved",
    }
}

/// Returns a number of bytes with its sign, for people.
fn signed(bytes: i128) -> String {
    match bytes {
        0 => "0".to_owned(),
        ..0 => format!("-{}", human_size(bytes.saturating_neg())),
        _ => format!("+{}", human_size(bytes)),
    }
}

fn line(difference: &Difference, output: &mut dyn Write) -> std::io::Result<()> {
    let (word, grown) = (word(difference.change), signed(difference.grown_bytes().into()));
    write!(output, "{word:<7} {grown:>7}  ")?;
    if let Some(old) = &difference.old_path {
        write!(output, "{} -> ", report_name(old))?;
    }
    writeln!(output, "{}", report_name(&difference.path))
}

fn as_json(difference: &Difference) -> serde_json::Value {
    let entry = |entry: &canopy_tools::diff::Entry| {
        json!({
            "mode": entry.mode,
            "uid": entry.uid,
            "gid": entry.gid,
            "size": entry.size_bytes,
            "blocks": entry.blocks,
            "mtime_ns": entry.mtime_ns,
        })
    };
    json!({
        "change": word(difference.change),
        "path": difference.path,
        "old_path": difference.old_path,
        "grown_bytes": difference.grown_bytes(),
        "xattrs_changed": difference.has_other_xattrs(),
        "old": difference.old.as_ref().map(entry),
        "new": difference.new.as_ref().map(entry),
    })
}

/// A kind of change, as `--count --json` prints it.
#[derive(Serialize)]
struct Counted {
    entries: usize,
    grown_bytes: i128,
}

fn count(found: &[Difference], as_json: bool, output: &mut dyn Write) -> std::io::Result<()> {
    let counts = CHANGES.map(|change| {
        let of_it = found.iter().filter(|difference| difference.change == change);
        let bytes: i128 = of_it.clone().map(|one| i128::from(one.grown_bytes())).sum();
        (change, of_it.count(), bytes)
    });
    if as_json {
        let counts = counts
            .map(|(change, entries, grown_bytes)| (word(change), Counted { entries, grown_bytes }));
        let document = serde_json::to_string_pretty(&BTreeMap::from(counts))?;
        return writeln!(output, "{}", exact_lines(&document));
    }
    writeln!(output, "{:<7} {:>7}  {:>9}", "change", "grown", "entries")?;
    for (change, entries, bytes) in counts {
        writeln!(output, "{:<7} {:>7}  {entries:>9}", word(change), signed(bytes))?;
    }
    Ok(())
}
