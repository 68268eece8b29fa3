//! The table of conditions on rows in memory, as brackets say them.

mod table;

use canopy_query::Outcomes;
use table::{CASES, ENTRIES};

#[test]
fn rows_in_memory_agree_with_the_table() {
    for case in CASES {
        let (expression, opposite) = (case.expression(), case.expression().negated());
        for entry in &ENTRIES {
            let expected = case.finds(entry);
            assert_eq!(expression.matches(entry), expected, "{} {entry:?}", case.brackets);
            assert_eq!(opposite.matches(entry), !expected, "not {} {entry:?}", case.brackets);
            let certain = |expression: &canopy_query::Expression| {
                let of = &mut |test: &canopy_query::Test| {
                    Ok::<_, ()>(Outcomes::certain(test.passes(entry)))
                };
                expression.outcomes(of)
            };
            assert_eq!(certain(&expression), Ok(Outcomes::certain(expected)));
            assert_eq!(certain(&opposite), Ok(Outcomes::certain(!expected)));
        }
    }
}
