//! Columns of numbers, each in as few bits as its numbers need. See the module above for the bytes.

use super::wire::{Decoded, Decoder, put_signed, put_varint};
use std::ops::Range;

const PLAIN: u8 = 0;
const DICTIONARY: u8 = 1;
const NEAR: u8 = 2;

/// Common divisors of numbers: of times in whole seconds, milliseconds and microseconds, and of
/// numbers of blocks.
const UNITS: [u64; 4] = [1_000_000_000, 1_000_000, 1_000, 8];

/// More distinct numbers than these make no dictionary: half of the encoder's table.
const ENTRIES_MAX: usize = 128;
const SLOTS: usize = 2 * ENTRIES_MAX;

/// Numbers are looked at for the variety of a column, before all of them are.
const SAMPLE: usize = 64;

/// Codes of more bits take 64: a code then always lies in 8 bytes from the one it begins in.
const BITS_MAX: u32 = 56;

/// Makes columns. It owns the memory that this takes.
pub(super) struct Encoder {
    differences: Vec<u64>,
    codes: Vec<u64>,
    entries: Vec<u64>,
    /// By the hash of an entry: its place in `entries`, and 1; or 0.
    slots: [u8; SLOTS],
}

/// A way to store numbers: as `base + unit × code`, each code in `bits`.
#[derive(Clone, Copy)]
struct Frame {
    base: u64,
    unit: u64,
    bits: u32,
}

impl Encoder {
    pub fn new() -> Self {
        let (differences, codes, entries) = (Vec::new(), Vec::new(), Vec::new());
        Encoder { differences, codes, entries, slots: [0; SLOTS] }
    }

    /// Adds a column of `values`, each of `width` bytes, to `out`. `near` are as many numbers that
    /// they may be little away from.
    pub fn encode(&mut self, values: &[u64], near: Option<&[u64]>, width: u8, out: &mut Vec<u8>) {
        let (mut frame, mut kind) = (Frame::of(values, width), PLAIN);
        if let Some(near) = near.filter(|_| frame.bits > 0) {
            let pairs = values.iter().zip(near);
            self.differences.clear();
            self.differences.extend(pairs.map(|(value, near)| value.wrapping_sub(*near)));
            let other = Frame::of(&self.differences, width);
            if other.bits < frame.bits {
                (frame, kind) = (other, NEAR);
            }
        }
        if self.find_entries(values, usize::from(width) * 8, frame.bits) {
            return self.put_dictionary(width, out);
        }
        out.extend([kind, frame.bits as u8]);
        put_signed(out, frame.base as i64);
        if frame.bits > 0 {
            put_varint(out, frame.unit);
            let values = if kind == NEAR { &self.differences } else { values };
            frame.put_codes(values, width, out);
        }
    }

    /// Makes `entries` and `codes` of `values`, and returns whether they take fewer bits than
    /// `frame_bits` a value.
    fn find_entries(&mut self, values: &[u64], entry_bits: usize, frame_bits: u32) -> bool {
        let limit = values.len() * frame_bits as usize;
        let sample_max = 16.max(values.len().min(SAMPLE) / 2);
        self.entries.clear();
        self.codes.clear();
        self.slots = [0; SLOTS];
        for (at, &value) in values.iter().enumerate() {
            let Some(code) = self.entry(value) else { return false };
            self.codes.push(code);
            let count = self.entries.len();
            let bits = count * entry_bits + values.len() * bits_of(count as u64 - 1) as usize;
            if bits >= limit || (at < SAMPLE && count > sample_max) {
                return false;
            }
        }
        !values.is_empty()
    }

    /// Returns the place of `value` in `entries`, where it is added if there is room.
    fn entry(&mut self, value: u64) -> Option<u64> {
        let mut slot = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize;
        while let Some(place) = usize::from(self.slots[slot]).checked_sub(1) {
            if self.entries[place] == value {
                return Some(place as u64);
            }
            slot = (slot + 1) % SLOTS;
        }
        let place = self.entries.len();
        if place == ENTRIES_MAX {
            return None;
        }
        self.entries.push(value);
        self.slots[slot] = place as u8 + 1;
        Some(place as u64)
    }

    fn put_dictionary(&self, width: u8, out: &mut Vec<u8>) {
        let last = self.entries.len() as u64 - 1;
        let bits = bits_of(last);
        out.extend([DICTIONARY, bits as u8, last as u8]);
        for entry in &self.entries {
            out.extend_from_slice(&entry.to_le_bytes()[..usize::from(width)]);
        }
        pack(self.codes.iter().copied(), bits, out);
    }
}

impl Frame {
    /// Returns the frame of fewest bits. Numbers are taken as signed if that makes them closer.
    fn of(values: &[u64], width: u8) -> Self {
        let unused = 64 - 8 * u32::from(width);
        let (mut least, mut greatest) = (u64::MAX, 0);
        let (mut least_signed, mut greatest_signed) = (i64::MAX, i64::MIN);
        for value in values {
            let signed = (value << unused) as i64 >> unused;
            let value = value << unused >> unused;
            (least, greatest) = (least.min(value), greatest.max(value));
            least_signed = least_signed.min(signed);
            greatest_signed = greatest_signed.max(signed);
        }
        if values.is_empty() {
            return Frame { base: 0, unit: 1, bits: 0 };
        }
        let (mut base, mut reach) = (least, greatest - least);
        let reach_signed = greatest_signed.wrapping_sub(least_signed) as u64;
        if reach_signed < reach {
            (base, reach) = (least_signed as u64, reach_signed);
        }
        let mut frame = Frame { base, unit: 1, bits: bits_of(reach) };
        let is_unit =
            |unit: &&u64| values.iter().all(|v| frame.code(*v, width).is_multiple_of(**unit));
        if let Some(&unit) = UNITS.iter().filter(|unit| **unit <= reach).find(is_unit) {
            (frame.unit, frame.bits) = (unit, bits_of(reach / unit));
        }
        frame
    }

    fn code(&self, value: u64, width: u8) -> u64 {
        let unused = 64 - 8 * u32::from(width);
        value.wrapping_sub(self.base) << unused >> unused
    }

    fn put_codes(&self, values: &[u64], width: u8, out: &mut Vec<u8>) {
        let codes = values.iter().map(|value| self.code(*value, width));
        match self.unit {
            1 => pack(codes, self.bits, out),
            unit => pack(codes.map(|code| code / unit), self.bits, out),
        }
    }
}

/// Returns the bits of codes up to `greatest`.
fn bits_of(greatest: u64) -> u32 {
    match u64::BITS - greatest.leading_zeros() {
        bits if bits > BITS_MAX => 64,
        bits => bits,
    }
}

fn pack(codes: impl Iterator<Item = u64>, bits: u32, out: &mut Vec<u8>) {
    if bits == 0 {
        return;
    }
    let (mut word, mut filled) = (0u64, 0);
    for code in codes {
        word |= code << filled;
        filled += bits;
        if filled >= 64 {
            out.extend_from_slice(&word.to_le_bytes());
            filled -= 64;
            // Begin the next word with the bits of the code that did not fit.
            word = code.checked_shr(bits - filled).unwrap_or(0);
        }
    }
    out.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// A column as it lies in a body of bytes, which is given to every call again.
#[derive(Clone, Debug)]
struct Column {
    numbers: Numbers,
    is_near: bool,
    bits: u8,
    /// Where the codes begin in the body.
    start: u32,
}

/// Meaning of a column's codes.
#[derive(Clone, Debug)]
enum Numbers {
    /// `base + unit × code`.
    Frame { base: u64, unit: u64 },
    /// The entries of `width` bytes from `start` in the body on, `count` of them; then zeros.
    Dictionary { start: u32, count: u16, width: u8 },
}

/// Columns of one body.
#[derive(Default)]
pub(super) struct Columns {
    columns: Vec<Column>,
}

impl Columns {
    /// Begins again, with room for `count` columns.
    pub fn clear(&mut self, count: usize) {
        self.columns.clear();
        self.columns.reserve_exact(count);
    }

    /// Reads the next column, of `count` numbers, from `input`, which is the rest of a body of
    /// `body_bytes`.
    pub fn push(
        &mut self,
        input: &mut Decoder<'_>,
        body_bytes: usize,
        count: usize,
        width: u8,
    ) -> Decoded<()> {
        let place = |input: &Decoder<'_>| {
            u32::try_from(body_bytes - input.rest.len()).map_err(|_| "has a block that is too long")
        };
        let [kind, bits] = input.array()?;
        if u32::from(bits) > BITS_MAX && bits != 64 {
            return Err("has a column with a wrong number of bits");
        }
        let numbers = match kind {
            PLAIN | NEAR => {
                let base = input.signed()? as u64;
                Numbers::Frame { base, unit: if bits > 0 { input.varint()? } else { 1 } }
            }
            DICTIONARY if bits <= 8 => {
                let count = u16::from(input.byte()?) + 1;
                let start = place(input)?;
                input.take(usize::from(count) * usize::from(width))?;
                Numbers::Dictionary { start, count, width }
            }
            _ => return Err("has a column of an unknown kind"),
        };
        let start = place(input)?;
        let packed_bits = count.checked_mul(bits.into()).ok_or("has too many numbers")?;
        input.take(packed_bits.div_ceil(8))?;
        self.columns.push(Column { numbers, is_near: kind == NEAR, bits, start });
        Ok(())
    }

    /// Returns how a column is stored: its name, and bits of a number.
    pub fn describe(&self, at: usize) -> Option<(&'static str, u32)> {
        let column = self.columns.get(at)?;
        let kind = match column.numbers {
            _ if column.bits == 0 => "constant",
            Numbers::Dictionary { .. } => "dictionary",
            Numbers::Frame { .. } if column.is_near => "near",
            Numbers::Frame { .. } => "plain",
        };
        Some((kind, column.bits.into()))
    }

    /// Returns the number that all of a column are, if it is stored as such.
    pub fn constant(&self, at: usize) -> Option<u64> {
        match self.columns.get(at)? {
            Column { numbers: Numbers::Frame { base, .. }, bits: 0, is_near: false, .. } => {
                Some(*base)
            }
            _ => None,
        }
    }

    /// Returns the memory that this takes.
    pub fn memory_bytes(&self) -> usize {
        self.columns.capacity() * size_of::<Column>()
    }

    /// Returns whether a number is in addition to that of the column it is near to.
    pub fn is_near(&self, at: usize) -> bool {
        self.columns.get(at).is_some_and(|column| column.is_near)
    }

    /// Returns one number of column `at`.
    #[inline]
    pub fn get(&self, body: &[u8], at: usize, row: usize) -> u64 {
        let Some(column) = self.columns.get(at) else { return 0 };
        match column.numbers {
            Numbers::Frame { base, .. } if column.bits == 0 => base,
            Numbers::Frame { base, unit } => {
                base.wrapping_add(unit.wrapping_mul(column.code(column.codes(body), row)))
            }
            Numbers::Dictionary { start, count, width } => {
                match column.code(column.codes(body), row) as usize {
                    code if code < count.into() => {
                        number(body, start as usize + code * usize::from(width), width)
                    }
                    _ => 0,
                }
            }
        }
    }

    /// Puts the numbers of `rows` of column `at` into `out`, in place of what is there.
    pub fn decode(&self, body: &[u8], at: usize, rows: Range<usize>, out: &mut Vec<u64>) {
        out.clear();
        self.map(body, at, rows, |number| number, out);
    }

    /// Adds what `of` makes of the numbers of `rows` of column `at`, in order, to `out`.
    #[inline]
    pub fn map<T>(
        &self,
        body: &[u8],
        at: usize,
        rows: Range<usize>,
        mut of: impl FnMut(u64) -> T,
        out: &mut Vec<T>,
    ) {
        let Some(column) = self.columns.get(at) else { return };
        let codes = column.codes(body);
        match column.numbers {
            Numbers::Frame { base, .. } if column.bits == 0 => {
                out.extend(rows.map(|_| of(base)));
            }
            Numbers::Frame { base, unit } => {
                let number = |row| base.wrapping_add(unit.wrapping_mul(column.code(codes, row)));
                out.extend(rows.map(|row| of(number(row))));
            }
            Numbers::Dictionary { start, count, width } => {
                let mut entries = [0; 1 << u8::BITS];
                for (at, entry) in entries.iter_mut().enumerate().take(count.into()) {
                    *entry = number(body, start as usize + at * usize::from(width), width);
                }
                // As many as there are codes of 8 bits.
                out.extend(rows.map(|row| of(entries[column.code(codes, row) as usize & 0xff])));
            }
        }
    }
}

impl Column {
    fn codes<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        body.get(self.start as usize..).unwrap_or_default()
    }

    #[inline(always)]
    fn code(&self, codes: &[u8], row: usize) -> u64 {
        let bits = u32::from(self.bits);
        let at = row * bits as usize;
        let mask = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        word(codes, at / 8) >> (at % 8) & mask
    }
}

/// Returns the number of `width` bytes at `at` in `bytes`.
#[inline(always)]
fn number(bytes: &[u8], at: usize, width: u8) -> u64 {
    let unused = 64u32.saturating_sub(8 * u32::from(width));
    word(bytes, at) << unused >> unused
}

/// Returns the eight bytes at `at`; zeros come after the end.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(word) => u64::from_le_bytes(*word),
        None => last_word(bytes, at),
    }
}

/// Returns the word at `at` near the end, as if zeros came after.
#[cold]
fn last_word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().take(8).rfold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_without_an_entry_are_zero_whoever_asks() {
        for width in [1, 2, 4, 8] {
            // Three entries, and codes of two bits: 0, 1, 2, 3.
            let entries = [7u64, 9, 200].map(|entry| entry.to_le_bytes()[..width].to_vec());
            let mut body = vec![DICTIONARY, 2, 2];
            body.extend(entries.concat());
            body.push(0b11_10_01_00);
            let (mut columns, mut input) = (Columns::default(), Decoder::new(&body));
            columns.push(&mut input, body.len(), 4, width as u8).unwrap();
            let mut all = Vec::new();
            columns.decode(&body, 0, 0..4, &mut all);
            assert_eq!(all, [7, 9, 200, 0]);
            assert_eq!(Vec::from_iter((0..4).map(|row| columns.get(&body, 0, row))), all);
        }
    }
}
