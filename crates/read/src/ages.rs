//! Ages in whole calendar months, in the spans that reports show.

use canopy_model::{Count, Histogram};

/// Spans of months: what each is called, its first month and its last one, if it has one.
pub const AGES: [(&str, i32, Option<i32>); 11] = [
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

/// Adds what is known of months to the [`AGES`] that they were before the month of a scan; `counts`
/// has one for each span.
pub fn add_ages(counts: &mut [Count], months: &Histogram, scanned: i32) {
    for (month, count) in months.iter() {
        let age = (scanned - month).max(-1);
        let at = AGES.iter().rposition(|(_, from, _)| *from <= age).unwrap_or(0);
        counts[at] += count;
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
            let mut counts = vec![Count::default(); AGES.len()];
            add_ages(&mut counts, &months, 500);
            assert_eq!(counts[label].entries, 1, "{age}");
        }
    }

    #[test]
    fn spans_of_ages_follow_each_other() {
        for pair in AGES.windows(2) {
            assert_eq!(pair[0].2.map(|to| to + 1), Some(pair[1].1));
        }
    }
}
