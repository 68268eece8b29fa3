//! Sizes.

use super::*;
use canopy_index::column::SIZE;
use canopy_model::{Count, Summary, size_class, size_class_end, size_class_min};
use std::ops::RangeInclusive;

/// Sizes of entries that are not directories.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Sizes {
    entries: i64,
    mean_bytes: f64,
    median_bytes: f64,
    /// Standard deviation of all of them (not of a sample).
    stdev_bytes: f64,
    max_bytes: i64,
    /// By powers of two, from the smallest that occurs to the largest.
    classes: Vec<SizeClass>,
}

/// Sizes from `from_bytes` up to but not including `to_bytes`.
#[derive(Clone, Debug, Serialize)]
struct SizeClass {
    from_bytes: i64,
    /// Beyond 64 bits with a sign for the largest files.
    to_bytes: u64,
    #[serde(flatten)]
    count: Count,
}

impl SizeClass {
    fn shown(&self) -> String {
        match self.from_bytes {
            0 => "0".to_owned(),
            1 => "1".to_owned(),
            from => format!("{} to < {}", human_size(from), human_size(self.to_bytes)),
        }
    }
}

/// Exact sizes, which statistics do not contain.
pub(in crate::report) struct ExactSizes {
    /// Size classes of which all sizes are kept, for the median.
    kept: Option<RangeInclusive<i32>>,
    sizes: Vec<i64>,
    squares: u128,
}

impl EntryCollector for ExactSizes {
    fn new(scope: &Scope<'_>) -> Self {
        let kept = median_classes(&scope.statistics.whole).map(|(classes, _)| classes);
        ExactSizes { kept, sizes: Vec::new(), squares: 0 }
    }

    fn columns(&self, _: &CoveredFile<'_>) -> Result<Columns> {
        Ok(Columns::from(SIZE).when(self.kept.is_some()))
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let sizes = SIZE.of(batch.batch)?;
        for &at in &batch.rows {
            let size = u128::from(sizes[at].unsigned_abs());
            self.squares = self.squares.saturating_add(size * size);
            if kept.contains(&size_class(sizes[at])) {
                self.sizes.push(sizes[at]);
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.squares = self.squares.saturating_add(other.squares);
        self.sizes.extend(other.sizes);
    }
}

impl ReportSection for Sizes {
    const TITLE: &'static str = "Sizes";
    const NOTE: Option<&'static str> = Some("Of entries that are not directories; bars by number.");
    const NEEDS: &'static [Need] = &[Need::Statistics, Need::Entries];
    type Entries = ExactSizes;

    fn answer(facts: &mut Facts<'_>, mut exact: ExactSizes) -> Result<Option<Self>> {
        let whole = &facts.statistics.whole;
        let entries = whole.entries();
        let smaller = median_classes(whole).map_or(0, |(_, smaller)| smaller);
        let mut at = |number: i64| -> f64 {
            let at = usize::try_from(number - smaller).unwrap_or(0);
            match at < exact.sizes.len() {
                true => *exact.sizes.select_nth_unstable(at).1 as f64,
                false => 0.0,
            }
        };
        let (mut median_bytes, mut max_bytes) = (0.0, 0);
        if entries > 0 {
            median_bytes = (at((entries - 1) / 2) + at(entries / 2)) / 2.0;
            max_bytes = whole.size.max;
        }
        let (mean_bytes, stdev_bytes) = mean_and_deviation(entries, whole.bytes, exact.squares);
        let classes = size_classes(whole);
        Ok(Some(Sizes { entries, mean_bytes, median_bytes, stdev_bytes, max_bytes, classes }))
    }

    fn blocks(&self) -> Vec<Block> {
        let rounded = |bytes: f64| size(bytes.round() as i64);
        let known = Block::Facts(vec![
            (rounded(self.mean_bytes), "mean"),
            (rounded(self.median_bytes), "median"),
            (rounded(self.stdev_bytes), "standard deviation"),
            (size(self.max_bytes), "largest"),
        ]);
        let columns = [("entries", true), ("sizes", true), ("bytes each", false)];
        let table = table(&columns, &self.classes, |class| {
            vec![count(class.count.entries), size(class.count.bytes), class.shown().into()]
        });
        let entries = || self.classes.iter().map(|class| class.count.entries);
        vec![known, table.with_shares(entries(), entries().max().unwrap_or(0)).block()]
    }
}

/// Gives classes of sizes, from the smallest that occurs to the largest, empty ones between them
/// too.
fn size_classes(whole: &Summary) -> Vec<SizeClass> {
    let classes: Vec<(i32, Count)> = whole.sizes.iter().collect();
    let (Some(first), Some(last)) = (classes.first(), classes.last()) else {
        return Vec::new();
    };
    let count = |class: i32| {
        let at = classes.binary_search_by_key(&class, |(class, _)| *class);
        at.map_or_else(|_| Count::default(), |at| classes[at].1)
    };
    let class = |class: i32| SizeClass {
        from_bytes: size_class_min(class),
        to_bytes: size_class_end(class),
        count: count(class),
    };
    (first.0..=last.0).map(class).collect()
}

/// Gives the classes of sizes that hold the two entries in the middle, and how many entries are in
/// smaller classes.
fn median_classes(whole: &Summary) -> Option<(RangeInclusive<i32>, i64)> {
    let entries = whole.entries();
    if entries == 0 {
        return None;
    }
    let (mut before, mut first, mut smaller) = (0, None, 0);
    for (class, count) in whole.sizes.iter() {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The bug: the last class ended at -8.0E.
    #[test]
    fn the_largest_files_have_a_class() {
        let mut whole = Summary::default();
        whole.sizes.add(size_class(i64::MAX), Count { entries: 1, bytes: i64::MAX.into() });
        let classes = size_classes(&whole);
        let [class] = classes.as_slice() else { panic!("{classes:?}") };
        assert_eq!((class.from_bytes, class.to_bytes), (1 << 62, 1 << 63));
        let json = serde_json::to_string(class).unwrap();
        assert!(json.contains("\"to_bytes\":9223372036854775808,"), "{json}");
        assert_eq!(class.shown(), "4.0E to < 8.0E");
    }
}
