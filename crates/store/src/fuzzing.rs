//! Entry points for fuzzing: SSTables, manifests and logs from bytes. No part of the interface of
//! this crate.
//!
//! Each has checksums, which no fuzzer gets through. So the targets make them right, or take what
//! is behind them.

use crate::batch::Batch;
use crate::environment::{Clock, Environment, Random};
use crate::error::Result;
use crate::key::{Key, KeyRange};
use crate::log;
use crate::manifest::Manifest;
use crate::merge::MergeOperator;
use crate::names::TableId;
use crate::record::{Column, Layout, Op, RecordRef};
use crate::runs::SstableCache;
use crate::sstable::{self, BlockCache, Builder, Sstable, SstableInfo};
use crate::storage::{MemoryStorage, Storage};
use crate::table::{Durability, Options, Table, create};
use crate::{
    Base, Direction, KeyRef, Reader, checkpoint, clone, collect, compact_all, delete, inspect,
};
use canopy_model::fuzzing::Target;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "sstable", run: sstable, seeds: sstable_seeds },
    Target { name: "store_manifest", run: manifest, seeds: || vec![body_of("manifest")] },
    Target { name: "log", run: log, seeds: || vec![body_of("log")] },
    Target { name: "segment", run: segment, seeds: || vec![object(&original(), "log").1] },
];

/// Counts, so that all runs are equal.
#[derive(Default)]
struct Counter(AtomicU64);

impl Clock for Counter {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn sleep(&self, _duration: Duration) {}
}

impl Random for Counter {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

struct Concatenate;

impl MergeOperator for Concatenate {
    fn name(&self) -> &str {
        "concatenate"
    }

    fn apply(&self, _key: KeyRef<'_>, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        [value.unwrap_or_default(), operand].concat()
    }

    fn combine(&self, _key: KeyRef<'_>, first: &[u8], second: &[u8]) -> Vec<u8> {
        [first, second].concat()
    }
}

fn options() -> Options {
    let operator = Some(Arc::new(Concatenate) as Arc<dyn MergeOperator>);
    Options { operator, threads: 1, ..Options::default() }
}

fn layout() -> Layout {
    let column = |name: &str, width, near| Column { name: name.into(), width, near };
    let times = [column("mtime", 8, None), column("ctime", 8, Some(1))];
    Layout { columns: [vec![column("mode", 4, None)], times.into()].concat() }
}

fn environment(storage: MemoryStorage) -> Environment {
    Environment {
        storage: Arc::new(storage),
        clock: Arc::new(Counter::default()),
        random: Arc::new(Counter::default()),
    }
}

/// Returns the key and the value of one of some records.
fn entry(at: u64) -> (Key, Vec<u8>) {
    let name = format!("frame-{at:04}.exr");
    let mut value = ((at % 3) as u32).to_le_bytes().to_vec();
    value.extend(((1 << 60) + at * 1_000_003).to_le_bytes());
    value.extend(((1 << 60) + at * 1_000_033).to_le_bytes());
    value.extend_from_slice(&name.as_bytes()[..at as usize % 5]);
    (Key::named(at / 20, name.as_bytes()), value)
}

/// The storage of a table that has something of everything, and its id.
struct Original {
    environment: Environment,
    id: TableId,
}

fn original() -> Original {
    let environment = environment(MemoryStorage::default());
    let made = || -> Result<TableId> {
        let id = create(&environment, layout(), &options())?;
        let cache = SstableCache::new(&environment, 1 << 20);
        let table = Table::open(&environment, id, cache, options())?;
        for round in 0..2 {
            let mut batch = Batch::new();
            for at in round * 10..40 {
                let (key, value) = entry(at);
                match at % 4 {
                    0 => batch.delete(key.as_ref())?,
                    1 => batch.merge(key.as_ref(), &value)?,
                    _ => batch.put(key.as_ref(), &value)?,
                }
            }
            table.write(&batch, Durability::Durable)?;
            table.flush()?;
            checkpoint(&environment, id, None)?;
        }
        let mut batch = Batch::new();
        batch.delete_range(&KeyRange::directory(1))?;
        batch.put(entry(3).0.as_ref(), &entry(4).1)?;
        table.write(&batch, Durability::Durable)?;
        Ok(id)
    };
    let id = made().expect("a table in memory");
    Original { environment, id }
}

/// Returns the name and the bytes of the last object of a kind.
fn object(original: &Original, kind: &str) -> (String, Vec<u8>) {
    let Original { environment, id } = original;
    let listed = environment.storage.list(&format!("{id}/{kind}/"), "");
    let name = listed.expect("a listing").pop().expect("an object of each kind").name;
    let bytes = environment.storage.read(&name).expect("an object that was listed");
    (name, bytes.into())
}

/// Returns what is behind the checksum of the last object of a kind.
fn body_of(kind: &str) -> Vec<u8> {
    let (_, bytes) = object(&original(), kind);
    bytes[if kind == "log" { log::HEAD + 8 } else { Manifest::HEAD }..].to_vec()
}

/// Does all there is to do with the table after an object of a kind was changed.
fn use_with(kind: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let original = original();
    let (name, bytes) = object(&original, kind);
    let Original { environment, id } = original;
    environment.storage.remove(&name).expect("memory");
    environment.storage.create(&name, change(bytes).into()).expect("memory");
    let cache = SstableCache::new(&environment, 1 << 20);
    let _ = inspect(&environment, id);
    for checkpoint in [None, Some(0)] {
        let read = Reader::open(&environment, id, checkpoint, &cache, &options());
        let _ = read.and_then(|reader| {
            reader.get(entry(7).0.as_ref())?;
            reader.scan(&KeyRange::all(), Direction::Backward)?.collect()
        });
    }
    let opened = Table::open(&environment, id, cache.clone(), options());
    let _ = opened.and_then(|table| table.flush());
    let _ = compact_all(&environment, id, &cache, &options());
    let _ = collect(&environment, id);
    let base = Base { table: id, checkpoint: Some(0) };
    let _ = clone(&environment, &[base], &KeyRange::all());
    let _ = delete(&environment, id);
}

fn manifest(body: &[u8]) {
    use_with("manifest", |bytes| {
        let crc = crc32fast::hash(body).to_le_bytes();
        [&bytes[..8], &crc, body].concat()
    });
}

/// Takes the batches of a group.
fn log(body: &[u8]) {
    use_with("log", |bytes| {
        let head =
            [(body.len() as u32).to_le_bytes(), log::crc(log::HEAD as u64, body).to_le_bytes()];
        [&bytes[..log::HEAD], &head.concat(), body].concat()
    });
}

/// Takes a whole segment.
fn segment(bytes: &[u8]) {
    use_with("log", |_| bytes.to_vec());
}

fn sstable_seeds() -> Vec<Vec<u8>> {
    [64, 700]
        .map(|block_bytes| {
            let mut builder = Builder::new(&layout(), sstable::BuilderOptions { block_bytes });
            let mut entries = Vec::from_iter((0..60).map(entry));
            entries.sort();
            for (at, (key, value)) in entries.iter().enumerate() {
                let op = [Op::Put, Op::Merge, Op::Delete][at % 3];
                let value = if op == Op::Delete { &[][..] } else { value };
                builder.add(RecordRef { key: key.as_ref(), op, value }).expect("sorted records");
            }
            builder.delete_range(KeyRange::directory(1));
            builder.finish().expect("a file in memory").0.into()
        })
        .into()
}

/// Takes a whole file; its checksums are made right.
fn sstable(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    sstable::repair(&mut bytes);
    let (name, size_bytes) = ("sst/1-1", bytes.len() as u64);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
    storage.create(name, bytes.into()).expect("memory");
    let read = || -> Result<()> {
        let info = SstableInfo::read(&*storage, name, size_bytes)?;
        let cache = Arc::new(BlockCache::new(1 << 16));
        let table = Arc::new(Sstable::open(storage.clone(), name.into(), &info, cache)?);
        for (key, _) in (0..60).step_by(7).map(entry) {
            let _ = table.get(key.as_ref());
            let mut cursor = table.cursor(KeyRange { start: key.clone(), end: None });
            let _ = cursor.seek(key.as_ref()).is_ok_and(|_| cursor.retreat().is_ok());
        }
        let mut cursor = table.cursor(KeyRange::all());
        cursor.to_end();
        while cursor.retreat()? {
            assert!(cursor.record().is_some());
        }
        table.verify()
    };
    let _ = read();
}
