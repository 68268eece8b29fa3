//! What is wrong with the directory of a cache, and what somebody has put there.

use crate::place::{CHUNK, Fixture};
use canopy_namespace::{Error, FileId};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

/// A namespace that is not open, whose cache has the chunk of a file.
fn closed() -> (Fixture, FileId) {
    let mut place = Fixture::new();
    let file = place.create("file");
    place.write(&file, 0, 1, 2 * CHUNK);
    place.sync(&file);
    let id = file.id();
    place.namespace().close_file(&file).expect("closed");
    place.namespace = None;
    (place, id)
}

#[test]
fn a_cache_that_others_can_write_is_refused() {
    for below in ["", "stored", "local"] {
        let (place, _) = closed();
        let directory = place.cached().join(below);
        let refused = || match place.opened().map(drop) {
            Err(Error::Invalid(what)) => assert!(what.contains("a cache has to belong"), "{what}"),
            other => panic!("{below}: {other:?}"),
        };
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).expect("a mode");
        refused();
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("a mode");
        assert!(rustix::process::geteuid().is_root(), "giving directories away needs root");
        chown(&directory, Some(1234), Some(1234)).expect("an owner");
        refused();
        chown(&directory, Some(0), Some(0)).expect("an owner");
        place.opened().map(drop).expect("a namespace");
        // Not even one that leads to a good place.
        let aside = place.cache.path().join("aside");
        fs::rename(&directory, &aside).expect("a rename");
        symlink(&aside, directory.components().as_path()).expect("a link");
        place.opened().map(drop).expect_err("an error");
    }
}

#[test]
fn links_in_a_cache_are_not_followed() {
    let (mut place, id) = closed();
    let cached = place.cached();
    let (stored, local) = (cached.join("stored"), cached.join("local"));
    let elsewhere = place.cache.path().join("elsewhere");
    let mut names = Vec::new();
    for entry in fs::read_dir(&stored).expect("a directory") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, &elsewhere).expect("a copy");
        fs::remove_file(&path).expect("a file gone");
        symlink(&elsewhere, &path).expect("a link");
        names.push(path);
    }
    assert_eq!(names.len(), 2);
    symlink(&elsewhere, local.join("0")).expect("a link");
    rustix::fs::mkfifoat(rustix::fs::CWD, stored.join("pipe"), rustix::fs::Mode::RWXU)
        .expect("a pipe");
    let before = fs::read(&elsewhere).expect("bytes");
    place.namespace = Some(place.opened().expect("a namespace"));
    let file = place.open(id);
    let read = place.namespace().read(&file, 0, 9 * CHUNK, false).expect("bytes");
    assert!(read == vec![1; 2 * CHUNK]);
    place.write(&file, 5, 2, 5 * CHUNK);
    place.sync(&file);
    assert!(fs::read(&elsewhere).expect("bytes") == before);
    for name in names {
        // It was removed, or fetched anew.
        assert!(fs::symlink_metadata(&name).map_or(true, |found| found.is_file()));
    }
    assert_eq!(place.faults(), Vec::<String>::new());
}
