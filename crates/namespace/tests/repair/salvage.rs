//! Damaged files of records: after a repair all is sound, what was not damaged is as it was, and what
//! is lost or older is reported by path.

use crate::place::open;
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::{
    Contents, FileId, Inode, LOST_AND_FOUND, Listing, Namespace, New, Ownership, Privileges, ROOT,
    SetAttributes, SetXattr, Settings, Upkeep, create_namespace, salvage, system_clock,
};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const DIRECTORIES: usize = 12;
const FILES: usize = 60;

/// A file as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    id: FileId,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    mtime_ns: i64,
    contents: Option<Vec<u8>>,
    target: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

type Tree = BTreeMap<String, Seen>;

fn environment(path: &Path) -> Environment {
    Environment::system(Arc::new(LocalStorage::existing(path).unwrap()))
}

fn tree(namespace: &Namespace) -> Tree {
    let mut found = Tree::new();
    let mut left = vec![(ROOT, String::new())];
    while let Some((directory, path)) = left.pop() {
        let mut names: Vec<(String, Inode)> = Vec::new();
        let tell = |entry: canopy_namespace::Entry<'_>| {
            names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.inode.clone()));
            true
        };
        namespace.list(&mut Listing::new(directory), 0, tell).unwrap();
        for (name, inode) in names {
            let path = format!("{path}/{name}");
            if inode.is_directory() {
                left.push((inode.id, path.clone()));
            }
            let contents = (inode.is_regular() && !inode.has(flag::ABSENT)).then(|| {
                let opened = namespace.open_file(inode.id).unwrap();
                let read = namespace.read(&opened, 0, 1 << 20, false);
                namespace.close_file(&opened).unwrap();
                read.ok()
            });
            let xattrs = namespace.xattrs(inode.id).unwrap().into_iter().map(|name| {
                let value = namespace.xattr(inode.id, &name).unwrap().unwrap();
                (name, value)
            });
            let seen = Seen {
                id: inode.id,
                mode: inode.mode,
                owner: (inode.uid, inode.gid),
                size: inode.size,
                mtime_ns: inode.mtime_ns,
                contents: contents.flatten(),
                target: inode.target.clone(),
                xattrs: xattrs.collect(),
            };
            found.insert(path, seen);
        }
    }
    found
}

struct Made {
    directory: TempDir,
    before: Tree,
}

fn write(namespace: &Namespace, id: FileId, bytes: &[u8]) {
    let opened = namespace.open_file(id).unwrap();
    namespace.write(&opened, Some(0), bytes, Privileges::Keep).unwrap();
    namespace.close_file(&opened).unwrap();
}

/// A namespace with some hundred files in two runs: of what the first has, the second changes and
/// removes some.
fn made(chunk_bytes: u64) -> Made {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("namespace");
    fs::create_dir(&path).unwrap();
    let settings = Settings { chunk_bytes, ..Settings::default() };
    let place = environment(&path);
    create_namespace(&place, &settings, Ownership::ROOT, &system_clock()).unwrap();
    drop(place);
    let namespace = open(&path);
    let make = |parent, name: &str, mode, owner| {
        let new = New { mode, uid: owner, gid: owner, ..New::default() };
        namespace.create(parent, name.as_bytes(), &new, false).unwrap().id
    };
    let mut files = Vec::new();
    for at in 0..DIRECTORIES {
        let parent = make(ROOT, &format!("directory{at}"), file_type::DIRECTORY | 0o755, 7);
        for number in 0..FILES {
            let name = format!("file{number:03}.dat");
            let id = make(parent, &name, file_type::REGULAR | 0o644, 1000 + number as u32 % 3);
            let bytes = if number % 20 == 3 { 9000 } else { number };
            write(&namespace, id, format!("{at} {name} ").repeat(bytes / 10 + 1).as_bytes());
            if number % 7 == 0 {
                let value = format!("value {number}");
                let (name, how) = (b"user.note", SetXattr::Any);
                namespace.set_xattr(id, name, value.as_bytes(), how, Privileges::Keep).unwrap();
            }
            if number % 15 == 0 {
                namespace.link(id, parent, format!("link{number}").as_bytes()).unwrap();
            }
            files.push((parent, name, id));
        }
        let target = New { target: b"file001.dat".to_vec(), ..New::default() };
        let target = New { mode: file_type::SYMLINK | 0o777, ..target };
        namespace.create(parent, b"symlink", &target, false).unwrap();
    }
    namespace.sync().unwrap();
    namespace.table().flush().unwrap();
    for (at, (parent, name, id)) in files.iter().enumerate() {
        match at % 9 {
            1 => drop(namespace.unlink(*parent, name.as_bytes()).unwrap()),
            2 => {
                let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
                namespace.set_attributes(*id, &set, Privileges::Keep).unwrap();
            }
            3 => write(&namespace, *id, b"newer"),
            _ => {}
        }
    }
    namespace.sync().unwrap();
    let before = tree(&namespace);
    namespace.close().unwrap();
    drop(namespace);
    Made { directory, before }
}

impl Made {
    fn copy(&self) -> (TempDir, PathBuf) {
        let copy = tempfile::tempdir().unwrap();
        let mut cp = Command::new("cp");
        cp.arg("-a").arg(self.directory.path().join("namespace")).arg(copy.path());
        assert!(cp.status().unwrap().success());
        let path = copy.path().join("namespace");
        (copy, path)
    }
}

fn sstables(path: &Path) -> Vec<PathBuf> {
    let mut tables = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    // Its parent directory was checked above, below "probe".
    let table = tables.find(|path| path.file_name().is_some_and(|name| name.len() == 32)).unwrap();
    let entries = fs::read_dir(table.join("sst")).unwrap();
    let mut found = Vec::from_iter(entries.map(|entry| entry.unwrap().path()));
    found.sort();
    found
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes.iter_mut().skip(at).take(200).for_each(|byte| *byte ^= 0x5a);
    fs::write(path, bytes).unwrap();
}

/// Opens a damaged namespace and mends it; returns the report.
#[track_caller]
fn mend(path: &Path, what: &str) -> (Namespace, String) {
    let contents = Contents::new(&path.join("contents")).unwrap();
    let opened = Namespace::open(&environment(path), contents, system_clock());
    let namespace = match opened {
        Err(error) => {
            assert!(error.is_damage(), "{what}: {error}");
            salvage(&environment(path)).unwrap();
            open(path)
        }
        Ok(opened) => {
            let faults = opened.check(|_| {}).unwrap();
            assert!(!faults.is_empty(), "{what}: nothing is found");
            opened
        }
    };
    let repaired = namespace.repair().unwrap();
    assert!(repaired.left.is_empty(), "{what}: {repaired:#?}");
    let faults = namespace.check(|_| {}).unwrap();
    assert!(faults.is_empty(), "{what}: {faults:#?}");
    let again = namespace.repair().unwrap();
    assert_eq!(again.done, [""; 0], "{what}");
    (namespace, repaired.done.join("\n"))
}

#[track_caller]
fn compare(before: &Tree, after: &Tree, report: &str, what: &str) {
    let is_named = |path: &str, id: FileId| {
        // A directory of which nothing is known takes what is in it along.
        let mut above = Path::new(path).ancestors().filter_map(Path::to_str);
        above.any(|path| path.len() > 1 && report.contains(&format!("{path}:")))
            || report.contains(&format!("{path},"))
            || report.contains(&format!("file {id}:"))
            || report.contains(&format!("{path} "))
    };
    let named_elsewhere = |seen: &Seen| {
        after.iter().any(|(path, other)| other.id == seen.id && is_named(path, seen.id))
    };
    // Without the end of a file nobody knows which keys it had.
    let is_unknown = report.contains("nothing says of which files");
    for (path, seen) in before.iter().filter(|_| !is_unknown) {
        let now = after.get(path);
        let is_same = now.is_some_and(|now| {
            let times = Seen { mtime_ns: seen.mtime_ns, ..now.clone() };
            let is_directory = seen.mode & 0o170_000 == file_type::DIRECTORY;
            if is_directory { Seen { size: seen.size, ..times } == *seen } else { now == seen }
        });
        if is_same {
            continue;
        }
        assert!(
            is_named(path, seen.id) || named_elsewhere(seen),
            "{what}: {path} is not named: {seen:?}, {now:?}\n{report}"
        );
        if let Some(now) = now {
            let more = now.mode & !seen.mode & 0o7077;
            assert_eq!(more, 0, "{what}: {path}: others may do more: {now:?}\n{report}");
            assert!(
                now.contents.is_none() || now.contents == seen.contents,
                "{what}: {path} has other contents: {now:?}\n{report}"
            );
        }
    }
    for (path, seen) in after.iter().filter(|(path, _)| !before.contains_key(*path)) {
        // Where the removal is lost in both places that have it, nobody knows.
        let is_told = report.contains(&format!("{path}: it may have been removed"));
        let is_private = seen.mode & 0o7077 == 0 && seen.owner.0 == 0;
        let is_found = path.starts_with(&format!("/{LOST_AND_FOUND}"));
        assert!(
            is_found || is_told && is_private || is_unknown,
            "{what}: {path}: {seen:?}\n{report}"
        );
    }
}

fn damage_everywhere(chunk_bytes: u64, steps: usize) {
    let made = made(chunk_bytes);
    let count = sstables(&made.directory.path().join("namespace")).len();
    assert!(count >= 2, "{count}");
    for number in 0..count {
        let original = &sstables(&made.directory.path().join("namespace"))[number];
        let length = fs::metadata(original).unwrap().len() as usize;
        for at in (0..length).step_by((length / steps).max(200)).chain([length - 40]) {
            let (_copy, path) = made.copy();
            flip(&sstables(&path)[number], at);
            let what = format!("byte {at} of {length} of SSTable {number}");
            let (namespace, report) = mend(&path, &what);
            compare(&made.before, &tree(&namespace), &report, &what);
            namespace.close().unwrap();
        }
    }
}

#[test]
fn damage_anywhere_in_records_is_mended_and_named() {
    damage_everywhere(0, 24);
}

#[test]
fn damage_anywhere_is_mended_where_contents_are_chunks() {
    damage_everywhere(4096, 8);
}

#[test]
fn all_records_of_a_file_that_is_gone_are_named() {
    let made = made(0);
    let (_copy, path) = made.copy();
    let newest = sstables(&path).pop().unwrap();
    fs::remove_file(newest).unwrap();
    let (namespace, report) = mend(&path, "a missing file");
    assert!(report.contains("is missing: "), "{report}");
    assert!(report.contains("older records count in their place"), "{report}");
    namespace.close().unwrap();
}

#[test]
fn files_shared_with_a_snapshot_stay_damaged_there_alone() {
    let made = made(0);
    let (_copy, path) = made.copy();
    let namespace = open(&path);
    namespace.create_snapshot("monday").unwrap();
    namespace.close().unwrap();
    drop(namespace);
    let largest = |path: &PathBuf| fs::metadata(path).unwrap().len();
    flip(&sstables(&path).into_iter().max_by_key(largest).unwrap(), 9000);
    let (namespace, report) = mend(&path, "a run that a snapshot shares");
    compare(&made.before, &tree(&namespace), &report, "a run that a snapshot shares");
    let past = namespace.past(b"monday").unwrap();
    let faults = namespace.check_past(&past, false).unwrap();
    assert!(faults[0].to_string().contains("delete the snapshot"), "{faults:?}");
    namespace.delete_snapshot("monday").unwrap();
    namespace.close().unwrap();
}

#[test]
fn intact_records_of_a_snapshot_replace_lost_ones() {
    let made = made(0);
    let (_copy, path) = made.copy();
    let namespace = Arc::new(open(&path));
    namespace.create_snapshot("monday").unwrap();
    // All runs become one: what the snapshot has lies in others.
    for round in 0..6 {
        let mode = file_type::REGULAR | 0o644;
        let new = New { mode, ..New::default() };
        namespace.create(ROOT, format!("new{round}").as_bytes(), &new, false).unwrap();
        namespace.table().flush().unwrap();
    }
    let upkeep = Upkeep::start(&namespace);
    let begun = Instant::now();
    while namespace.table().manifest().state.runs.len() > 1 {
        assert!(begun.elapsed() < Duration::from_secs(30), "runs are not merged");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(upkeep);
    let before = tree(&namespace);
    let state = namespace.table().manifest().state.clone();
    let largest = state.sstables().max_by_key(|one| one.info.size_bytes).unwrap().id;
    let name =
        format!("{}/sst/{:020}-{:010}", largest.table, largest.name.job, largest.name.number);
    drop(namespace);
    let length = fs::metadata(path.join(&name)).unwrap().len() as usize;
    let original = fs::read(path.join(&name)).unwrap();
    let mut is_used = false;
    let copy_of = Made { directory: tempfile::tempdir().unwrap(), before: before.clone() };
    let mut cp = Command::new("cp");
    cp.arg("-a").arg(&path).arg(copy_of.directory.path());
    assert!(cp.status().unwrap().success());
    for at in (0..length).step_by(length / 16) {
        let (_copy, path) = copy_of.copy();
        fs::write(path.join(&name), &original).unwrap();
        flip(&path.join(&name), at);
        let what = format!("byte {at} of {length}");
        let (namespace, report) = mend(&path, &what);
        compare(&before, &tree(&namespace), &report, &what);
        is_used |= report.contains("restored from a snapshot");
        // Only the files that are newer than the snapshot.
        let lost = report.lines().filter(|line| line.contains(": it is lost"));
        lost.for_each(|line| assert!(line.starts_with("/new"), "{what}: {line}"));
        namespace.close().unwrap();
    }
    assert!(is_used, "no damage took contents or attributes");
}

#[test]
fn a_lost_manifest_of_a_snapshot_takes_only_the_snapshot() {
    let made = made(0);
    let (_copy, path) = made.copy();
    let namespace = open(&path);
    namespace.create_snapshot("monday").unwrap();
    namespace.create_snapshot("tuesday").unwrap();
    let checkpoints = namespace.table().checkpoints().unwrap();
    let version = checkpoints[0].version.number;
    let manifest = path.join(format!("{}/manifest/{version:020}", namespace.table().id()));
    let before = tree(&namespace);
    namespace.close().unwrap();
    drop(namespace);
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[20] ^= 1;
    fs::write(&manifest, bytes).unwrap();
    let (namespace, report) = mend(&path, "a manifest of a snapshot");
    assert!(report.contains("snapshot monday is deleted: its records are lost"), "{report}");
    assert_eq!(namespace.snapshots().len(), 1);
    assert_eq!(tree(&namespace), before);
    namespace.close().unwrap();
}

#[test]
fn settings_and_the_name_of_the_table_are_found_again() {
    let made = made(4096);
    let (_copy, path) = made.copy();
    fs::write(path.join("namespace"), "{").unwrap();
    flip(&sstables(&path)[0], 0);
    let (namespace, report) = mend(&path, "the first block");
    assert!(report.contains("the settings may be older ones"), "{report}");
    assert_eq!(namespace.settings().chunk_bytes, 4096);
    compare(&made.before, &tree(&namespace), &report, "the first block");
    namespace.close().unwrap();
}
