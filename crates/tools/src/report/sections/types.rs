//! By type.

use super::totals::Totals;
use super::*;

/// The words for types, in the order of [`canopy_model::Summary::TYPES`].
const TYPES: [&str; 7] =
    ["file", "symlink", "fifo", "socket", "block device", "character device", "unknown"];

/// How many there are of each type that occurs.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Types(Vec<TypeCount>);

#[derive(Clone, Debug, Serialize)]
struct TypeCount {
    #[serde(rename = "type")]
    name: &'static str,
    entries: i64,
}

impl ReportSection for Types {
    const TITLE: &'static str = "By type";
    const NEEDS: &'static [Need] = Totals::NEEDS;
    const NEEDS_OF_OWNER: &'static [Need] = Totals::NEEDS_OF_OWNER;
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let directories = ("directory", facts.once()?.dirs);
        let others = TYPES.into_iter().zip(facts.statistics.whole.types);
        let all = [directories].into_iter().chain(others).filter(|(_, entries)| *entries > 0);
        Ok(Some(Types(all.map(|(name, entries)| TypeCount { name, entries }).collect())))
    }

    fn blocks(&self) -> Vec<Block> {
        let whole = self.0.iter().map(|row| row.entries).sum::<i64>();
        let table = table(&[("entries", true), ("type", false)], &self.0, |row| {
            vec![count(row.entries), row.name.into()]
        });
        vec![table.with_shares(self.0.iter().map(|row| row.entries), whole).block()]
    }
}
