//! Spans of ages, for the section of ages and for what du says of ages.

use canopy_model::{Count, Histogram};

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

/// Adds months to the [`AGES`] that they were before the month of a scan.
pub(crate) fn add_ages(classes: &mut [Count], months: &Histogram, scanned: i32) {
    for (month, count) in months.iter() {
        let age = (scanned - month).max(-1);
        let at = AGES.iter().rposition(|(_, from, _)| *from <= age).unwrap_or(0);
        classes[at] += count;
    }
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
