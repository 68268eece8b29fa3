//! Tables on real servers that speak S3's language, started by the tests: Ceph's gateway, which
//! creates an object once, and Garage, which overwrites.

#[path = "../../../store/tests/tables/cases.rs"]
mod cases;
mod ceph;
mod garage;
#[path = "../../../store/tests/tables/place.rs"]
mod place;
mod requests;
mod server;

use canopy_object_storage::BucketStorage;
use canopy_store::storage::{Created, LocalStorage, MemoryStorage, SplitStorage, Storage};
use canopy_store::{Batch, Durability, Error, compact_all, create};
use ceph::Ceph;
use garage::Garage;
use place::{Fixture, contents, key, layout, options, put};
use server::Server;
use std::sync::Arc;

macro_rules! list {
    ($($case:ident)*) => {
        /// All cases that any storage has to pass.
        const CASES: [(&str, fn(&Fixture)); [$(stringify!($case)),*].len()] =
            [$((stringify!($case), cases::$case)),*];
    };
}
cases::each_case!(list);

/// Work that a thread does on storage of its own, and the name of both.
type Work<'a> = (&'a str, &'a (dyn Fn(Arc<dyn Storage>) + Sync));

/// Does all work at once, since a server mostly waits. A thread that fails is shown by its name.
fn beside_each_other(server: &(impl Server + Sync), all: &[Work<'_>]) {
    std::thread::scope(|scope| {
        for (name, work) in all {
            let thread = std::thread::Builder::new().name((*name).to_owned());
            thread.spawn_scoped(scope, || work(server.storage(name))).unwrap();
        }
    });
}

/// One test, since a cluster takes long to start.
#[test]
fn tables_live_on_ceph() {
    let cases = CASES.map(|(name, case)| (name, move |storage| case(&Fixture::new(storage))));
    let mut all: Vec<Work<'_>> = vec![
        ("objects", &|storage| objects_are_created_once_and_listed_in_order(&*storage)),
        ("fences", &two_writers_fence_each_other),
        ("requests", &requests::operations_take_few_requests),
    ];
    all.extend(cases.iter().map(|(name, case)| -> Work<'_> { (name, case) }));
    beside_each_other(&Ceph::start(), &all);
}

#[test]
fn a_store_that_overwrites_is_refused() {
    let garage = Garage::start();
    let place = Fixture::new(garage.storage("alone"));
    let error = create(&place.environment, layout(), &options()).unwrap_err();
    assert!(error.to_string().contains("overwrites objects"), "{error}");
    // Nothing is left of the attempt.
    assert_eq!(place.environment.storage.list("", "").unwrap(), []);
}

#[test]
fn every_case_passes_with_sstables_on_garage() {
    let cases = CASES.map(|(name, case)| {
        let on = move |bucket| {
            let rest = Arc::new(MemoryStorage::default());
            case(&Fixture::new(Arc::new(SplitStorage::new(rest, bucket))));
        };
        (name, on)
    });
    let all = Vec::from_iter(cases.iter().map(|(name, case)| -> Work<'_> { (name, case) }));
    beside_each_other(&Garage::start(), &all);
}

#[test]
fn a_directory_and_a_bucket_hold_a_table_together() {
    let garage = Garage::start();
    let directory = tempfile::tempdir().unwrap();
    let (rest, bucket) = (LocalStorage::new(directory.path()).unwrap(), garage.storage("both"));
    let place = Fixture::new(Arc::new(SplitStorage::new(Arc::new(rest), bucket.clone())));
    let id = place.create();
    for round in 0..3 {
        let table = place.open(id);
        (0..500).for_each(|at| put(&table, &key(round, at), at));
        table.flush().unwrap();
        // In the log, until the next writer reads it.
        put(&table, &key(9, round), round);
        table.sync().unwrap();
    }
    let table = place.open(id);
    assert_eq!(contents(&table).len(), 1503);
    table.flush().unwrap();
    drop(table);
    compact_all(&place.environment, id, &place.cache, &options()).unwrap();
    assert_eq!(place.read(id).len(), 1503);
    // Another table in the same place is listed apart, and as whole.
    let other = place.create();
    let table = place.open(other);
    (0..50).for_each(|at| put(&table, &key(1, at), at));
    table.flush().unwrap();
    drop(table);
    for table in [id, other] {
        assert!(!bucket.list(&format!("{table}/sst/"), "").unwrap().is_empty());
        assert_eq!(bucket.list(&format!("{table}/log/"), "").unwrap(), []);
    }
    assert_eq!(bucket.roots().unwrap().len(), 2);
    let sstables = bucket.list(&format!("{id}/"), "").unwrap();
    assert!(!sstables.is_empty() && sstables.iter().all(|one| one.name.contains("/sst/")));
    assert!(!directory.path().join(format!("{id}/sst")).exists());
    let all = place.environment.storage.list(&format!("{id}/"), "").unwrap();
    assert!(all.len() > sstables.len() && all.is_sorted_by(|one, next| one.name < next.name));
}

fn objects_are_created_once_and_listed_in_order(storage: &dyn Storage) {
    // More than a page of a listing, which has 1,000.
    std::thread::scope(|scope| {
        for part in 0..8 {
            scope.spawn(move || {
                for at in (part..2500).step_by(8) {
                    let created = storage.create(&format!("all/{at:05}"), "bytes".into()).unwrap();
                    assert_eq!(created, Created::Now);
                }
            });
        }
    });
    let names = |after: &str| {
        let listed = storage.list("all/", after).unwrap();
        assert!(listed.iter().all(|one| one.size_bytes == 5));
        Vec::from_iter(listed.into_iter().map(|one| one.name))
    };
    let expected = Vec::from_iter((0..2500).map(|at| format!("all/{at:05}")));
    assert_eq!(names(""), expected);
    assert_eq!(names("all/01999"), expected[2000..]);
    assert_eq!(storage.list("al/", "").unwrap(), []);
    assert_eq!(storage.create("all/00007", "other".into()).unwrap(), Created::ThereWasOne);
    assert_eq!(storage.read("all/00007").unwrap(), "bytes");
    assert_eq!(storage.read_range("all/00007", 1..4).unwrap(), "yte");
    let wanted = [("all/00001", 0..2), ("all/00002", 3..5), ("all/00003", 2..2)];
    assert_eq!(storage.read_ranges(&wanted).unwrap(), ["by", "es", ""]);
    assert!(storage.read_range("all/00007", 3..9).is_err());
    assert_eq!(storage.size("all/00007").unwrap(), 5);
    assert!(storage.size("all").unwrap_err().is_not_found());
    storage.create("other/1", "one".into()).unwrap();
    assert_eq!(storage.roots().unwrap(), ["all", "other"]);
    assert!(storage.read("all/99999").unwrap_err().is_not_found());
    assert!(storage.read_range("all/99999", 0..1).unwrap_err().is_not_found());
    storage.remove("all/00007").unwrap();
    storage.remove("all/00007").unwrap();
    assert!(storage.read("all/00007").unwrap_err().is_not_found());
    let found = storage.create("all/00007", "again".into()).unwrap();
    assert_eq!(found, Created::Now);
}

fn two_writers_fence_each_other(storage: Arc<dyn Storage>) {
    let [one, other] = [(); 2].map(|()| Fixture::new(storage.clone()));
    let id = one.create();
    let mut last = one.open(id);
    for round in 0..6 {
        put(&last, &key(1, round), round);
        last.sync().unwrap();
        let next = if round % 2 == 0 { &other } else { &one }.open(id);
        put(&last, &key(2, round), round);
        assert!(matches!(last.sync(), Err(Error::Fenced(_))));
        last = next;
    }
    let found = contents(&last);
    assert!(found.keys().all(|key| key.directory == 1) && found.len() == 6, "{found:?}");
}

#[test]
fn a_server_that_stops_loses_nothing_that_was_durable() {
    let mut garage = Garage::start();
    let directory = tempfile::tempdir().unwrap();
    let rest = Arc::new(LocalStorage::new(directory.path()).unwrap());
    let place = Fixture::new(Arc::new(SplitStorage::new(rest, garage.storage("stops"))));
    let id = place.create();
    let table = place.open(id);
    (0..100).for_each(|at| put(&table, &key(1, at), at));
    table.flush().unwrap();
    garage.stop();
    let mut batch = Batch::new();
    batch.put(key(1, 100).as_ref(), &100u64.to_le_bytes()).unwrap();
    table.write(&batch, Durability::Durable).unwrap();
    let error = table.flush().unwrap_err().to_string();
    assert!(error.contains("/sst/"), "{error}");
    garage.go_on();
    table.flush().unwrap();
    drop(table);
    assert_eq!(contents(&place.open(id)).len(), 101);
    assert_eq!(place.read(id).len(), 101);
}

#[test]
fn wrong_locations_are_errors() {
    let error = |location: &str| canopy_object_storage::open(location).err().unwrap().to_string();
    assert_eq!(error("s3://"), "s3://: no bucket is named");
    assert_eq!(error("/nonesuch"), "/nonesuch: no such directory");
    assert_eq!(error("/nonesuch+s3://bucket"), "/nonesuch: no such directory");
    assert_eq!(
        error("gs://bucket"),
        "gs://bucket: storage is a directory or s3://BUCKET/PREFIX, not gs"
    );
    let garage = Garage::start();
    for prefix in ["a~b", "a//b", "a/../b", "ü"] {
        let error = BucketStorage::new(garage.builder(), prefix).err().unwrap().to_string();
        assert!(error.contains("characters"), "{error}");
    }
    let nobody = garage.builder().with_secret_access_key("wrong");
    let storage = BucketStorage::new(nobody, "").unwrap();
    let error = storage.list("", "").unwrap_err().to_string();
    assert!(error.contains("403") || error.contains("denied"), "{error}");
    let nowhere = garage.builder().with_bucket_name("nowhere");
    let error = BucketStorage::new(nowhere, "").unwrap().read("a").unwrap_err();
    assert!(!error.to_string().is_empty());
}
