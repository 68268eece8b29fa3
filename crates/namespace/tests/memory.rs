//! Tablets of one process that share a budget of memory.

use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Moment, Operation, Read};
use canopy_namespace::{
    EntryName, FileId, New, NoOpenFiles, Ownership, ProcessMemory, ROOT, Reply, Settings, Tablet,
    TabletRange, create_table, system_clock,
};
use canopy_store::storage::MemoryStorage;
use canopy_store::{Environment, UpkeepThreads};
use std::borrow::Cow;
use std::sync::Arc;

const BUDGET: u64 = 4 << 20;

fn create(tablet: &Tablet, name: &str) -> FileId {
    let new = Cow::Owned(New { mode: file_type::REGULAR | 0o644, ..New::default() });
    let name = EntryName::new(ROOT, name.as_bytes());
    let create = Change::Create { name, new, holds: false };
    match tablet.execute(&Operation::Change(create)) {
        Ok(Reply::Inode(inode)) => inode.id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tablets_that_share_memory_know_their_own_files() {
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    let clock = system_clock();
    let memory = ProcessMemory::new(&environment, BUDGET);
    let threads = UpkeepThreads::start();
    let (mut tablets, mut care) = (Vec::new(), Vec::new());
    for number in 0..12 {
        let settings = Settings::default();
        let table = create_table(&environment, &settings, Ownership::ROOT, &clock, number == 0);
        let table = memory.open_table(table.unwrap()).unwrap();
        care.push(threads.look_after(&table));
        let (range, files) = (TabletRange::All, Arc::new(NoOpenFiles));
        tablets.push(Tablet::sharing(&memory, table, range, clock.clone(), files).unwrap());
    }
    // The last tablets make few files.
    let files = Vec::from_iter(tablets.iter().enumerate().map(|(number, tablet)| {
        let count = if number < 8 { 1200 } else { 3 };
        Vec::from_iter((0..count).map(|file| {
            let id = create(tablet, &format!("file{file}"));
            let used = memory.memtables().used_bytes();
            assert!(used <= BUDGET / 2 + BUDGET / 16, "{used}");
            id
        }))
    }));
    assert!(care.iter().all(|care| care.failure().is_none()));
    // Their logs were flushed once they were recovered; what came since is in memory.
    let mut idle = tablets[8..].iter().map(|one| one.table().memtable_bytes());
    assert!(idle.all(|bytes| bytes > 0), "idle tables keep their few records in memory");
    for (number, tablet) in tablets.iter().enumerate() {
        for (other, ids) in files.iter().enumerate() {
            for id in ids.iter().step_by(7) {
                let read = Operation::Read(Moment::Now, Read::Inode(*id));
                match tablet.execute(&read) {
                    Ok(Reply::Inode(inode)) => assert_eq!((inode.id, number), (*id, other)),
                    Ok(reply) => panic!("{reply:?}"),
                    Err(_) => assert_ne!(number, other),
                }
            }
        }
    }
}
