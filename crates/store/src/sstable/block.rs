//! Reading blocks: some records, their numbers in columns, their names and tails as text. See the
//! module above for the bytes.

use super::columns::Columns;
use super::wire::{Decoded, Decoder};
use crate::key::{KeyRef, NAME_MAX, hash_of};
use crate::record::{COLUMNS_MAX, Layout, Op, VALUE_MAX};
use std::cmp::Ordering;
use std::ops::Range;

/// A block has this many records at most.
pub(super) const RECORDS_MAX: usize = 4096;

/// A block that has so many bytes of names and values gets no more records.
pub(super) const TARGET_BYTES_MAX: usize = 1 << 20;

const TEXT_BYTES_MAX: usize = TARGET_BYTES_MAX + NAME_MAX + VALUE_MAX;

/// A block is this long at most: text that lz4 did not make smaller, and numbers.
pub(super) const BLOCK_BYTES_MAX: usize = 2 * TEXT_BYTES_MAX;

pub(super) const HASHES: u8 = 1;
pub(super) const APART: u8 = 2;
pub(super) const COMPRESSED: u8 = 4;

const DIRECTORIES: usize = 0;
const OPS: usize = 1;
const NAME_LENGTHS: usize = 2;

/// One byte of lz4 makes at most so many of text.
const LZ4_RATIO_MAX: usize = 255;

/// A block that was read. Its columns are decoded where they are needed. It takes few allocations,
/// which the next block can use: a cache has very many blocks, and replaces them all the time.
#[derive(Default)]
pub(super) struct Block {
    records: usize,
    flags: u8,
    columns: Columns,
    /// The columns as they are stored, then the text: all names, and all tails.
    bytes: Vec<u8>,
    /// Where the text begins.
    text_start: usize,
    /// Where each name ends in the text, then where each tail does, if there are any.
    ends: Vec<u32>,
    /// Bytes of the text as it is stored.
    stored_text_bytes: usize,
}

impl Block {
    /// Becomes the block that `body` is, whose checksum is right.
    pub fn load(&mut self, body: &[u8], layout: &Layout) -> Decoded<()> {
        let mut input = self.load_columns(body, layout)?;
        self.load_text(body, &mut input)?;
        self.find_texts()
    }

    /// Returns the length of the block that `bytes` begin with. No field stores it, but each part of
    /// a block implies its own length.
    pub fn length(bytes: &[u8], layout: &Layout) -> Decoded<usize> {
        let bytes = bytes.get(..BLOCK_BYTES_MAX).unwrap_or(bytes);
        let mut block = Block::default();
        let mut input = block.load_columns(bytes, layout)?;
        let size = input.size(TEXT_BYTES_MAX)?;
        let text = match block.flags & COMPRESSED {
            0 => size,
            _ => lz4_length(input.rest, size).ok_or("has a block that cannot be decompressed")?,
        };
        let rest = input.rest.len().checked_sub(text).ok_or("ends too early")?;
        Ok(bytes.len() - rest)
    }

    /// Reads flags and columns, and returns the rest of `body`.
    fn load_columns<'a>(&mut self, body: &'a [u8], layout: &Layout) -> Decoded<Decoder<'a>> {
        let mut input = Decoder::new(body);
        self.flags = input.byte()?;
        if self.flags & !(HASHES | APART | COMPRESSED) != 0 {
            return Err("has a block with unknown flags");
        }
        self.records = input.size(RECORDS_MAX)?;
        if self.records == 0 {
            return Err("has a block without records");
        }
        self.columns.clear(layout.columns.len() + NAME_LENGTHS + 3);
        let hashes = self.has_hashes().then_some(8);
        let widths = [8, 1, 8].into_iter().chain(hashes).chain([8]);
        let own = layout.columns.iter().map(|column| column.width);
        for width in widths.chain(own.take_while(|_| self.flags & APART != 0)) {
            self.columns.push(&mut input, body.len(), self.records, width)?;
        }
        self.text_start = body.len() - input.rest.len();
        Ok(input)
    }

    /// Copies the columns from `body`, and puts the text after them, which `input` stands at.
    fn load_text(&mut self, body: &[u8], input: &mut Decoder<'_>) -> Decoded<()> {
        let size = input.size(TEXT_BYTES_MAX)?;
        let (columns, stored) = (body.get(..self.text_start).unwrap_or_default(), input.rest);
        self.stored_text_bytes = stored.len();
        self.bytes.clear();
        if self.flags & COMPRESSED == 0 {
            make_room(&mut self.bytes, columns.len() + stored.len());
            self.bytes.extend_from_slice(columns);
            self.bytes.extend_from_slice(stored);
        } else if size <= stored.len().saturating_mul(LZ4_RATIO_MAX) {
            make_room(&mut self.bytes, columns.len() + size);
            self.bytes.extend_from_slice(columns);
            self.bytes.resize(columns.len() + size, 0);
            let text = self.bytes.get_mut(self.text_start..).unwrap_or_default();
            let count = lz4_flex::block::decompress_into(stored, text)
                .map_err(|_| "has a block that cannot be decompressed")?;
            self.bytes.truncate(self.text_start + count);
        }
        match self.text().len() == size {
            true => Ok(()),
            false => Err("has a block with text of another size"),
        }
    }

    /// Finds where names and tails are.
    fn find_texts(&mut self) -> Decoded<()> {
        make_room(&mut self.ends, self.records);
        let names_end = self.add_ends(NAME_LENGTHS, 0, NAME_MAX)?;
        let mut text_end = names_end;
        if names_end as usize != self.text().len() {
            self.ends.reserve_exact(self.records);
            let column = NAME_LENGTHS + 1 + usize::from(self.has_hashes());
            text_end = self.add_ends(column, names_end, VALUE_MAX)?;
        }
        if text_end as usize == self.text().len() {
            Ok(())
        } else {
            Err("has a block of wrong size")
        }
    }

    /// Adds where each text ends, from `end` on, whose lengths are in column `at` and at most
    /// `limit`; returns the last end.
    fn add_ends(&mut self, at: usize, mut end: u32, limit: usize) -> Decoded<u32> {
        let mut is_wrong = false;
        let end_of = |length: u64| {
            is_wrong |= length > limit as u64;
            let next = u32::try_from(length).ok().and_then(|length| end.checked_add(length));
            is_wrong |= next.is_none();
            end = next.unwrap_or(end);
            end
        };
        self.columns.map(&self.bytes, at, 0..self.records, end_of, &mut self.ends);
        if is_wrong { Err("has a text that is too long") } else { Ok(end) }
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(self.text_start..).unwrap_or_default()
    }

    /// Returns the text that ends at `at` of the ends.
    fn text_at(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let range = start.zip(self.ends.get(at).copied());
        range
            .and_then(|(start, end)| self.text().get(start as usize..end as usize))
            .unwrap_or_default()
    }

    fn has_hashes(&self) -> bool {
        self.flags & HASHES != 0
    }

    pub fn len(&self) -> usize {
        self.records
    }

    /// Returns whether values begin with the layout's columns.
    pub fn is_apart(&self) -> bool {
        self.flags & APART != 0
    }

    /// Returns the memory that the block takes.
    pub fn memory_bytes(&self) -> usize {
        let own = size_of::<Self>() + self.bytes.capacity() + 4 * self.ends.capacity();
        own + self.columns.memory_bytes()
    }

    pub fn name(&self, row: usize) -> &[u8] {
        self.text_at(row)
    }

    pub fn has_tails(&self) -> bool {
        self.ends.len() > self.records
    }

    pub fn tail(&self, row: usize) -> &[u8] {
        if self.has_tails() { self.text_at(self.records + row) } else { &[] }
    }

    pub fn op(&self, row: usize) -> Decoded<Op> {
        op(self.columns.get(&self.bytes, OPS, row))
    }

    pub fn directory(&self, row: usize) -> u64 {
        self.columns.get(&self.bytes, DIRECTORIES, row)
    }

    pub fn hash(&self, row: usize) -> u64 {
        match self.has_hashes() {
            true => self.columns.get(&self.bytes, NAME_LENGTHS + 1, row),
            false => hash_of(self.name(row)),
        }
    }

    /// Compares the key of `row` with `key`, and looks at no more of it than it takes.
    fn compare(&self, row: usize, key: KeyRef<'_>) -> Ordering {
        let by_hash = || self.hash(row).cmp(&key.hash);
        let by_name = || self.name(row).cmp(key.name);
        self.directory(row).cmp(&key.directory).then_with(by_hash).then_with(by_name)
    }

    /// Returns the first row whose key is not less than `key`, and whether it is `key`.
    pub fn find(&self, key: KeyRef<'_>) -> (usize, bool) {
        let (mut low, mut high) = (0, self.records);
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(middle, key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// Returns the value of one record.
    pub fn value(&self, row: usize, layout: &Layout) -> Vec<u8> {
        let tail = self.tail(row);
        if !self.is_apart() {
            return tail.to_vec();
        }
        let mut numbers = [0; COLUMNS_MAX];
        let mut value = Vec::with_capacity(layout.width() + tail.len());
        let first = self.layout_column();
        for (at, column) in layout.columns.iter().enumerate().take(numbers.len()) {
            let mut number = self.columns.get(&self.bytes, first + at, row);
            if let Some(near) = column.near.filter(|_| self.columns.is_near(first + at)) {
                number = number.wrapping_add(numbers.get(usize::from(near)).copied().unwrap_or(0));
            }
            numbers[at] = number;
            let bytes = number.to_le_bytes();
            value.extend_from_slice(bytes.get(..column.width.into()).unwrap_or_default());
        }
        value.extend_from_slice(tail);
        value
    }

    /// Returns the place of the layout's first column.
    fn layout_column(&self) -> usize {
        NAME_LENGTHS + 2 + usize::from(self.has_hashes())
    }

    pub fn decode_directories(&self, rows: Range<usize>, out: &mut Vec<u64>) {
        self.columns.decode(&self.bytes, DIRECTORIES, rows, out);
    }

    pub fn decode_hashes(&self, rows: Range<usize>, out: &mut Vec<u64>) {
        if self.has_hashes() {
            return self.columns.decode(&self.bytes, NAME_LENGTHS + 1, rows, out);
        }
        out.clear();
        out.extend(rows.map(|row| hash_of(self.name(row))));
    }

    pub fn decode_ops(&self, rows: Range<usize>, out: &mut Vec<Op>) -> Decoded<()> {
        out.clear();
        if let Some(same) = self.columns.constant(OPS) {
            out.resize(rows.len(), op(same)?);
            return Ok(());
        }
        for row in rows {
            out.push(self.op(row)?);
        }
        Ok(())
    }

    /// Decodes column `at` of the layout, and returns whether the numbers of the column that it is
    /// near to are to be added.
    pub fn decode_column(&self, at: usize, rows: Range<usize>, out: &mut Vec<u64>) -> bool {
        let at = self.layout_column() + at;
        self.columns.decode(&self.bytes, at, rows, out);
        self.columns.is_near(at)
    }

    /// Returns how column `at` of the layout is stored, and in how many bits a number.
    pub fn describe_column(&self, at: usize) -> Option<(&'static str, u32)> {
        self.columns.describe(self.layout_column() + at)
    }

    /// Returns the bytes of columns, of text as it is stored, of names, and of tails.
    pub fn sizes(&self) -> [usize; 4] {
        let last = self.records.checked_sub(1).and_then(|last| self.ends.get(last));
        let names = last.map_or(0, |end| *end as usize);
        [self.text_start, self.stored_text_bytes, names, self.text().len() - names]
    }
}

fn op(number: u64) -> Decoded<Op> {
    let byte = u8::try_from(number).ok().and_then(Op::from_byte);
    byte.ok_or("has a record with an unknown operation")
}

/// Returns the length of the lz4 block that `bytes` begin with, which has `size` bytes of text.
fn lz4_length(bytes: &[u8], size: usize) -> Option<usize> {
    let mut input = Decoder::new(bytes);
    let more = |input: &mut Decoder<'_>, nibble: u8| -> Option<usize> {
        let mut length = usize::from(nibble);
        let mut is_last = nibble < 15;
        while !is_last {
            let byte = input.byte().ok()?;
            length += usize::from(byte);
            is_last = byte < u8::MAX;
        }
        Some(length)
    };
    let mut text = 0usize;
    while text <= size {
        let token = input.byte().ok()?;
        let literals = more(&mut input, token >> 4)?;
        input.take(literals).ok()?;
        text += literals;
        // The last sequence has literals alone.
        if text == size {
            return Some(bytes.len() - input.rest.len());
        }
        let offset = usize::from(u16::from_le_bytes(input.array().ok()?));
        if offset == 0 || offset > text {
            return None;
        }
        text += more(&mut input, token & 15)? + 4;
    }
    None
}

/// Makes `memory` empty, with room for `count`, and not much more: it may be that of another block.
fn make_room<T>(memory: &mut Vec<T>, count: usize) {
    memory.clear();
    // Ends of names may be followed by as many of tails.
    if memory.capacity() > 4 * count {
        *memory = Vec::new();
    }
    memory.reserve_exact(count);
}
