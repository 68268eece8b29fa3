//! Usage by two things at once: users by age, users by group.

use super::ages::{AgeClass, classes};
use super::owners::{Breakdown, EACH_NAME, OwnerUsage, by_owner, others};
use super::*;
use crate::report::Owner;
use crate::report::format::owner_name;
use crate::report::statistics::{ByAge, ByBoth};
use canopy_model::Ownership;
use canopy_read::ages::AGES;
use canopy_text::{group_name, user_name};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Most groups that have a column.
const GROUP_COLUMNS_MAX: usize = 6;

/// Short titles of [`AGES`].
const AGE_TITLES: [&str; AGES.len()] = [
    "future", "0 mo", "1 mo", "2 mo", "3-5 mo", "6-11 mo", "1 y", "2 y", "3-4 y", "5-9 y",
    "10 y on",
];

/// How old the entries of each user are, those who take most space first.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct UserAges {
    rows: Vec<UserAge>,
    /// How many other users there are.
    others: usize,
    /// Their usage.
    rest: AgedUsage,
}

#[derive(Clone, Debug, Serialize)]
struct UserAge {
    #[serde(flatten)]
    owner: Owner,
    #[serde(flatten)]
    aged: AgedUsage,
}

#[derive(Clone, Debug, Serialize)]
struct AgedUsage {
    #[serde(flatten)]
    usage: Usage,
    modified: Vec<AgeClass>,
    accessed: Vec<AgeClass>,
}

impl AgedUsage {
    fn new(usage: Usage, ages: &ByAge) -> Self {
        let (modified, accessed) = (classes(&ages.modified), classes(&ages.accessed));
        AgedUsage { usage, modified, accessed }
    }
}

impl ReportSection for UserAges {
    const TITLE: &'static str = "By user and age";
    const NOTE: Option<&'static str> = Some(
        "Sizes by calendar month (UTC) before the scan, of entries that are not directories; each \
         name counts.",
    );
    const NEEDS: &'static [Need] = &[Need::Statistics];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let Some(mut ages) = facts.statistics.user_ages.take() else { return Ok(None) };
        let Breakdown { rows, others, rest } =
            by_owner(&facts.statistics.users, user_name, facts.options.top);
        let row = |OwnerUsage { owner, usage }| {
            let aged = AgedUsage::new(usage, &ages.remove(&owner.id).unwrap_or_default());
            UserAge { owner, aged }
        };
        let rows = rows.into_iter().map(row).collect();
        let mut left = ByAge::default();
        ages.values().for_each(|ages| left.add(ages));
        Ok(Some(UserAges { rows, others, rest: AgedUsage::new(rest, &left) }))
    }

    fn blocks(&self) -> Vec<Block> {
        vec![
            self.block("Since the last modification", |aged| &aged.modified),
            self.block("Since the last access", |aged| &aged.accessed),
        ]
    }
}

impl UserAges {
    fn block(&self, title: &str, ages: fn(&AgedUsage) -> &[AgeClass]) -> Block {
        let mut rows: Vec<(&AgedUsage, String)> =
            self.rows.iter().map(|row| (&row.aged, owner_name(&row.owner))).collect();
        rows.extend(others(self.others).map(|others| (&self.rest, others)));
        let occur = rows.iter().flat_map(|(aged, _)| ages(aged));
        let occur: BTreeSet<i32> =
            occur.filter(|class| class.count.entries > 0).map(|class| class.from_months).collect();
        let spans = AGE_TITLES.into_iter().zip(AGES.iter().map(|age| age.1));
        let spans: Vec<(&str, i32)> = spans.filter(|(_, from)| occur.contains(from)).collect();
        let titles = spans.iter().map(|(title, _)| (Cow::Borrowed(*title), true));
        let cells = |(aged, name): (&AgedUsage, String)| {
            let of = |from: i32| ages(aged).iter().find(|class| class.from_months == from);
            let bytes =
                spans.iter().map(|(_, from)| of(*from).map_or(0, |class| class.count.bytes));
            bytes.map(size_or_none).chain([Cell::from(name)]).collect()
        };
        let table = Table {
            columns: titles.chain([("user".into(), false)]).collect(),
            rows: rows.into_iter().map(cells).collect(),
            rest: self.others > 0,
            ..Table::default()
        };
        table.titled(title).block()
    }
}

/// Usage of each user in each group; the users who take most space come first.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct UserGroups {
    rows: Vec<UserGroup>,
    /// How many other users there are.
    others: usize,
    /// Their usage.
    rest: Usage,
    /// The groups that take most space, each with a column.
    #[serde(skip)]
    columns: Vec<Owner>,
    #[serde(skip)]
    rest_cells: Vec<i128>,
}

#[derive(Clone, Debug, Serialize)]
struct UserGroup {
    #[serde(flatten)]
    owner: Owner,
    #[serde(flatten)]
    usage: Usage,
    groups: Breakdown<OwnerUsage>,
    /// The space of each column.
    #[serde(skip)]
    cells: Vec<i128>,
}

impl ReportSection for UserGroups {
    const TITLE: &'static str = "By user and group";
    const NOTE: Option<&'static str> = Some(EACH_NAME);
    const NEEDS: &'static [Need] = &[Need::Statistics];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let Some(by_both) = facts.statistics.by_both.take() else { return Ok(None) };
        let top = facts.options.top;
        let columns = by_owner(&facts.statistics.groups, group_name, GROUP_COLUMNS_MAX).rows;
        let columns: Vec<Owner> = columns.into_iter().map(|group| group.owner).collect();
        let mut groups: FxHashMap<u32, FxHashMap<u32, Usage>> = FxHashMap::default();
        for (Ownership { uid, gid }, usage) in &by_both {
            groups.entry(*uid).or_default().insert(*gid, *usage);
        }
        let cells = |uid| columns.iter().map(|group| taken(&by_both, uid, group.id)).collect();
        let Breakdown { rows, others, rest } = by_owner(&facts.statistics.users, user_name, top);
        let row = |OwnerUsage { owner, usage }| {
            let groups = groups.remove(&owner.id).unwrap_or_default();
            let groups = by_owner(&groups, group_name, top);
            UserGroup { usage, groups, cells: cells(owner.id), owner }
        };
        let rows: Vec<UserGroup> = rows.into_iter().map(row).collect();
        let left = |group: &Owner| {
            let usages = groups.values().filter_map(|of| of.get(&group.id));
            usages.map(|usage| usage.disk_bytes).sum()
        };
        let rest_cells = columns.iter().map(left).collect();
        Ok(Some(UserGroups { rows, others, rest, columns, rest_cells }))
    }

    fn blocks(&self) -> Vec<Block> {
        let mut rows: Vec<(&Usage, &[i128], String)> =
            self.rows.iter().map(|row| (&row.usage, &*row.cells, owner_name(&row.owner))).collect();
        rows.extend(others(self.others).map(|others| (&self.rest, &*self.rest_cells, others)));
        let left = |usage: &Usage, cells: &[i128]| usage.disk_bytes - cells.iter().sum::<i128>();
        let has_left = rows.iter().any(|(usage, cells, _)| left(usage, cells) != 0);
        let groups = self.columns.iter().map(|group| (owner_name(group).into(), true));
        let beside = has_left.then(|| ("(others)".into(), true));
        let last = [("on disk".into(), true), ("user".into(), false)];
        let cells = |(usage, cells, name): (&Usage, &[i128], String)| {
            let beside = has_left.then(|| left(usage, cells));
            let taken = cells.iter().copied().chain(beside).map(size_or_none);
            taken.chain([size(usage.disk_bytes), Cell::from(name)]).collect()
        };
        let table = Table {
            columns: groups.chain(beside).chain(last).collect(),
            rows: rows.into_iter().map(cells).collect(),
            rest: self.others > 0,
            ..Table::default()
        };
        vec![table.titled("On disk, by group").block()]
    }
}

/// Returns the space that a user takes in a group.
fn taken(by_both: &ByBoth, uid: u32, gid: u32) -> i128 {
    by_both.get(&Ownership { uid, gid }).map_or(0, |usage| usage.disk_bytes)
}

/// Returns a size, or `-` for zero, so that empty cells stand back.
fn size_or_none(bytes: i128) -> Cell {
    match bytes {
        0 => Cell { shown: "-".to_owned(), exact: Some("0".to_owned()) },
        bytes => size(bytes),
    }
}
