//! Making blocks. See the module above for the bytes.

use super::block::{APART, COMPRESSED, HASHES};
use super::columns::Encoder;
use super::wire::put_varint;
use crate::record::{Layout, Op, RecordRef};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

/// Collects the records of a block and makes it.
pub(super) struct BlockBuilder {
    directories: Vec<u64>,
    ops: Vec<u64>,
    name_lengths: Vec<u64>,
    hashes: Vec<u64>,
    /// Whether every hash is that of the name.
    is_named: bool,
    /// All names, one after the other.
    names: Vec<u8>,
    /// Where each value begins in `values`.
    starts: Vec<usize>,
    values: Vec<u8>,
    /// The least length of a value that is not of a delete.
    value_bytes_min: usize,
    columns: Vec<Vec<u64>>,
    lengths: Vec<u64>,
    encoder: Encoder,
    table: CompressTable,
    packed: Vec<u8>,
}

impl BlockBuilder {
    pub fn new() -> Self {
        BlockBuilder {
            directories: Vec::new(),
            ops: Vec::new(),
            name_lengths: Vec::new(),
            hashes: Vec::new(),
            is_named: true,
            names: Vec::new(),
            starts: Vec::new(),
            values: Vec::new(),
            value_bytes_min: usize::MAX,
            columns: Vec::new(),
            lengths: Vec::new(),
            encoder: Encoder::new(),
            table: CompressTable::default(),
            packed: Vec::new(),
        }
    }

    /// Adds a record, whose name has the hash `name_hash`.
    pub fn push(&mut self, record: RecordRef<'_>, name_hash: u64) {
        self.directories.push(record.key.directory);
        self.ops.push(record.op as u64);
        self.name_lengths.push(record.key.name.len() as u64);
        self.hashes.push(record.key.hash);
        self.is_named &= record.key.hash == name_hash;
        self.names.extend_from_slice(record.key.name);
        self.starts.push(self.values.len());
        self.values.extend_from_slice(record.value);
        if record.op != Op::Delete {
            self.value_bytes_min = self.value_bytes_min.min(record.value.len());
        }
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns the bytes of names and values.
    pub fn text_bytes(&self) -> usize {
        self.names.len() + self.values.len()
    }

    /// Adds the block to `out`, and is empty again.
    pub fn finish(&mut self, layout: &Layout, out: &mut Vec<u8>) {
        let is_apart = self.value_bytes_min != usize::MAX && self.value_bytes_min >= layout.width();
        let width = if is_apart { layout.width() } else { 0 };
        let flags_at = out.len();
        out.push(if is_apart { APART } else { 0 });
        put_varint(out, self.len() as u64);
        for (column, width) in [(&self.directories, 8), (&self.ops, 1), (&self.name_lengths, 8)] {
            self.encoder.encode(column, None, width, out);
        }
        if !self.is_named {
            out[flags_at] |= HASHES;
            self.encoder.encode(&self.hashes, None, 8, out);
        }
        self.add_tails(width);
        self.encoder.encode(&self.lengths, None, 8, out);
        if is_apart {
            self.put_columns(layout, out);
        }
        if self.put_text(out) {
            out[flags_at] |= COMPRESSED;
        }
        self.clear();
    }

    /// Adds what comes in each value after `width` bytes to the text, and collects its lengths.
    fn add_tails(&mut self, width: usize) {
        self.lengths.clear();
        let ends = self.starts.iter().skip(1).copied().chain([self.values.len()]);
        for (start, end) in self.starts.iter().zip(ends) {
            let start = (start + width).min(end);
            self.lengths.push((end - start) as u64);
            self.names.extend_from_slice(&self.values[start..end]);
        }
    }

    fn put_columns(&mut self, layout: &Layout, out: &mut Vec<u8>) {
        self.columns.resize_with(layout.columns.len(), Vec::new);
        let mut offset = 0;
        for (at, column) in layout.columns.iter().enumerate() {
            let (before, rest) = self.columns.split_at_mut(at);
            let numbers = &mut rest[0];
            numbers.clear();
            match column.width {
                1 => numbers_at::<1>(&self.values, &self.starts, &self.ops, offset, numbers),
                2 => numbers_at::<2>(&self.values, &self.starts, &self.ops, offset, numbers),
                4 => numbers_at::<4>(&self.values, &self.starts, &self.ops, offset, numbers),
                _ => numbers_at::<8>(&self.values, &self.starts, &self.ops, offset, numbers),
            }
            let near = column.near.map(|near| before[usize::from(near)].as_slice());
            self.encoder.encode(numbers, near, column.width, out);
            offset += usize::from(column.width);
        }
    }

    /// Adds the text, and returns whether it is compressed.
    fn put_text(&mut self, out: &mut Vec<u8>) -> bool {
        put_varint(out, self.names.len() as u64);
        self.packed.resize(get_maximum_output_size(self.names.len()), 0);
        let packed = compress_into_with_table(&self.names, &mut self.packed, &mut self.table);
        match packed {
            Ok(count) if count < self.names.len() => {
                out.extend_from_slice(&self.packed[..count]);
                true
            }
            _ => {
                out.extend_from_slice(&self.names);
                false
            }
        }
    }

    fn clear(&mut self) {
        for column in [&mut self.directories, &mut self.ops, &mut self.name_lengths] {
            column.clear();
        }
        self.hashes.clear();
        self.names.clear();
        self.starts.clear();
        self.values.clear();
        (self.is_named, self.value_bytes_min) = (true, usize::MAX);
    }
}

/// Adds the number at `offset` of every value to `numbers`. A delete gets that of the record
/// before, or of the first one that has any: what costs least.
fn numbers_at<const N: usize>(
    values: &[u8],
    starts: &[usize],
    ops: &[u64],
    offset: usize,
    numbers: &mut Vec<u64>,
) {
    let number = |start: usize| {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&values[start + offset..][..N]);
        u64::from_le_bytes(bytes)
    };
    let is_delete = |op: u64| op == Op::Delete as u64;
    let first = ops.iter().position(|op| !is_delete(*op));
    let mut last = first.map_or(0, |first| number(starts[first]));
    numbers.extend(starts.iter().zip(ops).map(|(start, op)| {
        if !is_delete(*op) {
            last = number(*start);
        }
        last
    }));
}
