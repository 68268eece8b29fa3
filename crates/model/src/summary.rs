//! Statistics of a set of entries that are not directories: counts, sums, extrema and histograms
//! that can be added up, so that those of a subtree come from those of its parts.

use crate::{Attributes, FileType};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// Entries and bytes of one class of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// How many entries.
    pub entries: i64,
    /// Their sizes in bytes.
    pub bytes: i128,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Counts by class, sorted by class, none of them empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram(Vec<(i32, Count)>);

impl Histogram {
    /// Returns the classes with anything in them, in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (i32, Count)> {
        self.0.iter().copied()
    }

    /// Adds to a class.
    pub fn add(&mut self, class: i32, count: Count) {
        match self.0.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(at) => self.0[at].1 += count,
            Err(at) => self.0.insert(at, (class, count)),
        }
    }
}

/// The smallest and the largest of some values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extrema {
    /// Smallest value; beyond `max` if there is none.
    pub min: i64,
    /// Largest value.
    pub max: i64,
}

impl Default for Extrema {
    fn default() -> Self {
        Extrema { min: i64::MAX, max: i64::MIN }
    }
}

impl Extrema {
    /// Takes in a value.
    pub fn add(&mut self, value: i64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn merge(&mut self, other: &Extrema) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// The expensive statistics that are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The sets of owners and groups.
    pub owners: bool,
    /// Histograms of size and of the months of mtime and atime.
    pub histograms: bool,
    /// Counts by extension.
    pub extensions: bool,
}

impl Parts {
    /// All of them.
    pub const ALL: Parts = Parts { owners: true, histograms: true, extensions: true };
}

/// Statistics of some entries that are not directories. A hard link counts as often as it occurs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Counts by type, in the order of [`Summary::TYPES`].
    pub types: [i64; 7],
    /// Regular files of no bytes.
    pub zero_files: i64,
    /// Entries with more than one link.
    pub linked: i64,
    /// Entries with extended attributes.
    pub with_xattrs: i64,
    /// Sum of sizes in bytes.
    pub bytes: i128,
    /// Sum of space taken, in units of 512 bytes.
    pub blocks: i128,
    /// Extrema of sizes in bytes.
    pub size: Extrema,
    /// Extrema of space taken, in units of 512 bytes.
    pub blocks_each: Extrema,
    /// Extrema of atime, mtime, ctime and btime, in nanoseconds since 1970.
    pub times: [Extrema; 4],
    /// Owners.
    pub uids: BTreeSet<u32>,
    /// Owning groups.
    pub gids: BTreeSet<u32>,
    /// By [`size_class`].
    pub sizes: Histogram,
    /// By the [`month`] of mtime.
    pub mtimes: Histogram,
    /// By the [`month`] of atime.
    pub atimes: Histogram,
    /// By [`extension`]; the empty one stands for none, [`NUMBERED`] for all of digits alone, of
    /// which a tree of numbered files has as many as it has files.
    #[serde(skip)]
    pub extensions: HashMap<Box<str>, Count>,
}

impl Summary {
    /// The types that [`Summary::types`] counts.
    pub const TYPES: [FileType; 7] = [
        FileType::Regular,
        FileType::Symlink,
        FileType::Fifo,
        FileType::Socket,
        FileType::Block,
        FileType::Character,
        FileType::Unknown,
    ];

    /// Takes in an entry. Attributes that were not read may be 0 where what comes of them is not
    /// asked for.
    pub fn add(&mut self, attributes: &Attributes, name: &str, has_xattrs: bool, parts: Parts) {
        let file_type = attributes.file_type();
        let place = Self::TYPES.iter().position(|known| *known == file_type).unwrap_or(6);
        self.types[place] += 1;
        let size_bytes = attributes.size_bytes;
        self.zero_files += i64::from(file_type == FileType::Regular && size_bytes == 0);
        self.linked += i64::from(attributes.nlink > 1);
        self.with_xattrs += i64::from(has_xattrs);
        self.bytes = self.bytes.saturating_add(size_bytes.into());
        self.blocks = self.blocks.saturating_add(attributes.blocks.into());
        self.size.add(size_bytes);
        self.blocks_each.add(attributes.blocks);
        let times =
            [attributes.atime_ns, attributes.mtime_ns, attributes.ctime_ns, attributes.btime_ns];
        self.times.iter_mut().zip(times).for_each(|(extrema, time)| extrema.add(time));
        let count = Count { entries: 1, bytes: size_bytes.into() };
        if parts.owners {
            self.uids.insert(attributes.uid);
            self.gids.insert(attributes.gid);
        }
        if parts.histograms {
            self.sizes.add(size_class(size_bytes), count);
            self.mtimes.add(month(attributes.mtime_ns), count);
            self.atimes.add(month(attributes.atime_ns), count);
        }
        if parts.extensions {
            let extension = extension(name).unwrap_or("");
            let numbered =
                !extension.is_empty() && extension.bytes().all(|byte| byte.is_ascii_digit());
            self.add_extension(if numbered { NUMBERED } else { extension }, count);
        }
    }

    /// Adds to the count of an extension.
    fn add_extension(&mut self, extension: &str, count: Count) {
        match self.extensions.get_mut(extension) {
            Some(sum) => *sum += count,
            None => {
                self.extensions.insert(extension.into(), count);
            }
        }
    }

    /// Takes in what another one has.
    pub fn merge(&mut self, other: &Summary) {
        self.types.iter_mut().zip(other.types).for_each(|(sum, count)| *sum += count);
        self.zero_files += other.zero_files;
        self.linked += other.linked;
        self.with_xattrs += other.with_xattrs;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.size.merge(&other.size);
        self.blocks_each.merge(&other.blocks_each);
        self.times.iter_mut().zip(&other.times).for_each(|(extrema, other)| extrema.merge(other));
        self.uids.extend(&other.uids);
        self.gids.extend(&other.gids);
        let histograms = [&mut self.sizes, &mut self.mtimes, &mut self.atimes];
        for (histogram, other) in
            histograms.into_iter().zip([&other.sizes, &other.mtimes, &other.atimes])
        {
            other.iter().for_each(|(class, count)| histogram.add(class, count));
        }
        for (extension, count) in &other.extensions {
            self.add_extension(extension, *count);
        }
    }

    /// Returns the space taken, in bytes.
    pub fn disk_bytes(&self) -> i128 {
        self.blocks.saturating_mul(512)
    }

    /// Returns how many entries there are.
    pub fn entries(&self) -> i64 {
        self.types.iter().sum()
    }
}

/// Stands for extensions such as those of `log.001` and `log.002`.
pub const NUMBERED: &str = "#";

/// Returns the class of a size in a histogram by powers of two: 0 for no bytes, n for 2^(n-1) up to
/// but not including 2^n bytes.
pub fn size_class(size_bytes: i64) -> i32 {
    // No file system gives a negative size; such a one counts as none.
    (i64::BITS - size_bytes.max(0).leading_zeros()) as i32
}

/// Returns the smallest size in bytes of a class of [`size_class`].
pub fn size_class_min(class: i32) -> i64 {
    if class <= 0 { 0 } else { 1i64.checked_shl(class as u32 - 1).unwrap_or(i64::MAX) }
}

/// Returns the smallest size in bytes that is too large for a class of [`size_class`]: that of the
/// last class is not a size.
pub fn size_class_end(class: i32) -> u64 {
    if class <= 0 { 1 } else { 1u64.checked_shl(class as u32).unwrap_or(u64::MAX) }
}

/// Returns the month of a time in UTC, counted from January 1970, which is 0.
pub fn month(time_ns: i64) -> i32 {
    // Howard Hinnant's days-to-civil algorithm, in which a year begins in March.
    let days = time_ns.div_euclid(86_400_000_000_000) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    ((era * 400 + year_of_era - 1970) * 12 + months_since_march + 2) as i32
}

/// Returns what follows the last dot of a name; `None` if there is nothing or the name only begins
/// with a dot.
pub fn extension(name: &str) -> Option<&str> {
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty() && !extension.is_empty()).then_some(extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_the_calendar() {
        let day = 86_400_000_000_000;
        assert_eq!(month(0), 0);
        assert_eq!(month(-1), -1);
        assert_eq!(month(31 * day - 1), 0);
        assert_eq!(month(31 * day), 1);
        // 2000-02-29, the last day of a month that only leap years have.
        let leap = 11_016 * day;
        assert_eq!((month(leap), month(leap + day)), (30 * 12 + 1, 30 * 12 + 2));
        assert_eq!(month(i64::MIN), (1677 - 1970) * 12 + 8);
        assert_eq!(month(i64::MAX), (2262 - 1970) * 12 + 3);
    }

    #[test]
    fn size_classes_begin_at_powers_of_two() {
        assert_eq!([-5, 0, 1, 2, 3, 4].map(size_class), [0, 0, 1, 2, 2, 3]);
        assert_eq!(size_class(i64::MAX), 63);
        for class in 0..=63 {
            assert_eq!(size_class(size_class_min(class)), class);
            assert_eq!(size_class((size_class_end(class) - 1) as i64), class);
        }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let entry = |at: i64| Attributes {
            mode: [0o100_644, 0o120_777, 0o010_600][at as usize % 3],
            uid: at as u32 % 4,
            size_bytes: at * at * 37 % 5000,
            mtime_ns: at * 40 * 86_400_000_000_000,
            ..Attributes::default()
        };
        let name = |at: i64| format!("x.{}", ["a", "b", "c", "17", "4"][at as usize % 5]);
        let of = |range: std::ops::Range<i64>| {
            let mut summary = Summary::default();
            range.for_each(|at| summary.add(&entry(at), &name(at), at % 2 == 0, Parts::ALL));
            summary
        };
        let whole = of(0..100);
        let mut sum = of(0..31);
        sum.merge(&of(31..31));
        sum.merge(&of(31..100));
        assert_eq!(sum, whole);
        assert_eq!((whole.entries(), whole.types[0], whole.uids.len()), (100, 34, 4));
        assert_eq!((whole.extensions["c"].entries, whole.extensions[NUMBERED].entries), (20, 40));
    }
}
