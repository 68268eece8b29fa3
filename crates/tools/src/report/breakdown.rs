//! What adds up: usage by owner and kind, and histograms, from the statistics that the index keeps.

use super::document::{
    AgeClass, Ages, Breakdown, ExtensionUsage, Owner, OwnerUsage, Owners, SizeClass, TypeCount,
    Usage,
};
use super::parts::Part;
use super::sections::{Section, Sections};
use crate::error::Result;
use canopy_index::Columns;
use canopy_index::FileKind;
use canopy_index::column::{INODE, NAME, XATTRS};
use canopy_model::{Count, Histogram, Parts, Summary, month, size_class_min};
use canopy_read::locate::Start;
use canopy_read::summaries::{self, ByOwner, Wanted};
use canopy_read::totals::Subtree;
use canopy_read::work::by_workers;
use canopy_text::{group_name, user_name};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::sync::Mutex;

/// Spans of months by which ages are shown.
pub(crate) const AGES: [(&str, i32, Option<i32>); 11] = [
    ("in the future", -1, Some(-1)),
    ("this month", 0, Some(0)),
    ("1 month", 1, Some(1)),
    ("2 months", 2, Some(2)),
    ("3-5 months", 3, Some(5)),
    ("6-11 months", 6, Some(11)),
    ("1 year", 12, Some(23)),
    ("2 years", 24, Some(35)),
    ("3-4 years", 36, Some(59)),
    ("5-9 years", 60, Some(119)),
    ("10 years and more", 120, None),
];

/// The words for types, in the order of [`Summary::TYPES`].
const TYPES: [&str; 7] =
    ["file", "symlink", "fifo", "socket", "block device", "character device", "unknown"];

/// Sums over all starts.
#[derive(Default)]
pub(super) struct Sums {
    /// Without owners and groups.
    pub(super) whole: Summary,
    users: FxHashMap<u32, Usage>,
    groups: FxHashMap<u32, Usage>,
    modified: Vec<Count>,
    accessed: Vec<Count>,
}

/// Adds the statistics of all starts up: those that the index keeps, or of an owner those of the
/// rows of `parts`.
pub(super) fn sums(
    starts: &[Start],
    parts: &[Part<'_>],
    sections: Sections,
    owner: Option<u32>,
    threads: usize,
) -> Result<Sums> {
    let extensions = sections.has(Section::Extensions);
    let mut wanted = Wanted::all();
    wanted.parts = Parts { owners: false, histograms: true, extensions };
    wanted.columns = INODE | XATTRS | Columns::from(NAME).when(extensions);
    let none = vec![Count::default(); AGES.len()];
    let mut sums = Sums { modified: none.clone(), accessed: none, ..Sums::default() };
    for start in starts {
        let scanned = month(start.source.scanned_ns);
        let by_owner = match owner {
            None => summaries::of_subtree(&Subtree::of(start, threads), &wanted)?,
            Some(owner) => {
                let parts: Vec<&Part<'_>> =
                    parts.iter().filter(|part| std::ptr::eq(part.start, start)).collect();
                of_owner(&parts, &wanted, owner, threads)?
            }
        };
        for ((uid, gid), summary) in by_owner {
            let usage = Usage {
                entries: summary.entries(),
                bytes: summary.bytes,
                disk_bytes: summary.blocks.wrapping_mul(512),
            };
            sums.users.entry(uid).or_default().add(&usage);
            sums.groups.entry(gid).or_default().add(&usage);
            add_ages(&mut sums.modified, &summary.mtimes, scanned);
            add_ages(&mut sums.accessed, &summary.atimes, scanned);
            sums.whole.merge(&summary);
        }
    }
    Ok(sums)
}

/// The statistics of an owner's entries, from their rows: those that the index keeps would have to
/// be read for all owners.
fn of_owner(parts: &[&Part<'_>], wanted: &Wanted, owner: u32, threads: usize) -> Result<ByOwner> {
    let entries: Vec<&&Part<'_>> =
        parts.iter().filter(|part| part.kind == FileKind::Entries).collect();
    let all = Mutex::new(ByOwner::default());
    let work = |found: &mut ByOwner, part: &&&Part<'_>| {
        summaries::of_rows(part.shard, &part.rows, wanted, owner, found)?;
        part.close();
        Ok(())
    };
    let finish = |found: ByOwner| -> Result<()> {
        summaries::merge_into(
            &mut all.lock().expect("no thread panics while it holds the lock"),
            found,
        );
        Ok(())
    };
    let workers = threads.clamp(1, entries.len().max(1));
    by_workers(workers, &entries, |_| Ok(ByOwner::default()), work, finish)?;
    Ok(all.into_inner().expect("no thread panics while it holds the lock"))
}

/// Adds months to the [`AGES`] that they were before the month of a scan.
pub(crate) fn add_ages(classes: &mut [Count], months: &Histogram, scanned: i32) {
    for (month, count) in months.iter() {
        let age = (scanned - month).max(-1);
        let at = AGES.iter().rposition(|(_, from, _)| *from <= age).unwrap_or(0);
        classes[at] += count;
    }
}

impl Usage {
    fn add(&mut self, other: &Usage) {
        self.entries += other.entries;
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.disk_bytes = self.disk_bytes.wrapping_add(other.disk_bytes);
    }
}

impl Sums {
    /// By user, those who take most space first.
    pub(super) fn users(&self, top: usize) -> Breakdown<OwnerUsage> {
        by_owner(&self.users, user_name, top)
    }

    /// By group, as [`Sums::users`].
    pub(super) fn groups(&self, top: usize) -> Breakdown<OwnerUsage> {
        by_owner(&self.groups, group_name, top)
    }

    /// What belongs to ids without names.
    pub(super) fn owners(&self) -> Owners {
        let nameless = |owners: &FxHashMap<u32, Usage>, name: fn(u32) -> Option<String>| {
            let mut sum = Usage::default();
            owners
                .iter()
                .filter(|(id, _)| name(**id).is_none())
                .for_each(|(_, usage)| sum.add(usage));
            sum
        };
        Owners {
            without_user: nameless(&self.users, user_name),
            without_group: nameless(&self.groups, group_name),
        }
    }

    /// By type, with so many directories.
    pub(super) fn types(&self, directories: i64) -> Vec<TypeCount> {
        let others = TYPES.into_iter().zip(self.whole.types);
        [("directory", directories)]
            .into_iter()
            .chain(others)
            .filter(|(_, entries)| *entries > 0)
            .map(|(name, entries)| TypeCount { name, entries })
            .collect()
    }

    /// By extension, those with most bytes first.
    pub(super) fn extensions(&self, top: usize) -> Breakdown<ExtensionUsage> {
        let mut all: Vec<_> = self.whole.extensions.iter().collect();
        let rank = |row: &(&Box<str>, &Count)| (Reverse(row.1.bytes), Reverse(row.1.entries));
        all.sort_unstable_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.0.cmp(b.0)));
        let rest = all.split_off(top.min(all.len()));
        let mut sum = Usage::default();
        for (_, count) in &rest {
            sum.add(&Usage { entries: count.entries, bytes: count.bytes, disk_bytes: 0 });
        }
        let row = |(extension, count): (&Box<str>, &Count)| ExtensionUsage {
            extension: extension.to_string(),
            count: *count,
        };
        Breakdown { rows: all.into_iter().map(row).collect(), others: rest.len(), rest: sum }
    }

    /// Ages by mtime and by atime, from the youngest class that occurs to the oldest.
    pub(super) fn ages(&self) -> Ages {
        let classes = |counts: &[Count]| {
            let occurs = |count: &Count| count.entries > 0;
            let first = counts.iter().position(occurs).unwrap_or(0);
            let end = counts.iter().rposition(occurs).map_or(0, |last| last + 1);
            let classes = AGES.iter().zip(counts).take(end).skip(first);
            let class =
                |(&(label, from_months, to_months), &count): (&(&'static str, i32, _), &Count)| {
                    AgeClass { label, from_months, to_months, count }
                };
            classes.map(class).collect()
        };
        Ages { modified: classes(&self.modified), accessed: classes(&self.accessed) }
    }

    /// Classes of sizes, from the smallest that occurs to the largest, empty ones between them too.
    pub(super) fn size_classes(&self) -> Vec<SizeClass> {
        let classes: Vec<(i32, Count)> = self.whole.sizes.iter().collect();
        let (Some(first), Some(last)) = (classes.first(), classes.last()) else {
            return Vec::new();
        };
        let count = |class: i32| {
            let at = classes.binary_search_by_key(&class, |(class, _)| *class);
            at.map_or_else(|_| Count::default(), |at| classes[at].1)
        };
        let class = |class: i32| SizeClass {
            from_bytes: size_class_min(class),
            to_bytes: size_class_min(class + 1),
            count: count(class),
        };
        (first.0..=last.0).map(class).collect()
    }

    /// The classes of sizes that hold the two entries in the middle, and how many entries are in
    /// smaller classes.
    pub(super) fn median_classes(&self) -> Option<(RangeInclusive<i32>, i64)> {
        let entries = self.whole.entries();
        if entries == 0 {
            return None;
        }
        let (mut before, mut first, mut smaller) = (0, None, 0);
        for (class, count) in self.whole.sizes.iter() {
            let end = before + count.entries;
            if first.is_none() && (entries - 1) / 2 < end {
                (first, smaller) = (Some(class), before);
            }
            if let Some(first) = first.filter(|_| entries / 2 < end) {
                return Some((first..=class, smaller));
            }
            before = end;
        }
        None
    }
}

fn by_owner(
    owners: &FxHashMap<u32, Usage>,
    name: fn(u32) -> Option<String>,
    top: usize,
) -> Breakdown<OwnerUsage> {
    let mut all: Vec<(u32, Usage)> = owners.iter().map(|(id, usage)| (*id, *usage)).collect();
    all.sort_unstable_by_key(|(id, usage)| {
        (Reverse(usage.disk_bytes), Reverse(usage.entries), *id)
    });
    let rest = all.split_off(top.min(all.len()));
    let mut sum = Usage::default();
    rest.iter().for_each(|(_, usage)| sum.add(usage));
    let row = |(id, usage)| OwnerUsage { owner: Owner { id, name: name(id) }, usage };
    Breakdown { rows: all.into_iter().map(row).collect(), others: rest.len(), rest: sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_month_has_an_age() {
        for (age, label) in [
            (-7, 0),
            (0, 1),
            (2, 3),
            (3, 4),
            (5, 4),
            (11, 5),
            (12, 6),
            (59, 8),
            (119, 9),
            (900, 10),
        ] {
            let mut months = Histogram::default();
            months.add(500 - age, Count { entries: 1, bytes: 2 });
            let mut classes = vec![Count::default(); AGES.len()];
            add_ages(&mut classes, &months, 500);
            assert_eq!(classes[label].entries, 1, "{age}");
        }
    }

    #[test]
    fn spans_of_ages_follow_each_other() {
        for pair in AGES.windows(2) {
            assert_eq!(pair[0].2.map(|to| to + 1), Some(pair[1].1));
        }
    }
}
