//! By extension.

use super::owners::{Breakdown, EACH_NAME};
use super::*;
use canopy_model::{Count, NUMBERED};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Usage by extension; those with most bytes come first.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Extensions(Breakdown<ExtensionUsage>);

#[derive(Clone, Debug, Serialize)]
struct ExtensionUsage {
    /// Without its dot; empty for names without one.
    extension: String,
    #[serde(flatten)]
    count: Count,
}

impl ReportSection for Extensions {
    const TITLE: &'static str = "By extension";
    const NOTE: Option<&'static str> = Some(EACH_NAME);
    const NEEDS: &'static [Need] = &[Need::Statistics];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        // They take more memory than all other statistics, and nobody else asks for them.
        let extensions = std::mem::take(&mut facts.statistics.whole.extensions);
        let row = |extension, count| ExtensionUsage { extension, count };
        Ok(Some(Extensions(largest(&extensions, facts.options.top, row))))
    }

    fn blocks(&self) -> Vec<Block> {
        let name = |extension: &str| match extension {
            "" => "(none)".to_owned(),
            NUMBERED => "(number)".to_owned(),
            extension => format!(".{}", report_name(extension)),
        };
        vec![self.0.block(
            &[("sizes", true), ("entries", true), ("extension", false)],
            |row| (usage(&row.count), name(&row.extension)),
            |usage| usage.bytes,
            |usage| vec![size(usage.bytes), count(usage.entries)],
        )]
    }
}

/// Gives rows of what has most bytes, by name.
pub(super) fn largest<T>(
    of: &HashMap<Box<str>, Count>,
    top: usize,
    row: impl Fn(String, Count) -> T,
) -> Breakdown<T> {
    let mut all: Vec<(&str, &Count)> = of.iter().map(|(name, count)| (&**name, count)).collect();
    let rank = |row: &(&str, &Count)| (Reverse(row.1.bytes), Reverse(row.1.entries));
    all.sort_unstable_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.0.cmp(b.0)));
    let others = all.split_off(top.min(all.len()));
    let mut rest = Usage::default();
    others.iter().for_each(|(_, count)| rest.add(&usage(count)));
    let rows = all.into_iter().map(|(name, count)| row(name.to_owned(), *count)).collect();
    Breakdown { rows, others: others.len(), rest }
}

pub(super) fn usage(count: &Count) -> Usage {
    Usage { entries: count.entries, bytes: count.bytes, disk_bytes: 0 }
}
