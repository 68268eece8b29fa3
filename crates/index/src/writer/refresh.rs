//! Listing parts of a source again: which listings stay, and which go.
//!
//! 1. [`Writer::refresh_source`] begins; it is given the directories that will be listed again,
//!    alone or with all below them.
//! 2. A listing that is handed over and is unchanged, by its digests, is dropped, and the old one
//!    stays. The scan asks what was known of directories ([`Writer::known_subdirectories`],
//!    [`Writer::has_listing`]) and reports directories that must be listed with all below them
//!    ([`Writer::replaces`]).
//! 3. When all are handed over, [`Writer::replaced`] returns what they replace: the listings of all
//!    directories in 1 and 2 that were not kept, and all below directories that are gone.

use super::copying::{attributes, read, read_listings};
use super::replaced::{KeptListings, KeptValues, Replaced};
use super::sources::Begun;
use super::unread::Unread;
use super::{NewSource, Writer};
use crate::column::*;
use crate::digest::{DigestKey, Digester, Digests};
use crate::error::{Error, Result};
use crate::listing_ordinal::{ListingOrdinal, ListingRange};
use crate::pages::PageRecord;
use crate::schema::FileKind;
use crate::shard::Shard;
use crate::source_id::SourceId;
use crate::unfinished::{RemainingDirectory, RemainingExtent, UnfinishedSource};
use canopy_model::{
    Access, Attributes, ClassId, Device, FileType, Listing, SourcePath, SourcePathBuf,
};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How many directories that are listed alone are compared with what was known of them, at most:
/// of more, some have changed, and the look-ups would be for nothing.
const COMPARED_MAX: usize = 1000;

/// A source of which directories are listed again.
pub(super) struct Refresh {
    /// Its number.
    pub(super) source: SourceId,
    pub(super) shards: Vec<(ClassId, Shard)>,
    /// Listings that may be as they were, by the digest of their place.
    pub(super) known: FxHashMap<u64, KnownListing>,
    /// Those of them that are.
    pub(super) kept: Arc<KeptListings>,
    pub(super) key: DigestKey,
    /// Directories that are listed with all below them.
    pub(super) whole: RwLock<FxHashSet<SourcePathBuf>>,
    /// How many of these were asked for.
    pub(super) whole_asked: usize,
    /// Whether listings of all that was asked for are in `known`.
    pub(super) compares: bool,
    /// Those that are listed alone.
    alone: Vec<SourcePathBuf>,
    /// Whether listings that some users find by name alone are sealed.
    pub(super) seals: bool,
    /// State that decides whether a directory need not be read.
    pub(super) unread: Option<Unread>,
    /// Start of the resumed scan, if this is one.
    pub(super) scanned_ns: Option<i64>,
    /// Directories listed with all below them of which the index has nothing.
    pub(super) new: FxHashSet<SourcePathBuf>,
    /// Directories in some that are listed alone that were known, besides those of their listings.
    pub(super) dirs_known: FxHashMap<SourcePathBuf, Vec<String>>,
}

/// A directory of a source that is listed again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SelectedDirectory {
    /// Its path.
    pub path: SourcePathBuf,
    /// Whether all below it is listed, too.
    pub whole: bool,
}

/// Parts of a source that are listed again.
#[derive(Default)]
struct Selected {
    whole: FxHashSet<SourcePathBuf>,
    new: FxHashSet<SourcePathBuf>,
    alone: Vec<SourcePathBuf>,
    dirs_known: FxHashMap<SourcePathBuf, Vec<String>>,
    scanned_ns: Option<i64>,
    /// Whether it is known which of those that are listed alone are as they were.
    compares: bool,
}

/// A listing that the index has.
pub(super) struct KnownListing {
    pub(super) digests: Digests,
    /// Its shard, by its place in [`Refresh::shards`].
    pub(super) shard: u32,
    pub(super) ordinal: ListingOrdinal,
}

/// Counts of a thread, and the listings and values that it keeps.
#[derive(Clone, Default)]
pub(super) struct Seen {
    /// Entries that were handed over.
    pub(super) entries: u64,
    /// Those of them that stay as they were.
    pub(super) kept_entries: u64,
    /// How many listings were handed over.
    pub(super) listings: usize,
    /// How many of them are as they were.
    pub(super) same: usize,
    /// How many of these stay where they are.
    pub(super) kept: usize,
    /// Directories whose entries' values of extended attributes stay, as digests of their places.
    pub(super) kept_values: Vec<u64>,
    /// Directories that were listed alone, with the names of those in them.
    pub(super) alone: Vec<(SourcePathBuf, Vec<String>)>,
}

impl Seen {
    pub(super) fn append(&mut self, other: Seen) {
        self.entries += other.entries;
        self.kept_entries += other.kept_entries;
        self.listings += other.listings;
        self.same += other.same;
        self.kept += other.kept;
        self.kept_values.extend(other.kept_values);
        self.alone.extend(other.alone);
    }
}

impl Refresh {
    /// Returns whether a directory is listed with all below it.
    pub(super) fn is_whole(&self, path: SourcePath<'_>) -> bool {
        holds_or_above(&self.whole.read(), path)
    }

    /// Returns whether all of the source is listed again.
    pub(super) fn is_all(&self) -> bool {
        self.scanned_ns.is_some() || self.is_whole(SourcePath::ROOT)
    }

    /// Returns whether the index has nothing of a directory and all below it.
    pub(super) fn is_new(&self, path: SourcePath<'_>) -> bool {
        holds_or_above(&self.new, path)
    }

    /// Takes note of a listing; returns whether the one that the index has stays in its place.
    pub(super) fn takes_note(
        &self,
        listing: &Listing<'_>,
        digests: Digests,
        seen: &mut Seen,
    ) -> bool {
        let Listing { path, part, access, rows, .. } = *listing;
        if !self.is_whole(path) {
            let dirs = rows.iter().filter(|row| row.attributes.file_type() == FileType::Directory);
            let names = dirs.map(|row| row.name.to_owned()).collect();
            seen.alone.push((path.to_buf(), names));
        }
        seen.listings += 1;
        let place = self.key.of_place(path, part);
        let known = self.known.get(&place).filter(|known| known.digests == digests);
        let Some(known) = known else { return false };
        seen.same += 1;
        // Sealed contents are written anew as a whole.
        if self.seals && (access.listing.knowers.is_some() || access.lookup.is_some()) {
            return false;
        }
        if rows.has_xattrs() {
            // Values are known by their directory alone; those of the root itself come anew.
            let is_one_of_several =
                part > 0 || self.known.contains_key(&self.key.of_place(path, 1));
            if is_one_of_several || path.is_root() {
                return false;
            }
            seen.kept_values.push(place);
        }
        self.kept.add(known.shard, known.ordinal);
        seen.kept += 1;
        seen.kept_entries += rows.len() as u64;
        true
    }
}

impl Writer {
    /// Begins to list directories of a source again, by its root; returns the number to hand
    /// listings over under. When it has come to its end, the new listings replace the old ones;
    /// until then, nothing changes.
    pub fn refresh_source(
        &mut self,
        new: NewSource,
        selection: impl IntoIterator<Item = SelectedDirectory>,
    ) -> Result<SourceId> {
        let mut selected = Selected::default();
        for SelectedDirectory { path, whole } in selection {
            match whole {
                true => drop(selected.whole.insert(path)),
                false => selected.alone.push(path),
            }
        }
        selected.compares = selected.alone.len() <= COMPARED_MAX;
        self.begin_refresh(new, selected)
    }

    /// Goes on with a source whose scan was interrupted.
    pub fn resume_source(&mut self, new: NewSource, from: &UnfinishedSource) -> Result<SourceId> {
        let mut selected = Selected { scanned_ns: Some(from.scanned_ns), ..Selected::default() };
        for directory in &from.remaining {
            let path = directory.path.clone();
            match directory.extent {
                RemainingExtent::New => drop(selected.new.insert(path)),
                RemainingExtent::Whole => drop(selected.whole.insert(path)),
                RemainingExtent::Alone => {
                    if !directory.known.is_empty() {
                        selected.dirs_known.insert(path.clone(), directory.known.clone());
                    }
                    selected.alone.push(path);
                }
            }
        }
        selected.compares = selected.alone.len() <= COMPARED_MAX;
        self.begin_refresh(new, selected)
    }

    fn begin_refresh(&mut self, new: NewSource, selected: Selected) -> Result<SourceId> {
        self.settle();
        let sources = self.classes.values().flat_map(|held| &held.manifest.sources);
        let own = sources.filter(|source| source.root == new.root);
        let Some((source, name)) =
            own.max_by_key(|source| source.id).map(|source| (source.id, source.name.clone()))
        else {
            return Err(Error::NoSource(new.root));
        };
        let new_source = NewSource { name: Some(name), ..new };
        let Selected { mut whole, new, alone, dirs_known, scanned_ns, compares } = selected;
        let is_listed_again = |_, page: &PageRecord| {
            whole.iter().any(|directory| page.extent.may_have_below(directory.as_path()))
                || compares
                    && alone.iter().any(|directory| page.extent.may_have_at(directory.as_path()))
        };
        let shards = self.shards_where(source, is_listed_again)?;
        let key = self.digest_key;
        let mut known = FxHashMap::default();
        for (number, (_, shard)) in shards.iter().enumerate() {
            for directory in &whole {
                let listings = shard.listings_below(directory.as_path())?;
                read_known(shard, number as u32, &listings, key, &mut known)?;
            }
            for directory in alone.iter().filter(|_| compares) {
                let listings = shard.listings_at(directory.as_path())?;
                read_known(shard, number as u32, &listings, key, &mut known)?;
            }
            shard.close(FileKind::Listings);
        }
        whole.extend(new.iter().cloned());
        let kept = KeptListings::none(
            shards.iter().map(|(_, shard)| (&*shard.record().id, shard.rows(FileKind::Listings))),
        );
        let refresh = Refresh {
            source,
            known,
            kept: Arc::new(kept),
            shards,
            key,
            whole_asked: whole.len(),
            compares,
            whole: RwLock::new(whole),
            alone,
            seals: self.seals(new_source.layout()),
            unread: None,
            scanned_ns,
            new,
            dirs_known,
        };
        self.begin_source(new_source, None, Some(refresh))
    }

    /// Returns the names of directories that are known in a directory of a source that is listed
    /// again and are none of these.
    pub(super) fn names_gone(
        &self,
        refresh: &Refresh,
        path: SourcePath<'_>,
        names: &HashSet<String>,
    ) -> Result<Vec<String>> {
        let known = refresh.dirs_known.get(path.as_str()).into_iter().flatten();
        let mut gone: Vec<String> = known.filter(|name| !names.contains(*name)).cloned().collect();
        for shard in self.shards_at(refresh.source, path)? {
            gone.extend(names_gone(&shard, path, names)?);
        }
        Ok(gone)
    }

    pub(super) fn refresh(&self, begun: SourceId) -> Option<&Refresh> {
        self.begun.get(&begun)?.refresh.as_ref()
    }

    /// Returns the directories in a directory of a source that is listed again, by name, as the
    /// index has them.
    pub fn known_subdirectories(
        &self,
        begun: SourceId,
        path: SourcePath<'_>,
    ) -> Result<HashMap<String, Attributes>> {
        let mut found = HashMap::new();
        let Some(refresh) = self.refresh(begun) else { return Ok(found) };
        for shard in self.shards_at(refresh.source, path)? {
            let (_, dirs) = shard.rows_of(&shard.listings_at(path)?)?;
            for batch in read(&shard, FileKind::Dirs, INODE | NAME, &dirs)? {
                let batch = batch?;
                let names = NAME.of(&batch)?;
                for at in 0..batch.num_rows() {
                    found.insert(names.value(at).to_owned(), attributes(&batch, at)?);
                }
            }
        }
        Ok(found)
    }

    /// Returns whether the index has the listing of a directory of a source that is listed again,
    /// of the same inode and for those who may see it now.
    pub fn has_listing(
        &self,
        begun: SourceId,
        path: SourcePath<'_>,
        dev: Device,
        ino: u64,
        access: &Access,
    ) -> Result<bool> {
        let access = Digester::new(self.digest_key).of_access(access, &self.table);
        let mut has = false;
        let Some(refresh) = self.refresh(begun) else { return Ok(false) };
        for shard in self.shards_at(refresh.source, path)? {
            let listings = shard.listings_at(path)?;
            for batch in read_listings(&shard, DEV | INO | ACCESS, &listings)? {
                let batch = batch?;
                let (devs, inos) = (DEV.of(&batch)?, INO.of(&batch)?);
                let accesses = ACCESS.of(&batch)?;
                for at in 0..batch.num_rows() {
                    if (devs.value(at), inos[at], accesses[at]) != (dev, ino, access) {
                        return Ok(false);
                    }
                    has = true;
                }
            }
        }
        Ok(has)
    }

    /// Takes note that a directory of a source that is listed again is listed with all below it.
    pub fn replaces(&self, begun: SourceId, path: SourcePath<'_>) {
        if let Some(refresh) = self.refresh(begun) {
            refresh.whole.write().insert(path.to_buf());
        }
    }

    /// Returns whether the index stays as it is, since all of a source was listed again and is as
    /// it was. `nothing_new` says that nothing is to be written.
    pub(super) fn all_stays(&self, begun: &Begun, seen: &Seen, nothing_new: bool) -> bool {
        let Some(refresh) = &begun.refresh else { return false };
        let sealed = || self.classes.values().flat_map(|held| &held.manifest.sealed);
        nothing_new
            && refresh.is_whole(SourcePath::ROOT)
            && seen.kept == refresh.known.len()
            && sealed().all(|file| file.source != refresh.source)
    }

    /// Returns what the listings of a source that was begun replace, if anything, where these
    /// directories remain to be listed.
    pub(super) fn replaced(
        &self,
        begun: &Begun,
        seen: Seen,
        remaining: &[RemainingDirectory],
    ) -> Result<Option<Replaced>> {
        if let Some(above) = &begun.above {
            let whole = [above.path.clone()];
            return Ok(Some(Replaced::new(above.id, &above.root, whole, [], [])));
        }
        let Some(refresh) = &begun.refresh else { return Ok(None) };
        let (below, pending): (Vec<_>, Vec<_>) =
            remaining.iter().partition(|directory| directory.is_whole());
        let pending: FxHashSet<SourcePath<'_>> =
            pending.into_iter().map(|directory| directory.path.as_path()).collect();
        let alone = names_in(&seen.alone);
        let mut whole: Vec<SourcePathBuf> =
            refresh.whole.read().difference(&refresh.new).cloned().collect();
        for (path, names) in alone.iter().filter(|(path, _)| !pending.contains(&path.as_path())) {
            for gone in self.names_gone(refresh, path.as_path(), names)? {
                whole.push(path.as_path().child(&gone));
            }
        }
        let others = refresh.alone.iter().filter(|path| !pending.contains(&path.as_path()));
        let alone = alone.into_keys().chain(others.cloned());
        let below = below.into_iter().map(|directory| directory.path.clone());
        let mut replaced = Replaced::new(refresh.source, begun.root(), whole, below, alone);
        replaced.kept = refresh.kept.clone();
        let places = seen.kept_values.into_iter().collect();
        replaced.kept_values = KeptValues { key: refresh.key, places };
        Ok(Some(replaced))
    }

    /// Returns whether the record of a source and what is known of its root is replaced, too.
    pub(super) fn has_new_root(begun: &Begun) -> bool {
        begun.refresh.as_ref().is_none_or(|refresh| {
            refresh.is_whole(SourcePath::ROOT)
                || refresh.alone.iter().any(|path| path.as_path().is_root())
        })
    }
}

/// Returns the names of directories that were seen in directories listed alone, by path.
pub(super) fn names_in(
    alone: &[(SourcePathBuf, Vec<String>)],
) -> FxHashMap<SourcePathBuf, HashSet<String>> {
    let mut by_path: FxHashMap<SourcePathBuf, HashSet<String>> = FxHashMap::default();
    for (path, names) in alone {
        by_path.entry(path.clone()).or_default().extend(names.iter().cloned());
    }
    by_path
}

/// Returns whether a set has a directory or one above it.
fn holds_or_above(set: &FxHashSet<SourcePathBuf>, path: SourcePath<'_>) -> bool {
    let path = path.as_str();
    let ends = path.match_indices('/').map(|(at, _)| at);
    let mut ends = [0].into_iter().chain(ends).chain([path.len()]);
    ends.any(|end| set.contains(&path[..end]))
}

/// Adds listings of a shard to those that may be as they were.
fn read_known(
    shard: &Shard,
    number: u32,
    listings: &[ListingRange],
    key: DigestKey,
    known: &mut FxHashMap<u64, KnownListing>,
) -> Result<()> {
    let mut ordinals = ListingOrdinal::each(listings);
    for batch in read_listings(shard, PATH | PART | CONTENT | ACCESS, listings)? {
        let batch = batch?;
        let (paths, parts) = (PATH.of(&batch)?, PART.of(&batch)?);
        let (contents, accesses) = (CONTENT.of(&batch)?, ACCESS.of(&batch)?);
        for (at, ordinal) in (0..batch.num_rows()).zip(&mut ordinals) {
            let digests = Digests { content: contents[at], access: accesses[at] };
            let place = key.of_place(SourcePath::escaped(paths.value(at)), parts[at]);
            known.insert(place, KnownListing { digests, shard: number, ordinal });
        }
    }
    Ok(())
}

/// Returns the names of directories that the listing of a directory has and that are none of these.
fn names_gone(shard: &Shard, path: SourcePath<'_>, names: &HashSet<String>) -> Result<Vec<String>> {
    let mut gone = Vec::new();
    let (_, dirs) = shard.rows_of(&shard.listings_at(path)?)?;
    for batch in read(shard, FileKind::Dirs, NAME, &dirs)? {
        let batch = batch?;
        let known = NAME.of(&batch)?;
        let known = (0..batch.num_rows()).map(|at| known.value(at));
        gone.extend(known.filter(|name| !names.contains(*name)).map(str::to_owned));
    }
    Ok(gone)
}
