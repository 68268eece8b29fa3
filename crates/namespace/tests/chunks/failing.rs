//! Storage that takes nothing, or only some, and files that go meanwhile.

use crate::place::{CHUNK, Fixture};
use canopy_namespace::{EntryName, Opened, ROOT};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn chunks_that_storage_refuses_stay_and_are_sent_again() {
    let mut place = Fixture::new();
    let file = place.create("file");
    place.write(&file, 0, 1, 3 * CHUNK);
    place.sync(&file);
    place.storage.fails.store(true, Ordering::Relaxed);
    place.write(&file, 100, 2, 3 * CHUNK);
    for _ in 0..2 {
        let error = place.namespace().sync_file(&file).expect_err("a failure");
        assert_eq!(error.errno(), Errno::IO);
        assert!(error.to_string().contains("/chunk/"), "{error}");
    }
    let read = |opened: &Opened| place.namespace().read(opened, 0, 9 * CHUNK, false);
    let expected = [vec![1; 100], vec![2; 3 * CHUNK]].concat();
    assert_eq!(read(&file).expect("bytes"), expected);
    // Closing waits for nobody, and loses nothing; names and attributes go on.
    let id = file.id();
    place.namespace().close_file(&file).expect("closed");
    drop(file);
    place
        .namespace()
        .rename(
            EntryName::new(ROOT, b"file"),
            EntryName::new(ROOT, b"other"),
            canopy_namespace::RenameMode::Replace,
        )
        .expect("a rename");
    assert_eq!(place.namespace().inode(id).expect("an inode").size, expected.len() as u64);
    place.namespace().table().sync().expect("a log");
    place.storage.fails.store(false, Ordering::Relaxed);
    place.collect();
    // What failed was made: it is removed, since no record names it.
    assert_eq!(place.objects().len(), 4);
    place.open_anew();
    let file = place.open(id);
    let found = place.namespace().read(&file, 0, 9 * CHUNK, false).expect("bytes");
    assert_eq!(found, expected);
    assert_eq!(place.faults(), Vec::<String>::new());
}

#[test]
fn stored_chunks_are_not_sent_again() {
    let place = Fixture::new();
    let file = place.create("file");
    for chunk in 0..8 {
        place.write(&file, chunk * CHUNK, 1 + chunk as u8, CHUNK);
    }
    *place.storage.refuses.lock() = Some(3);
    for _ in 0..5 {
        place.namespace().sync_file(&file).expect_err("a failure");
    }
    // Those behind the one that failed may not have been tried.
    let made = place.storage.made.lock().clone();
    assert!((2..=7).contains(&made.len()), "{made:?}");
    // What is changed meanwhile is sent as it is now, and the object before it goes.
    place.write(&file, 0, 9, 1);
    place.namespace().sync_file(&file).expect_err("a failure");
    *place.storage.refuses.lock() = None;
    place.sync(&file);
    assert_eq!(place.storage.made.lock().len(), 9);
    place.collect();
    assert_eq!(place.objects().len(), 8);
    assert!(place.objects().iter().collect::<BTreeSet<_>>().len() == 8);
    let mut expected = Vec::from_iter((1..=8).flat_map(|byte| [byte; CHUNK]));
    expected[0] = 9;
    assert!(place.namespace().read(&file, 0, 9 * CHUNK, false).expect("bytes") == expected);
    assert_eq!(place.faults(), Vec::<String>::new());
}

#[test]
fn a_file_that_goes_while_it_is_sent_leaves_no_objects() {
    let place = Fixture::new();
    let file = place.create("file");
    place.write(&file, 0, 1, 4 * CHUNK);
    let id = file.id();
    std::thread::scope(|scope| {
        let held = place.storage.held.write();
        let sent = scope.spawn(|| place.namespace().sync_file(&file));
        // Until it waits for storage; one that has not begun finds nothing to send.
        std::thread::sleep(Duration::from_millis(300));
        place.namespace().unlink(ROOT, b"file").expect("a name gone");
        place.namespace().release(id, 1).expect("a file gone");
        drop(held);
        // There is nothing to be lost any more.
        let _ = sent.join().expect("an end");
    });
    place.namespace().close_file(&file).expect("closed");
    place.collect();
    place.collect();
    assert!(!place.storage.made.lock().is_empty());
    assert_eq!(place.objects(), Vec::<String>::new());
    assert_eq!(place.faults(), Vec::<String>::new());
}
