//! By user, by group, and what belongs to owners without a name.

use super::*;
use crate::report::Owner;
use crate::report::format::owner_name;
use canopy_text::{group_name, user_name};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Note of the sections that break usage down.
pub(super) const EACH_NAME: &str =
    "Each name counts, hard links as often as they occur; without directories.";

/// The largest parts of a whole and what is left.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Breakdown<T> {
    /// The largest first.
    pub(super) rows: Vec<T>,
    /// How many others there are.
    pub(super) others: usize,
    /// Their usage.
    pub(super) rest: Usage,
}

impl<T> Breakdown<T> {
    /// Shows rows and, behind them, what is left; bars are of what `bar` gives.
    pub(super) fn block(
        &self,
        columns: &[(&'static str, bool)],
        usage_and_name: impl Fn(&T) -> (Usage, String),
        bar: fn(&Usage) -> i128,
        cells: fn(&Usage) -> Vec<Cell>,
    ) -> Block {
        let mut rows: Vec<_> = self.rows.iter().map(usage_and_name).collect();
        let whole = rows.iter().map(|(usage, _)| bar(usage)).sum::<i128>() + bar(&self.rest);
        rows.extend(others(self.others).map(|others| (self.rest, others)));
        let table = table(columns, &rows, |(usage, name)| {
            cells(usage).into_iter().chain([Cell::from(name.clone())]).collect()
        });
        let table = Table { rest: self.others > 0, ..table };
        table.with_shares(rows.iter().map(|(usage, _)| bar(usage)), whole).block()
    }
}

/// Names those that have no row, if there are any.
pub(super) fn others(count: usize) -> Option<String> {
    let plural = if count == 1 { "" } else { "s" };
    (count > 0).then(|| format!("({} other{plural})", grouped(count as i64)))
}

/// Usage of an owner.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OwnerUsage {
    #[serde(flatten)]
    pub(super) owner: Owner,
    #[serde(flatten)]
    pub(super) usage: Usage,
}

/// Usage of each user; those who take most space come first.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Users(Breakdown<OwnerUsage>);

impl ReportSection for Users {
    const TITLE: &'static str = "By user";
    const NOTE: Option<&'static str> = Some(EACH_NAME);
    const NEEDS: &'static [Need] = &[Need::Statistics];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        Ok(Some(Users(by_owner(&facts.statistics.users, user_name, facts.options.top))))
    }

    fn blocks(&self) -> Vec<Block> {
        vec![owners_block("user", &self.0)]
    }
}

impl Users {
    /// Gives the ids of those that are listed.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.rows.iter().map(|row| row.owner.id)
    }
}

/// Usage of each group; those that take most space come first.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Groups(Breakdown<OwnerUsage>);

impl ReportSection for Groups {
    const TITLE: &'static str = "By group";
    const NOTE: Option<&'static str> = Some(EACH_NAME);
    const NEEDS: &'static [Need] = &[Need::Statistics];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        Ok(Some(Groups(by_owner(&facts.statistics.groups, group_name, facts.options.top))))
    }

    fn blocks(&self) -> Vec<Block> {
        vec![owners_block("group", &self.0)]
    }
}

/// Breaks usage down by owner: those who take most space, then the sum of the others.
pub(super) fn by_owner(
    owners: &FxHashMap<u32, Usage>,
    name: fn(u32) -> Option<String>,
    top: usize,
) -> Breakdown<OwnerUsage> {
    let mut all: Vec<(u32, Usage)> = owners.iter().map(|(id, usage)| (*id, *usage)).collect();
    all.sort_unstable_by_key(|(id, usage)| {
        (Reverse(usage.disk_bytes), Reverse(usage.entries), *id)
    });
    let rest = all.split_off(top.min(all.len()));
    let mut sum = Usage::default();
    rest.iter().for_each(|(_, usage)| sum.add(usage));
    let row = |(id, usage)| OwnerUsage { owner: Owner { id, name: name(id) }, usage };
    Breakdown { rows: all.into_iter().map(row).collect(), others: rest.len(), rest: sum }
}

fn owners_block(word: &'static str, breakdown: &Breakdown<OwnerUsage>) -> Block {
    let columns = [("on disk", true), ("sizes", true), ("entries", true), (word, false)];
    let usage_and_name = |row: &OwnerUsage| (row.usage, owner_name(&row.owner));
    breakdown.block(&columns, usage_and_name, |usage| usage.disk_bytes, usage_cells)
}

fn usage_cells(usage: &Usage) -> Vec<Cell> {
    vec![size(usage.disk_bytes), size(usage.bytes), count(usage.entries)]
}

/// Usage of users and groups without a name on this system, without directories.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Owners {
    without_user: Usage,
    without_group: Usage,
    /// Their ids.
    users: Breakdown<OwnerUsage>,
    groups: Breakdown<OwnerUsage>,
}

impl ReportSection for Owners {
    const TITLE: &'static str = "Owners without a name";
    const NOTE: Option<&'static str> =
        Some("Ids that this system has no name for, of entries that are not directories.");
    const NEEDS: &'static [Need] = &[Need::Statistics];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let nameless = |owners: &FxHashMap<u32, Usage>, name: fn(u32) -> Option<String>| {
            let nameless = owners.iter().filter(|(id, _)| name(**id).is_none());
            let owners: FxHashMap<u32, Usage> = nameless.map(|(id, usage)| (*id, *usage)).collect();
            let mut sum = Usage::default();
            owners.values().for_each(|usage| sum.add(usage));
            (sum, by_owner(&owners, |_| None, facts.options.top))
        };
        let (without_user, users) = nameless(&facts.statistics.users, user_name);
        let (without_group, groups) = nameless(&facts.statistics.groups, group_name);
        Ok(Some(Owners { without_user, without_group, users, groups }))
    }

    fn blocks(&self) -> Vec<Block> {
        let columns = [("on disk", true), ("sizes", true), ("entries", true), ("", false)];
        let rows = [(&self.without_user, "no such user"), (&self.without_group, "no such group")];
        let table = table(&columns, &rows, |(usage, what)| {
            usage_cells(usage).into_iter().chain([Cell::from(*what)]).collect()
        });
        let ids = [("user id", &self.users), ("group id", &self.groups)];
        let ids = ids.into_iter().filter(|(_, breakdown)| !breakdown.rows.is_empty());
        let ids = ids.map(|(word, breakdown)| owners_block(word, breakdown));
        [table.block()].into_iter().chain(ids).collect()
    }
}
