//! A run that ends before its scan is over, and goes on: whatever operation of the disk fails, the
//! index ends as if nothing had, and keeps no file of what did.

#[path = "../../cli/tests/common/length.rs"]
mod length;

use arrow::array::{Int64Array, RecordBatch};
use canopy_index::{
    ColumnType, Disk, Faults, Index, ListingOrdinal, NewSource, RemainingDirectory,
    RemainingExtent, Result, SelectedDirectory, ShardWriter, TableColumn, TableKind, TableRecord,
    Unfinished, UnfinishedSource, Writer, WriterOptions, table_schema,
};
use canopy_model::{
    Approach, Attributes, Device, Listing, Permissions, Rows, SourcePath, SourcePathBuf, is_below,
};
use length::rounds;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Directories of the source, in the order in which they are listed; those in `private` are of
/// another class, and those in `gate/in` are found by name by others.
const DIRECTORIES: [&str; 9] =
    ["", "a", "a/b", "c", "c/d", "gate", "gate/in", "private", "private/e"];

fn directory(path: &str) -> Attributes {
    let mode = match path {
        "gate" => 0o040_711,
        "private" | "private/e" => 0o040_700,
        _ => 0o040_755,
    };
    let ino = DIRECTORIES.iter().position(|known| *known == path).unwrap() as u64;
    Attributes { mode, ino, ..Attributes::default() }
}

fn child_name<'a>(directory: &str, path: &'a str) -> Option<&'a str> {
    let below = match directory {
        "" => path,
        _ => path.strip_prefix(directory)?.strip_prefix('/')?,
    };
    (!below.is_empty() && !below.contains('/')).then_some(below)
}

fn push(sink: &mut ShardWriter<'_>, writer: &Writer, path: &str) -> Result<()> {
    let mut rows = Rows::default();
    for file in 0..5 {
        let attributes = Attributes {
            mode: 0o100_644,
            nlink: 2,
            ino: 100 + file,
            size_bytes: 7,
            ..Attributes::default()
        };
        rows.push(&format!("f{file}"), attributes, "");
    }
    for child in DIRECTORIES {
        if let Some(name) = child_name(path, child) {
            rows.push(name, directory(child), "");
        }
    }
    let classes = writer.classes();
    let mut approach = Approach::EVERYONE;
    let mut above = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let mode = directory(&above).mode;
        let permissions = Permissions { mode, uid: 1000, gid: 1000, acl: None, unknown: false };
        let access = classes.access(&approach, permissions);
        above = canopy_model::join(&above, name);
        approach = classes.below(&access, || format!("/source/{above}"));
    }
    let mode = directory(path).mode;
    let permissions = Permissions { mode, uid: 1000, gid: 1000, acl: None, unknown: false };
    sink.push(&Listing {
        path: SourcePath::escaped(path),
        depth: path.split('/').filter(|name| !name.is_empty()).count() as u32,
        part: 0,
        dev: Device(1),
        directory: &directory(path),
        access: &classes.access(&approach, permissions),
        rows: &rows,
    })
}

fn source() -> NewSource {
    NewSource {
        name: None,
        root: "/source".to_owned(),
        dev: Device(1),
        scanned_ns: 0,
        attributes: directory(""),
        approach: Approach::EVERYONE,
        xattrs: Vec::new(),
        scan: None,
    }
}

/// The notes of a run that has listed this many directories, and of which these remain.
fn about(rest: &[&str], listed: usize) -> Unfinished {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // What is below one that remains does with it.
    let top = rest
        .iter()
        .filter(|path| !rest.iter().any(|other| other != *path && is_below(path, other)));
    let remaining = top.map(|path| {
        let path = SourcePath::escaped(path).to_buf();
        RemainingDirectory::new(path, RemainingExtent::New)
    });
    let source = UnfinishedSource {
        root: "/source".to_owned(),
        remaining: remaining.collect(),
        ..UnfinishedSource::default()
    };
    Unfinished {
        noted_ns: now.as_nanos() as i64,
        source: Some(source),
        entries: listed as u64,
        ..Unfinished::default()
    }
}

/// Goes on where the index is, or begins, with so many directories a run; publishes at last.
/// Returns whether it is done.
fn run(index: &Path, disk: Disk, count: usize, is_killed: bool) -> Result<bool> {
    run_of(&DIRECTORIES, false, index, disk, count, is_killed)
}

/// Does so with a source of these directories, or compares it with what is known of it.
fn run_of(
    directories: &[&str],
    compares: bool,
    index: &Path,
    disk: Disk,
    count: usize,
    is_killed: bool,
) -> Result<bool> {
    let options = WriterOptions { disk, keep_replaced: false, ..WriterOptions::default() };
    let mut writer = Writer::open(index, options)?;
    let mut listed = 0;
    let begun = match writer.unfinished().is_some() {
        true => {
            let before = writer.resume()?.expect("the files are there");
            listed = before.entries as usize;
            let from = before.source.unwrap();
            writer.resume_source(source(), &from)?
        }
        false if compares => writer.refresh_source(
            source(),
            [SelectedDirectory { path: SourcePathBuf::root(), whole: true }],
        )?,
        false => writer.add_source(source())?,
    };
    let is_resumed = listed > 0;
    let mut sinks = writer.shard_writers(begun);
    if is_resumed {
        push(&mut sinks[0], &writer, "")?;
    }
    for (number, path) in directories.iter().enumerate().skip(listed) {
        if number >= listed + count {
            writer.note_unfinished(
                Some(begun),
                &mut sinks,
                about(&directories[number..], number),
                !is_killed,
            )?;
            return Ok(false);
        }
        // Noted twice before it is killed.
        if is_killed && number == listed + 1 {
            writer.note_unfinished(
                Some(begun),
                &mut sinks,
                about(&directories[number..], number),
                false,
            )?;
        }
        push(&mut sinks[0], &writer, path)?;
    }
    writer.finish_shards(sinks)?;
    writer.publish()?;
    Ok(true)
}

/// The contents of an index: entries and bytes of each class, in all, and files.
fn contents(index: &Path) -> (BTreeMap<String, i128>, usize) {
    let opened = Index::open(index).unwrap();
    let mut totals = BTreeMap::new();
    for path in DIRECTORIES {
        for shard in opened.shards().unwrap() {
            let below = shard.totals_below(SourcePath::escaped(path)).unwrap();
            *totals.entry(format!("{path} entries")).or_default() +=
                i128::from(below.entries + below.dirs);
            *totals.entry(format!("{path} bytes")).or_default() += below.bytes;
            let listings = shard.listings_at(SourcePath::escaped(path)).unwrap();
            let count: usize = ListingOrdinal::count(&listings);
            *totals.entry(format!("{path} listings")).or_default() += count as i128;
        }
    }
    (totals, files(index))
}

fn files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

#[test]
fn a_run_that_goes_on_ends_as_one_that_was_never_interrupted() {
    let place = tempfile::tempdir().unwrap();
    let whole = place.path().join("whole");
    assert!(run(&whole, Disk::default(), 100, false).unwrap());
    let (expected, _) = contents(&whole);
    assert_eq!(expected["a listings"], 1);
    for is_killed in [false, true] {
        for count in 1..DIRECTORIES.len() {
            let index = place.path().join(format!("index{is_killed}{count}"));
            let mut runs = 1;
            while !run(&index, Disk::default(), count, is_killed).unwrap() {
                assert!(Index::open(&index).unwrap_err().to_string().contains("is not complete"));
                runs += 1;
            }
            assert_eq!(runs, DIRECTORIES.len().div_ceil(count));
            assert_eq!(contents(&index).0, expected, "{count}");
            assert!(!index.join("unfinished").exists());
        }
    }
}

/// Classes that no note contains, because nothing of them was listed again, are gone from lists of
/// classes too. Rows of derived tables stay as long as there are readers of the generation.
#[test]
fn interrupted_scans_leave_no_class_in_lists_and_take_no_rows_of_tables() {
    const HELD: &str = "held";
    for compares in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let index = place.path().join("index");
        assert!(run(&index, Disk::default(), 100, false).unwrap());
        let options = WriterOptions { keep_replaced: false, ..WriterOptions::default() };
        let mut writer = Writer::open(&index, options).unwrap();
        let classes = writer.held_classes();
        assert_eq!(classes.len(), 2);
        // Another class of the same user, which stays as it is.
        let root = "/other".to_owned();
        let other = writer.add_source(NewSource { root, ..source() }).unwrap();
        let mut sinks = writer.shard_writers(other);
        let permissions =
            Permissions { mode: 0o040_750, uid: 1000, gid: 1000, acl: None, unknown: false };
        let listing = Listing {
            path: SourcePath::ROOT,
            depth: 0,
            part: 0,
            dev: Device(1),
            directory: &directory(""),
            access: &writer.classes().access(&Approach::EVERYONE, permissions),
            rows: &Rows::default(),
        };
        sinks[0].push(&listing).unwrap();
        writer.finish_shards(sinks).unwrap();
        let columns = vec![TableColumn { name: "n".to_owned(), holds: ColumnType::Int }];
        let kind = TableKind::Derived { columns: columns.clone(), fresh: true };
        let query = Some("SELECT 1 AS n".to_owned());
        writer.add_table(TableRecord { name: HELD.to_owned(), kind }, query).unwrap();
        let schema = table_schema(&columns);
        for class in classes {
            let mut rows = writer.table_writer(class, HELD).unwrap();
            let values = vec![Arc::new(Int64Array::from(vec![7])) as _];
            rows.write(&RecordBatch::try_new(schema.clone(), values).unwrap()).unwrap();
            let rows = rows.finish().unwrap();
            writer.add_rows(class, rows);
        }
        writer.publish().unwrap();
        let rows = || -> usize {
            let files = Index::open(&index).unwrap().table_files(HELD).unwrap();
            let batches = files.iter().flat_map(|file| file.read(&schema, &["n"], 10).unwrap());
            batches.map(|batch| batch.unwrap().num_rows()).sum()
        };
        let lists = || -> BTreeSet<String> {
            let entries = std::fs::read_dir(index.join("lists")).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.starts_with("u1000-")).collect()
        };
        let before = lists();
        assert_eq!((rows(), before.len()), (2, 1));
        // The last directories, and with them a class, are gone.
        let left = &DIRECTORIES[..5];
        for _ in 0..2 {
            assert!(!run_of(left, compares, &index, Disk::default(), 2, false).unwrap());
            assert_eq!(rows(), 2);
        }
        assert!(run_of(left, compares, &index, Disk::default(), 100, false).unwrap());
        assert_eq!(Index::open(&index).unwrap().classes().all, Some(2));
        // Nothing of the older generation stays for readers.
        assert_eq!((lists().len(), lists().intersection(&before).count()), (1, 0));
    }
}

/// Each operation fails, once or for good, of a run that begins, and of one that goes on to the end.
#[test]
fn whatever_operation_fails_a_run_goes_on_or_begins_anew() {
    let place = tempfile::tempdir().unwrap();
    let whole = place.path().join("whole");
    assert!(run(&whole, Disk::default(), 100, false).unwrap());
    assert!(run(&whole, Disk::default(), 100, false).unwrap());
    let (expected, settled) = contents(&whole);
    for (is_killed, lasting) in [(false, true), (true, false)] {
        for failing in 0..2 {
            // Each operation, or others of them where another run fails.
            for after in (rounds(failing, 0)..).step_by(rounds(3, 1)) {
                let index = place.path().join("index");
                let faults = Faults::new(after, rustix::io::Errno::NOSPC.raw_os_error(), lasting);
                let mut is_done = false;
                for number in 0..2 {
                    let disk = match number == failing {
                        true => Disk::with_faults(faults.clone()),
                        false => Disk::default(),
                    };
                    match run(&index, disk, 5, is_killed) {
                        Ok(done) => is_done = done,
                        Err(error) => assert!(number == failing, "{failing} {after}: {error:?}"),
                    }
                }
                while !is_done {
                    is_done = run(&index, Disk::default(), 5, is_killed).unwrap();
                }
                assert_eq!(contents(&index).0, expected, "{failing} {after}");
                assert!(run(&index, Disk::default(), 100, false).unwrap());
                assert_eq!(contents(&index), (expected.clone(), settled), "{failing} {after}");
                std::fs::remove_dir_all(&index).unwrap();
                if !faults.struck() {
                    break;
                }
            }
        }
    }
}

/// Scans all at once, and notes now and then how far it is, as far as that can be. Returns how
/// often it could not.
fn run_noting(index: &Path, disk: Disk) -> Result<usize> {
    let options = WriterOptions { disk, keep_replaced: false, ..WriterOptions::default() };
    let mut writer = Writer::open(index, options)?;
    let begun = writer.add_source(source())?;
    let mut sinks = writer.shard_writers(begun);
    let mut failed = 0;
    for (number, path) in DIRECTORIES.iter().enumerate() {
        push(&mut sinks[0], &writer, path)?;
        if number % 3 != 1 {
            continue;
        }
        let about = about(&DIRECTORIES[number + 1..], number + 1);
        failed +=
            usize::from(writer.note_unfinished(Some(begun), &mut sinks, about, false).is_err());
    }
    writer.finish_shards(sinks)?;
    writer.publish()?;
    Ok(failed)
}

/// A note that cannot be written ends no scan and leaves nothing behind, and earlier notes count.
#[test]
fn whatever_operation_of_a_note_fails_the_run_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let index = place.path().join("index");
    for _ in 0..2 {
        assert!(run(&index, Disk::default(), 100, false).unwrap());
    }
    let expected = contents(&index);
    let mut not_noted = 0;
    for after in 0.. {
        let faults = Faults::new(after, rustix::io::Errno::NOSPC.raw_os_error(), false);
        match run_noting(&index, Disk::with_faults(faults.clone())) {
            Ok(failed) => {
                not_noted += failed;
                // What could not be removed at its end goes now.
                let options = WriterOptions { keep_replaced: false, ..WriterOptions::default() };
                drop(Writer::open(&index, options).unwrap());
                assert_eq!(contents(&index), expected, "{after}");
            }
            Err(_) => {
                while !run(&index, Disk::default(), 5, true).unwrap() {}
                assert_eq!(contents(&index).0, expected.0, "{after}");
            }
        }
        if !faults.struck() {
            break;
        }
    }
    assert!(not_noted > 20, "{not_noted}");
}
