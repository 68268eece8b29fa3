//! Takes listings in, in one thread: into a builder a class, which become shards.

use super::refresh::Seen;
use super::{Bin, Writer};
use crate::builder::{Builder, Value, shown_names};
use crate::digest::Digester;
use crate::error::Result;
use crate::manifest::Layout;
use crate::sealed::{SealedBuilder, SealedInode, SealedRecord};
use crate::source_id::SourceId;
use canopy_model::{Acl, Audience, ClassId, Listing, Permissions, escape};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Takes in the listings of one thread.
pub struct ShardWriter<'a> {
    pub(super) writer: &'a Writer,
    pub(super) source: SourceId,
    pub(super) builders: FxHashMap<Bin, Builder>,
    pub(super) sealed: FxHashMap<ClassId, SealedBuilder>,
    bytes: usize,
    bytes_max: usize,
    layout: Layout,
    /// The class of all that is taken in, if it has only one.
    only_class: Option<ClassId>,
    /// The part of the layout that the listing under way belongs to.
    part: u32,
    /// Builders that are full.
    full: Vec<Bin>,
    full_sealed: Vec<ClassId>,
    order: Vec<u32>,
    digester: Digester,
    pub(super) seen: Seen,
}

impl<'a> ShardWriter<'a> {
    /// Returns one without listings, whose builders may take so many bytes.
    pub(super) fn new(writer: &'a Writer, source: SourceId, bytes_max: usize) -> Self {
        let (builders, sealed) = (FxHashMap::default(), FxHashMap::default());
        let (full, full_sealed, order) = (Vec::new(), Vec::new(), Vec::new());
        let layout = writer.layout_of(source);
        ShardWriter {
            layout,
            only_class: writer.only_class(layout),
            part: 0,
            writer,
            source,
            builders,
            sealed,
            bytes: 0,
            bytes_max,
            full,
            full_sealed,
            order,
            digester: Digester::new(writer.digest_key),
            seen: Seen::default(),
        }
    }

    /// Takes in a listing. Blocks while a shard is written, when this thread's share of memory is
    /// used up.
    pub fn push(&mut self, listing: &Listing<'_>) -> Result<()> {
        let writer = self.writer;
        match writer.begun.get(&self.source) {
            Some(begun) => begun.place(listing, |listing| self.push_placed(listing)),
            None => self.push_placed(listing),
        }
    }

    fn push_placed(&mut self, listing: &Listing<'_>) -> Result<()> {
        self.part = self.layout.part_of(listing.path);
        let mut digests = self.digester.of(listing, &self.writer.table);
        self.seen.entries += listing.rows.len() as u64;
        self.writer.note_limits(listing);
        let begun = self.writer.begun.get(&self.source);
        if let Some(begun) = begun.filter(|_| listing.path.is_root()) {
            let approach = self.digester.of_approach(&begun.new.approach, &self.writer.table);
            digests.content = digests.content.wrapping_add(approach);
        }
        if let Some(refresh) = begun.and_then(|begun| begun.refresh.as_ref())
            && refresh.takes_note(listing, digests, &mut self.seen)
        {
            return Ok(());
        }
        self.push_values(listing);
        let access = listing.access;
        if let Some(lookup) = access.lookup
            && self.writer.seals(self.layout)
        {
            self.push_entries(listing, lookup);
            let knowers = self.writer.knowers(access.listing, &access.passage, self.layout);
            if let Some((knowers, passage)) = knowers {
                let listers = access.listing.listers;
                self.add_sealed(knowers, |sealed| {
                    sealed.push_gate(passage, listers, listing.path);
                });
            }
        }
        let mut order = std::mem::take(&mut self.order);
        self.add_for(access.listing, &access.passage, |builder| {
            builder.push(listing, digests, &mut order);
        });
        self.order = order;
        for bin in std::mem::take(&mut self.full) {
            self.flush(bin)?;
        }
        for class in std::mem::take(&mut self.full_sealed) {
            self.flush_sealed(class)?;
        }
        while self.bytes > self.bytes_max {
            match self.largest() {
                Some(Largest::Rows(bin)) => self.flush(bin)?,
                Some(Largest::Sealed(class)) => self.flush_sealed(class)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Adds the same for listers and knowers.
    pub(super) fn add_for(
        &mut self,
        audience: Audience,
        passage: &Option<Arc<str>>,
        mut push: impl FnMut(&mut Builder),
    ) {
        self.add(audience.listers, &mut push);
        if let Some((knowers, passage)) = self.writer.knowers(audience, passage, self.layout) {
            self.add_sealed(knowers, |sealed| {
                sealed.push_behind(passage, audience.listers, push);
            });
        }
    }

    /// Adds to what a class of knowers finds by name.
    pub(super) fn add_sealed(&mut self, class: ClassId, push: impl FnOnce(&mut SealedBuilder)) {
        let sealed = self.sealed.entry(class).or_default();
        let before = sealed.bytes();
        push(sealed);
        self.bytes += sealed.bytes() - before;
        if sealed.is_full() {
            self.full_sealed.push(class);
        }
    }

    /// Adds to the builder of a class.
    pub(super) fn add(&mut self, class: ClassId, push: impl FnOnce(&mut Builder)) {
        let bin = (self.only_class.unwrap_or(class), self.part);
        let builder = self.builders.entry(bin).or_default();
        let before = builder.bytes();
        push(builder);
        self.bytes += builder.bytes() - before;
        if builder.is_full() {
            self.full.push(bin);
        }
    }

    /// Adds the values of extended attributes to the classes of those who may see them.
    fn push_values(&mut self, listing: &Listing<'_>) {
        let rows = listing.rows;
        if !rows.has_xattrs() {
            return;
        }
        let path: Arc<str> = listing.path.as_str().into();
        for (at, row) in rows.iter().enumerate() {
            for xattr in rows.xattrs(at) {
                let Some((value, audience)) = xattr.value else { continue };
                let value = escape(value).into_owned();
                self.add_for(audience, &listing.access.passage, |builder| {
                    builder.push_value(Value {
                        path: path.clone(),
                        name: row.name.to_owned(),
                        key: xattr.key.to_owned(),
                        value: value.clone(),
                        attributes: *row.attributes,
                    });
                });
            }
        }
    }

    /// Adds the entries of a gate for those who may look them up but not list them.
    fn push_entries(&mut self, listing: &Listing<'_>, lookup: ClassId) {
        let rows = listing.rows;
        let writer = self.writer;
        let begun = writer.begun.get(&self.source);
        let root = begun.map_or("", |begun| begun.root());
        for (at, row) in rows.iter().enumerate() {
            let path = listing.path.child(row.name).as_path().absolute(root);
            let inode = SealedInode {
                dev: listing.dev,
                attributes: *row.attributes,
                target: row.target.to_owned(),
                xattrs: shown_names(rows.xattrs(at).map(|xattr| xattr.key)),
            };
            let mut records: BTreeMap<ClassId, SealedRecord> = BTreeMap::new();
            records.entry(lookup).or_default().inode = Some(inode);
            let acl =
                rows.xattrs(at).find(|xattr| xattr.key == Acl::XATTR_NAME).map(|xattr| xattr.value);
            let acl =
                acl.map(|value| value.and_then(|(value, _)| Acl::decode(value).ok()).ok_or(()));
            let acl = acl.as_ref().map(Result::as_ref);
            let permissions = Permissions::of_inode(row.attributes, acl);
            for xattr in rows.xattrs(at) {
                let Some((value, _)) = xattr.value else { continue };
                let lookup = Audience { listers: lookup, knowers: None };
                let audience = writer.table.value_audience(lookup, xattr.key, permissions);
                let value = (xattr.key.to_owned(), escape(value).into_owned());
                records.entry(audience.listers).or_default().xattrs.push(value);
            }
            for (class, record) in records {
                self.add_sealed(class, |sealed| sealed.push_entry(path.clone(), record));
            }
        }
    }

    /// Writes builders with at least `rows_min` rows. Builders that cannot be written stay in
    /// memory.
    pub(super) fn write_larger_than(&mut self, rows_min: usize) -> Result<()> {
        let rows = self.builders.iter().filter(|(_, builder)| builder.rows() >= rows_min);
        for bin in rows.map(|(&bin, _)| bin).collect::<Vec<_>>() {
            let builder = self.builders[&bin].clone();
            self.writer.write_shard(bin.0, self.source, builder)?;
            self.bytes -= self.builders.remove(&bin).map_or(0, |builder| builder.bytes());
        }
        let sealed = self.sealed.iter().filter(|(_, sealed)| sealed.rows() >= rows_min);
        for class in sealed.map(|(&class, _)| class).collect::<Vec<_>>() {
            let sealed = self.sealed[&class].clone();
            self.writer.write_sealed(class, self.source, sealed)?;
            self.bytes -= self.sealed.remove(&class).map_or(0, |sealed| sealed.bytes());
        }
        Ok(())
    }

    fn largest(&self) -> Option<Largest> {
        let builders = self.builders.iter().filter(|(_, builder)| !builder.is_empty());
        let rows = builders.map(|(&bin, builder)| (builder.bytes(), Largest::Rows(bin)));
        let sealed = self.sealed.iter();
        let sealed = sealed.map(|(&class, sealed)| (sealed.bytes(), Largest::Sealed(class)));
        rows.chain(sealed).max_by_key(|(bytes, _)| *bytes).map(|(_, largest)| largest)
    }

    fn flush(&mut self, bin: Bin) -> Result<()> {
        let Some(builder) = self.builders.remove(&bin) else { return Ok(()) };
        self.bytes -= builder.bytes();
        self.writer.write_shard(bin.0, self.source, builder).map(drop)
    }

    fn flush_sealed(&mut self, class: ClassId) -> Result<()> {
        let Some(sealed) = self.sealed.remove(&class) else { return Ok(()) };
        self.bytes -= sealed.bytes();
        self.writer.write_sealed(class, self.source, sealed)
    }
}

/// The builder that takes most memory.
enum Largest {
    Rows(Bin),
    Sealed(ClassId),
}
