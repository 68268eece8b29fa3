//! The end of an SSTable: what it is, and where its parts are. See the module above for the bytes.

use super::wire::{Decoded, Decoder};
use crate::error::{Error, Result};
use crate::key::{Key, KeyRange};
use crate::record::Layout;
use crate::storage::Storage;
use serde::{Deserialize, Serialize};

pub(crate) const MAGIC: [u8; 8] = *b"CanopSST";

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;

pub(super) const FOOTER_BYTES: usize = 56;

/// Layout, counts and key range of an SSTable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties {
    /// Columns with which its values begin.
    pub layout: Layout,
    /// Records of all kinds.
    pub records: u64,
    /// Records that are deletes.
    pub deletes: u64,
    /// Records that are merges.
    pub merges: u64,
    /// Range deletes, which are not records.
    pub range_deletes: u64,
    /// The keys of the first and the last record.
    pub ends: Option<(Key, Key)>,
    /// The least range that has all records and range deletes.
    pub span: KeyRange,
}

/// Facts about an SSTable that its manifest stores to open it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SstableInfo {
    /// The size of the file.
    pub size_bytes: u64,
    /// The size of the part at its end that is read to open it.
    pub tail_bytes: u64,
    /// Records of all kinds.
    pub records: u64,
    /// Records that are deletes.
    pub deletes: u64,
    /// Records that are merges.
    pub merges: u64,
    /// Range deletes, which are not records.
    pub range_deletes: u64,
    /// The least range that has all records and range deletes; empty if there are none.
    pub span: KeyRange,
}

impl SstableInfo {
    pub(super) fn of(properties: &Properties, size_bytes: u64, tail_bytes: u64) -> Self {
        let Properties { records, deletes, merges, range_deletes, .. } = *properties;
        let span = properties.span.clone();
        SstableInfo { size_bytes, tail_bytes, records, deletes, merges, range_deletes, span }
    }

    /// Reads this from a file without a manifest, by two reads: of footer and tail.
    ///
    /// # Errors
    ///
    /// Fails with `Corrupt` if the file has no footer, with `NotFound` if there is no file, and as
    /// storage does.
    pub fn read(storage: &dyn Storage, name: &str, size_bytes: u64) -> Result<Self> {
        let corrupt = |what| Error::corrupt(name, what);
        let start = size_bytes.checked_sub(FOOTER_BYTES as u64);
        let start = start.ok_or_else(|| corrupt("is too short for an SSTable"))?;
        let bytes = storage.read_range(name, start..size_bytes)?;
        check_version(&bytes, name)?;
        let tail_bytes = tail_bytes(&bytes, size_bytes).map_err(corrupt)?;
        let tail = storage.read_range(name, size_bytes - tail_bytes..size_bytes)?;
        let sections = Sections::read(&tail, size_bytes).map_err(corrupt)?;
        Ok(Self::of(&properties(sections.properties).map_err(corrupt)?, size_bytes, tail_bytes))
    }
}

/// The sections of a tail.
pub(super) struct Sections<'a> {
    pub data_bytes: u64,
    pub range_deletes: &'a [u8],
    pub index: &'a [u8],
    pub filter: &'a [u8],
    pub properties: &'a [u8],
}

impl<'a> Sections<'a> {
    /// Adds the tail with these sections to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let sections = [self.range_deletes, self.index, self.filter, self.properties];
        sections.iter().for_each(|section| out.extend_from_slice(section));
        out.extend_from_slice(&self.data_bytes.to_le_bytes());
        for section in sections {
            out.extend_from_slice(&(section.len() as u64).to_le_bytes());
        }
        let crc = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&MAGIC);
    }

    /// Returns the sections of a tail, whose checksum is right, of a file of `size_bytes`.
    pub fn read(tail: &'a [u8], size_bytes: u64) -> Decoded<Self> {
        let footer = tail.last_chunk::<FOOTER_BYTES>().ok_or("is too short for an SSTable")?;
        if tail_bytes(footer, size_bytes)? != tail.len() as u64 {
            return Err("has a tail of another size than the manifest says");
        }
        let mut input = Decoder::new(footer);
        let mut number = || input.array().map(u64::from_le_bytes);
        let (data_bytes, sizes) = (number()?, [number()?, number()?, number()?, number()?]);
        let crc = u32::from_le_bytes(input.array()?);
        // The checksum, the version and the magic come after what is checked.
        let checked = tail.split_at_checked(tail.len() - 16).map_or(tail, |(checked, _)| checked);
        if crc32fast::hash(checked) != crc {
            return Err("has a tail with a wrong checksum");
        }
        let mut input = Decoder::new(tail);
        let mut section = |size: u64| input.take(usize::try_from(size).unwrap_or(usize::MAX));
        let [range_deletes, index, filter, properties] = sizes;
        let (range_deletes, index) = (section(range_deletes)?, section(index)?);
        let (filter, properties) = (section(filter)?, section(properties)?);
        Ok(Sections { data_bytes, range_deletes, index, filter, properties })
    }
}

/// Returns an error unless `tail` is the end of an SSTable of the version that is known here.
pub(super) fn check_version(tail: &[u8], name: &str) -> Result<()> {
    let end = tail.split_last_chunk().filter(|_| tail.len() >= FOOTER_BYTES);
    let (rest, magic) = end.ok_or_else(|| Error::corrupt(name, "is too short for an SSTable"))?;
    if *magic != MAGIC {
        return Err(Error::corrupt(name, "is not an SSTable"));
    }
    match rest.last_chunk().map(|version| u32::from_le_bytes(*version)) {
        Some(VERSION) => Ok(()),
        version => {
            let version = version.unwrap_or(0);
            let what = format!("has version {version} of the format; only {VERSION} is known");
            Err(Error::corrupt(name, what))
        }
    }
}

/// Returns the size of the tail whose footer this is.
fn tail_bytes(footer: &[u8], size_bytes: u64) -> Decoded<u64> {
    let mut input = Decoder::new(footer);
    let mut sizes = [0; 5];
    for size in &mut sizes {
        *size = u64::from_le_bytes(input.array()?);
    }
    let [data_bytes, sections @ ..] = sizes;
    let sum = |sum: u64, size: &u64| sum.checked_add(*size);
    let tail_bytes = sections.iter().try_fold(FOOTER_BYTES as u64, sum);
    let tail_bytes = tail_bytes.filter(|tail| tail.checked_add(data_bytes) == Some(size_bytes));
    tail_bytes.ok_or("has parts that are not as long together as the file")
}

/// Gives a file the version that is known here and a right checksum of its tail. Returns where the
/// tail begins, unless its sizes are wrong.
pub(super) fn seal(bytes: &mut [u8]) -> Option<usize> {
    let size_bytes = bytes.len();
    let footer = bytes.last_chunk::<FOOTER_BYTES>()?;
    let tail_bytes = usize::try_from(tail_bytes(footer, size_bytes as u64).ok()?).ok()?;
    let (tail, checked) = (size_bytes - tail_bytes, size_bytes - 16);
    let crc = crc32fast::hash(&bytes[tail..checked]).to_le_bytes();
    let end = [&crc[..], &VERSION.to_le_bytes(), &MAGIC].concat();
    bytes[checked..].copy_from_slice(&end);
    Some(tail)
}

/// Returns the properties that `bytes` are.
pub(super) fn properties(bytes: &[u8]) -> Decoded<Properties> {
    let properties: Properties = whole(bytes)?;
    if !properties.layout.is_sound() {
        return Err("has a layout that cannot be");
    }
    if properties.ends.is_some() != (properties.records > 0) {
        return Err("has a wrong first key");
    }
    Ok(properties)
}

/// Returns the value that `bytes`, all of them, are.
pub(super) fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Decoded<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err("has a tail that cannot be read"),
    }
}
