//! What becomes of chunks that are lost or damaged, and of objects that nothing names.

use crate::CHUNK_BYTES;
use crate::place::{Fixture, open};
use canopy_namespace::keys::Space;
use canopy_namespace::{FileId, Opened, Privileges};
use canopy_store::Key;
use rustix::io::Errno;
use std::fs;
use std::sync::Arc;

const CHUNK: usize = CHUNK_BYTES as usize;

/// What a large file of the tree has in it.
fn whole() -> Vec<u8> {
    "large.dat".repeat(50_000 / 9 + 1).into_bytes()[..50_000].to_vec()
}

fn opened(place: &Fixture, id: FileId) -> Arc<Opened> {
    place.namespace.open_file(id).unwrap()
}

/// Reads a file chunk by chunk; none for those that cannot be read.
fn read(place: &Fixture, id: FileId) -> Vec<Option<Vec<u8>>> {
    let opened = opened(place, id);
    let size = place.namespace.inode(id).unwrap().size;
    let chunks = (0..size.div_ceil(CHUNK_BYTES)).map(|chunk| {
        let read = place.namespace.read(&opened, chunk * CHUNK_BYTES, CHUNK, false);
        read.map_err(|error| assert_eq!(error.errno(), Errno::IO)).ok()
    });
    let found = chunks.collect();
    place.namespace.close_file(&opened).unwrap();
    found
}

/// Fails unless a file has all it had but for some chunks, which cannot be read.
#[track_caller]
fn assert_lost(place: &Fixture, id: FileId, lost: &[usize]) {
    let found = read(place, id);
    let whole = whole();
    assert_eq!(found.len(), whole.chunks(CHUNK).len());
    for (at, (found, expected)) in found.iter().zip(whole.chunks(CHUNK)).enumerate() {
        match lost.contains(&at) {
            true => assert_eq!(*found, None, "chunk {at}"),
            false => assert!(found.as_deref() == Some(expected), "chunk {at}"),
        }
    }
}

#[test]
fn lost_chunks_cannot_be_read_and_the_others_can() {
    let directory = tempfile::tempdir().unwrap();
    let place = Fixture::with(&directory, CHUNK_BYTES);
    let id = place.id("top/large.dat");
    let records = place.chunks(id);
    let object = |at: usize| place.chunk_object(&records[at].1);
    // Missing, too short, and two whose records are none.
    fs::remove_file(object(1)).unwrap();
    fs::write(object(3), "short").unwrap();
    for at in [4, 12] {
        place.put(&records[at].0, b"?");
    }
    assert_eq!(place.faults().len(), 5);
    let repaired = place.namespace.repair().unwrap();
    assert!(repaired.left.is_empty(), "{repaired:#?}");
    for said in ["bytes 4096 to 8192 are lost", "bytes 12288 to 20480", "bytes 49152 to 50000"] {
        assert!(repaired.done.iter().any(|line| line.contains(said)), "{said}: {repaired:#?}");
    }
    assert_eq!(place.faults(), [""; 0]);
    assert_eq!(place.inode("top/large.dat").size, 50_000);
    let path = place.path.clone();
    place.namespace.close().unwrap();
    drop(place);
    // What was mended once is, and no fault for a check that reads contents either.
    let place = Fixture { namespace: open(&path), path };
    assert_eq!(place.namespace.check_contents(|_| {}).unwrap(), []);
    assert_eq!(place.namespace.repair_contents().unwrap().done, [""; 0]);
    assert_lost(&place, id, &[1, 3, 4, 12]);
    // What is written anew is whole; what would have to be read for it fails.
    let file = opened(&place, id);
    let write = |offset: usize, bytes: &[u8]| {
        place.namespace.write(&file, Some(offset as u64), bytes, Privileges::Keep)
    };
    assert_eq!(write(CHUNK + 7, b"x").unwrap_err().errno(), Errno::IO);
    write(CHUNK, &whole()[CHUNK..2 * CHUNK]).unwrap();
    write(12 * CHUNK, &whole()[12 * CHUNK..]).unwrap();
    place.namespace.sync_file(&file).unwrap();
    place.namespace.close_file(&file).unwrap();
    assert_lost(&place, id, &[3, 4]);
    place.namespace.truncate(id, 3 * CHUNK_BYTES + 5, Privileges::Keep).unwrap();
    place.namespace.truncate(id, 3, Privileges::Keep).unwrap();
    place.namespace.sync().unwrap();
    assert_eq!(read(&place, id), [Some(b"lar".to_vec())]);
    assert_eq!(place.faults(), [""; 0]);
}

#[test]
fn a_file_whose_beginning_is_lost_can_be_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let place = Fixture::with(&directory, CHUNK_BYTES);
    let id = place.id("top/large.dat");
    fs::remove_file(place.chunk_object(&place.chunks(id)[0].1)).unwrap();
    place.namespace.repair().unwrap();
    assert_lost(&place, id, &[0]);
    // Few enough for a record, if they could be read.
    place.namespace.truncate(id, 100, Privileges::Keep).unwrap();
    place.namespace.sync().unwrap();
    assert_eq!(read(&place, id), [None]);
    assert_eq!(place.faults(), [""; 0]);
    place.namespace.truncate(id, 0, Privileges::Keep).unwrap();
    place.write(id, "new", 20);
    place.namespace.sync().unwrap();
    assert_eq!(read(&place, id), [Some(b"newnewnewnewnewnewne".to_vec())]);
    assert_eq!(place.faults(), [""; 0]);
}

#[test]
fn damaged_and_exchanged_objects_are_lost_where_contents_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let place = Fixture::with(&directory, CHUNK_BYTES);
    let id = place.id("top/large.dat");
    let records = place.chunks(id);
    let object = |at: usize| place.chunk_object(&records[at].1);
    let mut bytes = fs::read(object(2)).unwrap();
    bytes[77] ^= 1;
    fs::write(object(2), &bytes).unwrap();
    let (one, other) = (fs::read(object(5)).unwrap(), fs::read(object(6)).unwrap());
    fs::write(object(5), other).unwrap();
    fs::write(object(6), one).unwrap();
    let path = place.path.clone();
    place.namespace.close().unwrap();
    drop(place);
    // Nothing of the cache is trusted.
    fs::remove_dir_all(path.join("contents")).unwrap();
    let place = Fixture { namespace: open(&path), path };
    assert_eq!(place.namespace.repair().unwrap().done, [""; 0]);
    let repaired = place.namespace.repair_contents().unwrap();
    assert!(repaired.left.is_empty(), "{repaired:#?}");
    assert_lost(&place, id, &[2, 5, 6]);
    assert_eq!(place.namespace.check_contents(|_| {}).unwrap(), []);
}

#[test]
fn objects_that_no_record_names_go_and_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let place = Fixture::with(&directory, CHUNK_BYTES);
    let before = place.count_objects();
    let large = place.id("top/large.dat");
    let (key, record) = place.chunks(large).swap_remove(2);
    // An object whose note was lost, and one that a snapshot needs.
    let stray = place.chunk_object(&record).with_file_name(format!("{:020}-{:020}", 1, 7777));
    fs::write(&stray, "stray").unwrap();
    place.namespace.create_snapshot("before").unwrap();
    fs::remove_file(place.chunk_object(&place.chunks(large)[8].1)).unwrap();
    // A note that a needed object may go, and one that is none.
    let false_note = [&2u64.to_be_bytes()[..], &record[..16]].concat();
    place.put(&Space::Garbage.of(large, &false_note), b"");
    place.put(&Space::Garbage.of(large, b"short"), b"");
    place.put(&Key { name: b"short".to_vec(), ..key }, &record);
    let path = place.path.clone();
    place.namespace.close().unwrap();
    drop(place);
    let place = Fixture { namespace: open(&path), path };
    let told = place.namespace.repair().unwrap();
    assert!(told.left.is_empty(), "{told:#?}");
    let said = |what: &str| told.done.iter().any(|line| line.contains(what));
    assert!(said("removed a note that an object may go"), "{told:#?}");
    assert!(said("removed 1 object that no record names"), "{told:#?}");
    assert!(!stray.exists());
    place.namespace.collect().unwrap();
    assert_lost(&place, large, &[8]);
    assert_eq!(place.count_objects(), before - 1);
    assert_eq!(place.faults(), [""; 0]);
    // The snapshot has the same, and loses nothing when the file goes.
    place.namespace.unlink(place.id("top"), b"large.dat").unwrap();
    place.namespace.sync().unwrap();
    place.namespace.collect().unwrap();
    let past = place.namespace.past(b"before").unwrap();
    let file = place.namespace.open_past(&past, large).unwrap();
    let found = place.namespace.read_past(&file, 0, 8 * CHUNK).unwrap();
    assert!(found == whole()[..8 * CHUNK]);
    assert_eq!(place.faults(), [""; 0]);
}
