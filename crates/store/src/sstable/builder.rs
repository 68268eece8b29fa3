//! Making an SSTable, in memory, from records that come sorted.

use super::block::{RECORDS_MAX, TARGET_BYTES_MAX};
use super::block_builder::BlockBuilder;
use super::columns::Encoder;
use super::filter;
use super::footer::{Properties, Sections, SstableInfo};
use super::index::Index;
use crate::error::{Invalid, RecordFault, Result};
use crate::key::{Key, KeyRange, KeyRef, NAME_MAX, hash_of};
use crate::record::{Layout, Op, RecordRef, VALUE_MAX};
use bytes::Bytes;

/// How SSTables are made.
#[derive(Clone, Debug)]
pub struct BuilderOptions {
    /// A block gets no more records once its names and values are so many bytes together, at most
    /// 1 MiB. A look-up reads one block.
    pub block_bytes: usize,
}

impl Default for BuilderOptions {
    fn default() -> Self {
        // Measured on inodes: 4 KiB make look-ups no faster, and files 5 % larger; 16 KiB make
        // look-ups 15 % slower, and files 3 % smaller.
        BuilderOptions { block_bytes: 8 << 10 }
    }
}

/// Makes an SSTable. It takes the memory of the file, and 8 bytes a record for the filter.
pub struct Builder {
    options: BuilderOptions,
    properties: Properties,
    range_deletes: Vec<KeyRange>,
    /// The blocks so far.
    file: Vec<u8>,
    block: BlockBuilder,
    index: Index,
    /// The separator of the block that records are added to is found from these two: the last key
    /// of the block before, and the first of its own.
    last_before: Option<Key>,
    first: Key,
    /// The key that was added first of all, and the one that was added last.
    ends: Option<(Key, Key)>,
    fingerprints: Vec<u64>,
}

impl Builder {
    /// Begins an SSTable of values with this layout, which must be sound.
    pub fn new(layout: &Layout, options: BuilderOptions) -> Self {
        assert!(layout.is_sound(), "a layout that cannot be");
        Builder {
            options: BuilderOptions { block_bytes: options.block_bytes.min(TARGET_BYTES_MAX) },
            properties: Properties {
                layout: layout.clone(),
                records: 0,
                deletes: 0,
                merges: 0,
                range_deletes: 0,
                ends: None,
                span: KeyRange::default(),
            },
            range_deletes: Vec::new(),
            file: Vec::new(),
            block: BlockBuilder::new(),
            index: Index::default(),
            last_before: None,
            first: Key::default(),
            ends: None,
            fingerprints: Vec::new(),
        }
    }

    /// Adds a record, whose key must be greater than all before. After an error, the record was not
    /// added.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if the key is not greater than the one before, or a name or a value is
    /// too long.
    pub fn add(&mut self, record: RecordRef<'_>) -> Result<()> {
        self.check(record)?;
        let name_hash = hash_of(record.key.name);
        if self.block.len() == 0 {
            assign(&mut self.first, record.key);
        }
        match &mut self.ends {
            Some((_, last)) => assign(last, record.key),
            ends => *ends = Some((record.key.to_key(), record.key.to_key())),
        }
        self.block.push(record, name_hash);
        self.fingerprints.push(filter::fingerprint_of(record.key, name_hash));
        self.properties.records += 1;
        self.properties.deletes += u64::from(record.op == Op::Delete);
        self.properties.merges += u64::from(record.op == Op::Merge);
        if self.block.text_bytes() >= self.options.block_bytes || self.block.len() == RECORDS_MAX {
            self.finish_block();
        }
        Ok(())
    }

    fn check(&self, record: RecordRef<'_>) -> Result<()> {
        let is_late = |(_, last): &(Key, Key)| record.key <= last.as_ref();
        let fault = match record {
            _ if self.ends.as_ref().is_some_and(is_late) => RecordFault::Order,
            _ if record.key.name.len() > NAME_MAX => RecordFault::LongName,
            _ if record.value.len() > VALUE_MAX => RecordFault::LongValue,
            _ if record.op == Op::Delete && !record.value.is_empty() => RecordFault::ValueOfDelete,
            _ => return Ok(()),
        };
        Err(Invalid::Record { key: record.key.to_key(), fault }.into())
    }

    /// Adds a range delete, in any order. It is of records in older runs, never of this SSTable's.
    pub fn delete_range(&mut self, range: KeyRange) {
        if !range.is_empty() {
            self.range_deletes.push(range);
        }
    }

    /// Returns about how long the file would be, if it were finished now.
    pub fn size_bytes_estimate(&self) -> u64 {
        // A block is about half as long as its text; a record takes ten bits of the filter.
        (self.file.len() + self.block.text_bytes() / 2 + self.fingerprints.len() * 5 / 4) as u64
    }

    /// Returns whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.properties.records == 0 && self.range_deletes.is_empty()
    }

    /// Returns the whole file, and what a manifest needs to know of it.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if a part of the file cannot be encoded.
    pub fn finish(mut self) -> Result<(Bytes, SstableInfo)> {
        if self.block.len() > 0 {
            self.finish_block();
        }
        let mut range_deletes = std::mem::take(&mut self.range_deletes);
        range_deletes.sort_unstable_by(|one, other| one.start.cmp(&other.start));
        let mut properties = self.properties;
        properties.range_deletes = range_deletes.len() as u64;
        properties.ends = self.ends;
        properties.span = span(properties.ends.as_ref(), &range_deletes);
        let mut index = Vec::new();
        self.index.write(&mut Encoder::new(), &mut index);
        let sections = Sections {
            data_bytes: self.file.len() as u64,
            range_deletes: &encoded(&range_deletes)?,
            index: &index,
            filter: &filter::build(&self.fingerprints),
            properties: &encoded(&properties)?,
        };
        let mut file = self.file;
        sections.write(&mut file);
        let size_bytes = file.len() as u64;
        let info = SstableInfo::of(&properties, size_bytes, size_bytes - sections.data_bytes);
        Ok((file.into(), info))
    }

    fn finish_block(&mut self) {
        let (start, records) = (self.file.len(), self.block.len());
        self.block.finish(&self.properties.layout, &mut self.file);
        let block = &self.file[start..];
        self.index.push(self.last_before.as_ref(), self.first.as_ref(), block, records);
        if let Some((_, last)) = &self.ends {
            assign(self.last_before.get_or_insert_default(), last.as_ref());
        }
    }
}

/// Makes `key` equal to `other`, in the memory that it has.
fn assign(key: &mut Key, other: KeyRef<'_>) {
    (key.directory, key.hash) = (other.directory, other.hash);
    key.name.clear();
    key.name.extend_from_slice(other.name);
}

fn encoded(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    Ok(postcard::to_extend(value, Vec::new()).map_err(Invalid::SectionEncoding)?)
}

/// Returns the least range that has these keys, ends included, and ranges.
pub(super) fn span(ends: Option<&(Key, Key)>, ranges: &[KeyRange]) -> KeyRange {
    let of_records = ends.map(|(first, last)| KeyRange {
        start: first.clone(),
        end: Some(last.clone().successor()),
    });
    let all = of_records.into_iter().chain(ranges.iter().cloned());
    let joined = all.reduce(|one, other| KeyRange {
        start: one.start.min(other.start),
        end: one.end.zip(other.end).map(|(one, other)| one.max(other)),
    });
    joined.unwrap_or(KeyRange { start: Key::default(), end: Some(Key::default()) })
}
