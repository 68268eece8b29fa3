//! The first rows by some key, chosen without reading their paths.
//!
//! Ties go by path, which only rows that may be shown are worth reading for. Rows of one file are
//! in the order of ties already, so of those with the same key in a file only the first few can be
//! shown.

use super::parts::RowId;
use std::cmp::Reverse;

/// The `k` rows with the largest keys, and whatever ties with the last of them. Holds some times as
/// many; where keys are equal, as many a part.
#[derive(Default)]
pub(super) struct TopK {
    k: usize,
    rows: Vec<(i128, RowId)>,
    /// Rows with a smaller key are not among the first.
    least: i128,
    compact_at: usize,
}

impl TopK {
    /// Begins without any rows.
    pub(super) fn new(k: usize) -> Self {
        TopK { k, rows: Vec::new(), least: i128::MIN, compact_at: 4 * k + 1024 }
    }

    /// Takes a row in if it may be among the first.
    #[inline]
    pub(super) fn offer(&mut self, key: impl Into<i128>, id: RowId) {
        let key = key.into();
        if key >= self.least && self.k > 0 {
            self.rows.push((key, id));
            if self.rows.len() >= self.compact_at {
                self.compact();
            }
        }
    }

    /// Takes in the rows of another one.
    pub(super) fn merge(&mut self, other: TopK) {
        for (key, id) in other.rows {
            self.offer(key, id);
        }
    }

    /// Gives rows that hold all of the first `k`, in no certain order.
    pub(super) fn candidates(&mut self) -> &[(i128, RowId)] {
        self.compact();
        &self.rows
    }

    fn compact(&mut self) {
        if self.rows.len() <= self.k || self.k == 0 {
            return;
        }
        self.rows.sort_unstable_by_key(|row| (Reverse(row.0), row.1));
        self.least = self.rows[self.k - 1].0;
        let (mut last, mut of_part) = ((self.least, u32::MAX), 0);
        let (k, least) = (self.k, self.least);
        self.rows.retain(|&(key, id)| {
            if key < least {
                return false;
            }
            of_part = if last == (key, id.part) { of_part + 1 } else { 1 };
            last = (key, id.part);
            of_part <= k
        });
        self.compact_at = (2 * self.rows.len()).max(4 * self.k + 1024);
    }
}

/// Gives a key by which the smallest values come first.
pub(super) fn least_first(value: i64) -> i64 {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_of_the_first_is_lost() {
        for count in [0, 1, 3, 700] {
            let id = |at: u32| RowId { part: at / 5000, row: at % 5000 };
            let mut rows: Vec<(i128, RowId)> =
                (0..20_000).map(|at| (i128::from(at * 7919 % 13), id(at))).collect();
            let mut halves = [TopK::new(count), TopK::new(count)];
            for (at, &(key, id)) in rows.iter().enumerate() {
                halves[at % 2].offer(key, id);
            }
            let [mut top, other] = halves;
            top.merge(other);
            let found = top.candidates();
            rows.sort_by_key(|row| (Reverse(row.0), row.1));
            assert!(rows[..count].iter().all(|row| found.contains(row)), "{count}");
            assert!(found.len() <= count * 5, "{count}: {}", found.len());
        }
    }

    #[test]
    fn the_smallest_can_come_first() {
        let mut values = [3, i64::MIN, i64::MAX, 0];
        values.sort_by_key(|&value| Reverse(least_first(value)));
        assert_eq!(values, [i64::MIN, 0, 3, i64::MAX]);
    }
}
