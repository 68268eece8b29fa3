//! Several threads of a client, several clients, and servers that move files meanwhile.

use crate::place::{CHUNK, Over, Place, User};
use canopy_namespace::{Extent, FileContents, FileId, Privileges};
use canopy_partition::SplitPolicy;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};

/// Sends and opens a file again and again, until the end.
fn disturb(client: &User, id: FileId, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        client.0.publish(id).expect("sent");
        client.0.open(id).expect("opened once more");
        client.0.close(id).expect("closed");
    }
}

/// A thread writes and reads while others send what it wrote, and another client writes other bytes
/// of the same chunks.
#[test]
fn a_client_reads_what_it_wrote_while_that_is_sent() {
    for size in [900, 3 * CHUNK] {
        let place = Place::new();
        let (client, other) = (place.client(), place.client());
        let id = client.create("file").id;
        client.0.open(id).expect("a file");
        let is_over = AtomicBool::new(false);
        let mut model = vec![0; size as usize / 2];
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| disturb(&client, id, &is_over));
            }
            scope.spawn(|| {
                other.0.open(id).expect("a file");
                for round in 0..60 {
                    let at = size / 2 + round % (size / 2);
                    other.write(id, at, &[7]).expect("written");
                    other.0.publish(id).expect("sent");
                }
                other.0.close(id).expect("closed");
            });
            let _over = Over(&is_over);
            let mut random = StdRng::seed_from_u64(size);
            for round in 0..300_u32 {
                let at = random.random_range(0..size / 2);
                let length = random.random_range(0..=(size / 2 - at).min(500));
                let (from, to) = (at as usize, (at + length) as usize);
                if round % 10 == 9 && length > 0 {
                    let part = Extent::new(at, length);
                    client.0.allocate_at(id, 3, part, Privileges::Keep).expect("a hole");
                    model[from..to].fill(0);
                } else {
                    client.write(id, at, &vec![round as u8; length as usize]).expect("written");
                    model[from..to].fill(round as u8);
                }
                let read = client.read(id, 0, size as usize / 2);
                assert!(read == model[..read.len()], "round {round}");
                assert!(model[read.len()..].iter().all(|byte| *byte == 0), "round {round}");
            }
        });
        client.0.close(id).expect("closed");
        let whole = place.client().whole(id);
        assert!(whole[..size as usize / 2] == model);
        let others = 60.min(size as usize / 2);
        assert_eq!(whole[size as usize / 2..][..others], vec![7; others]);
    }
}

/// Partitions of the directory move to other servers while their files are written.
#[test]
fn files_are_written_while_they_move() {
    let policy = SplitPolicy { entries_max: 16, variation_percent: 25, partitions_per_server: 4 };
    let place = Place::with_policy(policy);
    let contents = |number: u64| {
        let length = [10, 900, 5000, 9000][number as usize % 4];
        vec![number as u8 + 1; length]
    };
    let files = std::thread::scope(|scope| {
        let threads = Vec::from_iter((0..3).map(|thread| {
            let client = place.client();
            scope.spawn(move || {
                let mut files = Vec::new();
                for number in (thread..150).step_by(3) {
                    let id = client.create(&format!("file {number}")).id;
                    client.0.open(id).expect("a file");
                    let bytes = contents(number);
                    client.write(id, 0, &bytes[..bytes.len() / 2]).expect("written");
                    client.0.publish(id).expect("sent");
                    let half = bytes.len() / 2;
                    client.write(id, half as u64, &bytes[half..]).expect("written");
                    client.0.close(id).expect("closed");
                    files.push((number, id));
                }
                files
            })
        }));
        Vec::from_iter(threads.into_iter().flat_map(|thread| thread.join().expect("a thread")))
    });
    place.process.settle();
    assert!(place.process.take_failure().is_none());
    assert!(place.process.partitions(canopy_namespace::ROOT).expect("partitions").len() > 4);
    let client = place.client();
    for (number, id) in files {
        assert!(client.whole(id) == contents(number), "file {number}");
    }
    place.process.collect().expect("collected");
    assert!(place.client().0.end().is_ok());
}
