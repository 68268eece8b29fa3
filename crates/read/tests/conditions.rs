//! The table of conditions, judged by bounds of columns.

#[path = "../../query/tests/table/mod.rs"]
mod table;

use canopy_index::ColumnId;
use canopy_index::column::{ATIME, BLOCKS, BTIME, CTIME, GID, INO, MTIME, NLINK, SIZE, UID};
use canopy_query::{Expression, Outcomes, Test};
use canopy_read::conditions;
use table::{CASES, ENTRIES, Entry};

/// Returns the value of a column as bounds have it: unsigned ones of 64 bits wrap.
fn value(entry: &Entry, column: ColumnId) -> i64 {
    let values: [(ColumnId, i64); 10] = [
        (SIZE.id(), entry.size),
        (BLOCKS.id(), entry.blocks),
        (UID.id(), entry.uid.into()),
        (GID.id(), entry.gid.into()),
        (NLINK.id(), entry.links.into()),
        (INO.id(), entry.ino as i64),
        (MTIME.id(), entry.mtime_ns),
        (CTIME.id(), entry.ctime_ns),
        (ATIME.id(), entry.atime_ns),
        (BTIME.id(), entry.btime_ns),
    ];
    let found = values.iter().find(|(known, _)| *known == column);
    found.expect("a column with bounds").1
}

/// Returns the bounds of a column of some entries, as a file has them: none where numbers wrap.
fn bounds(entries: &[Entry], column: ColumnId) -> Option<(i64, i64)> {
    let key =
        |value: &i64| if column == INO.id() { i128::from(*value as u64) } else { (*value).into() };
    let values = || entries.iter().map(|entry| value(entry, column));
    let (least, most) = (values().min_by_key(key)?, values().max_by_key(key)?);
    (least <= most).then_some((least, most))
}

fn outcomes(expression: &Expression, entries: &[Entry]) -> Outcomes {
    let remaining = expression.outcomes(&mut |test| match test {
        Test::Always(passes) => Ok(Outcomes::certain(*passes)),
        Test::Attribute(test) => {
            conditions::outcomes(*test, false, |column| Ok::<_, ()>(bounds(entries, column)))
        }
        Test::Text(..) | Test::Xattr(..) => Ok(Outcomes::EITHER),
    });
    remaining.expect("no error")
}

#[test]
fn bounds_agree_with_the_table() {
    let (mut pruned, mut certain) = (0, 0);
    for case in CASES {
        let expression = case.expression();
        // All runs of entries that a row group could have.
        for first in 0..ENTRIES.len() {
            for end in first + 1..=ENTRIES.len() {
                let entries = &ENTRIES[first..end];
                let Outcomes { may_pass, may_fail } = outcomes(&expression, entries);
                let found = entries.iter().filter(|entry| case.finds(entry)).count();
                assert!(may_pass || found == 0, "{} {entries:?}", case.brackets);
                assert!(may_fail || found == entries.len(), "{} {entries:?}", case.brackets);
                pruned += usize::from(!may_pass);
                certain += usize::from(!may_fail);
            }
        }
    }
    assert!(pruned > 500 && certain > 300, "{pruned} {certain}");
}

#[test]
fn single_values_leave_one_outcome() {
    for case in CASES {
        let expression = case.expression();
        let mut is_of_spans = true;
        expression.each_test(&mut |test| {
            is_of_spans &= matches!(
                test,
                Test::Always(_) | Test::Attribute(canopy_query::AttributeTest::Span(..))
            );
        });
        for entry in ENTRIES.iter().filter(|_| is_of_spans) {
            let expected = Outcomes::certain(case.finds(entry));
            assert_eq!(outcomes(&expression, &[*entry]), expected, "{} {entry:?}", case.brackets);
        }
    }
}
