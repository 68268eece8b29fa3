//! Who compacts, collects, adds files from elsewhere, or reads checkpoints.

use super::{Site, expect_failure, some_question, some_steps};
use crate::model::{Map, Step, both_ways, check_equal};
use crate::oracle::Seen;
use crate::process::Process;
use crate::reads::{self, TableReads};
use crate::settle::table_ids;
use canopy_store::{
    Error, Ingestion, KeyRange, Op, Reader, RecordRef, Result, TableId, checkpoint, collect,
    compact, compact_all, compact_part, inspect, release, renew,
};
use std::sync::Arc;

pub fn compactor(site: &Site, process: &Arc<Process>) {
    for _ in 0..1 + process.below(4) {
        let Some(table) = site.some_table(process) else { return };
        let (environment, tables) = (process.environment(), site.tables(process));
        let compacted = match process.below(5) {
            0 => compact_all(&environment, table, &tables, &site.options),
            1 => compact_part(&environment, table, &tables, &site.options, 500 << process.below(4)),
            _ => compact(&environment, table, &tables, &site.options),
        };
        // Its inputs may be collected if others end its job.
        match compacted {
            Err(Error::NotFound(_)) => {}
            compacted => expect_failure(process, site, table, compacted.map(drop)),
        }
    }
}

/// Collects tables, those that are not made yet, too.
pub fn collector(site: &Site, process: &Arc<Process>) {
    let tables = Vec::from_iter(table_ids(&process.world.disk));
    for _ in 0..1 + process.below(4) {
        let table = tables[process.below(tables.len() as u64) as usize];
        let collected = collect(&process.environment(), table);
        expect_failure(process, site, table, collected.map(drop));
    }
}

/// Adds records as SSTables of its own.
pub fn ingester(site: &Site, process: &Arc<Process>) {
    let Some(table) = site.some_table(process) else { return };
    expect_failure(process, site, table, ingest(site, process, table));
}

fn ingest(site: &Site, process: &Arc<Process>, id: TableId) -> Result<()> {
    let environment = process.environment();
    let range = inspect(&environment, id)?.state.range;
    let mut ingestion = Ingestion::begin(&environment, id, &site.options)?;
    let steps = some_steps(process, &range, process.below(40));
    let (number, steps) = site.oracle.begin_ingestion(
        id,
        &range,
        // Files from elsewhere are records only.
        steps.into_iter().filter(|step| !matches!(step, Step::DeleteRange(_))).collect(),
    );
    for step in &steps {
        let (key, op, value) = match step {
            Step::Put(key, value) => (key, Op::Put, &value[..]),
            Step::Merge(key, operand) => (key, Op::Merge, &operand[..]),
            Step::Delete(key) => (key, Op::Delete, &[][..]),
            Step::DeleteRange(_) => continue,
        };
        match ingestion.add(RecordRef { key: key.as_ref(), op, value }) {
            // Somebody took the key from the table just before this began.
            Err(Error::Invalid(_)) => return Ok(()),
            added => added?,
        }
        if process.below(20) == 0 {
            process.world.pass_time(40);
        }
    }
    ingestion.commit()?;
    site.oracle.ingested(id, number);
    Ok(())
}

/// Makes a checkpoint and reads it for a while.
pub fn reader(site: &Site, process: &Arc<Process>) {
    let Some(table) = site.some_table(process) else { return };
    expect_failure(process, site, table, read(site, process, table));
}

fn read(site: &Site, process: &Arc<Process>, id: TableId) -> Result<()> {
    let environment = process.environment();
    let before = site.oracle.table(id);
    let lifetime_ms = (process.below(3) > 0).then_some(40);
    let (checkpoint, _) = checkpoint(&environment, id, lifetime_ms)?;
    let mut first: Option<Map> = None;
    for _ in 0..1 + process.below(5) {
        let tables = site.tables(process);
        let read = || {
            let reader = Reader::open(&environment, id, Some(checkpoint), &tables, &site.options)?;
            let map = both_ways(|direction| reader.scan(&KeyRange::all(), direction))?;
            let seen = Seen { id, before: &before, range: &reader.range() };
            site.oracle.check_moment(&seen, &map, "a checkpoint");
            reads::check(&site.oracle, id, &reader, &some_question(process))?;
            Ok(map)
        };
        match read() {
            // Its time was over, or somebody's clock said so.
            Err(Error::NotFound(_)) if lifetime_ms.is_some() => return Ok(()),
            // Although the table may be deleted.
            Err(Error::NotFound(what)) => panic!("{what}, which a checkpoint keeps"),
            map => {
                let map = map?;
                if let Some(first) = &first {
                    check_equal(&map, first, "a checkpoint, again");
                }
                first = Some(map);
            }
        }
        if lifetime_ms.is_some() && process.below(2) == 0 {
            match renew(&environment, id, checkpoint, 40) {
                Err(Error::NotFound(_)) => return Ok(()),
                renewed => renewed?,
            }
        }
    }
    match process.below(4) {
        // A reader that dies without a word: what has no deadline is for others to read.
        0 => Ok(()),
        _ => release(&environment, id, checkpoint),
    }
}
