//! Sums in `listings` that 64 bits do not hold.
//!
//! The columns have the lowest 64 bits of each sum, signed. The footer has the others, where any
//! row needs them: the key-value pair [`HIGH_KEY`], a text of records that end with `;`, each with
//! the number of a row and five numbers, in decimal with one space between. They hold from that row
//! until the next record; before the first one, all are 0.

use super::OpenFile;
use crate::error::{Error, Result};
use crate::listing_ordinal::ListingOrdinal;
use std::fmt::Write;
use std::sync::Arc;

/// Key of these numbers in the footer of `listings`.
pub(crate) const HIGH_KEY: &str = "canopy.high";

/// The columns that are sums of sizes, in the order of `High`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumColumn {
    /// `bytes_before`.
    BytesBefore,
    /// `dir_bytes_before`.
    DirBytesBefore,
    /// `blocks_before`.
    BlocksBefore,
    /// `entry_bytes`.
    EntryBytes,
    /// `entry_blocks`.
    EntryBlocks,
}

/// The part of a row's sums above their lowest 64 bits.
type High = [i64; 5];

/// The part of all rows' sums above their lowest 64 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Highs(Vec<(u32, High)>);

impl Highs {
    /// Collects those of sums, row by row.
    pub(crate) fn of(rows: impl Iterator<Item = [i128; 5]>) -> Self {
        let mut highs = Highs::default();
        let mut last = High::default();
        for (row, sums) in rows.enumerate() {
            let high = sums.map(|sum| ((sum - i128::from(sum as i64)) >> 64) as i64);
            if high != last {
                highs.0.push((row as u32, high));
                last = high;
            }
        }
        highs
    }

    /// Encodes them; `None` if the columns have everything.
    pub(crate) fn encode(&self) -> Option<String> {
        let mut text = String::new();
        for (row, [a, b, c, d, e]) in &self.0 {
            write!(text, "{row} {a} {b} {c} {d} {e};").expect("a string takes all");
        }
        Some(text).filter(|text| !text.is_empty())
    }

    /// Decodes the output of [`Highs::encode`]; `None` if the text is anything else.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let mut highs = Highs::default();
        for record in text.strip_suffix(';')?.split(';') {
            let (row, numbers) = record.split_once(' ')?;
            let row: u32 = row.parse().ok()?;
            let mut high = High::default();
            let mut numbers = numbers.split(' ');
            for place in &mut high {
                *place = numbers.next()?.parse().ok()?;
            }
            let is_next = highs.0.last().is_none_or(|(last, _)| *last < row);
            if numbers.next().is_some() || !is_next {
                return None;
            }
            highs.0.push((row, high));
        }
        Some(highs)
    }

    /// Returns the full sum, given the value of its column for a listing.
    pub fn whole(&self, listing: ListingOrdinal, column: SumColumn, low: i64) -> i128 {
        let behind = self.0.partition_point(|(first, _)| *first <= listing.0);
        let high = behind.checked_sub(1).map_or(0, |at| self.0[at].1[column as usize]);
        (i128::from(high) << 64).saturating_add(low.into())
    }
}

/// Decodes those of an open file of listings, once.
pub(super) fn highs_of(open: &OpenFile) -> Result<Arc<Highs>> {
    if let Some(highs) = open.highs.get() {
        return Ok(highs.clone());
    }
    let pairs = open.metadata.metadata().file_metadata().key_value_metadata();
    let pair = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == HIGH_KEY));
    let highs = match pair {
        None => Highs::default(),
        Some(pair) => pair.value.as_deref().and_then(Highs::decode).ok_or_else(|| {
            Error::corrupt(&open.path, "its sums above 64 bits cannot be decoded")
        })?,
    };
    Ok(open.highs.get_or_init(|| Arc::new(highs)).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_any_size_come_back() {
        let large = i128::from(i64::MAX);
        let sums = [0, 1, large, large + 1, large * 2 + 1, large * 2 + 2, large * 900, -1, 5];
        let rows: Vec<[i128; 5]> = sums.iter().map(|&sum| [sum, 0, -sum, 7, sum]).collect();
        let highs = Highs::of(rows.iter().copied());
        let read = Highs::decode(&highs.encode().unwrap()).unwrap();
        assert_eq!(read, highs);
        for (at, row) in rows.iter().enumerate() {
            for (column, sum) in [SumColumn::BytesBefore, SumColumn::DirBytesBefore]
                .into_iter()
                .chain([SumColumn::BlocksBefore, SumColumn::EntryBytes, SumColumn::EntryBlocks])
                .zip(row)
            {
                assert_eq!(
                    read.whole(ListingOrdinal::of_row(at), column, *sum as i64),
                    *sum,
                    "{at} {column:?}"
                );
            }
        }
    }

    #[test]
    fn sums_that_64_bits_hold_need_nothing() {
        let rows = [[0; 5], [i128::from(i64::MAX); 5], [-1; 5]];
        assert_eq!(Highs::of(rows.into_iter()).encode(), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", ";", "1 2;", "1 1 1 1 1 1", "1 1 1 1 1 1 1;", "x 1 1 1 1 1;"] {
            assert_eq!(Highs::decode(text), None, "{text}");
        }
        assert_eq!(Highs::decode("2 1 1 1 1 1;2 0 0 0 0 0;"), None);
    }
}
