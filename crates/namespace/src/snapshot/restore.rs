//! Restoring a namespace to the state of a snapshot.
//!
//! One commit gives the table the records of then, with a note that objects have still to follow.
//! Objects of files that have changed since are then copied from what is kept for the snapshot. A
//! process that dies in between leaves the note: opening the namespace goes on from there. Snapshots
//! stay, later ones too, and keep the objects that they need.
//!
//! Tables of a namespace on several servers are restored one by one ([`restore_table`],
//! [`empty_table`]), by the rules of `canopy_cluster` (`restoring`).

use crate::clock::Clock;
use crate::contents::adopt_times;
use crate::error::{Error, Result};
use crate::namespace::{Namespace, put_first_records};
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, Space};
use crate::settings::Settings;
use crate::snapshot::past::Past;
use canopy_model::Ownership;
use canopy_store::{Batch, Direction, Durability, KeyRange, Table};
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
        keep(&mut batch, &self.tablet.table, Space::Snapshots)?;
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

/// Makes a table of a namespace on several servers what it was at a checkpoint, in one commit. These
/// records stay as they are: ids of files that were given out, snapshots, and ended sessions of
/// contents. Replies to changes of sessions go: no client of before may send its changes again.
///
/// # Errors
///
/// Fails with `Store` if the checkpoint is gone, or another process has opened the table since, and
/// as storage does.
pub fn restore_table(table: &Table, checkpoint: u64) -> Result<()> {
    let mut batch = Batch::new();
    if let Some(ids) = table.get(keys::ids().as_ref())? {
        batch.put(keys::ids().as_ref(), &ids)?;
    }
    keep(&mut batch, table, Space::Snapshots)?;
    keep(&mut batch, table, Space::Ended)?;
    batch.delete_range(&Space::Executed.range())?;
    Ok(table.revert(checkpoint, &batch)?)
}

/// Makes a table of a namespace on several servers one that has just been added to it, in one write.
/// Its checkpoints, and the ids that it has given out, stay.
///
/// # Errors
///
/// Fails with `Store` if another process has opened the table since, and as storage does.
pub fn empty_table(
    table: &Table,
    settings: &Settings,
    owner: Ownership,
    clock: &Clock,
) -> Result<()> {
    let mut batch = Batch::new();
    batch.delete_range(&KeyRange::all())?;
    if let Some(ids) = table.get(keys::ids().as_ref())? {
        batch.put(keys::ids().as_ref(), &ids)?;
    }
    put_first_records(&mut batch, settings, owner, clock(), flag::FURTHER)?;
    batch.put(keys::new().as_ref(), b"")?;
    Ok(table.write(&batch, Durability::Durable)?)
}

/// Adds to `batch`, which follows a revert, the records of a space as they are now.
fn keep(batch: &mut Batch, table: &Table, space: Space) -> Result<()> {
    batch.delete_range(&space.range())?;
    let mut scan = table.scan(&space.range(), Direction::Forward)?;
    while let Some(record) = scan.next()? {
        batch.put(record.key, record.value)?;
    }
    Ok(())
}
