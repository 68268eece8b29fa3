//! An entry of a file system that is searched by its records: what tests and actions ask of it.

use super::{Lookup, Record, Records, Search, Tree};
use crate::error::Result;
use crate::find::actions::{EntryView, LookedUp, Met, Needs, attribute};
use crate::find::evaluation::{Candidates, Numeric};
use crate::find::language::XattrTest;
use crate::find::messages::unknown_value;
use crate::find::path::trim_slashes;
use canopy_index::column::Column;
use canopy_model::{Acl, Attributes, Device, FileType, Grant, Wanted, escape};
use std::borrow::Cow;
use std::cell::{Cell, OnceCell};

/// One entry.
pub(super) struct RecordEntry<'e, 'a, R> {
    search: &'e Search<'e, 'a, R>,
    pub(super) tree: &'e Tree<'e>,
    /// The path as it is printed.
    pub(super) shown: &'e [u8],
    name: &'e [u8],
    pub(super) depth: u32,
    /// Its record; if links are followed, that of the target.
    pub(super) record: &'e Record,
    xattrs: OnceCell<Vec<(Vec<u8>, Vec<u8>)>>,
    /// Whether there was a diagnostic.
    diagnosed: Cell<bool>,
}

impl<'e, 'a, R: Records> RecordEntry<'e, 'a, R> {
    pub(super) fn new(
        search: &'e Search<'e, 'a, R>,
        tree: &'e Tree<'e>,
        shown: &'e [u8],
        name: &'e [u8],
        depth: u32,
        record: &'e Record,
    ) -> Self {
        let (xattrs, diagnosed) = (OnceCell::new(), Cell::new(false));
        RecordEntry { search, tree, shown, name, depth, record, xattrs, diagnosed }
    }

    fn file_type(&self) -> FileType {
        self.record.attributes.file_type()
    }

    /// Says what is wrong, once.
    fn problem(&self, place: &Lookup) {
        if !self.diagnosed.replace(true) {
            self.search.problem(self.shown, place.problem());
        }
    }

    fn xattrs_of(&self, record: &Record) -> Vec<(Vec<u8>, Vec<u8>)> {
        if !record.has_xattrs {
            return Vec::new();
        }
        self.search.records.xattrs(record.attributes.ino).unwrap_or_else(|error| {
            self.search.fail(error);
            Vec::new()
        })
    }

    fn own_xattrs(&self) -> &[(Vec<u8>, Vec<u8>)] {
        self.xattrs.get_or_init(|| self.xattrs_of(self.record))
    }

    fn has_xattr(&self, test: &XattrTest) -> bool {
        let mut all = self.own_xattrs().iter();
        all.any(|(name, value)| {
            let (name, value) = (escape(name), escape(value));
            test.asks(&name)
                && test.holds(&name, &value).unwrap_or_else(|| {
                    if !self.diagnosed.replace(true) {
                        self.search.problem(self.shown, &unknown_value(&name));
                    }
                    false
                })
        })
    }

    fn is_empty(&self) -> bool {
        match self.file_type() {
            FileType::Regular => self.record.attributes.size_bytes == 0,
            FileType::Directory => {
                let empty = self.search.records.is_empty(self.record.attributes.ino);
                empty.unwrap_or_else(|error| {
                    self.search.fail(error);
                    false
                })
            }
            _ => false,
        }
    }

    /// Returns whether access(2) would grant the wanted bits, as far as mode, owner, group and ACL
    /// tell.
    fn may_access(&self, wanted: Wanted) -> bool {
        let record = match self.file_type() {
            FileType::Symlink => match self.search.look(self.shown, true) {
                Lookup::Entry(record) => Cow::Owned(record),
                Lookup::Outside => {
                    self.search.outside.note_unknown(self.shown);
                    return false;
                }
                _ => return false,
            },
            _ => Cow::Borrowed(self.record),
        };
        let xattrs = self.xattrs_of(&record);
        let acl = xattrs.iter().find(|(name, _)| name == Acl::XATTR_NAME.as_bytes());
        let acl = acl.map(|(_, value)| Acl::decode(value).ok());
        let Attributes { mode, uid, gid, .. } = record.attributes;
        let grant = match acl {
            Some(None) => Grant::of_hidden_acl(mode, uid, wanted),
            acl => Grant::new(mode, uid, gid, acl.flatten().as_ref(), wanted),
        };
        grant.passes_access(&self.search.caller, mode, wanted)
    }

    /// Returns what `%Y` prints.
    fn target_type(&self) -> char {
        match self.file_type() {
            FileType::Symlink => match self.search.look(self.shown, true) {
                Lookup::Entry(record) => record.attributes.file_type().letter(),
                Lookup::Missing | Lookup::NotDirectory => 'N',
                Lookup::Loop => 'L',
                Lookup::Outside => {
                    self.search.outside.note_unknown(self.shown);
                    '?'
                }
            },
            other => other.letter(),
        }
    }
}

impl<R: Records> Met for RecordEntry<'_, '_, R> {
    fn view(&self, needs: &Needs) -> Option<EntryView<'_>> {
        let file_system = if needs.file_system { self.search.records.file_system() } else { "" };
        let context = || {
            let mut all = self.own_xattrs().iter();
            all.find(|(name, _)| name == b"security.selinux").map(|(_, value)| value.clone())
        };
        Some(EntryView {
            shown: self.shown,
            name: self.name,
            start: self.tree.given,
            link: self.tree.given,
            depth: self.depth,
            target: &self.record.target,
            dev: self.search.records.dev(),
            attributes: self.record.attributes,
            looked_up: LookedUp {
                file_system: file_system.to_owned(),
                target_type: if needs.target_type { self.target_type() } else { ' ' },
                context: needs.context.then(context).flatten().unwrap_or_default(),
            },
            directory: None,
        })
    }

    fn delete(&self) -> bool {
        // The parser refuses it.
        false
    }
}

impl<R: Records> Candidates for RecordEntry<'_, '_, R> {
    fn len(&self) -> usize {
        1
    }

    fn names<'s>(&'s self) -> Result<impl Fn(usize) -> Cow<'s, str>> {
        Ok(|_| escape(trim_slashes(self.name)))
    }

    fn shown(&self, _: usize) -> Cow<'_, str> {
        escape(self.shown)
    }

    fn types(&self) -> Result<impl Fn(usize) -> Option<FileType>> {
        Ok(|_| Some(self.file_type()))
    }

    fn numbers<T: Numeric>(&self, column: Column<T>) -> Result<impl Fn(usize) -> Option<i64>> {
        let attribute = attribute(column.id());
        Ok(move |_| Some(attribute(&self.record.attributes)))
    }

    fn dev(&self, _: usize) -> Option<Device> {
        Some(self.search.records.dev())
    }

    fn targets<'s>(&'s self) -> impl Fn(usize) -> Cow<'s, str> {
        |_| escape(&self.record.target)
    }

    fn empties(&self) -> Result<impl Fn(usize) -> bool> {
        Ok(|_| self.is_empty())
    }

    fn xattrs(&self, test: &XattrTest) -> Result<impl Fn(usize) -> bool> {
        Ok(|_| self.has_xattr(test))
    }

    fn leads_to(&self, types: &[FileType]) -> Result<impl Fn(usize) -> bool> {
        Ok(|_| {
            let follows = self.search.find.globals.follows(self.depth);
            let other_way = match follows {
                true => self.search.look(self.shown, false),
                false if self.file_type() != FileType::Symlink => {
                    return types.contains(&self.file_type());
                }
                false => match self.search.look(self.shown, true) {
                    Lookup::Outside => {
                        self.search.outside.note_unknown(self.shown);
                        Lookup::Entry(self.record.clone())
                    }
                    Lookup::Missing | Lookup::NotDirectory => Lookup::Entry(self.record.clone()),
                    other => other,
                },
            };
            match other_way {
                Lookup::Entry(record) => types.contains(&record.attributes.file_type()),
                place => {
                    self.problem(&place);
                    false
                }
            }
        })
    }

    fn may_access(&self, wanted: Wanted) -> Result<impl Fn(usize) -> bool> {
        Ok(move |_| self.may_access(wanted))
    }

    fn is_on(&self, file_system: &str, _: usize) -> bool {
        self.search.records.file_system() == file_system
    }
}
