//! The text files of an index: `CURRENT`, the catalog and the manifests.
//!
//! Each is two lines: `canopy KIND FORMAT CRC32` (the CRC-32 of the second line in hexadecimal), and the
//! content as JSON. They are validated in this order: first word, kind, format, checksum, JSON. `CURRENT` is replaced by
//! rename; the others are written under a new name and synced before `CURRENT` names their generation, so a crash
//! tears none that is ever read.

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::schema::{FORMAT, FileKind};
use canopy_model::{Attributes, Grant, Totals, is_below};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The committed state: `CURRENT`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Current {
    pub(crate) generation: u64,
    /// When it was published, in nanoseconds since 1970.
    pub(crate) published_ns: i64,
}

/// What everybody may know of a generation: `catalog-GENERATION.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Catalog {
    /// By grant id.
    pub(crate) grants: Vec<GrantRecord>,
    /// Classes that hold anything.
    pub(crate) classes: Vec<ClassRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GrantRecord {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    users: BTreeMap<u32, bool>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    groups: BTreeMap<u32, bool>,
    other: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClassRecord {
    /// Ids of the grants, sorted; the class directory is the chain of them.
    pub(crate) grants: Vec<u32>,
    /// Generation of the manifest that counts.
    pub(crate) manifest: u64,
}

/// What one class holds: `manifest-GENERATION.json` in the class directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Sources whose root a reader of this class may know of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<SourceRecord>,
    pub(crate) shards: Vec<ShardRecord>,
}

/// The manifests of all classes: `manifests-GENERATION.json`, for root alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AllManifests {
    pub(crate) grants: Vec<GrantRecord>,
    pub(crate) classes: Vec<ClassManifest>,
}

// Not flattened: serde would buffer every value of it, and this is read by each command of root's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClassManifest {
    pub(crate) class: ClassRecord,
    pub(crate) manifest: Manifest,
}

/// One indexed tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// Number within the index, never given out twice.
    pub id: u32,
    /// The name that the administrator gave it, or its root.
    pub name: String,
    /// Absolute path of its root, escaped.
    pub root: String,
    /// Device of the root.
    pub dev: u64,
    /// When the scan began, in nanoseconds since 1970.
    pub scanned_ns: i64,
    /// Attributes of the root directory.
    #[serde(with = "AttributesRecord")]
    pub attributes: Attributes,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Attributes")]
struct AttributesRecord {
    ino: u64,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    size_bytes: i64,
    blksize_bytes: u32,
    blocks: i64,
    atime_ns: i64,
    mtime_ns: i64,
    ctime_ns: i64,
    btime_ns: i64,
    rdev: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Totals")]
struct TotalsRecord {
    entries: i64,
    dirs: i64,
    bytes: i64,
    dir_bytes: i64,
    blocks: i64,
}

/// One shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// `GENERATION-NUMBER`: how the names of its files begin.
    pub id: String,
    /// The source it belongs to.
    pub source: u32,
    /// Its files, by the place of their kind in [`FileKind::ALL`]; `None` for one without rows.
    pub files: [Option<FileRecord>; 5],
    /// Sums over all its entries.
    #[serde(with = "TotalsRecord")]
    pub totals: Totals,
    /// Whether a directory's listing comes in several parts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parts: bool,
    /// The rows of `hardlinks`, where they are few: reading them here costs less than a file of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<HardLink>,
    /// Consecutive ranges of listings that together are all of the shard.
    pub covers: Vec<Cover>,
}

/// One sighting of an entry with several links. Kept as an array: listing, dev, ino, size, blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u32, u64, u64, i64, i64)", into = "(u32, u64, u64, i64, i64)")]
pub struct HardLink {
    /// Ordinal of its listing.
    pub listing: u32,
    /// Device that holds it.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size_bytes: i64,
    /// Space taken, in units of 512 bytes.
    pub blocks: i64,
}

impl From<(u32, u64, u64, i64, i64)> for HardLink {
    fn from((listing, dev, ino, size_bytes, blocks): (u32, u64, u64, i64, i64)) -> Self {
        HardLink { listing, dev, ino, size_bytes, blocks }
    }
}

impl From<HardLink> for (u32, u64, u64, i64, i64) {
    fn from(link: HardLink) -> Self {
        (link.listing, link.dev, link.ino, link.size_bytes, link.blocks)
    }
}

/// One file of a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileRecord {
    /// How many rows it has.
    pub rows: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// CRC-32 of each block of 64 KiB.
    pub sums: Vec<u32>,
}

/// A range of a shard's listings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cover {
    /// The deepest directory that is or is above all of them.
    pub prefix: String,
    /// Ordinal of the first one.
    pub first: u32,
    /// Ordinal past the last one.
    pub end: u32,
    /// Sums over their entries.
    #[serde(with = "TotalsRecord")]
    pub totals: Totals,
}

/// How a cover lies to a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// All of its listings are in the subtree.
    Inside,
    /// None is.
    Outside,
    /// Some may be.
    Partly,
}

impl Cover {
    /// How the cover lies to the subtree of `directory`.
    pub(crate) fn overlap(&self, directory: &str) -> Overlap {
        if is_below(&self.prefix, directory) {
            Overlap::Inside
        } else if is_below(directory, &self.prefix) {
            Overlap::Partly
        } else {
            Overlap::Outside
        }
    }
}

impl ShardRecord {
    /// The record of one of its files.
    pub fn file(&self, kind: FileKind) -> Option<&FileRecord> {
        self.files[kind as usize].as_ref()
    }

    /// How many rows one of its files has.
    pub fn rows(&self, kind: FileKind) -> u64 {
        self.file(kind).map_or(0, |file| file.rows)
    }

    /// Size of all its files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().flatten().map(|file| file.bytes).sum()
    }

    /// Name of one of its files.
    pub(crate) fn file_name(&self, kind: FileKind) -> String {
        format!("{}-{}.parquet", self.id, kind.name())
    }
}

impl GrantRecord {
    pub(crate) fn new(grant: &Grant) -> Self {
        GrantRecord { users: grant.users().clone(), groups: grant.groups().clone(), other: grant.other() }
    }

    pub(crate) fn grant(&self) -> Grant {
        let copy = |map: &BTreeMap<u32, bool>| map.clone().into_iter();
        Grant::from_parts(copy(&self.users), copy(&self.groups), self.other)
    }
}

pub(crate) fn current_path(index: &Path) -> PathBuf {
    index.join("CURRENT")
}

pub(crate) fn catalog_path(index: &Path, generation: u64) -> PathBuf {
    index.join(format!("catalog-{generation}.json"))
}

pub(crate) fn all_manifests_path(index: &Path, generation: u64) -> PathBuf {
    index.join(format!("manifests-{generation}.json"))
}

/// Directory of a class: the chain of its grants.
pub(crate) fn class_path(index: &Path, grants: &[u32]) -> PathBuf {
    let mut path = index.join("classes");
    path.extend(grants.iter().map(|id| format!("g{id}")));
    path
}

pub(crate) fn manifest_path(class: &Path, generation: u64) -> PathBuf {
    class.join(format!("manifest-{generation}.json"))
}

/// The kinds of text files.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// The word in the first line.
    const KIND: &'static str;
}

impl Document for Current {
    const KIND: &'static str = "current";
}

impl Document for Catalog {
    const KIND: &'static str = "catalog";
}

impl Document for Manifest {
    const KIND: &'static str = "manifest";
}

impl Document for AllManifests {
    const KIND: &'static str = "manifests";
}

/// Writes a document with these permission bits. Not durable before a sync.
pub(crate) fn write<D: Document>(
    disk: &Disk,
    path: &Path,
    document: &D,
    mode: u32,
    sync: bool,
) -> Result<()> {
    let json = serde_json::to_string(document)
        .map_err(|error| Error::io("encode", path)(std::io::Error::other(error)))?;
    let mut file = disk.create(path, mode)?;
    let sum = crc32fast::hash(json.as_bytes());
    write!(file, "canopy {} {FORMAT} {sum:08x}\n{json}\n", D::KIND).map_err(Error::io("write", path))?;
    file.finish(sync).map(drop)
}

/// Reads a document.
pub(crate) fn read<D: Document>(path: &Path) -> Result<D> {
    let text = std::fs::read(path).map_err(Error::io("read", path))?;
    decode(&text).map_err(|fault| match fault {
        Fault::Version(found) => Error::Version { path: path.to_owned(), found, expected: FORMAT },
        Fault::Corrupt(detail) => Error::corrupt(path, detail),
    })
}

enum Fault {
    Version(u32),
    Corrupt(String),
}

fn decode<D: Document>(text: &[u8]) -> std::result::Result<D, Fault> {
    let corrupt = |detail: String| Fault::Corrupt(detail);
    let line_end = text
        .iter()
        .take(80)
        .position(|&byte| byte == b'\n')
        .ok_or_else(|| corrupt("its first line is missing".to_owned()))?;
    let header = String::from_utf8_lossy(&text[..line_end]);
    let [word, kind, format, sum] = header.split(' ').collect::<Vec<_>>()[..] else {
        return Err(corrupt(format!("its first line is '{}'", header.escape_debug())));
    };
    if word != "canopy" || kind != D::KIND {
        return Err(corrupt(format!("it is '{word} {kind}', not 'canopy {}'", D::KIND)));
    }
    match format.parse() {
        Ok(FORMAT) => {}
        Ok(found) => return Err(Fault::Version(found)),
        Err(_) => return Err(corrupt(format!("its format is '{format}'"))),
    }
    let json = text[line_end + 1..].strip_suffix(b"\n").unwrap_or_default();
    if u32::from_str_radix(sum, 16) != Ok(crc32fast::hash(json)) {
        return Err(corrupt("its checksum does not match".to_owned()));
    }
    serde_json::from_slice(json).map_err(|error| corrupt(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_or_missing_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("CURRENT");
        write(&Disk::default(), &path, &Current { generation: 7, published_ns: 5 }, 0o644, false).unwrap();
        assert_eq!(read::<Current>(&path).unwrap().generation, 7);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            for damaged in [&flipped[..], &whole[..at]] {
                std::fs::write(&path, damaged).unwrap();
                let error = read::<Current>(&path).unwrap_err();
                assert!(error.to_string().contains("CURRENT"), "{error}");
            }
        }
    }

    #[test]
    fn covers_tell_how_they_lie() {
        let cover =
            |prefix: &str| Cover { prefix: prefix.to_owned(), first: 0, end: 1, totals: Totals::default() };
        assert_eq!(cover("a/b").overlap("a"), Overlap::Inside);
        assert_eq!(cover("a").overlap("a"), Overlap::Inside);
        assert_eq!(cover("a").overlap("a/b"), Overlap::Partly);
        assert_eq!(cover("").overlap("a/b"), Overlap::Partly);
        assert_eq!(cover("a-b").overlap("a"), Overlap::Outside);
    }
}
