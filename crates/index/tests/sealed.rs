//! Rows that are found by name behind a gate, updated many times: the last listing counts, and an
//! update writes no more than it changes.

use canopy_index::column::{LISTING, NAME, PATH, SIZE};
use canopy_index::fuzzing::unsealed;
use canopy_index::{
    Disk, Due, Faults, FileKind, NewSource, Result, SelectedDirectory, SourceId, Writer,
    WriterOptions,
};
use canopy_model::{
    Approach, Attributes, Device, Listing, Permissions, Rows, SourcePath, is_below, join,
    join_absolute,
};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The directory in which others find by name what they may.
const GATE: &str = "gate";

/// Files of each directory with their sizes. Directories are below [`GATE`], or in front of it.
type Tree = BTreeMap<String, BTreeMap<String, i64>>;

fn attributes(path: &str) -> Attributes {
    let mode = if path == GATE { 0o040_711 } else { 0o040_755 };
    Attributes { mode, ino: path.len() as u64, ..Attributes::default() }
}

fn source() -> NewSource {
    NewSource {
        name: None,
        root: "/a".to_owned(),
        dev: Device(1),
        scanned_ns: 0,
        attributes: attributes(""),
        approach: Approach::EVERYONE,
        xattrs: Vec::new(),
        scan: None,
    }
}

/// Hands over the listings of some directories.
fn push(writer: &Writer, begun: SourceId, tree: &Tree, paths: &BTreeSet<String>) -> Result<()> {
    let mut sinks = writer.shard_writers(begun);
    for path in paths {
        let Some(files) = tree.get(path) else { continue };
        let mut rows = Rows::default();
        for (name, &size_bytes) in files {
            rows.push(
                name,
                Attributes { mode: 0o100_644, size_bytes, ..Attributes::default() },
                "",
            );
        }
        for below in tree.keys() {
            let name = below.strip_prefix(path.as_str()).unwrap_or("").trim_start_matches('/');
            if !name.is_empty() && join(path, name) == *below && !name.contains('/') {
                rows.push(name, attributes(below), "");
            }
        }
        let classes = writer.classes();
        let (mut approach, mut above) = (Approach::EVERYONE, String::new());
        let access = |approach: &Approach, path: &str| {
            let mode = attributes(path).mode;
            let permissions = Permissions { mode, uid: 1000, gid: 1000, acl: None, unknown: false };
            classes.access(approach, permissions)
        };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let access = access(&approach, &above);
            above = join(&above, name);
            approach = classes.below(&access, || join_absolute("/a", &above));
        }
        sinks[0].push(&Listing {
            path: SourcePath::escaped(path),
            depth: path.split('/').filter(|name| !name.is_empty()).count() as u32,
            part: 0,
            dev: Device(1),
            directory: &attributes(path),
            access: &access(&approach, path),
            rows: &rows,
        })?;
    }
    writer.finish_shards(sinks)
}

fn options(disk: Disk) -> WriterOptions {
    WriterOptions { disk, keep_replaced: false, ..WriterOptions::default() }
}

fn publish(index: &Path, tree: &Tree) {
    let mut writer = Writer::open(index, options(Disk::default())).unwrap();
    let begun = writer.add_source(source()).unwrap();
    push(&writer, begun, tree, &tree.keys().cloned().collect()).unwrap();
    writer.publish().unwrap();
}

/// Publishes what has changed: directories, each with whether all below it is listed too.
fn refresh(
    index: &Path,
    disk: Disk,
    tree: &Tree,
    suspects: &BTreeSet<(String, bool)>,
) -> Result<()> {
    let mut writer = Writer::open(index, options(disk))?;
    let selected = suspects.iter().map(|(path, whole)| {
        let path = SourcePath::escaped(path).to_buf();
        SelectedDirectory { path, whole: *whole }
    });
    let begun = writer.refresh_source(source(), selected)?;
    let is_listed = |path: &String| {
        suspects.iter().any(|(suspect, whole)| suspect == path || *whole && is_below(path, suspect))
    };
    push(&writer, begun, tree, &tree.keys().filter(|path| is_listed(path)).cloned().collect())?;
    writer.publish().map(drop)
}

/// Compares all that others find by name with the tree; `gone` was there once.
fn assert_found(index: &Path, tree: &Tree, gone: &BTreeSet<String>) {
    let entries: BTreeSet<String> = tree[GATE].keys().map(|name| join(GATE, name)).collect();
    let passages: BTreeSet<&String> =
        tree.keys().filter(|path| path.matches('/').count() == 1).collect();
    for path in entries.iter().chain(passages.iter().copied()).chain(gone) {
        let is_passage = passages.contains(path);
        let is_there = is_passage || entries.contains(path);
        let (records, shards) = unsealed(index, &join_absolute("/a", path)).unwrap();
        assert_eq!(records.len(), usize::from(is_there), "{path}");
        let mut found = BTreeMap::new();
        for shard in shards {
            let all = [0..shard.rows(FileKind::Listings)];
            let mut paths = Vec::new();
            for batch in shard.read(FileKind::Listings, PATH, &all, 1000).unwrap() {
                let batch = batch.unwrap();
                paths.extend(PATH.of(&batch).unwrap().iter().flatten().map(str::to_owned));
            }
            let all = [0..shard.rows(FileKind::Entries)];
            if all[0].is_empty() {
                continue;
            }
            let columns = LISTING | NAME | SIZE;
            for batch in shard.read(FileKind::Entries, columns, &all, 1000).unwrap() {
                let batch = batch.unwrap();
                let (listings, names) = (LISTING.of(&batch).unwrap(), NAME.of(&batch).unwrap());
                for at in 0..batch.num_rows() {
                    let path = join(&paths[listings.value(at).row()], names.value(at));
                    let size = SIZE.of(&batch).unwrap()[at];
                    assert_eq!(found.insert(path.clone(), size), None, "{path} counts twice");
                }
            }
        }
        let below = tree.iter().filter(|(other, _)| is_passage && is_below(other, path));
        let expected: BTreeMap<String, i64> = below
            .flat_map(|(path, files)| {
                files.iter().map(move |(name, size)| (join(path, name), *size))
            })
            .collect();
        assert_eq!(found, expected, "behind {path}");
    }
}

fn files(index: &Path, end: &str) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(index).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            let bytes = path.metadata().unwrap().len();
            found.insert(path, bytes);
        }
    }
    found
}

/// A gate with passages; behind the first lie enough files for a shard.
fn tree(passages: usize, each: usize) -> Tree {
    let sizes = |count: usize| (0..count).map(|at| (format!("f{at}"), at as i64)).collect();
    let mut tree = Tree::from([(String::new(), sizes(3)), (GATE.to_owned(), sizes(20))]);
    for passage in 0..passages {
        let path = format!("{GATE}/p{passage}");
        for at in 0..each {
            tree.insert(format!("{path}/d{at}"), sizes(5));
        }
        tree.insert(path, sizes(2));
    }
    tree.insert(format!("{GATE}/p0/big"), sizes(5000));
    tree
}

#[test]
fn names_behind_gates_lead_to_the_last_listing() {
    let mut random = StdRng::seed_from_u64(14);
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let mut tree = tree(5, 6);
    let mut gone = BTreeSet::new();
    publish(&index, &tree);
    assert_found(&index, &tree, &gone);
    for round in 0..150 {
        let behind = tree.keys().filter(|path| path.matches('/').count() > 0);
        let path = behind.choose(&mut random).unwrap().clone();
        let name = format!("n{}", random.random_range(0..40));
        let suspects = match random.random_range(0..12) {
            0 => {
                tree.retain(|other, _| !is_below(other, &path));
                let (above, _) = path.rsplit_once('/').unwrap();
                gone.extend((above == GATE).then(|| path.clone()));
                BTreeSet::from([(above.to_owned(), false)])
            }
            1 => {
                let new = format!("{GATE}/q{round}");
                tree.insert(join(&new, "x"), BTreeMap::from([(name.clone(), 7)]));
                tree.insert(new.clone(), BTreeMap::from([(name, round)]));
                BTreeSet::from([(GATE.to_owned(), false), (new, true)])
            }
            2 => {
                for (_, files) in tree.iter_mut().filter(|(other, _)| is_below(other, &path)) {
                    files.values_mut().for_each(|size| *size += 1);
                }
                BTreeSet::from([(path, true)])
            }
            3 | 4 => {
                let files = tree.get_mut(GATE).unwrap();
                if let Some((name, _)) = files.pop_first() {
                    gone.insert(join(GATE, &name));
                }
                gone.remove(&join(GATE, &name));
                files.insert(name, round);
                BTreeSet::from([(GATE.to_owned(), false)])
            }
            _ => {
                tree.get_mut(&path).unwrap().insert(name, round);
                BTreeSet::from([(path, false)])
            }
        };
        if tree.keys().all(|path| path.matches('/').count() != 1) {
            tree.insert(format!("{GATE}/last"), BTreeMap::new());
        }
        let disk = match round % 5 {
            0 => {
                let after = random.random_range(0..40);
                Disk::with_faults(Faults::new(after, rustix::io::Errno::IO.raw_os_error(), false))
            }
            _ => Disk::default(),
        };
        if refresh(&index, disk, &tree, &suspects).is_err() {
            refresh(&index, Disk::default(), &tree, &suspects).unwrap();
        }
        if random.random_bool(0.05) {
            let mut writer = Writer::open(&index, options(Disk::default())).unwrap();
            let compacted = writer.compact(Due::Any, usize::MAX, || false).unwrap().unwrap();
            writer.publish().unwrap();
            let mut again = Writer::open(&index, options(Disk::default())).unwrap();
            let nothing = again.compact(Due::Any, usize::MAX, || false).unwrap().unwrap();
            assert_eq!(nothing.sealed, 0, "after {compacted:?}");
        }
        assert_found(&index, &tree, &gone);
        let sealed = files(&index, "-sealed.bin");
        assert!(sealed.len() < 20, "{sealed:?}");
    }
}

#[test]
fn an_update_behind_a_gate_writes_what_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let mut tree = tree(300, 3);
    publish(&index, &tree);
    let total = |files: &BTreeMap<PathBuf, u64>| files.values().sum::<u64>();
    let gated = files(&index, "-entries.parquet").into_keys();
    let gated: BTreeSet<_> =
        gated.filter(|path| path.parent().unwrap().ends_with("gated")).collect();
    assert_eq!(gated.len(), 1);
    let whole = total(&files(&index, "-sealed.bin"));
    let mut written = 0;
    for round in 0..100 {
        let before = files(&index, "-sealed.bin");
        let path = format!("{GATE}/p{}/d1", 1 + round % 50);
        tree.get_mut(&path).unwrap().insert(format!("new{round}"), round);
        refresh(&index, Disk::default(), &tree, &BTreeSet::from([(path, false)])).unwrap();
        let after = files(&index, "-sealed.bin");
        let new = after.iter().filter(|(path, _)| !before.contains_key(*path));
        written += new.map(|(_, bytes)| bytes).sum::<u64>();
        assert!(gated.iter().all(|path| path.exists()));
    }
    assert_found(&index, &tree, &BTreeSet::new());
    assert!(written < 3 * whole, "{written} bytes written by 100 updates, {whole} in all");
    assert!(total(&files(&index, "-sealed.bin")) < 2 * whole);
}
