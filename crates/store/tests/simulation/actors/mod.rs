//! What the processes of a simulation do. Each checks all that it reads against the oracle; errors
//! of storage end it, as they would end a simple program.

mod forks;
mod upkeep;
mod writer;

pub use forks::{cloner, deleter, divider, merger};
pub use upkeep::{collector, compactor, ingester, reader};
pub use writer::writer;

use crate::model::{Append, DIRECTORIES, Step, beside_histories};
use crate::oracle::Oracle;
use crate::process::Process;
use crate::reads::Question;
use canopy_store::{Error, Key, KeyRange, Options, Result, SstableCache, TableId};
use std::sync::Arc;

/// What processes share beside storage: the test's knowledge.
pub struct Site {
    pub oracle: Oracle,
    pub options: Options,
}

impl Site {
    pub fn new(memtable_bytes: u64) -> Self {
        let options = Options {
            memtable_bytes,
            sstable_bytes: 700,
            memory_bytes: 3 * memtable_bytes,
            budget: None,
            log_buffer_bytes: 400,
            log_segments_max: 4,
            fanout: 3,
            grace_ms: 50,
            job_ms: 80,
            // Others would call storage beside the process' own.
            threads: 1,
            salvages_log: false,
            operator: Some(Arc::new(Append)),
        };
        Site { oracle: Oracle::default(), options }
    }

    fn some_table(&self, process: &Process) -> Option<TableId> {
        let mut tables = self.oracle.tables();
        tables.retain(|(_, table)| !table.is_deleted);
        let count = tables.len() as u64;
        (count > 0).then(|| tables[process.below(count) as usize].0)
    }

    fn tables(&self, process: &Arc<Process>) -> Arc<SstableCache> {
        SstableCache::new(&process.environment(), 1 << 20)
    }
}

fn some_key(process: &Process) -> Key {
    let name = format!("name-{}", process.below(12));
    let directory = process.below(DIRECTORIES);
    match process.below(4) {
        0 => Key { directory, hash: process.below(3), name: name.into() },
        _ => Key::named(directory, name.as_bytes()),
    }
}

fn some_range(process: &Process) -> KeyRange {
    match process.below(4) {
        0 => KeyRange::all(),
        1 => KeyRange::directory(process.below(DIRECTORIES)),
        _ => {
            let [one, other] = [(); 2].map(|()| some_key(process));
            let (start, end) = if one < other { (one, other) } else { (other, one) };
            KeyRange { start, end: Some(end) }
        }
    }
}

/// Returns changes of keys in a range, which leave what is the history alone.
fn some_steps(process: &Process, range: &KeyRange, count: u64) -> Vec<Step> {
    let value = || vec![b'a' + process.below(26) as u8; process.below(40) as usize];
    let mut steps = Vec::new();
    for _ in 0..count {
        let key = some_key(process);
        let kind = process.below(40);
        if kind == 0 {
            let removed = some_range(process).intersection(range);
            steps.extend(beside_histories(&removed).into_iter().map(Step::DeleteRange));
        } else if range.contains(key.as_ref()) {
            steps.push(match kind {
                1..8 => Step::Delete(key),
                8..16 => Step::Merge(key, value()),
                _ => Step::Put(key, value()),
            });
        }
    }
    steps
}

fn some_question(process: &Process) -> Question {
    let count = [usize::MAX, usize::MAX, 3][process.below(3) as usize];
    let keys = || Vec::from_iter((0..6).map(|_| some_key(process)));
    match process.below(4) {
        0 => Question::Scan(KeyRange::all(), process.direction(), usize::MAX),
        1 => Question::Scan(some_range(process), process.direction(), count),
        2 => Question::Keys(keys(), true),
        _ => Question::Keys(keys(), false),
    }
}

/// What a process was about when storage failed is not known; anything else is an error of the
/// engine.
fn expect_failure(process: &Process, site: &Site, table: TableId, result: Result<()>) {
    match result {
        Ok(())
        | Err(
            Error::Storage { .. } | Error::Deferred { .. } | Error::Fenced(_) | Error::Contended(_),
        ) => {}
        Err(Error::NotFound(_)) if process.is_dead() || site.oracle.is_deleted(table) => {}
        Err(error) => panic!("{error}"),
    }
}
