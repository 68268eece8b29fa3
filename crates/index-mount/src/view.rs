//! The view of the user that this process belongs to: entries, directories, extended attributes and
//! results of queries, by their paths from the root of the mount.
//!
//! The kernel has decided which files of the index could be opened. Nothing here looks at the live
//! file system.

use crate::listing::{Item, Listing, Listings, above, read};
use crate::protocol::{
    Entry, Failure, Folder, KnownEntry, PAGE_BYTES, PATH_BYTES_MAX, ReplyKind, RequestKind,
};
use crate::search::Search;
use crate::xattrs::Values;
use canopy_fuse::attributes::ERROR;
use canopy_fuse::results::{BYTES_MAX, Hits, NAME_BYTES_MAX, is_query};
use canopy_index::{FileKind, Index, SourceRecord};
use canopy_model::{
    AbsolutePath, Device, SourcePath, Wanted, escape, is_below, join_absolute, unescape,
    xattr_names,
};
use canopy_model::{XattrAccess, base_name};
use canopy_read::links::parent_of;
use canopy_read::locate::{look_up, may_search, permits, source_of};
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often to look for a new generation.
const RENEWAL: Duration = Duration::from_secs(1);

/// Results of a query are looked up by name for so long.
const FRESH: Duration = Duration::from_secs(10);

/// Queries whose results are kept, the latest ones.
const KEPT_MAX: usize = 4;

/// How many reasons for refusals are kept.
const REFUSALS_MAX: usize = 16;

/// Entries that open directories may have together.
const OPEN_ENTRIES_MAX: usize = 4_000_000;

/// Memory that the results of open queries may take together.
const OPEN_RESULTS_BYTES_MAX: usize = 2 * BYTES_MAX;

/// Opens the indexes that the user reads, which are one or two.
pub type Opener = Arc<dyn Fn() -> canopy_index::Result<Vec<Index>> + Send + Sync>;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure { errno: errno as i32, log: None }
    }
}

impl From<canopy_index::Error> for Failure {
    fn from(error: canopy_index::Error) -> Self {
        Failure { errno: Errno::EIO as i32, log: Some(error.to_string()) }
    }
}

impl From<canopy_read::Error> for Failure {
    fn from(error: canopy_read::Error) -> Self {
        Failure { errno: Errno::EIO as i32, log: Some(error.to_string()) }
    }
}

/// One generation, and the parts of it that were read.
pub(crate) struct Opened {
    pub(crate) index: Index,
    /// The path that the root of the mount stands for, absolute and escaped.
    root: String,
    stamps: Vec<(PathBuf, Stamp)>,
    listings: Mutex<Listings>,
    values: Values,
    /// Whether there are values of extended attributes at all.
    has_values: bool,
}

/// Facts that change when a generation is published: device, inode and time of `CURRENT`.
type Stamp = Option<(u64, u64, i64, i64)>;

/// The entry at a path.
pub(crate) struct Found {
    /// Absolute, escaped.
    pub(crate) absolute: String,
    pub(crate) item: Item,
}

/// Contents of a directory.
enum Inside {
    Listed(Arc<Listing>),
    /// Unknown contents; whether single names may be looked up.
    Unlisted(bool),
}

struct CachedHits {
    folder: Folder,
    at: Instant,
    hits: Arc<Hits>,
}

#[derive(Clone)]
enum Open {
    Listing(Arc<Listing>),
    Results(Arc<Hits>),
}

/// The view of one user. Threads may ask at once.
pub(crate) struct UserView {
    opener: Opener,
    root: String,
    opened: Mutex<Option<(Arc<Opened>, Instant)>>,
    open: Mutex<HashMap<u64, Open>>,
    kept: Mutex<Vec<CachedHits>>,
    refusals: Mutex<VecDeque<Refusal>>,
}

/// Why the last query below a directory was refused: its path from the root of the mount, and why.
type Refusal = (Vec<u8>, String);

impl UserView {
    /// Nothing is opened yet. `root` is the path that the root of the mount stands for, escaped.
    pub(crate) fn new(opener: Opener, root: String) -> Self {
        let (opened, open, kept) = (Mutex::default(), Mutex::default(), Mutex::default());
        UserView { opener, root, opened, open, kept, refusals: Mutex::default() }
    }

    /// Answers a question.
    pub(crate) fn answer(&self, asked: &RequestKind) -> Result<ReplyKind> {
        let reply = self.dispatch(asked);
        if let Err(Failure { log: Some(why), .. }) = &reply {
            self.note_refusal(asked, why);
        }
        let mut reply = reply?;
        // Names that only root is shown are not among those of an entry.
        if rustix::process::geteuid().is_root() && self.opened()?.has_values {
            match &mut reply {
                ReplyKind::Entry(entry, _) => entry.has_xattrs = true,
                ReplyKind::Page(entries, _) => {
                    entries.iter_mut().for_each(|(_, entry)| entry.has_xattrs = true);
                }
                _ => {}
            }
        }
        Ok(reply)
    }

    fn dispatch(&self, asked: &RequestKind) -> Result<ReplyKind> {
        match asked {
            RequestKind::Lookup(folder, name) => self.look_up(folder, name),
            RequestKind::Attributes(place) => {
                let (found, path) = self.opened()?.resolve(place)?;
                Ok(ReplyKind::Entry(found.item.entry, path))
            }
            RequestKind::List { folder, handle, first } => self.list(folder, *handle, *first),
            RequestKind::Close(handle) => {
                self.open.lock().remove(handle);
                Ok(ReplyKind::Done)
            }
            RequestKind::XattrNames(place) => {
                let opened = self.opened()?;
                let (found, _) = opened.resolve(place)?;
                let names = opened.xattr_names(&found)?;
                let list = names.iter().flat_map(|name| {
                    let name = unescape(name).into_owned();
                    name.into_iter().chain([0])
                });
                Ok(ReplyKind::Bytes(list.collect()))
            }
            RequestKind::Xattr(place, name) => {
                if name == ERROR.as_bytes()
                    && let Some(why) = self.refusal(place)
                {
                    return Ok(ReplyKind::Bytes(why.into_bytes()));
                }
                let opened = self.opened()?;
                let (found, _) = opened.resolve(place)?;
                opened.xattr(&found, &escape(name)).map(ReplyKind::Bytes)
            }
            RequestKind::Access(place, mask) => {
                let opened = self.opened()?;
                let (found, _) = opened.resolve(place)?;
                opened.check_access(&found, *mask)?;
                Ok(ReplyKind::Done)
            }
        }
    }

    /// Notes why a query was refused, for the user to read.
    fn note_refusal(&self, asked: &RequestKind, why: &str) {
        let (RequestKind::Lookup(folder, _) | RequestKind::List { folder, .. }) = asked else {
            return;
        };
        let Some(path) = folder.place.paths.first().filter(|_| why.starts_with("the query "))
        else {
            return;
        };
        let mut refusals = self.refusals.lock();
        refusals.retain(|(below, _)| below != path);
        if refusals.len() >= REFUSALS_MAX {
            refusals.pop_front();
        }
        refusals.push_back((path.clone(), why.to_owned()));
    }

    /// Returns why the last query below a directory was refused.
    fn refusal(&self, place: &KnownEntry) -> Option<String> {
        let refusals = self.refusals.lock();
        let path = place.paths.first()?;
        refusals.iter().find(|(below, _)| below == path).map(|(_, why)| why.clone())
    }

    /// Returns whether answering takes a search.
    pub(crate) fn is_search(asked: &RequestKind) -> bool {
        match asked {
            RequestKind::Lookup(folder, name) => !folder.queries.is_empty() && !is_query(name),
            RequestKind::List { folder, .. } => !folder.queries.is_empty(),
            _ => false,
        }
    }

    /// Returns the current generation.
    fn opened(&self) -> Result<Arc<Opened>> {
        let mut last = self.opened.lock();
        if let Some((opened, looked)) = &mut *last {
            if looked.elapsed() < RENEWAL {
                return Ok(opened.clone());
            }
            *looked = Instant::now();
            if opened.is_current() {
                return Ok(opened.clone());
            }
        }
        let opened = Arc::new(Opened::new(&self.opener, &self.root)?);
        self.kept.lock().clear();
        *last = Some((opened.clone(), Instant::now()));
        Ok(opened)
    }

    fn look_up(&self, folder: &Folder, name: &[u8]) -> Result<ReplyKind> {
        let opened = self.opened()?;
        if !folder.queries.is_empty() {
            if is_query(name) {
                return Search::check(&folder.queries, Some(name)).map(|()| ReplyKind::Query);
            }
            // It may have come since.
            let kept = self.kept(folder).filter(|hits| hits.find(name).is_some());
            let hits = kept.map_or_else(|| self.find(&opened, folder), Ok)?;
            let number = hits.find(name).ok_or(Errno::ENOENT)?;
            return Ok(ReplyKind::Entry(link_to(&hits, number), Vec::new()));
        }
        let (directory, path) = opened.resolve(&folder.place)?;
        let named = opened.child(&directory, name);
        match named {
            Ok(found) => {
                let path = [&*path, if path.is_empty() { b"" } else { b"/" }, name].concat();
                if path.len() > PATH_BYTES_MAX {
                    return Err(Errno::ENAMETOOLONG.into());
                }
                Ok(ReplyKind::Entry(found.item.entry, path))
            }
            Err(failure) if failure.errno == Errno::ENOENT as i32 && is_query(name) => {
                Search::check(&[], Some(name)).map(|()| ReplyKind::Query)
            }
            Err(failure) => Err(failure),
        }
    }

    fn list(&self, folder: &Folder, handle: u64, first: u64) -> Result<ReplyKind> {
        let known = self.open.lock().get(&handle).cloned();
        let open = match known {
            Some(open) => open,
            // Listings that ended with another process are made again.
            None => {
                let opened = self.opened()?;
                let open = match folder.queries.is_empty() {
                    true => Open::Listing(opened.list(&opened.resolve(&folder.place)?.0)?),
                    false => Open::Results(self.find(&opened, folder)?),
                };
                let mut all = self.open.lock();
                let count: usize = all.values().map(Open::len).sum();
                if !all.is_empty() && count + open.len() > OPEN_ENTRIES_MAX {
                    return Err(Errno::EMFILE.into());
                }
                let bytes: usize = all.values().map(Open::result_bytes).sum();
                if bytes > 0 && bytes + open.result_bytes() > OPEN_RESULTS_BYTES_MAX {
                    return Err(Errno::ENOMEM.into());
                }
                all.insert(handle, open.clone());
                open
            }
        };
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let (mut page, mut bytes) = (Vec::new(), 0);
        for at in first..open.len() {
            let (name, entry) = open.entry(at);
            bytes += name.len() + entry.target.len() + 64;
            page.push((name, entry));
            if bytes > PAGE_BYTES {
                break;
            }
        }
        let is_more = first.saturating_add(page.len()) < open.len();
        Ok(ReplyKind::Page(page, is_more))
    }

    fn kept(&self, folder: &Folder) -> Option<Arc<Hits>> {
        let kept = self.kept.lock();
        let mut fresh = kept.iter().filter(|one| one.at.elapsed() < FRESH);
        fresh.find(|one| one.folder == *folder).map(|one| one.hits.clone())
    }

    /// Searches below a directory, and keeps the results for looking names up.
    fn find(&self, opened: &Opened, folder: &Folder) -> Result<Arc<Hits>> {
        let (base, _) = opened.resolve(&folder.place)?;
        if !base.item.entry.is_directory() {
            return Err(Errno::ENOTDIR.into());
        }
        let view = opened.index.seen_from(AbsolutePath::new(&base.absolute))?;
        let hits = Arc::new(Search::run(&view, &base.absolute, &folder.queries)?);
        let mut kept = self.kept.lock();
        kept.retain(|one| one.at.elapsed() < FRESH && one.folder != *folder);
        let bytes = |kept: &[CachedHits]| kept.iter().map(|one| one.hits.bytes()).sum::<usize>();
        while !kept.is_empty()
            && (kept.len() >= KEPT_MAX || bytes(&kept) + hits.bytes() > BYTES_MAX)
        {
            kept.remove(0);
        }
        kept.push(CachedHits { folder: folder.clone(), at: Instant::now(), hits: hits.clone() });
        Ok(hits)
    }
}

impl Open {
    fn len(&self) -> usize {
        match self {
            Open::Listing(listing) => listing.items.len(),
            Open::Results(hits) => hits.count(),
        }
    }

    /// Returns the memory that the results of a query take.
    fn result_bytes(&self) -> usize {
        match self {
            Open::Listing(_) => 0,
            Open::Results(hits) => hits.bytes(),
        }
    }

    fn entry(&self, at: usize) -> (Vec<u8>, Entry) {
        match self {
            Open::Listing(listing) => {
                let item = &listing.items[at];
                (item.name.to_vec(), item.entry.clone())
            }
            Open::Results(hits) => (hits.name(at).to_vec(), link_to(hits, at)),
        }
    }
}

/// Returns the attributes of the link to a result. The link has no number of its own.
fn link_to(hits: &Hits, number: usize) -> Entry {
    let (about, target) = (hits.about(number), hits.target(number));
    Entry {
        mode: 0o120_777,
        nlink: 1,
        uid: about.uid,
        gid: about.gid,
        size: target.len() as u64,
        blksize: 4096,
        atime_ns: about.atime_ns,
        mtime_ns: about.mtime_ns,
        ctime_ns: about.ctime_ns,
        btime_ns: about.btime_ns,
        target,
        ..Entry::default()
    }
}

impl Opened {
    fn new(opener: &Opener, root: &str) -> Result<Self> {
        let indexes = opener().map_err(|error| {
            let errno = match &error {
                canopy_index::Error::NoIndex(_) | canopy_index::Error::NotComplete { .. } => {
                    Errno::ENOENT
                }
                canopy_index::Error::Io { source, .. } => {
                    source.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
                }
                _ => Errno::EIO,
            };
            // Nothing is missing in the mount, and nobody's rights there are at fault.
            let errno = if errno == Errno::ENOENT { Errno::EIO } else { errno };
            Failure { errno: errno as i32, log: Some(error.to_string()) }
        })?;
        let stamps = indexes.iter().map(stamp).collect();
        let mut indexes = indexes.into_iter();
        let first = indexes.next().ok_or(Errno::EIO)?;
        let index = indexes.fold(first, Index::joined).flattened();
        let has_values = index.file_counts(FileKind::Xattrs).0 > 0;
        let (listings, values) = (Mutex::default(), Values::default());
        Ok(Opened { index, root: root.to_owned(), stamps, listings, values, has_values })
    }

    fn is_current(&self) -> bool {
        self.stamps.iter().all(|(path, then)| stamp_of(path) == *then)
    }

    /// Returns the absolute path that a path from the root of the mount stands for.
    fn absolute(&self, path: &[u8]) -> String {
        match path {
            b"" => self.root.clone(),
            path => join_absolute(&self.root, &escape(path)),
        }
    }

    /// Returns the entry at the first of the paths that leads to it, and that path.
    fn resolve(&self, place: &KnownEntry) -> Result<(Found, Vec<u8>)> {
        let mut failed: Option<Failure> = None;
        for path in &place.paths {
            match self.at(path) {
                Ok(found) if place.inode.is_none_or(|inode| inode == found.identity()) => {
                    return Ok((found, path.clone()));
                }
                // Another file is there now.
                Ok(_) => failed = failed.or(Some(Errno::ESTALE.into())),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        Err(failed.unwrap_or(Errno::ENOENT.into()))
    }

    fn at(&self, path: &[u8]) -> Result<Found> {
        let absolute = self.absolute(path);
        if path.is_empty() {
            return self.alone(absolute);
        }
        let above = parent_of(&absolute);
        match self.inside(above)? {
            Inside::Listed(listing) => {
                let item = listing.get(&unescape(base_name(&absolute))).ok_or(Errno::ENOENT)?;
                Ok(Found { item: item.clone(), absolute })
            }
            Inside::Unlisted(may_search) => {
                self.alone(absolute).map_err(|failure| {
                    match may_search || failure.errno != Errno::ENOENT as i32 {
                        true => failure,
                        false => Errno::EACCES.into(),
                    }
                })
            }
        }
    }

    /// Returns the entry at an absolute path without looking at the directory that it is in.
    fn alone(&self, absolute: String) -> Result<Found> {
        let view = self.index.seen_from(AbsolutePath::new(&absolute))?;
        let Some((source, path)) = source_of(&view, AbsolutePath::new(&absolute)) else {
            let is_above = view.sources().iter().any(|source| is_under(&source.root, &absolute));
            if !is_above && absolute != self.root {
                return Err(Errno::ENOENT.into());
            }
            let item = Item::above_sources(base_name(&absolute), view.published_ns());
            return Ok(Found { item, absolute });
        };
        let inode = look_up(&view, source, path)?.ok_or(Errno::ENOENT)?;
        Ok(Found { item: Item::new(base_name(&absolute), inode), absolute })
    }

    fn child(&self, directory: &Found, name: &[u8]) -> Result<Found> {
        if !directory.item.entry.is_directory() {
            return Err(Errno::ENOTDIR.into());
        }
        if name.len() > NAME_BYTES_MAX {
            // Queries may be longer.
            let errno = if is_query(name) { Errno::ENOENT } else { Errno::ENAMETOOLONG };
            return Err(errno.into());
        }
        let absolute = join_absolute(&directory.absolute, &escape(name));
        match self.inside(&directory.absolute)? {
            Inside::Listed(listing) => {
                let item = listing.get(name).ok_or(Errno::ENOENT)?.clone();
                Ok(Found { absolute, item })
            }
            Inside::Unlisted(may_search) => {
                self.alone(absolute).map_err(|failure| {
                    match may_search || failure.errno != Errno::ENOENT as i32 {
                        true => failure,
                        false => Errno::EACCES.into(),
                    }
                })
            }
        }
    }

    /// Returns the contents of the directory at an absolute path.
    fn inside(&self, absolute: &str) -> Result<Inside> {
        if let Some(listing) = self.listings.lock().get(absolute) {
            return Ok(Inside::Listed(listing));
        }
        let view = self.index.seen_from(AbsolutePath::new(absolute))?;
        let listing = match source_of(&view, AbsolutePath::new(absolute)) {
            None => above(&view, absolute, &self.root)?,
            Some((source, path)) => match read(&view, source, path)? {
                Some(listing) => listing,
                None => {
                    let inode = look_up(&view, source, path)?.ok_or(Errno::EACCES)?;
                    return Ok(Inside::Unlisted(may_search(&view, source, path, &inode)?));
                }
            },
        };
        let listing = Arc::new(listing);
        self.listings.lock().insert(absolute, listing.clone());
        Ok(Inside::Listed(listing))
    }

    fn list(&self, directory: &Found) -> Result<Arc<Listing>> {
        if !directory.item.entry.is_directory() {
            return Err(Errno::ENOTDIR.into());
        }
        match self.inside(&directory.absolute)? {
            Inside::Listed(listing) => Ok(listing),
            Inside::Unlisted(_) => Err(Errno::EACCES.into()),
        }
    }

    /// Calls `work` with the source of an entry and the path in it; `None` above all sources.
    fn in_source<T>(
        &self,
        found: &Found,
        work: impl FnOnce(&Index, &SourceRecord, SourcePath<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let view = self.index.seen_from(AbsolutePath::new(&found.absolute))?;
        match source_of(&view, AbsolutePath::new(&found.absolute)) {
            Some((source, path)) => work(&view, source, path).map(Some),
            None => Ok(None),
        }
    }

    fn xattr_names(&self, found: &Found) -> Result<Vec<String>> {
        let names = xattr_names::decode(&found.item.xattrs);
        let mut names: Vec<String> = names.map(|name| name.into_owned()).collect();
        if rustix::process::geteuid().is_root() {
            let values = self.in_source(found, |view, source, path| {
                self.values.of(&self.index, view, source, path)
            })?;
            names.extend(values.into_iter().flatten().map(|(name, _)| name));
            names.sort();
            names.dedup();
        }
        Ok(names)
    }

    fn xattr(&self, found: &Found, name: &str) -> Result<Vec<u8>> {
        let is_known = xattr_names::has(&found.item.xattrs, name);
        let privileged = XattrAccess::of(name) == XattrAccess::Privilege;
        let sees_all = privileged && rustix::process::geteuid().is_root();
        if !is_known && !sees_all {
            return Err(Errno::ENODATA.into());
        }
        let values = self.in_source(found, |view, source, path| {
            self.values.of(&self.index, view, source, path)
        })?;
        let value = values.into_iter().flatten().find(|(key, _)| key == name);
        match value {
            Some((_, value)) => Ok(unescape(&value).into_owned()),
            None if is_known && XattrAccess::of(name) == XattrAccess::Read => {
                Err(Errno::EACCES.into())
            }
            None => Err(Errno::ENODATA.into()),
        }
    }

    /// Fails unless access(2) would grant some bits.
    fn check_access(&self, found: &Found, mask: u32) -> Result<()> {
        const READ: u32 = 4;
        const WRITE: u32 = 2;
        const EXECUTE: u32 = 1;
        if mask & WRITE != 0 {
            return Err(Errno::EROFS.into());
        }
        let is_directory = found.item.entry.is_directory();
        let granted = self.in_source(found, |view, source, path| {
            let inode = look_up(view, source, path)?.ok_or(Errno::ENOENT)?;
            let may = |wanted| permits(view, source, path, &inode, wanted);
            let reads = mask & READ == 0 || may(Wanted::READ)?;
            let enters = match mask & EXECUTE != 0 {
                false => true,
                true if is_directory => may_search(view, source, path, &inode)?,
                true => may(Wanted::EXECUTE)?,
            };
            Ok(reads && enters)
        })?;
        match granted {
            Some(false) => Err(Errno::EACCES.into()),
            _ => Ok(()),
        }
    }
}

impl Found {
    fn identity(&self) -> (Device, u64) {
        (self.item.entry.dev, self.item.entry.ino)
    }
}

fn stamp(index: &Index) -> (PathBuf, Stamp) {
    let path = index.path().join("CURRENT");
    let stamp = stamp_of(&path);
    (path, stamp)
}

fn stamp_of(path: &Path) -> Stamp {
    let about = path.metadata().ok()?;
    Some((about.dev(), about.ino(), about.mtime(), about.mtime_nsec()))
}

/// Returns whether an absolute path lies below a directory, or is it.
pub(crate) fn is_under(path: &str, directory: &str) -> bool {
    is_below(path.trim_start_matches('/'), directory.trim_start_matches('/'))
}
