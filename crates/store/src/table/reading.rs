//! Reading a table that is open for writing, as it is now or was at one moment.

use super::{Table, Write};
use crate::error::Result;
use crate::key::{Key, KeyRange, KeyRef};
use crate::scan::{Direction, Scan};
use crate::view::Layers;
use parking_lot::Mutex;
use std::sync::Arc;

impl Table {
    /// Reads; once more if others compacted away what this process still knew.
    fn reading<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        match read() {
            Err(error) if error.is_not_found() && !self.is_past => {
                self.refresh()?;
                read()
            }
            read => read,
        }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn get(&self, key: KeyRef<'_>) -> Result<Option<Vec<u8>>> {
        self.reading(|| {
            let view = self.view.read().clone();
            view.get(key, u64::MAX)
        })
    }

    /// Returns the values of keys, in their order, all at one moment.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        self.reading(|| self.snapshot().get_many(keys))
    }

    /// Returns the records of a range as they are now.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Scan> {
        self.reading(|| self.snapshot().scan(range, direction))
    }

    /// Returns the table as it is now. Files that other processes remove are kept for it for
    /// [`crate::Options::grace_ms`]; who reads longer makes a checkpoint.
    pub fn snapshot(&self) -> TableSnapshot {
        let mut write = self.write.lock();
        let sequence = write.sequence;
        *write.readers.entry(sequence).or_default() += 1;
        let view = self.view.read().clone();
        let pin = Arc::new(ReaderAt { sequence, write: self.write.clone() });
        TableSnapshot { view, sequence, pin: Some(pin) }
    }
}

/// A table as it was at one moment.
#[derive(Clone)]
pub struct TableSnapshot {
    pub(super) view: Arc<Layers>,
    pub(super) sequence: u64,
    /// Keeps the versions that are in memory; none if the snapshot is of SSTables alone.
    pub(super) pin: Option<Arc<ReaderAt>>,
}

/// Keeps the versions that a reader sees.
pub(super) struct ReaderAt {
    sequence: u64,
    write: Arc<Mutex<Write>>,
}

impl TableSnapshot {
    /// Returns the value of a key.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn get(&self, key: KeyRef<'_>) -> Result<Option<Vec<u8>>> {
        self.view.get(key, self.sequence)
    }

    /// Returns the values of keys, in their order.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        self.view.get_many(keys, self.sequence)
    }

    /// Returns the records of a range.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Scan> {
        let scan = self.view.scan(range, self.sequence, direction)?;
        Ok(match &self.pin {
            Some(pin) => scan.pinning(Box::new(pin.clone())),
            None => scan,
        })
    }
}

impl Drop for ReaderAt {
    fn drop(&mut self) {
        let mut write = self.write.lock();
        if let Some(readers) = write.readers.get_mut(&self.sequence) {
            *readers -= 1;
            if *readers == 0 {
                write.readers.remove(&self.sequence);
            }
        }
    }
}
