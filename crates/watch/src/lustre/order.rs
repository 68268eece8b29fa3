//! Whether the records of a log are all there.
//!
//! A log numbers its records. So what is missing is seen by what follows it, whatever the reason.
//!
//! Line ends in names make lines that look like records. They are believed as far as they make more
//! suspect; but to clear the log by such a number would throw away what nobody has read. The names
//! of one record hold no more than [`HELD_BACK`] such lines, and behind them the log goes on with
//! the true number. So no record is cleared before that many more in a row have been read.

/// How many of the last records stay in the log. With them it can be seen later, too, that the log
/// is still the one that was read.
pub(super) const HELD_BACK: u64 = 16;

/// How far a log was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// The records that are all there, up to the last one.
    row: Option<Row>,
    /// The first record of all.
    begins: Option<u64>,
    /// Records that do not follow those, the last that came.
    aside: Option<Row>,
    /// Whether a line may have been a record.
    has_bad_line: bool,
    /// Whether records are missing for certain.
    is_lost: bool,
    /// Record up to which all have been read, and enough more behind them. Earlier records do not
    /// matter any more.
    settled: Option<u64>,
    /// Last settled record when another process last read the log.
    before: Option<u64>,
}

/// Records without any missing between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    first: u64,
    last: u64,
}

impl Row {
    fn is_long(self) -> bool {
        self.last - self.first >= HELD_BACK
    }

    /// Whether a record does not come at once behind the last, but later.
    fn is_before(self, index: u64) -> bool {
        index > self.last.saturating_add(1)
    }
}

impl Order {
    /// Begins, or goes on where another process has ended: all records up to `before` are settled.
    pub(super) fn new(before: Option<u64>) -> Self {
        Order { before, ..Order::default() }
    }

    /// Notes a record.
    pub(super) fn record(&mut self, index: u64) {
        let Some(row) = &mut self.row else {
            self.is_lost = self.before.is_some_and(|before| index > before.saturating_add(1));
            self.begins = Some(index);
            self.settled = Some(index.saturating_sub(1));
            self.row = Some(Row { first: index, last: index });
            return;
        };
        if index == row.last {
            return;
        }
        if Some(index) == row.last.checked_add(1) {
            row.last = index;
            self.aside = None;
            self.has_bad_line = false;
            self.settle();
            return;
        }
        // Once more what was there before, or a forged one, or the first behind those that are missing.
        let aside = match self.aside {
            Some(aside) if Some(index) == aside.last.checked_add(1) => {
                Row { first: aside.first, last: index }
            }
            _ => Row { first: index, last: index },
        };
        self.aside = Some(aside);
        if aside.is_long() {
            self.go_aside();
        }
    }

    /// Believes what came aside of the row.
    fn go_aside(&mut self) {
        let aside = self.aside.take();
        let is_gap = |(row, aside): (Row, Row)| row.is_before(aside.first);
        self.is_lost |= self.row.zip(aside).is_some_and(is_gap);
        self.row = aside.or(self.row);
        self.settle();
    }

    fn settle(&mut self) {
        if let Some(row) = self.row.filter(|row| row.is_long()) {
            self.settled = self.settled.max(Some(row.last - HELD_BACK));
        }
    }

    /// Notes a line that may have been a record.
    pub(super) fn bad_line(&mut self) {
        self.has_bad_line = true;
    }

    /// Returns whether records are missing in the part that was read. Records behind the gap are
    /// then believed.
    pub(super) fn is_broken(&mut self) -> bool {
        let is_gap = |(row, aside): (Row, Row)| row.is_before(aside.first);
        if self.row.zip(self.aside).is_some_and(is_gap) {
            self.go_aside();
        }
        let is_lost = std::mem::take(&mut self.is_lost);
        std::mem::take(&mut self.has_bad_line) || is_lost
    }

    /// Notes that the log was read to its end. Returns whether it is not the one that it was.
    pub(super) fn end(&mut self, has_records: bool) -> bool {
        let before = self.before.take();
        let last = self.last();
        let ends_before = before.is_some_and(|before| last.is_none_or(|last| last < before));
        // The last record would have been there once more.
        let is_other = ends_before || !has_records && last.is_some();
        if is_other {
            *self = Order::default();
        }
        is_other
    }

    /// Returns the record to go on with, which was read already.
    pub(super) fn last(&self) -> Option<u64> {
        self.row.map(|row| row.last)
    }

    /// Returns the first record that there was.
    pub(super) fn begins(&self) -> Option<u64> {
        self.begins
    }

    /// Returns up to which record all have been read for good.
    pub(super) fn settled(&self) -> Option<u64> {
        self.settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(indices: impl IntoIterator<Item = u64>) -> Order {
        let mut order = Order::default();
        indices.into_iter().for_each(|index| order.record(index));
        order
    }

    #[test]
    fn records_in_a_row_are_settled_but_for_the_last() {
        let mut all = order(100..200);
        assert_eq!((all.settled(), all.last()), (Some(199 - HELD_BACK), Some(199)));
        assert!(!all.is_broken() && !all.end(true));
        let mut few = order(100..100 + HELD_BACK);
        assert_eq!(few.settled(), Some(99));
        assert!(!few.is_broken());
        // Read again from the last one.
        all.record(199);
        all.record(200);
        assert!(!all.is_broken());
        assert_eq!(all.settled(), Some(200 - HELD_BACK));
    }

    #[test]
    fn missing_records_are_noticed() {
        let mut gap = order((1..50).chain(60..100));
        assert!(gap.is_broken());
        assert!(!gap.is_broken());
        assert_eq!((gap.last(), gap.settled()), (Some(99), Some(99 - HELD_BACK)));
        let mut few = order((1..50).chain(60..63));
        assert!(few.is_broken());
        assert_eq!((few.last(), few.settled()), (Some(62), Some(49 - HELD_BACK)));
        (100..116).for_each(|index| gap.record(index));
        assert_eq!((gap.is_broken(), gap.settled()), (false, Some(115 - HELD_BACK)));
        let mut bad = order(1..50);
        bad.bad_line();
        assert!(bad.is_broken());
        bad.bad_line();
        bad.record(50);
        assert!(!bad.is_broken());
    }

    #[test]
    fn duplicates_are_none_too_few() {
        let mut twice = order((1..50).chain(40..80).chain([79, 79, 78, 79, 80]));
        assert!(!twice.is_broken());
        assert_eq!((twice.last(), twice.settled()), (Some(80), Some(80 - HELD_BACK)));
    }

    /// A name has lines that look like records.
    #[test]
    fn forged_records_settle_nothing_that_was_not_read() {
        let mut ahead = order((1..100).chain([5000, 5001, 5002]).chain(100..150));
        assert!(!ahead.is_broken());
        assert_eq!(ahead.settled(), Some(149 - HELD_BACK));
        for forged in [1, 8, HELD_BACK - 1] {
            for begin in [100, 5000] {
                // The log ends behind them.
                let mut end = order((1..100).chain(begin..begin + forged));
                assert_eq!(end.is_broken(), begin == 5000);
                assert!(end.settled() < Some(100), "{end:?}");
                (100..120).for_each(|index| end.record(index));
                assert!(!end.is_broken());
                assert!(end.settled() <= Some(119 - HELD_BACK), "{end:?}");
            }
        }
    }

    #[test]
    fn another_log_is_noticed() {
        assert!(order(1..50).end(false));
        assert!(!order([]).end(false));
        // No record behind those settled before may be missing.
        for (records, is_broken, is_other) in [
            (90..130, false, false),
            (101..130, false, false),
            (102..130, true, false),
            (1..20, false, true),
            (0..0, false, true),
        ] {
            let mut order = Order::new(Some(100));
            let is_some = !records.is_empty();
            records.clone().for_each(|index| order.record(index));
            assert_eq!(order.is_broken(), is_broken, "{records:?}");
            assert_eq!(order.end(is_some), is_other, "{records:?}");
            assert!(!order.end(is_some) || !is_some);
        }
    }
}
