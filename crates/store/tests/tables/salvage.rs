//! Damaged files of tables: what can be read of them is kept, and what is lost is known.

use crate::local;
use crate::place::{Fixture, contents, key, options, put};
use canopy_store::storage::LocalStorage;
use canopy_store::{Batch, Durability, Error, Key, Loss, Options, Table, TableId};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// A directory with a table of three runs, and what the table has.
struct Made {
    directory: TempDir,
    id: TableId,
    expected: BTreeMap<Key, u64>,
}

fn made() -> Made {
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    let table = place.open(id);
    let mut expected = BTreeMap::new();
    for at in 0..6000 {
        put(&table, &key(at % 5, at), at);
        expected.insert(key(at % 5, at), at);
    }
    table.flush().unwrap();
    for at in (0..6000).step_by(3) {
        let key = key(at % 5, at);
        let mut batch = Batch::new();
        match at % 2 {
            0 => {
                batch.delete(key.as_ref()).unwrap();
                expected.remove(&key);
            }
            _ => {
                batch.merge(key.as_ref(), &1_000_000u64.to_le_bytes()).unwrap();
                expected.insert(key, at + 1_000_000);
            }
        }
        table.write(&batch, Durability::Visible).unwrap();
    }
    table.flush().unwrap();
    for at in (0..6000).step_by(10) {
        put(&table, &key(at % 5, at), 7);
        expected.insert(key(at % 5, at), 7);
    }
    table.flush().unwrap();
    Made { directory, id, expected }
}

impl Made {
    fn sstables(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory.path().join(format!("{}/sst", self.id))).unwrap();
        let mut paths = Vec::from_iter(entries.map(|entry| entry.unwrap().path()));
        paths.sort();
        paths
    }

    /// Damages a copy, salvages it, and returns what was lost, if anything, and the copy's records.
    #[track_caller]
    fn salvage(&self, path: &Path, damage: impl Fn(&Path)) -> (Vec<Loss>, BTreeMap<Key, u64>) {
        let copy = tempfile::tempdir().unwrap();
        let mut cp = Command::new("cp");
        cp.arg("-a").arg(self.directory.path().join(".")).arg(copy.path());
        assert!(cp.status().unwrap().success());
        damage(&copy.path().join(path.strip_prefix(self.directory.path()).unwrap()));
        let place = local(copy.path());
        let table = place.open(self.id);
        let losses = table.salvage().unwrap();
        assert_eq!(table.damaged_sstables().unwrap(), []);
        let found = contents(&table);
        // Nobody who was killed here misses what was lost.
        assert_eq!(table.salvage().unwrap(), losses);
        for loss in &losses {
            let aside = loss.aside.as_ref().map(|name| copy.path().join(name));
            assert!(aside.is_none_or(|aside| aside.exists()), "{loss:?}");
        }
        table.forget_losses().unwrap();
        assert_eq!(table.salvage().unwrap(), []);
        drop(table);
        assert_eq!(contents(&place.open(self.id)), found);
        (losses, found)
    }

    /// Fails unless each key has its value, or is known to have lost it.
    #[track_caller]
    fn check(&self, losses: &[Loss], found: &BTreeMap<Key, u64>, what: &str) {
        let is_lost = |key: &Key| losses.iter().any(|loss| loss.has(key.as_ref()));
        let is_stale = |key: &Key| {
            losses.iter().any(|loss| {
                loss.has_unknown_stale || loss.stale.iter().any(|stale| stale.key == *key)
            })
        };
        for (key, value) in &self.expected {
            match found.get(key) {
                Some(now) if now == value => {}
                Some(now) => {
                    assert!(is_lost(key) && is_stale(key), "{what}: {key:?} has {now}");
                }
                None => assert!(is_lost(key), "{what}: {key:?} is missing"),
            }
        }
        for key in found.keys().filter(|key| !self.expected.contains_key(*key)) {
            assert!(is_lost(key) && is_stale(key), "{what}: {key:?} is back");
        }
    }
}

/// Flips 200 bytes, or as many as there are.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes.iter_mut().skip(at).take(200).for_each(|byte| *byte ^= 0x5a);
    fs::write(path, bytes).unwrap();
}

#[test]
fn two_hundred_damaged_bytes_anywhere_lose_little_and_nothing_silently() {
    let made = made();
    let paths = made.sstables();
    assert!(paths.len() >= 3, "{paths:?}");
    for path in &paths {
        let length = fs::metadata(path).unwrap().len() as usize;
        for at in (0..length).step_by((length / 12).max(1)).chain([length - 300, length - 40]) {
            let what = format!("{}, byte {at} of {length}", path.display());
            let (losses, found) = made.salvage(path, |path| flip(path, at));
            assert_eq!(losses.len(), 1, "{what}: {losses:?}");
            made.check(&losses, &found, &what);
            let lost: u64 = losses[0].lost.iter().sum();
            // 200 bytes are in two blocks, or in one and the tail.
            assert!(lost <= 2 * 700, "{what}: {lost} records are lost");
        }
    }
}

#[test]
fn a_damaged_tail_alone_loses_nothing() {
    let made = made();
    for path in made.sstables() {
        for bytes in [1, 57, 300] {
            let (losses, found) = made.salvage(&path, |path| {
                let mut all = fs::read(path).unwrap();
                let start = all.len() - bytes;
                all[start..].fill(0);
                fs::write(path, all).unwrap();
            });
            assert_eq!(found, made.expected, "{bytes} bytes of {}", path.display());
            assert_eq!((losses.len(), losses[0].lost), (1, [0; 3]), "{losses:?}");
        }
    }
}

#[test]
fn blocks_are_found_without_the_tail_that_says_where_they_are() {
    let made = made();
    let path = &made.sstables()[0];
    let length = fs::metadata(path).unwrap().len() as usize;
    let (losses, found) = made.salvage(path, |path| {
        flip(path, length / 3);
        flip(path, length - 60);
    });
    made.check(&losses, &found, "a block and the footer");
    let lost: u64 = losses[0].lost.iter().sum();
    assert!(lost > 0 && lost < losses[0].left, "{losses:?}");
    // A file that was cut off.
    let (losses, found) = made.salvage(path, |path| {
        fs::File::options().write(true).open(path).unwrap().set_len(length as u64 / 2).unwrap();
    });
    made.check(&losses, &found, "half of a file");
    assert!(losses[0].left > 0 && losses[0].lost[0] > 0, "{losses:?}");
}

#[test]
fn a_file_that_is_gone_is_lost_whole() {
    let made = made();
    for path in made.sstables() {
        let (losses, found) = made.salvage(&path, |path| fs::remove_file(path).unwrap());
        made.check(&losses, &found, "a missing file");
        assert_eq!((losses[0].left, &*losses[0].what), (0, "is missing"));
    }
}

#[test]
fn several_damaged_files_are_replaced_at_once() {
    let made = made();
    let paths = made.sstables();
    let all = paths.clone();
    let (losses, found) = made.salvage(&paths[0], |first| {
        for path in &all {
            let path = first.with_file_name(path.file_name().unwrap());
            flip(&path, 400);
        }
    });
    assert_eq!(losses.len(), paths.len());
    made.check(&losses, &found, "all files");
}

#[test]
fn a_damaged_log_is_read_past_the_damage() {
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    let table = place.open(id);
    for at in 0..30 {
        put(&table, &key(1, at), at);
        table.sync().unwrap();
    }
    let expected = contents(&table);
    drop(table);
    let mut segments: Vec<PathBuf> = Vec::new();
    for epoch in fs::read_dir(directory.path().join(format!("{id}/log"))).unwrap() {
        let entries = fs::read_dir(epoch.unwrap().path()).unwrap();
        segments.extend(entries.map(|entry| entry.unwrap().path()));
    }
    let segment = segments.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(segment).unwrap();
    bytes[24 + 5 * 47..][..20].fill(0xff);
    fs::write(segment, bytes).unwrap();
    assert!(matches!(place.try_open(id), Err(Error::Corrupt { .. })));
    let lenient = Options { salvages_log: true, ..options() };
    let environment = canopy_store::Environment::system(Arc::new(
        LocalStorage::existing(directory.path()).unwrap(),
    ));
    let table = Table::open(&environment, id, place.cache.clone(), lenient).unwrap();
    let losses = table.salvage().unwrap();
    let found = contents(&table);
    assert!(losses.len() == 1 && losses[0].is_log && losses[0].lost_bytes > 0, "{losses:?}");
    assert!(directory.path().join(losses[0].aside.as_ref().unwrap()).exists());
    let missing = expected.keys().filter(|key| !found.contains_key(*key)).count();
    assert!((1..=3).contains(&missing), "{missing} of 30 are missing");
    assert!(found.iter().all(|(key, value)| expected.get(key) == Some(value)));
    table.forget_losses().unwrap();
    drop(table);
    // It can be opened as ever.
    assert_eq!(contents(&place.open(id)), found);
}

#[test]
fn a_table_becomes_what_it_was_at_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let place: Fixture = local(directory.path());
    let id = place.create();
    let table = place.open(id);
    (0..100).for_each(|at| put(&table, &key(1, at), at));
    table.flush().unwrap();
    let before = contents(&table);
    let checkpoint = table.checkpoint(1 << 30).unwrap();
    (50..200).for_each(|at| put(&table, &key(1, at), 7));
    let mut batch = Batch::new();
    batch.delete(key(1, 3).as_ref()).unwrap();
    table.write(&batch, Durability::Visible).unwrap();
    batch.clear();
    batch.delete_range(&canopy_store::KeyRange::directory(2)).unwrap();
    batch.put(key(2, 1).as_ref(), &9u64.to_le_bytes()).unwrap();
    table.revert(checkpoint, &batch).unwrap();
    let mut expected = before;
    expected.insert(key(2, 1), 9);
    assert_eq!(contents(&table), expected);
    put(&table, &key(1, 1000), 1);
    table.flush().unwrap();
    expected.insert(key(1, 1000), 1);
    drop(table);
    assert_eq!(contents(&place.open(id)), expected);
    assert!(place.open(id).revert(checkpoint + 1, &Batch::new()).is_err());
}
