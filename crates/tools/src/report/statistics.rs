//! Sums: usage by owner and kind, and histograms, from the statistics that the index keeps.

use super::ReportOptions;
use super::parts::CoveredFile;
use super::sections::Section;
use crate::error::Result;
use canopy_index::column::{INODE, NAME, XATTRS};
use canopy_index::{Columns, FileKind};
use canopy_model::{Count, Ownership, Parts, Summary, month};
use canopy_read::ages::{AGES, add_ages};
use canopy_read::locate::Start;
use canopy_read::summaries::{self, ByOwner, StatisticsRequest};
use canopy_read::totals::VisibleTree;
use canopy_read::work::merged;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// Sums over all starts.
#[derive(Default)]
pub(super) struct Statistics {
    /// Without owners and groups.
    pub(super) whole: Summary,
    pub(super) users: FxHashMap<u32, Usage>,
    pub(super) groups: FxHashMap<u32, Usage>,
    pub(super) ages: ByAge,
    /// Usage by age of each user, where asked for.
    pub(super) user_ages: Option<FxHashMap<u32, ByAge>>,
    /// Usage of each user in each group, where asked for.
    pub(super) by_both: Option<ByBoth>,
}

/// Usage by user and group.
pub(super) type ByBoth = FxHashMap<Ownership, Usage>;

/// Usage by [`AGES`].
pub(super) struct ByAge {
    pub(super) modified: Vec<Count>,
    pub(super) accessed: Vec<Count>,
}

impl Default for ByAge {
    fn default() -> Self {
        let none = vec![Count::default(); AGES.len()];
        ByAge { modified: none.clone(), accessed: none }
    }
}

impl ByAge {
    fn add_summary(&mut self, summary: &Summary, scanned_month: i32) {
        add_ages(&mut self.modified, &summary.mtimes, scanned_month);
        add_ages(&mut self.accessed, &summary.atimes, scanned_month);
    }

    /// Adds those of another user.
    pub(super) fn add(&mut self, other: &ByAge) {
        for (sums, more) in
            [(&mut self.modified, &other.modified), (&mut self.accessed, &other.accessed)]
        {
            sums.iter_mut().zip(more).for_each(|(sum, count)| *sum += *count);
        }
    }
}

/// Usage of some entries that are not directories; hard links count as often as they occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    pub(super) entries: i64,
    pub(super) bytes: i128,
    pub(super) disk_bytes: i128,
}

impl Usage {
    /// Adds another usage.
    pub(super) fn add(&mut self, other: &Usage) {
        self.entries += other.entries;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.disk_bytes = self.disk_bytes.saturating_add(other.disk_bytes);
    }
}

/// Adds up the statistics of all starts: those that the index keeps, or of an owner those of the
/// rows of `parts`.
pub(super) fn statistics(
    starts: &[Start],
    parts: &[CoveredFile<'_>],
    options: &ReportOptions,
) -> Result<Statistics> {
    let extensions = options.sections.has(Section::Extensions);
    let mut wanted = StatisticsRequest::all();
    wanted.parts = Parts { owners: false, histograms: true, extensions };
    wanted.columns = INODE | XATTRS | Columns::from(NAME).when(extensions);
    let has = |section| options.sections.has(section);
    let mut sums = Statistics {
        user_ages: has(Section::UserAges).then(FxHashMap::default),
        by_both: has(Section::UserGroups).then(FxHashMap::default),
        ..Statistics::default()
    };
    for start in starts {
        let by_owner = match options.owner {
            None => summaries::of_subtree(&VisibleTree::of(start, options.threads), &wanted)?,
            Some(owner) => {
                let own = |part: &&CoveredFile<'_>| {
                    std::ptr::eq(part.start, start) && part.kind == FileKind::Entries
                };
                let parts: Vec<&CoveredFile<'_>> = parts.iter().filter(own).collect();
                of_owner(&parts, &wanted, owner, options.threads)?
            }
        };
        sums.add(&by_owner, month(start.source.updated_ns));
    }
    Ok(sums)
}

impl Statistics {
    fn add(&mut self, by_owner: &ByOwner, scanned_month: i32) {
        for (owner, summary) in by_owner {
            let Ownership { uid, gid } = owner;
            let usage = Usage {
                entries: summary.entries(),
                bytes: summary.bytes,
                disk_bytes: summary.disk_bytes(),
            };
            self.users.entry(*uid).or_default().add(&usage);
            self.groups.entry(*gid).or_default().add(&usage);
            if let Some(by_both) = &mut self.by_both {
                by_both.entry(*owner).or_default().add(&usage);
            }
            if let Some(ages) = &mut self.user_ages {
                ages.entry(*uid).or_default().add_summary(summary, scanned_month);
            }
            self.ages.add_summary(summary, scanned_month);
            self.whole.merge(summary);
        }
    }
}

/// Adds up the statistics of an owner's entries, from their rows: those that the index keeps would
/// have to be read for all owners.
fn of_owner(
    parts: &[&CoveredFile<'_>],
    wanted: &StatisticsRequest,
    owner: u32,
    threads: usize,
) -> Result<ByOwner> {
    let work = |found: &mut ByOwner, part: &&CoveredFile<'_>| -> Result<()> {
        summaries::of_rows(&part.shard, &part.rows, wanted, owner, found)?;
        part.close();
        Ok(())
    };
    merged(threads, parts, ByOwner::default, work, summaries::merge_into)
}

/// Gives mean and standard deviation of so many values, from their sum and that of their squares.
pub(super) fn mean_and_deviation(count: i64, sum: i128, squares: u128) -> (f64, f64) {
    if count == 0 {
        return (0.0, 0.0);
    }
    let n = count as f64;
    let mean = sum as f64 / n;
    // In integers as far as they reach: differences of large squares lose what floating point has
    // left of them.
    let variance = match (squares.checked_mul(count as u128), sum.unsigned_abs().checked_pow(2)) {
        (Some(scaled), Some(square)) => scaled.saturating_sub(square) as f64 / (n * n),
        _ => (squares as f64 / n - mean * mean).max(0.0),
    };
    (mean, variance.sqrt())
}
