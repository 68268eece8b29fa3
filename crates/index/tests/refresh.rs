//! Parts of a source that are listed again, many times: what counts afterwards is what was handed
//! over last, whether old rows are called dead or written anew, and whatever operation of the disk
//! fails.

#[path = "../../cli/tests/common/length.rs"]
mod length;

use canopy_index::column::{LISTING, NAME, PATH, SIZE};
use canopy_index::{
    Disk, Due, Faults, FileKind, Index, ListingRange, NewSource, Result, SelectedDirectory, Shard,
    SourceId, Writer, WriterOptions,
};
use canopy_model::{
    Approach, Attributes, Device, Generation, Listing, Permissions, Rows, SourcePath, Totals,
    clamped, is_below, join,
};
use length::rounds;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory: whether all may read it, the owner if not, and the sizes of its files by name. Its
/// subdirectories are other keys of the tree.
#[derive(Clone, Debug, Default)]
struct Directory {
    open: bool,
    uid: u32,
    files: BTreeMap<String, i64>,
}

/// The directories of a source, by path.
type Tree = BTreeMap<String, Directory>;

fn source(root: &str) -> NewSource {
    NewSource {
        name: None,
        root: root.to_owned(),
        dev: Device(1),
        scanned_ns: 0,
        attributes: directory(true),
        approach: Approach::EVERYONE,
        xattrs: Vec::new(),
        scan: None,
    }
}

fn directory(open: bool) -> Attributes {
    let mode = if open { 0o040_755 } else { 0o040_700 };
    Attributes { mode, size_bytes: 10, blocks: 1, ..Attributes::default() }
}

/// Hands over the listings of some directories.
fn push(writer: &Writer, begun: SourceId, tree: &Tree, paths: &BTreeSet<String>) -> Result<()> {
    let mut sinks = writer.shard_writers(begun);
    for path in paths {
        let Some(own) = tree.get(path) else { continue };
        let mut rows = Rows::default();
        for (name, &size_bytes) in &own.files {
            let file = Attributes { mode: 0o100_644, size_bytes, blocks: 2, ..Default::default() };
            rows.push(name, file, "");
        }
        for (below, child) in tree {
            if let Some(name) = child_name(path, below) {
                rows.push(name, directory(child.open), "");
            }
        }
        // Of a closed one, all below is closed; these trees have no other.
        let mode = if own.open { 0o755 } else { 0o700 };
        let uid = 1000 + own.uid;
        let permissions = Permissions { mode, uid, gid: 1000, acl: None, unknown: false };
        let access = writer.classes().access(&Approach::EVERYONE, permissions);
        let depth = if path.is_empty() { 0 } else { 1 + path.matches('/').count() as u32 };
        sinks[0].push(&Listing {
            path: SourcePath::escaped(path),
            depth,
            part: 0,
            dev: Device(1),
            directory: &directory(own.open),
            access: &access,
            rows: &rows,
        })?;
    }
    writer.finish_shards(sinks)
}

fn child_name<'a>(directory: &str, path: &'a str) -> Option<&'a str> {
    let below = match directory {
        "" => path,
        _ => path.strip_prefix(directory)?.strip_prefix('/')?,
    };
    (!below.is_empty() && !below.contains('/')).then_some(below)
}

/// Changes the tree at random; returns what has to be listed again.
fn change(tree: &mut Tree, random: &mut StdRng) -> BTreeSet<(String, bool)> {
    let mut suspects = BTreeSet::new();
    for _ in 0..random.random_range(1..4) {
        let path = tree.keys().choose(random).unwrap().clone();
        let name = format!("n{}", random.random_range(0..1000));
        match random.random_range(0..6) {
            0 if !path.is_empty() => {
                tree.retain(|other, _| !is_below(other, &path));
                suspects.insert((above(&path), false));
            }
            1 => {
                let new = join(&path, &name);
                let open = random.random_bool(0.7);
                if tree.get(&path).is_some_and(|own| !own.files.contains_key(&name)) {
                    tree.entry(new.clone()).or_default().open = open;
                    suspects.extend([(path, false), (new, true)]);
                }
            }
            2 => {
                for own in tree.iter_mut().filter(|(other, _)| is_below(other, &path)) {
                    own.1.files.values_mut().for_each(|size| *size += 1);
                }
                suspects.insert((path, true));
            }
            3 => {
                let own = tree.get_mut(&path).unwrap();
                own.open = !own.open;
                suspects.extend([(above(&path), false), (path, true)]);
            }
            _ if !tree.contains_key(&join(&path, &name)) => {
                let files = &mut tree.get_mut(&path).unwrap().files;
                if random.random_bool(0.3) {
                    files.pop_first();
                }
                files.insert(name, random.random_range(0..100));
                suspects.insert((path, false));
            }
            _ => {}
        }
    }
    suspects
}

fn above(path: &str) -> String {
    path.rsplit_once('/').map_or(String::new(), |(above, _)| above.to_owned())
}

fn selected(path: &str, whole: bool) -> SelectedDirectory {
    SelectedDirectory { path: SourcePath::escaped(path).to_buf(), whole }
}

/// Publishes what has changed.
fn refresh(
    index: &Path,
    options: WriterOptions,
    tree: &Tree,
    suspects: &BTreeSet<(String, bool)>,
) -> Result<Generation> {
    let mut writer = Writer::open(index, options)?;
    let selected = suspects.iter().map(|(path, whole)| selected(path, *whole));
    let begun = writer.refresh_source(source("/a"), selected)?;
    let is_listed = |path: &String| {
        suspects.iter().any(|(suspect, whole)| suspect == path || *whole && is_below(path, suspect))
    };
    let listed = tree.keys().filter(|path| is_listed(path)).cloned().collect();
    push(&writer, begun, tree, &listed)?;
    Ok(writer.publish()?.generation)
}

/// Files by path with their sizes, as far as rows count.
fn read(index: &Path) -> Result<BTreeMap<String, i64>> {
    let mut found = BTreeMap::new();
    for shard in Index::open(index)?.shards()? {
        let paths = paths(shard)?;
        let (entries, _) = shard.rows_of(&shard.live_listings()?)?;
        if entries.is_empty() {
            continue;
        }
        for batch in shard.read(FileKind::Entries, LISTING | NAME | SIZE, &entries, 100)? {
            let batch = batch?;
            let (listings, names) = (LISTING.of(&batch)?, NAME.of(&batch)?);
            let sizes = SIZE.of(&batch)?;
            for at in 0..batch.num_rows() {
                let path = join(&paths[listings.value(at).row()], names.value(at));
                assert_eq!(found.insert(path.clone(), sizes[at]), None, "{path} counts twice");
            }
        }
    }
    Ok(found)
}

fn paths(shard: &Shard) -> Result<Vec<String>> {
    let all = 0..shard.rows(FileKind::Listings);
    let mut paths = Vec::new();
    for batch in shard.read(FileKind::Listings, PATH, std::slice::from_ref(&all), 100)? {
        let batch = batch?;
        let batch = PATH.of(&batch)?;
        paths.extend(batch.iter().flatten().map(str::to_owned));
    }
    Ok(paths)
}

fn files(tree: &Tree) -> BTreeMap<String, i64> {
    let of = |(path, own): (&String, &Directory)| {
        let files = own.files.iter().map(|(name, &size)| (join(path, name), size));
        files.collect::<Vec<_>>()
    };
    tree.iter().flat_map(of).collect()
}

/// Compares sums over subtrees, which take dead rows off.
fn assert_sums(index: &Path, tree: &Tree, what: &str) {
    let index = Index::open(index).unwrap();
    for directory in tree.keys() {
        let mut sums = Totals::default();
        for shard in index.shards().unwrap() {
            sums += shard.totals_below(SourcePath::escaped(directory)).unwrap();
        }
        let below = tree.iter().filter(|(path, _)| is_below(path, directory));
        let (mut entries, mut bytes, mut dirs) = (0, 0, -1);
        for (_, own) in below {
            entries += own.files.len() as i64;
            bytes += own.files.values().sum::<i64>();
            dirs += 1;
        }
        assert_found(&index, directory, what);
        let (mut once, _, asked) =
            index.sums_below(index.sources()[0].id, SourcePath::escaped(directory)).unwrap();
        asked
            .iter()
            .for_each(|shard| once += shard.totals_below(SourcePath::escaped(directory)).unwrap());
        assert_eq!(once, sums, "{what} below '{directory}', by pages");
        let expected = (entries, bytes, dirs, 10 * dirs, 2 * entries + dirs);
        let [bytes, dir_bytes, blocks] = [sums.bytes, sums.dir_bytes, sums.blocks].map(clamped);
        let found = (sums.entries, bytes, sums.dirs, dir_bytes, blocks);
        assert_eq!(found, expected, "{what} below '{directory}'");
    }
}

/// Compares the listings that are found by pages with those of all shards.
fn assert_found(index: &Index, directory: &str, what: &str) {
    let source = index.sources()[0].id;
    let path = SourcePath::escaped(directory);
    type Find = fn(&Shard, SourcePath<'_>) -> Result<Vec<ListingRange>>;
    let found = |shards: Vec<&Arc<Shard>>, find: Find| {
        let of = |shard: &&Arc<Shard>| (shard.record().id.clone(), find(shard, path).unwrap());
        let found: BTreeMap<_, _> = shards.iter().map(of).collect();
        found.into_iter().filter(|(_, listings)| !listings.is_empty()).collect::<Vec<_>>()
    };
    let all = || index.shards_of(source).unwrap();
    let at = index.shards_at(source, path).unwrap();
    let (at, expected) = (found(at, Shard::listings_at), found(all(), Shard::listings_at));
    assert_eq!(at, expected, "{what} at '{directory}'");
    let below = index.shards_below(source, path).unwrap();
    let below = found(below, Shard::listings_below);
    assert_eq!(below, found(all(), Shard::listings_below), "{what} below '{directory}'");
}

fn random_tree(random: &mut StdRng) -> Tree {
    let mut tree = Tree::from([(String::new(), Directory { open: true, ..Default::default() })]);
    for number in 0..60 {
        let path = join(tree.keys().choose(random).unwrap(), &format!("d{number}"));
        let own = tree.entry(path).or_default();
        own.open = random.random_bool(0.8);
        for file in 0..random.random_range(0..5) {
            own.files.insert(format!("f{file}"), random.random_range(0..100));
        }
    }
    tree
}

fn create(index: &Path, tree: &Tree) {
    let mut writer = Writer::open(index, WriterOptions::default()).unwrap();
    let begun = writer.add_source(source("/a")).unwrap();
    push(&writer, begun, tree, &tree.keys().cloned().collect()).unwrap();
    writer.publish().unwrap();
}

#[test]
fn the_last_listing_counts() {
    for seed in 0..rounds(6, 12) {
        let mut random = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let index = dir.path().join("index");
        let mut tree = random_tree(&mut random);
        create(&index, &tree);
        let mut most = 0;
        for round in 0..40 {
            let suspects = change(&mut tree, &mut random);
            let copied_rows_max = [0, 0, 20, 4096][random.random_range(0..4)];
            let default = WriterOptions::default();
            let page_shards_max = [default.page_shards_max, 1, 3][seed as usize % 3];
            let bundle_classes_max = [default.bundle_classes_max, 1][seed as usize % 2];
            let options =
                WriterOptions { copied_rows_max, page_shards_max, bundle_classes_max, ..default };
            refresh(&index, options, &tree, &suspects).unwrap();
            let what = format!("seed {seed} round {round} {suspects:?}");
            assert_eq!(read(&index).unwrap(), files(&tree), "{what}");
            assert_sums(&index, &tree, &what);
            let opened = Index::open(&index).unwrap();
            most = most.max(opened.shards().unwrap().len());
            if random.random_bool(0.2) {
                let rows_max = [1, 50, 1 << 20][random.random_range(0..3)];
                compact(&index, Disk::default(), rows_max).unwrap();
                assert_eq!(read(&index).unwrap(), files(&tree), "{what}, written anew");
                assert_sums(&index, &tree, &what);
            }
        }
        // Two classes, each with few shards of a size, where these are in one page.
        assert!(most <= 24 || seed % 3 > 0, "seed {seed}: {most} shards");
    }
}

/// Has all that is not as a fresh index written anew, in portions.
fn compact(index: &Path, disk: Disk, rows_max: usize) -> Result<()> {
    loop {
        let options = WriterOptions { disk: disk.clone(), threads: 2, ..WriterOptions::default() };
        let mut writer = Writer::open(index, options)?;
        let compacted = writer.compact(Due::Any, rows_max, || false)?.unwrap();
        writer.publish()?;
        if !compacted.is_partial {
            break;
        }
    }
    let opened = Index::open(index)?;
    assert!(!opened.shards().unwrap().iter().any(|shard| shard.has_dead()));
    // Two classes.
    assert!(opened.shards().unwrap().len() <= 2, "{} shards", opened.shards().unwrap().len());
    let mut writer = Writer::open(index, WriterOptions::default())?;
    let again = writer.compact(Due::Any, rows_max, || false)?;
    assert_eq!(again.map(|again| again.shards), Some(0));
    Ok(())
}

#[test]
fn many_threads_and_little_memory_leave_no_small_shards() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let own = Directory { open: true, ..Directory::default() };
    let mut tree = Tree::from([(String::new(), own.clone())]);
    // More listings than are copied at a time.
    tree.extend((0..5000).map(|number| (format!("d{number}"), own.clone())));
    create(&index, &tree);
    tree.get_mut("d7").unwrap().files.insert("new".to_owned(), 1);
    let options = WriterOptions { copied_rows_max: 0, ..WriterOptions::default() };
    refresh(&index, options, &tree, &BTreeSet::from([("d7".to_owned(), false)])).unwrap();
    let options = WriterOptions { memory_bytes: 1, threads: 64, ..WriterOptions::default() };
    let mut writer = Writer::open(&index, options).unwrap();
    let compacted = writer.compact(Due::Any, 1 << 20, || false).unwrap().unwrap();
    writer.publish().unwrap();
    assert_eq!(compacted.became, 1, "{compacted:?}");
    assert_eq!(read(&index).unwrap(), files(&tree));
}

#[test]
fn an_update_that_ends_early_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let mut random = StdRng::seed_from_u64(11);
    let mut tree = random_tree(&mut random);
    create(&index, &tree);
    for _ in 0..10 {
        let suspects = change(&mut tree, &mut random);
        let options = WriterOptions { copied_rows_max: 0, ..WriterOptions::default() };
        refresh(&index, options, &tree, &suspects).unwrap();
    }
    let shards = Index::open(&index).unwrap().shards().unwrap().len();
    let mut writer = Writer::open(&index, WriterOptions::default()).unwrap();
    assert_eq!(writer.compact(Due::Any, 1 << 20, || true).unwrap(), None);
    writer.publish().unwrap();
    assert_eq!(read(&index).unwrap(), files(&tree));
    assert_eq!(Index::open(&index).unwrap().shards().unwrap().len(), shards);
}

#[test]
fn listings_that_are_as_they_were_stay() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let mut tree = random_tree(&mut StdRng::seed_from_u64(7));
    create(&index, &tree);
    let changed = tree.keys().nth(9).unwrap().clone();
    tree.get_mut(&changed).unwrap().files.insert("new".to_owned(), 5);
    let mut writer = Writer::open(&index, WriterOptions::default()).unwrap();
    let begun = writer.refresh_source(source("/a"), [selected("", true)]).unwrap();
    push(&writer, begun, &tree, &tree.keys().cloned().collect()).unwrap();
    let published = writer.publish().unwrap();
    let own = tree[&changed].files.len()
        + tree.keys().filter(|path| child_name(&changed, path).is_some()).count();
    assert_eq!(published.entries - published.kept, own as u64);
    assert_eq!(read(&index).unwrap(), files(&tree));
    assert_sums(&index, &tree, "one change");
}

#[test]
fn there_is_nothing_new_where_all_is_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let mut tree = random_tree(&mut StdRng::seed_from_u64(7));
    create(&index, &tree);
    let path = tree.keys().nth(9).unwrap().clone();
    let has_nothing_new = |tree: &Tree, new: NewSource, selection: &[&str]| {
        let mut writer = Writer::open(&index, WriterOptions::default()).unwrap();
        let asked = selection.iter().map(|&path| selected(path, false));
        let begun = writer.refresh_source(new, asked).unwrap();
        let paths = selection.iter().map(|&path| path.to_owned()).collect();
        push(&writer, begun, tree, &paths).unwrap();
        writer.has_nothing_new()
    };
    let root = || source("/a");
    assert!(has_nothing_new(&tree, root(), &[&path]));
    assert!(has_nothing_new(&tree, root(), &["", &path]));
    let touched = NewSource { attributes: Attributes { mtime_ns: 1, ..directory(true) }, ..root() };
    assert!(!has_nothing_new(&tree, touched, &["", &path]), "the root is another");
    let mut more = tree.clone();
    more.insert("new".to_owned(), Directory::default());
    assert!(!has_nothing_new(&more, root(), &[&path, "new"]), "it was never listed");
    let mut gone = tree.clone();
    gone.remove(&path);
    assert!(!has_nothing_new(&gone, root(), &[&path]), "it is gone");
    tree.get_mut(&path).unwrap().files.insert("new".to_owned(), 5);
    assert!(!has_nothing_new(&tree, root(), &[&path]), "a file is new");
}

#[test]
fn any_failing_operation_leaves_the_old_generation_whole() {
    for (errno, lasting) in [(rustix::io::Errno::NOSPC, true), (rustix::io::Errno::IO, false)] {
        let mut random = StdRng::seed_from_u64(3);
        let dir = tempfile::tempdir().unwrap();
        let index = dir.path().join("index");
        let mut tree = random_tree(&mut random);
        create(&index, &tree);
        let mut failures = 0;
        for after in 0.. {
            let before = files(&tree);
            let mut changed = tree.clone();
            let mut suspects = change(&mut changed, &mut random);
            suspects.insert((String::new(), true));
            let faults = Faults::new(after, errno.raw_os_error(), lasting);
            let disk = Disk::with_faults(faults.clone());
            let (copied_rows_max, page_shards_max) = (0, 1 + after as usize % 3);
            let default = WriterOptions::default();
            let bundle_classes_max = 1 + after as usize % 2;
            let options = WriterOptions {
                copied_rows_max,
                page_shards_max,
                bundle_classes_max,
                disk,
                ..default
            };
            let outcome = refresh(&index, options, &changed, &suspects);
            let seen = read(&index).unwrap();
            match outcome {
                Ok(_) => assert_eq!(seen, files(&changed), "after {after}"),
                Err(error) => {
                    failures += 1;
                    let whole = seen == before || seen == files(&changed);
                    assert!(whole, "after {after}: {error}");
                }
            }
            if seen == files(&changed) {
                tree = changed;
            }
            if !faults.struck() {
                break;
            }
        }
        assert!(failures > 15, "{failures} operations failed");
        assert_sums(&index, &tree, "after faults");
        failures = 0;
        for after in 0.. {
            let faults = Faults::new(after, errno.raw_os_error(), lasting);
            let outcome = compact(&index, Disk::with_faults(faults.clone()), 50);
            failures += usize::from(outcome.is_err());
            assert_eq!(read(&index).unwrap(), files(&tree), "written anew, after {after}");
            if !faults.struck() {
                break;
            }
            let options = WriterOptions { copied_rows_max: 0, ..WriterOptions::default() };
            let suspects = change(&mut tree, &mut random);
            refresh(&index, options, &tree, &suspects).unwrap();
        }
        assert!(failures > 15, "{failures} operations failed while shards were written anew");
        assert_sums(&index, &tree, "written anew after faults");
    }
}

/// The files of the pages of the class of everybody.
fn page_files(index: &Path) -> BTreeSet<PathBuf> {
    let files = std::fs::read_dir(index.join("everyone")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    files.filter(|path| path.to_string_lossy().ends_with("-page.bin")).collect()
}

/// Changes in an index of many shards, of which only the pages can be read that have to be.
#[test]
fn an_update_reads_and_writes_the_pages_that_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let mut tree = Tree::new();
    for number in 0..300 {
        let path = if number == 0 { String::new() } else { format!("d{number:03}") };
        let files = BTreeMap::from([("file".to_owned(), number)]);
        tree.insert(path, Directory { open: true, files, uid: 0 });
    }
    let many = |memory_bytes| WriterOptions {
        memory_bytes,
        page_shards_max: 10,
        keep_replaced: false,
        ..WriterOptions::default()
    };
    let mut writer = Writer::open(&index, many(1)).unwrap();
    let begun = writer.add_source(source("/a")).unwrap();
    push(&writer, begun, &tree, &tree.keys().cloned().collect()).unwrap();
    writer.publish().unwrap();
    let before = page_files(&index);
    assert!(before.len() >= 20, "{} pages", before.len());
    let shards = Index::open(&index).unwrap().shards().unwrap().len();

    tree.get_mut("d123").unwrap().files.insert("new".to_owned(), 5);
    let suspects = BTreeSet::from([("d123".to_owned(), false)]);
    refresh(&index, many(1 << 20), &tree, &suspects).unwrap();
    assert_eq!(read(&index).unwrap(), files(&tree));
    let after = page_files(&index);
    let (came, went) = (after.difference(&before).count(), before.difference(&after).count());
    assert!((1..=2).contains(&came) && (1..=2).contains(&went), "{came} came, {went} went");
    let opened = Index::open(&index).unwrap();
    // Those of these pages, which are small, may have become one.
    let less = shards - opened.shards().unwrap().len();
    assert!(less <= 20, "{less} fewer shards");

    // All but those of the directory, and the one that new shards join.
    let id = opened.sources()[0].id;
    let needed = page_files(&index).into_iter().filter(|path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::remove_file(path).unwrap();
        let at = Index::open(&index).unwrap().shards_at(id, SourcePath::escaped("d123")).is_err();
        std::fs::write(path, bytes).unwrap();
        at
    });
    let mut needed: BTreeSet<PathBuf> = needed.collect();
    assert_eq!(needed.len(), 1);
    needed.extend(after.difference(&before).cloned());
    for path in after.difference(&needed) {
        std::fs::write(path, "").unwrap();
    }
    tree.get_mut("d123").unwrap().files.insert("another".to_owned(), 6);
    refresh(&index, many(1 << 20), &tree, &suspects).unwrap();
    let opened = Index::open(&index).unwrap();
    let mut entries = 0;
    for shard in opened.shards_at(id, SourcePath::escaped("d123")).unwrap() {
        let listings = shard.listings_at(SourcePath::escaped("d123")).unwrap();
        entries += shard.rows_of(&listings).unwrap().0.into_iter().flatten().count();
    }
    assert_eq!(entries, 3);
    let (sums, _, asked) = opened.sums_below(id, SourcePath::ROOT).unwrap();
    assert!(asked.is_empty());
    assert_eq!((sums.entries, sums.dirs), (302, 299));
    let error = opened.shards().err().unwrap();
    assert!(error.to_string().contains("-page.bin"), "{error}");
}

fn bundle_files(index: &Path) -> BTreeSet<PathBuf> {
    let files = std::fs::read_dir(index).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.to_string_lossy().ends_with("-bundle.bin")).collect()
}

/// Changes in an index of many classes, whose manifests are in bundles.
#[test]
#[expect(clippy::too_many_lines, reason = "one course of steps")]
fn an_update_writes_the_bundles_that_it_changes_and_a_search_reads_those_near_it() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let mut tree = Tree::from([(String::new(), Directory { open: true, ..Default::default() })]);
    for uid in 0..100 {
        let files = BTreeMap::from([("file".to_owned(), i64::from(uid))]);
        tree.insert(format!("d{uid:03}"), Directory { open: false, uid, files });
    }
    let options = || WriterOptions {
        bundle_classes_max: 8,
        keep_replaced: false,
        ..WriterOptions::default()
    };
    let mut writer = Writer::open(&index, options()).unwrap();
    let begun = writer.add_source(source("/a")).unwrap();
    push(&writer, begun, &tree, &tree.keys().cloned().collect()).unwrap();
    writer.publish().unwrap();
    let mut before = bundle_files(&index);
    assert_eq!(before.len(), 13);
    let mut random = StdRng::seed_from_u64(1);
    for round in 0..60 {
        // A file more, another owner, a class more or one fewer.
        let number = random.random_range(0..100);
        let path = format!("d{number:03}");
        let mut suspects = BTreeSet::from([(path.clone(), true)]);
        match (random.random_range(0..4), tree.get_mut(&path)) {
            (0, Some(own)) => own.uid = 100 + round,
            (1, Some(_)) => {
                tree.remove(&path);
                suspects.insert((String::new(), false));
            }
            (_, Some(own)) => drop(own.files.insert(format!("n{round}"), 5)),
            (_, None) => {
                let files = BTreeMap::new();
                tree.insert(path, Directory { open: false, uid: 200 + round, files });
                suspects.insert((String::new(), false));
            }
        }
        refresh(&index, options(), &tree, &suspects).unwrap();
        assert_eq!(read(&index).unwrap(), files(&tree), "round {round}");
        assert_sums(&index, &tree, &format!("round {round}"));
        let after = bundle_files(&index);
        let (came, went) = (after.difference(&before).count(), before.difference(&after).count());
        assert!(came <= 4 && went <= 4, "round {round}: {came} came, {went} went");
        assert!(after.len() <= 26, "round {round}: {} bundles", after.len());
        before = after;
    }
    // Of one directory only few bundles are needed, and the sums of all without any.
    let source = Index::open(&index).unwrap().sources()[0].id;
    let path = tree.keys().nth(50).unwrap().clone();
    let all = bundle_files(&index);
    let needed = all.iter().filter(|file| {
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, "damaged").unwrap();
        let opened = Index::open(&index).unwrap();
        let error = opened.shards_at(source, SourcePath::escaped(&path)).err();
        let (sums, _, _) = opened.sums_below(source, SourcePath::ROOT).unwrap();
        assert_eq!(sums.dirs, tree.len() as i64 - 1);
        std::fs::write(file, bytes).unwrap();
        assert!(error.as_ref().is_none_or(|error| error.to_string().contains("-bundle.bin")));
        error.is_some()
    });
    assert!((1..=3).contains(&needed.count()));
    // Whoever writes reads all of them.
    let first = all.first().unwrap();
    for damage in
        [|path: &Path| std::fs::write(path, "damaged"), |path: &Path| std::fs::remove_file(path)]
    {
        damage(first).unwrap();
        let error = Writer::open(&index, options()).err().unwrap().to_string();
        assert!(
            error.contains("-bundle.bin") && error.contains("canopy check --repair"),
            "{error}"
        );
    }
}
