//! A directory has one kind, and machines are known.

use super::{key, made, opened, put};
use canopy_store::storage::{Created, LocalStorage, Machine, SharedDirectory, Storage};
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
    let old = "1 name partner\n";
    for text in [None, Some(""), Some(old), Some("3 name\n"), Some("\0\0\0")] {
        match text {
            None => fs::remove_file(&note).unwrap(),
            Some(text) => fs::write(&note, text).unwrap(),
        }
        let place = opened(directory.path());
        assert_eq!(place.read(id).len(), 0);
        let said = error(place.try_open(id));
        let told = format!(
            "machine {} may not write here until a probe has shown that it sees in time what others \
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

/// As if its file system was unmounted: then an empty directory is at its path.
#[test]
fn nothing_is_written_to_another_directory_of_its_path() {
    let place = tempfile::tempdir().unwrap();
    let [path, moved] = ["shared", "moved"].map(|name| place.path().join(name));
    fs::create_dir(&path).unwrap();
    let fixture = made(&path);
    let table = fixture.open(fixture.create());
    let storage = SharedDirectory::open(&path).unwrap();
    storage.create("a/one", "bytes".into()).unwrap();
    fs::rename(&path, &moved).unwrap();
    let other = Machine { id: 1, name: "other".into() };
    for is_there in [false, true] {
        if is_there {
            fs::create_dir(&path).unwrap();
        }
        for name in ["a", "b"].map(|directory| format!("{directory}/{is_there}")) {
            assert_eq!(storage.create(&name, "bytes".into()).unwrap(), Created::Now);
            assert_eq!(fs::read(moved.join("objects").join(&name)).unwrap(), b"bytes");
            assert_eq!(storage.read(&name).unwrap(), "bytes");
        }
        put(&table, &key(1, 1), u64::from(is_there));
        table.sync().unwrap();
        table.flush().unwrap();
        storage.notes().add(&other, None).unwrap();
        assert!(storage.notes().has(&other).unwrap());
        assert_eq!(storage.list("a/", "").unwrap().len(), 2 + usize::from(is_there));
    }
    storage.remove("a/one").unwrap();
    assert!(!moved.join("objects/a/one").exists());
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    assert!(error(SharedDirectory::open(&path)).ends_with("not a directory that machines share"));

    // The directory itself is gone: nothing is made anew.
    drop(table);
    fs::remove_dir_all(&moved).unwrap();
    assert!(storage.create("c/one", "bytes".into()).is_err());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn one_of_many_makes_a_directory_shared() {
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let start = std::sync::Barrier::new(4);
        let make = || {
            start.wait();
            SharedDirectory::make(directory.path()).map(drop).map_err(|error| error.to_string())
        };
        let results = std::thread::scope(|scope| {
            let makers = [(); 4].map(|()| scope.spawn(make));
            makers.map(|maker| maker.join().unwrap())
        });
        let refused = Vec::from_iter(results.iter().filter_map(|made| made.as_ref().err()));
        assert_eq!(refused.len(), 3, "{results:?}");
        for said in refused {
            assert!(said.contains("share this directory already"), "{said}");
        }
        let notes = SharedDirectory::open(directory.path()).unwrap();
        assert!(notes.notes().has(&Machine::own()).unwrap());
    }
}

/// A machine that lost has made no note: none is before the marker.
#[test]
fn a_machine_that_loses_is_not_noted() {
    let directory = tempfile::tempdir().unwrap();
    let machines = directory.path().join("machines");
    drop(made(directory.path()));
    fs::remove_dir_all(&machines).unwrap();
    let said = error(SharedDirectory::make(directory.path()));
    assert!(said.contains("share this directory already") && !machines.exists(), "{said}");
}
