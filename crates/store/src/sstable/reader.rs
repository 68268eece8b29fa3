//! An open SSTable: its tail in memory, its blocks read as they are needed.

use super::block::Block;
use super::cache::BlockCache;
use super::cursor::Cursor;
use super::filter;
use super::footer::{Properties, Sections, SstableInfo, check_version, properties, whole};
use super::index::Index;
use super::wire::Decoded;
use crate::error::{Error, Result};
use crate::key::{KeyRange, KeyRef};
use crate::record::Op;
use crate::storage::{ReadAt, Storage};
use std::ops::Range;
use std::sync::Arc;

/// Blocks that are described are read together up to so many bytes.
const DESCRIBED_BYTES: u64 = 4 << 20;

/// An open SSTable, for any number of threads. Reads may block for long.
pub struct Sstable {
    name: String,
    storage: Arc<dyn Storage>,
    /// The open file, where storage has such.
    file: Option<Box<dyn ReadAt>>,
    cache: Arc<BlockCache>,
    /// Number of this SSTable in the cache.
    number: u64,
    info: SstableInfo,
    properties: Properties,
    range_deletes: Vec<KeyRange>,
    index: Index,
    tail: Vec<u8>,
    /// The bytes of range deletes and of index in the tail.
    sections: [usize; 2],
    /// Where the filter is in the tail.
    filter: Range<usize>,
}

/// Composition of a block in bytes, for tools that examine formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockParts {
    /// Where the block is in the file.
    pub range: Range<u64>,
    /// Its records.
    pub records: u64,
    /// Numbers: directories, lengths and the layout's columns.
    pub column_bytes: usize,
    /// Names and tails as they are stored.
    pub text_bytes: usize,
    /// Names before compression.
    pub name_bytes: usize,
    /// Rest of the values behind the columns, before compression.
    pub tail_bytes: usize,
    /// Encoding and bits per number of each column of the layout. Empty if values are stored whole.
    pub columns: Vec<(&'static str, u32)>,
}

impl Sstable {
    /// Opens the SSTable `name`, which `info` describes, by one read of its tail.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if the file is damaged or missing.
    pub fn open(
        storage: Arc<dyn Storage>,
        name: String,
        info: &SstableInfo,
        cache: Arc<BlockCache>,
    ) -> Result<Self> {
        let corrupt = |what| Error::corrupt(&*name, what);
        let start = info.size_bytes.checked_sub(info.tail_bytes);
        let start = start.ok_or_else(|| corrupt("is shorter than its tail"))?;
        let file = storage.open(&name)?;
        let mut tail = Vec::new();
        read(&*storage, file.as_deref(), &name, start..info.size_bytes, &mut tail)?;
        check_version(&tail, &name)?;
        let sections = Sections::read(&tail, info.size_bytes).map_err(corrupt)?;
        let properties = properties(sections.properties).map_err(corrupt)?;
        if SstableInfo::of(&properties, info.size_bytes, info.tail_bytes) != *info {
            return Err(corrupt("is not what the manifest says"));
        }
        let range_deletes = range_deletes(sections.range_deletes, &properties).map_err(corrupt)?;
        let index = Index::read(sections.index, sections.data_bytes).map_err(corrupt)?;
        let section_bytes = [sections.range_deletes.len(), sections.index.len()];
        let filter = section_bytes.iter().sum::<usize>()..;
        let filter = filter.start..filter.start + sections.filter.len();
        let (number, info) = (cache.number(), info.clone());
        Ok(Sstable {
            name,
            storage,
            file,
            cache,
            number,
            info,
            properties,
            range_deletes,
            index,
            sections: section_bytes,
            filter,
            tail,
        })
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what a manifest says of this.
    pub fn info(&self) -> &SstableInfo {
        &self.info
    }

    /// Returns what the file says of itself.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the ranges whose records in older runs are deleted, by start; they may overlap.
    pub fn range_deletes(&self) -> &[KeyRange] {
        &self.range_deletes
    }

    /// Returns whether there may be a record of `key`: surely if there is one, and for about one in
    /// a hundred other keys. Reads nothing.
    pub fn may_have(&self, key: KeyRef<'_>) -> bool {
        filter::may_have(self.filter(), filter::fingerprint(key))
    }

    /// Returns the block of the filter for a fingerprint.
    pub(crate) fn filter_block(&self, fingerprint: u64) -> Option<&filter::Block> {
        filter::block(self.filter(), fingerprint)
    }

    fn filter(&self) -> &[u8] {
        self.tail.get(self.filter.clone()).unwrap_or_default()
    }

    /// Returns what the record of `key` does, and its value. Reads one block at most.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if the file is damaged or missing.
    pub fn get(&self, key: KeyRef<'_>) -> Result<Option<(Op, Vec<u8>)>> {
        self.find(key, filter::fingerprint(key))
    }

    /// Does the same for a key whose fingerprint is known.
    pub(crate) fn find(&self, key: KeyRef<'_>, fingerprint: u64) -> Result<Option<(Op, Vec<u8>)>> {
        if !filter::may_have(self.filter(), fingerprint) {
            return Ok(None);
        }
        let Some(at) = self.index.find(key) else { return Ok(None) };
        let block = self.cached_block(at)?;
        let (row, is_there) = block.find(key);
        if !is_there {
            return Ok(None);
        }
        let op = block.op(row).map_err(|what| self.corrupt(what))?;
        let value = match op {
            Op::Delete => Vec::new(),
            _ => block.value(row, &self.properties.layout),
        };
        Ok(Some((op, value)))
    }

    /// Returns a cursor over the records in `range`. It stands before the first one.
    pub fn cursor(self: &Arc<Self>, range: KeyRange) -> Cursor {
        Cursor::new(Arc::clone(self), range)
    }

    /// Returns the block that a look-up of `key` would have to wait for, unless there is none or
    /// the file is open on this machine.
    pub(crate) fn awaited_block(&self, key: KeyRef<'_>) -> Option<usize> {
        let is_awaited = self.is_far() && self.may_have(key);
        let at = self.index.find(key).filter(|_| is_awaited)?;
        self.cache.peek(self.number, at).is_none().then_some(at)
    }

    /// Reads blocks of SSTables into their cache, all at once where storage can do so.
    pub(crate) fn preload(storage: &dyn Storage, blocks: &[(Arc<Sstable>, usize)]) -> Result<()> {
        let ranges = blocks.iter().map(|(table, at)| (&*table.name, table.index.range(*at)));
        let read = storage.read_ranges(&Vec::from_iter(ranges))?;
        for ((table, at), bytes) in blocks.iter().zip(read) {
            let mut spare = table.cache.take_spare();
            let block = table.load_new(*at, &bytes, spare.block.take())?;
            table.cache.insert(table.number, *at, block, spare);
        }
        Ok(())
    }

    fn cached_block(&self, at: usize) -> Result<Arc<Block>> {
        if let Some(block) = self.cache.get(self.number, at) {
            return Ok(block);
        }
        let mut spare = self.cache.take_spare();
        self.read_range(self.index.range(at), &mut spare.bytes)?;
        let block = self.load_new(at, &spare.bytes, spare.block.take())?;
        self.cache.insert(self.number, at, block.clone(), spare);
        Ok(block)
    }

    /// Returns what `bytes` of block `at` are, in the memory of `spare` if nobody looks at that.
    fn load_new(&self, at: usize, bytes: &[u8], spare: Option<Arc<Block>>) -> Result<Arc<Block>> {
        let mut block = spare.unwrap_or_default();
        if Arc::get_mut(&mut block).is_none() {
            block = Arc::default();
        }
        if let Some(block) = Arc::get_mut(&mut block) {
            self.load(at, bytes, block)?;
        }
        Ok(block)
    }

    /// Returns a block for a scan, if it is in the cache.
    pub(super) fn peek(&self, at: usize) -> Option<Arc<Block>> {
        self.cache.peek(self.number, at)
    }

    /// Makes `block` of the `bytes` of block `at`.
    pub(super) fn load(&self, at: usize, bytes: &[u8], block: &mut Block) -> Result<()> {
        if crc32fast::hash(bytes) != self.index.crc(at) {
            return Err(self.corrupt(format!("has a wrong checksum in block {at}")));
        }
        block.load(bytes, &self.properties.layout).map_err(|what| self.corrupt(what))?;
        if block.len() as u64 != self.index.records(at) {
            return Err(self.corrupt("has a block with another number of records"));
        }
        Ok(())
    }

    /// Returns whether every read is a request to storage, since no file is open.
    pub(super) fn is_far(&self) -> bool {
        self.file.is_none()
    }

    /// Returns whether the file is known to be removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_removed())
    }

    /// Puts the bytes of a range of the file into `out`, in place of what is there.
    pub(super) fn read_range(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        read(&*self.storage, self.file.as_deref(), &self.name, range, out)
    }

    pub(super) fn corrupt(&self, what: impl Into<String>) -> Error {
        Error::corrupt(&*self.name, what)
    }

    /// Returns the end of the file, as it was read when this was opened.
    pub(super) fn tail(&self) -> &[u8] {
        &self.tail
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.index.len()
    }

    /// Returns the bytes of range deletes, index and filter in the tail.
    pub fn tail_parts(&self) -> [usize; 3] {
        let [deletes, index] = self.sections;
        [deletes, index, self.filter.len()]
    }

    /// Reads all blocks, many at a time, and gives `each` what each is made of, or why it cannot be
    /// read.
    ///
    /// # Errors
    ///
    /// Fails with the first error of `each`.
    pub fn describe_blocks<E>(
        &self,
        mut each: impl FnMut(Result<BlockParts>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut block, mut bytes, mut first) = (Block::default(), Vec::new(), 0);
        while first < self.blocks() {
            let start = self.index.range(first).start;
            let is_near = |at: &usize| self.index.range(*at).end - start <= DESCRIBED_BYTES;
            let end = first + (first..self.blocks()).take_while(is_near).count().max(1);
            let read = self.read_range(start..self.index.range(end - 1).end, &mut bytes);
            match read {
                Ok(()) => (first..end).try_for_each(|at| {
                    let range = self.index.range(at);
                    let place = (range.start - start) as usize..(range.end - start) as usize;
                    let loaded = self.load(at, bytes.get(place).unwrap_or_default(), &mut block);
                    each(loaded.map(|()| self.describe(range, &block)))
                })?,
                Err(error) => each(Err(error))?,
            }
            first = end;
        }
        Ok(())
    }

    fn describe(&self, range: Range<u64>, block: &Block) -> BlockParts {
        let columns = 0..self.properties.layout.columns.len();
        let columns = columns.filter(|_| block.is_apart());
        let [column_bytes, text_bytes, name_bytes, tail_bytes] = block.sizes();
        BlockParts {
            range,
            records: block.len() as u64,
            column_bytes,
            text_bytes,
            name_bytes,
            tail_bytes,
            columns: columns.filter_map(|at| block.describe_column(at)).collect(),
        }
    }
}

fn read(
    storage: &dyn Storage,
    file: Option<&dyn ReadAt>,
    name: &str,
    range: Range<u64>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let length = range.end - range.start;
    match file {
        Some(file) => file.read_at(range, out)?,
        None => {
            out.clear();
            out.extend_from_slice(&storage.read_range(name, range)?);
        }
    }
    if out.len() as u64 == length { Ok(()) } else { Err(Error::corrupt(name, "read short")) }
}

fn range_deletes(bytes: &[u8], properties: &Properties) -> Decoded<Vec<KeyRange>> {
    let ranges: Vec<KeyRange> = whole(bytes)?;
    let is_sorted = ranges.is_sorted_by(|one, next| one.start <= next.start);
    if !is_sorted || ranges.len() as u64 != properties.range_deletes {
        return Err("has wrong range deletes");
    }
    Ok(ranges)
}
