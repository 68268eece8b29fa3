//! Checks that read contents, of the namespace and of a snapshot.

use crate::place::{CHUNK, Place};
use canopy_cluster::check::{Progress, check, check_contents, check_snapshot, repair_contents};
use canopy_cluster::{Peers, SnapshotTables};
use canopy_namespace::FileContents;
use canopy_namespace::operation::{OnSnapshots, Operation};
use canopy_namespace::system_clock;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn contents_are_compared_with_their_checksums() {
    let place = Place::new();
    let (client, storage) = (place.rich_client(), place.environment.storage.clone());
    let ids = ["one", "two", "three"].map(|name| client.create(name).id);
    for (round, id) in (1..).zip(ids) {
        client.put(id, &vec![round; 20 * CHUNK as usize + 5]);
    }
    let create = Operation::Snapshots(OnSnapshots::Create("s"));
    client.execute(&create).expect("a snapshot");
    let operations = place.operations();
    let number = operations.snapshots().expect("snapshots").0[0].number;
    let tables = operations.snapshot_tables(number).expect("its tables");
    let (bytes, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let progress = |progress| {
        if let Progress::Contents { bytes: read, all: of } = progress {
            bytes.fetch_max(read, Ordering::Relaxed);
            all.store(of, Ordering::Relaxed);
        }
    };
    let peers: Arc<dyn Peers> = place.process.clone();
    let contents = || check_contents(&*peers, &*storage, &progress).expect("a check");
    let of = |tables: &SnapshotTables| {
        check_snapshot(&place.environment, &system_clock(), tables, true, &progress)
            .expect("a check")
    };
    assert_eq!((contents(), of(&tables)), (Vec::new(), Vec::new()));
    let expected = 3 * (20 * CHUNK + 5);
    assert_eq!([&bytes, &all].map(|one| one.load(Ordering::Relaxed)), [expected; 2]);
    // Other bytes of the same length.
    for name in place.objects("contents/chunk/").iter().step_by(9) {
        let mut bytes = storage.read(name).expect("an object").to_vec();
        bytes[0] ^= 1;
        storage.remove(name).expect("removed");
        storage.create(name, bytes.into()).expect("created");
    }
    assert_eq!(check(&*peers, &*storage, &|_| {}).expect("a check"), []);
    for faults in [contents(), of(&tables)] {
        assert_eq!(faults.len(), 7, "{faults:?}");
        assert!(faults.iter().all(|one| one.what.ends_with(" is damaged")), "{faults:?}");
    }
    let repaired = repair_contents(&peers, &operations, &*storage, &|_| {}).expect("a repair");
    assert_eq!((repaired.done.len(), repaired.left.len()), (7, 0));
    assert_eq!(contents(), []);
    assert_eq!(of(&tables).len(), 7, "the snapshot is what it was");
    let other = place.rich_client();
    other.0.open(ids[0]).expect("a file");
    let read = other.0.read_at(ids[0], 0, CHUNK as usize, false);
    assert_eq!(read.expect_err("it is lost").errno(), Errno::IO);
    other.0.close(ids[0]).expect("closed");
    other.put(ids[0], &[7; 10_000]);
    assert!(place.client().whole(ids[0]) == [7; 10_000]);
}
