//! The records that a search looks at: those of a whole namespace, or of one of several tables that
//! share it ([`PartView`]).

use super::cursor::Cursor;
use crate::error::Result;
use crate::records::acl;
use crate::records::attributes::Indexes;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, ROOT, Space};
use crate::records::moving::content_half;
use crate::records::range::{TabletRange, names_with};
use crate::records::tablet::Tablet;
use crate::records::view::ReadView;
use crate::settings::Configured;
use canopy_store::{Direction, Key, KeyRange, TableSnapshot};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Is passed a directory, a name in it, and the inode of the name. Returns whether to go on.
pub(crate) type EachName<'a> = &'a mut dyn FnMut(FileId, &[u8], Inode) -> Result<bool>;

/// The records that a search looks at.
pub(crate) trait Sight {
    /// Returns the indexes that are complete.
    fn ready(&self) -> &Indexes;

    /// Returns about how many names there are.
    fn names_estimate(&self) -> u64;

    /// Returns the most candidates that are remembered.
    fn candidates_max(&self) -> u64 {
        u64::MAX
    }

    /// Passes the files that have entries in a range of an index, until `each` returns false.
    fn entries(&self, range: &KeyRange, each: &mut dyn FnMut(FileId) -> bool) -> Result<()>;

    /// Adds the directories that indexes may not find: their parts in several tables have the
    /// attributes together.
    fn add_apart(&self, ids: &mut Vec<FileId>) -> Result<()>;

    /// Passes all names behind a cursor, but for those of files that `files_apart` returns.
    fn each_name(&self, after: Option<&Cursor>, each: EachName<'_>) -> Result<()>;

    /// Returns files and directories whose inodes do not lie with their names, behind a cursor.
    fn files_apart(&self, after: FileId, count_max: usize) -> Result<Vec<FileId>>;

    /// Passes the names of a file. Returns the last result of `each`.
    fn each_name_of(&self, id: FileId, each: EachName<'_>) -> Result<bool>;

    /// Returns the inode of a directory; none if it is gone.
    fn directory(&self, id: FileId) -> Result<Option<Inode>>;

    /// Returns the directory above a directory, and its name there; none if it has none.
    fn above(&self, id: FileId) -> Result<Option<(FileId, Vec<u8>)>>;

    /// Returns the inode of a directory with this name.
    fn named(&self, id: FileId, parent: FileId, name: &[u8]) -> Result<Option<Inode>>;

    /// Returns the value of an extended attribute.
    fn value(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>>;
}

impl Sight for ReadView {
    fn ready(&self) -> &Indexes {
        &self.configured.ready
    }

    fn names_estimate(&self) -> u64 {
        self.names_estimate
    }

    fn entries(&self, range: &KeyRange, each: &mut dyn FnMut(FileId) -> bool) -> Result<()> {
        let mut scan = self.scan(range)?;
        while let Some(record) = scan.next()? {
            if !keys::entry_id(record.key.name).is_none_or(&mut *each) {
                break;
            }
        }
        Ok(())
    }

    fn add_apart(&self, ids: &mut Vec<FileId>) -> Result<()> {
        ids.extend(self.split_directories());
        Ok(())
    }

    fn each_name(&self, _: Option<&Cursor>, each: EachName<'_>) -> Result<()> {
        let mut scan = self.scan(&keys::names_in_directories())?;
        while let Some(record) = scan.next()? {
            let Some(inode) = self.behind(Inode::decode(record.value)?)? else { continue };
            if !each(FileId(record.key.directory), record.key.name, inode)? {
                break;
            }
        }
        Ok(())
    }

    fn files_apart(&self, _: FileId, _: usize) -> Result<Vec<FileId>> {
        Ok(Vec::new())
    }

    fn each_name_of(&self, id: FileId, each: EachName<'_>) -> Result<bool> {
        self.records(id, |parent, name, inode| match self.behind(inode)? {
            Some(inode) => each(parent, name, inode),
            None => Ok(true),
        })
    }

    fn directory(&self, id: FileId) -> Result<Option<Inode>> {
        self.inode(id)
    }

    fn above(&self, id: FileId) -> Result<Option<(FileId, Vec<u8>)>> {
        self.first_name(id)
    }

    fn named(&self, _: FileId, parent: FileId, name: &[u8]) -> Result<Option<Inode>> {
        let value = self.get(keys::name_in(parent, name).as_ref())?;
        value.map(|value| Inode::decode(&value)).transpose()
    }

    fn value(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.xattr(id, name)
    }
}

/// A directory of another table, as a search needs it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ancestor {
    /// The directory above it; the root is above itself.
    pub parent: FileId,
    /// Its name there.
    pub name: Vec<u8>,
    /// Its inode, as its home has it.
    pub inode: Inode,
    /// The ACL that decides who may use it, if it has one.
    pub acl: Option<Vec<u8>>,
}

/// Answers what a search in one table has to know of others.
pub trait Elsewhere {
    /// Returns a directory that lies in another table; none if it is gone.
    ///
    /// # Errors
    ///
    /// Fails as the other table does.
    fn ancestor(&self, id: FileId) -> Result<Option<Ancestor>>;

    /// Returns a directory whose home is here, as its parts in all tables say; none if it is gone.
    ///
    /// # Errors
    ///
    /// Fails as the other tables do.
    fn whole(&self, half: Inode) -> Result<Option<Inode>>;

    /// Returns the directories with a home here that have parts in other tables.
    fn split(&self) -> Vec<FileId>;
}

/// The files that one of several tables has: those with its names, and files with several names and
/// directories whose home it is, with all their names.
pub struct PartView<'a> {
    snapshot: TableSnapshot,
    configured: Arc<Configured>,
    names_estimate: u64,
    range: &'a TabletRange,
    elsewhere: &'a dyn Elsewhere,
    /// The names that are searched, if not all.
    within: Option<(FileId, RangeInclusive<u64>)>,
    ancestors: RefCell<HashMap<FileId, Option<Ancestor>>>,
}

/// Candidates that a server remembers for a query.
const CANDIDATES_MAX: u64 = 1 << 22;

impl Tablet {
    /// Returns the records as they are now, for a search: all, or the names of a directory with hashes
    /// of a range. If it `flushes`, what waits in memory is written to them first.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table does.
    pub fn part_view<'a>(
        &'a self,
        elsewhere: &'a dyn Elsewhere,
        within: Option<(FileId, RangeInclusive<u64>)>,
        flushes: bool,
    ) -> Result<PartView<'a>> {
        if flushes {
            self.flush_pending()?;
        }
        Ok(PartView {
            configured: self.configured(),
            names_estimate: self.names_estimate(),
            snapshot: self.table.snapshot(),
            range: &self.range,
            elsewhere,
            within,
            ancestors: RefCell::default(),
        })
    }

    /// Returns what a search in another table has to know of a directory whose home this is; none if
    /// it is gone.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn ancestor(&self, id: FileId) -> Result<Option<Ancestor>> {
        let Some(mut inode) = self.record(&content_half(id))? else { return Ok(None) };
        self.overlay(&mut inode);
        let (parent, name) = match id {
            ROOT => (ROOT, Vec::new()),
            _ => match self.first_name(id)? {
                Some(named) => named,
                None => return Ok(None),
            },
        };
        let acl = match inode.has(flag::XATTRS) {
            true => self.xattr_of(id, acl::ACCESS.as_bytes())?,
            false => None,
        };
        Ok(Some(Ancestor { parent, name, inode, acl }))
    }
}

impl PartView<'_> {
    /// Returns whether only some names are searched.
    pub(crate) fn is_narrow(&self) -> bool {
        self.within.is_some()
    }

    /// Returns the settings of the table.
    pub(crate) fn configured(&self) -> &Configured {
        &self.configured
    }

    fn get(&self, key: &Key) -> Result<Option<Inode>> {
        let value = self.snapshot.get(key.as_ref())?;
        value.map(|value| Inode::decode(&value)).transpose()
    }

    /// Returns the content half of a directory whose home this is.
    fn half(&self, id: FileId) -> Result<Option<Inode>> {
        Ok(self.get(&content_half(id))?.filter(|half| !half.has(flag::FURTHER)))
    }

    /// Returns a directory that lies elsewhere.
    fn ancestor(&self, id: FileId) -> Result<Option<Ancestor>> {
        if let Some(known) = self.ancestors.borrow().get(&id) {
            return Ok(known.clone());
        }
        let found = self.elsewhere.ancestor(id)?;
        self.ancestors.borrow_mut().insert(id, found.clone());
        Ok(found)
    }

    /// Passes the names on that are on record for a file.
    fn names(
        &self,
        id: FileId,
        mut each: impl FnMut(FileId, &[u8]) -> Result<bool>,
    ) -> Result<bool> {
        let mut scan = self.snapshot.scan(&Space::Names.range_of(id), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let Some((parent, name)) = keys::parse_name(record.key.name) else { continue };
            if !each(parent, name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Sight for PartView<'_> {
    fn ready(&self) -> &Indexes {
        &self.configured.ready
    }

    fn names_estimate(&self) -> u64 {
        self.names_estimate
    }

    fn candidates_max(&self) -> u64 {
        CANDIDATES_MAX
    }

    fn entries(&self, range: &KeyRange, each: &mut dyn FnMut(FileId) -> bool) -> Result<()> {
        let mut scan = self.snapshot.scan(range, Direction::Forward)?;
        while let Some(record) = scan.next()? {
            if !keys::entry_id(record.key.name).is_none_or(&mut *each) {
                break;
            }
        }
        Ok(())
    }

    fn add_apart(&self, ids: &mut Vec<FileId>) -> Result<()> {
        ids.extend(self.elsewhere.split());
        Ok(())
    }

    fn each_name(&self, after: Option<&Cursor>, each: EachName<'_>) -> Result<()> {
        let mut range = match &self.within {
            None => keys::names_in_directories(),
            Some((directory, hashes)) => names_with(*directory, hashes),
        };
        if let Some(Cursor::Name(directory, name)) = after {
            range.start = keys::name_in(*directory, name).successor();
        }
        let mut scan = self.snapshot.scan(&range, Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let directory = FileId(record.key.directory);
            let inode = Inode::decode(record.value)?;
            let is_here = !inode.is_pointer() && self.range.has_name(directory, record.key.hash);
            if is_here && !each(directory, record.key.name, inode)? {
                break;
            }
        }
        Ok(())
    }

    fn files_apart(&self, after: FileId, count_max: usize) -> Result<Vec<FileId>> {
        if self.within.is_some() {
            return Ok(Vec::new());
        }
        let mut ids = Vec::new();
        for space in [Space::Links, Space::Directories] {
            let start = space.of(after.next(), b"");
            let range = KeyRange { start, ..space.range() };
            let mut scan = self.snapshot.scan(&range, Direction::Forward)?;
            let mut count = 0;
            while count < count_max
                && let Some(record) = scan.next()?
            {
                ids.push(FileId(record.key.hash));
                count += 1;
            }
        }
        ids.sort_unstable();
        ids.truncate(count_max);
        Ok(ids)
    }

    fn each_name_of(&self, id: FileId, each: EachName<'_>) -> Result<bool> {
        if let Some(half) = self.half(id)? {
            // The root has no name.
            let Some(whole) = self.elsewhere.whole(half)? else { return Ok(true) };
            return self.names(id, |parent, name| each(parent, name, whole.clone()));
        }
        if let Some(linked) = self.get(&Space::Links.of(id, b""))? {
            return self.names(id, |parent, name| each(parent, name, linked.clone()));
        }
        self.names(id, |parent, name| {
            let key = keys::name_in(parent, name);
            let found = match self.range.has_name(parent, key.hash) {
                true => self.get(&key)?,
                false => None,
            };
            match found.filter(|found| found.id == id && !found.is_pointer()) {
                Some(found) => each(parent, name, found),
                None => Ok(true),
            }
        })
    }

    fn directory(&self, id: FileId) -> Result<Option<Inode>> {
        match self.half(id)? {
            Some(half) => Ok(Some(half)),
            None => Ok(self.ancestor(id)?.map(|ancestor| ancestor.inode)),
        }
    }

    fn above(&self, id: FileId) -> Result<Option<(FileId, Vec<u8>)>> {
        if self.half(id)?.is_none() {
            return Ok(self.ancestor(id)?.map(|ancestor| (ancestor.parent, ancestor.name)));
        }
        let mut first = None;
        self.names(id, |parent, name| {
            first = Some((parent, name.to_vec()));
            Ok(false)
        })?;
        Ok(first)
    }

    fn named(&self, id: FileId, _: FileId, _: &[u8]) -> Result<Option<Inode>> {
        self.directory(id)
    }

    fn value(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(Some(ancestor)) = self.ancestors.borrow().get(&id) {
            let is_acl = name == acl::ACCESS.as_bytes();
            return Ok(ancestor.acl.clone().filter(|_| is_acl));
        }
        Ok(self.snapshot.get(Space::Xattrs.of(id, name).as_ref())?)
    }
}
