//! Every rule of the records is broken by hand, and mended: nothing is lost, whatever was wrong, and
//! whenever a repair was interrupted.

mod chunks;
mod damages;
mod place;
mod salvage;

use canopy_model::Credentials;
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::{EntryName, LOST_AND_FOUND, Listing, New, Present, ROOT, RenameMode};
use damages::{DAMAGES, Damage};
use place::{Fixture, open};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The size of chunks where contents are such.
const CHUNK_BYTES: u64 = 4096;

/// Mends what is wrong, and fails if not all is well then.
#[track_caller]
fn mend(place: &Fixture, before: &BTreeMap<Vec<u8>, usize>, loses: bool, context: &str) {
    let repaired = place.namespace.repair().unwrap();
    assert!(repaired.left.is_empty(), "{context}: {repaired:#?}");
    assert_eq!(place.faults(), [""; 0], "{context}: {:#?}", repaired.done);
    let after = place.contents();
    for (bytes, count) in before.iter().filter(|_| !loses) {
        let found = after.get(bytes);
        assert!(found >= Some(count), "{context}: lost {}", String::from_utf8_lossy(bytes));
    }
    let again = place.namespace.repair().unwrap();
    assert_eq!(again.done, [""; 0], "{context}");
    // It can be used.
    let id = place.make(ROOT, "new", file_type::REGULAR | 0o600);
    place.write(id, "new", 20_000);
    place.namespace.unlink(ROOT, b"new").unwrap();
    assert_eq!(place.faults(), [""; 0], "{context}");
}

#[test]
fn nothing_is_mended_where_nothing_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let place = Fixture::new(&directory);
    let before = place.contents();
    assert_eq!(before.len(), 5);
    mend(&place, &before, false, "nothing");
    assert!(place.namespace.lookup(ROOT, LOST_AND_FOUND.as_bytes()).is_err());
}

#[test]
fn every_damage_is_found_and_mended() {
    every_damage_is_mended(0);
}

#[test]
fn every_damage_is_mended_where_contents_are_chunks() {
    every_damage_is_mended(CHUNK_BYTES);
}

fn every_damage_is_mended(chunk_bytes: u64) {
    for (name, loses, damage) in DAMAGES {
        let directory = tempfile::tempdir().unwrap();
        let place = Fixture::with(&directory, chunk_bytes);
        let before = place.contents();
        damage(&place);
        assert_ne!(place.faults(), [""; 0], "{name}");
        mend(&place, &before, *loses, name);
    }
}

#[test]
fn lost_files_get_into_no_directory_of_others() {
    for (mode, uid, expected) in
        [(0o700, 0, "lost+found"), (0o755, 0, "lost+found~"), (0o700, 2001, "lost+found~")]
    {
        let directory = tempfile::tempdir().unwrap();
        let place = Fixture::new(&directory);
        let new = New { mode: file_type::DIRECTORY | mode, uid, ..New::default() };
        place.namespace.create(ROOT, LOST_AND_FOUND.as_bytes(), &new, false).unwrap();
        place.put(&place.key("top"), b"?");
        mend(&place, &BTreeMap::new(), true, expected);
        let found = place.inode(expected);
        assert_eq!((found.uid, found.mode & 0o777), (0, 0o700));
        let mut names = 0;
        let tell = |_: canopy_namespace::Entry<'_>| {
            names += 1;
            true
        };
        place.namespace.list(&mut Listing::new(found.id), 0, tell).unwrap();
        assert!(names > 0, "{expected}");
    }
}

#[test]
fn damage_from_before_the_opening_is_mended() {
    for (name, loses, damage) in DAMAGES {
        let directory = tempfile::tempdir().unwrap();
        let place = Fixture::new(&directory);
        let before = place.contents();
        damage(&place);
        let Fixture { namespace, path } = place;
        namespace.close().unwrap();
        drop(namespace);
        let place = Fixture { namespace: open(&path), path };
        mend(&place, &before, *loses, name);
    }
}

#[test]
fn files_with_contents_stay_in_their_places() {
    let directory = tempfile::tempdir().unwrap();
    let place = Fixture::new(&directory);
    for name in ["flags of contents", "counts of links", "flags of extended attributes", "sizes"] {
        DAMAGES.iter().find(|damage| damage.0 == name).unwrap().2(&place);
    }
    place.namespace.repair().unwrap();
    assert_eq!(place.inode("top/small.txt").size, 100);
    assert_eq!(place.inode("top/large.dat").size, 50_000);
    assert_eq!(place.inode("top/sub/linked").nlink, 2);
    assert_eq!(place.inode("").nlink, 4);
    // Missing data does not read as zeros.
    let nothing = place.inode("top/sub/deep/nothing");
    assert!(nothing.has(flag::ABSENT) && nothing.size == 5);
    assert_eq!(
        place.namespace.xattr(place.id("top/small.txt"), b"user.one").unwrap().unwrap(),
        b"1"
    );
    assert!(place.namespace.lookup(ROOT, LOST_AND_FOUND.as_bytes()).is_err());
}

#[test]
fn ways_up_from_a_directory_that_lies_in_itself_end() {
    let directory = tempfile::tempdir().unwrap();
    let place = Fixture::new(&directory);
    let [top, sub, deep] = ["top", "top/sub", "top/sub/deep"].map(|path| place.id(path));
    let is_circle = |(name, _, _): &&Damage| *name == "a directory that lies in itself";
    let (_, _, damage) = DAMAGES.iter().find(is_circle).unwrap();
    damage(&place);
    let namespace = &place.namespace;
    for id in [sub, deep] {
        assert_eq!(namespace.path(id).unwrap(), None);
    }
    assert_eq!(namespace.path(top).unwrap(), Some(b"top".to_vec()));
    let (from, to) = (EntryName::new(ROOT, b"top"), EntryName::new(sub, b"x"));
    let moved = namespace.rename(from, to, RenameMode::Replace);
    assert!(moved.expect_err("no way to the root").is_damage());
    let nobody = Credentials::new(7, []);
    let reached = Present::new(namespace, &nobody).reaches(deep);
    assert!(reached.expect_err("no way to the root").is_damage());
    assert!(!namespace.check(|_| {}).unwrap().is_empty());
}

#[test]
fn several_damages_and_interruptions_are_mended() {
    let seeds = std::env::var("CANOPY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(60) {
        let mut random = StdRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let place = Fixture::with(&directory, [0, CHUNK_BYTES][seed as usize % 2]);
        let before = place.contents();
        let (mut names, mut is_lossy) = (Vec::new(), false);
        for (name, loses, damage) in DAMAGES.sample(&mut random, 4) {
            // What it would damage may be damaged already.
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| ()));
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| damage(&place)));
            std::panic::set_hook(told);
            if done.is_ok() {
                names.push(*name);
                is_lossy |= loses;
            }
        }
        let context = format!("seed {seed}: {names:?}");
        let former = newest_log(&place.path);
        let length = fs::metadata(&former).unwrap().len();
        let copy = directory.path().join("copy");
        let repaired = place.namespace.repair().unwrap();
        assert!(repaired.left.is_empty(), "{context}: {repaired:#?}");
        copy_tree(&place.path, &copy);
        mend(&place, &before, is_lossy, &context);
        // A crash took what was written last.
        let log = newest_log(&copy);
        let is_former = log.strip_prefix(&copy) == former.strip_prefix(&place.path);
        let least = if is_former { length } else { 0 };
        let whole = fs::metadata(&log).unwrap().len();
        let kept = random.random_range(least..=whole);
        fs::File::options().write(true).open(&log).unwrap().set_len(kept).unwrap();
        let place = Fixture { namespace: open(&copy), path: copy };
        mend(&place, &before, is_lossy, &format!("{context}, {kept} of {whole} bytes"));
    }
}

/// The file that the log is written to.
fn newest_log(path: &Path) -> PathBuf {
    let mut found = Vec::new();
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            let is_log = path.components().any(|part| part.as_os_str() == "log");
            match path.is_dir() {
                true => left.push(path),
                false if is_log => found.push(path),
                false => {}
            }
        }
    }
    found.into_iter().max().unwrap()
}

fn copy_tree(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}
