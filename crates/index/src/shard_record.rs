//! Record of a shard in a manifest.

use crate::listing_ordinal::ListingOrdinal;
use crate::names;
use crate::packed::PackedList;
use crate::schema::FileKind;
use crate::source_id::SourceId;
use canopy_model::{Device, SourcePath, Totals};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(remote = "Totals")]
pub(crate) struct TotalsRecord {
    entries: i64,
    dirs: i64,
    bytes: i128,
    dir_bytes: i128,
    blocks: i128,
}

/// One shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// `GENERATION-NUMBER`: how the names of its files begin.
    pub id: String,
    /// The source it belongs to.
    pub source: SourceId,
    /// Its files, by the place of their kind in [`FileKind::ALL`]; `None` for one without rows.
    pub files: [Option<FileRecord>; FileKind::COUNT],
    /// Sums over all its entries.
    #[serde(with = "TotalsRecord")]
    pub totals: Totals,
    /// Whether a directory's listing comes in several parts.
    pub parts: bool,
    /// The deepest directory that is or is above all of its listings.
    pub prefix: String,
    /// CRC-32 of each block of 64 KiB of its files, in the order of `files`.
    pub(crate) sums: PackedList<Vec<u32>>,
    /// The rows of `hardlinks`, where they are few: reading them here costs less than a file of
    /// their own.
    pub(crate) links: PackedList<HardLink>,
    /// Surplus that entries with several links add to `totals`, as far as all of their names are in
    /// this shard.
    #[serde(with = "TotalsRecord")]
    pub(crate) repeats: Totals,
    /// Those of the rows of `hardlinks` whose entries have further names elsewhere; `None` where
    /// they are too many.
    pub(crate) open_links: Option<PackedList<HardLink>>,
    /// Consecutive ranges of listings that together are all of the shard.
    pub(crate) covers: PackedList<Cover>,
    /// Ranges of listings that no longer count, one behind the other, each within one cover.
    pub(crate) dead: PackedList<DeadListings>,
    /// Ranges of rows of `xattrs` that no longer count, one behind the other.
    pub(crate) dead_values: PackedList<(u32, u32)>,
    /// The deepest directory that is or is above all those of whose entries `xattrs` has values, if
    /// there is that file.
    pub(crate) values_prefix: Option<String>,
    /// When the first of its rows was found dead, in nanoseconds since 1970.
    pub(crate) dead_since_ns: Option<i64>,
}

/// Listings that something newer has replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeadListings {
    /// The first one.
    pub(crate) first: ListingOrdinal,
    /// The one past the last one.
    pub(crate) end: ListingOrdinal,
    /// Sums over the entries of all listings before.
    #[serde(with = "TotalsRecord")]
    pub(crate) before: Totals,
    /// Sums over their own entries.
    #[serde(with = "TotalsRecord")]
    pub(crate) totals: Totals,
}

impl DeadListings {
    /// Returns the sums over the entries of all listings up to their end.
    pub(crate) fn up_to_end(&self) -> Totals {
        let mut totals = self.before;
        totals += self.totals;
        totals
    }
}

/// One sighting of an entry with several links.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "HardLinkArray", into = "HardLinkArray")]
pub struct HardLink {
    /// Its listing.
    pub listing: ListingOrdinal,
    /// Device that holds it.
    pub dev: Device,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size_bytes: i64,
    /// Space taken, in units of 512 bytes.
    pub blocks: i64,
}

impl HardLink {
    /// Returns the device and inode number.
    pub fn id(&self) -> (Device, u64) {
        (self.dev, self.ino)
    }

    /// Returns what it adds to totals.
    pub fn once(&self) -> Totals {
        Totals::of_entry(self.size_bytes, self.blocks)
    }
}

/// A hard link as it is kept: listing, dev, ino, size, blocks.
type HardLinkArray = (ListingOrdinal, Device, u64, i64, i64);

impl From<HardLinkArray> for HardLink {
    fn from(array: HardLinkArray) -> Self {
        let (listing, dev, ino, size_bytes, blocks) = array;
        HardLink { listing, dev, ino, size_bytes, blocks }
    }
}

impl From<HardLink> for HardLinkArray {
    fn from(link: HardLink) -> Self {
        (link.listing, link.dev, link.ino, link.size_bytes, link.blocks)
    }
}

/// One file of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileRecord {
    /// How many rows it has.
    pub rows: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Most rows of a file: those of a full shard and of one more part of a directory, whose values of
/// extended attributes are short.
const ROWS_MAX: u64 = 1 << 24;

impl FileRecord {
    /// Returns whether a writer makes files with so many rows.
    pub(crate) fn is_sound(&self) -> bool {
        (1..=ROWS_MAX).contains(&self.rows)
    }
}

/// A range of a shard's listings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cover {
    /// The deepest directory that is or is above all of them.
    pub prefix: String,
    /// The first one.
    pub first: ListingOrdinal,
    /// The one past the last one.
    pub end: ListingOrdinal,
    /// Sums over their entries.
    #[serde(with = "TotalsRecord")]
    pub totals: Totals,
}

/// How listings lie to a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// All of them are in the subtree.
    Inside,
    /// None is.
    Outside,
    /// Some may be.
    Partly,
}

impl Overlap {
    /// Returns how listings that are all at or below `prefix` lie to the subtree of `directory`.
    pub(crate) fn of(prefix: &str, directory: SourcePath<'_>) -> Self {
        let prefix = SourcePath::escaped(prefix);
        if prefix.is_below(directory) {
            Overlap::Inside
        } else if directory.is_below(prefix) {
            Overlap::Partly
        } else {
            Overlap::Outside
        }
    }
}

impl ShardRecord {
    /// Returns the record of one of its files.
    pub fn file(&self, kind: FileKind) -> Option<FileRecord> {
        self.files[kind as usize]
    }

    /// Returns how many rows one of its files has.
    pub fn rows(&self, kind: FileKind) -> u64 {
        self.file(kind).map_or(0, |file| file.rows)
    }

    /// Returns the size of all its files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().flatten().map(|file| file.bytes).sum()
    }

    /// Returns whether its numbers are such as a writer makes, and its files in the directory of
    /// its class.
    pub(crate) fn is_sound(&self) -> bool {
        names::is_id(&self.id) && self.files.iter().flatten().all(FileRecord::is_sound)
    }

    /// Returns the name of one of its files.
    pub(crate) fn file_name(&self, kind: FileKind) -> String {
        names::shard_file(&self.id, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_tell_how_listings_lie() {
        let overlap = |prefix, directory| Overlap::of(prefix, SourcePath::escaped(directory));
        assert_eq!(overlap("a/b", "a"), Overlap::Inside);
        assert_eq!(overlap("a", "a"), Overlap::Inside);
        assert_eq!(overlap("a", "a/b"), Overlap::Partly);
        assert_eq!(overlap("", "a/b"), Overlap::Partly);
        assert_eq!(overlap("a-b", "a"), Overlap::Outside);
    }
}
