//! The records that all engines get: made once, kept in files that every process maps, so that what
//! an engine takes in memory is its own.

#[path = "../../../crates/store/examples/inodes/mod.rs"]
mod inodes;

use anyhow::{Context, Result};
use canopy_store::{Key, KeyRef, Layout};
use memmap2::{Mmap, MmapOptions};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// The bytes of an inode.
pub const VALUE: usize = 88;

/// Bytes that a partial update changes: size, then the times of the last change of data and of
/// inode.
pub const CHANGED: [std::ops::Range<usize>; 3] = [16..24, 32..40, 40..48];

/// A key, encoded so that it sorts like the engine's own keys, and its value.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// Encodes a key.
pub fn key_bytes(key: KeyRef<'_>) -> Vec<u8> {
    [&key.directory.to_be_bytes()[..], &key.hash.to_be_bytes(), key.name].concat()
}

/// Decodes a key.
pub fn key_of(bytes: &[u8]) -> KeyRef<'_> {
    let number = |at: usize| {
        let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
        u64::from_be_bytes(bytes)
    };
    KeyRef { directory: number(0), hash: number(8), name: &bytes[16..] }
}

/// Encodes the key of a name that no directory has.
pub fn absent_key(directory: u64, at: usize) -> Vec<u8> {
    key_bytes(Key::named(directory, format!("absent {at}").as_bytes()).as_ref())
}

/// Makes the files of so many records.
pub fn prepare(count: usize, directory: &Path) -> Result<()> {
    let data = inodes::data(count);
    let create = |name| File::create(directory.join(name)).map(BufWriter::new);
    let (mut records, mut starts, mut order) =
        (create("records")?, create("starts")?, create("order")?);
    let mut start = 0u64;
    for at in 0..data.entries.len() {
        let record = data.at(at);
        let key = key_bytes(record.key);
        starts.write_all(&start.to_le_bytes())?;
        records.write_all(&key)?;
        records.write_all(record.value)?;
        start += (key.len() + record.value.len()) as u64;
    }
    starts.write_all(&start.to_le_bytes())?;
    let mut shuffled = Vec::from_iter(0..u32::try_from(data.entries.len())?);
    shuffled.shuffle(&mut StdRng::seed_from_u64(5));
    shuffled.iter().try_for_each(|at| order.write_all(&at.to_le_bytes()))?;
    for mut file in [records, starts, order] {
        file.flush()?;
        file.get_ref().sync_all()?;
    }
    Ok(())
}

/// Records in the order of their keys.
pub struct Records {
    records: Mmap,
    starts: Mmap,
    order: Mmap,
}

impl Records {
    /// Maps the files that [`prepare`] made.
    pub fn open(directory: &Path) -> Result<Self> {
        let map = |name: &str| {
            let file = File::open(directory.join(name)).context("the records are not made yet")?;
            // SAFETY: nobody changes these files once they are made.
            let map = unsafe { MmapOptions::new().populate().map(&file) }?;
            Ok::<_, anyhow::Error>(map)
        };
        Ok(Records { records: map("records")?, starts: map("starts")?, order: map("order")? })
    }

    pub fn len(&self) -> usize {
        self.order.len() / 4
    }

    fn start(&self, at: usize) -> usize {
        let bytes = self.starts[at * 8..at * 8 + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes) as usize
    }

    /// Returns a record by its place in the order of keys.
    pub fn at(&self, at: usize) -> Record<'_> {
        let bytes = &self.records[self.start(at)..self.start(at + 1)];
        let (key, value) = bytes.split_at(bytes.len() - VALUE);
        Record { key, value }
    }

    /// Returns a record by its place in an order without a rule.
    pub fn shuffled(&self, at: usize) -> Record<'_> {
        let bytes = self.order[at * 4..at * 4 + 4].try_into().expect("four bytes");
        self.at(u32::from_le_bytes(bytes) as usize)
    }

    /// Returns the bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.records.len()
    }

    pub fn layout(&self) -> Layout {
        let columns = inodes::COLUMNS.map(|(name, width, near)| canopy_store::Column {
            name: name.into(),
            width,
            near,
        });
        Layout { columns: columns.into() }
    }
}
