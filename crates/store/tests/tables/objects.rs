//! Finding tables and objects in storage, for those who look into it.

use super::{Fixture, key, local, options, put};
use canopy_store::storage::{LocalStorage, MemoryStorage, Storage};
use canopy_store::{
    Error, Object, ObjectKind, SstableName, TableId, collect, compact_all, create, garbage, inspect,
};
use std::sync::Arc;

/// A table with something of each kind, and garbage.
fn table(place: &Fixture) -> TableId {
    let id = place.create();
    let table = place.open(id);
    for at in 0..100 {
        put(&table, &key(1, at), at);
        if at % 30 == 0 {
            table.flush().unwrap();
        }
    }
    table.sync().unwrap();
    compact_all(&place.environment, id, &place.cache, &options()).unwrap();
    id
}

#[test]
fn objects_are_known_by_their_names_and_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for place in [local(dir.path()), Fixture::new(Arc::new(MemoryStorage::default()))] {
        let id = table(&place);
        let storage = &*place.environment.storage;
        let other = create(&place.environment, super::layout(), &options()).unwrap();
        let mut roots = [id.to_string(), other.to_string()];
        roots.sort();
        assert!(roots.iter().all(|root| storage.roots().unwrap().contains(root)));
        let mut kinds = [0; 3];
        for listed in storage.list(&format!("{id}/"), "").unwrap() {
            let (table, object) = Object::parse(&listed.name).unwrap();
            assert_eq!((table, object.name(id)), (id, listed.name.clone()));
            assert_eq!(storage.size(&listed.name).unwrap(), listed.size_bytes);
            let kind = ObjectKind::of(storage, &listed.name).unwrap();
            let expected = match object {
                Object::Manifest(_) => Some((ObjectKind::Manifest, 0)),
                Object::Sstable(_) => Some((ObjectKind::Sstable, 1)),
                Object::Segment { .. } | Object::LogEnd { .. } => Some((ObjectKind::Segment, 2)),
                Object::Lock => None,
            };
            assert_eq!(kind, expected.map(|(kind, _)| kind), "{}", listed.name);
            expected.into_iter().for_each(|(_, at)| kinds[at] += 1);
        }
        assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
        assert!(matches!(storage.size(&format!("{id}/nothing")), Err(Error::NotFound(_))));
    }
}

#[test]
fn names_that_the_engine_does_not_give_are_none() {
    let table = TableId(0xabc);
    let name = Object::Sstable(SstableName { job: 7, number: 1 }).name(table);
    assert!(Object::parse(&name).is_some());
    for other in [
        name.to_uppercase(),
        name.replace("sst/", "sst/below/"),
        name.replace("-0000000001", "-1"),
        name.replace("sst", "manifest"),
        format!("{name}.old"),
        format!("/{name}"),
        format!("{table}/log/00000000000000000001"),
        format!("{table}/lock/1"),
        format!("{table}/"),
        table.to_string(),
        String::new(),
    ] {
        assert_eq!(Object::parse(&other), None, "{other}");
    }
}

#[test]
fn garbage_is_what_a_collector_removes() {
    let dir = tempfile::tempdir().unwrap();
    let place = local(dir.path());
    let id = table(&place);
    // What a collector gives up is committed before.
    let _ = collect(&place.environment, id).unwrap();
    let last = place.open(id);
    put(&last, &key(1, 1), 1);
    last.flush().unwrap();
    let manifest = inspect(&place.environment, id).unwrap();
    let found = garbage(&place.environment, id, &manifest).unwrap().unwrap();
    let bytes: u64 = found.iter().map(|(listed, _)| listed.size_bytes).sum();
    let count = |is: fn(&Object) -> bool| found.iter().filter(|(_, one)| is(one)).count() as u64;
    let manifests = count(|one| matches!(one, Object::Manifest(_)));
    let collected = collect(&place.environment, id).unwrap();
    assert!(manifests > 0 && !found.is_empty());
    assert_eq!((collected.manifests, collected.bytes), (manifests, bytes));
    assert_eq!(collected.sstables, count(|one| matches!(one, Object::Sstable(_))));
    assert_eq!(collected.segments, count(|one| matches!(one, Object::Segment { .. })));
    let storage = &place.environment.storage;
    assert!(found.iter().all(|(listed, _)| storage.size(&listed.name).is_err()));
}

#[test]
fn storage_that_must_be_there_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    assert!(LocalStorage::existing(&missing).is_err_and(|error| error.is_not_found()));
    assert!(!missing.exists());
    std::fs::write(&missing, "").unwrap();
    assert!(matches!(LocalStorage::existing(&missing), Err(Error::Storage { .. })));
    assert!(LocalStorage::existing(dir.path()).unwrap().roots().unwrap().is_empty());
    let storage = LocalStorage::existing(dir.path()).unwrap();
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    assert!(matches!(storage.size("directory"), Err(Error::Corrupt { .. })));
}
