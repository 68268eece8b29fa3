//! Contents of files of clients, against an array; several clients at once; clients that die.

mod at_once;
mod checking;
mod collecting;
mod large;
mod moving;
mod nameless;
mod place;
mod restoring;

use canopy_model::Credentials;
use canopy_namespace::operation::{
    Caller, Change, ChunkChange, ContentsPart, Moment, Operation, Piece, PutChunks, Read,
    WriteSmall, Writer,
};
use canopy_namespace::{
    EntryName, Execute, Extent, FileContents, FileId, ObjectId, Privileges, ROOT, Reply,
    SetAttributes, SetTime, Stored,
};
use place::{CHUNK, Life, Place, SMALL_MAX, User};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use std::borrow::Cow;

const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// Most bytes of a file of a test.
const SIZE_MAX: u64 = 8 * CHUNK;

/// A range of a file, often of a small one, often of whole chunks.
fn range(random: &mut StdRng) -> (u64, u64) {
    let limit = [SMALL_MAX as u64, CHUNK + 10, SIZE_MAX][random.random_range(0..3)];
    let (mut start, mut end) = (random.random_range(0..limit), random.random_range(0..limit));
    if random.random_ratio(1, 3) {
        (start, end) = (start / CHUNK * CHUNK, end.next_multiple_of(CHUNK));
    }
    (start.min(end), start.max(end).min(SIZE_MAX))
}

fn bytes(random: &mut StdRng, length: u64) -> Vec<u8> {
    // Zeros, too: they become holes.
    let value = random.random_range(0..4) * random.random_range(0..64);
    vec![value; length as usize]
}

/// Does something to a file that a client has open, and to an array.
fn change(random: &mut StdRng, client: &User, id: FileId, model: &mut Vec<u8>) -> String {
    let (start, end) = range(random);
    let length = end - start;
    let (from, to) = (start as usize, end as usize);
    match random.random_range(0..8) {
        0..4 => {
            let written = bytes(random, length);
            client.write(id, start, &written).expect("written");
            if length > 0 {
                model.resize(model.len().max(to), 0);
                model[from..to].copy_from_slice(&written);
            }
            format!("write {start} to {end}")
        }
        4 => {
            let inode = client.truncate(id, end).expect("a length");
            assert_eq!(inode.size, end);
            model.resize(to, 0);
            format!("truncate {end}")
        }
        _ if length == 0 => "nothing".into(),
        choice => {
            let mode = [0, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE][choice - 5];
            let part = Extent::new(start, length);
            client.0.allocate_at(id, mode, part, Privileges::Keep).expect("allocated");
            if mode & KEEP_SIZE == 0 {
                model.resize(model.len().max(to), 0);
            }
            if mode != 0 {
                let to = to.min(model.len());
                model.get_mut(from..to).unwrap_or_default().fill(0);
            }
            format!("allocate {mode} {start} to {end}")
        }
    }
}

/// Compares a file that a client has open with an array.
fn compare(random: &mut StdRng, client: &User, id: FileId, model: &[u8], log: &[String]) {
    let (start, end) = range(random);
    let expected = model.get(start as usize..).unwrap_or_default();
    let expected = &expected[..expected.len().min((end - start) as usize)];
    assert!(
        client.read(id, start, (end - start) as usize) == expected,
        "{start} to {end}: {log:?}"
    );
    assert_eq!(client.inode(id).size, model.len() as u64, "{log:?}");
    let is_zeros = |from: u64, to: u64| model[from as usize..to as usize].iter().all(|b| *b == 0);
    let size = model.len() as u64;
    let found = |is_hole| match client.0.seek_from(id, is_hole, start) {
        Ok(at) => Some(at),
        Err(error) if error.errno() == Errno::NXIO => None,
        Err(error) => panic!("{error}: {log:?}"),
    };
    if start >= size {
        assert_eq!((found(false), found(true)), (None, None), "{log:?}");
        return;
    }
    let data = found(false);
    assert!(data.is_none_or(|data| (start..size).contains(&data)), "{data:?} {log:?}");
    assert!(is_zeros(start, data.unwrap_or(size)), "data before {data:?} {start}: {log:?}");
    let hole = found(true).expect("a hole, at the end at the latest");
    assert!((start..=size).contains(&hole), "{hole} {log:?}");
    let next = match client.0.seek_from(id, false, hole) {
        Ok(next) => next,
        Err(_) => size,
    };
    assert!(is_zeros(hole, next), "a hole at {hole} to {next}: {log:?}");
}

#[test]
fn a_file_is_what_was_written() {
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let place = Place::new();
        let (client, other) = (place.client(), place.client());
        let id = client.create("file").id;
        let (mut model, mut log) = (Vec::new(), vec![format!("seed {seed}")]);
        client.0.open(id).expect("a file");
        for _ in 0..60 {
            log.push(change(&mut random, &client, id, &mut model));
            compare(&mut random, &client, id, &model, &log);
            match random.random_range(0..8) {
                0 => {
                    client.0.publish(id).expect("sent");
                    log.push("publish".into());
                    assert!(other.whole(id) == model, "another client: {log:?}");
                    assert_eq!(other.inode(id).size, model.len() as u64);
                }
                1 => {
                    client.0.close(id).expect("closed");
                    client.0.open(id).expect("opened again");
                    log.push("again".into());
                }
                2 => client.0.sync_contents(id).expect("synced"),
                _ => {}
            }
        }
        client.0.close(id).expect("closed");
        assert!(place.client().whole(id) == model, "a new client: {log:?}");
        let faults = client.inode(id);
        assert!(faults.blocks <= SIZE_MAX / 512 + 8, "{} blocks: {log:?}", faults.blocks);
    }
}

/// Two clients write every other byte each, at once. Chunks, and small contents, have those of both.
#[test]
fn clients_do_not_take_each_others_bytes_back() {
    for (seed, size) in [(1, 3 * CHUNK), (2, 3 * CHUNK), (3, SMALL_MAX as u64), (4, CHUNK)] {
        let place = Place::new();
        let id = place.client().create("file").id;
        std::thread::scope(|scope| {
            for one in 0..2 {
                let client = place.client();
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed * 2 + one);
                    client.0.open(id).expect("a file");
                    for at in (one..size).step_by(2) {
                        client.write(id, at, &[one as u8 + 1]).expect("written");
                        if random.random_ratio(1, size as u32 / 40) {
                            client.0.publish(id).expect("sent");
                        }
                    }
                    client.0.close(id).expect("closed");
                });
            }
        });
        let expected = Vec::from_iter((0..size).map(|at| (at % 2) as u8 + 1));
        assert!(place.client().whole(id) == expected, "{size} bytes");
    }
}

#[test]
fn a_client_sees_its_own_writes_and_those_of_others_once_it_opens() {
    let place = Place::new();
    let (one, other) = (place.client(), place.client());
    let id = one.create("file").id;
    let large = vec![1; 2 * CHUNK as usize];
    one.put(id, &large);
    other.0.open(id).expect("a file");
    one.0.open(id).expect("a file");
    one.write(id, CHUNK, b"new").expect("written");
    assert_eq!(one.read(id, CHUNK, 4), b"new\x01");
    assert_eq!(other.read(id, CHUNK, 4), [1; 4]);
    one.0.close(id).expect("closed");
    other.0.open(id).expect("opened once more");
    assert_eq!(other.read(id, CHUNK, 4), b"new\x01");
    // One cuts the file off while the other writes into what goes.
    other.write(id, CHUNK + 10, b"x").expect("written");
    one.truncate(id, 5).expect("shorter");
    other.0.close(id).expect("closed");
    let mut expected = vec![1; 5];
    expected.resize(CHUNK as usize + 10, 0);
    expected.push(b'x');
    assert!(one.whole(id) == expected, "what was cut off must not come back");
    other.0.close(id).expect("closed");
}

#[test]
fn a_file_that_is_gone_takes_what_was_written_with_it() {
    let place = Place::new();
    let client = place.client();
    let id = client.create("file").id;
    client.0.open(id).expect("a file");
    client.write(id, 0, &[1; 9000]).expect("written");
    let unlink = Change::Unlink(EntryName::new(ROOT, b"file"));
    client.execute(&Operation::Change(unlink)).expect("removed");
    client.0.close(id).expect("closed");
    client.0.end().expect("ended");
    place.collect_until(|| 0);
    assert_eq!(place.objects("contents/"), Vec::<String>::new());
    assert_eq!(client.0.open(id).unwrap_err().errno(), Errno::NOENT);
}

/// Changes a file in one go. Returns what it has then, and whether that was sent.
fn change_at_once(client: &User, id: FileId, old: &[u8], choice: u32) -> (Vec<u8>, bool) {
    let mut new = old.to_vec();
    client.0.open(id).expect("a file");
    let writes: &[(u64, usize)] = match choice {
        0 => &[(10, 20)],
        1 => &[(0, 900), (CHUNK - 5, 10)],
        2 => &[(3, 3 * CHUNK as usize)],
        _ => &[(5 * CHUNK, 7), (1, 1)],
    };
    for (at, length) in writes {
        let end = *at as usize + length;
        new.resize(new.len().max(end), 0);
        new[*at as usize..end].fill(9);
        client.write(id, *at, &vec![9; *length]).expect("it is in memory");
    }
    (new, client.0.close(id).is_ok())
}

#[test]
fn a_client_that_dies_leaves_the_old_or_the_new_contents() {
    let olds = [0, 100, SMALL_MAX, CHUNK as usize, 3 * CHUNK as usize + 100];
    for (length, choice, does_last) in
        olds.iter().flat_map(|old| (0..8).map(move |one| (*old, one % 4, one < 4)))
    {
        let (place, old) = (Place::new(), vec![1; length]);
        let id = place.client().create("file").id;
        place.client().put(id, &old);
        for steps in 0.. {
            place.client().put(id, &old);
            let life = Life::new(steps, does_last);
            let client = place.mortal(&life);
            let (new, is_closed) = change_at_once(&client, id, &old, choice);
            assert_eq!(is_closed, !life.has_ended());
            drop(client);
            let left = place.client().whole(id);
            let (is_old, is_new) = (left == old, left == new);
            assert!(is_old || is_new, "{length} {choice} {steps}: {} bytes", left.len());
            assert_eq!(place.client().inode(id).size, left.len() as u64);
            if is_closed {
                assert!(is_new, "{length} {choice} {steps}");
                break;
            }
        }
    }
}

/// A client whose servers or storage fail for some time sends everything once they are back.
#[test]
fn what_could_not_be_sent_is_sent_later() {
    let place = Place::new();
    let id = place.client().create("file").id;
    place.client().put(id, &[1; 10_000]);
    for steps in 0..3 {
        for does_last in [false, true] {
            let life = Life::new(steps, does_last);
            let client = place.mortal(&life);
            client.0.open(id).expect("a file");
            let byte = 10 + steps as u8 * 2 + u8::from(does_last);
            client.write(id, 4000, &[byte; 200]).expect("written");
            let failed = client.0.sync_contents(id);
            assert!(failed.is_err(), "{steps}");
            assert_eq!(client.read(id, 4000, 200), [byte; 200], "it is still there");
            life.revive();
            client.write(id, 0, &[byte]).expect("written");
            client.0.close(id).expect("closed");
            let mut expected = vec![1; 10_000];
            expected[4000..4200].fill(byte);
            expected[0] = byte;
            assert!(place.client().whole(id) == expected, "{steps}");
        }
    }
}

#[test]
fn attributes_follow_what_was_written_before() {
    let place = Place::new();
    let client = place.client();
    let id = client.create("file").id;
    client.0.open(id).expect("a file");
    client.write(id, 0, &[1; 5000]).expect("written");
    assert_eq!(client.inode(id).size, 5000);
    let set = SetAttributes { mtime: Some(SetTime::To(5)), ..SetAttributes::default() };
    assert_eq!(client.set(id, set).expect("a time").mtime_ns, 5);
    assert_eq!((client.inode(id).mtime_ns, place.client().inode(id).size), (5, 5000));
    client.0.close(id).expect("closed");
    assert_eq!(client.inode(id).mtime_ns, 5, "nothing was left to be sent");
    // Bits that let a program act as others go with what was written, unless who wrote may set them.
    let is_in = |_| false;
    for (privileges, left) in [
        (Privileges::Keep, 0o6755),
        (Privileges::KeepBound, 0o6755),
        (Privileges::Drop(&is_in), 0o755),
    ] {
        for size in [10, 5000] {
            client.truncate(id, size).expect("a length");
            client
                .set(id, SetAttributes { mode: Some(0o6755), ..SetAttributes::default() })
                .unwrap();
            client.0.open(id).expect("a file");
            client.0.write_at(id, 0, b"x", privileges).expect("written");
            client.0.close(id).expect("closed");
            assert_eq!(client.inode(id).mode & 0o7777, left);
        }
    }
}

/// Operations of somebody who sends what no client of ours does.
#[test]
fn records_refuse_what_cannot_be() {
    let place = Place::new();
    let client = place.client();
    let id = client.create("file").id;
    client.put(id, &[1; 5000]);
    let contents = ContentsPart { id, from: 0, count_max: u32::MAX };
    let Ok(Reply::Contents(stored)) =
        client.execute(&Operation::Read(Moment::Now, Read::Contents(contents)))
    else {
        panic!()
    };
    assert_eq!((stored.chunks.len(), stored.next, stored.small), (2, None, None));
    let (_, first) = stored.chunks[0];
    let try_as = |caller: Caller<'_>, session, changes: Vec<ChunkChange>, size_min| {
        let chunks = Cow::Owned(changes);
        let put = PutChunks { session, small: None, chunks, size_min };
        let change = Change::PutChunks { id, put, writer: Writer::Privileged };
        client.0.execute_for(caller, &Operation::Change(change)).map_err(|error| error.errno())
    };
    let object = ObjectId { epoch: 77, number: 1 };
    let new = Stored { object, object_bytes: 10, used: 10, checksum: 0 };
    let one = |stored| vec![ChunkChange { chunk: 0, before: Some(first), after: Some(stored) }];
    let trusted = Caller::Trusted;
    for (changes, session, size_min, expected) in [
        (one(new), 78, 0, Errno::INVAL),
        (one(new), 0, 0, Errno::INVAL),
        (one(Stored { used: 11, ..new }), 77, 0, Errno::INVAL),
        (one(Stored { used: 0, ..new }), 77, 0, Errno::INVAL),
        (one(Stored { object_bytes: 5000, ..new }), 77, 0, Errno::INVAL),
        ([one(new), one(new)].concat(), 77, 0, Errno::INVAL),
        (one(new), 77, 1 << 63, Errno::FBIG),
        (vec![ChunkChange { chunk: u64::MAX, before: None, after: Some(new) }], 77, 0, Errno::FBIG),
    ] {
        assert_eq!(
            try_as(trusted, session, changes.clone(), size_min),
            Err(expected),
            "{changes:?}"
        );
    }
    // Others may not; nor is anything changed if the records are not as they were believed to be.
    let stranger = Credentials::new(1000, [1000]);
    let user = Caller::User(&stranger);
    assert_eq!(try_as(user, 77, one(new), 0), Err(Errno::ACCESS));
    let wrong = vec![ChunkChange { chunk: 0, before: None, after: Some(new) }];
    assert_eq!(try_as(trusted, 77, wrong, 0), Ok(Reply::Written(None)));
    let small = |caller, offset: u64, bytes: &'static [u8], size_min| {
        let write = WriteSmall { pieces: vec![Piece { offset, bytes }], size_min };
        let change = Change::WriteSmall { id, write, writer: Writer::Privileged };
        client.0.execute_for(caller, &Operation::Change(change)).map_err(|error| error.errno())
    };
    assert_eq!(small(trusted, 0, b"x", 0), Ok(Reply::Written(None)), "it has chunks");
    client.truncate(id, 0).expect("empty");
    assert!(client.whole(id).is_empty());
    assert_eq!(small(user, 0, b"x", 0), Err(Errno::ACCESS));
    assert_eq!(small(trusted, u64::MAX, b"x", 0), Err(Errno::FBIG));
    assert_eq!(small(trusted, 0, b"x", u64::MAX), Err(Errno::FBIG));
    client.set(id, SetAttributes { mode: Some(0o600), ..SetAttributes::default() }).unwrap();
    let read = Operation::Read(Moment::Now, Read::Contents(contents));
    let read = client.0.execute_for(user, &read).map_err(|error| error.errno());
    assert_eq!(read, Err(Errno::ACCESS));
    let owner = Credentials::new(7, [8]);
    client.set(id, SetAttributes { mode: Some(0o6000), ..SetAttributes::default() }).unwrap();
    let Ok(Reply::Written(Some(inode))) = small(Caller::User(&owner), 0, b"x", 0) else { panic!() };
    assert_eq!(inode.mode & 0o7777, 0o2000, "a user's privileges are not claimed");
    assert_eq!(client.whole(id), b"x");
}

/// The outcome of a change of small contents confirmed what somebody guessed.
#[test]
fn users_who_may_write_and_not_read_learn_nothing_by_guesses() {
    let place = Place::new();
    let client = place.client();
    let id = client.create("file").id;
    client.put(id, b"x");
    client.set(id, SetAttributes { mode: Some(0o602), ..SetAttributes::default() }).unwrap();
    let guess = |uid: u32, small: &'static [u8]| {
        let who = Credentials::new(uid, [uid]);
        let chunks = Cow::Owned(Vec::new());
        let put = PutChunks { session: 77, small: Some(small), chunks, size_min: 0 };
        let change = Change::PutChunks { id, put, writer: Writer::Privileged };
        let changed = client.0.execute_for(Caller::User(&who), &Operation::Change(change));
        changed.map_err(|error| error.errno())
    };
    assert_eq!(guess(1000, b"x"), Err(Errno::ACCESS));
    assert_eq!(guess(1000, b"y"), Err(Errno::ACCESS));
    assert_eq!(guess(7, b"y"), Ok(Reply::Written(None)), "the owner may");
    assert_eq!(client.whole(id), b"x");
}
