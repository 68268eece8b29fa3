//! Taking a directory and all below it out of the shards of a source, so that another scan of it
//! takes their place.
//!
//! 1. Find which of the source's shards hold anything at or below the directory: listings, values
//!    of extended attributes.
//! 2. Write what else they hold as new shards. Shards that hold nothing else are left out, and all
//!    others are not touched.
//! 3. Do the same with sealed records.
//!
//! The row of the directory itself, its values and its sealed record belong to the listing that it
//! is in, and stay.

use super::sources::{Above, Begun};
use super::{Held, Writer, Written};
use crate::builder::{Builder, Value};
use crate::column::*;
use crate::error::Result;
use crate::names::Secret;
use crate::schema::FileKind;
use crate::sealed::{Part, Sealed, SealedBuilder};
use crate::shard::{ClassDir, RowRange, Shard};
use arrow::array::{Array, RecordBatch};
use canopy_model::{
    Access, Attributes, ClassId, Listing, Rows, Xattr, is_below, join, join_absolute, xattr_names,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// Listings whose entries are in memory at a time.
const LISTINGS: usize = 4096;

/// The columns that an entry is made of.
const ENTRY: [ColumnId; 5] = [NAME.id(), LISTING.id(), XATTRS.id(), TARGET.id(), RDEV.id()];

impl Writer {
    /// Writes anew what stays of the shards of a source when what is at and below `above` goes, for
    /// the subtree that was begun under this number.
    pub(super) fn cut(&self, subtree: u32, above: &Above) -> Result<()> {
        let Some(begun) = self.begun.get(&subtree) else { return Ok(()) };
        let shards = self.shards_of(above.id);
        for (class, shard) in shards {
            let listings = shard.all_listings_below(&above.path)?;
            if listings.is_empty() && !holds_values(&shard, &above.path)? {
                continue;
            }
            let mut rest = Builder::default();
            for kept in [0..listings.start, listings.end..shard.rows(FileKind::Listings)] {
                self.copy_listings(&shard, kept, &mut rest)?;
            }
            copy_values(&shard, &above.path, &mut rest)?;
            begun.cut.lock().push((class, shard.record().id.clone()));
            if !rest.is_empty() {
                let id = self.write_shard(class, subtree, rest)?;
                begun.rewritten.lock().insert(id);
            }
        }
        self.cut_sealed(subtree, begun, above)
    }

    /// Writes anew what stays of a source's sealed records. Those of paths at or below the directory
    /// are left out: the writer knows these paths from the rows of the listers. What lies behind
    /// the passages above it is sealed again without what is below it.
    fn cut_sealed(&self, subtree: u32, begun: &Begun, above: &Above) -> Result<()> {
        let root = join_absolute(&above.root, &above.path);
        let mut files = Vec::new();
        for (&class, Held { manifest, .. }) in &self.classes {
            let directory = self.dirs.directory(&self.table, class);
            let own = manifest.sealed.iter().filter(|file| file.source == above.id);
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
        below.add(self.names.hash(Secret::Passage, &root), || Some(root.clone()));
        for (_, shard) in self.shards_of(above.id) {
            self.hash_entries(&shard, above, &mut below)?;
        }
        for (class, file) in files {
            let mut dropped: FxHashSet<[u8; 16]> = below.found.keys().copied().collect();
            let own: FxHashSet<[u8; 16]> =
                file.records()?.into_iter().map(|(hash, _)| hash).collect();
            let passages = below.found.iter().filter(|(hash, _)| own.contains(*hash));
            for passage in passages.filter_map(|(_, passage)| passage.as_ref()) {
                let parts = file.behind(&self.names, passage)?;
                let gated = parts.iter().flat_map(|part| &part.shards);
                begun.cut.lock().extend(gated.map(|shard| (class, shard.id.clone())));
            }
            let mut rest = SealedBuilder::default();
            let ends = root.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
            for passage in ends.map(|end| &root[..end]) {
                if self.cut_behind(&file, passage, (class, begun), above, &mut rest)? {
                    dropped.insert(self.names.hash(Secret::Passage, passage));
                }
            }
            let records = file.records()?;
            let kept = records.iter().filter(|(hash, _)| !dropped.contains(hash)).cloned();
            let kept: Vec<_> = kept.collect();
            if kept.len() == records.len() {
                continue;
            }
            begun.cut.lock().push((class, file.id().to_owned()));
            if !rest.is_empty() {
                self.write_sealed(class, subtree, rest)?;
            }
            if !kept.is_empty() {
                let disk = &self.options.disk;
                let file = file.copy(disk, self.new_id(), &kept)?;
                let written = Written::Sealed { begun: subtree, file, gated: Vec::new() };
                self.shards.lock().push((class, written));
            }
        }
        Ok(())
    }

    /// Collects what stays behind a passage above the directory; returns false, and collects
    /// nothing, if all of it does.
    fn cut_behind(
        &self,
        file: &Sealed,
        passage: &str,
        (class, begun): (ClassId, &Begun),
        above: &Above,
        rest: &mut SealedBuilder,
    ) -> Result<bool> {
        let parts = file.behind(&self.names, passage)?;
        let gated: Vec<Vec<Shard>> = parts.iter().map(|part| file.open_shards(part)).collect();
        let mut holds = false;
        for (part, shards) in parts.iter().zip(&gated) {
            holds |= part.rows.holds_below(Part::below_root(passage, &part.root), &above.path);
            for shard in shards {
                holds |= !shard.listings_below(&above.path)?.is_empty();
                holds |= holds_values(shard, &above.path)?;
            }
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
            let below = Part::below_root(&passage, &part.root);
            part.rows.cut(below, &above.path);
            let mut builder = Builder::default();
            part.rows.unpack(&mut builder, below);
            for shard in shards {
                let listings = shard.all_listings_below(&above.path)?;
                for kept in [0..listings.start, listings.end..shard.rows(FileKind::Listings)] {
                    self.copy_listings(&shard, kept, &mut builder)?;
                }
                copy_values(&shard, &above.path, &mut builder)?;
                begun.cut.lock().push((class, shard.record().id.clone()));
            }
            rest.push_behind(&passage, listers, |rows| rows.append(builder));
            let gates = part.gates.iter().filter(|gate| !is_below(gate, &above.path));
            gates.for_each(|gate| rest.push_gate(&passage, listers, gate));
            if let Some(origin) = part.origin {
                rest.set_origin(&passage, listers, origin);
            }
        }
        Ok(true)
    }

    /// Adds the hashes under which something below a directory may be sealed.
    fn hash_entries(&self, shard: &Shard, above: &Above, below: &mut Below) -> Result<()> {
        let listings = shard.all_listings_below(&above.path)?;
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
                        let path = join(&head.path, names.value(at));
                        let path = join_absolute(&above.root, &path);
                        below.add(self.names.hash(Secret::Entry, &path), || None);
                        if kind == FileKind::Dirs {
                            let hash = self.names.hash(Secret::Passage, &path);
                            below.add(hash, || Some(path.clone()));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the shards of a source that are in the manifests.
    pub(super) fn shards_of(&self, source: u32) -> Vec<(ClassId, Shard)> {
        let mut found = Vec::new();
        for (&class, Held { manifest, .. }) in &self.classes {
            let directory = self.dirs.directory(&self.table, class);
            let place = Arc::new(ClassDir::new(|| directory));
            let shards = manifest.shards.iter().filter(|shard| shard.source == source);
            found.extend(shards.map(|shard| (class, Shard::new(shard.clone(), place.clone()))));
        }
        found
    }

    fn copy_listings(&self, shard: &Shard, kept: RowRange, rest: &mut Builder) -> Result<()> {
        shard.live(kept)?.into_iter().try_for_each(|live| self.copy_live(shard, live, rest))
    }

    fn copy_live(&self, shard: &Shard, kept: RowRange, rest: &mut Builder) -> Result<()> {
        // The builder does not ask who may see a listing: that is the class it is of.
        let access = &Access::EVERYONE;
        let mut order = Vec::new();
        for start in kept.clone().step_by(LISTINGS) {
            let chunk = start..kept.end.min(start + LISTINGS);
            let mut rows = vec![Rows::default(); chunk.len()];
            let (entries, dirs) = shard.rows_of_range(chunk.clone())?;
            for (kind, range) in [(FileKind::Entries, entries), (FileKind::Dirs, dirs)] {
                let mut columns = INODE;
                let own = ENTRY.into_iter().filter(|column| kind.columns().contains(column));
                own.for_each(|column| columns.add(column));
                for batch in read(shard, kind, columns, &[range])? {
                    copy_rows(shard, kind, &batch?, &chunk, &mut rows)?;
                }
            }
            for (head, rows) in heads(shard, &chunk)?.iter().zip(&rows) {
                let listing = Listing {
                    path: &head.path,
                    depth: head.depth,
                    part: head.part,
                    dev: head.dev,
                    directory: &head.directory,
                    access,
                    rows,
                };
                rest.push(&listing, &mut order);
            }
        }
        Ok(())
    }
}

/// Sealed records of what is at or below a directory.
struct Below {
    /// The hashes of all records of the source.
    known: FxHashSet<[u8; 16]>,
    /// Hashes of those of them that are below, with the path where it is a passage.
    found: FxHashMap<[u8; 16], Option<String>>,
}

impl Below {
    fn add(&mut self, hash: [u8; 16], passage: impl FnOnce() -> Option<String>) {
        if self.known.contains(&hash) {
            self.found.insert(hash, passage());
        }
    }
}

/// A listing without its entries.
struct Head {
    path: String,
    depth: u32,
    part: u32,
    dev: u64,
    directory: Attributes,
}

fn heads(shard: &Shard, listings: &RowRange) -> Result<Vec<Head>> {
    let mut heads = Vec::with_capacity(listings.len());
    let columns = INODE | PATH | DEPTH | PART | DEV;
    for batch in read(shard, FileKind::Listings, columns, std::slice::from_ref(listings))? {
        let batch = batch?;
        let (paths, depths) = (PATH.of(&batch)?, DEPTH.of(&batch)?);
        let (parts, devs) = (PART.of(&batch)?, DEV.of(&batch)?);
        for at in 0..batch.num_rows() {
            heads.push(Head {
                path: paths.value(at).to_owned(),
                depth: depths[at],
                part: parts[at],
                dev: devs[at],
                directory: attributes(&batch, at)?,
            });
        }
    }
    match heads.len() == listings.len() {
        true => Ok(heads),
        false => Err(shard.corrupt(FileKind::Listings, "rows are missing")),
    }
}

fn copy_rows(
    shard: &Shard,
    kind: FileKind,
    batch: &RecordBatch,
    listings: &RowRange,
    rows: &mut [Rows],
) -> Result<()> {
    let (ordinals, names) = (LISTING.of(batch)?, NAME.of(batch)?);
    let (targets, xattrs) = (TARGET.find(batch), XATTRS.of(batch)?);
    for (at, &ordinal) in ordinals.iter().enumerate() {
        let rows = &mut rows[place_of(shard, kind, listings, ordinal)?];
        let target = targets.filter(|targets| !targets.is_null(at));
        let target = target.map_or("", |targets| targets.value(at));
        rows.push(names.value(at), attributes(batch, at)?, target);
        let keys = if xattrs.is_null(at) { "" } else { xattrs.value(at) };
        for key in xattr_names::decode(keys) {
            rows.push_xattr(Xattr { key: &key, value: None });
        }
    }
    Ok(())
}

/// Returns the place of a listing among those that are read.
fn place_of(shard: &Shard, kind: FileKind, listings: &RowRange, ordinal: u32) -> Result<usize> {
    let ordinal = ordinal as usize;
    match listings.contains(&ordinal) {
        true => Ok(ordinal - listings.start),
        false => Err(shard.corrupt(kind, "it names a listing that does not exist")),
    }
}

fn holds_values(shard: &Shard, directory: &str) -> Result<bool> {
    let rows = shard.live_values()?;
    for batch in read(shard, FileKind::Xattrs, VALUE_PATH, &rows)? {
        let batch = batch?;
        let paths = VALUE_PATH.of(&batch)?;
        if (0..batch.num_rows()).any(|at| is_below(paths.value(at), directory)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn copy_values(shard: &Shard, directory: &str, rest: &mut Builder) -> Result<()> {
    let rows = shard.live_values()?;
    let columns: Columns = FileKind::Xattrs.columns().iter().copied().collect();
    for batch in read(shard, FileKind::Xattrs, columns, &rows)? {
        let batch = batch?;
        let (paths, names) = (VALUE_PATH.of(&batch)?, NAME.of(&batch)?);
        let (keys, values) = (KEY.of(&batch)?, VALUE.of(&batch)?);
        for at in (0..batch.num_rows()).filter(|&at| !is_below(paths.value(at), directory)) {
            rest.push_value(Value {
                path: paths.value(at).into(),
                name: names.value(at).to_owned(),
                key: keys.value(at).to_owned(),
                value: values.value(at).to_owned(),
                attributes: Attributes {
                    ino: INO.of(&batch)?[at],
                    mode: MODE.of(&batch)?[at],
                    uid: UID.of(&batch)?[at],
                    gid: GID.of(&batch)?[at],
                    size_bytes: SIZE.of(&batch)?[at],
                    mtime_ns: MTIME.of(&batch)?[at],
                    ..Attributes::default()
                },
            });
        }
    }
    Ok(())
}

fn read(
    shard: &Shard,
    kind: FileKind,
    columns: impl Into<Columns>,
    rows: &[RowRange],
) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
    let read = match rows.iter().all(RowRange::is_empty) {
        true => None,
        false => Some(shard.read(kind, columns, rows, BATCH_ROWS)?),
    };
    Ok(read.into_iter().flatten())
}

fn attributes(batch: &RecordBatch, at: usize) -> Result<Attributes> {
    Ok(Attributes {
        ino: INO.of(batch)?[at],
        mode: MODE.of(batch)?[at],
        nlink: NLINK.of(batch)?[at],
        uid: UID.of(batch)?[at],
        gid: GID.of(batch)?[at],
        size_bytes: SIZE.of(batch)?[at],
        blksize_bytes: BLKSIZE.of(batch)?[at],
        blocks: BLOCKS.of(batch)?[at],
        atime_ns: ATIME.of(batch)?[at],
        mtime_ns: MTIME.of(batch)?[at],
        ctime_ns: CTIME.of(batch)?[at],
        btime_ns: BTIME.of(batch)?[at],
        rdev: RDEV.find(batch).map_or(0, |values| values[at]),
    })
}
