//! The one writer of an index: takes listings in and publishes generations.
//!
//! 1. Take the lock, read the current generation, remove leftovers of a crashed writer (`opening`).
//! 2. For each source, threads push listings into [`ShardWriter`]s, which keep a builder a class.
//!    When a thread's share of the memory budget is used up, it writes the largest builder as a
//!    shard. A source whose threads do not come to the end is abandoned and stays as it was.
//! 3. Write the manifests of the classes that changed, the catalog and the manifest of all classes
//!    (`publishing`).
//! 4. Sync the file system; then replace `CURRENT`. Before this, nothing that a reader sees has
//!    changed.
//! 5. Remove files that no retained generation refers to, once readers of older ones had time to
//!    end. Older generations stay as configured (`Retention`), for the writer
//!    alone. The journal names the files that may be removed (`cleaning`).

use crate::builder::Builder;
use crate::bundles::{BUNDLE_CLASSES_MAX, Bundled};
use crate::class_dirs::ClassDirs;
use crate::class_lists::ListRecord;
use crate::digest::DigestKey;
use crate::disk::Disk;
use crate::encoder::{ShardTarget, write_shard};
use crate::error::Result;
use crate::failures::{Failure, Failures};
use crate::hidden::HiddenSource;
use crate::manifest::{Current, Layout, Manifest, ScanRecord, ShardSet, SourceRecord};
use crate::names::{Key, Names};
use crate::own_tables::TableRecord;
use crate::pages::PAGE_SHARDS_MAX;
use crate::retention::Retention;
use crate::sealed::{self, SealedBuilder, SealedFile, SealedTarget};
use crate::shard_record::ShardRecord;
use crate::source_id::SourceId;
use crate::unfinished::Found;
use canopy_model::{
    Approach, Audience, ClassId, ClassTable, Device, Generation, OwnerLimits, Principal, parallel,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod checking;
mod cleaning;
mod compaction;
mod copying;
mod cut;
mod cut_sealed;
mod inodes;
mod join_sealed;
mod loaded;
mod opening;
mod pages;
mod publishing;
mod rebuild;
mod refresh;
mod renewing;
mod replaced;
mod resuming;
mod salvage;
mod shard_writer;
mod sharing;
mod sources;
mod tables;
mod unchanged;
mod unread;

pub use checking::{CheckReport, Checker, Damage, Remedy};
use cleaning::Tree;
pub use compaction::{Compacted, Due};
use opening::Role;
pub use opening::Salvaged;
use pages::ReadPages;
use refresh::Seen;
pub use refresh::SelectedDirectory;
pub use salvage::is_there;
pub(crate) use salvage::was_published;
pub use shard_writer::ShardWriter;
use sources::Begun;

/// How to write.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Memory that all builders together may take, in bytes.
    pub memory_bytes: usize,
    /// How many threads write.
    pub threads: usize,
    /// Limits for the directories of one owner; by default the last ones given.
    pub limits: Option<OwnerLimits>,
    /// Users whose limits hold for ranges of uids: subordinate uids count for their holder.
    pub holders: Vec<(Range<u32>, u32)>,
    /// Rows that count up to which those of a shard, of which something is replaced, are written
    /// anew.
    pub copied_rows_max: usize,
    /// Most shards of a page.
    pub page_shards_max: usize,
    /// Most classes of a bundle of manifests.
    pub bundle_classes_max: usize,
    /// Whether files that are replaced stay for those who read an older generation. If not, they
    /// are removed once the new one is committed, and those that stayed before anything is written.
    pub keep_replaced: bool,
    /// Older generations that stay from now on; `None` to keep the index's setting.
    pub retention: Option<Retention>,
    /// Whether damaged files that the writer depends on are rebuilt.
    pub salvages: bool,
    /// Whether a scan that workers share is given up, which otherwise keeps others from writing.
    pub gives_up_shared: bool,
    /// The disk, with faults for tests.
    pub disk: Disk,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            memory_bytes: 256 << 20,
            threads: 1,
            limits: None,
            holders: Vec::new(),
            copied_rows_max: 4096,
            page_shards_max: PAGE_SHARDS_MAX,
            bundle_classes_max: BUNDLE_CLASSES_MAX,
            keep_replaced: true,
            retention: None,
            salvages: false,
            gives_up_shared: false,
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
    pub dev: Device,
    /// When the scan begins, in nanoseconds since 1970.
    pub scanned_ns: i64,
    /// Attributes of the root directory.
    pub attributes: canopy_model::Attributes,
    /// Users who may look up the root.
    pub approach: Approach,
    /// Its extended attributes: names, and values with those who may see them.
    pub xattrs: Vec<(String, Option<(Vec<u8>, Audience)>)>,
    /// Record of its scan, so that it can be scanned again; `None` for a source that is not
    /// scanned.
    pub scan: Option<ScanRecord>,
}

impl NewSource {
    /// Returns how it is divided into shards.
    fn layout(&self) -> Layout {
        self.scan.as_ref().map(|scan| scan.layout).unwrap_or_default()
    }
}

/// Result of a publication.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// The new generation.
    pub generation: Generation,
    /// Whether it is the one that was there, since all was as it was.
    pub is_unchanged: bool,
    /// Roots of sources that are in others now, escaped.
    pub absorbed: Vec<String>,
    /// Roots of trees that replaced subtrees of sources, each with the root of the source, escaped.
    pub subtrees: Vec<(String, String)>,
    /// Entries of the new sources, directories among them.
    pub entries: u64,
    /// Those of them that are as they were, and stay where they are.
    pub kept: u64,
    /// Shards of the new sources.
    pub shards: u64,
    /// Bytes of these shards.
    pub bytes: u64,
    /// Classes that hold anything, of all sources.
    pub classes: u64,
    /// Grants that the file system of the index cannot express: what they guard is for root alone.
    pub closed_grants: usize,
    /// Owners who asked for more than [`OwnerLimits`], each with the number of directories that are
    /// for that owner and root alone.
    pub beyond_limits: BTreeMap<u32, u64>,
    /// Why what is known of sources that are not there as they should be could not be recorded.
    pub unrecorded: Option<String>,
    /// How often a class got fewer members than the kernel would let pass, since its grants are
    /// too many.
    pub folded: u64,
}

/// Contents of a class.
#[derive(Clone, Default)]
struct Held {
    /// Generation in which the manifest was written last.
    written: Generation,
    manifest: Manifest,
    /// Shards that only sealed records name.
    gated: ShardSet,
    /// Sources that are sealed in the manifest.
    hidden: Vec<HiddenSource>,
}

/// A shard or sealed file that was written for a class.
#[derive(Clone)]
enum Written {
    Shard(Box<ShardRecord>),
    Sealed {
        /// The number of the source that was begun.
        begun: SourceId,
        file: SealedFile,
        gated: Vec<ShardRecord>,
    },
}

/// Group of rows that becomes a shard of its own: a class, and the part, if the layout divides it.
type Bin = (ClassId, u32);

/// Rows that are not yet in shards, and records that are not yet sealed, by class.
type Rows = FxHashMap<Bin, Vec<Builder>>;
type Sealed = FxHashMap<ClassId, Vec<SealedBuilder>>;

/// Rows from which on a thread's remainder of a class becomes a shard of its own.
const JOINED_ROWS_MAX: usize = 64 * 1024;

/// Writes an index; holds its lock as long as it lives.
pub struct Writer {
    path: PathBuf,
    options: WriterOptions,
    unprivileged: bool,
    /// Content of `CURRENT`.
    current: Option<Current>,
    /// Files of that generation.
    current_tree: Tree,
    /// Older generations that stay.
    retention: Retention,
    /// Generation that is being written.
    generation: Generation,
    /// Limits for the directories of one owner, if they were ever given.
    limits: Option<OwnerLimits>,
    table: ClassTable,
    names: Names,
    digest_key: DigestKey,
    /// Makes sealed content differ from all that was sealed before.
    salt: Key,
    dirs: ClassDirs,
    /// The bundles of the current generation.
    bundles: Vec<Bundled>,
    /// Contents of the classes.
    classes: BTreeMap<ClassId, Held>,
    changed: HashSet<ClassId>,
    /// Pages of the manifests that something asked for.
    read_pages: ReadPages,
    /// Shards and sealed files that were written and are not yet among `classes`.
    shards: Mutex<Vec<(ClassId, Written)>>,
    next_shard: AtomicU64,
    /// Directories that are for their owner and root alone, by owner.
    beyond_limits: Mutex<BTreeMap<u32, u64>>,
    next_source: SourceId,
    /// How sources were scanned, by number.
    scans: BTreeMap<SourceId, ScanRecord>,
    /// Sources that were begun and are not in the manifests, by number.
    begun: BTreeMap<SourceId, Begun>,
    /// Those of them whose listings are still coming.
    unfinished: Mutex<HashSet<SourceId>>,
    failures: Failures,
    /// Sources that will be published without some of what they should have.
    incomplete: Vec<Failure>,
    /// The lists of classes of the current generation.
    lists: Vec<ListRecord>,
    /// Users and groups whose lists name classes that are not as they were, besides those of
    /// `changed`.
    relisted: BTreeSet<Principal>,
    /// Whether something that readers go by is written anew since it was damaged.
    renews: bool,
    /// Parts that were rebuilt when the index was opened, if any.
    salvaged: Option<Salvaged>,
    /// Generations that cannot be read any more, and do not stay.
    lost: HashSet<Generation>,
    /// Tables that were added, by name.
    tables: Vec<TableRecord>,
    /// Whether derived ones may have rows of classes that have changed since.
    derived_is_stale: bool,
    /// Queries of the derived ones.
    queries: BTreeMap<String, String>,
    /// Whether the manifests have taken in any change.
    has_changed: bool,
    /// Totals of everything taken into the manifests so far.
    published: Published,
    /// A scan that was interrupted.
    interrupted: Found,
    /// Whether this run has noted how far it is, or goes on with one that has.
    has_noted: AtomicBool,
    /// Whether it writes for a worker, and publishes nothing.
    is_workers: bool,
    /// The directory of the worker that publishes; once it is gone, another one does.
    publisher: Option<PathBuf>,
    _lock: Option<File>,
}

impl Writer {
    /// Opens an index for writing, made if there is none. Fails if another writer is at work, or if
    /// anybody else could change the directory.
    pub fn open(path: &Path, options: WriterOptions) -> Result<Self> {
        Self::open_for(Role::Alone, path, options)
    }

    /// Returns the classes of the index, for computing those of listings.
    pub fn classes(&self) -> &ClassTable {
        &self.table
    }

    /// Returns the sources of the index, by root, each with how it was scanned, if it was.
    pub fn sources(&self) -> Vec<(SourceRecord, Option<ScanRecord>)> {
        let sources = self.classes.values().flat_map(|held| &held.manifest.sources);
        let scan = |source: &SourceRecord| self.scans.get(&source.id).cloned();
        let mut sources: Vec<_> = sources.map(|source| (source.clone(), scan(source))).collect();
        sources.sort_by(|(a, _), (b, _)| (&a.root, a.id).cmp(&(&b.root, b.id)));
        sources
    }

    /// Returns whether the index has any entry of a source, by its number.
    pub fn has_entries(&self, source: SourceId) -> bool {
        self.classes.values().map(|held| &held.manifest.shards).any(|shards| {
            let pages = shards.pages.iter().map(|page| &page.extent);
            let pages = pages.filter(|extent| extent.source == source);
            let loose = shards.loose.iter().filter(|shard| shard.source == source);
            let mut sums = pages.map(|extent| extent.totals).chain(loose.map(|shard| shard.totals));
            sums.any(|totals| totals.entries > 0 || totals.dirs > 0)
        })
    }

    /// Returns the parts that were rebuilt when the index was opened, if any.
    pub fn salvaged(&self) -> Option<&Salvaged> {
        self.salvaged.as_ref()
    }

    /// Publishes the next generation even if nothing changes, since the index lacks something.
    pub fn publish_anyway(&mut self) {
        self.renews = true;
    }

    /// Returns the real path of the index.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a shard writer for each thread.
    pub fn shard_writers(&self, source: SourceId) -> Vec<ShardWriter<'_>> {
        self.unfinished.lock().insert(source);
        let share = self.options.memory_bytes / self.options.threads.max(1);
        // A vector that grows doubles: half of the share is left for that.
        let new = |_| ShardWriter::new(self, source, share / 2);
        (0..self.options.threads.max(1)).map(new).collect()
    }

    /// Writes what is left in the shard writers, one shard a class, on as many threads, and what
    /// stays of a source of which this is a subtree. With it, the source has come to its end.
    pub fn finish_shards(&self, mut writers: Vec<ShardWriter<'_>>) -> Result<()> {
        if let Some(first) = writers.first_mut()
            && let Some(begun) = self.begun.get(&first.source)
        {
            self.check_absorbed(begun)?;
            self.add_root(begun, first);
        }
        let threads = writers.len();
        let source = writers.first().map_or(SourceId(0), |first| first.source);
        let Gathered { mut left, mut sealed, mut seen } = gathered(writers);
        if let Some(begun) = self.begun.get(&source) {
            if let Some(refresh) = &begun.refresh {
                seen.append(refresh.seen_unread());
            }
            begun.entries.fetch_add(seen.entries, Ordering::Relaxed);
            begun.kept_entries.store(seen.kept_entries, Ordering::Relaxed);
            let nothing_new = left.is_empty() && sealed.is_empty();
            let is_as_before = self.is_as_before(begun, &seen);
            begun.is_as_before.store(is_as_before, Ordering::Relaxed);
            if is_as_before && !self.shards.lock().iter().any(|(_, own)| own.source() == source) {
                // All of it stays where it is.
                (left, sealed) = (Rows::default(), Sealed::default());
            } else if !self.all_stays(begun, &seen, nothing_new)
                && let Some(replaced) = self.replaced(begun, seen, &[])?
            {
                self.cut(source, &replaced, &mut left)?;
                self.cut_sealed(source, &replaced)?;
            }
        }
        self.write_builders(source, left, sealed, threads)?;
        self.unfinished.lock().remove(&source);
        Ok(())
    }

    /// Writes what is in builders on so many threads, the small ones of a class as one shard.
    fn write_builders(
        &self,
        source: SourceId,
        left: Rows,
        sealed: Sealed,
        threads: usize,
    ) -> Result<()> {
        let mut threads = vec![(); threads];
        let joined =
            |((class, _), builders)| merged(builders).into_iter().map(move |one| (class, one));
        let mut left: Vec<(ClassId, Builder)> = left.into_iter().flat_map(joined).collect();
        left.sort_by_key(|(_, builder)| Reverse(builder.rows()));
        parallel(&mut threads, left, |(), (class, builder)| {
            self.write_shard(class, source, builder).map(drop)
        })?;
        let mut sealed: Vec<(ClassId, SealedBuilder)> = sealed
            .into_iter()
            .flat_map(|(class, builders)| builders.into_iter().map(move |builder| (class, builder)))
            .collect();
        sealed.sort_by_key(|(_, builder)| Reverse(builder.rows()));
        parallel(&mut threads, sealed, |(), (class, builder)| {
            self.write_sealed(class, source, builder)
        })?;
        Ok(())
    }

    /// Takes the shards that were written into the manifests of their classes.
    fn settle(&mut self) {
        let owners = self.accept_sources();
        let all = std::mem::take(&mut *self.shards.lock());
        for (class, mut written) in all {
            match &mut written {
                Written::Shard(shard) => {
                    shard.source = owners.get(&shard.source).copied().unwrap_or(shard.source);
                    self.published.shards += 1;
                    self.published.bytes += shard.bytes();
                }
                // Their contents are in shards, too.
                Written::Sealed { file, gated, .. } => {
                    self.published.bytes += file.bytes;
                    self.published.bytes += gated.iter().map(ShardRecord::bytes).sum::<u64>();
                }
            }
            self.contents().take_in(class, written);
        }
        self.contents().drop_empty();
    }

    /// Returns how a source that was begun is divided into shards.
    fn layout_of(&self, source: SourceId) -> Layout {
        self.begun.get(&source).map(|begun| begun.new.layout()).unwrap_or_default()
    }

    /// Returns the class in which all listings are kept, whatever theirs is, if there is one: an
    /// index that is built without privilege has one, and so has a source whose layout does not go
    /// by access.
    fn only_class(&self, layout: Layout) -> Option<ClassId> {
        match layout {
            _ if self.unprivileged => Some(ClassTable::EVERYONE),
            Layout::Leveled { .. } => Some(self.table.root_alone()),
            Layout::Access => None,
        }
    }

    /// Returns whether what is found behind gates of a source is sealed for those who know the way.
    fn seals(&self, layout: Layout) -> bool {
        !self.unprivileged && layout == Layout::Access
    }

    /// Returns those who find by name what an audience sees, and the passage that they must know.
    /// An index that is built without privilege has one reader.
    fn knowers<'a>(
        &self,
        audience: Audience,
        passage: &'a Option<Arc<str>>,
        layout: Layout,
    ) -> Option<(ClassId, &'a Arc<str>)> {
        Some((audience.knowers?, passage.as_ref()?)).filter(|_| self.seals(layout))
    }

    /// Returns the id of another file or shard.
    fn new_id(&self) -> String {
        format!("{}-{}", self.generation, self.next_shard.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the id of another file or shard, which nobody guesses.
    fn new_secret_id(&self) -> String {
        let number = self.next_shard.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}-{}", self.generation, hex::encode(self.salt_of(number)))
    }

    /// Writes a shard and returns its id.
    fn write_shard(&self, class: ClassId, source: SourceId, builder: Builder) -> Result<String> {
        let directory = self.dirs.ensure(&self.table, class)?;
        let (disk, id) = (Some(&self.options.disk), self.new_id());
        let place = ShardTarget { disk, directory: &directory, id, source };
        let record = write_shard(place, builder)?;
        let id = record.id.clone();
        self.shards.lock().push((class, Written::Shard(Box::new(record))));
        Ok(id)
    }

    fn write_sealed(&self, class: ClassId, begun: SourceId, builder: SealedBuilder) -> Result<()> {
        let known = self.begun.get(&begun);
        let source = known.map_or(begun, |known| known.owner(begun));
        let own = self.next_shard.fetch_add(1, Ordering::Relaxed);
        let directory = self.dirs.ensure(&self.table, class)?;
        let write_gated = |builder| {
            let directory = self.dirs.ensure_gated(&self.table, class)?;
            let (id, disk) = (self.new_secret_id(), Some(&self.options.disk));
            write_shard(ShardTarget { disk, directory: &directory, id, source }, builder)
        };
        let target = SealedTarget {
            disk: &self.options.disk,
            directory: &directory,
            id: format!("{}-{own}", self.generation),
            source,
            root: known.map_or("", |known| known.root()),
            names: &self.names,
            salt: self.salt_of(own),
            class_hash: &|class| self.names.class_hash(self.dirs.place(&self.table, class)),
            write_shard: &write_gated,
        };
        let (file, gated) = sealed::write(&target, builder)?;
        self.shards.lock().push((class, Written::Sealed { begun, file, gated }));
        Ok(())
    }

    /// Bytes that no other shard has, even if one with the same name was never published.
    fn salt_of(&self, number: u64) -> [u8; 16] {
        let mut salt = [0; 16];
        let hash = blake3::Hasher::new_keyed(&self.salt).update(&number.to_le_bytes()).finalize();
        salt.copy_from_slice(&hash.as_bytes()[..16]);
        salt
    }
}

/// Contents of shard writers.
#[derive(Default)]
struct Gathered {
    /// Rows by class.
    left: Rows,
    /// Sealed records by class.
    sealed: Sealed,
    /// Listings that they have taken in.
    seen: Seen,
}

/// Returns the contents of shard writers.
fn gathered(writers: Vec<ShardWriter<'_>>) -> Gathered {
    let Gathered { mut left, mut sealed, mut seen } = Gathered::default();
    for writer in writers {
        seen.append(writer.seen);
        for (bin, builder) in writer.builders {
            left.entry(bin).or_default().push(builder);
        }
        for (class, builder) in writer.sealed {
            let builders = sealed.entry(class).or_default();
            match builders.last_mut().filter(|last| last.has_room_for(&builder)) {
                Some(last) => last.append(builder),
                None => builders.push(builder),
            }
        }
    }
    Gathered { left, sealed, seen }
}

/// Joins the small builders of one class. Large ones stay apart, so that several threads write
/// them.
fn merged(builders: Vec<Builder>) -> Vec<Builder> {
    let (small, mut joined): (Vec<_>, Vec<_>) =
        builders.into_iter().partition(|builder| builder.rows() < JOINED_ROWS_MAX);
    let mut all = Builder::default();
    for builder in small {
        if all.is_full() {
            joined.push(std::mem::take(&mut all));
        }
        all.append(builder);
    }
    joined.extend(Some(all).filter(|all| !all.is_empty()));
    joined
}

fn now_ns() -> i64 {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
