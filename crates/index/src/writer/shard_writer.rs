//! Takes listings in, in one thread: into a builder a class, which become shards.

use super::Writer;
use crate::builder::{Builder, Value, shown_names};
use crate::error::Result;
use crate::manifest::{SealedInode, SealedRecord};
use canopy_model::{Acl, ClassId, Listing, Permissions, escape, join, join_absolute};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Takes in the listings of one thread.
pub struct ShardWriter<'a> {
    pub(super) writer: &'a Writer,
    pub(super) source: u32,
    pub(super) builders: FxHashMap<ClassId, Builder>,
    bytes: usize,
    bytes_max: usize,
    /// Classes whose builders take no more.
    full: Vec<ClassId>,
    order: Vec<u32>,
}

impl<'a> ShardWriter<'a> {
    /// Returns one without listings, whose builders may take so many bytes.
    pub(super) fn new(writer: &'a Writer, source: u32, bytes_max: usize) -> Self {
        let (builders, full, order) = (FxHashMap::default(), Vec::new(), Vec::new());
        ShardWriter { writer, source, builders, bytes: 0, bytes_max, full, order }
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
        self.push_values(listing);
        if let Some(lookup) = listing.access.lookup
            && !self.writer.unprivileged
        {
            self.push_sealed(listing, lookup);
        }
        let class = self.writer.effective(listing.access.listing);
        let mut order = std::mem::take(&mut self.order);
        self.add(class, |builder| builder.push(listing, &mut order));
        self.order = order;
        for class in std::mem::take(&mut self.full) {
            self.flush(class)?;
        }
        while self.bytes > self.bytes_max {
            let Some(largest) = self.largest() else { break };
            self.flush(largest)?;
        }
        Ok(())
    }

    /// Adds to the builder of a class.
    pub(super) fn add(&mut self, class: ClassId, push: impl FnOnce(&mut Builder)) {
        let builder = self.builders.entry(self.writer.effective(class)).or_default();
        let before = builder.bytes();
        push(builder);
        self.bytes += builder.bytes() - before;
        if builder.is_full() {
            self.full.push(self.writer.effective(class));
        }
    }

    /// Adds the values of extended attributes to the classes of those who may see them.
    fn push_values(&mut self, listing: &Listing<'_>) {
        let rows = listing.rows;
        if !rows.has_xattrs() {
            return;
        }
        let path: Arc<str> = listing.path.into();
        for (at, row) in rows.iter().enumerate() {
            for xattr in rows.xattrs(at) {
                let Some((value, class)) = xattr.value else { continue };
                let value = Value {
                    path: path.clone(),
                    name: row.name.to_owned(),
                    key: xattr.key.to_owned(),
                    value: escape(value).into_owned(),
                    attributes: *row.attributes,
                };
                self.add(class, |builder| builder.push_value(value));
            }
        }
    }

    /// Adds the entries of a gate for those who may look them up but not list them.
    fn push_sealed(&mut self, listing: &Listing<'_>, lookup: ClassId) {
        let rows = listing.rows;
        let writer = self.writer;
        let begun = writer.begun.get(&self.source);
        let source = begun.map_or(self.source, |begun| begun.owner(self.source));
        let root = begun.map_or("", |begun| begun.root());
        for (at, row) in rows.iter().enumerate() {
            let path = join_absolute(root, &join(listing.path, row.name));
            let inode = SealedInode {
                source,
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
                let class = writer.table.value_class(lookup, xattr.key, permissions);
                let value = (xattr.key.to_owned(), escape(value).into_owned());
                records.entry(class).or_default().xattrs.push(value);
            }
            for (class, record) in records {
                self.add(class, |builder| builder.push_sealed(path.clone(), record));
            }
        }
    }

    fn largest(&self) -> Option<ClassId> {
        let filled = self.builders.iter().filter(|(_, builder)| !builder.is_empty());
        filled.max_by_key(|(_, builder)| builder.bytes()).map(|(&class, _)| class)
    }

    fn flush(&mut self, class: ClassId) -> Result<()> {
        let Some(builder) = self.builders.remove(&class) else { return Ok(()) };
        self.bytes -= builder.bytes();
        self.writer.write_shard(class, self.source, builder).map(drop)
    }
}
