//! What must hold when the disk fails: the old generation stays whole, the next writer succeeds,
//! nothing piles up.

use canopy_index::column::{ATIME, BTIME, BTIME_AFTER_MTIME, CTIME};
use canopy_index::{
    Columns, Disk, Error, Faults, FileKind, Index, NewSource, Result, Writer, WriterOptions,
};
use canopy_model::{Approach, Attributes, Listing, Permissions, Rows};
use std::path::{Path, PathBuf};

const DIR: u32 = 0o040_755;

/// Publishes a source of some listings in two classes, each with `entries` entries of one byte.
fn publish(index: &Path, disk: Disk, root: &str, entries: u64) -> Result<u64> {
    let mut writer = Writer::open(index, WriterOptions { disk, ..WriterOptions::default() })?;
    let access = |mode| {
        let permissions = Permissions { mode, uid: 1000, gid: 1000, acl: None, unknown: false };
        writer.classes().access(&Approach::EVERYONE, permissions)
    };
    let accesses = [access(0o755), access(0o700)];
    let source = writer.add_source(NewSource {
        name: None,
        root: root.to_owned(),
        dev: 1,
        scanned_ns: 0,
        attributes: Attributes { mode: DIR, ..Attributes::default() },
        approach: Approach::EVERYONE,
        xattrs: Vec::new(),
    })?;
    let mut sinks = writer.shard_writers(source);
    for (number, access) in accesses.iter().enumerate() {
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
        let path = if number == 0 { "" } else { "private" };
        let listing = Listing {
            path,
            depth: number as u32,
            part: 0,
            dev: 1,
            directory: &directory,
            access,
            rows: &rows,
        };
        sinks[0].push(&listing)?;
    }
    writer.finish_shards(sinks)?;
    Ok(writer.publish()?.generation)
}

/// Reads everything and returns how many entries there are.
fn read_all(index: &Path) -> Result<u64> {
    let index = Index::open(index)?;
    let mut entries = 0;
    for shard in index.shards() {
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
        publish(&index, Disk::default(), "/a", 100).unwrap();
        // Two generations stay: after a second one the number of files no longer grows.
        publish(&index, Disk::default(), "/a", 100).unwrap();
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
        publish(&index, Disk::default(), "/a", 100).unwrap();
        publish(&index, Disk::default(), "/a", 100).unwrap();
        assert_eq!(read_all(&index).unwrap(), 200);
        assert_eq!(files(&index).len(), settled, "{:#?}", files(&index));
    }
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
        name == "lock" || name.starts_with("catalog") || name.starts_with("manifest-")
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
