//! The one writer of an index: takes listings in and publishes generations.
//!
//! 1. Take the lock, read the current generation, remove what a crashed writer left.
//! 2. For each source, threads push listings into [`ShardWriter`]s, which keep a builder a class
//!    and write the largest as a shard when their share of the memory budget is used up.
//! 3. Write the manifests of the classes that changed, the catalog and the manifest of all classes.
//! 4. Sync the file system; then replace `CURRENT`. Before this, nothing that a reader sees has
//!    changed.
//! 5. Remove what neither this generation nor the one before refers to. The one before stays for
//!    readers that opened it.

use crate::builder::{Builder, Value, shown_names};
use crate::class_dirs::ClassDirs;
use crate::disk::Disk;
use crate::encoder::{ShardTarget, write_shard};
use crate::error::{Error, Result};
use crate::manifest::{
    self, AllManifests, Catalog, ClassManifest, ClassRecord, Current, GrantRecord, Manifest,
    SourceRecord,
};
use crate::names::{self, Key, Names};
use crate::own_tables::TableRecord;
use crate::packed::PackedList;
use crate::safety;
use crate::schema::FileKind;
use crate::sealed::{self, SealedBuilder, SealedFile, SealedTarget};
use crate::shard_record::ShardRecord;
use canopy_model::{
    Approach, Audience, ClassId, ClassTable, GrantId, OwnerLimits, escape, parallel,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod shard_writer;
mod tables;

pub use shard_writer::ShardWriter;

/// How to write.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Memory that all builders together may take, in bytes.
    pub memory_bytes: usize,
    /// How many threads write.
    pub threads: usize,
    /// What the directories of one owner may ask for.
    pub limits: OwnerLimits,
    /// The disk, with faults for tests.
    pub disk: Disk,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            memory_bytes: 256 << 20,
            threads: 1,
            limits: OwnerLimits::default(),
            disk: Disk::default(),
        }
    }
}

/// A tree about to be indexed.
#[derive(Clone, Debug)]
pub struct NewSource {
    /// Its name; by default its root.
    pub name: Option<String>,
    /// Absolute path of its root, escaped.
    pub root: String,
    /// Device of the root.
    pub dev: u64,
    /// When the scan begins, in nanoseconds since 1970.
    pub scanned_ns: i64,
    /// Attributes of the root directory.
    pub attributes: canopy_model::Attributes,
    /// Who may look up the root.
    pub approach: Approach,
    /// Its extended attributes: names, and values with those who may see them.
    pub xattrs: Vec<(String, Option<(Vec<u8>, Audience)>)>,
}

/// What a publication made.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// The new generation.
    pub generation: u64,
    /// Entries of the new sources, directories among them.
    pub entries: u64,
    /// Shards of the new sources.
    pub shards: u64,
    /// Bytes of these shards.
    pub bytes: u64,
    /// Classes that hold anything, of all sources.
    pub classes: u64,
    /// Grants that the file system of the index cannot express: what they guard is for root alone.
    pub closed_grants: usize,
    /// How often each owner's directories and files asked for more than [`OwnerLimits`]: what they
    /// guard is for that owner and root alone.
    pub beyond_limits: BTreeMap<u32, u64>,
    /// Classes that have fewer members than the kernel would let pass, since their grants are too
    /// many.
    pub narrowed: u64,
}

/// What a class holds.
#[derive(Default)]
struct Held {
    /// Generation in which the manifest was written last.
    written: u64,
    manifest: Manifest,
    /// Shards that only sealed records name.
    gated: Vec<ShardRecord>,
}

/// What was written for a class.
enum Written {
    Shard(Box<ShardRecord>),
    Sealed(SealedFile, Vec<ShardRecord>),
}

/// What a source has before its first listing.
struct Beginning {
    source: SourceRecord,
    approach: Approach,
    /// Extended attributes of the root, with those who may see them.
    values: Vec<(Audience, Value)>,
}

/// Rows from which on what a thread has left of a class becomes a shard of its own.
const JOINED_ROWS_MAX: usize = 64 * 1024;

/// Writes an index; holds its lock as long as it lives.
pub struct Writer {
    path: PathBuf,
    options: WriterOptions,
    unprivileged: bool,
    /// Generation that is being written.
    generation: u64,
    table: ClassTable,
    names: Names,
    /// Makes what is sealed differ from all that was sealed before.
    salt: Key,
    dirs: ClassDirs,
    /// What the classes hold.
    classes: BTreeMap<ClassId, Held>,
    changed: HashSet<ClassId>,
    /// What was written and is not yet among `classes`.
    shards: Mutex<Vec<(ClassId, Written)>>,
    next_shard: AtomicU64,
    next_source: u32,
    /// Roots of the sources that were begun, by number.
    roots: BTreeMap<u32, String>,
    /// Sources that wait for a shard writer, and their roots' extended attributes.
    beginnings: Mutex<Vec<Beginning>>,
    /// Tables that were added, by name.
    tables: Vec<TableRecord>,
    /// Queries of the derived ones.
    queries: BTreeMap<String, String>,
    /// What was taken into the manifests so far.
    published: Published,
    _lock: File,
}

impl Writer {
    /// Opens an index for writing, made if there is none. Fails if another writer is at work, or if
    /// anybody else could change the directory.
    pub fn open(path: &Path, options: WriterOptions) -> Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let mode = if uid == 0 { 0o755 } else { 0o700 };
        options.disk.directories(path, mode)?;
        let path = safety::check(path, uid)?;
        let lock = lock(&path)?;
        let current = match manifest::read::<Current>(&names::current(&path)) {
            Ok(current) => Some(current.generation),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let state: AllManifests = match current {
            Some(generation) => manifest::read(&names::all_manifests(&path, generation))?,
            None => AllManifests { key: random_key(&path)?, ..AllManifests::default() },
        };
        let all_path = names::all_manifests(&path, current.unwrap_or(0));
        let names = Names::new(&path, state.key);
        let corrupt = |error| Error::corrupt(&all_path, error);
        let grants = state.grants.get().map_err(corrupt)?;
        let known: HashSet<u32> = grants.iter().map(|(id, _)| *id).collect();
        let table = ClassTable::with_grants(
            grants.iter().map(|(id, grant)| (GrantId(*id), grant.grant())),
            state.next_grant,
            options.limits,
        );
        let mut classes = BTreeMap::new();
        let mut next_source = 0;
        for ClassManifest { class, manifest, gated } in state.classes {
            if class.grants.iter().any(|id| !known.contains(id)) {
                return Err(Error::corrupt(&all_path, "it names a grant that it does not have"));
            }
            let ids = manifest.sources.iter().map(|source| source.id + 1);
            next_source = ids.max().unwrap_or(0).max(next_source);
            let id = table.class_of(&class.grants().collect::<Vec<_>>());
            let gated = gated.get().map_err(corrupt)?.to_vec();
            classes.insert(id, Held { written: class.manifest, manifest, gated });
        }
        let writer = Writer {
            dirs: ClassDirs::new(options.disk.clone(), names.clone(), uid != 0),
            salt: random_key(&path)?,
            names,
            roots: BTreeMap::new(),
            beginnings: Mutex::default(),
            tables: state.tables,
            queries: state.queries,
            published: Published::default(),
            unprivileged: uid != 0,
            generation: current.unwrap_or(0) + 1,
            path,
            options,
            table,
            classes,
            changed: HashSet::new(),
            shards: Mutex::default(),
            next_shard: AtomicU64::new(0),
            next_source,
            _lock: lock,
        };
        writer.remove_unreferenced(current.unwrap_or(0))?;
        Ok(writer)
    }

    /// Returns the classes of the index, for computing those of listings.
    pub fn classes(&self) -> &ClassTable {
        &self.table
    }

    /// Returns the real path of the index.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a source, and returns its number. It takes the place of the source with the same
    /// root.
    pub fn add_source(&mut self, new: NewSource) -> Result<u32> {
        let name = new.name.unwrap_or_else(|| new.root.clone());
        let sources = self.classes.values().flat_map(|held| &held.manifest.sources);
        if let Some(other) =
            sources.clone().find(|source| source.name == name && source.root != new.root)
        {
            return Err(Error::NameTaken { name, root: other.root.clone() });
        }
        let replaced: Vec<u32> =
            sources.filter(|source| source.root == new.root).map(|source| source.id).collect();
        let of_replaced = |id: u32| replaced.contains(&id);
        for (&class, held) in &mut self.classes {
            let Held { manifest, gated, .. } = held;
            let count = |manifest: &Manifest| {
                (manifest.sources.len(), manifest.shards.len(), manifest.sealed.len())
            };
            let before = count(manifest);
            manifest.sources.retain(|source| !of_replaced(source.id));
            manifest.shards.retain(|shard| !of_replaced(shard.source));
            manifest.sealed.retain(|file| !of_replaced(file.source));
            gated.retain(|shard| !of_replaced(shard.source));
            if before != count(manifest) {
                self.changed.insert(class);
            }
        }
        self.clear_derived();
        let id = self.next_source;
        self.next_source += 1;
        let class = self.effective(new.approach.audience.listers);
        self.changed.insert(class);
        self.dirs.ensure(&self.table, class)?;
        self.roots.insert(id, new.root.clone());
        let keys = new.xattrs.iter().map(|(key, _)| key.as_str());
        let xattrs = shown_names(keys);
        let value = |(key, value): (String, Option<(Vec<u8>, Audience)>)| {
            let (value, audience) = value?;
            let value = Value {
                path: "".into(),
                name: String::new(),
                key,
                value: escape(&value).into_owned(),
                attributes: new.attributes,
            };
            Some((audience, value))
        };
        let values = new.xattrs.into_iter().filter_map(value).collect();
        let source = SourceRecord {
            id,
            name,
            root: new.root,
            dev: new.dev,
            scanned_ns: new.scanned_ns,
            attributes: new.attributes,
            xattrs,
        };
        let beginning = Beginning { source: source.clone(), approach: new.approach, values };
        self.beginnings.lock().push(beginning);
        self.classes.entry(class).or_default().manifest.sources.push(source);
        Ok(id)
    }

    /// Returns a shard writer for each thread.
    pub fn shard_writers(&self, source: u32) -> Vec<ShardWriter<'_>> {
        let share = self.options.memory_bytes / self.options.threads.max(1);
        // A vector that grows doubles: half of the share is left for that.
        let new = |_| ShardWriter::new(self, source, share / 2);
        let mut writers: Vec<_> = (0..self.options.threads.max(1)).map(new).collect();
        let mut beginnings = self.beginnings.lock();
        for beginning in beginnings.extract_if(.., |beginning| beginning.source.id == source) {
            let Beginning { source, approach: Approach { audience, passage }, values } = beginning;
            for (audience, value) in values {
                writers[0].add_for(audience, &passage, |builder| builder.push_value(value.clone()));
            }
            if let Some((knowers, passage)) = self.knowers(audience, &passage) {
                writers[0].add_sealed(knowers, |sealed| {
                    sealed.set_origin(passage, audience.listers, source);
                });
            }
        }
        writers
    }

    /// Writes what is left in the shard writers, one shard a class, on as many threads.
    pub fn finish_shards(&self, writers: Vec<ShardWriter<'_>>) -> Result<()> {
        let mut threads = vec![(); writers.len()];
        let mut left: FxHashMap<ClassId, Vec<Builder>> = FxHashMap::default();
        let mut sealed: FxHashMap<ClassId, SealedBuilder> = FxHashMap::default();
        let mut source = 0;
        for writer in writers {
            source = writer.source;
            for (class, builder) in writer.builders {
                left.entry(class).or_default().push(builder);
            }
            for (class, builder) in writer.sealed {
                sealed.entry(class).or_default().append(builder);
            }
        }
        let joined =
            |(class, builders)| merged(builders).into_iter().map(move |builder| (class, builder));
        let mut left: Vec<(ClassId, Builder)> = left.into_iter().flat_map(joined).collect();
        left.sort_by_key(|(_, builder)| Reverse(builder.rows()));
        parallel(&mut threads, left, |(), (class, builder)| {
            self.write_shard(class, source, builder)
        })?;
        let mut sealed: Vec<(ClassId, SealedBuilder)> = sealed.into_iter().collect();
        sealed.sort_by_key(|(_, builder)| Reverse(builder.rows()));
        parallel(&mut threads, sealed, |(), (class, builder)| {
            self.write_sealed(class, source, builder)
        })?;
        Ok(())
    }

    /// Publishes all sources that were begun since the index was opened, as one generation.
    pub fn publish(mut self) -> Result<Published> {
        self.settle();
        let mut published = self.published.clone();
        published.generation = self.generation;
        published.classes = self.classes.len() as u64;
        published.closed_grants = self.dirs.closed_grants();
        published.beyond_limits = self.table.beyond_limits();
        published.narrowed = self.table.narrowed();
        self.write_manifests()?;

        let disk = &self.options.disk;
        disk.sync_all(&self.path)?;
        let current = Current { generation: self.generation, published_ns: now_ns() };
        let new = self.path.join("CURRENT.new");
        manifest::write(disk, &new, &current, self.public_mode(), true)?;
        disk.replace(&new, &names::current(&self.path))?;
        // The generation is committed: what cannot be removed now is removed by the next writer.
        drop(self.remove_unreferenced(self.generation));
        Ok(published)
    }

    /// Takes the shards that were written into the manifests of their classes.
    fn settle(&mut self) {
        for (class, written) in std::mem::take(&mut *self.shards.lock()) {
            self.changed.insert(class);
            let held = self.classes.entry(class).or_default();
            match written {
                Written::Shard(shard) => {
                    self.published.entries += (shard.totals.entries + shard.totals.dirs) as u64;
                    self.published.shards += 1;
                    self.published.bytes += shard.bytes();
                    held.manifest.shards.push(*shard);
                }
                // What is in them is in shards too.
                Written::Sealed(file, gated) => {
                    self.published.bytes += file.bytes;
                    self.published.bytes += gated.iter().map(ShardRecord::bytes).sum::<u64>();
                    held.manifest.sealed.push(file);
                    held.gated.extend(gated);
                }
            }
        }
        self.classes.retain(|_, Held { manifest, .. }| {
            !(manifest.shards.is_empty()
                && manifest.sources.is_empty()
                && manifest.sealed.is_empty())
        });
    }

    fn write_manifests(&mut self) -> Result<()> {
        let disk = &self.options.disk;
        for (&class, held) in &mut self.classes {
            if self.changed.contains(&class) {
                held.written = self.generation;
                let directory = self.dirs.ensure(&self.table, class)?;
                let path = names::manifest(&directory, self.generation);
                manifest::write(disk, &path, &held.manifest, 0o644, false)?;
            }
        }
        let record = |(&class, held): (&ClassId, &Held)| {
            ClassRecord::new(&self.table.grants_of(class), held.written)
        };
        let records: Vec<ClassRecord> = self.classes.iter().map(record).collect();
        let used: BTreeSet<GrantId> = records.iter().flat_map(ClassRecord::grants).collect();
        let grant = |id: GrantId| (id.0, GrantRecord::new(&self.table.grant(id)));
        let grants: Vec<_> = used.into_iter().map(grant).collect();
        let key = self.names.key();
        let catalog = Catalog {
            key,
            grants: grants.clone(),
            classes: records.clone(),
            tables: self.tables.clone(),
        };
        let path = names::catalog(&self.path, self.generation);
        manifest::write(disk, &path, &catalog, self.public_mode(), false)?;
        let path = names::all_manifests(&self.path, self.generation);
        let failed = |error: postcard::Error| {
            Error::io("encode", &path)(io::Error::other(error.to_string()))
        };
        let mut classes = Vec::with_capacity(records.len());
        for (class, held) in records.into_iter().zip(self.classes.values()) {
            let gated = PackedList::new(held.gated.clone()).map_err(failed)?;
            classes.push(ClassManifest { class, manifest: held.manifest.clone(), gated });
        }
        let all = AllManifests {
            key,
            grants: PackedList::new(grants).map_err(failed)?,
            next_grant: self.table.next_grant(),
            classes,
            tables: self.tables.clone(),
            queries: self.queries.clone(),
        };
        manifest::write(disk, &path, &all, 0o600, false)
    }

    fn public_mode(&self) -> u32 {
        if self.unprivileged { 0o600 } else { 0o644 }
    }

    /// Returns the class in which a listing of `class` is kept: an index that is built without
    /// privilege has one.
    fn effective(&self, class: ClassId) -> ClassId {
        if self.unprivileged { ClassTable::EVERYONE } else { class }
    }

    /// Returns those who find by name what an audience sees, and the passage that they must know.
    /// An index that is built without privilege has one reader.
    fn knowers<'a>(
        &self,
        audience: Audience,
        passage: &'a Option<Arc<str>>,
    ) -> Option<(ClassId, &'a Arc<str>)> {
        Some((audience.knowers?, passage.as_ref()?)).filter(|_| !self.unprivileged)
    }

    fn write_shard(&self, class: ClassId, source: u32, builder: Builder) -> Result<()> {
        let number = self.next_shard.fetch_add(1, Ordering::Relaxed);
        let directory = self.dirs.ensure(&self.table, class)?;
        let place = ShardTarget {
            disk: Some(&self.options.disk),
            directory: &directory,
            id: format!("{}-{number}", self.generation),
            source,
        };
        let record = write_shard(place, builder)?;
        self.shards.lock().push((class, Written::Shard(Box::new(record))));
        Ok(())
    }

    fn write_sealed(&self, class: ClassId, source: u32, builder: SealedBuilder) -> Result<()> {
        let number = || self.next_shard.fetch_add(1, Ordering::Relaxed);
        let own = number();
        let directory = self.dirs.ensure(&self.table, class)?;
        let write_gated = |builder| {
            let directory = self.dirs.ensure_gated(&self.table, class)?;
            let number = number();
            // Nobody guesses the name.
            let id = format!("{}-{number}-{}", self.generation, hex::encode(self.salt_of(number)));
            let disk = Some(&self.options.disk);
            write_shard(ShardTarget { disk, directory: &directory, id, source }, builder)
        };
        let target = SealedTarget {
            disk: &self.options.disk,
            directory: &directory,
            id: format!("{}-{own}", self.generation),
            source,
            root: self.roots.get(&source).map_or("", String::as_str),
            names: &self.names,
            salt: self.salt_of(own),
            grants_of: &|class| manifest::numbers(&self.table.grants_of(class)),
            write_shard: &write_gated,
        };
        let (file, gated) = sealed::write(&target, builder)?;
        self.shards.lock().push((class, Written::Sealed(file, gated)));
        Ok(())
    }

    /// Bytes that no other shard has, even if one with the same name was never published.
    fn salt_of(&self, number: u64) -> [u8; 16] {
        let mut salt = [0; 16];
        let hash = blake3::Hasher::new_keyed(&self.salt).update(&number.to_le_bytes()).finalize();
        salt.copy_from_slice(&hash.as_bytes()[..16]);
        salt
    }

    /// Removes every file that neither `generation` nor the one before it refers to, and the class
    /// directories that are empty then.
    fn remove_unreferenced(&self, generation: u64) -> Result<()> {
        let mut kept: HashSet<PathBuf> = HashSet::new();
        for generation in [generation, generation.saturating_sub(1)] {
            let all_path = names::all_manifests(&self.path, generation);
            let all: AllManifests = match manifest::read(&all_path) {
                Ok(all) => all,
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            kept.insert(names::catalog(&self.path, generation));
            kept.insert(all_path.clone());
            for ClassManifest { class, manifest, gated } in &all.classes {
                let directory = self.names.class(class.grants());
                kept.insert(names::manifest(&directory, class.manifest));
                let mut keep = |directory: &Path, shard: &ShardRecord| {
                    let kinds =
                        FileKind::ALL.into_iter().filter(|&kind| shard.file(kind).is_some());
                    kept.extend(kinds.map(|kind| directory.join(shard.file_name(kind))));
                };
                manifest.shards.iter().for_each(|shard| keep(&directory, shard));
                let in_gated = directory.join(names::GATED);
                let gated = gated.get().map_err(|error| Error::corrupt(&all_path, error))?;
                gated.iter().for_each(|shard| keep(&in_gated, shard));
                let sealed = manifest.sealed.iter();
                kept.extend(sealed.map(|file| directory.join(names::sealed_file(&file.id))));
                kept.extend(manifest.tables.iter().map(|file| directory.join(file.file_name())));
            }
        }
        kept.extend([names::current(&self.path), self.path.join("lock")]);
        self.clean(&self.path, &kept)
    }

    fn clean(&self, directory: &Path, kept: &HashSet<PathBuf>) -> Result<()> {
        let ours = |name: &str| {
            name.ends_with(".parquet") || name.ends_with(".bin") || name == "CURRENT.new"
        };
        for entry in std::fs::read_dir(directory).map_err(Error::io("list", directory))? {
            let entry = entry.map_err(Error::io("list", directory))?;
            let path = entry.path();
            let file_type = entry.file_type().map_err(Error::io("look at", &path))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if file_type.is_dir() && names::leads_to_classes(&name) {
                self.clean(&path, kept)?;
                // Fails, as it should, where a class directory is still in use.
                drop(std::fs::remove_dir(&path));
            } else if file_type.is_file() && ours(&name) && !kept.contains(&path) {
                self.options.disk.remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Takes the lock of an index.
fn lock(index: &Path) -> Result<File> {
    let path = index.join("lock");
    // Not readable by others: who may open it could hold the lock.
    let file = std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(Error::io("open", &path))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked(index.to_owned())),
        Err(errno) => Err(Error::io("lock", &path)(errno.into())),
    }
}

/// Joins the small builders of one class. Large ones stay apart, so that several threads write
/// them.
fn merged(builders: Vec<Builder>) -> Vec<Builder> {
    let (small, mut joined): (Vec<_>, Vec<_>) =
        builders.into_iter().partition(|builder| builder.rows() < JOINED_ROWS_MAX);
    joined.extend(small.into_iter().reduce(|mut all, builder| {
        all.append(builder);
        all
    }));
    joined
}

/// Returns a key that nobody can guess.
fn random_key(index: &Path) -> Result<Key> {
    let mut key = Key::default();
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key));
    read.map_err(Error::io("read random bytes for", index))?;
    Ok(key)
}

fn now_ns() -> i64 {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
