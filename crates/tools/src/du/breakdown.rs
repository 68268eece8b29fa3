//! `du --by`: sums of the parts of a subtree, from the statistics that the index keeps.
//!
//! They are of entries that are not directories, and every name of a hard link counts. Extensions
//! and ages are kept with sizes alone, so those are shown whatever measure is asked for, unless it
//! is counts.

use super::lines::{Line, Lines};
use super::{DuOptions, Measure};
use crate::error::Result;
use canopy_index::column::*;
use canopy_model::{Attributes, Count, FileType, NUMBERED, Ownership, Parts, Summary, month};
use canopy_read::ages::{AGES, add_ages};
use canopy_read::locate::Start;
use canopy_read::summaries::{ByOwner, StatisticsRequest, of_subtree};
use canopy_read::totals::VisibleTree;
use canopy_text::{group_or_number, user_or_number};
use std::collections::BTreeMap;

/// Grouping of the entries of a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Owner.
    User,
    /// Owning group.
    Group,
    /// Part of the name behind the last dot.
    Extension,
    /// Calendar months between the last change of the contents and the scan.
    Age,
}

/// Puts the lines of one start.
pub(super) fn print(start: &Start, options: &DuOptions, lines: &mut Lines<'_>) -> Result<()> {
    let by = options.by.unwrap_or(By::User);
    let wanted = wanted(by);
    let summaries = match start.is_dir() {
        true => of_subtree(&VisibleTree::of(start, options.threads), &wanted)?,
        false => of_entry(start, wanted.parts),
    };
    let mut sums: BTreeMap<String, i128> = BTreeMap::new();
    let mut ages = vec![Count::default(); AGES.len()];
    let is_of = |uid: u32| options.owner.is_none_or(|owner| owner == uid);
    let owned = summaries.into_iter().filter(|(owner, _)| is_of(owner.uid));
    for (Ownership { uid, gid }, summary) in owned {
        match by {
            By::User => add(&mut sums, user_or_number(uid), of_summary(options.measure, &summary)),
            By::Group => {
                add(&mut sums, group_or_number(gid), of_summary(options.measure, &summary))
            }
            By::Extension => {
                for (extension, count) in &summary.extensions {
                    add(&mut sums, extension_name(extension), of_count(options.measure, *count));
                }
            }
            By::Age => add_ages(&mut ages, &summary.mtimes, month(start.source.updated_ns)),
        }
    }
    let ages = AGES.iter().zip(ages).filter(|(_, count)| count.entries > 0);
    let ages =
        ages.map(|((label, ..), count)| ((*label).to_owned(), of_count(options.measure, count)));
    for (key, size) in sums.into_iter().chain(ages) {
        lines.put(Line { size, time_ns: None, key: Some(key), path: start.given.clone() })?;
    }
    Ok(())
}

/// Returns what has to be known of entries.
fn wanted(by: By) -> StatisticsRequest {
    let columns = MODE | UID | GID | SIZE | BLOCKS;
    let columns = match by {
        By::User | By::Group => columns,
        By::Extension => columns | NAME,
        By::Age => columns | MTIME | ATIME,
    };
    let parts = Parts { owners: false, histograms: by == By::Age, extensions: by == By::Extension };
    StatisticsRequest { parts, columns }
}

fn of_entry(start: &Start, parts: Parts) -> ByOwner {
    let attributes: &Attributes = &start.inode.attributes;
    debug_assert!(attributes.file_type() != FileType::Directory);
    let mut summary = Summary::default();
    summary.add(attributes, start.path.as_path().base_name(), false, parts);
    ByOwner::from_iter([(attributes.ownership(), summary)])
}

fn of_summary(measure: Measure, summary: &Summary) -> i128 {
    match measure {
        Measure::Disk => summary.disk_bytes(),
        Measure::Apparent => summary.bytes,
        Measure::Inodes => summary.entries().into(),
    }
}

fn of_count(measure: Measure, count: Count) -> i128 {
    if measure == Measure::Inodes { count.entries.into() } else { count.bytes }
}

fn add(sums: &mut BTreeMap<String, i128>, key: String, size: i128) {
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(size);
}

fn extension_name(extension: &str) -> String {
    match extension {
        "" => "(none)".to_owned(),
        NUMBERED => "(digits)".to_owned(),
        extension => format!(".{extension}"),
    }
}
