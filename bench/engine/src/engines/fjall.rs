//! fjall.

use super::{CACHE_BYTES, Engine, FILTER_BITS, MEMTABLE_BYTES, Syncing, THREADS};
use crate::records::Record;
use anyhow::Result;
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::hint::black_box;
use std::path::Path;

pub struct Fjall {
    _syncing: Syncing,
    database: Database,
    keyspace: Keyspace,
}

impl Fjall {
    pub fn open(directory: &Path, memtable_bytes: usize) -> Result<Self> {
        let journals_bytes = memtable_bytes.max(8 * MEMTABLE_BYTES) as u64;
        let database = Database::builder(directory)
            .cache_size(CACHE_BYTES as u64)
            .worker_threads(THREADS)
            .max_journaling_size(journals_bytes)
            .manual_journal_persist(true)
            .open()?;
        let keyspace = database.keyspace("inodes", || {
            let filter = BloomConstructionPolicy::BitsPerKey(FILTER_BITS as f32);
            KeyspaceCreateOptions::default()
                .manual_journal_persist(true)
                .max_memtable_size(memtable_bytes as u64)
                .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(filter)))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        })?;
        let synced = database.clone();
        let syncing = Syncing::start(move || {
            synced.persist(PersistMode::SyncData).expect("a journal that can be synced");
        });
        Ok(Fjall { _syncing: syncing, database, keyspace })
    }
}

impl Engine for Fjall {
    fn put(&self, record: Record<'_>) -> Result<()> {
        Ok(self.keyspace.insert(record.key, record.value)?)
    }

    fn put_all(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<()> {
        let mut batch = self.database.batch();
        for record in records {
            batch.insert(&self.keyspace, record.key, record.value);
        }
        Ok(batch.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<bool> {
        Ok(black_box(self.keyspace.get(key)?).is_some())
    }

    fn scan(&self, directory: Option<u64>, most: usize) -> Result<usize> {
        let records = match directory {
            Some(directory) => self.keyspace.prefix(directory.to_be_bytes()),
            None => self.keyspace.iter(),
        };
        let mut count = 0;
        for record in records.take(most) {
            black_box(record.into_inner()?);
            count += 1;
        }
        Ok(count)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.keyspace.rotate_memtable_and_wait()?)
    }

    fn compact(&self) -> Result<()> {
        Ok(self.keyspace.major_compact()?)
    }

    fn live_bytes(&self) -> Result<u64> {
        Ok(self.keyspace.disk_space())
    }

    fn runs(&self) -> Result<u64> {
        // Levels below hold one run each.
        Ok(self.keyspace.l0_table_count() as u64 + 1)
    }
}
