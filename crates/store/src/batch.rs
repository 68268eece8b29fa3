//! Batches: records that are written together or not at all, in the encoding of the log.
//!
//! ```text
//! record     op u8, directory u64, hash u64, name length u16, value length u32, name, value
//! removal of a range
//!            255 u8, start key, has end u8, end key if it has one; a key is
//!            directory u64, hash u64, name length u16, name
//! ```
//!
//! All numbers are little endian.

use crate::error::{Invalid, Result};
use crate::key::{Key, KeyRange, KeyRef, NAME_MAX};
use crate::record::{Op, RecordRef, VALUE_MAX};

const RANGE: u8 = 255;

/// A batch has so many bytes at most, and so has what is added to the log at once.
pub const BATCH_BYTES_MAX: usize = 64 << 20;

/// Changes that are made together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    changes: usize,
}

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation<'a> {
    /// A put, merge or delete of one key.
    Record(RecordRef<'a>),
    /// The removal of all keys of a range.
    DeleteRange(KeyRange),
}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a key a value.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if a name or a value is too long.
    pub fn put(&mut self, key: KeyRef<'_>, value: &[u8]) -> Result<()> {
        self.record(RecordRef { key, op: Op::Put, value })
    }

    /// Changes a key's value by the table's merge operator.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if a name or a value is too long.
    pub fn merge(&mut self, key: KeyRef<'_>, operand: &[u8]) -> Result<()> {
        self.record(RecordRef { key, op: Op::Merge, value: operand })
    }

    /// Takes a key away.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if the name is too long.
    pub fn delete(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.record(RecordRef { key, op: Op::Delete, value: &[] })
    }

    /// Takes all keys of a range away.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if a name at an end of the range is too long.
    pub fn delete_range(&mut self, range: &KeyRange) -> Result<()> {
        for key in [Some(&range.start), range.end.as_ref()].into_iter().flatten() {
            check(key.as_ref(), &[])?;
        }
        self.bytes.push(RANGE);
        push_key(&mut self.bytes, range.start.as_ref());
        self.bytes.push(range.end.is_some() as u8);
        if let Some(end) = &range.end {
            push_key(&mut self.bytes, end.as_ref());
        }
        self.changes += 1;
        Ok(())
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if a name or a value is too long.
    pub fn record(&mut self, record: RecordRef<'_>) -> Result<()> {
        check(record.key, record.value)?;
        let RecordRef { key, op, value } = record;
        self.bytes.reserve(23 + key.name.len() + value.len());
        self.bytes.push(op as u8);
        self.bytes.extend_from_slice(&key.directory.to_le_bytes());
        self.bytes.extend_from_slice(&key.hash.to_le_bytes());
        self.bytes.extend_from_slice(&(key.name.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key.name);
        self.bytes.extend_from_slice(value);
        self.changes += 1;
        Ok(())
    }

    /// Returns how many changes there are.
    pub fn len(&self) -> usize {
        self.changes
    }

    /// Returns whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// Takes all changes out, so that the batch can be used again.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.changes = 0;
    }

    /// Returns the bytes that the changes take in the log.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the encoded changes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

pub(crate) fn check(key: KeyRef<'_>, value: &[u8]) -> Result<()> {
    if key.name.len() > NAME_MAX {
        return Err(Invalid::LongName(key.name.len()).into());
    }
    if value.len() > VALUE_MAX {
        return Err(Invalid::LongValue(value.len()).into());
    }
    Ok(())
}

fn push_key(bytes: &mut Vec<u8>, key: KeyRef<'_>) {
    bytes.extend_from_slice(&key.directory.to_le_bytes());
    bytes.extend_from_slice(&key.hash.to_le_bytes());
    bytes.extend_from_slice(&(key.name.len() as u16).to_le_bytes());
    bytes.extend_from_slice(key.name);
}

/// The changes in the bytes of batches, which may be anything; `None` for an item that is none.
pub(crate) struct Changes<'a>(&'a [u8]);

impl<'a> Changes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Changes(bytes)
    }

    /// Returns the first change and what follows it; nothing if no whole change is there.
    pub(crate) fn split_first(bytes: &'a [u8]) -> Option<(Mutation<'a>, &'a [u8])> {
        let mut changes = Changes(bytes);
        let change = changes.change()?;
        Some((change, changes.0))
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn key(&mut self) -> Option<Key> {
        let directory = u64::from_le_bytes(self.number()?);
        let hash = u64::from_le_bytes(self.number()?);
        let length = u16::from_le_bytes(self.number()?);
        Some(Key { directory, hash, name: self.take(length.into())?.to_vec() })
    }

    fn change(&mut self) -> Option<Mutation<'a>> {
        let [op] = self.number()?;
        if op == RANGE {
            let start = self.key()?;
            let end = match self.number()? {
                [0] => None,
                [1] => Some(self.key()?),
                _ => return None,
            };
            return Some(Mutation::DeleteRange(KeyRange { start, end }));
        }
        let op = Op::from_byte(op)?;
        let directory = u64::from_le_bytes(self.number()?);
        let hash = u64::from_le_bytes(self.number()?);
        let name_length = u16::from_le_bytes(self.number()?);
        let value_length = u32::from_le_bytes(self.number()?);
        let name = self.take(name_length.into())?;
        let value = self.take(usize::try_from(value_length).ok()?)?;
        let key = KeyRef { directory, hash, name };
        Some(Mutation::Record(RecordRef { key, op, value }))
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Option<Mutation<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let change = self.change();
        if change.is_none() {
            self.0 = &[];
        }
        Some(change)
    }
}
