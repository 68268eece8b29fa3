//! SlateDB, on files.

use super::{CACHE_BYTES, Engine, MEMTABLES_BYTES, SYNC_INTERVAL, THREADS};
use crate::records::Record;
use anyhow::Result;
use object_store::local::LocalFileSystem;
use slatedb::admin::{Admin, AdminBuilder};
use slatedb::compactor::{CompactionSpec, CompactionStatus, SourceId};
use slatedb::config::{CompactorOptions, CompressionCodec, FlushOptions, FlushType, ScanOptions};
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::{Db, Settings, WriteBatch};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How often the compactor looks for work: as often as that of canopy-store.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

pub struct SlateDb {
    database: Db,
    admin: Admin,
    runtime: Runtime,
}

impl SlateDb {
    pub fn open(directory: &Path, memtable_bytes: usize) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
        let files = LocalFileSystem::new_with_prefix(directory)?.with_fsync(true);
        let files: Arc<dyn object_store::ObjectStore> = Arc::new(files);
        let compactor = CompactorOptions {
            poll_interval: LOOK_INTERVAL,
            commit_compacted_interval: LOOK_INTERVAL,
            ..CompactorOptions::default()
        };
        let settings = Settings {
            flush_interval: Some(SYNC_INTERVAL),
            manifest_poll_interval: LOOK_INTERVAL,
            l0_sst_size_bytes: memtable_bytes,
            max_unflushed_bytes: MEMTABLES_BYTES.max(2 * memtable_bytes),
            compression_codec: Some(CompressionCodec::Lz4),
            compactor_options: Some(compactor),
            ..Settings::default()
        };
        // Blocks, indexes and filters: the cache that is set holds them all.
        let cache = FoyerCacheOptions { max_capacity: CACHE_BYTES as u64, shards: THREADS };
        let cache = Arc::new(FoyerCache::new_with_opts(cache));
        let database = runtime.block_on(
            Db::builder("inodes", files.clone())
                .with_settings(settings)
                .with_db_cache(cache, 1)
                .build(),
        )?;
        let admin = AdminBuilder::new("inodes", files).build();
        Ok(SlateDb { database, admin, runtime })
    }

    fn flush_as(&self, flush_type: FlushType) -> Result<()> {
        let options = FlushOptions { flush_type };
        Ok(self.runtime.block_on(self.database.flush_with_options(options))?)
    }
}

impl Engine for SlateDb {
    fn put(&self, record: Record<'_>) -> Result<()> {
        self.runtime.block_on(self.database.put(record.key, record.value))?;
        Ok(())
    }

    fn put_all(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<()> {
        let mut batch = WriteBatch::new();
        for record in records {
            batch.put(record.key, record.value);
        }
        self.runtime.block_on(self.database.write(batch))?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<bool> {
        Ok(black_box(self.runtime.block_on(self.database.get(key))?).is_some())
    }

    fn scan(&self, directory: Option<u64>, most: usize) -> Result<usize> {
        let options = ScanOptions {
            // Far ahead for everything, as its own documentation has it; not for one directory.
            read_ahead_bytes: if directory.is_none() { 1 << 20 } else { 1 },
            ..ScanOptions::default()
        };
        self.runtime.block_on(async {
            let mut records = match directory {
                Some(directory) => {
                    let prefix = directory.to_be_bytes();
                    self.database.scan_prefix_with_options(prefix, .., &options).await?
                }
                None => {
                    self.database.scan_with_options::<std::ops::RangeFull>(.., &options).await?
                }
            };
            let mut count = 0;
            while count < most
                && let Some(record) = records.next().await?
            {
                black_box(record);
                count += 1;
            }
            Ok(count)
        })
    }

    fn sync(&self) -> Result<()> {
        self.flush_as(FlushType::Wal)
    }

    fn flush(&self) -> Result<()> {
        self.flush_as(FlushType::MemTable)
    }

    fn compact(&self) -> Result<()> {
        while self.runs()? > 1 {
            let manifest = self.database.manifest();
            let runs = manifest.compacted().iter().map(|run| run.id);
            // A run of its own number is replaced; the oldest has the least.
            let destination = runs.clone().min().unwrap_or(0);
            let newest = manifest.l0().iter().map(|view| SourceId::SstView(view.id));
            let sources = newest.chain(runs.map(SourceId::SortedRun)).collect();
            let spec = CompactionSpec::new(sources, destination);
            let compaction = self.runtime.block_on(self.admin.submit_compaction(spec))?;
            loop {
                std::thread::sleep(LOOK_INTERVAL / 10);
                let compaction =
                    self.runtime.block_on(self.admin.read_compaction(compaction.id(), None))?;
                match compaction.map(|compaction| compaction.status()) {
                    Some(CompactionStatus::Completed | CompactionStatus::Failed) | None => break,
                    Some(_) => {}
                }
            }
            // Until this process has seen the manifest.
            std::thread::sleep(LOOK_INTERVAL * 2);
        }
        Ok(())
    }

    fn live_bytes(&self) -> Result<u64> {
        let manifest = self.database.manifest();
        Ok(manifest.all_sst_views().map(|view| view.estimate_size()).sum())
    }

    fn runs(&self) -> Result<u64> {
        let manifest = self.database.manifest();
        Ok((manifest.l0().len() + manifest.compacted().len()) as u64)
    }
}

impl Drop for SlateDb {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.database.close());
    }
}
