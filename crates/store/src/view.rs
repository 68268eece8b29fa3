//! A state of a table that can be read: memtables and runs, the newest first.

use crate::error::Result;
use crate::key::{Key, KeyRange, KeyRef};
use crate::manifest::State;
use crate::memtable::{Found, Memtable};
use crate::merge::{MergeOperator, Resolution};
use crate::record::Op;
use crate::runs::{FoundInRun, OpenRun, SstableCache};
use crate::scan::{Direction, MemtableSource, Older, Scan, ScanInput};
use crate::sstable::fingerprint;
use std::sync::Arc;

/// The blocks of so many keys are read together. They have to stay in the cache until then.
const PRELOADED_KEYS: usize = 256;

/// Memtables and runs that belong together.
#[derive(Clone)]
pub(crate) struct Layers {
    /// The newest first.
    pub(crate) memtables: Vec<Arc<Memtable>>,
    /// The newest first.
    pub(crate) runs: Arc<Vec<OpenRun>>,
    /// The keys that count.
    pub(crate) range: KeyRange,
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
}

impl Layers {
    /// Returns what a manifest's SSTables say.
    pub(crate) fn of(
        state: &State,
        cache: &Arc<SstableCache>,
        operator: Option<Arc<dyn MergeOperator>>,
    ) -> Self {
        let runs = Arc::new(OpenRun::all(&state.runs, cache));
        Layers { memtables: Vec::new(), runs, range: state.range.clone(), operator }
    }

    /// Returns the value of a key as a reader at `sequence` sees it.
    pub(crate) fn get(&self, key: KeyRef<'_>, sequence: u64) -> Result<Option<Vec<u8>>> {
        if !self.range.contains(key) {
            return Ok(None);
        }
        let mut resolution = Resolution::new(self.operator.as_deref());
        let fingerprint = fingerprint(key);
        for memtable in &self.memtables {
            match memtable.get(key, fingerprint, sequence, &mut resolution) {
                Found::Older => {}
                Found::Value(value) => return Ok(resolution.finish(key, Some(value))),
                Found::Nothing => return Ok(resolution.finish(key, None)),
            }
        }
        for run in OpenRun::asked(&self.runs, key, fingerprint) {
            let (found, hides_older) = run.get(key, fingerprint)?;
            match found {
                FoundInRun::Record(Op::Put, value) => {
                    return Ok(resolution.finish(key, Some(value)));
                }
                FoundInRun::Record(Op::Delete, _) | FoundInRun::Nothing => break,
                FoundInRun::Record(Op::Merge, operand) => resolution.older(key, &operand),
                FoundInRun::Older => {}
            }
            if hides_older {
                break;
            }
        }
        Ok(resolution.finish(key, None))
    }

    /// Returns the values of keys, in their order.
    pub(crate) fn get_many(&self, keys: &[Key], sequence: u64) -> Result<Vec<Option<Vec<u8>>>> {
        // In the order of keys, so that neighbours find their block in the cache.
        let mut order = Vec::from_iter(0..keys.len());
        order.sort_unstable_by(|one, other| keys[*one].cmp(&keys[*other]));
        let mut values = vec![None; keys.len()];
        for some in order.chunks(PRELOADED_KEYS) {
            let wanted = some.iter().map(|at| keys[*at].as_ref());
            let wanted = Vec::from_iter(wanted.filter(|key| self.range.contains(*key)));
            let first = self.runs.first();
            let _open = first.map(|run| run.cache().preload(&self.runs, &wanted)).transpose()?;
            for at in some {
                values[*at] = self.get(keys[*at].as_ref(), sequence)?;
            }
        }
        Ok(values)
    }

    /// Returns the records of a range as a reader at `sequence` sees them.
    pub(crate) fn scan(
        &self,
        range: &KeyRange,
        sequence: u64,
        direction: Direction,
    ) -> Result<Scan> {
        let range = self.range.intersection(range);
        let mut inputs = Vec::new();
        if !range.is_empty() {
            for memtable in &self.memtables {
                let (memtable, operator) = (memtable.clone(), self.operator.clone());
                let range_deletes = memtable.range_deletes(sequence);
                let source =
                    MemtableSource::new(memtable, range.clone(), sequence, direction, operator);
                inputs.push(ScanInput { source: Box::new(source), range_deletes });
            }
            for run in &*self.runs {
                inputs.push(ScanInput::of_run(run, &range, direction)?);
            }
        }
        Ok(Scan::new(inputs, direction, Older::Absent, self.operator.clone()))
    }
}
