//! Contents as chunks in storage: which objects there are and when they go, storage that fails, and
//! objects that are damaged.

mod cache;
mod failing;
mod place;

use bytes::Bytes;
use canopy_namespace::{Extent, Privileges, ROOT};
use canopy_store::storage::Storage;
use canopy_store::{checkpoint, release};
use place::{CHUNK, Fixture};
use rustix::io::Errno;
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn objects_go_when_nothing_names_them() {
    let mut place = Fixture::new();
    let file = place.create("file");
    // Three chunks and a hole between them.
    place.write(&file, 0, 1, 2 * CHUNK);
    place.write(&file, 9 * CHUNK, 1, 10);
    place.sync(&file);
    let first = place.objects();
    assert_eq!(first.len(), 3);
    place.write(&file, 5, 2, 1);
    place.sync(&file);
    assert_eq!(place.objects().len(), 4);
    place.collect();
    let second = place.objects();
    assert_eq!(second.len(), 3);
    // A checkpoint keeps what it has, and nothing more.
    let table = place.namespace().table().id();
    let (kept, _) = checkpoint(&place.environment, table, None).expect("a checkpoint");
    place.write(&file, 6, 3, 1);
    place.sync(&file);
    place.write(&file, 6, 4, 1);
    place.sync(&file);
    place.collect();
    assert_eq!(place.objects().len(), 4);
    assert!(second.iter().all(|one| place.objects().contains(one)));
    let id = file.id();
    place.namespace().close_file(&file).expect("closed");
    place.namespace().unlink(ROOT, b"file").expect("a name gone");
    place.collect();
    place.collect();
    assert_eq!(place.objects(), second);
    release(&place.environment, table, kept).expect("a checkpoint gone");
    place.collect();
    assert_eq!(place.objects(), Vec::<String>::new());
    assert!(place.namespace().open_file(id).is_err());
    // What a process left that died between sending and telling, and what none has sent.
    let prefix = format!("{table}/chunk/");
    let stray = format!("{prefix}{:020}-{:020}", 1, 77);
    let foreign = format!("{prefix}mine");
    for name in [&stray, &foreign] {
        place.storage.create(name, Bytes::from_static(b"x")).expect("an object");
    }
    place.open_anew();
    assert_eq!(place.faults(), Vec::<String>::new());
    assert_eq!(place.objects(), [foreign]);
}

#[test]
fn a_crash_before_contents_are_sent_leaves_the_size_that_they_had() {
    let mut place = Fixture::new();
    let file = place.create("file");
    place.write(&file, 0, 1, 2 * CHUNK);
    place.sync(&file);
    place.write(&file, 10, 2, 5 * CHUNK);
    let id = file.id();
    // Each writes the record.
    let set = canopy_namespace::SetAttributes { mode: Some(0o600), ..Default::default() };
    place.namespace().set_attributes(id, &set, Privileges::Keep).expect("a mode");
    place.namespace().link(id, ROOT, b"second").expect("a name");
    place.namespace().sync_inode(id).expect("a sync");
    assert_eq!(place.namespace().inode(id).expect("an inode").size, 5 * CHUNK as u64 + 10);
    drop(file);
    place.open_anew();
    let inode = place.namespace().inode(id).expect("an inode");
    assert_eq!((inode.size, inode.mode & 0o777, inode.nlink), (2 * CHUNK as u64, 0o600, 2));
    let file = place.open(id);
    let found = place.namespace().read(&file, 0, 9 * CHUNK, false).expect("bytes");
    assert_eq!(found, vec![1; 2 * CHUNK]);
    assert_eq!(place.faults(), Vec::<String>::new());
}

#[test]
fn objects_that_are_damaged_or_missing_are_told_by_name() {
    for is_missing in [true, false] {
        let mut place = Fixture::new();
        let file = place.create("file");
        place.write(&file, 0, 1, 3 * CHUNK);
        place.sync(&file);
        let id = file.id();
        drop(file);
        place.open_anew();
        let name = place.objects().swap_remove(1);
        let mut bytes = place.storage.read(&name).expect("bytes").to_vec();
        place.storage.remove(&name).expect("removed");
        if !is_missing {
            bytes[17] ^= 4;
            place.storage.create(&name, bytes.into()).expect("an object");
        }
        let what = if is_missing { "is missing" } else { "is damaged" };
        let file = place.open(id);
        let error = place.namespace().read(&file, 0, 9 * CHUNK, false).expect_err("a failure");
        assert_eq!(error.errno(), Errno::IO);
        let said = error.to_string();
        assert!(said.contains(&format!("file {id}, chunk ")) && said.contains(&name), "{said}");
        assert!(said.contains(what), "{said}");
        let found = place.faults();
        assert!(
            found.len() == 1 && found[0].contains(&name) && found[0].contains(what),
            "{found:?}"
        );
    }
}

#[test]
fn a_part_of_a_huge_file_becomes_a_hole_at_once() {
    const KEEP_SIZE_PUNCH_HOLE: i32 = 3;
    let (told, done) = channel();
    std::thread::spawn(move || {
        let place = Fixture::new();
        let (file, largest) = (place.create("file"), i64::MAX as u64);
        place.write(&file, 0, 1, 3 * CHUNK);
        place.namespace().truncate(file.id(), largest, Privileges::Keep).expect("a length");
        let range = Extent::new(10, largest - 10);
        let punched =
            place.namespace().allocate(&file, KEEP_SIZE_PUNCH_HOLE, range, Privileges::Keep);
        punched.expect("a hole");
        place.sync(&file);
        let read = place.namespace().read(&file, 0, 3 * CHUNK, false).expect("bytes");
        told.send((read, place.objects().len(), place.faults())).expect("a listener");
    });
    let (read, objects, faults) = done.recv_timeout(Duration::from_secs(30)).expect("an end");
    assert_eq!(read, [vec![1; 10], vec![0; 3 * CHUNK - 10]].concat());
    assert_eq!((objects, faults), (1, Vec::new()));
}

#[test]
fn parts_that_are_no_whole_chunks_become_holes() {
    const KEEP_SIZE_PUNCH_HOLE: i32 = 3;
    let chunk = CHUNK as u64;
    for (offset, end) in [
        (1, 5),
        (0, chunk),
        (chunk, 2 * chunk),
        (chunk - 1, chunk + 1),
        (5, 3 * chunk - 5),
        (chunk, 2 * chunk + 7),
        (7, 2 * chunk),
        (2 * chunk + 1, 9 * chunk),
    ] {
        for is_sent in [false, true] {
            let place = Fixture::new();
            let file = place.create("file");
            place.write(&file, 0, 1, 3 * CHUNK);
            if is_sent {
                place.sync(&file);
            }
            let range = Extent::new(offset, end - offset);
            let namespace = place.namespace();
            let punched = namespace.allocate(&file, KEEP_SIZE_PUNCH_HOLE, range, Privileges::Keep);
            punched.expect("a hole");
            let mut expected = vec![1; 3 * CHUNK];
            expected[offset as usize..(end as usize).min(3 * CHUNK)].fill(0);
            for _ in 0..2 {
                let read = namespace.read(&file, 0, 9 * CHUNK, false).expect("bytes");
                assert!(read == expected, "{offset} to {end}, sent: {is_sent}");
                place.sync(&file);
            }
            assert_eq!(place.faults(), Vec::<String>::new());
        }
    }
}

#[test]
fn zeros_that_were_written_take_no_space() {
    let place = Fixture::new();
    let file = place.create("file");
    place.write(&file, 0, 1, CHUNK);
    place.write(&file, CHUNK, 0, 2 * CHUNK);
    place.sync(&file);
    assert_eq!(place.objects().len(), 1);
    // The time of access goes to the record when the file is closed already.
    place.namespace().read(&file, 0, 1, true).expect("bytes");
    let id = file.id();
    place.namespace().close_file(&file).expect("closed");
    drop(file);
    place.namespace().sync().expect("a sync");
    assert_eq!(place.namespace().inode(id).expect("an inode").blocks, CHUNK as u64 / 512);
    assert_eq!(place.faults(), Vec::<String>::new());
}

#[test]
fn nothing_that_threads_append_is_lost() {
    let place = Fixture::new();
    let file = place.create("file");
    place.write(&file, 0, 9, CHUNK + 1);
    std::thread::scope(|scope| {
        for byte in 1..=4 {
            let (place, file) = (&place, &file);
            scope.spawn(move || {
                for _ in 0..100 {
                    let line = [byte; 50];
                    let namespace = place.namespace();
                    namespace.write(file, None, &line, Privileges::Keep).expect("a write");
                }
            });
        }
    });
    place.sync(&file);
    let read = place.namespace().read(&file, CHUNK as u64 + 1, 99 * CHUNK, false).expect("bytes");
    assert_eq!(read.len(), 4 * 100 * 50);
    assert!(read.chunks(50).all(|line| line.iter().all(|byte| *byte == line[0])));
}

#[test]
fn a_very_large_truncation_is_done_in_steps() {
    let mut place = Fixture::new();
    place.open_in_memory();
    let file = place.create("file");
    let id = file.id();
    // More than are recorded in one batch, of one byte each.
    let chunks = (1 << 16) + 1000;
    for chunk in 0..chunks {
        place.write(&file, chunk * CHUNK, 1, 1);
    }
    place.sync(&file);
    let whole = (chunks - 1) * CHUNK + 1;
    let before = place.segments();
    place.namespace().truncate(id, 10 * CHUNK as u64, Privileges::Keep).expect("cut off");
    place.write(&file, 5 * CHUNK, 2, 1);
    place.sync(&file);
    let steps = Vec::from_iter(place.segments().into_iter().filter(|one| !before.contains(one)));
    assert!(steps.len() > 1, "{steps:?}");
    let mut sizes = Vec::new();
    for count in 0..=steps.len() {
        let crashed = place.without(|name| steps[count..].iter().any(|step| step == name));
        assert_eq!(crashed.faults(), Vec::<String>::new(), "after {count} steps");
        let size = crashed.namespace().inode(id).expect("an inode").size as usize;
        let file = crashed.open(id);
        let is_done = count == steps.len();
        for chunk in [0, 5, 9, 10, 11, 500, 60_000, chunks - 1] {
            let read = crashed.namespace().read(&file, (chunk * CHUNK) as u64, 1, false);
            let expected = match (chunk * CHUNK < size, chunk == 5 && is_done) {
                (false, _) => &[][..],
                (true, false) => &[1],
                (true, true) => &[2],
            };
            assert_eq!(read.expect("bytes"), expected, "chunk {chunk} after {count} steps");
        }
        sizes.push(size);
    }
    assert!(sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}");
    assert_eq!((sizes[0], sizes[steps.len()]), (whole, 10 * CHUNK), "{sizes:?}");
    assert!(sizes.iter().any(|size| *size > 10 * CHUNK && *size < whole), "{sizes:?}");
}
