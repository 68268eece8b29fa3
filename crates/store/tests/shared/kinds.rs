//! A directory has one kind, and machines are known.

use super::{made, opened};
use canopy_store::storage::{LocalStorage, Machine, SharedDirectory, Storage};
use std::fs;
use std::path::Path;

fn error<T>(result: canopy_store::Result<T>) -> String {
    result.err().unwrap().to_string()
}

#[test]
fn kinds_of_directories_are_not_mixed() {
    let directory = tempfile::tempdir().unwrap();
    let place = made(directory.path());
    place.environment.storage.create("one", "bytes".into()).unwrap();
    let objects = directory.path().join("objects");
    for path in [directory.path(), &objects, &directory.path().join("objects/")] {
        for refused in [LocalStorage::new(path), LocalStorage::existing(path)] {
            let said = error(refused);
            assert!(said.contains("many machines share this directory"), "{said}");
        }
        let opened = SharedDirectory::open(path).unwrap();
        assert_eq!(opened.read("one").unwrap(), "bytes");
    }
    let said = error(SharedDirectory::make(directory.path()));
    assert!(said.contains("share this directory already"), "{said}");

    let local = tempfile::tempdir().unwrap();
    LocalStorage::new(local.path()).unwrap().create("one", "bytes".into()).unwrap();
    let said = error(SharedDirectory::open(local.path()));
    assert!(said.ends_with("not a directory that machines share"), "{said}");
    assert!(SharedDirectory::open(Path::new("/nonesuch")).err().unwrap().is_not_found());

    // Objects of one machine's storage may have any name.
    LocalStorage::new(local.path()).unwrap().create("shared", "other".into()).unwrap();
    LocalStorage::existing(local.path()).unwrap();
    fs::remove_file(local.path().join("shared")).unwrap();
    fs::create_dir(local.path().join("shared")).unwrap();
    LocalStorage::existing(local.path()).unwrap();

    fs::write(directory.path().join("shared"), "CANOPY SHARED DIRECTORY 2\n").unwrap();
    for refused in
        [error(LocalStorage::new(directory.path())), error(SharedDirectory::open(directory.path()))]
    {
        assert!(refused.contains("another version of canopy"), "{refused}");
    }
}

#[test]
fn only_machines_that_were_tried_write() {
    let directory = tempfile::tempdir().unwrap();
    let place = made(directory.path());
    let id = place.create();
    let storage = SharedDirectory::open(directory.path()).unwrap();
    let own = Machine::own();
    assert!(storage.notes().has(&own).unwrap());
    let other = Machine { id: own.id ^ 1, name: "other".into() };
    assert!(!storage.notes().has(&other).unwrap());
    storage.notes().add(&other, Some(&own)).unwrap();
    assert!(storage.notes().has(&other).unwrap());
    let mut names = [own.name.clone(), "other".to_owned()];
    names.sort();
    assert_eq!(storage.notes().names().unwrap(), names);

    // The note of this machine goes, or is damaged.
    let note = directory.path().join(format!("machines/{:016x}", own.id));
    for text in [None, Some(""), Some("2 name\n"), Some("\0\0\0")] {
        match text {
            None => fs::remove_file(&note).unwrap(),
            Some(text) => fs::write(&note, text).unwrap(),
        }
        let place = opened(directory.path());
        assert_eq!(place.read(id).len(), 0);
        let said = error(place.try_open(id));
        let told = format!(
            "machine {} may not write here before it was tried whether it sees in time what others \
             create; run 'canopy store probe {}' on it and, at the same time, on other",
            own.name,
            directory.path().canonicalize().unwrap().display()
        );
        assert!(said.contains(&told), "{said}");
        let said = error(place.environment.storage.remove("anything"));
        assert!(said.contains("may not write here"), "{said}");
    }
    storage.notes().add(&own, None).unwrap();
    opened(directory.path()).open(id);
}
