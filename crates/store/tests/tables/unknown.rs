//! A flush whose outcome storage does not tell.

use super::*;
use canopy_store::collect;

/// Storage that cannot be listed after an object was created, once.
#[derive(Default)]
struct Silent {
    storage: MemoryStorage,
    is_set: AtomicBool,
    has_created: AtomicBool,
}

impl Storage for Silent {
    fn read_range(
        &self,
        name: &str,
        range: std::ops::Range<u64>,
    ) -> canopy_store::Result<bytes::Bytes> {
        self.storage.read_range(name, range)
    }

    fn read(&self, name: &str) -> canopy_store::Result<bytes::Bytes> {
        self.storage.read(name)
    }

    fn create(&self, name: &str, bytes: bytes::Bytes) -> canopy_store::Result<Created> {
        let is_manifest = name.contains("/manifest/");
        self.has_created.fetch_or(is_manifest, Ordering::Relaxed);
        self.storage.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> canopy_store::Result<Vec<Listed>> {
        let is_after = self.has_created.swap(false, Ordering::Relaxed);
        match is_after && self.is_set.swap(false, Ordering::Relaxed) {
            true => Err(Error::storage(prefix, std::io::Error::other("no answer"))),
            false => self.storage.list(prefix, after),
        }
    }

    fn remove(&self, name: &str) -> canopy_store::Result<()> {
        self.storage.remove(name)
    }

    fn append_to(&self, _name: &str) -> canopy_store::Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn lock(&self, _name: &str) -> canopy_store::Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

#[test]
fn merges_that_were_flushed_without_an_answer_are_seen_once() {
    let silent = Arc::new(Silent::default());
    let place = Fixture::new(silent.clone());
    let id = place.create();
    for round in 1..4 {
        let table = place.open(id);
        let flush = || {
            silent.has_created.store(false, Ordering::Relaxed);
            silent.is_set.store(true, Ordering::Relaxed);
            assert!(matches!(table.flush(), Err(Error::Storage { .. })));
            // Both the memtable and the runs of the current manifest have the merge now.
            table.refresh().unwrap();
        };
        // What the log of the one before has.
        if round > 1 {
            flush();
        }
        assert_eq!(contents(&table).get(&key(1, 1)).copied().unwrap_or(0), (round - 1) * 3);
        add(&table, &key(1, 1), 1);
        flush();
        assert_eq!(contents(&table)[&key(1, 1)], round * 3 - 2);
        // SSTables of the next flush are not those of a job that is closed.
        add(&table, &key(1, 1), 1);
        table.flush().unwrap();
        collect(&place.environment, id).unwrap();
        assert_eq!(contents(&table)[&key(1, 1)], round * 3 - 1);
        assert_eq!(place.read(id)[&key(1, 1)], round * 3 - 1);
        add(&table, &key(1, 1), 1);
        table.sync().unwrap();
    }
}
