//! A listing as it travels from a scanner to the index: one directory and what is in it.

use crate::{Attributes, ClassId};

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its name, escaped (see [`crate::escape`]).
    pub name: &'a str,
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// Where a symbolic link points, escaped; empty for everything else.
    pub target: &'a str,
}

/// The entries of a directory, kept in a few allocations that can be reused.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    attributes: Vec<Attributes>,
    /// Names and targets, one after the other: name 0, target 0, name 1, ...
    text: String,
    /// Where each name and each target ends in `text`, two a row.
    ends: Vec<u32>,
}

impl Rows {
    /// Adds an entry.
    pub fn push(&mut self, name: &str, attributes: Attributes, target: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len() as u32);
        self.text.push_str(target);
        self.ends.push(self.text.len() as u32);
        self.attributes.push(attributes);
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.attributes.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// Forgets all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.attributes.clear();
        self.text.clear();
        self.ends.clear();
    }

    /// Bytes of memory held, those reserved for more rows included.
    pub fn capacity_bytes(&self) -> usize {
        self.attributes.capacity() * size_of::<Attributes>()
            + self.text.capacity()
            + self.ends.capacity() * size_of::<u32>()
    }

    /// Bytes of text held by names and targets.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// The attributes of all entries, by row.
    pub fn attributes(&self) -> &[Attributes] {
        &self.attributes
    }

    /// The name in row `at`. Panics if there is no such row.
    pub fn name(&self, at: usize) -> &str {
        let start = if at == 0 { 0 } else { self.ends[2 * at - 1] };
        &self.text[start as usize..self.ends[2 * at] as usize]
    }

    /// The target in row `at`. Panics if there is no such row.
    pub fn target(&self, at: usize) -> &str {
        &self.text[self.ends[2 * at] as usize..self.ends[2 * at + 1] as usize]
    }

    /// The entry in row `at`. Panics if there is no such row.
    pub fn row(&self, at: usize) -> Row<'_> {
        Row { name: self.name(at), attributes: &self.attributes[at], target: self.target(at) }
    }

    /// All entries, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.len()).map(|at| self.row(at))
    }
}

/// The contents of one directory at one moment: the unit of access and of update.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// The directory's path below the root of the source, escaped; empty for the root.
    pub path: &'a str,
    /// How many components the path has.
    pub depth: u32,
    /// 0 for the first part of the directory's contents; a huge directory comes in several parts.
    pub part: u32,
    /// Device that holds the directory and its entries.
    pub dev: u64,
    /// The directory's own attributes.
    pub directory: &'a Attributes,
    /// Who may see the listing.
    pub class: ClassId,
    /// The entries, directories among them, in any order.
    pub rows: &'a Rows,
}
