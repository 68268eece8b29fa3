//! Taking replaced listings out of the sealed records of a source.
//!
//! Files of sealed records never change: the manifest marks dead records ([`Sealed::without`]).
//! Contents behind a passage are sealed again where they change; shards without changes stay. Once
//! a passage has several records, they become one.

use super::copying::{chunks, copy_listings, copy_values, heads, place_of, read};
use super::cut::{Cut, between, kept_values, left_out_of, replaced_listings};
use super::replaced::Replaced;
use super::sources::Begun;
use super::{Held, Writer, now_ns};
use crate::builder::Builder;
use crate::column::*;
use crate::error::Result;
use crate::listing_ordinal::{ListingOrdinal, ListingRange};
use crate::names::Secret;
use crate::pages::PageRecord;
use crate::schema::FileKind;
use crate::sealed::{Sealed, SealedBuilder, SealedPart};
use crate::shard::Shard;
use crate::source_id::SourceId;
use canopy_model::{AbsolutePath, ClassId, SourcePath, SourcePathBuf};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Records of what lies behind a passage from which on they become one.
const JOINED_RECORDS: u64 = 8;

/// A search of a file costs as much as taking so many hashes into memory.
const SEARCHED_SHARE: u64 = 16;

/// Changes of the sealed records of a source.
struct SealedCut<'a> {
    number: SourceId,
    begun: &'a Begun,
    replaced: &'a Replaced,
    /// Hashes of records that are replaced, with the passages among them.
    found: &'a FxHashMap<[u8; 16], Option<String>>,
    /// Passages behind which something is replaced.
    passages: &'a FxHashSet<String>,
}

impl Writer {
    /// Marks the sealed records of a source dead that belong to replaced listings; the writer knows
    /// their paths from the rows of the listers. Contents behind other passages are sealed again
    /// without the replaced listings.
    pub(super) fn cut_sealed(&self, number: SourceId, replaced: &Replaced) -> Result<()> {
        let Some(begun) = self.begun.get(&number) else { return Ok(()) };
        let mut classes: BTreeMap<ClassId, Vec<KnownFile>> = BTreeMap::new();
        for (&class, Held { manifest, .. }) in &self.classes {
            let directory = self.dirs.directory(&self.table, class);
            for file in manifest.sealed.iter().filter(|file| file.source == replaced.source) {
                let file = KnownFile::new(Sealed::new(file.clone(), directory.clone()));
                classes.entry(class).or_default().push(file);
            }
        }
        if classes.is_empty() {
            return Ok(());
        }
        let mut records = FoundRecords::new(&classes);
        let mut passages = FxHashSet::default();
        for (directory, alone) in replaced
            .whole()
            .map(|directory| (directory, false))
            .chain(replaced.alone().map(|directory| (directory, true)))
        {
            let path = directory.absolute(&replaced.root);
            let whole = !alone && replaced.holds_all_below(directory);
            if whole {
                let hash = self.names.hash(Secret::Passage, AbsolutePath::new(&path));
                records.add(hash, || Some(path.clone()))?;
            }
            let ends = path.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
            let ends = ends.chain(Some(path.len()).filter(|_| !whole));
            for passage in ends.map(|end| &path[..end]) {
                if records.knows(&self.names.hash(Secret::Passage, AbsolutePath::new(passage)))? {
                    passages.insert(passage.to_owned());
                }
            }
        }
        let is_replaced = |_, page: &PageRecord| {
            replaced.whole().any(|directory| page.extent.may_have_below(directory))
                || replaced.alone().any(|directory| page.extent.may_have_at(directory))
        };
        for (_, shard) in self.shards_where(replaced.source, is_replaced)? {
            self.hash_entries(&shard, replaced, &mut records, &mut passages)?;
        }
        let found = records.found;
        let (found, passages) = (&found, &passages);
        let cut = SealedCut { number, begun, replaced, found, passages };
        for (class, files) in classes {
            self.cut_sealed_of(class, files, &cut)?;
        }
        Ok(())
    }

    /// Takes note of what is dead in the files of a class: records that are found, with all behind
    /// them where they are passages, and what is replaced behind others.
    fn cut_sealed_of(
        &self,
        class: ClassId,
        mut files: Vec<KnownFile>,
        cut: &SealedCut<'_>,
    ) -> Result<()> {
        let SealedCut { number, begun, replaced, found, passages } = *cut;
        let mut dropped = vec![Vec::new(); files.len()];
        for (known, dropped) in files.iter_mut().zip(&mut dropped) {
            for hash in known.among(found)? {
                dropped.push(hash);
                let Some(passage) = &found[&hash] else { continue };
                let parts = known.file.behind(&self.names, AbsolutePath::new(passage))?;
                let gated = parts.iter().flat_map(|part| &part.shards);
                begun.cuts.lock().extend(gated.map(|shard| Cut::Gone(class, shard.id.clone())));
            }
        }
        let mut rest = SealedBuilder::default();
        for passage in passages {
            let hash = self.names.hash(Secret::Passage, AbsolutePath::new(passage));
            if found.contains_key(&hash) {
                continue;
            }
            let mut records = 0;
            for known in &mut files {
                records += if known.has(&hash)? { known.file.count_of(&hash)? } else { 0 };
            }
            let joins = records >= JOINED_RECORDS;
            for (known, dropped) in files.iter_mut().zip(&mut dropped) {
                if known.has(&hash)?
                    && self.cut_behind(&known.file, passage, class, cut, joins, &mut rest)?
                {
                    dropped.push(hash);
                }
            }
            if rest.is_full() || rest.bytes() > self.options.memory_bytes / 2 {
                self.write_sealed(class, number, std::mem::take(&mut rest))?;
            }
        }
        if dropped.iter().all(Vec::is_empty) {
            return Ok(());
        }
        // Read the pages whose shards behind passages will lose rows.
        self.read_gated(class, replaced)?;
        let now_ns = now_ns();
        for (KnownFile { file, .. }, dropped) in files.into_iter().zip(dropped) {
            if !dropped.is_empty() {
                begun.cuts.lock().push(match file.without(dropped, now_ns)? {
                    Some(record) => Cut::Sealed(class, Box::new(record)),
                    None => Cut::Gone(class, file.id().to_owned()),
                });
            }
        }
        if rest.is_empty() { Ok(()) } else { self.write_sealed(class, number, rest) }
    }

    /// Collects what stays behind a passage, to be sealed again. Returns false, and collects nothing,
    /// if the records can stay. `joins` asks for rows that are few to be sealed with others.
    fn cut_behind(
        &self,
        file: &Sealed,
        passage: &str,
        class: ClassId,
        cut: &SealedCut<'_>,
        joins: bool,
        rest: &mut SealedBuilder,
    ) -> Result<bool> {
        let SealedCut { begun, replaced, .. } = *cut;
        let parts = file.behind(&self.names, AbsolutePath::new(passage))?;
        let is_replaced = |path: SourcePath<'_>| replaced.holds(path);
        let mut holds = false;
        // Shards with whether something in them is replaced.
        let mut gated = Vec::new();
        for part in &parts {
            let below = SealedPart::below_root(passage, &part.root);
            holds |= joins && !part.rows.is_empty() || part.rows.holds(below, is_replaced);
            let mut own = Vec::new();
            for shard in file.open_shards(part) {
                let values = [0..shard.rows(FileKind::Xattrs)];
                let changes = !replaced_listings(&shard, replaced)?.is_empty()
                    || kept_values(&shard, &values, replaced)? != values;
                holds |= changes;
                own.push((shard, changes));
            }
            gated.push(own);
        }
        if !holds {
            return Ok(false);
        }
        let passage: Arc<str> = passage.into();
        for (mut part, shards) in parts.into_iter().zip(gated) {
            // They hold the same rows.
            let listers = self.classes.keys().copied().find(|&class| {
                let place = self.dirs.place(&self.table, class);
                self.names.class_hash(place) == part.listers
            });
            let Some(listers) = listers else {
                return Err(file.corrupt("it names a class that the index does not have"));
            };
            let below = SealedPart::below_root(&passage, &part.root);
            part.rows.cut(below, is_replaced);
            let mut builder = Builder::default();
            part.rows.unpack(&mut builder, below);
            for (shard, changes) in shards {
                if !changes {
                    rest.push_shard(&passage, listers, shard.record().clone());
                    continue;
                }
                let mut at = ListingOrdinal(0);
                for gone in replaced_listings(&shard, replaced)? {
                    copy_listings(&shard, at..gone.start.max(at), &mut builder)?;
                    at = at.max(gone.end);
                }
                copy_listings(&shard, at..shard.all_listings().end, &mut builder)?;
                let values = kept_values(&shard, &[0..shard.rows(FileKind::Xattrs)], replaced)?;
                copy_values(&shard, &values, &mut builder)?;
                begun.cuts.lock().push(Cut::Gone(class, shard.record().id.clone()));
            }
            if !builder.is_empty() {
                rest.push_behind(&passage, listers, |rows| rows.append(builder));
            }
            let gates =
                part.gates.iter().map(SourcePathBuf::as_path).filter(|gate| !replaced.holds(*gate));
            gates.for_each(|gate| rest.push_gate(&passage, listers, gate));
        }
        Ok(true)
    }

    /// Adds the hashes under which something in a replaced listing may be sealed: entries, and of a
    /// directory that is replaced with all below it, passages.
    /// Adds passages to `open` of which something behind stays.
    fn hash_entries(
        &self,
        shard: &Shard,
        replaced: &Replaced,
        records: &mut FoundRecords<'_>,
        open: &mut FxHashSet<String>,
    ) -> Result<()> {
        let left_out = left_out_of(shard, replaced)?;
        for directory in replaced.whole() {
            for live in shard.listings_below(directory)? {
                for listings in between(live, &left_out) {
                    self.hash_entries_of(shard, listings, replaced, Some(&mut *open), records)?;
                }
            }
        }
        for directory in replaced.alone() {
            for listings in shard.listings_at(directory)? {
                self.hash_entries_of(shard, listings, replaced, None, records)?;
            }
        }
        Ok(())
    }

    fn hash_entries_of(
        &self,
        shard: &Shard,
        listings: ListingRange,
        replaced: &Replaced,
        mut open: Option<&mut FxHashSet<String>>,
        records: &mut FoundRecords<'_>,
    ) -> Result<()> {
        for chunk in chunks(&listings) {
            let heads = heads(shard, &chunk)?;
            let (entries, dirs) = shard.rows_of_range(chunk.clone())?;
            for (kind, rows) in [(FileKind::Entries, entries), (FileKind::Dirs, dirs)] {
                for batch in read(shard, kind, LISTING | NAME, &[rows])? {
                    let batch = batch?;
                    let (ordinals, names) = (LISTING.of(&batch)?, NAME.of(&batch)?);
                    for (at, ordinal) in ordinals.iter().enumerate() {
                        let head = &heads[place_of(shard, kind, &chunk, ordinal)?];
                        let own = head.path.as_path().child(names.value(at));
                        let path = own.as_path().absolute(&replaced.root);
                        records.add(
                            self.names.hash(Secret::Entry, AbsolutePath::new(&path)),
                            || None,
                        )?;
                        let Some(open) = open.as_mut().filter(|_| kind == FileKind::Dirs) else {
                            continue;
                        };
                        let hash = self.names.hash(Secret::Passage, AbsolutePath::new(&path));
                        if replaced.holds_all_below(own.as_path()) {
                            records.add(hash, || Some(path.clone()))?;
                        } else if records.knows(&hash)? {
                            open.insert(path);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Sealed records of what is replaced.
struct FoundRecords<'f> {
    /// All files of the source.
    files: Vec<&'f Sealed>,
    /// How many records they have.
    records: u64,
    /// Files that were searched, each as often as it was.
    searches: u64,
    /// The hashes of all records that count, once it pays to have them.
    hashes: Option<FxHashSet<[u8; 16]>>,
    /// Hashes of records that are replaced, with the path where it is a passage.
    found: FxHashMap<[u8; 16], Option<String>>,
}

impl<'f> FoundRecords<'f> {
    fn new(classes: &'f BTreeMap<ClassId, Vec<KnownFile>>) -> Self {
        let files: Vec<&Sealed> = classes.values().flatten().map(|known| &known.file).collect();
        let records = files.iter().map(|file| file.record().records).sum();
        FoundRecords { files, records, searches: 0, hashes: None, found: FxHashMap::default() }
    }

    fn add(&mut self, hash: [u8; 16], passage: impl FnOnce() -> Option<String>) -> Result<()> {
        if self.knows(&hash)? {
            self.found.insert(hash, passage());
        }
        Ok(())
    }

    /// Returns whether a file has a record with this hash.
    fn knows(&mut self, hash: &[u8; 16]) -> Result<bool> {
        if let Some(hashes) = &self.hashes {
            return Ok(hashes.contains(hash));
        }
        self.searches += self.files.len() as u64;
        if self.searches * SEARCHED_SHARE < self.records {
            for file in &self.files {
                if file.count_of(hash)? > 0 {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        let mut hashes = FxHashSet::default();
        for file in &self.files {
            hashes.extend(file.live_hashes()?);
        }
        Ok(self.hashes.insert(hashes).contains(hash))
    }
}

/// A file of sealed records that is asked for hashes. Few are searched for on the disk; for many, all
/// are read.
struct KnownFile {
    file: Sealed,
    searches: u64,
    hashes: Option<FxHashSet<[u8; 16]>>,
}

impl KnownFile {
    fn new(file: Sealed) -> Self {
        KnownFile { file, searches: 0, hashes: None }
    }

    /// Returns whether a record with this hash counts.
    fn has(&mut self, hash: &[u8; 16]) -> Result<bool> {
        if self.hashes.is_none() {
            self.searches += 1;
            if self.searches * SEARCHED_SHARE < self.file.record().records {
                return Ok(self.file.count_of(hash)? > 0);
            }
            self.hashes = Some(self.file.live_hashes()?.collect());
        }
        Ok(self.hashes.as_ref().is_some_and(|hashes| hashes.contains(hash)))
    }

    /// Returns those of some hashes of which a record counts.
    fn among<T>(&mut self, some: &FxHashMap<[u8; 16], T>) -> Result<Vec<[u8; 16]>> {
        if some.len() as u64 * SEARCHED_SHARE >= self.file.record().records {
            let own: FxHashSet<[u8; 16]> =
                self.file.live_hashes()?.filter(|hash| some.contains_key(hash)).collect();
            return Ok(own.into_iter().collect());
        }
        let mut own = Vec::new();
        for hash in some.keys() {
            if self.has(hash)? {
                own.push(*hash);
            }
        }
        Ok(own)
    }
}
