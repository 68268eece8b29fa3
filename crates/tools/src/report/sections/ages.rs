//! Ages.

use super::*;
use canopy_model::Count;
use canopy_read::ages::AGES;

/// Ages in calendar months (UTC) before the scan, of entries that are not directories; from the
/// youngest class that occurs to the oldest.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Ages {
    /// Since the last change of the contents.
    modified: Vec<AgeClass>,
    /// Since the last access.
    accessed: Vec<AgeClass>,
}

/// Those `from_months` to `to_months` calendar months old; in the future if both are negative.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AgeClass {
    label: &'static str,
    pub(super) from_months: i32,
    /// None: and all older ones.
    to_months: Option<i32>,
    #[serde(flatten)]
    pub(super) count: Count,
}

impl ReportSection for Ages {
    const TITLE: &'static str = "Ages";
    const NOTE: Option<&'static str> = Some(
        "By calendar month (UTC) before the scan, of entries that are not directories; \
         bars by bytes.",
    );
    const NEEDS: &'static [Need] = &[Need::Statistics];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let ages = &facts.statistics.ages;
        Ok(Some(Ages { modified: classes(&ages.modified), accessed: classes(&ages.accessed) }))
    }

    fn blocks(&self) -> Vec<Block> {
        let columns = [("sizes", true), ("entries", true), ("age", false)];
        let block = |title: &str, classes: &[AgeClass]| {
            let table = table(&columns, classes, |class| {
                let Count { entries, bytes } = class.count;
                vec![size(bytes), count(entries), class.label.into()]
            });
            let bytes = || classes.iter().map(|class| class.count.bytes);
            table.titled(title).with_shares(bytes(), bytes().max().unwrap_or(0)).block()
        };
        vec![
            block("Since the last modification", &self.modified),
            block("Since the last access", &self.accessed),
        ]
    }
}

/// Gives the spans from the first that occurs to the last.
pub(super) fn classes(counts: &[Count]) -> Vec<AgeClass> {
    let occurs = |count: &Count| count.entries > 0;
    let first = counts.iter().position(occurs).unwrap_or(0);
    let end = counts.iter().rposition(occurs).map_or(0, |last| last + 1);
    let classes = AGES.iter().zip(counts).take(end).skip(first);
    let class = |(&(label, from_months, to_months), &count): (&(&'static str, i32, _), &Count)| {
        AgeClass { label, from_months, to_months, count }
    };
    classes.map(class).collect()
}
