//! Files with more chunks than one operation has, and damaged chunks.

use crate::place::{CHUNK, Place, User};
use canopy_namespace::{Extent, FileContents, FileId, Privileges};
use rustix::io::Errno;

/// More than what one operation takes, and than what is cut off in one batch.
const CHUNKS: u64 = 17_000;

/// Bytes that are written into each chunk.
fn marked(chunk: u64) -> [u8; 2] {
    [1, chunk as u8]
}

fn is_marked(client: &User, id: FileId, chunk: u64) -> bool {
    client.read(id, chunk * CHUNK + 5, 2) == marked(chunk)
}

#[test]
fn a_file_has_very_many_chunks() {
    let place = Place::new();
    let (client, other) = (place.rich_client(), place.client());
    let id = client.create("file").id;
    client.0.open(id).expect("a file");
    for chunk in 0..CHUNKS {
        client.write(id, chunk * CHUNK + 5, &marked(chunk)).expect("written");
    }
    client.0.close(id).expect("closed");
    let size = (CHUNKS - 1) * CHUNK + 7;
    other.0.open(id).expect("a file");
    assert_eq!(other.inode(id).size, size);
    for chunk in (0..CHUNKS).step_by(997).chain([CHUNKS - 1]) {
        assert!(is_marked(&other, id, chunk), "chunk {chunk}");
    }
    // A hole over many pages of records, whose ends are in chunks.
    let (from, to) = (10 * CHUNK + 6, 9000 * CHUNK + 6);
    let hole = Extent::new(from, to - from);
    other.0.allocate_at(id, 3, hole, Privileges::Keep).expect("a hole");
    other.0.close(id).expect("closed");
    client.0.open(id).expect("opened again");
    assert_eq!(client.read(id, 10 * CHUNK + 5, 2), [1, 0]);
    assert_eq!(client.read(id, 9000 * CHUNK + 5, 2), [0, 9000_u64 as u8]);
    assert_eq!(client.read(id, 4000 * CHUNK, CHUNK as usize), vec![0; CHUNK as usize]);
    let data = client.0.seek_from(id, false, 11 * CHUNK).expect("data");
    assert_eq!(data, 9000 * CHUNK);
    assert!(is_marked(&client, id, 9001) && is_marked(&client, id, 9));
    let error = client.0.seek_from(id, false, size).expect_err("it is the end");
    assert_eq!(error.errno(), Errno::NXIO);
    // Bytes that were cut off do not come back.
    client.truncate(id, 5 * CHUNK + 6).expect("shorter");
    client.truncate(id, size).expect("longer");
    assert_eq!(client.read(id, 5 * CHUNK + 5, 2), [1, 0]);
    assert!(is_marked(&client, id, 4));
    for chunk in (6..CHUNKS).step_by(997) {
        assert_eq!(client.read(id, chunk * CHUNK + 5, 2), [0, 0], "chunk {chunk}");
    }
    assert_eq!(client.0.seek_from(id, true, 0).expect("a hole"), 6 * CHUNK);
    client.0.close(id).expect("closed");
    client.0.end().expect("ended");
    other.0.end().expect("ended");
    place.process.collect().expect("collected");
    assert_eq!(place.objects("contents/chunk/").len(), 6);
}

#[test]
fn a_damaged_chunk_fails_until_it_is_written_anew() {
    let place = Place::new();
    let client = place.client();
    let id = client.create("file").id;
    client.put(id, &[1; 2 * CHUNK as usize]);
    // Objects are sent at the same time, so the first one may be that of the other chunk.
    let names = place.objects("contents/chunk/");
    let first = names.iter().find(|name| name.ends_with(&format!("-{:020}", 0)));
    place.environment.storage.remove(first.expect("an object of chunk 0")).expect("removed");
    let client = place.client();
    client.0.open(id).expect("a file");
    assert!(client.0.read_at(id, 0, 10, false).is_err_and(|error| error.is_damage()));
    // A part of the chunk cannot be written: the rest is not known.
    client.write(id, 0, b"x").expect("it is in memory");
    assert!(client.0.publish(id).is_err_and(|error| error.is_damage()));
    client.write(id, 0, &[2; CHUNK as usize]).expect("it is in memory");
    client.0.publish(id).expect("sent");
    let mut expected = vec![2; CHUNK as usize];
    expected.resize(2 * CHUNK as usize, 1);
    assert!(client.read(id, 0, 3 * CHUNK as usize) == expected);
    client.0.close(id).expect("closed");
    assert!(place.client().whole(id) == expected);
    // Bytes that can never be written are lost with the last close, which reports it.
    let names = place.objects("contents/chunk/");
    names.iter().for_each(|name| place.environment.storage.remove(name).expect("removed"));
    let client = place.client();
    client.0.open(id).expect("a file");
    client.write(id, 0, b"y").expect("it is in memory");
    assert!(client.0.close(id).is_err());
    client.0.end().expect("nothing is left to be sent");
    assert_eq!(client.0.read_at(id, 0, 1, false).unwrap_err().errno(), Errno::BADF);
}
