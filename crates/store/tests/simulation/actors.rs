//! What the processes of a simulation do. Each checks all that it reads against the oracle; errors
//! of storage end it, as they would end a simple program.

use crate::oracle::{Append, Map, Oracle, Step, both_ways, check_equal, marker};
use crate::world::Process;
use canopy_store::{
    Base, Durability, Error, Key, KeyRange, Options, Reader, Result, Table, TableId, Tables,
    checkpoint, clone, collect, compact, compact_all, delete, release, renew,
};
use std::sync::Arc;

/// What processes share beside storage: the test's knowledge.
pub struct Site {
    pub oracle: Oracle,
    pub options: Options,
    /// Directories that keys are in; few, so that they meet.
    pub directories: u64,
}

impl Site {
    pub fn new(memtable_bytes: u64) -> Self {
        let options = Options {
            memtable_bytes,
            sstable_bytes: 700,
            memory_bytes: 3 * memtable_bytes,
            log_buffer_bytes: 400,
            fanout: 3,
            grace_ms: 50,
            job_ms: 80,
            // Others would call storage beside the process' own.
            threads: 1,
            operator: Some(Arc::new(Append)),
        };
        Site { oracle: Oracle::default(), options, directories: 3 }
    }

    fn some_table(&self, process: &Process) -> Option<TableId> {
        let mut tables = self.oracle.tables();
        tables.retain(|(_, table)| !table.is_deleted);
        let count = tables.len() as u64;
        (count > 0).then(|| tables[process.below(count) as usize].0)
    }

    fn some_key(&self, process: &Process) -> Key {
        let name = format!("name-{}", process.below(12));
        let directory = process.below(self.directories);
        match process.below(4) {
            0 => Key { directory, hash: process.below(3), name: name.into() },
            _ => Key::named(directory, name.as_bytes()),
        }
    }

    fn some_range(&self, process: &Process) -> KeyRange {
        match process.below(4) {
            0 => KeyRange::all(),
            1 => KeyRange::directory(process.below(self.directories)),
            _ => {
                let [one, other] = [(); 2].map(|()| self.some_key(process));
                let (start, end) = if one < other { (one, other) } else { (other, one) };
                KeyRange { start, end: Some(end) }
            }
        }
    }

    fn some_step(&self, process: &Process) -> Step {
        let value = |process: &Process| {
            let length = process.below(40) as usize;
            vec![b'a' + process.below(26) as u8; length]
        };
        match process.below(40) {
            0 => Step::DeleteRange(within_directories(self.some_range(process))),
            1..8 => Step::Delete(self.some_key(process)),
            8..16 => Step::Merge(self.some_key(process), value(process)),
            _ => Step::Put(self.some_key(process), value(process)),
        }
    }

    fn tables(&self, process: &Arc<Process>) -> Arc<Tables> {
        Tables::new(&process.environment(), 1 << 20)
    }
}

/// Leaves the oracle's own record out of a range.
fn within_directories(range: KeyRange) -> KeyRange {
    range.intersection(&KeyRange { end: Some(Key { hash: 0, ..marker() }), ..KeyRange::all() })
}

/// What a process was about when storage failed is not known; anything else is an error of the
/// engine.
fn expect_failure(process: &Process, site: &Site, table: TableId, result: Result<()>) {
    match result {
        Ok(()) | Err(Error::Storage { .. } | Error::Fenced(_) | Error::Contended(_)) => {}
        Err(Error::NotFound(_)) if process.is_dead() || site.oracle.is_deleted(table) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Opens a table, which may be another writer's, and writes for a while.
pub fn writer(site: &Site, process: &Arc<Process>) {
    let Some(table) = site.some_table(process) else { return };
    expect_failure(process, site, table, write(site, process, table));
}

fn write(site: &Site, process: &Arc<Process>, id: TableId) -> Result<()> {
    let environment = process.environment();
    let tables = site.tables(process);
    let table = Table::open(&environment, id, tables.clone(), site.options.clone())?;
    let epoch = table.epoch();
    let found = read_own(&table, &KeyRange::all())?;
    let own = site.oracle.opened(id, epoch, &found);
    for _ in 0..process.below(40) {
        match process.below(24) {
            0 => table.flush()?,
            1 => drop(table.flush_frozen()?),
            2 => drop(compact(&environment, id, &tables, &site.options)?),
            3 => table.refresh()?,
            4 => {
                table.sync()?;
                site.oracle.acknowledged(own);
            }
            5 | 6 => {
                let range = site.some_range(process);
                let map = read_own(&table, &range)?;
                let expected = crate::oracle::within(site.oracle.own(own), &range);
                check_equal(&map, &expected, "what a writer sees of its table");
            }
            7 => check_snapshot(site, process, &table, own)?,
            8 => check_keys(site, process, &table, own)?,
            _ => {
                let steps = (0..=process.below(4)).map(|_| site.some_step(process)).collect();
                let batch = site.oracle.begin_batch(own, steps);
                let durability = match process.below(3) {
                    0 => Durability::Durable,
                    _ => Durability::Visible,
                };
                table.write(&batch, durability)?;
                if durability == Durability::Durable {
                    site.oracle.acknowledged(own);
                }
            }
        }
    }
    Ok(())
}

/// A collector may remove what a writer that missed others' compactions still reads.
fn read_own(table: &Table, range: &KeyRange) -> Result<Map> {
    loop {
        match both_ways(|direction| table.scan(range, direction)) {
            Err(error) if error.is_not_found() => table.refresh()?,
            read => return read,
        }
    }
}

/// Checks that a snapshot stays as it was while the table goes on.
fn check_snapshot(site: &Site, process: &Process, table: &Table, own: usize) -> Result<()> {
    let expected = site.oracle.own(own);
    let snapshot = table.snapshot();
    for _ in 0..process.below(4) {
        let batch = site.oracle.begin_batch(own, vec![site.some_step(process)]);
        table.write(&batch, Durability::Visible)?;
    }
    match both_ways(|direction| snapshot.scan(&KeyRange::all(), direction)) {
        Err(error) if error.is_not_found() => table.refresh(),
        read => {
            check_equal(&read?, &expected, "a snapshot");
            Ok(())
        }
    }
}

/// Checks look-ups of single keys.
fn check_keys(site: &Site, process: &Process, table: &Table, own: usize) -> Result<()> {
    let keys = Vec::from_iter((0..6).map(|_| site.some_key(process)));
    let expected = site.oracle.own(own);
    let values = loop {
        match table.get_many(&keys) {
            Err(error) if error.is_not_found() => table.refresh()?,
            values => break values?,
        }
    };
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(value.as_ref(), expected.get(key), "{key:?}");
    }
    Ok(())
}

pub fn compactor(site: &Site, process: &Arc<Process>) {
    for _ in 0..1 + process.below(4) {
        let Some(table) = site.some_table(process) else { return };
        let (environment, tables) = (process.environment(), site.tables(process));
        let compacted = match process.below(3) {
            0 => compact_all(&environment, table, &tables, &site.options),
            _ => compact(&environment, table, &tables, &site.options),
        };
        // Its inputs may be collected if others end its job.
        match compacted {
            Err(Error::NotFound(_)) => {}
            compacted => expect_failure(process, site, table, compacted.map(drop)),
        }
    }
}

pub fn collector(site: &Site, process: &Arc<Process>) {
    let tables = site.oracle.tables();
    for _ in 0..1 + process.below(4) {
        let table = tables[process.below(tables.len() as u64) as usize].0;
        let collected = collect(&process.environment(), table);
        expect_failure(process, site, table, collected.map(drop));
    }
}

/// Makes a checkpoint and reads it for a while.
pub fn reader(site: &Site, process: &Arc<Process>) {
    let Some(table) = site.some_table(process) else { return };
    expect_failure(process, site, table, read(site, process, table));
}

fn read(site: &Site, process: &Arc<Process>, table: TableId) -> Result<()> {
    let environment = process.environment();
    let lifetime_ms = (process.below(3) > 0).then_some(40);
    let (id, _) = checkpoint(&environment, table, lifetime_ms)?;
    let mut first: Option<Map> = None;
    for _ in 0..1 + process.below(5) {
        let tables = site.tables(process);
        let opened = Reader::open(&environment, table, Some(id), &tables, &site.options);
        let read = opened
            .and_then(|reader| both_ways(|direction| reader.scan(&KeyRange::all(), direction)));
        match read {
            // Its time was over, or somebody's clock said so.
            Err(Error::NotFound(_)) if lifetime_ms.is_some() => return Ok(()),
            read => {
                let map = read?;
                site.oracle.check_some_moment(&map, &KeyRange::all(), "a checkpoint");
                if let Some(first) = &first {
                    check_equal(&map, first, "a checkpoint, again");
                }
                first = Some(map);
            }
        }
        if lifetime_ms.is_some() && process.below(2) == 0 {
            match renew(&environment, table, id, 40) {
                Err(Error::NotFound(_)) => return Ok(()),
                renewed => renewed?,
            }
        }
    }
    match process.below(4) {
        // A reader that dies without a word: what has no deadline is released by hand.
        0 if lifetime_ms.is_some() => Ok(()),
        _ => release(&environment, table, id),
    }
}

/// Clones a table, and checks that the clone has what it must.
pub fn cloner(site: &Site, process: &Arc<Process>) {
    let Some(table) = site.some_table(process) else { return };
    expect_failure(process, site, table, fork(site, process, table));
}

fn fork(site: &Site, process: &Arc<Process>, table: TableId) -> Result<()> {
    let environment = process.environment();
    let base = Base { table, checkpoint: None };
    let new = match clone(&environment, &[base], &KeyRange::all()) {
        // The table's own bases went meanwhile.
        Err(Error::NotFound(_)) => return Ok(()),
        new => new?,
    };
    let read = Reader::open(&environment, new, None, &site.tables(process), &site.options)
        .and_then(|reader| both_ways(|direction| reader.scan(&KeyRange::all(), direction)));
    let map = match read {
        Ok(map) => map,
        // Not a word of this clone was said to anybody: it is as if its maker had died before.
        Err(Error::Storage { .. }) => return Ok(()),
        Err(error) => panic!("a clone that was made: {error}"),
    };
    site.oracle.check_some_moment(&map, &KeyRange::all(), "a clone");
    site.oracle.add_table(new, map);
    Ok(())
}

pub fn deleter(site: &Site, process: &Arc<Process>) {
    let live = site.oracle.tables().iter().filter(|(_, table)| !table.is_deleted).count();
    let Some(table) = site.some_table(process).filter(|_| live > 1) else { return };
    // Whatever the outcome, nobody may rely on it any more.
    site.oracle.mark_deleted(table);
    expect_failure(process, site, table, delete(&process.environment(), table));
}
