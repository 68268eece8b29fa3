//! Usage of owners, beside their limits.

use super::*;
use crate::report::Owner;
use crate::report::format::owner_name;
use crate::report::limits::Limit;
use canopy_index::column::{BLOCKS, GID, UID};
use canopy_model::Attributes;
use canopy_text::{group_name, user_name};
use rustc_hash::FxHashMap;
use std::ops::AddAssign;

/// Owners with limits, those first who have used the largest share.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Quotas {
    /// How many have limits.
    limited: usize,
    /// How many of them have more.
    over: usize,
    rows: Vec<Quota>,
}

#[derive(Clone, Debug, Serialize)]
struct Quota {
    kind: &'static str,
    #[serde(flatten)]
    owner: Owner,
    #[serde(flatten)]
    taken: Taken,
    limit_bytes: Option<i64>,
    limit_inodes: Option<i64>,
    /// Negative for what is over.
    left_bytes: Option<i128>,
    left_inodes: Option<i64>,
}

/// Space and inodes, each inode once, directories among them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Taken {
    disk_bytes: i128,
    inodes: i64,
}

impl AddAssign for Taken {
    fn add_assign(&mut self, other: Self) {
        self.disk_bytes = self.disk_bytes.saturating_add(other.disk_bytes);
        self.inodes += other.inodes;
    }
}

/// Usage of each user and each group.
#[derive(Default)]
pub(in crate::report) struct ByOwner {
    users: FxHashMap<u32, Taken>,
    groups: FxHashMap<u32, Taken>,
}

impl ByOwner {
    fn add(&mut self, uid: u32, gid: u32, blocks: i64, inodes: i64) {
        let taken = Taken { disk_bytes: i128::from(blocks).saturating_mul(512), inodes };
        *self.users.entry(uid).or_default() += taken;
        *self.groups.entry(gid).or_default() += taken;
    }
}

/// The directories; statistics tell of all else.
impl EntryCollector for ByOwner {
    const READS_DIRS: bool = true;

    fn new(_: &Scope<'_>) -> Self {
        ByOwner::default()
    }

    fn columns(&self, part: &CoveredFile<'_>) -> Result<Columns> {
        Ok((UID | GID | BLOCKS).when(part.kind == FileKind::Dirs))
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        if batch.kind != FileKind::Dirs {
            return Ok(());
        }
        let (uids, gids) = (UID.of(batch.batch)?, GID.of(batch.batch)?);
        let blocks = BLOCKS.of(batch.batch)?;
        batch.rows.iter().for_each(|&at| self.add(uids[at], gids[at], blocks[at], 1));
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        for (own, other) in [(&mut self.users, other.users), (&mut self.groups, other.groups)] {
            other.into_iter().for_each(|(id, taken)| *own.entry(id).or_default() += taken);
        }
    }
}

impl ReportSection for Quotas {
    const TITLE: &'static str = "Limits";
    const NOTE: Option<&'static str> =
        Some("Each inode counts once, with directories, as file systems count.");
    const NEEDS: &'static [Need] = &[Need::Statistics, Need::Dirs, Need::Links];
    type Entries = ByOwner;

    fn answer(facts: &mut Facts<'_>, mut taken: ByOwner) -> Result<Option<Self>> {
        let Some(limits) = &facts.options.limits else { return Ok(None) };
        let only = facts.options.owner;
        for start in facts.starts {
            let Attributes { uid, gid, blocks, .. } = start.inode.attributes;
            if only.is_none_or(|only| only == uid) {
                taken.add(uid, gid, blocks, 1);
            }
        }
        for Attributes { uid, gid, blocks, .. } in facts.links.surplus_names() {
            taken.add(*uid, *gid, -blocks, -1);
        }
        let statistics = &facts.statistics;
        for (own, usages) in
            [(&mut taken.users, &statistics.users), (&mut taken.groups, &statistics.groups)]
        {
            for (id, usage) in usages {
                let taken = Taken { disk_bytes: usage.disk_bytes, inodes: usage.entries };
                *own.entry(*id).or_default() += taken;
            }
        }
        let users = limits.users.iter().filter(|(uid, _)| only.is_none_or(|only| only == **uid));
        let users =
            users.map(|(id, limit)| Quota::new("user", *id, user_name, &taken.users, limit));
        // One user's entries say nothing about a group.
        let groups = limits.groups.iter().filter(|_| only.is_none());
        let groups =
            groups.map(|(id, limit)| Quota::new("group", *id, group_name, &taken.groups, limit));
        let mut rows: Vec<Quota> = users.chain(groups).collect();
        let (limited, over) = (rows.len(), rows.iter().filter(|row| row.is_over()).count());
        rows.sort_by(|a, b| b.share().total_cmp(&a.share()));
        rows.truncate(facts.options.top);
        Ok(Some(Quotas { limited, over, rows }))
    }

    fn blocks(&self) -> Vec<Block> {
        let known = Block::Facts(vec![
            (count(self.limited as i64), "with limits"),
            (count(self.over as i64), "over a limit"),
        ]);
        let columns = [
            ("on disk", true),
            ("limit", true),
            ("left", true),
            ("inodes", true),
            ("inode limit", true),
            ("inodes left", true),
            ("owner", false),
        ];
        let none = || Cell::from("");
        let table = table(&columns, &self.rows, |row| {
            vec![
                size(row.taken.disk_bytes),
                row.limit_bytes.map_or_else(none, size),
                row.left_bytes.map_or_else(none, left),
                count(row.taken.inodes),
                row.limit_inodes.map_or_else(none, count),
                row.left_inodes.map_or_else(none, count),
                format!("{} {}", row.kind, owner_name(&row.owner)).into(),
            ]
        });
        let shares = self.rows.iter().map(|row| row.share().clamp(0.0, 1.0)).collect();
        vec![known, Table { shares, ..table }.block()]
    }
}

impl Quota {
    fn new(
        kind: &'static str,
        id: u32,
        name: fn(u32) -> Option<String>,
        taken: &FxHashMap<u32, Taken>,
        limit: &Limit,
    ) -> Self {
        let taken = taken.get(&id).copied().unwrap_or_default();
        Quota {
            kind,
            owner: Owner { id, name: name(id) },
            taken,
            limit_bytes: limit.bytes,
            limit_inodes: limit.inodes,
            left_bytes: limit.bytes.map(|limit| i128::from(limit).saturating_sub(taken.disk_bytes)),
            left_inodes: limit.inodes.map(|limit| limit.saturating_sub(taken.inodes)),
        }
    }

    fn is_over(&self) -> bool {
        self.left_bytes.is_some_and(|left| left < 0)
            || self.left_inodes.is_some_and(|left| left < 0)
    }

    /// How much of what it may have it has, of space or inodes.
    fn share(&self) -> f64 {
        let share = |taken: i128, limit: Option<i64>| match (taken, limit) {
            (_, None) | (..=0, Some(_)) => 0.0,
            (taken, Some(limit)) => taken as f64 / limit as f64,
        };
        let space = share(self.taken.disk_bytes, self.limit_bytes);
        space.max(share(self.taken.inodes.into(), self.limit_inodes))
    }
}

/// Returns the cell for the space left, negative if it is over.
fn left(bytes: i128) -> Cell {
    let sign = if bytes < 0 { "-" } else { "" };
    let shown = human_size(bytes.saturating_abs());
    Cell { shown: format!("{sign}{shown}"), exact: Some(bytes.to_string()) }
}
