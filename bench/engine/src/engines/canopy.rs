//! canopy-store, on files, with its own threads for flushes and compaction.

use super::{CACHE_BYTES, Engine, MEMTABLES_BYTES, THREADS};
use crate::records::{CHANGED, Record, Records, key_of};
use anyhow::{Context, Result};
use canopy_store::storage::LocalStorage;
use canopy_store::{
    Batch, Direction, Durability, Environment, Ingestion, KeyRange, KeyRef, MergeOperator, Op,
    Options, RecordRef, SstableCache, Table, TableId, Upkeep, compact_all, create,
};
use std::cell::RefCell;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Canopy {
    // Ends before the table.
    _upkeep: Upkeep,
    table: Arc<Table>,
    environment: Environment,
    cache: Arc<SstableCache>,
    options: Options,
    batch: RefCell<Batch>,
}

/// Puts the parts of an operand in the places of [`CHANGED`].
struct Change;

impl MergeOperator for Change {
    fn name(&self) -> &str {
        "size and times"
    }

    fn apply(&self, _: KeyRef<'_>, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        let mut value = value.unwrap_or_default().to_vec();
        for (place, part) in CHANGED.into_iter().zip(operand.chunks(8)) {
            if let Some(place) = value.get_mut(place) {
                place.copy_from_slice(part);
            }
        }
        value
    }

    fn combine(&self, _: KeyRef<'_>, _: &[u8], second: &[u8]) -> Vec<u8> {
        second.to_vec()
    }
}

impl Canopy {
    pub fn open(directory: &Path, records: &Records, memtable_bytes: usize) -> Result<Self> {
        let environment = Environment::system(Arc::new(LocalStorage::new(directory)?));
        let options = Options {
            memtable_bytes: memtable_bytes as u64,
            memory_bytes: MEMTABLES_BYTES.max(memtable_bytes) as u64,
            threads: THREADS,
            operator: Some(Arc::new(Change)),
            ..Options::default()
        };
        let cache = SstableCache::new(&environment, CACHE_BYTES as u64);
        let name = directory.join("table");
        let id: TableId = match std::fs::read_to_string(&name) {
            Ok(id) => TableId::parse(&id).context("not an id")?,
            Err(_) => {
                let id = create(&environment, records.layout(), &options)?;
                std::fs::write(name, id.to_string())?;
                id
            }
        };
        let table = Arc::new(Table::open(&environment, id, cache.clone(), options.clone())?);
        let upkeep = Upkeep::start(&table);
        let batch = RefCell::default();
        Ok(Canopy { _upkeep: upkeep, table, environment, cache, options, batch })
    }
}

impl Engine for Canopy {
    fn put(&self, record: Record<'_>) -> Result<()> {
        self.put_all(&mut std::iter::once(record))
    }

    fn put_all(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<()> {
        let mut batch = self.batch.borrow_mut();
        batch.clear();
        for record in records {
            batch.put(key_of(record.key), record.value)?;
        }
        Ok(self.table.write(&batch, Durability::Visible)?)
    }

    fn has_change(&self) -> bool {
        true
    }

    fn change(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        let mut batch = self.batch.borrow_mut();
        batch.clear();
        batch.merge(key_of(key), operand)?;
        Ok(self.table.write(&batch, Durability::Visible)?)
    }

    fn get(&self, key: &[u8]) -> Result<bool> {
        Ok(black_box(self.table.get(key_of(key))?).is_some())
    }

    fn scan(&self, directory: Option<u64>, most: usize) -> Result<usize> {
        let range = directory.map_or_else(KeyRange::all, KeyRange::directory);
        let mut scan = self.table.scan(&range, Direction::Forward)?;
        let mut count = 0;
        while count < most
            && let Some(record) = scan.next()?
        {
            black_box(record);
            count += 1;
        }
        Ok(count)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.table.sync()?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.table.flush()?)
    }

    fn compact(&self) -> Result<()> {
        while self.runs()? > 1 {
            let id = self.table.id();
            if !compact_all(&self.environment, id, &self.cache, &self.options)? {
                // One that began by itself is under way.
                std::thread::sleep(Duration::from_millis(10));
            }
            self.table.refresh()?;
        }
        Ok(())
    }

    fn live_bytes(&self) -> Result<u64> {
        Ok(self.table.manifest().state.runs.iter().map(|run| run.size_bytes()).sum())
    }

    fn runs(&self) -> Result<u64> {
        Ok(self.table.manifest().state.runs.len() as u64)
    }

    fn merge_runs(&self, records: &Records) -> Result<Option<Duration>> {
        const RUNS: usize = 8;
        let id = create(&self.environment, records.layout(), &self.options)?;
        for run in 0..RUNS {
            let part = (run * records.len() / RUNS)..((run + 1) * records.len() / RUNS);
            let large = Options { memtable_bytes: 1 << 40, ..self.options.clone() };
            let mut ingestion = Ingestion::begin(&self.environment, id, &large)?;
            for at in part {
                let Record { key, value } = records.shuffled(at);
                ingestion.add(RecordRef { key: key_of(key), op: Op::Put, value })?;
            }
            ingestion.commit()?;
        }
        let begin = Instant::now();
        compact_all(&self.environment, id, &self.cache, &self.options)?;
        let took = begin.elapsed();
        canopy_store::delete(&self.environment, id)?;
        Ok(Some(took))
    }
}
