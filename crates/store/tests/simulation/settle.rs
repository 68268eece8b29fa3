//! When all is over, every table is as it must be, and nothing is left that nobody needs.

use crate::actors::Site;
use crate::model::{both_ways, check_equal};
use crate::oracle::Seen;
use crate::world::World;
use canopy_store::manifest::{Manifest, Phase};
use canopy_store::storage::Storage;
use canopy_store::{
    Environment, KeyRange, SstableCache, Table, TableId, collect, compact_all, delete, inspect,
    inspect_version,
};
use std::collections::BTreeSet;
use std::sync::Arc;

pub fn settle(world: &Arc<World>, site: &Site) {
    world.calm();
    let quiet = world.quiet();
    let cache = SstableCache::new(&quiet, 1 << 20);
    let open = |id| {
        let before = site.oracle.table(id);
        let table = Table::open(&quiet, id, cache.clone(), site.options.clone()).unwrap();
        let found = both_ways(|direction| table.scan(&KeyRange::all(), direction)).unwrap();
        let manifest = table.manifest();
        let seen = Seen { id, before: &before, range: &manifest.state.range };
        site.oracle.opened(&seen, table.epoch(), &found);
        (table, found)
    };
    for (id, known) in site.oracle.tables() {
        if known.is_deleted {
            // Whoever deleted it may have died before.
            delete(&quiet, id).unwrap();
            continue;
        }
        let (table, found) = open(id);
        table.flush().unwrap();
        let flushed = both_ways(|direction| table.scan(&KeyRange::all(), direction)).unwrap();
        check_equal(&flushed, &found, "after a flush");
        // What only clones and checkpoints need is not what the table needs, too.
        if id.0 % 2 == 0 {
            compact_all(&quiet, id, &cache, &site.options).unwrap();
        }
    }
    // What the last seconds of a clone of a clone held is only seen to be free one after the other.
    for _ in 0..6 {
        for id in table_ids(&*quiet.storage) {
            collect(&quiet, id).unwrap();
        }
        world.pass_time(1_000_000_000);
    }
    check_nothing_is_left(&quiet);
    for (id, _) in site.oracle.tables().into_iter().filter(|(_, known)| !known.is_deleted) {
        open(id);
    }
}

/// Returns all tables, those that are not made yet or deleted, too.
pub fn table_ids(storage: &dyn Storage) -> BTreeSet<TableId> {
    let listed = storage.list("", "").unwrap();
    listed.iter().filter_map(|one| TableId::parse(one.name.split('/').next()?)).collect()
}

/// Every object is one that some table, or checkpoint, refers to.
fn check_nothing_is_left(quiet: &Environment) {
    // The note that the storage has passed the probe.
    let mut needed = BTreeSet::from(["probe/passed".to_owned()]);
    for id in table_ids(&*quiet.storage) {
        let manifest = inspect(quiet, id).unwrap();
        let current = manifest.version.number;
        needed.insert(format!("{id}/manifest/{current:020}"));
        if !quiet.storage.has_ordered_listings() {
            // The landmarks by which it is found.
            let powers = (0..64).map(|bit| 1 << bit).filter(|power| *power <= current);
            let begins = (0..64).map(|bit| current >> bit << bit).filter(|begin| *begin > 0);
            let landmarks = powers.chain(begins);
            needed.extend(landmarks.map(|version: u64| format!("{id}/manifest/{version:020}")));
        }
        let mut states = vec![manifest.clone()];
        for checkpoint in &manifest.state.checkpoints {
            needed.insert(format!("{id}/manifest/{:020}", checkpoint.version.number));
            states.push(inspect_version(quiet, id, checkpoint.version).unwrap());
        }
        for state in states.iter().filter(|of| of.state.phase == Phase::Live) {
            let range = &state.state.range;
            assert!(state.state.sstables().all(|one| range.covers(&one.range)), "beyond {range:?}");
            needed.extend(state.state.sstables().map(|sstable| {
                let (table, name) = (sstable.id.table, sstable.id.name);
                format!("{table}/sst/{:020}-{:010}", name.job, name.number)
            }));
        }
        if manifest.state.phase == Phase::Live {
            needed.extend(segments(quiet, id, &manifest));
        }
    }
    let there = quiet.storage.list("", "").unwrap();
    let there = BTreeSet::from_iter(there.into_iter().map(|one| one.name));
    let left = Vec::from_iter(there.difference(&needed));
    assert!(left.is_empty(), "nobody needs {left:?}");
    let missing = Vec::from_iter(needed.difference(&there));
    assert!(missing.is_empty(), "somebody needs {missing:?}");
}

/// Returns the segments that a table needs: those that its log begins with, and all fences.
fn segments(quiet: &Environment, id: TableId, manifest: &Manifest) -> Vec<String> {
    let mut needed = Vec::new();
    for epoch in 1..=manifest.state.epoch {
        let listed = quiet.storage.list(&format!("{id}/log/{epoch:020}/"), "").unwrap();
        let names = Vec::from_iter(listed.into_iter().map(|one| one.name));
        if epoch < manifest.state.epoch {
            let last = names.last().unwrap_or_else(|| panic!("epoch {epoch} of {id} has no fence"));
            assert!(quiet.storage.read(last).unwrap().starts_with(b"CANOPYF1"), "{last}");
        }
        let start = manifest.state.log.iter().find(|start| start.epoch == epoch);
        let first = start.map(|start| format!("{id}/log/{epoch:020}/{:020}", start.segment));
        let is_last = |at: usize| at + 1 == names.len();
        let of_log = |name: &String| first.as_ref().is_some_and(|first| name >= first);
        let all = names.iter().enumerate();
        let kept = all.filter(|(at, name)| is_last(*at) || of_log(name));
        needed.extend(kept.map(|(_, name)| name.clone()));
    }
    needed
}
