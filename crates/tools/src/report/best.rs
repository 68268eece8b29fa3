//! The best rows by some key, chosen without reading their paths.
//!
//! Ties go by path, which only rows that may be among the best are worth reading for. Rows of one
//! file are in the order of ties already, so of those with the same key in a file only the first
//! few can be among the best.

use std::cmp::Reverse;

/// A row: number of the part of the work that has it, and its number in the part's file.
pub(super) type Place = (u32, u32);

/// The rows that may be among the best so many by key, the largest keys first. Holds some times as
/// many; where keys are equal, as many a part.
pub(super) struct Best {
    count: usize,
    rows: Vec<(i64, Place)>,
    /// Rows with a smaller key are not among the best.
    least: i64,
    compact_at: usize,
}

impl Best {
    pub(super) fn new(count: usize) -> Self {
        Best { count, rows: Vec::new(), least: i64::MIN, compact_at: 4 * count + 1024 }
    }

    #[inline]
    pub(super) fn offer(&mut self, key: i64, place: Place) {
        if key >= self.least && self.count > 0 {
            self.rows.push((key, place));
            if self.rows.len() >= self.compact_at {
                self.compact();
            }
        }
    }

    pub(super) fn merge(&mut self, other: Best) {
        for (key, place) in other.rows {
            self.offer(key, place);
        }
    }

    /// Rows that hold all of the best, in no certain order.
    pub(super) fn into_candidates(mut self) -> Vec<(i64, Place)> {
        self.compact();
        self.rows
    }

    fn compact(&mut self) {
        if self.rows.len() <= self.count || self.count == 0 {
            return;
        }
        let rank = |row: &(i64, Place)| (Reverse(row.0), row.1);
        self.rows.sort_unstable_by_key(rank);
        self.least = self.rows[self.count - 1].0;
        let (mut last, mut of_part) = ((self.least, u32::MAX), 0);
        let (count, least) = (self.count, self.least);
        self.rows.retain(|&(key, (part, _))| {
            if key < least {
                return false;
            }
            of_part = if last == (key, part) { of_part + 1 } else { 1 };
            last = (key, part);
            of_part <= count
        });
        self.compact_at = (2 * self.rows.len()).max(4 * self.count + 1024);
    }
}

/// A key that makes the smallest values the best.
pub(super) fn least_first(value: i64) -> i64 {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_of_the_best_is_lost() {
        for count in [0, 1, 3, 700] {
            let mut rows: Vec<(i64, Place)> = (0..20_000_u32)
                .map(|at| (i64::from(at * 7919 % 13), (at / 5000, at % 5000)))
                .collect();
            let mut halves = [Best::new(count), Best::new(count)];
            for (at, &(key, place)) in rows.iter().enumerate() {
                halves[at % 2].offer(key, place);
            }
            let [mut best, other] = halves;
            best.merge(other);
            let found = best.into_candidates();
            rows.sort_by_key(|row| (Reverse(row.0), row.1));
            assert!(rows[..count].iter().all(|row| found.contains(row)), "{count}");
            assert!(found.len() <= count * 5, "{count}: {}", found.len());
        }
    }

    #[test]
    fn the_smallest_can_be_the_best() {
        let mut values = [3, i64::MIN, i64::MAX, 0];
        values.sort_by_key(|&value| Reverse(least_first(value)));
        assert_eq!(values, [i64::MIN, 0, 3, i64::MAX]);
    }
}
