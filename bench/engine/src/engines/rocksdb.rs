//! RocksDB.

use super::{CACHE_BYTES, Engine, FILTER_BITS, MEMTABLE_BYTES, MEMTABLES_BYTES, Syncing, THREADS};
use crate::records::Record;
use anyhow::{Context, Result};
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    Options, WriteBatch,
};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

pub struct RocksDb {
    _syncing: Syncing,
    database: Arc<DB>,
}

impl RocksDb {
    pub fn open(directory: &Path, memtable_bytes: usize) -> Result<Self> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_bloom_filter(f64::from(FILTER_BITS), false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_write_buffer_size(memtable_bytes);
        options.set_max_write_buffer_number((MEMTABLES_BYTES / MEMTABLE_BYTES) as i32);
        options.set_max_total_wal_size(memtable_bytes.max(8 * MEMTABLE_BYTES) as u64);
        options.set_max_background_jobs(THREADS as i32);
        options.set_manual_wal_flush(true);
        let database = Arc::new(DB::open(&options, directory)?);
        let synced = database.clone();
        let syncing = Syncing::start(move || {
            synced.flush_wal(true).expect("a log that can be synced");
        });
        Ok(RocksDb { _syncing: syncing, database })
    }

    fn property(&self, name: &str) -> Result<u64> {
        self.database.property_int_value(name)?.context("a property that is there")
    }
}

impl Engine for RocksDb {
    fn put(&self, record: Record<'_>) -> Result<()> {
        Ok(self.database.put(record.key, record.value)?)
    }

    fn put_all(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<()> {
        let mut batch = WriteBatch::default();
        for record in records {
            batch.put(record.key, record.value);
        }
        Ok(self.database.write(batch)?)
    }

    fn get(&self, key: &[u8]) -> Result<bool> {
        Ok(black_box(self.database.get_pinned(key)?).is_some())
    }

    fn scan(&self, directory: Option<u64>, most: usize) -> Result<usize> {
        let start = directory.map(u64::to_be_bytes);
        let mut records = self.database.raw_iterator();
        match &start {
            Some(start) => records.seek(start),
            None => records.seek_to_first(),
        }
        let mut count = 0;
        while count < most
            && let Some((key, value)) = records.item()
        {
            if start.is_some_and(|start| !key.starts_with(&start)) {
                break;
            }
            black_box(value);
            count += 1;
            records.next();
        }
        records.status()?;
        Ok(count)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.flush_wal(true)?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.database.flush()?)
    }

    fn compact(&self) -> Result<()> {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.database.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn live_bytes(&self) -> Result<u64> {
        self.property("rocksdb.live-sst-files-size")
    }

    fn runs(&self) -> Result<u64> {
        // Levels below hold one run each.
        Ok(self
            .database
            .property_value("rocksdb.num-files-at-level0")?
            .map_or(0, |files| files.parse::<u64>().unwrap_or_default())
            + 1)
    }
}
