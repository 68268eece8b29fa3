//! Directories of a rescanned source that need not be read: those whose own attributes prove that
//! their listing is unchanged.
//!
//! A directory's times change when a name in it is made, removed or renamed, and its change time
//! whenever its own attributes do. So its listing has the same names under two conditions. Its
//! device and attributes are those of the listing that the index has. Its times were in the past
//! when that was read: by [`SETTLED_NS`] before the scan began, since two changes within one tick
//! of the clock of a file system leave equal times. More than names may have changed:
//! subdirectories are looked at, and other entries are taken to be unchanged.

use super::Writer;
use super::copying::{attributes, read, read_listings};
use super::refresh::{Refresh, Seen};
use crate::column::*;
use crate::digest::{DigestKey, Digester};
use crate::error::Result;
use crate::listing_ordinal::{ListingOrdinal, ListingRange};
use crate::schema::FileKind;
use crate::shard::Shard;
use crate::source_id::SourceId;
use canopy_model::{Attributes, ClassTable, DOUBTFUL_PART, Device, Listing, SourcePath};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// How long before the scan the times of a directory must be.
const SETTLED_NS: i64 = 2_000_000_000;

/// State that decides whether a directory need not be read.
pub(super) struct Unread {
    /// The listings whose directories have old times, by the digest of their place.
    settled: FxHashMap<u64, Settled>,
    /// The directories in them, by shard.
    subdirs: Vec<Subdirs>,
    digester: Mutex<Digester>,
    /// Listings kept so far.
    seen: Mutex<Seen>,
}

/// A listing whose directory has old times.
struct Settled {
    /// The digest of the directory by itself.
    directory: u64,
    entries: u64,
}

/// The directories in the listings of a shard, by row.
#[derive(Default)]
struct Subdirs {
    /// Ordinals of their listings; sorted.
    listings: Vec<ListingOrdinal>,
    /// Digests of them by themselves, without their devices.
    digests: Vec<u64>,
    /// Their names, one behind the other, and where each ends.
    names: String,
    ends: Vec<usize>,
}

impl Unread {
    fn new(refresh: &Refresh, scanned_ns: i64) -> Result<Self> {
        let mut settled = FxHashMap::default();
        let mut subdirs = Vec::with_capacity(refresh.shards.len());
        for (_, shard) in &refresh.shards {
            let listings = shard.live_listings()?;
            read_settled(shard, &listings, refresh.key, scanned_ns - SETTLED_NS, &mut settled)?;
            subdirs.push(Subdirs::read(shard, &listings, refresh.key)?);
            shard.close(FileKind::Listings);
            shard.close(FileKind::Dirs);
        }
        let digester = Mutex::new(Digester::new(refresh.key));
        Ok(Unread { settled, subdirs, digester, seen: Mutex::default() })
    }
}

impl Subdirs {
    fn read(shard: &Shard, listings: &[ListingRange], key: DigestKey) -> Result<Self> {
        let mut subdirs = Subdirs::default();
        let (_, rows) = shard.rows_of(listings)?;
        for batch in read(shard, FileKind::Dirs, INODE | LISTING | NAME, &rows)? {
            let batch = batch?;
            let names = NAME.of(&batch)?;
            subdirs.listings.extend(LISTING.of(&batch)?.iter());
            for at in 0..batch.num_rows() {
                subdirs.digests.push(key.of_directory(Device(0), &attributes(&batch, at)?));
                subdirs.names.push_str(names.value(at));
                subdirs.ends.push(subdirs.names.len());
            }
        }
        Ok(subdirs)
    }

    /// Returns the directories of a listing: their names and digests.
    fn of(&self, listing: ListingOrdinal) -> impl Iterator<Item = (&str, u64)> {
        let first = self.listings.partition_point(|&other| other < listing);
        let end = self.listings.partition_point(|&other| other <= listing);
        (first..end).map(|row| {
            let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
            (&self.names[start..self.ends[row]], self.digests[row])
        })
    }
}

impl Refresh {
    fn has_unread(
        &self,
        listing: &Listing<'_>,
        classes: &ClassTable,
        look: &mut dyn FnMut(&str) -> Option<Attributes>,
    ) -> bool {
        let Listing { path, dev, directory, access, .. } = *listing;
        // Sealed contents are written anew as a whole.
        let is_sealed = self.seals && (access.listing.knowers.is_some() || access.lookup.is_some());
        let Some(unread) = self.unread.as_ref().filter(|_| !is_sealed) else { return false };
        let access = unread.digester.lock().of_access(access, classes);
        let directory = self.key.of_directory(dev, directory);
        for part in 0.. {
            let doubtful = self.key.of_place(path, part | DOUBTFUL_PART);
            let place = self.key.of_place(path, part);
            let Some(known) = self.known.get(&place) else { return part > 0 };
            if self.known.contains_key(&doubtful) {
                return false;
            }
            let settled = unread.settled.get(&place);
            if known.digests.access != access
                || settled.is_none_or(|settled| settled.directory != directory)
            {
                return false;
            }
            for (name, digest) in unread.subdirs[known.shard as usize].of(known.ordinal) {
                let now = look(name).map(|now| self.key.of_directory(Device(0), &now));
                if now != Some(digest) {
                    return false;
                }
            }
        }
        true
    }

    /// Takes note that a listing stays; returns its entries.
    fn keeps(&self, path: SourcePath<'_>) -> u64 {
        let Some(unread) = &self.unread else { return 0 };
        let mut entries = 0;
        let mut seen = unread.seen.lock();
        seen.kept_values.push(self.key.of_place(path, 0));
        for part in 0.. {
            let place = self.key.of_place(path, part);
            let Some(known) = self.known.get(&place) else { break };
            self.kept.add(known.shard, known.ordinal);
            seen.listings += 1;
            seen.same += 1;
            seen.kept += 1;
            entries += unread.settled.get(&place).map_or(0, |settled| settled.entries);
        }
        seen.entries += entries;
        seen.kept_entries += entries;
        entries
    }

    /// Returns what was kept unread.
    pub(super) fn seen_unread(&self) -> Seen {
        self.unread.as_ref().map(|unread| unread.seen.lock().clone()).unwrap_or_default()
    }
}

impl Writer {
    /// Skips directories of a source that is listed again as a whole, if their times show that they
    /// need not be read. The source must be scanned as its record says.
    pub fn trust_directory_times(&mut self, begun: SourceId) -> Result<()> {
        let Some(refresh) = self.refresh(begun) else { return Ok(()) };
        let sources = self.classes.values().flat_map(|held| &held.manifest.sources);
        let own = sources.filter(|source| source.id == refresh.source);
        let Some(own) = own.max_by_key(|source| source.scanned_ns) else { return Ok(()) };
        let checked = self.failures.checked().iter().filter(|checked| checked.root == own.root);
        let checked_ns = checked.map(|checked| checked.scanned_ns).max().unwrap_or(i64::MIN);
        let scanned_ns = own.scanned_ns.max(checked_ns);
        let unread = Unread::new(refresh, scanned_ns)?;
        let refresh = self.begun.get_mut(&begun).and_then(|begun| begun.refresh.as_mut());
        if let Some(refresh) = refresh {
            refresh.unread = Some(unread);
        }
        Ok(())
    }

    /// Returns whether the listing of a directory, given without rows, is as the index has it
    /// though it was not read. `look` looks at directories in it, by name.
    pub fn has_unread(
        &self,
        begun: SourceId,
        listing: &Listing<'_>,
        look: &mut dyn FnMut(&str) -> Option<Attributes>,
    ) -> bool {
        let refresh = self.refresh(begun);
        refresh.is_some_and(|refresh| refresh.has_unread(listing, &self.table, look))
    }

    /// Takes note that a listing stays, given without rows, whose directory was not read; returns
    /// how many entries it has.
    pub fn keeps(&self, begun: SourceId, listing: &Listing<'_>) -> u64 {
        self.note_limits(listing);
        self.refresh(begun).map_or(0, |refresh| refresh.keeps(listing.path))
    }
}

/// Adds the listings of a shard whose directories have times before `old_ns`.
fn read_settled(
    shard: &Shard,
    listings: &[ListingRange],
    key: DigestKey,
    old_ns: i64,
    settled: &mut FxHashMap<u64, Settled>,
) -> Result<()> {
    let columns = INODE | PATH | PART | DEV | FILES | SYMLINKS | OTHERS | SUBDIRS;
    for batch in read_listings(shard, columns, listings)? {
        let batch = batch?;
        let (paths, parts, devs) = (PATH.of(&batch)?, PART.of(&batch)?, DEV.of(&batch)?);
        let counts =
            [FILES.of(&batch)?, SYMLINKS.of(&batch)?, OTHERS.of(&batch)?, SUBDIRS.of(&batch)?];
        for at in 0..batch.num_rows() {
            let directory = attributes(&batch, at)?;
            if directory.mtime_ns.max(directory.ctime_ns) > old_ns {
                continue;
            }
            let directory = key.of_directory(devs.value(at), &directory);
            let entries = counts.iter().map(|counts| counts[at].cast_unsigned()).sum();
            let place = key.of_place(SourcePath::escaped(paths.value(at)), parts[at]);
            settled.insert(place, Settled { directory, entries });
        }
    }
    Ok(())
}
