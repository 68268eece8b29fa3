//! Promises for a failing disk: the old generation stays whole, the next writer succeeds, nothing
//! piles up.

use canopy_index::column::{ATIME, BTIME, BTIME_AFTER_MTIME, CTIME};
use canopy_index::{
    Columns, Disk, Error, Faults, FileKind, Index, Moment, NewSource, Result, Retention,
    ShardWriter, SourceId, Writer, WriterOptions,
};
use canopy_model::{
    Approach, Attributes, Device, Generation, Listing, Permissions, Rows, SourcePath,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const DIR: u32 = 0o040_755;

/// Publishes a source of some listings in two classes, each with `entries` entries of one byte.
fn publish(index: &Path, disk: Disk, root: &str, entries: u64) -> Result<Generation> {
    publish_with(index, WriterOptions { disk, ..WriterOptions::default() }, root, entries)
}

/// Does so, and leaves nothing of older generations.
fn publish_alone(index: &Path, root: &str, entries: u64) {
    let retention = Some(Retention::default());
    let options = WriterOptions { retention, keep_replaced: false, ..WriterOptions::default() };
    publish_with(index, options, root, entries).unwrap();
}

fn publish_with(
    index: &Path,
    options: WriterOptions,
    root: &str,
    entries: u64,
) -> Result<Generation> {
    let mut writer = Writer::open(index, options)?;
    let source = add_source(&mut writer, root)?;
    let mut sinks = writer.shard_writers(source);
    push_listings(&mut sinks[0], &writer, entries)?;
    writer.finish_shards(sinks)?;
    Ok(writer.publish()?.generation)
}

fn add_source(writer: &mut Writer, root: &str) -> Result<SourceId> {
    writer.add_source(NewSource {
        name: None,
        root: root.to_owned(),
        dev: Device(1),
        scanned_ns: 0,
        attributes: Attributes { mode: DIR, ..Attributes::default() },
        approach: Approach::EVERYONE,
        xattrs: Vec::new(),
        scan: None,
    })
}

/// Hands over a listing in each of two classes.
fn push_listings(sink: &mut ShardWriter<'_>, writer: &Writer, entries: u64) -> Result<()> {
    let access = |mode| {
        let permissions = Permissions { mode, uid: 1000, gid: 1000, acl: None, unknown: false };
        writer.classes().access(&Approach::EVERYONE, permissions)
    };
    for (number, access) in [access(0o755), access(0o700)].iter().enumerate() {
        let mut rows = Rows::default();
        for entry in 0..entries {
            let attributes = Attributes {
                ino: entry * 7919,
                mode: 0o100_644,
                nlink: 2,
                size_bytes: 1,
                blocks: 8,
                mtime_ns: entry as i64 * 1_000_003,
                ..Attributes::default()
            };
            rows.push(&format!("entry-{entry}-of-{entries}"), attributes, "");
        }
        let directory = Attributes { mode: DIR, ..Attributes::default() };
        let path = SourcePath::escaped(if number == 0 { "" } else { "private" });
        let listing = Listing {
            path,
            depth: number as u32,
            part: 0,
            dev: Device(1),
            directory: &directory,
            access,
            rows: &rows,
        };
        sink.push(&listing)?;
    }
    Ok(())
}

/// Reads everything and returns how many entries there are.
fn read_all(index: &Path) -> Result<u64> {
    read_at(index, None)
}

/// Reads everything that a generation has.
fn read_at(index: &Path, moment: Option<Moment>) -> Result<u64> {
    let index = Index::open_at(index, moment)?;
    let mut entries = 0;
    for shard in index.shards()? {
        for kind in FileKind::ALL.into_iter().filter(|&kind| shard.rows(kind) > 0) {
            let mut columns: Columns = kind.columns().iter().copied().collect();
            if columns.has(BTIME_AFTER_MTIME) {
                columns.add(ATIME | CTIME | BTIME);
            }
            let rows = 0..shard.rows(kind);
            let mut read = 0;
            for batch in shard.read(kind, columns, std::slice::from_ref(&rows), 1000)? {
                read += batch?.num_rows();
            }
            assert_eq!(read, shard.rows(kind));
            if kind == FileKind::Entries {
                entries += read as u64;
            }
        }
    }
    Ok(entries)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn any_failing_operation_leaves_the_old_generation_whole() {
    for (errno, lasting) in [(rustix::io::Errno::NOSPC, true), (rustix::io::Errno::IO, false)] {
        let dir = tempfile::tempdir().unwrap();
        let index = dir.path().join("index");
        publish_alone(&index, "/a", 100);
        let settled = files(&index).len();
        let mut expected = 200;
        let mut failures = 0;
        for after in 0.. {
            let faults = Faults::new(after, errno.raw_os_error(), lasting);
            let outcome =
                publish(&index, Disk::with_faults(faults.clone()), "/a", 100 + after as u64);
            let seen = read_all(&index).unwrap();
            match outcome {
                // The fault may strike after the commit, where it does no harm, or while old files
                // are removed.
                Ok(_) => expected = 2 * (100 + after as u64),
                Err(error) => {
                    failures += 1;
                    assert!(matches!(error, Error::Io { .. }), "{error}");
                    // A failing sync after the rename leaves either state, both whole.
                    assert!(
                        seen == expected || seen == 2 * (100 + after as u64),
                        "after {after}: {seen}"
                    );
                    expected = seen;
                }
            }
            assert_eq!(seen, expected, "after {after}");
            if !faults.struck() {
                break;
            }
        }
        assert!(failures > 20, "{failures} operations failed");
        publish_alone(&index, "/a", 100);
        assert_eq!(read_all(&index).unwrap(), 200);
        assert_eq!(files(&index).len(), settled, "{:#?}", files(&index));
    }
}

/// Kept generations can be read, whatever fails, and nothing else stays.
#[test]
fn generations_that_are_kept_stay_whole() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    publish_alone(&index, "/a", 100);
    let settled = files(&index).len();
    let mut published = BTreeMap::new();
    for (errno, keep_replaced, keep) in
        [(rustix::io::Errno::IO, true, "4"), (rustix::io::Errno::NOSPC, false, "2,1h")]
    {
        for after in 0.. {
            let faults = Faults::new(after, errno.raw_os_error(), after % 2 == 0);
            let options = WriterOptions {
                retention: Some(keep.parse().unwrap()),
                keep_replaced,
                page_shards_max: 1 + after as usize % 2,
                disk: Disk::with_faults(faults.clone()),
                ..WriterOptions::default()
            };
            // Two sources, so that generations have files in common.
            let root = if after % 3 == 0 { "/a" } else { "/b" };
            let outcome = publish_with(&index, options, root, 10 + after as u64 % 7);
            let current = Index::open(&index).unwrap();
            published.insert(current.generation(), read_all(&index).unwrap());
            for kept in current.kept() {
                let seen = read_at(&index, Some(Moment::Generation(kept.generation))).unwrap();
                assert_eq!(seen, published[&kept.generation], "{kept:?} after {after}");
                let then = Index::open_at(&index, Some(Moment::Time(kept.published_ns))).unwrap();
                assert_eq!(then.generation(), kept.generation);
            }
            assert!(current.kept().len() <= 3);
            if !faults.struck() {
                assert!(outcome.is_ok() && after > 40, "{after}");
                break;
            }
        }
        let kept = Index::open(&index).unwrap().kept().len();
        assert_eq!(kept, if keep == "4" { 3 } else { 1 });
    }
    let mut writer = Writer::open(&index, WriterOptions::default()).unwrap();
    writer.remove_source("/b").unwrap();
    writer.publish().unwrap();
    publish_alone(&index, "/a", 100);
    assert_eq!(files(&index).len(), settled, "{:#?}", files(&index));
}

/// A kept generation whose manifests are damaged or gone stops no publication, and costs no other
/// one anything.
#[test]
fn a_damaged_generation_harms_no_other_one() {
    for is_gone in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let index = dir.path().join("index");
        publish_alone(&index, "/a", 100);
        let settled = files(&index).len();
        let keep = |keep: &str| WriterOptions {
            retention: Some(keep.parse().unwrap()),
            keep_replaced: false,
            ..WriterOptions::default()
        };
        let mut published = BTreeMap::from([(Generation(1), 200)]);
        let mut damaged = None;
        for round in 0..30 {
            // So that generations have the files of /b and /c in common.
            let root = ["/b", "/c", "/a", "/a", "/a", "/a"][round % 6];
            let generation = publish_with(&index, keep("5"), root, round as u64).unwrap();
            published.insert(generation, read_all(&index).unwrap());
            let current = Index::open(&index).unwrap();
            for kept in current.kept() {
                let seen = read_at(&index, Some(Moment::Generation(kept.generation)));
                match damaged == Some(kept.generation) {
                    true => assert!(seen.is_err()),
                    false => assert_eq!(seen.unwrap(), published[&kept.generation], "{kept:?}"),
                }
            }
            assert_eq!(current.kept().len(), 4.min(round + 1));
            if round == 12 || round == 24 {
                let number = current.kept()[round / 12 - 1].generation;
                let path = index.join(format!("manifests-{number}.bin"));
                match is_gone {
                    true => std::fs::remove_file(&path).unwrap(),
                    false => std::fs::write(&path, "damaged").unwrap(),
                }
                damaged = Some(number);
            }
        }
        // One that the policy leaves out while its neighbours stay, and then all.
        publish_with(&index, keep("2"), "/a", 1).unwrap();
        let before = Index::open(&index).unwrap().kept()[0].generation;
        let seen = read_at(&index, Some(Moment::Generation(before))).unwrap();
        assert_eq!(seen, published[&before]);
        let mut writer = Writer::open(&index, keep("none")).unwrap();
        writer.remove_source("/b").unwrap();
        writer.remove_source("/c").unwrap();
        writer.publish().unwrap();
        publish_alone(&index, "/a", 100);
        assert_eq!(read_all(&index).unwrap(), 200);
        let left = files(&index);
        assert!(!left.iter().any(|path| path.ends_with("manifests-14.bin")), "{left:#?}");
        assert!(left.len() <= settled + 20, "{left:#?}");
    }
}

/// Returns the pages of all generations of an index.
fn pages_of(index: &Path) -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with("-page.bin")
    };
    files(index).into_iter().filter(is_page).collect()
}

/// A page that is damaged or gone, of the current generation or of a kept one, stops no publication:
/// another scan takes its place.
#[test]
fn another_scan_takes_the_place_of_damaged_pages() {
    for is_gone in [false, true] {
        for kept_first in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let index = dir.path().join("index");
            let keep = |keep: &str| WriterOptions {
                retention: Some(keep.parse().unwrap()),
                keep_replaced: false,
                ..WriterOptions::default()
            };
            publish_with(&index, keep("3"), "/a", 100).unwrap();
            publish_with(&index, keep("3"), "/b", 10).unwrap();
            let damaged = pages_of(&index);
            assert!(damaged.len() >= 4, "{damaged:?}");
            if kept_first {
                publish_with(&index, keep("3"), "/a", 50).unwrap();
                publish_with(&index, keep("3"), "/b", 5).unwrap();
            }
            for path in &damaged {
                assert!(path.exists(), "{}", path.display());
                match is_gone {
                    true => std::fs::remove_file(path).unwrap(),
                    false => std::fs::write(path, "damaged").unwrap(),
                }
            }
            assert_eq!(read_all(&index).is_ok(), kept_first);
            publish_with(&index, keep("3"), "/a", 20).unwrap();
            publish_with(&index, keep("3"), "/b", 30).unwrap();
            assert_eq!(read_all(&index).unwrap(), 100);
            // Generations that have nothing of the damaged ones stay whole beside them.
            let generation = publish_with(&index, keep("3"), "/a", 25).unwrap();
            publish_with(&index, keep("3"), "/b", 10).unwrap();
            assert_eq!(read_at(&index, Some(Moment::Generation(generation))).unwrap(), 110);
            for _ in 0..3 {
                publish_with(&index, keep("none"), "/a", 25).unwrap();
            }
            assert_eq!(read_all(&index).unwrap(), 70);
            assert!(!damaged.iter().any(|path| path.exists()), "{:#?}", files(&index));
        }
    }
}

/// Files that only older generations need are for the owner of the index.
#[test]
fn dropped_files_are_closed_to_others() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let shards = || {
        let files = files(&index).into_iter();
        let in_class = files.filter(|path| path.extension().is_some_and(|end| end == "parquet"));
        let mode = |path: &PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
        in_class.map(|path| (mode(&path), path)).collect::<Vec<_>>()
    };
    let keep = |keep_replaced| WriterOptions {
        retention: Some("5".parse().unwrap()),
        keep_replaced,
        ..WriterOptions::default()
    };
    publish_with(&index, keep(false), "/a", 10).unwrap();
    let old = shards();
    assert!(old.len() > 2 && old.iter().all(|(mode, _)| *mode == 0o644), "{old:?}");
    // Not as long as there may be readers.
    publish_with(&index, keep(true), "/a", 10).unwrap();
    let both = shards();
    assert!(both.iter().all(|(mode, _)| *mode == 0o644), "{both:?}");
    publish_with(&index, keep(false), "/b", 10).unwrap();
    for (mode, path) in shards() {
        let is_old = old.iter().any(|(_, old)| *old == path);
        assert_eq!(mode, if is_old { 0o600 } else { 0o644 }, "{}", path.display());
    }
    assert_eq!(read_at(&index, Some(Moment::Generation(Generation(1)))).unwrap(), 20);
    // Nothing of them is left where none is kept.
    publish_alone(&index, "/c", 10);
    assert!(shards().iter().all(|(_, path)| !old.iter().any(|(_, old)| old == path)));
    assert!(matches!(
        read_at(&index, Some(Moment::Generation(Generation(1)))),
        Err(Error::NotKept { nearest: [None, Some(Generation(4))], .. })
    ));
}

/// A reader who has opened a generation can read it to the end, though others are published
/// meanwhile.
#[test]
fn readers_come_to_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    publish(&index, Disk::default(), "/a", 1000).unwrap();
    let opened = Index::open(&index).unwrap();
    for entries in 0..20 {
        publish(&index, Disk::default(), "/a", entries).unwrap();
    }
    assert_eq!(opened.shards().unwrap().len(), 2);
    for shard in opened.shards().unwrap() {
        let rows = 0..shard.rows(FileKind::Entries);
        let columns: Columns = FileKind::Entries.columns().iter().copied().collect();
        let batches = shard.read(FileKind::Entries, columns, &[rows], 100).unwrap();
        assert_eq!(batches.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 1000);
    }
}

/// A writer that can do nothing any more is as one that was killed there. The next one removes all
/// that it has left, directories too, and nothing else.
#[test]
fn the_next_writer_removes_what_one_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    let entries = |directory: &Path| {
        let output = std::process::Command::new("find").arg(directory).output().unwrap().stdout;
        let lines = String::from_utf8(output).unwrap();
        let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    publish(&index, Disk::default(), "/a", 10).unwrap();
    let foreign = [index.join("9-9-entries.parquet"), index.join("classes/manifest-9.bin")];
    foreign.iter().for_each(|path| std::fs::write(path, "not ours").unwrap());
    let settled = entries(&index);
    for after in 0.. {
        let faults = Faults::new(after, rustix::io::Errno::IO.raw_os_error(), true);
        let outcome = publish(&index, Disk::with_faults(faults.clone()), "/a", 10);
        if outcome.is_ok() {
            assert!(after > 30, "{after}");
            break;
        }
        drop(Writer::open(&index, WriterOptions::default()).unwrap());
        let now = entries(&index);
        // An error after the commit leaves the new generation, and the one before.
        if now.len() > settled.len() {
            assert!(now.iter().any(|path| path.ends_with("manifests-1.bin")), "{now:?}");
            break;
        }
        assert_eq!(now, settled, "after {after}");
    }
    foreign.iter().for_each(|path| assert_eq!(std::fs::read(path).unwrap(), b"not ours"));
}

#[test]
fn sources_are_replaced_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    publish(&index, Disk::default(), "/a", 10).unwrap();
    publish(&index, Disk::default(), "/b", 20).unwrap();
    assert_eq!(read_all(&index).unwrap(), 60);
    publish(&index, Disk::default(), "/a", 1).unwrap();
    assert_eq!(read_all(&index).unwrap(), 42);
    assert_eq!(Index::open(&index).unwrap().sources().len(), 2);
}

/// A source whose listings do not all come is not published, and those beside it are.
#[test]
fn an_unfinished_source_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    publish_alone(&index, "/a", 10);
    let settled = files(&index).len();
    for abandons in [true, false] {
        // So little memory that every listing becomes a shard.
        let options = WriterOptions { memory_bytes: 1, ..WriterOptions::default() };
        let mut writer = Writer::open(&index, options).unwrap();
        let source = add_source(&mut writer, "/a").unwrap();
        let mut sinks = writer.shard_writers(source);
        push_listings(&mut sinks[0], &writer, 500).unwrap();
        drop(sinks);
        assert!(files(&index).len() > settled + 7);
        if abandons {
            writer.abandon(source);
            assert!(files(&index).len() <= settled + 1);
        }
        let generation = writer.publish().unwrap().generation;
        assert_eq!(read_all(&index).unwrap(), 20);
        assert_eq!(Index::open(&index).unwrap().generation(), generation);
    }
    publish_alone(&index, "/a", 10);
    assert_eq!(files(&index).len(), settled);
}

#[test]
fn one_writer_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::open(dir.path(), WriterOptions::default()).unwrap();
    assert!(matches!(Writer::open(dir.path(), WriterOptions::default()), Err(Error::Locked(_))));
    drop(writer);
    Writer::open(dir.path(), WriterOptions::default()).unwrap();
}

#[test]
fn damage_anywhere_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    // Enough entries for a file of several blocks.
    publish(&index, Disk::default(), "/a", 40_000).unwrap();
    let unread = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        path.parent().unwrap().ends_with("lists")
            || name == "lock"
            || name == "CURRENT.copy"
            || name.starts_with("catalog")
            || name.starts_with("manifest-")
    };
    for path in files(&index).iter().filter(|path| !unread(path)) {
        let whole = std::fs::read(path).unwrap();
        let places = (0..whole.len()).step_by((whole.len() / 40).max(1));
        for at in places {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            for damaged in [&flipped[..], &whole[..at]] {
                std::fs::write(path, damaged).unwrap();
                let error = read_all(&index).expect_err("damage must be noticed");
                let name = path.file_name().unwrap().to_string_lossy();
                assert!(error.to_string().contains(&*name), "{name} at {at}: {error}");
            }
        }
        std::fs::write(path, &whole).unwrap();
        assert_eq!(read_all(&index).unwrap(), 80_000);
    }
}

/// A writer reads what is committed: where that is damaged, a repair makes it again. The advice was to
/// remove the index, and its history with it.
#[test]
fn damage_says_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    publish(&index, Disk::default(), "/a", 10).unwrap();
    for name in ["CURRENT", "manifests-1.bin"] {
        let whole = std::fs::read(index.join(name)).unwrap();
        std::fs::write(index.join(name), b"garbage").unwrap();
        let written = publish(&index, Disk::default(), "/a", 10).map(drop).unwrap_err();
        for error in [written, read_all(&index).map(drop).unwrap_err()] {
            let told = error.to_string();
            assert!(told.ends_with("'canopy check --repair' repairs it"), "{told}");
            assert!(!told.contains("remove the index"), "{told}");
        }
        std::fs::write(index.join(name), whole).unwrap();
    }
    publish(&index, Disk::default(), "/a", 10).unwrap();
}

#[test]
fn unsafe_places_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    std::fs::create_dir(&index).unwrap();
    std::fs::set_permissions(&index, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(Writer::open(&index, WriterOptions::default()), Err(Error::Unsafe { .. })));
    std::fs::set_permissions(&index, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(Writer::open(&index, WriterOptions::default()), Err(Error::Unsafe { .. })));
}
