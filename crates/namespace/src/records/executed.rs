//! Changes that sessions of clients have had executed. Each is executed once: a retry after a lost
//! reply gets the first reply again.
//!
//! A change has a number in its session: a *slot*, the lower 8 bits, and a count above them. A client
//! uses a slot for one change at a time, with a growing count. So a slot needs one record, that of
//! its latest change: a client that has begun the next change of a slot has the reply to the one
//! before. The record is in the same batch as the change, and has what the reply is made of.
//!
//! ```text
//! number u64, kind u8, then by kind: 0 nothing; 1 a file id, u64; 2 an inode (`records/inode.rs`)
//! without the target of a symbolic link; 3 the number of an error, i32
//! ```
//!
//! Records stay for a time when their files are gone, and count in no quota. So they have no targets,
//! which are long: a retry has the target of the link that it makes, and others are read again.
//!
//! A record is a fact that holds anywhere: other tablets get copies when they get names or files, and of
//! two records of one slot the one with the greater number counts. A tablet that has a greater number in
//! a slot refuses late copies of earlier changes.
//!
//! The number reaches the batch beside the parameters of changes: [`ChangeId::begin`] notes it for
//! the thread, as a namespace of one table has no numbers. A change that a rule refuses has a record,
//! too: a late copy of it must not succeed.

use crate::error::{Error, Result};
use crate::operation::{Change, Operation, Reply};
use crate::quota::Transaction;
use crate::records::inode::{Inode, TYPE_MASK, file_type};
use crate::records::keys::{FileId, Space};
use crate::records::tablet::Tablet;
use canopy_store::{Direction, Durability, Key};
use parking_lot::Mutex;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::HashMap;
use std::marker::PhantomData;

/// A change of a session of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChangeId {
    /// The session, which no other client has.
    pub session: u64,
    /// Number of the change in its session: a slot and a count. Never 0.
    pub number: u64,
}

impl ChangeId {
    /// Number of slots of a session: it has no more changes under way than this.
    pub const SLOTS: u64 = 256;

    /// Returns the slot of the change.
    pub fn slot(self) -> u8 {
        (self.number % Self::SLOTS) as u8
    }

    /// Has the changes that this thread makes from now on, until the result is dropped, be this one.
    /// None has them be nobody's.
    pub fn begin(change: Option<ChangeId>) -> Running {
        Running { before: RUNNING.replace(change), of_thread: PhantomData }
    }

    fn key(self) -> Key {
        key(self.session, self.slot())
    }
}

thread_local! {
    /// The change that this thread executes.
    static RUNNING: Cell<Option<ChangeId>> = const { Cell::new(None) };
}

/// A thread that executes a change of a session.
#[must_use]
pub struct Running {
    before: Option<ChangeId>,
    /// Stays in its thread.
    of_thread: PhantomData<*const ()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(self.before);
    }
}

/// The record of an executed change, as other tablets get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutedRecord {
    /// The session.
    pub session: u64,
    /// The slot.
    pub slot: u8,
    /// The record.
    value: Vec<u8>,
}

/// Some records of executed changes, in the order in which they were noted.
#[derive(Clone, Debug)]
pub struct ExecutedPage {
    /// The records.
    pub records: Vec<ExecutedRecord>,
    /// The number of changes up to the last one.
    pub count: u64,
    /// Whether there are no more.
    pub is_last: bool,
}

/// Bytes of a record in a message, beside its value.
const RECORD_BYTES: usize = 16;

/// The latest number of each slot of each session, as far as the table has records.
#[derive(Default)]
pub(crate) struct Executed(Mutex<Latest>);

#[derive(Default)]
struct Latest {
    sessions: HashMap<u64, Slots>,
    /// Number of changes that were noted.
    count: u64,
}

/// The slots of a session.
#[derive(Default)]
struct Slots {
    /// The latest number of each slot, and the count of changes when it was noted.
    latest: Vec<(u64, u64)>,
    /// The largest of these counts.
    count_max: u64,
}

impl Executed {
    /// Returns the latest number of a slot; 0 if there is none.
    fn latest(&self, session: u64, slot: u8) -> u64 {
        let latest = self.0.lock();
        let slots = latest.sessions.get(&session);
        slots.and_then(|slots| slots.latest.get(usize::from(slot))).map_or(0, |(number, _)| *number)
    }

    pub(crate) fn note(&self, change: ChangeId) {
        let Latest { sessions, count } = &mut *self.0.lock();
        let slots = sessions.entry(change.session).or_default();
        let slot = usize::from(change.slot());
        if slots.latest.len() <= slot {
            slots.latest.resize(slot + 1, (0, 0));
        }
        if slots.latest[slot].0 < change.number {
            *count += 1;
            slots.latest[slot] = (change.number, *count);
            slots.count_max = *count;
        }
    }

    /// Returns the changes that were noted after a number of others, in this order, each with its number
    /// in it, session and slot; and the number of all.
    fn since(&self, count: u64) -> (Vec<(u64, u64, u8)>, u64) {
        let latest = self.0.lock();
        let mut keys = Vec::new();
        for (session, slots) in latest.sessions.iter().filter(|(_, one)| one.count_max > count) {
            let new = slots.latest.iter().enumerate().filter(|(_, (_, noted))| *noted > count);
            keys.extend(new.map(|(slot, (_, noted))| (*noted, *session, slot as u8)));
        }
        let count = latest.count;
        drop(latest);
        keys.sort_unstable();
        (keys, count)
    }
}

/// The data that the reply to a change is made of.
pub(crate) enum Outcome<'a> {
    /// Nothing.
    Done,
    /// The file that it concerned.
    File(FileId),
    /// The inode as it is now.
    Inode(&'a Inode),
    /// The error with which it failed.
    Failed(Errno),
}

impl<'a> Outcome<'a> {
    /// Returns the data of a reply.
    pub(crate) fn of(reply: &'a Reply) -> Self {
        match reply {
            Reply::Inode(inode) => Outcome::Inode(inode),
            Reply::File(id) => Outcome::File(*id),
            _ => Outcome::Done,
        }
    }

    fn encode(&self, number: u64) -> Vec<u8> {
        let mut value = Vec::with_capacity(128);
        value.extend_from_slice(&number.to_le_bytes());
        match self {
            Outcome::Done => value.push(0),
            Outcome::File(id) => {
                value.push(1);
                value.extend_from_slice(&id.0.to_le_bytes());
            }
            Outcome::Inode(inode) => {
                value.push(2);
                value.extend_from_slice(&match inode.target.is_empty() {
                    true => inode.encode(),
                    false => Inode { target: Vec::new(), ..(*inode).clone() }.encode(),
                });
            }
            Outcome::Failed(errno) => {
                value.push(3);
                value.extend_from_slice(&errno.raw_os_error().to_le_bytes());
            }
        }
        value
    }
}

/// Reads a record: the number, and the reply or the error.
fn decode(value: &[u8]) -> Result<(u64, std::result::Result<Reply, Errno>)> {
    let damaged = || Error::corrupt("the record of an executed change");
    let (number, rest) = value.split_first_chunk().ok_or_else(damaged)?;
    let (kind, rest) = rest.split_first().ok_or_else(damaged)?;
    let reply = match kind {
        3 => {
            let errno = i32::from_le_bytes(rest.try_into().map_err(|_| damaged())?);
            return Ok((u64::from_le_bytes(*number), Err(Errno::from_raw_os_error(errno))));
        }
        0 if rest.is_empty() => Reply::Done,
        1 => {
            let id = u64::from_le_bytes(rest.try_into().map_err(|_| damaged())?);
            Reply::File(FileId(id))
        }
        2 => Reply::Inode(Inode::decode(rest)?),
        _ => return Err(damaged()),
    };
    Ok((u64::from_le_bytes(*number), Ok(reply)))
}

fn key(session: u64, slot: u8) -> Key {
    Space::Executed.numbered(session, &[slot])
}

impl Tablet {
    /// Adds to `batch` the record of the change that this thread executes, if it has a number. The
    /// caller has the writer's lock, and commits the batch next.
    pub(crate) fn put_outcome(&self, batch: &mut Transaction, outcome: Outcome<'_>) -> Result<()> {
        let Some(change) = RUNNING.get() else { return Ok(()) };
        if change.number <= self.executed.latest(change.session, change.slot()) {
            return Err(Error::Repeated);
        }
        batch.put(change.key().as_ref(), &outcome.encode(change.number))?;
        batch.executed = Some(change);
        Ok(())
    }

    /// Reads which changes were executed, once after the table was opened. Returns the sessions that
    /// they are of.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn open_executed(&self) -> Result<Vec<u64>> {
        for record in self.executed_records()? {
            let (number, _) = decode(&record.value)?;
            self.executed.note(ChangeId { session: record.session, number });
        }
        Ok(self.executed.0.lock().sessions.keys().copied().collect())
    }

    /// Returns the reply to an operation that was executed as this change; none if it was not.
    ///
    /// # Errors
    ///
    /// Fails with `Repeated` if the client has had the reply: this is a late copy of the change.
    /// Fails as the change did, and as the table does.
    pub fn reply_to(&self, change: ChangeId, operation: &Operation<'_>) -> Result<Option<Reply>> {
        if self.executed.latest(change.session, change.slot()) < change.number {
            return Ok(None);
        }
        let value = self.table.get(change.key().as_ref())?.ok_or(Error::Repeated)?;
        let (number, reply) = decode(&value)?;
        if number != change.number {
            return Err(Error::Repeated);
        }
        let mut reply = reply?;
        let Operation::Change(change) = operation else { return Ok(Some(reply)) };
        if let Reply::Inode(inode) = &mut reply {
            self.restore_target(change, inode);
        }
        Ok(Some(match (change, reply) {
            (Change::SetXattr { .. } | Change::RemoveXattr { .. }, _) => Reply::Done,
            (Change::WriteSmall { .. } | Change::PutChunks { .. }, Reply::Inode(inode)) => {
                Reply::Written(Some(inode))
            }
            (_, reply) => reply,
        }))
    }

    /// Gives the inode of a symbolic link in a reply its target, unless it is gone.
    fn restore_target(&self, change: &Change<'_>, inode: &mut Inode) {
        if inode.mode & TYPE_MASK == file_type::SYMLINK {
            inode.target = match change {
                Change::Create { new, .. } => new.target.clone(),
                _ => self.inode(inode.id).map(|inode| inode.target).unwrap_or_default(),
            };
        }
    }

    /// Records that a rule has refused a change, unless the slot has a record of it or of a later one.
    /// The record outlasts a crash once the table is synced.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn note_refused(&self, change: ChangeId, errno: Errno) -> Result<()> {
        self.note_outcome(change, &Outcome::Failed(errno))
    }

    /// Records the reply to a change that had nothing to change, such as a rename of one name of a file
    /// to another one of it, unless the slot has a record of it or of a later one. Without it, a late
    /// copy would change what has come since. The record outlasts a crash once the table is synced.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn note_unchanged(&self, change: ChangeId, reply: &Reply) -> Result<()> {
        self.note_outcome(change, &Outcome::of(reply))
    }

    fn note_outcome(&self, change: ChangeId, outcome: &Outcome<'_>) -> Result<()> {
        let is_new = || change.number > self.executed.latest(change.session, change.slot());
        if !is_new() {
            return Ok(());
        }
        let _writer = self.writer.lock();
        if is_new() {
            let mut batch = Transaction::new();
            batch.put(change.key().as_ref(), &outcome.encode(change.number))?;
            self.table.write(&batch, Durability::Visible)?;
            self.executed.note(change);
        }
        Ok(())
    }

    /// Returns the records of executed changes of all sessions. They outlast a crash once the table
    /// is synced.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a key is damaged.
    pub fn executed_records(&self) -> Result<Vec<ExecutedRecord>> {
        let mut scan = self.table.scan(&Space::Executed.range(), Direction::Forward)?;
        let mut records = Vec::new();
        while let Some(record) = scan.next()? {
            let [slot] = record.key.name else {
                return Err(Error::corrupt("the key of an executed change"));
            };
            records.push(ExecutedRecord {
                session: record.key.hash,
                slot: *slot,
                value: record.value.to_vec(),
            });
        }
        Ok(records)
    }

    /// Returns the records of changes that were executed, or taken, after `count` of them: all, or the
    /// first ones once they have `bytes_max`. Also returns the number of changes up to the last one. It
    /// counts from the opening of the table on. Cost: the sessions, and one read for each record.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn executed_since(&self, count: u64, bytes_max: usize) -> Result<ExecutedPage> {
        let (keys, count) = self.executed.since(count);
        let mut page = ExecutedPage { records: Vec::new(), count, is_last: true };
        let mut bytes = 0;
        for (noted, session, slot) in keys {
            if bytes >= bytes_max {
                page.is_last = false;
                break;
            }
            page.count = noted;
            // Its session may have ended just now.
            if let Some(value) = self.table.get(key(session, slot).as_ref())? {
                bytes += RECORD_BYTES + value.len();
                page.records.push(ExecutedRecord { session, slot, value: value.to_vec() });
            }
        }
        if page.is_last {
            page.count = count;
        }
        Ok(page)
    }

    /// Returns the record that the change will have that this thread executes, if it has a number.
    pub fn record_of_running(reply: &Reply) -> Option<ExecutedRecord> {
        let change = RUNNING.get()?;
        let value = Outcome::of(reply).encode(change.number);
        Some(ExecutedRecord { session: change.session, slot: change.slot(), value })
    }

    /// Takes records of another tablet. They outlast a crash once the table is synced. Records of
    /// earlier changes than those here are left out.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn take_executed(&self, records: &[ExecutedRecord]) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::new();
        let mut taken = Vec::new();
        for ExecutedRecord { session, slot, value } in records {
            let (number, _) = decode(value)?;
            let change = ChangeId { session: *session, number };
            if change.slot() != *slot {
                return Err(Error::corrupt("the slot of an executed change"));
            }
            if number > self.executed.latest(*session, *slot) {
                batch.put(change.key().as_ref(), value)?;
                taken.push(change);
            }
        }
        if !taken.is_empty() {
            self.table.write(&batch, Durability::Visible)?;
            taken.into_iter().for_each(|change| self.executed.note(change));
        }
        Ok(())
    }

    /// Returns the latest numbers of a session's changes by slot; 0 if there is none.
    pub fn executed_of(&self, session: u64) -> Vec<u64> {
        let latest = self.executed.0.lock();
        let slots = latest.sessions.get(&session).into_iter().flat_map(|slots| &slots.latest);
        slots.map(|(number, _)| *number).collect()
    }

    /// Forgets these changes of a session that has ended: its client sends none of them again. Later
    /// ones stay.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn forget_executed(&self, session: u64, changes: &[u64]) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::freeing();
        let numbers = changes.iter().filter(|number| **number > 0);
        let changes = numbers.map(|number| ChangeId { session, number: *number });
        let is_latest =
            |change: &ChangeId| self.executed.latest(session, change.slot()) == change.number;
        let changes = Vec::from_iter(changes.filter(is_latest));
        for change in &changes {
            batch.delete(change.key().as_ref())?;
        }
        if !batch.is_empty() {
            self.table.write_freeing(&batch, Durability::Visible)?;
        }
        let sessions = &mut self.executed.0.lock().sessions;
        if let Some(slots) = sessions.get_mut(&session) {
            changes.iter().for_each(|change| slots.latest[usize::from(change.slot())] = (0, 0));
            if slots.latest.iter().all(|(number, _)| *number == 0) {
                sessions.remove(&session);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let inode = Inode { id: FileId(9), mode: 0o100_644, ..Inode::default() };
        for (outcome, reply) in [
            (Outcome::Done, Ok(Reply::Done)),
            (Outcome::File(FileId(7)), Ok(Reply::File(FileId(7)))),
            (Outcome::Inode(&inode), Ok(Reply::Inode(inode.clone()))),
            (Outcome::Failed(Errno::NOENT), Err(Errno::NOENT)),
        ] {
            let value = outcome.encode(300);
            assert_eq!(decode(&value).unwrap(), (300, reply));
            // Too short, or of no known kind.
            for length in 0..value.len() {
                assert!(decode(&value[..length]).is_err(), "{length} of {}", value.len());
            }
            assert!(decode(&[&value[..8], &[9], &value[9..]].concat()).is_err());
        }
    }
}
