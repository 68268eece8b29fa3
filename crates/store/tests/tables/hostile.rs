//! Manifests and logs that somebody made to do harm, with right checksums: every use of them ends
//! with an answer or an error, never with a panic or without an end.

use super::{Place, add, key, options, put};
use canopy_store::storage::{MemoryStorage, Storage};
use canopy_store::{
    Base, Batch, Direction, KeyRange, Reader, TableId, checkpoint, clone, collect, compact_all,
    delete, inspect,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

/// Copies of a storage with one object changed.
struct Original {
    objects: Vec<(String, Vec<u8>)>,
    id: TableId,
}

impl Original {
    fn new() -> Self {
        let storage = Arc::new(MemoryStorage::default());
        let place = Place::new(storage.clone());
        let base = place.create();
        let table = place.open(base);
        (0..50).for_each(|at| put(&table, &key(1, at), at));
        table.flush().unwrap();
        let base = Base { table: base, checkpoint: None };
        let id = clone(&place.environment, &[base], &KeyRange::all()).unwrap();
        let table = place.open(id);
        for at in 20..40 {
            add(&table, &key(1, at), 1);
            let mut batch = Batch::new();
            batch.delete(key(1, at + 5).as_ref()).unwrap();
            batch.delete_range(&KeyRange::directory(2)).unwrap();
            table.write(&batch, canopy_store::Durability::Durable).unwrap();
        }
        table.flush().unwrap();
        checkpoint(&place.environment, id, None).unwrap();
        add(&table, &key(3, 3), 3);
        table.sync().unwrap();
        let objects = storage.list("", "").unwrap().into_iter();
        let read = |name: String| (storage.read(&name).unwrap().to_vec(), name);
        let objects = objects.map(|one| read(one.name)).map(|(bytes, name)| (name, bytes));
        Original { objects: objects.collect(), id }
    }

    /// The last object whose name has `part`.
    fn find(&self, part: &str) -> usize {
        let own = format!("{}/{part}/", self.id);
        self.objects.iter().rposition(|(name, _)| name.starts_with(&own)).unwrap()
    }

    fn with(&self, at: usize, bytes: Vec<u8>) -> Place {
        let storage = Arc::new(MemoryStorage::default());
        for (other, (name, own)) in self.objects.iter().enumerate() {
            let bytes = if other == at { bytes.clone() } else { own.clone() };
            storage.create(name, bytes.into()).unwrap();
        }
        Place::new(storage)
    }
}

/// Does all there is to do with a table; returns whether all of it went well.
fn use_all(place: &Place, id: TableId) -> bool {
    let Place { environment, tables } = place;
    let mut results = vec![inspect(environment, id).map(drop)];
    for checkpoint in [None, Some(0)] {
        let read =
            Reader::open(environment, id, checkpoint, tables, &options()).and_then(|reader| {
                reader.get(key(1, 30).as_ref())?;
                reader.scan(&KeyRange::all(), Direction::Backward)?.collect().map(drop)
            });
        results.push(read);
    }
    results.push(place.try_open(id).and_then(|table| table.flush()));
    results.push(compact_all(environment, id, tables, &options()).map(drop));
    results.push(collect(environment, id).map(drop));
    let base = Base { table: id, checkpoint: Some(0) };
    results.push(clone(environment, &[base], &KeyRange::all()).map(drop));
    results.push(delete(environment, id));
    results.iter().all(Result::is_ok)
}

/// Changes some bytes, more often to what numbers begin or end with.
fn change(random: &mut StdRng, bytes: &mut Vec<u8>) {
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..8) {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, random.random()),
            2 => bytes[at] = 0xff,
            3 => bytes[at] = 0,
            4 => bytes.splice(at..at, [0xff; 9]).for_each(drop),
            5 => bytes[at] ^= 0x80,
            _ => bytes[at] = random.random(),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
}

#[test]
fn manifests_made_to_do_harm_end_with_errors() {
    let original = Original::new();
    let at = original.find("manifest");
    assert!(use_all(&original.with(at, original.objects[at].1.clone()), original.id));
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..4000 {
        let mut body = original.objects[at].1[12..].to_vec();
        change(&mut random, &mut body);
        let crc = crc32fast::hash(&body).to_le_bytes();
        let bytes = [&original.objects[at].1[..8], &crc, &body].concat();
        use_all(&original.with(at, bytes), original.id);
    }
}

#[test]
fn logs_made_to_do_harm_end_with_errors() {
    let original = Original::new();
    let at = original.find("log");
    let mut random = StdRng::seed_from_u64(2);
    for _ in 0..4000 {
        let segment = &original.objects[at].1;
        let mut body = segment[32..].to_vec();
        change(&mut random, &mut body);
        let length = (body.len() as u32).to_le_bytes();
        let crc = crc32fast::hash(&body).to_le_bytes();
        let bytes = [&segment[..24], &length, &crc, &body].concat();
        use_all(&original.with(at, bytes), original.id);
    }
}
