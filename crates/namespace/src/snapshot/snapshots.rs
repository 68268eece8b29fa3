//! Snapshots: the tree as it was. The records are a checkpoint of the table, so nothing is copied; a
//! large file is copied when it is first changed after a snapshot, and one that was open for the
//! kernel to write is copied while the snapshot is made.
//!
//! A record in [`Space::Snapshots`] is what makes a snapshot. The checkpoint of one that is being
//! made goes by itself after a while. A record whose checkpoint has gone is that of a snapshot that
//! was being made or deleted when the process died: opening the namespace ends it.
//!
//! `Contents::changing` is shared by whoever changes objects, and taken by one alone who changes
//! which snapshots there are; `namespace.rs` says in which order locks are taken.

use crate::contents::Opened;
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::keys::{FileId, Space};
use crate::records::view::ReadView;
use crate::snapshot::past::Past;
use canopy_store::{Batch, Direction, Durability};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Most snapshots: finding the contents of a file tries each of them.
pub const SNAPSHOTS_MAX: usize = 256;

/// The longest name of a snapshot, in bytes.
const SNAPSHOT_NAME_BYTES_MAX: usize = 100;

/// The checkpoint of a snapshot that was not finished goes after this time.
const CREATION_MS: u64 = 60 * 60_000;

/// While changes wait, no more than so many bytes are copied.
const COPIED_BYTES_MAX: u64 = 64 << 20;

/// How often to try while the kernel goes on writing files.
const ROUNDS: usize = 8;

/// The kernel's times of files may lag behind by less than this.
const TICK: Duration = Duration::from_millis(20);

/// A snapshot, as users see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// How users name it.
    pub name: String,
    /// When it was made, in nanoseconds since 1970.
    pub created_ns: i64,
    /// How many files and directories it has; none if they were not counted to the end.
    pub files: Option<u64>,
    /// The lengths of its files together.
    pub bytes: Option<u64>,
    /// Ids below may be of its files.
    pub(crate) ids_end: FileId,
}

impl SnapshotInfo {
    /// Describes a snapshot of several tables, whose files and bytes are not counted.
    pub fn of_tables(name: String, created_ns: i64) -> Self {
        SnapshotInfo { name, created_ns, files: None, bytes: None, ids_end: FileId::NONE }
    }
}

/// A snapshot of a namespace that is open.
pub(crate) struct Snapshot {
    /// That of its checkpoint, which no other one of this namespace gets.
    pub(crate) number: u64,
    pub(crate) info: SnapshotInfo,
    /// Its records; none if it is being deleted, or they are damaged.
    pub(crate) past: Option<Past>,
}

/// Snapshots in the order in which they were made.
pub(crate) type Snapshots = Vec<Arc<Snapshot>>;

/// Times and size that change when an object changes.
type Stamp = (i64, i64, u64);

impl Namespace {
    /// Returns all snapshots, the oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        let all = self.all_snapshots();
        all.iter().filter(|one| one.past.is_some()).map(|one| one.info.clone()).collect()
    }

    /// Returns whether there still is the snapshot of this number.
    pub fn has_snapshot(&self, number: u64) -> bool {
        self.all_snapshots().iter().any(|one| one.number == number && one.past.is_some())
    }

    pub(crate) fn all_snapshots(&self) -> Arc<Snapshots> {
        self.snapshots.read().clone()
    }

    /// Returns all snapshots as JSON, the oldest first, a line each. `held_bytes` is what contents
    /// take on the disk that only snapshots need; what is in records is not counted. Looks at the
    /// names of all objects.
    ///
    /// # Errors
    ///
    /// Fails as the disk does.
    pub fn snapshots_as_json(&self) -> Result<String> {
        let mut held = HashMap::<_, u64>::new();
        for kept in self.contents.kept()? {
            *held.entry(kept.number).or_default() += kept.bytes;
        }
        let all = self.all_snapshots();
        let lines = all.iter().filter(|one| one.past.is_some()).map(|one| {
            let SnapshotInfo { name, created_ns, files, bytes, .. } = &one.info;
            let held_bytes = held.get(&Some(one.number)).unwrap_or(&0);
            let told = serde_json::json!({
                "name": name, "created_ns": created_ns, "files": files, "bytes": bytes,
                "held_bytes": held_bytes,
            });
            format!("{told}\n")
        });
        Ok(lines.collect())
    }

    /// Returns the tree as a snapshot has it. `NOENT` if there is no such snapshot.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn past(&self, name: &[u8]) -> Result<Past> {
        let all = self.all_snapshots();
        let found = all.iter().find(|one| one.info.name.as_bytes() == name);
        Ok(found.and_then(|one| one.past.clone()).ok_or(Errno::NOENT)?)
    }

    /// Returns the tree that the snapshot of a number has. `STALE` if it was deleted.
    pub(crate) fn numbered(&self, number: u64) -> Result<Past> {
        let all = self.all_snapshots();
        let found = all.iter().find(|one| one.number == number);
        Ok(found.and_then(|one| one.past.clone()).ok_or(Errno::STALE)?)
    }

    /// Makes a snapshot. It has all that happened before the call; what is written meanwhile it has
    /// as a crash would leave it, or not. `EXIST` if there is one of that name, `BUSY` if the kernel
    /// went on writing a file that is too large to be copied while others wait.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if the name cannot be one, with `NOSPC` if there are too many, and as
    /// the table and the disk do.
    pub fn create_snapshot(&self, name: &str) -> Result<SnapshotInfo> {
        check_snapshot_name(name)?;
        let _one = self.snapshotting.lock();
        let all = self.all_snapshots();
        if all.iter().any(|one| one.info.name == name) {
            return Err(Errno::EXIST.into());
        }
        if all.len() >= SNAPSHOTS_MAX {
            return Err(Errno::NOSPC.into());
        }
        let mut copies = HashMap::new();
        let made = (0..ROUNDS).find_map(|_| self.try_snapshot(name, &mut copies).transpose());
        // Those that nobody writes any more are copied when they are changed, as all others.
        for id in copies.into_keys() {
            self.contents.remove_kept(id, None)?;
        }
        let snapshot = made.unwrap_or_else(|| Err(Errno::BUSY.into()))?;
        self.finish_snapshot(&snapshot).inspect_err(|_| {
            // The first failure is told; what is left, the next opening ends.
            let _ = self.end_snapshot(snapshot.number);
        })
    }

    /// Makes a snapshot that goes if the process dies; none if the kernel wrote a file meanwhile.
    fn try_snapshot(
        &self,
        name: &str,
        copies: &mut HashMap<FileId, Stamp>,
    ) -> Result<Option<Arc<Snapshot>>> {
        // Most is done while nobody waits.
        self.flush_pending()?;
        self.tablet.table.flush()?;
        self.contents.sync_all()?;
        self.copy_written(copies, u64::MAX)?;
        let _alone = self.contents.changing.write();
        if !self.copy_written(copies, COPIED_BYTES_MAX)? {
            return Ok(None);
        }
        self.flush_pending()?;
        let (number, ids_end) = {
            let writer = self.tablet.writer.lock();
            self.tablet.flush_all_inodes()?;
            self.tablet.table.flush()?;
            (self.tablet.table.checkpoint(CREATION_MS)?, writer.ids.end())
        };
        // Nothing that the kernel writes has changed since it was copied, until here.
        let written = self.written();
        let is_same = |opened: &Arc<Opened>| {
            let stamp = opened.file().and_then(|object| object.metadata().ok());
            stamp.map(|metadata| stamp_of(&metadata)) == copies.get(&opened.id()).copied()
        };
        if !written.iter().all(is_same) {
            self.tablet.table.release_checkpoint(number)?;
            return Ok(None);
        }
        let created_ns = self.tablet.now_ns();
        let info =
            SnapshotInfo { name: name.into(), created_ns, files: None, bytes: None, ids_end };
        let past = Some(self.past_of(number)?);
        for opened in &written {
            // If a snapshot fails now, these are removed after the next crash.
            self.contents.keep_copy(opened.id(), number)?;
            copies.remove(&opened.id());
            *opened.kept.lock() = Some(number);
        }
        let snapshot = Arc::new(Snapshot { number, info, past });
        let mut all = Snapshots::clone(&self.all_snapshots());
        all.push(snapshot.clone());
        *self.snapshots.write() = Arc::new(all);
        Ok(Some(snapshot))
    }

    /// Returns the files with objects that the kernel may be writing itself.
    fn written(&self) -> Vec<Arc<Opened>> {
        let mut all = self.contents.all();
        all.retain(|opened| opened.is_kernels.load(Ordering::Acquire) && opened.file().is_some());
        all
    }

    /// Copies the objects that the kernel may be writing and that have changed since they were
    /// copied, unless that is more than `bytes_max`. Returns whether all are copied.
    fn copy_written(&self, copies: &mut HashMap<FileId, Stamp>, bytes_max: u64) -> Result<bool> {
        let (mut changed, mut bytes) = (Vec::new(), 0);
        for opened in self.written() {
            let Some(object) = opened.file() else { continue };
            let metadata = object.metadata().map_err(Error::io("an object"))?;
            let stamp = stamp_of(&metadata);
            if copies.get(&opened.id()) != Some(&stamp) {
                bytes += metadata.blocks() * 512;
                changed.push((opened.clone(), stamp));
            }
        }
        if changed.is_empty() || bytes > bytes_max {
            return Ok(changed.is_empty());
        }
        // Later changes get other times than those.
        std::thread::sleep(TICK);
        for (opened, _) in &changed {
            // A mapped file gets new times when it is changed later.
            opened.file().map_or(Ok(()), File::sync_all).map_err(Error::io("an object"))?;
        }
        for (opened, stamp) in changed {
            let Some(object) = opened.file() else { continue };
            self.contents.copy_aside(opened.id(), object)?;
            copies.insert(opened.id(), stamp);
        }
        Ok(true)
    }

    /// Makes a snapshot outlast everything, and counts what it has.
    fn finish_snapshot(&self, snapshot: &Arc<Snapshot>) -> Result<SnapshotInfo> {
        self.contents.sync_all()?;
        self.put_snapshot(snapshot.number, &snapshot.info)?;
        self.tablet.table.keep_checkpoint(snapshot.number)?;
        let counted = snapshot.past.as_ref().map(Past::count).transpose()?;
        let (files, bytes) = counted.unwrap_or_default();
        let info = SnapshotInfo { files: Some(files), bytes: Some(bytes), ..snapshot.info.clone() };
        self.put_snapshot(snapshot.number, &info)?;
        let counted = Snapshot { info: info.clone(), past: snapshot.past.clone(), ..**snapshot };
        self.replace_snapshot(snapshot.number, Some(counted));
        Ok(info)
    }

    fn put_snapshot(&self, number: u64, info: &SnapshotInfo) -> Result<()> {
        let value = serde_json::to_vec(info).map_err(|error| Error::corrupt(error.to_string()))?;
        let mut batch = Batch::new();
        batch.put(Space::Snapshots.numbered(number, b"").as_ref(), &value)?;
        Ok(self.tablet.table.write(&batch, Durability::Durable)?)
    }

    fn replace_snapshot(&self, number: u64, by: Option<Snapshot>) {
        let _alone = self.contents.changing.write();
        let mut all = Snapshots::clone(&self.all_snapshots());
        let at = all.iter().position(|one| one.number == number);
        match (at, by) {
            (Some(at), Some(by)) => all[at] = Arc::new(by),
            (Some(at), None) => drop(all.remove(at)),
            (None, _) => {}
        }
        *self.snapshots.write() = Arc::new(all);
    }

    /// Deletes a snapshot, and the contents that only it needs. `NOENT` if there is none.
    ///
    /// # Errors
    ///
    /// Fails as the table and the disk do.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        let _one = self.snapshotting.lock();
        let all = self.all_snapshots();
        let found = all.iter().find(|one| one.info.name == name).ok_or(Errno::NOENT)?;
        self.end_snapshot(found.number)
    }

    /// Ends a snapshot, or what is left of one. Whoever reads it gets errors from now on.
    fn end_snapshot(&self, number: u64) -> Result<()> {
        let all = self.all_snapshots();
        if let Some(one) = all.iter().find(|one| one.number == number) {
            let info = one.info.clone();
            self.replace_snapshot(number, Some(Snapshot { number, info, past: None }));
        }
        // From here on nothing is kept for it.
        self.tablet.table.release_checkpoint(number)?;
        let all = self.all_snapshots();
        for kept in self.contents.kept()?.into_iter().filter(|kept| kept.number == Some(number)) {
            match self.keeper(kept.id, all.iter().filter(|one| one.number < number))? {
                Some(older) => self.contents.hand_on(kept.id, number, older.number)?,
                None => self.contents.remove_kept(kept.id, Some(number))?,
            }
        }
        self.replace_snapshot(number, None);
        let mut batch = Batch::new();
        batch.delete(Space::Snapshots.numbered(number, b"").as_ref())?;
        Ok(self.tablet.table.write(&batch, Durability::Durable)?)
    }

    /// Returns the newest of these snapshots that has an object of a file, unless it, or a newer one
    /// of them, has it kept already.
    fn keeper<'a>(
        &self,
        id: FileId,
        snapshots: impl DoubleEndedIterator<Item = &'a Arc<Snapshot>>,
    ) -> Result<Option<&'a Arc<Snapshot>>> {
        for snapshot in snapshots.rev().skip_while(|one| one.info.ids_end <= id) {
            if self.contents.is_kept(id, snapshot.number)? {
                return Ok(None);
            }
            if let Some(past) = &snapshot.past
                && past.has_object(id)?
            {
                return Ok(Some(snapshot));
            }
        }
        Ok(None)
    }

    /// Returns how many bytes have to be copied before the object of a file can be changed; 0 if
    /// no snapshot needs it, or there is none.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn bytes_to_keep(&self, id: FileId) -> Result<u64> {
        let all = self.all_snapshots();
        let Some(newest) = all.last().filter(|newest| id < newest.info.ids_end) else {
            return Ok(0);
        };
        let opened = self.contents.find(id, false);
        // The copier has the lock, and takes long.
        let is_kept =
            |opened: &Opened| opened.kept.try_lock().is_some_and(|at| *at >= Some(newest.number));
        if opened.is_some_and(|opened| is_kept(&opened)) || self.keeper(id, all.iter())?.is_none() {
            return Ok(0);
        }
        Ok(self.contents.object_size(id).unwrap_or(0))
    }

    /// Keeps the object of an open file as snapshots have it, before it is changed. The caller shares
    /// `Contents::changing` until it has changed.
    pub(crate) fn keep_contents(&self, opened: &Opened) -> Result<()> {
        let all = self.all_snapshots();
        let (Some(newest), Some(object)) = (all.last(), opened.file()) else { return Ok(()) };
        let mut kept = opened.kept.lock();
        if *kept < Some(newest.number) {
            if let Some(snapshot) = self.keeper(opened.id(), all.iter())? {
                self.contents.copy_aside(opened.id(), object)?;
                self.contents.keep_copy(opened.id(), snapshot.number)?;
            }
            *kept = Some(newest.number);
        }
        Ok(())
    }

    /// Copies the object of a file if snapshots need it as it is, so that what changes it next does
    /// not wait for that.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn keep_before_change(&self, id: FileId) -> Result<()> {
        let opened = self.open_file(id)?;
        let kept = {
            let _changing = self.contents.changing.read();
            self.keep_contents(&opened)
        };
        kept.and(self.close_file(&opened))
    }

    /// Removes the object of a file that has gone, or keeps it for a snapshot that needs it.
    pub(crate) fn discard_object(&self, id: FileId) -> Result<()> {
        let all = self.all_snapshots();
        match self.keeper(id, all.iter())? {
            // A crash may have come before what says so was removed.
            Some(_) if self.contents.object_size(id).is_none() => Ok(()),
            Some(snapshot) => self.contents.keep_object(id, snapshot.number),
            None => self.contents.remove_object(id),
        }
    }

    fn past_of(&self, number: u64) -> Result<Past> {
        Ok(Past::new(number, self.view_of(number)?))
    }

    /// Opens all snapshots, and ends those that a process that died was making or deleting.
    pub(crate) fn open_snapshots(&self) -> Result<()> {
        let mut found = Vec::new();
        let mut scan = self.tablet.table.scan(&Space::Snapshots.range(), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let info: SnapshotInfo = serde_json::from_slice(record.value)
                .map_err(|error| Error::corrupt(format!("the record of a snapshot: {error}")))?;
            found.push((record.key.hash, info));
        }
        let mut all = Snapshots::new();
        let mut ended = Vec::new();
        for (number, info) in found {
            let past = match self.tablet.table.keep_checkpoint(number) {
                Err(error) if error.is_not_found() => {
                    ended.push(number);
                    None
                }
                kept => {
                    kept?;
                    match self.past_of(number) {
                        // That is not a reason not to open all else; `check` reports it.
                        Err(error) if error.is_damage() => None,
                        past => Some(past?),
                    }
                }
            };
            all.push(Arc::new(Snapshot { number, info, past }));
        }
        *self.snapshots.write() = Arc::new(all);
        if self.is_read_only() {
            return Ok(());
        }
        ended.into_iter().try_for_each(|number| self.end_snapshot(number))
    }

    /// Deletes the snapshots whose records cannot be found any more, and returns their names.
    pub(crate) fn end_lost_snapshots(&self) -> Result<Vec<String>> {
        let _one = self.snapshotting.lock();
        let all = self.all_snapshots();
        let lost = all.iter().filter(|one| one.past.is_none());
        lost.map(|one| self.end_snapshot(one.number).map(|()| one.info.name.clone())).collect()
    }

    /// Removes copies that a crash has left on their way, and those of snapshots that there never
    /// were.
    pub(crate) fn remove_stray_copies(&self) -> Result<()> {
        let _one = self.snapshotting.lock();
        let all = self.all_snapshots();
        for kept in self.contents.kept()? {
            if !all.iter().any(|one| Some(one.number) == kept.number) {
                // Nobody else makes copies meanwhile.
                let _alone = self.contents.changing.write();
                self.contents.remove_kept(kept.id, kept.number)?;
            }
        }
        Ok(())
    }

    /// Returns what is wrong with snapshots, each with a file that it is about, or 0.
    pub(crate) fn snapshot_faults(&self) -> Result<Vec<(FileId, String)>> {
        let _one = self.snapshotting.lock();
        let all = self.all_snapshots();
        let mut faults = Vec::new();
        for kept in self.contents.kept()? {
            let is_known = all.iter().any(|one| Some(one.number) == kept.number);
            // Opening the namespace for writing removes files that a crash has left.
            let is_fault = !is_known && !self.leaves_strays;
            if let Some(number) = kept.number.filter(|_| is_fault) {
                faults.push((kept.id, format!("it is kept for snapshot {number}, which is none")));
            }
        }
        let checkpoints = self.tablet.table.checkpoints()?;
        for one in all.iter().filter(|one| one.past.is_some() || !self.leaves_strays) {
            if !checkpoints.iter().any(|checkpoint| checkpoint.id == one.number) {
                faults.push((
                    FileId::NONE,
                    format!("snapshot {} has lost its records", one.info.name),
                ));
            } else if one.past.is_none() {
                let what = "cannot be read: its records are damaged";
                faults.push((FileId::NONE, format!("snapshot {} {what}", one.info.name)));
            }
        }
        Ok(faults)
    }
}

impl ReadView {
    /// Returns the number of the snapshot of a name, if there is one.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn snapshot(&self, name: &str) -> Result<Option<u64>> {
        let mut scan = self.scan(&Space::Snapshots.range())?;
        while let Some(record) = scan.next()? {
            let info = serde_json::from_slice::<SnapshotInfo>(record.value);
            if info.is_ok_and(|info| info.name == name) {
                return Ok(Some(record.key.hash));
            }
        }
        Ok(None)
    }
}

/// Returns an error for what cannot be the name of a snapshot: it must not need quotes in a query.
///
/// # Errors
///
/// Fails with `Invalid`, and says what would be right.
pub fn check_snapshot_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:+".contains(&byte);
    let is_good = (1..=SNAPSHOT_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.starts_with(['.', '-']);
    match is_good {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "{name:?} cannot be the name of a snapshot: use at most {SNAPSHOT_NAME_BYTES_MAX} \
             letters, digits and - . _ : +, not - or . first"
        ))),
    }
}

fn stamp_of(metadata: &Metadata) -> Stamp {
    let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    let mtime_ns = ns(metadata.mtime(), metadata.mtime_nsec());
    (mtime_ns, ns(metadata.ctime(), metadata.ctime_nsec()), metadata.len())
}
