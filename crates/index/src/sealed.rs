//! Sealed records: the entries of gates, and everything behind them, for users who know a path.
//!
//! A class may have files of sealed records of each source, few however often that changes. A
//! record has the hash of an absolute path, by which it is found, and content that is sealed with
//! that path as the secret (see `names`). The path of an entry of a gate leads to its attributes.
//! The path of a passage (a child of a gate that leads on) leads to all that lies behind it for
//! this class. A few rows are in the record itself; many are in shards of their own, whose names
//! only the record contains.
//!
//! Users who may list all gates on the way find equal rows in ordinary shards.
//!
//! A file has three parts. The first is the number of records (u64, lowest byte first). The second
//! has an item for each record, in the order of the hashes: its hash (16 bytes), its salt (16
//! bytes) and where its content ends (u64, from the beginning of the file). The third is the
//! contents. A content is Postcard with zeros behind it, so that its length reveals little. Files
//! never change: the manifest lists dead records, and several files become one without any path.
//!
//! # Why rows behind gates are stored twice
//!
//! Rows behind a gate are in ordinary shards of the class that may list every gate on the way: root
//! at least. So root's queries are as fast as without gates. The rows are also sealed for users who
//! know the path. Nested and wide gates cost few files. With a directory for each child, 8,000
//! homes took 56,000 files, and paths of nested gates grew beyond `PATH_MAX`.
//!
//! - Sealed files belong to a generation, as all files do. A way that has been closed cannot be
//!   followed in a newer one.
//! - The key of the hashes is public. The path is the secret.
//! - Shards behind a passage lie in a directory that nobody but root can list, so their random
//!   names are secret.
//! - An update appends a small file, and the manifest lists the dead records of older files. In a
//!   test with 2,000 homes, this took a tenth of the time of copying the files.
//! - Each record has its own salt, so files are joined without their paths. They are joined by
//!   size, so a record is rarely written again.
//! - BLAKE3 is the pure Rust version, which needs no C compiler.

use crate::block_file::BlockFile;
use crate::builder::{Builder, SHARD_BYTES_MAX, SHARD_ROWS_MAX};
use crate::disk::{BLOCK_BYTES, Disk, DiskFile};
use crate::error::{Error, Result};
use crate::manifest::AttributesRecord;
use crate::names::{self, Names, Secret};
use crate::packed::PackedList;
use crate::parquet_file::plain;
use crate::sealed_rows::SealedRows;
use crate::shard::{ClassDir, Shard, missing};
use crate::shard_record::ShardRecord;
use crate::source_id::SourceId;
use bytes::Bytes;
use canopy_model::{AbsolutePath, Attributes, ClassId, Device, SourcePath, SourcePathBuf};
use parquet::file::reader::ChunkReader;
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Rows behind a passage from which on they are a shard of their own: more would take long to
/// unpack, fewer would make many small files.
const SHARD_ROWS_MIN: usize = 4096;

/// Bytes of memory that they take from which on they are one, too.
const SHARD_BYTES_MIN: usize = 4 << 20;

/// Rows behind a passage from which on what comes goes into another shard: one that changes is
/// written anew.
const SHARD_ROWS_FULL: usize = 64 * 1024;

/// Bytes in front of the first hash.
const HEAD_BYTES: usize = 8;

/// Bytes of a hash, a salt and the end of a content.
const ENTRY_BYTES: usize = 40;

/// Record of a file of sealed records in a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SealedFile {
    /// `GENERATION-NUMBER`: how its name begins.
    pub(crate) id: String,
    /// The source it belongs to.
    pub(crate) source: SourceId,
    /// How many records it has, dead ones among them.
    pub(crate) records: u64,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// CRC-32 of each block of 64 KiB.
    pub(crate) sums: PackedList<u32>,
    /// Hashes, in order, whose records no longer count.
    pub(crate) dead: PackedList<[u8; 16]>,
    /// How many records these are.
    pub(crate) dead_records: u64,
    /// When the first of them was found dead, in nanoseconds since 1970.
    pub(crate) dead_since_ns: Option<i64>,
}

impl SealedFile {
    /// Returns whether its numbers and names are such as a writer makes.
    pub(crate) fn is_sound(&self) -> bool {
        names::is_id(&self.id) && self.dead_records < self.records
    }
}

/// An entry in a gate, as shown to users who know its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SealedRecord {
    /// The entry itself, in the class of those who may look it up.
    pub inode: Option<SealedInode>,
    /// Values of extended attributes that this class may see, keys and values escaped.
    pub xattrs: Vec<(String, String)>,
}

/// An entry of a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SealedInode {
    /// Device that holds it.
    pub dev: Device,
    /// Its attributes.
    #[serde(with = "AttributesRecord")]
    pub attributes: Attributes,
    /// Where it points if it is a symbolic link, escaped.
    pub target: String,
    /// Names of its extended attributes, joined as in the column `xattrs`.
    pub xattrs: String,
}

/// Rows behind a passage that one class of knowers and one class of listers both see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SealedPart {
    /// Stands for the class of listers, whose shards have the same rows (`Names::class_hash`).
    pub(crate) listers: [u8; 16],
    /// The source it belongs to.
    pub(crate) source: SourceId,
    /// The root of that source, absolute and escaped.
    pub(crate) root: String,
    /// Gates whose listing is in this part: whoever reads it knows the names of further passages.
    pub(crate) gates: Vec<SourcePathBuf>,
    /// Shards in the directory `gated` of the class.
    pub(crate) shards: Vec<ShardRecord>,
    /// The rows, where they are few.
    pub(crate) rows: SealedRows,
}

/// Collects what a class of knowers finds by name.
#[derive(Clone, Default)]
pub(crate) struct SealedBuilder {
    /// By absolute path.
    entries: Vec<(String, SealedRecord)>,
    /// By passage and class of listers.
    behind: FxHashMap<(Arc<str>, ClassId), Behind>,
    bytes: usize,
    full: bool,
}

/// Contents behind a passage.
#[derive(Clone, Default)]
struct Behind {
    gates: Vec<SourcePathBuf>,
    /// Shards already written there.
    shards: Vec<ShardRecord>,
    /// Rows of full shards, each still to be written.
    full: Vec<Builder>,
    /// Other rows.
    builder: Builder,
}

impl Behind {
    fn builders(&self) -> impl Iterator<Item = &Builder> {
        self.full.iter().chain([&self.builder])
    }
}

impl SealedBuilder {
    /// Adds an entry of a gate.
    pub(crate) fn push_entry(&mut self, path: String, record: SealedRecord) {
        let inode =
            record.inode.as_ref().map_or(0, |inode| inode.target.len() + inode.xattrs.len());
        let values: usize =
            record.xattrs.iter().map(|(key, value)| key.len() + value.len() + 48).sum();
        self.bytes += path.capacity() + inode + values + size_of::<(String, SealedRecord)>();
        self.entries.push((path, record));
    }

    /// Adds to what lies behind a passage.
    pub(crate) fn push_behind(
        &mut self,
        passage: &Arc<str>,
        listers: ClassId,
        push: impl FnOnce(&mut Builder),
    ) {
        let (behind, bytes) = self.behind(passage, listers);
        if behind.builder.rows() >= SHARD_ROWS_FULL {
            behind.full.push(std::mem::take(&mut behind.builder));
        }
        let before = behind.builder.bytes();
        push(&mut behind.builder);
        let (added, full) = (behind.builder.bytes() - before, behind.builder.is_full());
        self.bytes += bytes + added;
        self.full |= full;
    }

    /// Adds a shard that is there to what lies behind a passage.
    pub(crate) fn push_shard(&mut self, passage: &Arc<str>, listers: ClassId, shard: ShardRecord) {
        let (behind, bytes) = self.behind(passage, listers);
        behind.shards.push(shard);
        self.bytes += bytes + size_of::<ShardRecord>();
    }

    /// Notes that a directory whose listing lies behind a passage is a gate.
    pub(crate) fn push_gate(&mut self, passage: &Arc<str>, listers: ClassId, path: SourcePath<'_>) {
        let (behind, bytes) = self.behind(passage, listers);
        // A huge directory comes in several parts.
        if behind.gates.last().is_none_or(|last| last.as_path() != path) {
            behind.gates.push(path.to_buf());
            self.bytes += path.as_str().len();
        }
        self.bytes += bytes;
    }

    /// Returns what lies behind a passage so far, and how many bytes it takes to begin with.
    fn behind(&mut self, passage: &Arc<str>, listers: ClassId) -> (&mut Behind, usize) {
        let mut bytes = 0;
        let behind = self.behind.entry((passage.clone(), listers)).or_insert_with(|| {
            bytes = passage.len() + size_of::<((Arc<str>, ClassId), Behind)>();
            Behind::default()
        });
        (behind, bytes)
    }

    /// Returns whether what both have can be in one.
    pub(crate) fn has_room_for(&self, other: &SealedBuilder) -> bool {
        self.rows() + other.rows() < SHARD_ROWS_MAX && self.bytes + other.bytes < SHARD_BYTES_MAX
    }

    /// Adds all that another one has, for which there must be room.
    pub(crate) fn append(&mut self, other: SealedBuilder) {
        self.entries.extend(other.entries);
        for ((passage, listers), behind) in other.behind {
            let (own, _) = self.behind(&passage, listers);
            own.gates.extend(behind.gates);
            own.gates.dedup();
            own.shards.extend(behind.shards);
            own.full.extend(behind.full);
            let mut added = behind.builder;
            if own.builder.rows() + added.rows() > SHARD_ROWS_FULL {
                // Make the larger one a shard.
                if own.builder.rows() > added.rows() {
                    std::mem::swap(&mut own.builder, &mut added);
                }
                own.full.push(added);
            } else {
                own.builder.append(added);
            }
        }
        self.bytes += other.bytes;
    }

    /// Returns the bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether no further listing of ordinary size may be added.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Returns whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.behind.is_empty()
    }

    /// Returns how many rows there are.
    pub(crate) fn rows(&self) -> usize {
        let builders = self.behind.values().flat_map(Behind::builders);
        self.entries.len() + builders.map(Builder::rows).sum::<usize>()
    }
}

/// Where a file of sealed records goes.
pub(crate) struct SealedTarget<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) directory: &'a Path,
    pub(crate) id: String,
    pub(crate) source: SourceId,
    /// Root of the source.
    pub(crate) root: &'a str,
    pub(crate) names: &'a Names,
    /// Bytes that no other file of the index has.
    pub(crate) salt: [u8; 16],
    /// Returns what stands for a class of listers.
    pub(crate) class_hash: &'a dyn Fn(ClassId) -> [u8; 16],
    /// Writes a shard whose name nobody can guess, in the directory `gated` of the class.
    pub(crate) write_shard: &'a dyn Fn(Builder) -> Result<ShardRecord>,
}

/// Writes a file of sealed records, and the shards that only they name. Durable only after a sync.
pub(crate) fn write(
    target: &SealedTarget<'_>,
    builder: SealedBuilder,
) -> Result<(SealedFile, Vec<ShardRecord>)> {
    let path = target.directory.join(names::sealed_file(&target.id));
    let mut shards = Vec::new();
    let mut parts: BTreeMap<Arc<str>, Vec<SealedPart>> = BTreeMap::new();
    for ((passage, listers), behind) in builder.behind {
        let Behind { gates, shards: mut large, full, builder } = behind;
        let is_large = builder.rows() >= SHARD_ROWS_MIN || builder.bytes() >= SHARD_BYTES_MIN;
        let (rest, small) = match is_large {
            true => (Some(builder), Builder::default()),
            false => (None, builder),
        };
        for builder in full.into_iter().chain(rest) {
            let shard = (target.write_shard)(builder)?;
            shards.push(shard.clone());
            large.push(shard);
        }
        let rows = SealedRows::pack(small, SealedPart::below_root(&passage, target.root));
        let (listers, root) = ((target.class_hash)(listers), target.root.to_owned());
        let source = target.source;
        let part = SealedPart { listers, source, root, gates, shards: large, rows };
        parts.entry(passage).or_default().push(part);
    }
    let mut entries: BTreeMap<String, Vec<SealedRecord>> = BTreeMap::new();
    for (path, record) in builder.entries {
        entries.entry(path).or_default().push(record);
    }
    let seal = |secret: Secret, path: &str, content: postcard::Result<Vec<u8>>| {
        let mut content = content.map_err(Error::encode(&target.directory.join(&target.id)))?;
        content.resize(padded(content.len()), 0);
        let path = AbsolutePath::new(path);
        target.names.seal(secret, path, &target.salt, &mut content);
        Ok((target.names.hash(secret, path), content))
    };
    let encoded = |record: &Vec<SealedRecord>| postcard::to_extend(record, Vec::new());
    let mut records = Vec::with_capacity(entries.len() + parts.len());
    for (path, record) in &entries {
        records.push(seal(Secret::Entry, path, encoded(record))?);
    }
    for (passage, parts) in &parts {
        let content = postcard::to_extend(parts, Vec::new());
        records.push(seal(Secret::Passage, passage, content)?);
    }
    // In the order of the hashes, which says nothing of the names.
    records.sort_unstable();
    let entry = |(hash, content): &([u8; 16], Vec<u8>)| {
        let (hash, salt, content_bytes) = (*hash, target.salt, content.len() as u64);
        NewEntry { hash, salt, content_bytes }
    };
    let entries = records.iter().map(entry);
    let head = head(entries);
    let mut file = target.disk.create(&path, 0o644)?;
    file.write_all(&head)
        .and_then(|()| records.iter().try_for_each(|(_, content)| file.write_all(content)))
        .map_err(Error::io("write", &path))?;
    let id = target.id.clone();
    let file = finish(file, id, target.source, records.len(), target.directory)?;
    Ok((file, shards))
}

/// Writes a file with all records of others that count, each sealed as it is there; none if there is
/// no such record. They are of one class and source. Durable only after a sync.
pub(crate) fn join(disk: &Disk, id: String, files: &[Sealed]) -> Result<Option<SealedFile>> {
    let (directory, source) = (&files[0].directory, files[0].record.source);
    let mut records = Vec::new();
    for file in files {
        let dead = file.dead()?;
        let own = file.records()?.into_iter();
        let live = own.filter(|record| dead.binary_search(&record.hash).is_err());
        records.extend(live.map(|record| (record, file)));
    }
    if records.is_empty() {
        return Ok(None);
    }
    records.sort_by_key(|(record, _)| record.hash);
    let bytes = |content: &Range<u64>| content.end - content.start;
    let entries = records.iter().map(|(it, _)| {
        let content_bytes = bytes(&it.content);
        NewEntry { hash: it.hash, salt: it.salt, content_bytes }
    });
    let path = directory.join(names::sealed_file(&id));
    let mut file = disk.create(&path, 0o644)?;
    file.write_all(&head(entries)).map_err(Error::io("write", &path))?;
    for (Record { content, .. }, from) in &records {
        let content = from.read(content.start, bytes(content) as usize)?;
        file.write_all(&content).map_err(Error::io("write", &path))?;
    }
    finish(file, id, source, records.len(), directory).map(Some)
}

impl SealedPart {
    /// Returns the path in a source of a passage, by its absolute path: that of the root where the
    /// passage is above it.
    pub(crate) fn below_root<'a>(passage: &'a str, root: &str) -> SourcePath<'a> {
        let below = passage.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
        SourcePath::escaped(below.trim_start_matches('/'))
    }
}

/// Returns the length that a content of `bytes` is given: one of eight lengths between two powers
/// of two, and a multiple of 32.
pub(crate) fn padded(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / 16).max(32);
    bytes.next_multiple_of(step)
}

/// A file of sealed records of the generation that was opened. It is opened when it is first
/// needed.
pub(crate) struct Sealed {
    record: SealedFile,
    directory: PathBuf,
    open: OnceLock<BlockFile>,
}

impl Sealed {
    pub(crate) fn new(record: SealedFile, directory: PathBuf) -> Self {
        Sealed { record, directory, open: OnceLock::new() }
    }

    /// Returns what the manifest says of it.
    pub(crate) fn record(&self) -> &SealedFile {
        &self.record
    }

    /// Returns the source it belongs to.
    pub(crate) fn source(&self) -> SourceId {
        self.record.source
    }

    /// Returns the shards that a part in it names.
    pub(crate) fn open_shards(&self, part: &SealedPart) -> Vec<Shard> {
        let gated = self.directory.join(names::GATED);
        let place = Arc::new(ClassDir::new(|| gated));
        let shards = part.shards.iter();
        shards.map(|shard| Shard::new(shard.clone(), place.clone())).collect()
    }

    /// Fails if it is damaged or missing.
    pub(crate) fn check(&self) -> Result<()> {
        (0..self.record.bytes).step_by(BLOCK_BYTES).try_for_each(|start| {
            let bytes = (self.record.bytes - start).min(BLOCK_BYTES as u64);
            self.read(start, bytes as usize).map(drop)
        })
    }

    /// Returns how its name begins.
    pub(crate) fn id(&self) -> &str {
        &self.record.id
    }

    /// Returns the directory that it is in.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self) -> PathBuf {
        self.directory.join(names::sealed_file(&self.record.id))
    }

    /// Returns what is sealed for those who know the absolute path of an entry of a gate.
    pub(crate) fn entry(&self, names: &Names, path: AbsolutePath<'_>) -> Result<Vec<SealedRecord>> {
        self.unseal(names, Secret::Entry, path)
    }

    /// Returns what lies behind a passage.
    pub(crate) fn behind(
        &self,
        names: &Names,
        passage: AbsolutePath<'_>,
    ) -> Result<Vec<SealedPart>> {
        self.unseal(names, Secret::Passage, passage)
    }

    /// Returns what is wrong with this file.
    pub(crate) fn corrupt(&self, detail: impl std::fmt::Display) -> Error {
        Error::corrupt(&self.path(), detail)
    }

    /// Returns all records, in the order of their hashes.
    pub(crate) fn records(&self) -> Result<Vec<Record>> {
        let Table { count, first_content } = self.table()?;
        let table = self.read(HEAD_BYTES as u64, first_content as usize - HEAD_BYTES)?;
        let mut records = Vec::with_capacity(count as usize);
        let mut start = first_content;
        for entry in table.chunks_exact(ENTRY_BYTES) {
            let TableEntry { hash, salt, end } = entry_of(entry);
            if start > end || end > self.record.bytes {
                return Err(self.corrupt("its records are out of order"));
            }
            records.push(Record { hash, salt, content: start..end });
            start = end;
        }
        Ok(records)
    }

    /// Returns how many records with this hash count.
    pub(crate) fn count_of(&self, hash: &[u8; 16]) -> Result<u64> {
        self.places_of(hash).map(|places| places.end - places.start)
    }

    /// Returns the hashes of all records that count.
    pub(crate) fn live_hashes(&self) -> Result<impl Iterator<Item = [u8; 16]>> {
        let dead = self.dead()?;
        let all = self.records()?.into_iter().map(|record| record.hash);
        Ok(all.filter(|hash| dead.binary_search(hash).is_err()))
    }

    /// Returns the hashes whose records no longer count, in order.
    pub(crate) fn dead(&self) -> Result<&[[u8; 16]]> {
        self.record.dead.get().map_err(|error| self.corrupt(error))
    }

    /// Returns what the manifest says of it if the records with these hashes, which count, no longer
    /// do; nothing if then none does.
    pub(crate) fn without(
        &self,
        gone: impl IntoIterator<Item = [u8; 16]>,
        now_ns: i64,
    ) -> Result<Option<SealedFile>> {
        let mut record = self.record.clone();
        let mut dead = self.dead()?.to_vec();
        for hash in gone {
            record.dead_records += self.count_of(&hash)?;
            dead.push(hash);
        }
        dead.sort_unstable();
        record.dead = PackedList::new(dead).map_err(|error| self.corrupt(error))?;
        record.dead_since_ns = record.dead_since_ns.or(Some(now_ns));
        Ok(Some(record).filter(|record| record.dead_records < record.records))
    }

    /// Opens the records that are sealed with a path.
    fn unseal<T: DeserializeOwned>(
        &self,
        names: &Names,
        secret: Secret,
        path: AbsolutePath<'_>,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        for at in self.places_of(&names.hash(secret, path))? {
            let start = match at {
                0 => self.table()?.first_content,
                _ => self.entry_at(at - 1)?.end,
            };
            let TableEntry { salt, end, .. } = self.entry_at(at)?;
            let length = end.checked_sub(start).filter(|&length| length <= self.record.bytes);
            let length = length.ok_or_else(|| self.corrupt("its records are out of order"))?;
            let mut content = self.read(start, length as usize)?.to_vec();
            names.seal(secret, path, &salt, &mut content);
            all.extend(decode(&content).map_err(|error| self.corrupt(error))?);
        }
        Ok(all)
    }

    /// Returns where the records with a hash are that count.
    fn places_of(&self, hash: &[u8; 16]) -> Result<Range<u64>> {
        let (first, last) = self.range_of(hash)?;
        let is_dead = first < last && self.dead()?.binary_search(hash).is_ok();
        Ok(if is_dead { first..first } else { first..last })
    }

    /// Returns the place of the first record with a hash, and that behind the last one.
    fn range_of(&self, hash: &[u8; 16]) -> Result<(u64, u64)> {
        let count = self.table()?.count;
        let (mut first, mut last) = (0, count);
        while first < last {
            let middle = first.midpoint(last);
            match self.entry_at(middle)?.hash < *hash {
                true => first = middle + 1,
                false => last = middle,
            }
        }
        let mut end = first;
        while end < count && self.entry_at(end)?.hash == *hash {
            end += 1;
        }
        Ok((first, end))
    }

    fn read(&self, start: u64, length: usize) -> Result<Bytes> {
        let read = self.open()?.get_bytes(start, length);
        read.map_err(|error| self.corrupt(plain(&error.to_string())))
    }

    fn table(&self) -> Result<Table> {
        let head = self.read(0, HEAD_BYTES)?;
        let count = u64::from_le_bytes(head[..].try_into().expect("it has eight bytes"));
        let first_content = count
            .checked_mul(ENTRY_BYTES as u64)
            .and_then(|bytes| bytes.checked_add(HEAD_BYTES as u64))
            .filter(|&first| first <= self.record.bytes)
            .ok_or_else(|| self.corrupt("it has more records than bytes"))?;
        if count != self.record.records {
            return Err(self.corrupt("it has another number of records than its manifest says"));
        }
        Ok(Table { count, first_content })
    }

    /// Returns the entry of a record in the table.
    fn entry_at(&self, at: u64) -> Result<TableEntry> {
        let entry = self.read(HEAD_BYTES as u64 + at * ENTRY_BYTES as u64, ENTRY_BYTES)?;
        Ok(entry_of(&entry))
    }

    fn open(&self) -> Result<&BlockFile> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let sums = self.record.sums.get().map_err(|error| self.corrupt(error))?;
        let file = BlockFile::open(&self.path(), self.record.bytes, sums.to_vec());
        let file = file.map_err(missing)?;
        Ok(self.open.get_or_init(|| file))
    }
}

/// A record of a file.
pub(crate) struct Record {
    pub(crate) hash: [u8; 16],
    salt: [u8; 16],
    /// Where its content is, in bytes.
    content: Range<u64>,
}

/// The part of a file before the contents.
struct Table {
    count: u64,
    /// Where the first content begins.
    first_content: u64,
}

/// An entry of the table.
struct TableEntry {
    hash: [u8; 16],
    salt: [u8; 16],
    /// Offset of the end of the content in the file.
    end: u64,
}

/// An entry for a new table.
struct NewEntry {
    hash: [u8; 16],
    salt: [u8; 16],
    content_bytes: u64,
}

/// Decodes an entry of a table.
fn entry_of(entry: &[u8]) -> TableEntry {
    let sixteen = |at: usize| entry[at..at + 16].try_into().expect("it has sixteen bytes");
    let end = entry[32..ENTRY_BYTES].try_into().expect("it has eight bytes");
    TableEntry { hash: sixteen(0), salt: sixteen(16), end: u64::from_le_bytes(end) }
}

/// Encodes the table, which lies in front of the contents.
fn head(records: impl ExactSizeIterator<Item = NewEntry>) -> Vec<u8> {
    let mut head = (records.len() as u64).to_le_bytes().to_vec();
    let mut end = (HEAD_BYTES + ENTRY_BYTES * records.len()) as u64;
    for NewEntry { hash, salt, content_bytes } in records {
        end += content_bytes;
        head.extend(hash);
        head.extend(salt);
        head.extend(end.to_le_bytes());
    }
    head
}

fn finish(
    file: DiskFile,
    id: String,
    source: SourceId,
    records: usize,
    directory: &Path,
) -> Result<SealedFile> {
    let (bytes, sums) = file.finish(false)?;
    let sums = PackedList::new(sums).map_err(Error::encode(directory))?;
    let (records, dead) = (records as u64, PackedList::default());
    let (dead_records, dead_since_ns) = (0, None);
    Ok(SealedFile { id, source, records, bytes, sums, dead, dead_records, dead_since_ns })
}

/// Decodes an unsealed content: what it says, then zeros.
pub(crate) fn decode<T: DeserializeOwned>(content: &[u8]) -> postcard::Result<Vec<T>> {
    Ok(postcard::take_from_bytes(content)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_tell_little_and_cost_little() {
        let lengths: std::collections::BTreeSet<usize> = (1..1 << 20).map(padded).collect();
        assert!(lengths.len() < 16 * 16, "{} lengths", lengths.len());
        assert!((1..1 << 20).all(|bytes| padded(bytes) >= bytes));
        assert!((1024..1 << 20).all(|bytes| padded(bytes) <= bytes + bytes / 7));
    }

    #[test]
    fn a_passage_is_below_the_root_or_the_root_itself() {
        let below = |passage, root| SealedPart::below_root(passage, root).as_str();
        assert_eq!(below("/srv/a/b", "/srv"), "a/b");
        assert_eq!(below("/srv/a", "/srv/a"), "");
        assert_eq!(below("/srv", "/srv/a/b"), "");
        assert_eq!(below("/srv", "/"), "srv");
    }
}
