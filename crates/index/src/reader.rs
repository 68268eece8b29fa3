//! Opening an index for reading: one generation, and of it what the kernel lets the caller see.

mod bundle;
mod joined;

use crate::bundles::BundleId;
use crate::class_lists;
use crate::error::{Error, Result};
use crate::failures::{Checked, Failure, Failures};
use crate::manifest::{self, AllManifests, Catalog, Current, Manifest, SourceRecord};
use crate::names::{self, Names};
use crate::own_tables::{TableFile, TableFileRecord, TableRecord};
use crate::pages::Extent;
use crate::passages::SealedFiles;
use crate::retention::{KeptGeneration, Moment, Retention};
use crate::schema::FileKind;
use crate::sealed::SealedRecord;
use crate::shard::{ClassDir, Shard};
use crate::shard_record::HardLink;
use crate::source_id::SourceId;
use crate::unfinished::{self, Unfinished};
use crate::workers::SharedProgress;
use crate::writer::was_published;
use bundle::{Contents, IndexPage, ReadBundle};
use canopy_model::{AbsolutePath, Generation, Principal, SourcePath, Totals};
use rustc_hash::FxHashSet;
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One generation of an index, as far as the caller may see it. Never changes while it is open.
/// Cheap to clone.
#[derive(Clone)]
pub struct Index {
    path: PathBuf,
    generation: Generation,
    published_ns: i64,
    /// Older generations than the current one, the newest first, and which of them stay.
    kept: Arc<(Vec<KeptGeneration>, Retention)>,
    sources: Vec<SourceRecord>,
    /// Where the pages of shards are.
    bundles: Arc<Vec<Arc<ReadBundle>>>,
    /// Sources whose pages are left out.
    covered: Arc<FxHashSet<SourceId>>,
    /// Tables of which only the rows of the own index count, where this is joined with one.
    own_tables: Arc<FxHashSet<String>>,
    /// Shards that are in no page: behind gates, or not published.
    loose: Vec<Arc<Shard>>,
    classes: Classes,
    /// Records that the caller finds by name; empty for a caller who sees all.
    sealed: Arc<SealedFiles>,
    tables: Arc<Tables>,
    /// In the view of one class, the sources whose root is recorded in it.
    own_roots: Option<Vec<SourceId>>,
    /// Generation and time of publication of the index that was joined to this one.
    own_published: Option<(Generation, i64)>,
    /// A list of classes for the caller, or the directory of all classes, that the kernel denies.
    denied_list: Option<Arc<PathBuf>>,
    /// In a view from some paths, the index as seen from anywhere.
    opened: Option<Arc<Index>>,
}

/// The tables that were added.
#[derive(Default)]
struct Tables {
    records: Vec<TableRecord>,
    /// Known to the writer alone.
    queries: BTreeMap<String, String>,
}

/// How many classes an index has, and how many of them the caller sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classes {
    /// Classes that hold anything; `None` unless the caller is the writer of the index.
    pub all: Option<usize>,
    /// Those that the caller may read.
    pub visible: usize,
}

impl fmt::Debug for Index {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Index({}, generation {})", self.path.display(), self.generation)
    }
}

impl Index {
    /// Opens the current generation. Takes no lock.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_at(path, None)
    }

    /// Opens the generation of a moment, the current one where none is given. Only the users who
    /// write the index can open older ones. Takes no lock.
    pub fn open_at(path: &Path, moment: Option<Moment>) -> Result<Self> {
        // Files of a generation go away a while after a newer one was published.
        for _ in 0..3 {
            match Self::open_once(path, moment) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
        Self::open_once(path, moment).map_err(|error| match error.damaged_file() {
            Some(file) if matches!(error, Error::Io { .. }) => {
                Error::corrupt(file, "it is missing")
            }
            _ => error,
        })
    }

    fn open_once(path: &Path, moment: Option<Moment>) -> Result<Self> {
        let current: Current = match manifest::read(&names::current(path)) {
            // Where it was published, the file is missing, or has come meanwhile.
            Err(Error::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && !was_published(path) =>
            {
                return Err(match unfinished::first_scan(path) {
                    Some(state) => Error::NotComplete { path: path.to_owned(), state },
                    None => Error::NoIndex(path.to_owned()),
                });
            }
            other => other?,
        };
        let there = current.all();
        let KeptGeneration { generation, published_ns } = match moment {
            Some(moment) => moment.find(&there)?,
            None => there[0],
        };
        let is_current = generation == current.generation;
        let kept = Arc::new((current.kept, current.retention));
        let mut index = Index { generation, published_ns, kept, ..Self::empty(path) };
        let all = names::all_manifests(path, generation);
        match manifest::read::<AllManifests>(&all) {
            Ok(all) => index.add_all(all),
            Err(error) if denied(&error) && !is_current => {
                return Err(Error::PastDenied(path.to_owned()));
            }
            Err(Error::Corrupt { path, .. }) if !is_current => {
                return Err(Error::PastDamaged { generation, path });
            }
            Err(error) if denied(&error) => index.add_permitted(&caller(&all)?)?,
            Err(error) => return Err(error),
        }
        index.sort_sources();
        Ok(index)
    }

    /// Sorts sources by root; of those with one root, the one that counts comes last.
    fn sort_sources(&mut self) {
        self.sources.sort_by(|a, b| (&a.root, a.id).cmp(&(&b.root, b.id)));
    }

    fn empty(path: &Path) -> Self {
        Index {
            path: path.to_owned(),
            generation: Generation::NONE,
            published_ns: 0,
            kept: Arc::default(),
            sources: Vec::new(),
            bundles: Arc::default(),
            covered: Arc::default(),
            own_tables: Arc::default(),
            loose: Vec::new(),
            classes: Classes::default(),
            sealed: Arc::default(),
            tables: Arc::default(),
            own_roots: None,
            own_published: None,
            denied_list: None,
            opened: None,
        }
    }

    /// Returns what every reader of one class sees, and nothing else. `sources` are those that its
    /// shards belong to: whoever reads a listing may look up the root above it.
    pub(crate) fn of_class(
        directory: &Path,
        manifest: &Manifest,
        sources: Vec<SourceRecord>,
        tables: Vec<TableRecord>,
    ) -> Self {
        let own_roots = manifest.sources.iter().map(|source| source.id).collect();
        let at = directory.to_owned();
        let mut index = Index {
            sources,
            classes: Classes { all: None, visible: 1 },
            tables: Arc::new(Tables { records: tables, queries: BTreeMap::new() }),
            own_roots: Some(own_roots),
            ..Self::empty(directory)
        };
        let mut known = Contents::default();
        index.loose = known.add(ClassDir::new(|| at), manifest.clone());
        index.bundles = Arc::new(vec![Arc::new(ReadBundle::known(known))]);
        index
    }

    fn add_all(&mut self, all: AllManifests) {
        self.tables = Arc::new(Tables { records: all.tables, queries: all.queries });
        self.sources = all.sources;
        let classes = all.bundles.iter().map(|bundle| bundle.classes as usize).sum();
        self.classes = Classes { all: Some(classes), visible: classes };
        let names = Arc::new(Names::new(&self.path, all.key));
        let unread = |record| Arc::new(ReadBundle::unread(names.clone(), record));
        self.bundles = Arc::new(all.bundles.into_iter().map(unread).collect());
    }

    /// Tries the classes that the lists for the caller name. They only save attempts: it is the
    /// kernel that lets the caller into a class directory or not.
    fn add_permitted(&mut self, caller: &[Principal]) -> Result<()> {
        let path = names::catalog(&self.path, self.generation);
        let catalog: Catalog = manifest::read(&path)?;
        let names = Arc::new(Names::new(&self.path, catalog.key));
        let (classes, denied_list) = class_lists::classes_for(&names, &catalog, caller)?;
        self.denied_list = denied_list.map(Arc::new);
        self.tables = Arc::new(Tables { records: catalog.tables, queries: BTreeMap::new() });
        let mut sealed = SealedFiles::new(names.clone());
        let mut known = Contents::default();
        let mut is_denied = false;
        for class in classes {
            let directory = names.class(class.place);
            let path = names::manifest(&directory, class.manifest);
            match manifest::read::<Manifest>(&path) {
                Ok(mut manifest) => {
                    self.classes.visible += 1;
                    let files = std::mem::take(&mut manifest.sealed);
                    let sources = std::mem::take(&mut manifest.hidden);
                    sealed.add(class.place, &directory, files, sources);
                    self.sources.append(&mut manifest.sources);
                    self.loose.extend(known.add(ClassDir::new(|| directory), manifest));
                }
                // It is the directory that keeps others out, not the file.
                Err(error) if denied(&error) && path.symlink_metadata().is_err() => {
                    is_denied |= class.place.depth > 0;
                }
                Err(error) => return Err(error),
            }
        }
        // Everybody may search the directory that those of classes are in.
        let classes = names.classes();
        if is_denied && classes.join(".").symlink_metadata().is_err() {
            self.denied_list = Some(Arc::new(classes));
        }
        self.sealed = Arc::new(sealed);
        self.bundles = Arc::new(vec![Arc::new(ReadBundle::known(known))]);
        Ok(())
    }

    /// Returns the index as the caller sees it from `path`. It includes listings behind gates above
    /// the path that the caller may search but not list, since the path names the passages. Paths
    /// from which this view is seen do not count.
    pub fn seen_from(&self, path: AbsolutePath<'_>) -> Result<Index> {
        self.seen_from_all(&[path])
    }

    /// Returns what the caller sees from any of some paths, as [`Self::seen_from`] does from one.
    pub fn seen_from_all(&self, paths: &[AbsolutePath<'_>]) -> Result<Index> {
        let opened = self.opened.clone().unwrap_or_else(|| Arc::new(self.clone()));
        let mut index = Index { opened: Some(opened.clone()), ..(*opened).clone() };
        let found = opened.sealed.behind(paths, &opened.sources)?;
        index.sources.extend(found.sources);
        index.sort_sources();
        index.loose.extend(found.shards.into_iter().map(Arc::new));
        Ok(index)
    }

    /// Returns the sealed records of an entry of a gate, for users who know its path.
    pub fn unseal(&self, source: SourceId, path: AbsolutePath<'_>) -> Result<Vec<SealedRecord>> {
        self.sealed.entry(source, path)
    }

    /// Keeps the generation as long as the returned file is open, whatever the retention of the
    /// index is. Only the owner of the index can do that.
    pub fn hold(&self) -> Result<File> {
        let path = names::all_manifests(&self.path, self.generation);
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        // Writers look for a moment alone whether it is locked.
        let locked = rustix::fs::flock(&file, FlockOperation::LockShared);
        locked.map_err(|errno| Error::io("lock", &path)(errno.into()))?;
        Ok(file)
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns when the generation was published, in nanoseconds since 1970.
    pub fn published_ns(&self) -> i64 {
        self.published_ns
    }

    /// Returns the generation that answers about some sources, and when it was published, in
    /// nanoseconds since 1970: of two joined indexes that of `own` if all are its sources.
    pub fn published_of(&self, sources: impl IntoIterator<Item = SourceId>) -> (Generation, i64) {
        let mut sources = sources.into_iter().peekable();
        let is_own = sources.peek().is_some() && sources.all(SourceId::is_in_own_index);
        let own = self.own_published.filter(|_| is_own);
        own.unwrap_or((self.generation, self.published_ns))
    }

    /// Returns the older generations that are kept, the newest first.
    pub fn kept(&self) -> &[KeptGeneration] {
        &self.kept.0
    }

    /// Returns which older generations stay when one is published.
    pub fn retention(&self) -> &Retention {
        &self.kept.1
    }

    /// Returns the sources that the caller may know of, by root.
    pub fn sources(&self) -> &[SourceRecord] {
        &self.sources
    }

    /// Returns the shards that the caller may read, of all sources.
    pub fn shards(&self) -> Result<Vec<&Arc<Shard>>> {
        let mut shards: Vec<_> = self.loose.iter().collect();
        for page in self.pages(|_, _| true)? {
            shards.extend(page.shards()?);
        }
        Ok(shards)
    }

    /// Returns the shards except those that another generation of the index has too, as far as the
    /// manifests of both show. Shards with different records are included.
    pub fn shards_beside(&self, other: &Index) -> Result<Vec<&Arc<Shard>>> {
        let ids = |index: &Index| -> FxHashSet<_> {
            index.bundles.iter().filter_map(|bundle| bundle.id()).collect()
        };
        let (own, known) = (ids(self), ids(other));
        let is_shared = |ids: &FxHashSet<BundleId>, bundle: &ReadBundle| {
            bundle.id().is_some_and(|id| ids.contains(&id))
        };
        let key = |page: &Arc<IndexPage>| (page.source, page.record.id);
        let mut pages = FxHashSet::default();
        for bundle in other.bundles.iter().filter(|bundle| !is_shared(&own, bundle)) {
            pages.extend(bundle.contents()?.pages.iter().map(key));
        }
        let mut shards: Vec<_> = self.loose.iter().collect();
        for bundle in self.bundles.iter().filter(|bundle| !is_shared(&known, bundle)) {
            let own = bundle.contents()?.pages.iter().filter(|page| self.has(page.source));
            for page in own.filter(|page| !pages.contains(&key(page))) {
                shards.extend(page.shards()?);
            }
        }
        Ok(shards)
    }

    /// Returns the shards of one source.
    pub fn shards_of(&self, source: SourceId) -> Result<Vec<&Arc<Shard>>> {
        self.shards_in(source, |_| true)
    }

    /// Returns all shards of a source that have listings of a directory, or of what is below, and
    /// perhaps others. Reads what says so alone.
    pub fn shards_below(
        &self,
        source: SourceId,
        directory: SourcePath<'_>,
    ) -> Result<Vec<&Arc<Shard>>> {
        self.shards_in(source, |extent| extent.may_have_below(directory))
    }

    /// Returns all shards of a source that have the listing of a directory, and perhaps others.
    pub fn shards_at(
        &self,
        source: SourceId,
        directory: SourcePath<'_>,
    ) -> Result<Vec<&Arc<Shard>>> {
        self.shards_in(source, |extent| extent.may_have_at(directory))
    }

    /// Returns all shards of a source that have values of extended attributes of what is in a
    /// directory or below, and perhaps others.
    pub fn shards_with_values(
        &self,
        source: SourceId,
        directory: SourcePath<'_>,
    ) -> Result<Vec<&Arc<Shard>>> {
        let mut shards = self.shards_in(source, |extent| extent.may_have_values(directory))?;
        shards.retain(|shard| shard.may_have_values(directory));
        Ok(shards)
    }

    fn shards_in(
        &self,
        source: SourceId,
        is_wanted: impl Fn(&Extent) -> bool,
    ) -> Result<Vec<&Arc<Shard>>> {
        let loose = self.loose.iter().filter(|shard| shard.record().source == source);
        let mut shards: Vec<_> = loose.collect();
        for page in self.pages(|number, extent| number == source && is_wanted(extent))? {
            shards.extend(page.shards()?);
        }
        Ok(shards)
    }

    /// Returns the pages whose source, by its number here, and extent are wanted, from bundles of
    /// which that may be so.
    fn pages(&self, is_wanted: impl Fn(SourceId, &Extent) -> bool) -> Result<Vec<&Arc<IndexPage>>> {
        let is_wanted = |source, extent: &Extent| self.has(source) && is_wanted(source, extent);
        let mut pages = Vec::new();
        for bundle in self.bundles.iter().filter(|bundle| bundle.may_have(is_wanted)) {
            let own = bundle.contents()?.pages.iter();
            pages.extend(own.filter(|page| is_wanted(page.source, &page.record.extent)));
        }
        Ok(pages)
    }

    /// Returns whether a source counts here.
    fn has(&self, source: SourceId) -> bool {
        !self.covered.contains(&source)
    }

    /// Returns what manifests alone say of a directory of a source and all below it: sums over the
    /// entries, with those that have several links once, and the links that may be repeated
    /// elsewhere; and the shards of which they do not.
    pub fn sums_below(
        &self,
        source: SourceId,
        directory: SourcePath<'_>,
    ) -> Result<(Totals, Vec<HardLink>, Vec<&Arc<Shard>>)> {
        let (mut sum, mut links) = (Totals::default(), Vec::new());
        let loose = self.loose.iter().filter(|shard| shard.record().source == source);
        let mut shards: Vec<_> = loose.collect();
        let mut tells = |extent: &Extent, path: &Path| -> Result<bool> {
            let once = extent.once_below(directory);
            let once = once.map_err(|error| Error::corrupt(path, error))?;
            once.iter().for_each(|(totals, open)| {
                sum += *totals;
                links.extend_from_slice(open);
            });
            Ok(once.is_some())
        };
        let is_asked = |number: SourceId, extent: &Extent| {
            number == source && self.has(number) && extent.may_have_below(directory)
        };
        for bundle in self.bundles.iter().filter(|bundle| bundle.may_have(is_asked)) {
            if let Some(extent) = bundle.extent(source)
                && tells(extent, &self.path)?
            {
                continue;
            }
            let own = bundle.contents()?.pages.iter();
            for page in own.filter(|page| is_asked(page.source, &page.record.extent)) {
                if !tells(&page.record.extent, page.directory())? {
                    shards.extend(page.shards()?);
                }
            }
        }
        Ok((sum, links, shards))
    }

    /// Returns the shards that lie behind gates above the path that this is seen from.
    pub fn shards_behind_gates(&self) -> &[Arc<Shard>] {
        &self.loose
    }

    /// Returns what is known of the shards that are in pages, without those, each with the number of
    /// its source here.
    fn extents(&self) -> impl Iterator<Item = (SourceId, &Extent)> {
        let all = self.bundles.iter().flat_map(|bundle| bundle.extents());
        all.filter(|(source, _)| self.has(*source))
    }

    /// Returns how many shards have a file of a kind, and how many row groups these files have.
    pub fn file_counts(&self, kind: FileKind) -> (usize, usize) {
        let of_pages = |(_, extent): (SourceId, &Extent)| extent.files[kind as usize];
        let of_shard = |shard: &Arc<Shard>| {
            let groups = shard.row_groups(kind).len() as u32;
            (u32::from(groups > 0), groups)
        };
        let all = self.extents().map(of_pages).chain(self.loose.iter().map(of_shard));
        all.fold((0, 0), |sum, (files, groups)| (sum.0 + files as usize, sum.1 + groups as usize))
    }

    /// Returns how many shards there are, and how many bytes their files have, of a source or of
    /// all, with the sums over the entries that count.
    pub fn extent(&self, source: Option<SourceId>) -> Result<(usize, u64, Totals)> {
        let is_asked = |id: SourceId| source.is_none_or(|asked| asked == id);
        let (mut shards, mut bytes, mut totals) = (0, 0, Totals::default());
        for (_, extent) in self.extents().filter(|(source, _)| is_asked(*source)) {
            shards += extent.shards as usize;
            bytes += extent.bytes;
            totals += extent.totals;
        }
        for shard in self.loose.iter().filter(|shard| is_asked(shard.record().source)) {
            shards += 1;
            bytes += shard.record().bytes();
            totals += shard.totals_below(SourcePath::ROOT)?;
        }
        Ok((shards, bytes, totals))
    }

    /// Returns whether the root of a source is an entry of its own here. In the view of one class
    /// it is not, unless that class has the record of it.
    pub fn shows_root(&self, source: &SourceRecord) -> bool {
        self.own_roots.as_ref().is_none_or(|roots| roots.contains(&source.id))
    }

    /// Returns whether a source is in an index that the caller has written, so that whatever is
    /// missing in it could not be read.
    pub fn is_of_caller(&self, source: SourceId) -> bool {
        source.is_in_own_index() || self.classes.all.is_some()
    }

    /// Returns whether this is the view of one class, and not what a user sees.
    pub fn is_one_class(&self) -> bool {
        self.own_roots.is_some()
    }

    /// Returns the tables that were added to the index, by name.
    pub fn tables(&self) -> &[TableRecord] {
        &self.tables.records
    }

    /// Returns the query of a derived table; `None` unless the caller is the writer of the index.
    pub fn table_query(&self, table: &str) -> Option<&str> {
        self.tables.queries.get(table).map(String::as_str)
    }

    /// Returns the files with rows of a derived table that the caller may read.
    pub fn table_files(&self, table: &str) -> Result<Vec<TableFile>> {
        let is_own = self.own_tables.contains(table);
        let counts = |bundle: &ReadBundle| !is_own || bundle.is_of_own_index();
        let mut files = Vec::new();
        for bundle in self.bundles.iter().filter(|it| it.has_tables() && counts(it)) {
            for class in &bundle.contents()?.tables {
                let own = class.files.iter().filter(|file| file.table == table);
                let file =
                    |file: &TableFileRecord| TableFile::new(file.clone(), &class.place.directory);
                files.extend(own.map(file));
            }
        }
        Ok(files)
    }

    /// Returns what is known of a scan that was interrupted, or is at work, and can go on: to whom
    /// writes the index.
    pub fn unfinished(&self) -> Option<Unfinished> {
        unfinished::about(&self.path, self.generation)
    }

    /// Returns how far a scan is that workers share, to whom writes the index.
    pub fn shared_scan(&self) -> Option<SharedProgress> {
        SharedProgress::of(&self.path)
    }

    /// Returns the sources that could not be indexed, by root; none unless the caller is the writer
    /// of the index.
    pub fn failures(&self) -> Result<Vec<Failure>> {
        Ok(Failures::read(&self.path)?.list())
    }

    /// Returns the sources that scans have found as they were, by root, to the writer of the index.
    pub fn checked(&self) -> Result<Vec<Checked>> {
        Ok(Failures::read(&self.path)?.checked().to_vec())
    }

    /// Returns a list of what the caller sees, or the directory of all that not everybody sees, if
    /// the kernel denies it to the caller: then answers may lack something. So it is where an index
    /// was copied without its permissions, its file system has no ACLs, or the caller has other
    /// numbers.
    pub fn denied_list(&self) -> Option<&Path> {
        self.denied_list.as_ref().map(|path| path.as_path())
    }

    /// Returns how many classes there are.
    pub fn classes(&self) -> Classes {
        self.classes
    }
}

fn denied(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns the users and groups as whom the kernel judges the caller's access to files.
pub(crate) fn caller(path: &Path) -> Result<Vec<Principal>> {
    let groups =
        rustix::process::getgroups().map_err(|errno| Error::io("read", path)(errno.into()))?;
    let gids = groups.into_iter().chain([rustix::process::getegid()]).map(|gid| gid.as_raw());
    let user = Principal::User(rustix::process::geteuid().as_raw());
    Ok(std::iter::once(user).chain(gids.map(Principal::Group)).collect())
}
