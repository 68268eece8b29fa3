//! Taking what newer listings replace out of the sealed records of a source.

use super::copying::{LISTINGS, copy_listings, copy_values, heads, place_of, read};
use super::cut::{Cut, between, kept_values, left_out_of, replaced_listings};
use super::replaced::Replaced;
use super::sources::Begun;
use super::{Held, Writer, Written};
use crate::builder::Builder;
use crate::column::*;
use crate::error::Result;
use crate::names::Secret;
use crate::pages::PageRecord;
use crate::schema::FileKind;
use crate::sealed::{Part, Sealed, SealedBuilder};
use crate::shard::{RowRange, Shard};
use canopy_model::{ClassId, join, join_absolute};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

impl Writer {
    /// Writes anew what stays of a source's sealed records. Those of what is in replaced listings
    /// are left out: the writer knows their paths from the rows of the listers. What lies behind
    /// other passages is sealed again without what is replaced.
    pub(super) fn cut_sealed(&self, number: u32, replaced: &Replaced) -> Result<()> {
        let Some(begun) = self.begun.get(&number) else { return Ok(()) };
        let mut files = Vec::new();
        for (&class, Held { manifest, .. }) in &self.classes {
            let directory = self.dirs.directory(&self.table, class);
            let own = manifest.sealed.iter().filter(|file| file.source == replaced.source);
            files.extend(own.map(|file| (class, Sealed::new(file.clone(), directory.clone()))));
        }
        if files.is_empty() {
            return Ok(());
        }
        let mut known = FxHashSet::default();
        for (_, file) in &files {
            known.extend(file.records()?.into_iter().map(|(hash, _)| hash));
        }
        let mut below = Below { known, found: FxHashMap::default() };
        let mut passages = FxHashSet::default();
        for (directory, alone) in replaced
            .whole()
            .map(|directory| (directory, false))
            .chain(replaced.alone().map(|directory| (directory, true)))
        {
            let path = join_absolute(&replaced.root, directory);
            let whole = !alone && replaced.holds_all_below(directory);
            if whole {
                let hash = self.names.hash(Secret::Passage, &path);
                below.add(hash, || Some(path.clone()));
            }
            let ends = path.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
            let ends = ends.chain(Some(path.len()).filter(|_| !whole));
            for passage in ends.map(|end| &path[..end]) {
                if below.known.contains(&self.names.hash(Secret::Passage, passage)) {
                    passages.insert(passage.to_owned());
                }
            }
        }
        let is_replaced = |_, page: &PageRecord| {
            replaced.whole().any(|directory| page.may_have_below(directory))
                || replaced.alone().any(|directory| page.may_have_at(directory))
        };
        for (_, shard) in self.shards_where(replaced.source, is_replaced)? {
            self.hash_entries(&shard, replaced, &mut below, &mut passages)?;
        }
        for (class, file) in files {
            let mut dropped: FxHashSet<[u8; 16]> = below.found.keys().copied().collect();
            let own: FxHashSet<[u8; 16]> =
                file.records()?.into_iter().map(|(hash, _)| hash).collect();
            let gone = below.found.iter().filter(|(hash, _)| own.contains(*hash));
            for passage in gone.filter_map(|(_, passage)| passage.as_ref()) {
                let parts = file.behind(&self.names, passage)?;
                self.read_gated(class, replaced.source)?;
                let gated = parts.iter().flat_map(|part| &part.shards);
                begun.cuts.lock().extend(gated.map(|shard| Cut::Gone(class, shard.id.clone())));
            }
            let mut rest = SealedBuilder::default();
            for passage in &passages {
                let hash = self.names.hash(Secret::Passage, passage);
                if own.contains(&hash)
                    && !dropped.contains(&hash)
                    && self.cut_behind(&file, passage, (class, begun), replaced, &mut rest)?
                {
                    dropped.insert(hash);
                }
            }
            let records = file.records()?;
            let kept = records.iter().filter(|(hash, _)| !dropped.contains(hash)).cloned();
            let kept: Vec<_> = kept.collect();
            if kept.len() == records.len() {
                continue;
            }
            begun.cuts.lock().push(Cut::Gone(class, file.id().to_owned()));
            if !rest.is_empty() {
                self.write_sealed(class, number, rest)?;
            }
            if !kept.is_empty() {
                let disk = &self.options.disk;
                let file = file.copy(disk, self.new_id(), &kept)?;
                let written = Written::Sealed { begun: number, file, gated: Vec::new() };
                self.shards.lock().push((class, written));
            }
        }
        Ok(())
    }

    /// Collects what stays behind a passage; returns false, and collects nothing, if all of it
    /// does.
    fn cut_behind(
        &self,
        file: &Sealed,
        passage: &str,
        (class, begun): (ClassId, &Begun),
        replaced: &Replaced,
        rest: &mut SealedBuilder,
    ) -> Result<bool> {
        let parts = file.behind(&self.names, passage)?;
        let gated: Vec<Vec<Shard>> = parts.iter().map(|part| file.open_shards(part)).collect();
        let is_replaced = |path: &str| replaced.holds(path);
        let mut holds = replaced.origin && parts.iter().any(|part| part.origin.is_some());
        for (part, shards) in parts.iter().zip(&gated) {
            holds |= part.rows.holds(Part::below_root(passage, &part.root), is_replaced);
            for shard in shards {
                holds |= !replaced_listings(shard, replaced)?.is_empty();
                let values = [0..shard.rows(FileKind::Xattrs)];
                holds |= kept_values(shard, &values, replaced)? != values;
            }
        }
        if !holds {
            return Ok(false);
        }
        let passage: Arc<str> = passage.into();
        self.read_gated(class, replaced.source)?;
        for (mut part, shards) in parts.into_iter().zip(gated) {
            // They hold the same rows.
            let listers = self.classes.keys().copied().find(|&class| {
                let place = self.dirs.place(&self.table, class);
                self.names.class_hash(place) == part.listers
            });
            let Some(listers) = listers else {
                return Err(file.corrupt("it names a class that the index does not have"));
            };
            let below = Part::below_root(&passage, &part.root);
            part.rows.cut(below, is_replaced);
            let mut builder = Builder::default();
            part.rows.unpack(&mut builder, below);
            for shard in shards {
                let mut at = 0;
                for gone in replaced_listings(&shard, replaced)? {
                    copy_listings(&shard, at..gone.start.max(at), &mut builder)?;
                    at = at.max(gone.end);
                }
                copy_listings(&shard, at..shard.rows(FileKind::Listings), &mut builder)?;
                let values = kept_values(&shard, &[0..shard.rows(FileKind::Xattrs)], replaced)?;
                copy_values(&shard, &values, &mut builder)?;
                begun.cuts.lock().push(Cut::Gone(class, shard.record().id.clone()));
            }
            rest.push_behind(&passage, listers, |rows| rows.append(builder));
            let gates = part.gates.iter().filter(|gate| !replaced.holds(gate));
            gates.for_each(|gate| rest.push_gate(&passage, listers, gate));
            if let Some(origin) = part.origin.filter(|_| !replaced.origin) {
                rest.set_origin(&passage, listers, origin);
            }
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
        below: &mut Below,
        open: &mut FxHashSet<String>,
    ) -> Result<()> {
        let left_out = left_out_of(shard, replaced)?;
        for directory in replaced.whole() {
            for live in shard.listings_below(directory)? {
                for listings in between(live, &left_out) {
                    self.hash_entries_of(shard, listings, (replaced, Some(&mut *open)), below)?;
                }
            }
        }
        for directory in replaced.alone() {
            for listings in shard.listings_at(directory)? {
                self.hash_entries_of(shard, listings, (replaced, None), below)?;
            }
        }
        Ok(())
    }

    fn hash_entries_of(
        &self,
        shard: &Shard,
        listings: RowRange,
        (replaced, mut open): (&Replaced, Option<&mut FxHashSet<String>>),
        below: &mut Below,
    ) -> Result<()> {
        for start in listings.clone().step_by(LISTINGS) {
            let chunk = start..listings.end.min(start + LISTINGS);
            let heads = heads(shard, &chunk)?;
            let (entries, dirs) = shard.rows_of_range(chunk.clone())?;
            for (kind, rows) in [(FileKind::Entries, entries), (FileKind::Dirs, dirs)] {
                for batch in read(shard, kind, LISTING | NAME, &[rows])? {
                    let batch = batch?;
                    let (ordinals, names) = (LISTING.of(&batch)?, NAME.of(&batch)?);
                    for (at, &ordinal) in ordinals.iter().enumerate() {
                        let head = &heads[place_of(shard, kind, &chunk, ordinal)?];
                        let own = join(&head.path, names.value(at));
                        let path = join_absolute(&replaced.root, &own);
                        below.add(self.names.hash(Secret::Entry, &path), || None);
                        let Some(open) = open.as_mut().filter(|_| kind == FileKind::Dirs) else {
                            continue;
                        };
                        let hash = self.names.hash(Secret::Passage, &path);
                        if replaced.holds_all_below(&own) {
                            below.add(hash, || Some(path.clone()));
                        } else if below.known.contains(&hash) {
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
struct Below {
    /// The hashes of all records of the source.
    known: FxHashSet<[u8; 16]>,
    /// Hashes of those of them that are replaced, with the path where it is a passage.
    found: FxHashMap<[u8; 16], Option<String>>,
}

impl Below {
    fn add(&mut self, hash: [u8; 16], passage: impl FnOnce() -> Option<String>) {
        if self.known.contains(&hash) {
            self.found.insert(hash, passage());
        }
    }
}
