//! Restoring a namespace to the state of a snapshot.
//!
//! One commit gives the table the records of then, with a note that objects have still to follow.
//! Objects of files that have changed since are then copied from what is kept for the snapshot. A
//! process that dies in between leaves the note: opening the namespace goes on from there. Snapshots
//! stay, later ones too, and keep the objects that they need.

use crate::contents::adopt_times;
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, Space};
use crate::snapshot::past::Past;
use canopy_store::{Batch, Direction, Durability};
use std::sync::atomic::Ordering;

impl Namespace {
    /// Makes the namespace what it was in a snapshot: names, attributes, contents, settings and
    /// quotas. The caller must have it for itself, and must drop it and open it again afterwards.
    /// `NOENT` if there is no such snapshot.
    ///
    /// # Errors
    ///
    /// Fails as the table and the disk do.
    pub fn restore_snapshot(&self, name: &str) -> Result<()> {
        let past = self.past(name.as_bytes())?;
        self.sync()?;
        self.tablet.table.flush()?;
        let mut writer = self.tablet.writer.lock();
        let mut batch = Batch::new();
        // No file gets an id that another one has had.
        writer.ids.put_record(&self.tablet.table, &mut batch)?;
        batch.put(keys::open().as_ref(), b"")?;
        batch.put(keys::restoring().as_ref(), &past.number().to_be_bytes())?;
        // Snapshots are those of now.
        batch.delete_range(&Space::Snapshots.range())?;
        let mut scan = self.tablet.table.scan(&Space::Snapshots.range(), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            batch.put(record.key, record.value)?;
        }
        drop(scan);
        Ok(self.tablet.table.revert(past.number(), &batch)?)
    }

    /// Gives files the objects that they had in the snapshot that is being restored, if one is.
    pub(crate) fn finish_restoring(&self) -> Result<()> {
        let Some(number) = self.tablet.table.get(keys::restoring().as_ref())? else {
            return Ok(());
        };
        let number = keys::parse_number(&number).ok_or_else(|| Error::corrupt("a note"))?;
        let all = self.all_snapshots();
        let found = all.iter().find(|one| one.number == number);
        let past = found.and_then(|one| one.past.clone());
        let past = past.ok_or_else(|| Error::corrupt("the snapshot that is being restored"))?;
        match self.contents.chunks() {
            // Objects that no record names are found by a full check.
            Some(_) => self.has_strays.store(true, Ordering::Release),
            None => self.restore_objects(&past)?,
        }
        let mut batch = Batch::new();
        batch.delete(keys::restoring().as_ref())?;
        Ok(self.tablet.table.write(&batch, Durability::Durable)?)
    }

    fn restore_objects(&self, past: &Past) -> Result<()> {
        for range in [keys::names_in_directories(), Space::Links.range()] {
            let mut scan = past.view().scan(&range)?;
            while let Some(record) = scan.next()? {
                let inode = Inode::decode(record.value)?;
                if inode.has(flag::OBJECT) {
                    self.restore_object(past, &inode)?;
                }
            }
        }
        for id in self.contents.objects()? {
            if !past.has_object(id)? {
                self.discard_object(id)?;
            }
        }
        Ok(())
    }

    /// Replaces the object of a file by the one kept for a snapshot, unless they are the same
    /// object.
    fn restore_object(&self, past: &Past, inode: &Inode) -> Result<()> {
        let id: FileId = inode.id;
        // Without one, the object is the same. If it is missing, `check` reports that.
        let Some(kept) = self.kept_of(past.number(), id)? else { return Ok(()) };
        // A later snapshot may need what there is.
        self.discard_object(id)?;
        self.contents.restore_object(id, &kept)?;
        adopt_times(&self.contents.open_object(id)?, inode)
    }
}
