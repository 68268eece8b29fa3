//! Changes that concern several tablets: each makes its effects ([`Effect`]) by one batch, with the
//! records about the intent. `cluster` decides when, and what these records contain.
//!
//! The caller has locked the names and files of the effects, so nothing else changes them between
//! the checks (`prepared/rights.rs`) and the batch. A file with several names has its inode, and the
//! records of its names, in the tablet of its id's block, its home. Names in other tablets are
//! pointers alone. Likewise, the record of a directory's name leads to its content half.

mod rights;

pub use rights::{Arrival, Arrived, check_rename_names};

use crate::error::{Error, Result};
use crate::operation::Reply;
use crate::quota::Transaction;
use crate::records::change::New;
use crate::records::executed::Outcome;
use crate::records::inode::{Inode, file_type, flag};
use crate::records::keys::{EntryName, FileId, Space};
use crate::records::moving::{ENTRY_BYTES_MAX, MovedEntry};
use crate::records::tablet::{Tablet, Writer};
use canopy_model::Ownership;
use canopy_store::{Direction, Key};
use parking_lot::MutexGuard;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A name in a directory, which is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnedName {
    /// The directory.
    pub directory: FileId,
    /// The name.
    pub name: Vec<u8>,
}

impl OwnedName {
    /// Returns the name as others take it.
    pub fn borrowed(&self) -> EntryName<'_> {
        EntryName::new(self.directory, &self.name)
    }

    /// Returns the name's directory and hash, with a change of the number of names.
    pub fn counted(&self, by: i64) -> (FileId, u64, i64) {
        (self.directory, self.borrowed().hash(), by)
    }
}

impl From<EntryName<'_>> for OwnedName {
    fn from(name: EntryName<'_>) -> Self {
        OwnedName { directory: name.directory, name: name.name.to_vec() }
    }
}

/// Effect of a change on the records of one tablet. Times are those of the moment when it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// A name goes from here. Its file, or the pointer, gets another name, here or elsewhere.
    Take(OwnedName, FileId),
    /// A name goes with its file, which has no other one.
    Drop(OwnedName, FileId),
    /// A name that is free gets an entry, in this directory.
    Put(FileId, MovedEntry),
    /// The file of a name gets a second one, and so moves to its home. The name is a pointer now.
    Leave(OwnedName, FileId),
    /// A file gets its second name, and so arrives at its home. Its inode is as it will be. These are
    /// its names.
    Gather(MovedEntry, Vec<OwnedName>),
    /// A file at its home loses a name, gets one, or both.
    Relink {
        /// The file.
        id: FileId,
        /// The name that it loses.
        removed: Option<OwnedName>,
        /// The name that it gets.
        added: Option<OwnedName>,
    },
    /// A directory whose content half is here gets another name.
    Renamed {
        /// The directory.
        id: FileId,
        /// The name that it loses.
        from: OwnedName,
        /// The name that it gets.
        to: OwnedName,
    },
    /// A directory goes, with all that is here of it but its name. It has no names here.
    Vanish(FileId),
    /// A name that is free gets a whiteout of this owner and group.
    Whiteout(OwnedName, Ownership),
}

/// A record about an intent, in the table of its decider or of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentRecord {
    /// Whether it is about what was decided here, or about what is prepared here.
    pub role: IntentRole,
    /// The number of the intent.
    pub number: u64,
    /// The rest of the key, which tells intents of one number apart.
    pub rest: Vec<u8>,
    /// The record; none if it goes.
    pub value: Option<Vec<u8>>,
}

/// Role of a table in a change of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentRole {
    /// It has the decision.
    Decider,
    /// It has a part that is prepared.
    Participant,
}

impl IntentRole {
    fn space(self) -> Space {
        match self {
            IntentRole::Decider => Space::Decided,
            IntentRole::Participant => Space::Prepared,
        }
    }
}

impl Tablet {
    /// Returns the records about intents.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn intent_records(&self, role: IntentRole) -> Result<Vec<IntentRecord>> {
        let mut scan = self.table.scan(&role.space().range(), Direction::Forward)?;
        let mut records = Vec::new();
        while let Some(record) = scan.next()? {
            records.push(IntentRecord {
                role,
                number: record.key.hash,
                rest: record.key.name.to_vec(),
                value: Some(record.value.to_vec()),
            });
        }
        Ok(records)
    }

    /// Makes effects, and writes records about intents, by one batch; and the reply to the change that
    /// this thread executes, if there is one. Everybody here sees it then;
    /// [`Table::sync`](canopy_store::Table::sync) makes it outlast a crash.
    ///
    /// # Errors
    ///
    /// Fails with `Corrupt` if records are not as they were checked. Fails with `NOSPC` or `DQUOT` if
    /// there is no room, and as the table does.
    pub fn make(
        &self,
        effects: &[Effect],
        records: &[IntentRecord],
        reply: Option<&Reply>,
    ) -> Result<()> {
        if effects.iter().any(|effect| matches!(effect, Effect::Whiteout(..))) {
            self.reserve_ids()?;
        }
        let mut writer = self.writer.lock();
        if !effects.is_empty() {
            self.limit_pending()?;
        }
        let frees = effects.iter().all(Effect::frees);
        let mut making = Making {
            tablet: self,
            batch: if frees { Transaction::freeing() } else { Transaction::new() },
            directories: BTreeMap::new(),
            changed: Vec::new(),
            now_ns: self.now_ns(),
        };
        effects.iter().try_for_each(|effect| making.add(effect, &mut writer))?;
        for record in records {
            let key = record.role.space().numbered(record.number, &record.rest);
            match &record.value {
                Some(value) => making.batch.put(key.as_ref(), value)?,
                None => making.batch.delete(key.as_ref())?,
            }
        }
        if let Some(reply) = reply {
            self.put_outcome(&mut making.batch, Outcome::of(reply))?;
        }
        making.commit()
    }

    /// Returns whether a name's record leads to an inode that may be elsewhere.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn has_pointer(&self, name: EntryName<'_>) -> Result<bool> {
        Ok(self.record(&name.key())?.is_some_and(|found| found.is_pointer()))
    }

    /// Returns the file of a name, if its inode is the record of the name.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn file_under(&self, name: EntryName<'_>) -> Result<Option<FileId>> {
        let found = self.record(&name.key())?.filter(|found| !found.is_pointer());
        Ok(found.map(|found| found.id))
    }

    /// Returns the directory of a name whose record has the access half; none for anything else.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn directory_under(&self, name: EntryName<'_>) -> Result<Option<FileId>> {
        let found = self.record(&name.key())?.filter(|found| found.has(flag::ACCESS_HALF));
        Ok(found.map(|found| found.id))
    }

    /// Returns the entry of a name, with everything that moves with it.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name, with `XDEV` if it is too large to move as one, with
    /// `Invalid` if contents of the file lie on this machine, and as the table does.
    pub fn entry(&self, name: EntryName<'_>) -> Result<MovedEntry> {
        let _writer = self.writer.lock();
        let found = self.record(&name.key())?.ok_or(Errno::NOENT)?;
        let entry = self.moved_entry(name.name.to_vec(), found)?;
        match entry.bytes() > ENTRY_BYTES_MAX {
            // Programs such as mv(1) copy it instead.
            true => Err(Errno::XDEV.into()),
            false => Ok(entry),
        }
    }
}

impl Effect {
    /// Returns whether it takes no space.
    fn frees(&self) -> bool {
        match self {
            Effect::Take(..) | Effect::Drop(..) | Effect::Vanish(_) => true,
            Effect::Relink { added, .. } => added.is_none(),
            Effect::Renamed { .. } | Effect::Put(..) | Effect::Leave(..) => false,
            Effect::Gather(..) | Effect::Whiteout(..) => false,
        }
    }
}

/// Effects that are collected in one batch.
struct Making<'a> {
    tablet: &'a Tablet,
    batch: Transaction,
    /// Directories whose names change: as they are afterwards, and by how much their links do.
    directories: BTreeMap<FileId, (Inode, i32)>,
    /// Files whose records have all there is, once this is written.
    changed: Vec<FileId>,
    now_ns: i64,
}

impl Making<'_> {
    fn add(&mut self, effect: &Effect, writer: &mut MutexGuard<'_, Writer>) -> Result<()> {
        match effect {
            Effect::Take(name, id) => self.take(name.borrowed(), *id),
            Effect::Drop(name, id) => self.drop(name.borrowed(), *id),
            Effect::Put(directory, entry) => self.put(*directory, entry),
            Effect::Leave(name, id) => self.leave(name.borrowed(), *id),
            Effect::Gather(entry, names) => self.gather(entry, names),
            Effect::Relink { id, removed, added } => {
                let removed = removed.as_ref().map(OwnedName::borrowed);
                self.relink(*id, removed, added.as_ref().map(OwnedName::borrowed))
            }
            Effect::Renamed { id, from, to } => {
                let now_ns = self.now_ns;
                let directory = self.directory(*id, 0)?;
                directory.ctime_ns = now_ns;
                let directory = directory.clone();
                let (from, to) = (from.borrowed(), to.borrowed());
                let (batch, tablet) = (&mut self.batch, self.tablet);
                tablet.index_name(batch, &directory, Some(from), Some(to.name), false)?;
                batch.delete(from.found_key(*id).as_ref())?;
                Ok(batch.put(to.found_key(*id).as_ref(), b"")?)
            }
            Effect::Vanish(id) => self.vanish(*id),
            Effect::Whiteout(name, owner) => self.whiteout(name.borrowed(), *owner, writer),
        }
    }

    /// Returns a directory, which gets so many links more.
    fn directory(&mut self, id: FileId, links: i32) -> Result<&mut Inode> {
        use std::collections::btree_map::Entry;
        let (inode, by) = match self.directories.entry(id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert((self.tablet.directory(id)?, 0)),
        };
        *by += links;
        Ok(inode)
    }

    /// Gives a directory the times of a change of its names, and so many links more.
    fn touch(&mut self, directory: FileId, links: i32) -> Result<()> {
        let (tablet, now_ns) = (self.tablet, self.now_ns);
        tablet.touch(self.directory(directory, links)?, now_ns);
        Ok(())
    }

    /// Returns the record of a name, which has to be of this file.
    fn found(&self, name: EntryName<'_>, id: FileId) -> Result<Inode> {
        let found = self.tablet.record(&name.key())?.filter(|found| found.id == id);
        found.ok_or_else(|| Error::corrupt(format!("a locked name of file {id} has changed")))
    }

    fn take(&mut self, name: EntryName<'_>, id: FileId) -> Result<()> {
        let found = self.found(name, id)?;
        self.touch(name.directory, -i32::from(found.is_directory()))?;
        if !found.is_pointer() {
            self.uncount(&found);
            self.changed.push(id);
        }
        self.tablet.forget_entry(&mut self.batch, name, &found)
    }

    fn drop(&mut self, name: EntryName<'_>, id: FileId) -> Result<()> {
        let found = self.found(name, id)?;
        self.touch(name.directory, 0)?;
        self.changed.push(id);
        self.tablet.drop_name(&mut self.batch, name, found, self.now_ns)
    }

    fn put(&mut self, directory: FileId, entry: &MovedEntry) -> Result<()> {
        let name = EntryName::new(directory, &entry.name);
        self.touch(directory, i32::from(entry.inode.is_directory()))?;
        let mut entry = entry.clone();
        if !entry.inode.is_pointer() {
            entry.inode.ctime_ns = self.now_ns;
            self.count(&entry.inode);
            self.changed.push(entry.inode.id);
        }
        self.tablet.add_entry(&mut self.batch, name, &entry)
    }

    fn leave(&mut self, name: EntryName<'_>, id: FileId) -> Result<()> {
        let found = self.found(name, id)?;
        self.uncount(&found);
        self.changed.push(id);
        self.tablet.forget_entry(&mut self.batch, name, &found)?;
        Ok(self.batch.put(name.key().as_ref(), &Inode::pointer(id).encode())?)
    }

    fn gather(&mut self, entry: &MovedEntry, names: &[OwnedName]) -> Result<()> {
        let inode = &entry.inode;
        self.count(inode);
        let batch = &mut self.batch;
        let place = Space::Links.of(inode.id, b"");
        self.tablet.write_inode_uncounted(batch, &place, None, inode)?;
        for name in names {
            batch.put(name.borrowed().found_key(inode.id).as_ref(), b"")?;
            self.tablet.index_name(batch, inode, None, Some(&name.name), true)?;
        }
        self.changed.push(inode.id);
        self.tablet.add_rest(batch, entry)
    }

    fn relink(
        &mut self,
        id: FileId,
        removed: Option<EntryName<'_>>,
        added: Option<EntryName<'_>>,
    ) -> Result<()> {
        let (place, before) = self.tablet.home_record(id)?;
        let mut inode = before.clone();
        self.tablet.overlay(&mut inode);
        let names = inode.nlink + u32::from(added.is_some());
        inode.nlink = names.saturating_sub(u32::from(removed.is_some()));
        inode.ctime_ns = self.now_ns;
        let batch = &mut self.batch;
        if let Some(removed) = removed {
            batch.delete(removed.found_key(id).as_ref())?;
        }
        if let Some(added) = added {
            batch.put(added.found_key(id).as_ref(), b"")?;
        }
        self.tablet.index_name(batch, &inode, removed, added.map(|added| added.name), true)?;
        self.changed.push(id);
        self.tablet.write_or_remove(batch, &place, &before, &inode)
    }

    fn vanish(&mut self, id: FileId) -> Result<()> {
        let batch = &mut self.batch;
        batch.delete_range(&Space::Partitions.range_of(id))?;
        let place = Space::Directories.of(id, b"");
        let Some(before) = self.tablet.record(&place)? else { return Ok(()) };
        self.changed.push(id);
        if before.has(flag::FURTHER) {
            batch.delete(place.as_ref())?;
            return Ok(batch.delete_range(&Space::Xattrs.range_of(id))?);
        }
        for (parent, name) in self.tablet.names(id)? {
            let name = EntryName::new(parent, &name);
            batch.delete(name.found_key(id).as_ref())?;
            self.tablet.index_name(batch, &before, Some(name), None, false)?;
        }
        let mut inode = before.clone();
        self.tablet.overlay(&mut inode);
        (inode.nlink, inode.ctime_ns) = (0, self.now_ns);
        self.tablet.write_or_remove(batch, &place, &before, &inode)
    }

    fn whiteout(
        &mut self,
        name: EntryName<'_>,
        owner: Ownership,
        writer: &mut MutexGuard<'_, Writer>,
    ) -> Result<()> {
        let Ownership { uid, gid } = owner;
        let new = New { mode: file_type::CHARACTER, uid, gid, ..New::default() };
        let directory = self.directory(name.directory, 0)?.clone();
        let (inode, acls) = self.tablet.new_inode(&directory, &new, writer)?;
        self.batch.is_bound = uid != 0;
        self.tablet.add_new(&mut self.batch, name, &inode, acls)
    }

    fn count(&mut self, inode: &Inode) {
        self.batch.arrives(inode, self.tablet.accounts.counts());
    }

    fn uncount(&mut self, inode: &Inode) {
        self.batch.leaves(inode, self.tablet.accounts.counts());
    }

    fn commit(mut self) -> Result<()> {
        for (inode, links) in self.directories.values_mut().filter(|(_, links)| *links != 0) {
            inode.nlink = inode.nlink.saturating_add_signed(*links);
            self.tablet.rewrite_inode(&mut self.batch, inode)?;
        }
        self.tablet.commit(self.batch)?;
        self.changed.into_iter().for_each(|id| self.tablet.forget_pending(id));
        for (inode, _) in self.directories.into_values() {
            self.tablet.remember(inode);
        }
        Ok(())
    }
}

impl Tablet {
    /// Returns where the inode of a file with several names lies, which is at home here, and its
    /// record.
    fn home_record(&self, id: FileId) -> Result<(Key, Inode)> {
        let place = Space::Links.of(id, b"");
        let record = self.record(&place)?.filter(|record| !record.has(flag::LINKED));
        let missing = || Error::corrupt(format!("file {id} has no inode at its home"));
        Ok((place, record.ok_or_else(missing)?))
    }
}
