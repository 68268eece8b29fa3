//! Reading names and inodes: the records, with what is newer in memory.

use crate::error::{Error, Result};
use crate::records::circle::Circle;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, ROOT, Space, check_name};
use crate::records::range::TabletRange;
use crate::records::tablet::Tablet;
use canopy_store::{Direction, Key};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl Tablet {
    /// Returns the inode that a record has.
    pub(crate) fn record(&self, key: &Key) -> Result<Option<Inode>> {
        let value = self.table.get(key.as_ref())?;
        value.map(|value| Inode::decode(&value)).transpose()
    }

    /// Returns the record that a name leads to; none if there is no such name.
    pub(crate) fn recorded(&self, key: Key) -> Result<Option<Inode>> {
        let Some(found) = self.record(&key)? else { return Ok(None) };
        if found.has(flag::LINKED) {
            // Its last name may have gone between the two.
            return self.linked(found);
        }
        self.places.insert(found.id, key);
        Ok(Some(found))
    }

    /// Returns the inode that a pointer leads to. A tablet with a part of the names returns the pointer
    /// if another one may have the inode: that of the block of the file's id.
    pub(crate) fn linked(&self, pointer: Inode) -> Result<Option<Inode>> {
        let linked = self.record(&Space::Links.of(pointer.id, b""))?;
        match self.range {
            TabletRange::All => Ok(linked),
            TabletRange::Part(_) => Ok(Some(linked.unwrap_or(pointer))),
        }
    }

    /// Returns where the record of an inode lies, and the inode that it has.
    pub(crate) fn locate(&self, id: FileId) -> Result<(Key, Inode)> {
        if id == ROOT {
            let root = self.record(&keys::root())?;
            return Ok((keys::root(), root.ok_or_else(|| Error::corrupt("there is no root"))?));
        }
        if let Some(key) = self.places.get(id) {
            let found = self.record(&key)?.filter(|found| found.id == id);
            if let Some(found) = found.filter(|found| !found.has(flag::LINKED)) {
                return self.content_half(key, found);
            }
        }
        // A rename between two of the steps below hides a file that is there.
        for _ in 0..3 {
            if let Some((parent, name)) = self.first_name(id)? {
                let key = keys::name_in(parent, &name);
                let found = self.record(&key)?.filter(|found| found.id == id);
                if let Some(found) = found.filter(|found| !found.has(flag::LINKED)) {
                    self.places.insert(id, key.clone());
                    return self.content_half(key, found);
                }
            }
            for space in [Space::Links, Space::Orphans, Space::Directories] {
                let key = space.of(id, b"");
                if let Some(found) = self.record(&key)? {
                    return Ok((key, found));
                }
            }
        }
        Err(Errno::NOENT.into())
    }

    /// Returns the content half of a directory, if it lies apart and is here, and else what was found.
    fn content_half(&self, key: Key, found: Inode) -> Result<(Key, Inode)> {
        if found.has(flag::ACCESS_HALF) {
            let apart = Space::Directories.of(found.id, b"");
            if let Some(half) = self.record(&apart)? {
                return Ok((apart, half));
            }
        }
        Ok((key, found))
    }

    /// Returns the names of a file, each with its directory, in the order of directories.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn names(&self, id: FileId) -> Result<Vec<(FileId, Vec<u8>)>> {
        let mut names = Vec::new();
        self.each_name(id, |parent, name| {
            names.push((parent, name.to_vec()));
            true
        })?;
        Ok(names)
    }

    /// Returns the first of these names. A file may have very many.
    pub(crate) fn first_name(&self, id: FileId) -> Result<Option<(FileId, Vec<u8>)>> {
        let mut first = None;
        self.each_name(id, |parent, name| {
            first = Some((parent, name.to_vec()));
            false
        })?;
        Ok(first)
    }

    /// Passes these names on, until `pass` returns that it needs no more.
    pub(crate) fn each_name(
        &self,
        id: FileId,
        mut pass: impl FnMut(FileId, &[u8]) -> bool,
    ) -> Result<()> {
        let mut scan = self.table.scan(&Space::Names.range_of(id), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let (parent, name) = keys::parse_name(record.key.name)
                .ok_or_else(|| Error::corrupt(format!("a name of file {id}")))?;
            if !pass(parent, name) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the directory above a directory; the root is above itself.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn parent(&self, directory: FileId) -> Result<FileId> {
        match directory {
            ROOT => Ok(ROOT),
            _ => Ok(self.first_name(directory)?.map_or(directory, |(parent, _)| parent)),
        }
    }

    /// Returns the path of a file below the root, without a slash at its beginning; the first one,
    /// if it has several. None if it has no name any more, or lies in itself.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn path(&self, id: FileId) -> Result<Option<Vec<u8>>> {
        let (mut names, mut at, mut circle) = (Vec::new(), id, Circle::at(id));
        while at != ROOT {
            let Some((parent, name)) = self.first_name(at)? else { return Ok(None) };
            names.push(name);
            if circle.is_closed_by(parent) {
                return Ok(None);
            }
            at = parent;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }

    /// Returns whether a directory is another one or lies below it.
    pub(crate) fn is_within(&self, directory: FileId, ancestor: FileId) -> Result<bool> {
        let (mut at, mut circle) = (directory, Circle::at(directory));
        loop {
            match at {
                _ if at == ancestor => return Ok(true),
                ROOT => return Ok(false),
                _ => {}
            }
            let (parent, _) = self.first_name(at)?.ok_or(Errno::NOENT)?;
            if circle.is_closed_by(parent) {
                return Err(Error::corrupt(format!("directory {parent} lies in itself")));
            }
            at = parent;
        }
    }

    /// Returns whether a directory has no names here.
    pub(crate) fn is_empty(&self, directory: FileId) -> Result<bool> {
        for range in self.range.names_in(directory) {
            if self.table.scan(&range, Direction::Forward)?.next()?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns an error unless a directory has no names, as far as that is known here.
    pub(crate) fn check_empty(&self, directory: FileId) -> Result<()> {
        match self.range.is_split(directory) {
            true => Err(Error::AcrossTablets("the removal of a directory")),
            false if self.is_empty(directory)? => Ok(()),
            false => Err(Errno::NOTEMPTY.into()),
        }
    }

    /// Returns an error for a file whose attributes several tablets have.
    pub(crate) fn check_changeable(&self, id: FileId) -> Result<()> {
        match self.range.is_split(id) {
            true => Err(Error::AcrossTablets("a change of this directory")),
            false => Ok(()),
        }
    }

    pub(crate) fn xattr_of(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.table.get(Space::Xattrs.of(id, name).as_ref())?)
    }

    pub(crate) fn xattr_names(&self, id: FileId) -> Result<Vec<Vec<u8>>> {
        let mut scan = self.table.scan(&Space::Xattrs.range_of(id), Direction::Forward)?;
        let mut names = Vec::new();
        while let Some(record) = scan.next()? {
            names.push(record.key.name.to_vec());
        }
        Ok(names)
    }

    /// Reads a record and what is newer in memory as one: between the two, the latter may have gone
    /// into the former.
    fn reading(&self, read: impl Fn() -> Result<Inode>) -> Result<Inode> {
        for _ in 0..4 {
            let before = self.settlements();
            let found = read()?;
            if self.settlements() == before {
                return Ok(found);
            }
        }
        let _writer = self.writer.lock();
        read()
    }

    /// Returns the inode of a name. A tablet with a part of the names may return a pointer
    /// ([`Inode::is_pointer`]) to an inode that another one has.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name, with `NAMETOOLONG` or `INVAL` if no file can be
    /// called so, and as the table does.
    pub fn lookup(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        check_name(name)?;
        self.reading(|| self.lookup_now(parent, name))
    }

    /// Does the same for who has the writer's lock.
    pub(crate) fn lookup_now(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        let found = self.recorded(keys::name_in(parent, name))?;
        let mut found = found.ok_or(Errno::NOENT)?;
        self.overlay(&mut found);
        Ok(found)
    }

    /// Returns an inode as it is now.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    pub fn inode(&self, id: FileId) -> Result<Inode> {
        self.reading(|| self.inode_now(id))
    }

    /// Does the same for who has the writer's lock.
    pub(crate) fn inode_now(&self, id: FileId) -> Result<Inode> {
        let (_, mut inode) = self.locate(id)?;
        self.overlay(&mut inode);
        Ok(inode)
    }

    /// Returns an inode, which must be a directory that has not been removed, for who has the writer's
    /// lock.
    pub(crate) fn directory(&self, id: FileId) -> Result<Inode> {
        if let Some(pending) = self.pending.read().get(&id) {
            return check_directory(pending.clone());
        }
        check_directory(self.inode_now(id)?)
    }

    /// Returns where a symbolic link leads.
    ///
    /// # Errors
    ///
    /// Fails with `INVAL` if the file is not a symbolic link, with `NOENT` if there is none, and as
    /// the table does.
    pub fn readlink(&self, id: FileId) -> Result<Vec<u8>> {
        self.inode(id)?.into_target()
    }

    /// Looks a name up and holds the file: it stays, nameless if need be, until it is released.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name, with `NAMETOOLONG` or `INVAL` if no file can be
    /// called so, and as the table does.
    pub fn lookup_held(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        loop {
            let removals = self.removals.load(Ordering::Acquire);
            let found = self.lookup(parent, name)?;
            self.hold(found.id);
            if self.removals.load(Ordering::Acquire) == removals {
                return Ok(found);
            }
            self.release(found.id, 1)?;
        }
    }

    /// Holds a file, and returns its inode.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does. Then it is not held.
    pub fn hold_existing(&self, id: FileId) -> Result<Inode> {
        loop {
            let removals = self.removals.load(Ordering::Acquire);
            self.hold(id);
            let found = self.inode(id);
            if found.is_ok() && self.removals.load(Ordering::Acquire) == removals {
                return found;
            }
            self.release(id, 1)?;
            found?;
        }
    }

    /// Takes back what `hold` did so many times; a file without a name goes with the last.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn release(&self, id: FileId, times: u64) -> Result<()> {
        if self.let_go(id, times) { self.remove_orphan(id) } else { Ok(()) }
    }
}

fn check_directory(inode: Inode) -> Result<Inode> {
    match (inode.is_directory(), inode.nlink) {
        (false, _) => Err(Errno::NOTDIR.into()),
        (true, 0) => Err(Errno::NOENT.into()),
        (true, _) => Ok(inode),
    }
}
