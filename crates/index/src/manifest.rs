//! The documents of an index: `CURRENT`, the catalog and the manifests.
//!
//! Each is a line `canopy KIND FORMAT CRC32` (the CRC-32 of all that follows in hexadecimal) and
//! the content. The content of `CURRENT` is one line of JSON, that of the others, which every
//! command reads many of, Postcard: the values without their names, in the order of the structures
//! below. They are validated in this order: first word, kind, format, checksum, content.
//! `CURRENT` is replaced by rename; the others are written under a new name and synced before
//! `CURRENT` names their generation, so a crash tears none that is ever read.

use crate::bundles::BundleRecord;
use crate::class_lists::{ListRecord, ListedClass};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::hidden::{HiddenSource, SealedSource};
use crate::names::{ClassPlace, Key};
use crate::own_tables::{TableFileRecord, TableRecord};
use crate::packed::PackedList;
use crate::pages::PageRecord;
use crate::plain_file;
use crate::retention::{KeptGeneration, Leaving, Retention};
use crate::schema::FORMAT;
use crate::sealed::{SealedFile, padded};
use crate::shard_record::ShardRecord;
use crate::source_id::SourceId;
use canopy_model::{Attributes, Device, Generation, Grant, GrantId, Principal, SourcePath};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The committed state: `CURRENT`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Current {
    pub(crate) generation: Generation,
    /// When it was published, in nanoseconds since 1970.
    pub(crate) published_ns: i64,
    /// Older generations that are kept, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kept: Vec<KeptGeneration>,
    /// Publications that files have left with that are still there, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) leaving: Vec<Leaving>,
    /// Older generations that stay with the next publication.
    #[serde(default, skip_serializing_if = "Retention::is_none")]
    pub(crate) retention: Retention,
}

impl Current {
    /// Returns all generations that can be read, the newest first.
    pub(crate) fn all(&self) -> Vec<KeptGeneration> {
        let own = KeptGeneration { generation: self.generation, published_ns: self.published_ns };
        std::iter::once(own).chain(self.kept.iter().copied()).collect()
    }
}

/// Facts about a generation that everybody may know: `catalog-GENERATION.bin`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Catalog {
    /// The key of the index.
    pub(crate) key: Key,
    /// Classes that anybody may try to read, that of everybody first if it holds anything.
    pub(crate) classes: Vec<ListedClass>,
    /// Users and groups who have a list of classes, in ascending order.
    pub(crate) lists: Vec<ListRecord>,
    /// Tables that were added to the index, by name.
    pub(crate) tables: Vec<TableRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GrantRecord {
    users: BTreeMap<u32, bool>,
    groups: BTreeMap<u32, bool>,
    other: bool,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClassRecord {
    /// Ids of the grants, sorted.
    pub(crate) grants: Vec<u32>,
    pub(crate) place: ClassPlace,
    /// Generation of the manifest that counts.
    pub(crate) manifest: Generation,
    /// The uid whose limits it is charged to.
    pub(crate) charged: Option<u32>,
}

/// Contents of one class: `manifest-GENERATION.bin` in the class directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Sources whose root a reader of this class may know of.
    pub(crate) sources: Vec<SourceRecord>,
    pub(crate) shards: ShardSet,
    /// Files of sealed records, which are found by name.
    pub(crate) sealed: Vec<SealedFile>,
    /// Sources visible to users who know the passages to their roots.
    pub(crate) hidden: Vec<SealedSource>,
    /// Rows of derived tables, by name of the table.
    pub(crate) tables: Vec<TableFileRecord>,
}

/// Shards of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShardSet {
    #[serde(with = "shared")]
    pub(crate) pages: Vec<Arc<PageRecord>>,
    /// Those that are in no page: none in a generation.
    pub(crate) loose: Vec<ShardRecord>,
}

/// Where the manifests of all classes are, and what is known of these: `manifests-GENERATION.bin`,
/// for root alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AllManifests {
    /// The key of the index.
    pub(crate) key: Key,
    /// The grants that classes name, by id; for the writer.
    pub(crate) grants: PackedList<(u32, GrantRecord)>,
    /// The number that the next grant gets.
    pub(crate) next_grant: u32,
    /// How many classes, and names in their grants, the directories of one owner may ask for, if that
    /// was ever said.
    pub(crate) limits: Option<(u64, u64)>,
    /// All sources, in no order.
    pub(crate) sources: Vec<SourceRecord>,
    pub(crate) bundles: Vec<BundleRecord>,
    /// The lists of classes, as in the catalog; for the writer.
    pub(crate) lists: PackedList<ListRecord>,
    /// Tables that were added to the index, by name.
    pub(crate) tables: Vec<TableRecord>,
    /// Queries of the derived ones, by name.
    pub(crate) queries: BTreeMap<String, String>,
    /// How sources were scanned, by number.
    pub(crate) scans: BTreeMap<SourceId, ScanRecord>,
}

/// How a source was scanned, so that it can be again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRecord {
    /// Whether the scan stayed on the file system of the root.
    pub one_file_system: bool,
    /// Patterns of what was left out, besides what is configured.
    pub excludes: Vec<String>,
    /// Whether what the configuration leaves out was scanned, too.
    pub no_prune: bool,
    /// Whether extended attributes were left out.
    pub no_xattrs: bool,
    /// How its listings are divided into shards.
    pub layout: Layout,
    /// Configuration of the scan; none if some listings of the source followed another one, or lack
    /// some of what they should have.
    pub configured: Option<Configured>,
}

/// How the listings of a source are divided into shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// By who may read them, and by path.
    #[default]
    Access,
    /// For root alone, or in a user's own index for that user: first by the directory at this level
    /// below the root, then by the directory itself, by hash, into so many parts in all. This is how
    /// Brindexer divides an index, for comparison.
    Leveled {
        /// Components of the path of a directory at the level.
        level: u32,
        /// Parts, at least 1.
        shards: u32,
    },
}

impl Layout {
    /// Returns the part that the listing of a directory belongs to.
    pub(crate) fn part_of(self, path: SourcePath<'_>) -> u32 {
        let Layout::Leveled { level, shards } = self else { return 0 };
        let path = path.as_str();
        let end = path.match_indices('/').nth((level as usize).max(1) - 1);
        let subtree = &path[..end.map_or(path.len(), |(at, _)| at)];
        let groups = shards.isqrt().max(1);
        let in_group = shards.div_ceil(groups);
        let (of_subtree, of_directory) =
            (crc32fast::hash(subtree.as_bytes()), crc32fast::hash(path.as_bytes()));
        (of_subtree % groups * in_group + of_directory % in_group) % shards.max(1)
    }
}

/// Settings of scans in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configured {
    /// Patterns of entries that are left out.
    pub left_out: Vec<String>,
    /// Types of file systems whose modes and ACLs are trusted.
    pub trusted: Vec<String>,
}

// Not flattened: serde would buffer every value of it, and this is read by each command of root's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClassManifest {
    pub(crate) class: ClassRecord,
    pub(crate) manifest: Manifest,
    /// Shards that only sealed records name; for the writer.
    pub(crate) gated: ShardSet,
    /// Sources that are sealed in the manifest of the class; for the writer.
    pub(crate) hidden: Vec<HiddenSource>,
}

/// One indexed tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// Number within the index, never given out twice.
    pub id: SourceId,
    /// The name that the administrator gave it, or its root.
    pub name: String,
    /// Absolute path of its root, escaped.
    pub root: String,
    /// Device of the root.
    pub dev: Device,
    /// When the scan of all of it began, in nanoseconds since 1970.
    pub scanned_ns: i64,
    /// When the last scan of it or of a part of it began, in nanoseconds since 1970.
    pub updated_ns: i64,
    /// Attributes of the root directory.
    #[serde(with = "AttributesRecord")]
    pub attributes: Attributes,
    /// Names of its extended attributes but `trusted.*`, joined as in the column `xattrs`.
    pub xattrs: String,
}

impl SourceRecord {
    /// Returns whether devices of entries are those of file systems. Inputs of imports contain
    /// none, so an import makes one up for each source, with a number that Linux does not assign.
    pub fn has_devices(&self) -> bool {
        self.dev < MADE_UP_DEVICE
    }
}

/// The lowest number of a device that was made up: Linux has device numbers of 32 bits.
const MADE_UP_DEVICE: Device = Device(1 << 40);

#[derive(Serialize, Deserialize)]
#[serde(remote = "Attributes")]
pub(crate) struct AttributesRecord {
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

/// Lists of what several own, as lists of what they own.
mod shared {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        list: &[Arc<T>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(Arc::as_ref))
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Arc<T>>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
    }
}

impl ShardSet {
    /// Returns whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.loose.is_empty()
    }

    /// Leaves out the shards of some sources; returns whether there were any.
    pub(crate) fn retain_sources(&mut self, stays: impl Fn(SourceId) -> bool) -> bool {
        let before = (self.pages.len(), self.loose.len());
        self.pages.retain(|page| stays(page.extent.source));
        self.loose.retain(|shard| stays(shard.source));
        before != (self.pages.len(), self.loose.len())
    }

    fn is_sound(&self) -> bool {
        self.loose.iter().all(ShardRecord::is_sound)
    }
}

impl GrantRecord {
    pub(crate) fn new(grant: &Grant) -> Self {
        GrantRecord {
            users: grant.users().clone(),
            groups: grant.groups().clone(),
            other: grant.other(),
        }
    }

    pub(crate) fn grant(&self) -> Grant {
        let copy = |map: &BTreeMap<u32, bool>| map.clone().into_iter();
        Grant::from_parts(copy(&self.users), copy(&self.groups), self.other)
    }
}

impl ClassRecord {
    pub(crate) fn grants(&self) -> impl Iterator<Item = GrantId> {
        self.grants.iter().copied().map(GrantId)
    }
}

/// The kinds of documents.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// The word in the first line.
    const KIND: &'static str;
    /// Whether the content is JSON, else Postcard.
    const JSON: bool = false;
    /// Whether lengths are rounded up, so that they reveal little of the content.
    const PADDED: bool = false;
    /// Most bytes of a file of this kind; others are refused before they are read.
    const BYTES_MAX: u64 = 1 << 30;

    /// Returns whether its numbers and names are such as a writer makes.
    fn is_sound(&self) -> bool {
        true
    }
}

impl Document for Current {
    const KIND: &'static str = "current";
    const JSON: bool = true;
    // Each of the generations takes some 60 bytes.
    const BYTES_MAX: u64 = 1 << 18;

    fn is_sound(&self) -> bool {
        self.all().is_sorted_by(|a, b| a.generation > b.generation)
    }
}

impl Document for Catalog {
    const KIND: &'static str = "catalog";

    fn is_sound(&self) -> bool {
        self.classes.iter().all(|class| class.place.is_sound())
    }
}

impl Document for Manifest {
    const KIND: &'static str = "manifest";

    fn is_sound(&self) -> bool {
        self.shards.is_sound()
            && self.sealed.iter().all(SealedFile::is_sound)
            && self.tables.iter().all(TableFileRecord::is_sound)
    }
}

impl Document for AllManifests {
    const KIND: &'static str = "manifests";
}

impl ClassManifest {
    /// Returns whether its numbers and names are such as a writer makes.
    pub(crate) fn is_sound(&self) -> bool {
        self.class.place.is_sound() && self.manifest.is_sound() && self.gated.is_sound()
    }
}

/// Writes a document with these permission bits. Not durable before a sync.
pub(crate) fn write<D: Document>(
    disk: &Disk,
    path: &Path,
    document: &D,
    mode: u32,
    sync: bool,
) -> Result<()> {
    let text = encode(path, document)?;
    let mut file = disk.create(path, mode)?;
    file.write_all(&text).map_err(Error::io("write", path))?;
    file.finish(sync).map(drop)
}

/// Writes a document that a user or a group may read, and nobody else but root. Not durable before
/// a sync.
pub(crate) fn write_for<D: Document>(
    disk: &Disk,
    path: &Path,
    document: &D,
    reader: Principal,
) -> Result<()> {
    let text = encode(path, document)?;
    let mut file = disk.create(path, 0o600)?;
    file.write_all(&text).map_err(Error::io("write", path))?;
    file.share_with(reader)?;
    file.finish(false).map(drop)
}

/// Encodes a document with its first line; the path is where it goes, for messages.
pub(crate) fn encode<D: Document>(path: &Path, document: &D) -> Result<Vec<u8>> {
    let mut content = encode_content(document).map_err(Error::encode(path))?;
    if D::PADDED {
        content.resize(padded(content.len()), 0);
    }
    let sum = crc32fast::hash(&content);
    Ok([format!("canopy {} {FORMAT} {sum:08x}\n", D::KIND).as_bytes(), &content].concat())
}

/// Reads a document.
pub(crate) fn read<D: Document>(path: &Path) -> Result<D> {
    let text = plain_file::read(path, D::BYTES_MAX)?;
    decode(&text).map_err(|fault| match fault {
        Fault::Version(found) => other_version(path, found),
        Fault::Corrupt(detail) => Error::corrupt(path, detail),
    })
}

/// Returns the error of a file of another format.
pub(crate) fn other_version(path: &Path, found: u32) -> Error {
    Error::Version { path: path.to_owned(), found, expected: FORMAT }
}

/// Reasons why bytes are not a document of a kind.
#[derive(Debug)]
pub(crate) enum Fault {
    Version(u32),
    Corrupt(String),
}

/// Decodes a document with its first line.
pub(crate) fn decode<D: Document>(text: &[u8]) -> std::result::Result<D, Fault> {
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
    let content = &text[line_end + 1..];
    if u32::from_str_radix(sum, 16) != Ok(crc32fast::hash(content)) {
        return Err(corrupt("its checksum does not match".to_owned()));
    }
    let document: D = decode_content(content).map_err(|error| corrupt(error.to_string()))?;
    match document.is_sound() {
        true => Ok(document),
        false => Err(corrupt("it has numbers or names that no writer makes".to_owned())),
    }
}

/// Decodes what follows the first line of a document.
pub(crate) fn decode_content<D: Document>(
    content: &[u8],
) -> std::result::Result<D, Box<dyn std::error::Error>> {
    Ok(match D::JSON {
        true => serde_json::from_slice(content)?,
        false => postcard::from_bytes(content)?,
    })
}

/// Encodes what follows the first line of a document.
pub(crate) fn encode_content<D: Document>(
    document: &D,
) -> std::result::Result<Vec<u8>, Box<dyn std::error::Error>> {
    Ok(match D::JSON {
        true => [&serde_json::to_vec(document)?[..], b"\n"].concat(),
        false => postcard::to_extend(document, Vec::new())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_or_missing_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("CURRENT");
        write(
            &Disk::default(),
            &path,
            &Current {
                generation: Generation(7),
                published_ns: 5,
                kept: vec![KeptGeneration { generation: Generation(5), published_ns: 3 }],
                leaving: vec![Leaving { generation: Generation(6), published_ns: 4, bytes: 99 }],
                retention: "2,3d".parse().unwrap(),
            },
            0o644,
            false,
        )
        .unwrap();
        assert_eq!(read::<Current>(&path).unwrap().generation, Generation(7));
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
}
