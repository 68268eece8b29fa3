//! Who clones, divides, merges and deletes tables.

use super::writer::Own;
use super::{Site, expect_failure, some_range};
use crate::model::{Layer, Map, both_ways, check_layers, histories_in};
use crate::oracle::Table;
use crate::process::Process;
use crate::reads::TableReads;
use canopy_store::{
    Base, Durability, Error, Key, KeyRange, Reader, Result, TableId, checkpoint, clone, delete,
    release, restrict,
};
use std::sync::Arc;

/// How long a checkpoint is kept that a clone is made of: calls take one millisecond each.
const BASE_MS: u64 = 1000;

/// Clones a table, all of it or a range, and checks that the clone has what it must.
pub fn cloner(site: &Site, process: &Arc<Process>) {
    let Some(id) = site.some_table(process) else { return };
    let before = site.oracle.table(id);
    let range = match process.below(2) {
        0 => KeyRange::all(),
        _ => around(process, before.range(), &before.home),
    };
    let forked = fork(site, process, id, &before, &range);
    expect_failure(process, site, id, forked.map(drop));
}

/// Returns a range of some keys beside `key`.
fn around(process: &Process, within: &KeyRange, key: &Key) -> KeyRange {
    loop {
        let range = some_range(process).intersection(within);
        if range.contains(key.as_ref()) {
            return range;
        }
    }
}

/// Clones a range of a table, if nothing fails that may.
fn fork(
    site: &Site,
    process: &Arc<Process>,
    id: TableId,
    before: &Table,
    range: &KeyRange,
) -> Result<Option<TableId>> {
    let environment = process.environment();
    let base = match process.below(2) {
        0 => None,
        _ => Some(checkpoint(&environment, id, Some(BASE_MS))?.0),
    };
    let new = match clone(&environment, &[Base { table: id, checkpoint: base }], range) {
        // The table's own bases went meanwhile, or the checkpoint's time was over.
        Err(Error::NotFound(_)) => return Ok(None),
        new => new?,
    };
    let Some(map) = read_new(site, process, new) else { return Ok(None) };
    site.oracle.check_clone(id, before, &map, range);
    site.oracle.add_table(new, map, range.clone(), site.oracle.removed(id));
    if let Some(base) = base {
        release(&environment, id, base)?;
    }
    Ok(Some(new))
}

/// Reads a clone that was just made. If storage fails, not a word of it was said to anybody: it is
/// as if its maker had died before.
fn read_new(site: &Site, process: &Arc<Process>, new: TableId) -> Option<Map> {
    let tables = site.tables(process);
    let read = Reader::open(&process.environment(), new, None, &tables, &site.options)
        .and_then(|reader| both_ways(|direction| reader.scan(&KeyRange::all(), direction)));
    match read {
        Ok(map) => Some(map),
        Err(Error::Storage { .. }) => None,
        Err(error) => panic!("a clone that was made: {error}"),
    }
}

/// Hands a range of a table over to a clone, or only takes it away.
pub fn divider(site: &Site, process: &Arc<Process>) {
    let Some(id) = site.some_table(process) else { return };
    expect_failure(process, site, id, divide(site, process, id));
}

fn divide(site: &Site, process: &Arc<Process>, id: TableId) -> Result<()> {
    let environment = process.environment();
    let own = Own::open(site, process, id)?;
    own.flush()?;
    let before = site.oracle.table(id);
    let (kept, given) = sides(process, &before);
    if !histories_in(&given).is_empty() {
        let forked = fork(site, process, id, &before, &given)?;
        if forked.is_none() || process.below(8) == 0 {
            return Ok(());
        }
    }
    site.oracle.restricting(id, &kept);
    restrict(&environment, id, &kept)?;
    site.oracle.restricted(id, &kept);
    // What it writes until it sees the range goes with the next flush.
    for _ in 0..process.below(3) {
        own.write(Durability::Visible)?;
        own.check_table()?;
    }
    own.table.refresh()?;
    own.check_table()?;
    own.flush()?;
    own.check_table()
}

/// Divides a table's range at some key into the side that has its home, and the other.
fn sides(process: &Process, table: &Table) -> (KeyRange, KeyRange) {
    let range = table.range();
    let mut some = (0..10).map(|_| some_range(process).start);
    let middle = some.find(|key| range.contains(key.as_ref())).unwrap_or(table.home.clone());
    let lower = KeyRange { start: range.start.clone(), end: Some(middle.clone()) };
    let upper = KeyRange { start: middle, end: range.end.clone() };
    match lower.contains(table.home.as_ref()) {
        true => (lower, upper),
        false => (upper, lower),
    }
}

/// Makes one table of several, or of several versions of one.
pub fn merger(site: &Site, process: &Arc<Process>) {
    let Some(first) = site.some_table(process) else { return };
    match merge(site, process, first) {
        // Any of the tables may be gone.
        Err(Error::NotFound(_)) => {}
        merged => expect_failure(process, site, first, merged),
    }
}

fn merge(site: &Site, process: &Arc<Process>, first: TableId) -> Result<()> {
    let environment = process.environment();
    let (mut bases, mut layers) = (Vec::new(), Vec::new());
    for at in 0..2 + process.below(2) {
        let more = site.some_table(process).filter(|_| at > 0);
        let table = more.unwrap_or(first);
        let (checkpoint, _) = checkpoint(&environment, table, Some(BASE_MS))?;
        bases.push(Base { table, checkpoint: Some(checkpoint) });
        let tables = site.tables(process);
        let reader = Reader::open(&environment, table, Some(checkpoint), &tables, &site.options)?;
        let map = both_ways(|direction| reader.scan(&KeyRange::all(), direction))?;
        layers.push(Layer { map, range: reader.range(), removed: site.oracle.removed(table) });
    }
    let range = match process.below(2) {
        0 => KeyRange::all(),
        _ => around(process, &KeyRange::all(), &site.oracle.table(first).home),
    };
    let new = clone(&environment, &bases, &range)?;
    let Some(map) = read_new(site, process, new) else { return Ok(()) };
    check_layers(&map, &layers, &range);
    let removed = layers.into_iter().flat_map(|layer| layer.removed);
    site.oracle.add_table(new, map, range, removed.collect());
    for base in bases {
        base.checkpoint.map_or(Ok(()), |id| release(&environment, base.table, id))?;
    }
    Ok(())
}

pub fn deleter(site: &Site, process: &Arc<Process>) {
    let live = site.oracle.tables().iter().filter(|(_, table)| !table.is_deleted).count();
    let Some(table) = site.some_table(process).filter(|_| live > 1) else { return };
    // Whatever the outcome, nobody may rely on it any more.
    site.oracle.mark_deleted(table);
    expect_failure(process, site, table, delete(&process.environment(), table));
}
