//! Tables that are opened to be read alone, and what a killed writer leaves of its log's room.

use super::*;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// All objects with their bytes.
fn objects(place: &Fixture) -> BTreeMap<String, bytes::Bytes> {
    let storage = &place.environment.storage;
    let listed = storage.list("", "").unwrap();
    listed.into_iter().map(|one| (one.name.clone(), storage.read(&one.name).unwrap())).collect()
}

fn open_read_only(place: &Fixture, id: canopy_store::TableId) -> Option<Table> {
    Table::open_read_only(&place.environment, id, place.cache.clone(), options()).unwrap()
}

#[test]
fn a_table_that_is_opened_to_be_read_changes_nothing_in_storage() {
    // On a full disk a table could not be read at all after a crash.
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    for _ in 0..3 {
        let table = place.open(id);
        (0..100).for_each(|at| add(&table, &key(1, at), 1));
        table.sync().unwrap();
    }
    let segment = directory.path().join(format!("{id}/log/{:020}/{:020}", 3, 0));
    let synced = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, [synced, vec![7; 100]].concat()).unwrap();
    let expected = BTreeMap::from_iter((0..100).map(|at| (key(1, at), 3)));
    let before = objects(&place);
    {
        let table = open_read_only(&place, id).unwrap();
        assert_eq!(contents(&table), expected);
        assert!(matches!(place.try_open(id), Err(Error::Fenced(_))));
        // Changes stay in memory, and merges are seen once.
        put(&table, &key(2, 0), 5);
        table.sync().unwrap();
        table.refresh().unwrap();
        assert_eq!(contents(&table).len(), 101);
        assert_eq!(contents(&table)[&key(1, 7)], 3);
        assert!(!table.is_flushed().unwrap());
        for refused in [table.flush(), table.checkpoint(1000).map(drop)] {
            assert!(refused.unwrap_err().to_string().contains("Read-only file system"));
        }
    }
    assert_eq!(objects(&place), before);
    let table = place.open(id);
    assert_eq!(contents(&table), expected);
    table.flush().unwrap();
    drop(table);
    let table = open_read_only(&place, id).unwrap();
    assert_eq!(contents(&table), expected);
    assert!(table.is_flushed().unwrap());
    drop(table);
    // Without locks, somebody else may write meanwhile.
    let place = Fixture::new(Arc::new(MemoryStorage::default()));
    assert!(open_read_only(&place, place.create()).is_none());
}

#[test]
fn room_that_a_killed_writer_set_aside_is_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    let table = place.open(id);
    put(&table, &key(1, 1), 1);
    table.sync().unwrap();
    drop(table);
    let segment = directory.path().join(format!("{id}/log/{:020}/{:020}", 1, 0));
    let file = File::options().write(true).open(&segment).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4 << 20).unwrap();
    let blocks = || std::fs::metadata(&segment).unwrap().blocks();
    assert!(blocks() >= 8192);
    drop(open_read_only(&place, id));
    assert!(blocks() >= 8192, "nothing is changed for who reads");
    assert_eq!(contents(&place.open(id)), BTreeMap::from([(key(1, 1), 1)]));
    assert!(blocks() <= 16, "{} blocks", blocks());
}
