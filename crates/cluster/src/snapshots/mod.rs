//! Snapshots of a namespace on several servers: cuts that stay.
//!
//! | to change | read |
//! | --- | --- |
//! | records of snapshots and cuts, at server 0 | this file |
//! | making, renewing and deleting them | `keeping` |
//! | servers as they were: reading | `past` |
//! | present permissions of what was | `shown` |
//! | the way of a client | `client` |
//!
//! Each has a record in the table of server 0, under the number of that table's checkpoint, which no
//! other one gets. The record names the checkpoints of all tables. Its stage decides:
//!
//! | stage | meaning | after a crash of server 0 |
//! | --- | --- | --- |
//! | kept | a cut without a name; its checkpoints go after a time | stays until then |
//! | making | its checkpoints are about to be kept for good | is ended |
//! | whole | a snapshot | stays |
//! | ending | its checkpoints are being released | is ended |
//!
//! Checkpoints are kept and released in storage by server 0 itself, so no other server has to run for
//! that. A checkpoint that no record names was made for an attempt that failed, and goes by itself.
//!
//! **Objects of chunks.** A table's checkpoint keeps the objects that its records name (the argument of
//! `contents/chunks/collect.rs` in `canopy_namespace`). But a file may have been in another table when
//! the cut was made. So a server removes an object only if no snapshot needs it anywhere: it asks
//! server 0 for all of them after the note of the object is in its table. A cut that is not in the
//! reply, and is not being made, is made later, so it has no record with this object; or it has failed.

mod client;
mod keeping;
mod past;
mod shown;

pub(crate) use client::SnapshotClients;
pub(crate) use past::PastServers;

use crate::cuts::CutId;
use crate::error::Result;
use canopy_namespace::{SnapshotInfo, Tablet, snapshot_records};
use canopy_store::Table;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

/// Cuts without a name at once.
const CUTS_MAX: usize = 64;

/// Deletions that are remembered, for requests that are sent again.
const DELETIONS: usize = 256;

/// The checkpoints of all tables that are a snapshot or a cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotTables {
    /// Its number: no other one of the namespace ever has the same.
    pub number: u64,
    /// Checkpoints of the tables, in the order of logical servers. Servers that were added later have
    /// none.
    pub checkpoints: Vec<u64>,
}

/// A snapshot, or a cut, that can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotEntry {
    /// Its number.
    pub number: u64,
    /// Its name; none if it is a cut without a name.
    pub name: Option<String>,
    /// The moment, in nanoseconds since 1970.
    pub created_ns: i64,
}

/// A cut that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutMade {
    /// The cut.
    pub tables: SnapshotTables,
    /// Microseconds for which changes were paused.
    pub pause_us: u64,
}

/// A request about cuts without a name. Only somebody who is trusted may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutRequest {
    /// Makes one, which is kept for so many milliseconds.
    Make(u64),
    /// Keeps the one of this number for so many milliseconds from now.
    Renew(u64, u64),
    /// Lets the one of this number go.
    Release(u64),
}

/// Stage of a snapshot or a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// Without a name; it goes at this time, in milliseconds since 1970.
    Kept {
        until_ms: u64,
    },
    Making,
    Whole,
    Ending,
}

/// Record of a snapshot or a cut.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    stage: Stage,
    name: String,
    created_ns: i64,
    checkpoints: Vec<u64>,
    /// Session and number of the request that it was made for.
    maker: (u64, u64),
}

impl Record {
    fn info(&self) -> SnapshotInfo {
        SnapshotInfo::of_tables(self.name.clone(), self.created_ns)
    }

    fn can_be_read(&self) -> bool {
        matches!(self.stage, Stage::Kept { .. } | Stage::Whole)
    }

    fn tables(&self, number: u64) -> SnapshotTables {
        SnapshotTables { number, checkpoints: self.checkpoints.clone() }
    }

    fn entry(&self, number: u64) -> SnapshotEntry {
        let name = matches!(self.stage, Stage::Whole).then(|| self.name.clone());
        SnapshotEntry { number, name, created_ns: self.created_ns }
    }
}

/// Snapshots and cuts, at server 0.
pub(crate) struct Snapshots {
    all: Mutex<BTreeMap<u64, Record>>,
    /// Held by whoever makes or ends one.
    one: Mutex<()>,
    /// Number of cuts that are being made, and have no record so far.
    under_way: AtomicU64,
    /// Counts attempts to make a cut.
    attempts: AtomicU64,
    /// Requests for deletions that were carried out.
    deleted: Mutex<VecDeque<(u64, u64)>>,
}

/// Returns the records that a table has.
fn records(table: &Table) -> Result<BTreeMap<u64, Record>> {
    let mut all = BTreeMap::new();
    for (number, record) in snapshot_records(table)? {
        let damaged = |_| canopy_namespace::Error::Corrupt("the record of a snapshot".into());
        all.insert(number, serde_json::from_slice(&record).map_err(damaged)?);
    }
    Ok(all)
}

/// Returns the checkpoints of all snapshots, by the table of server 0.
pub(crate) fn checkpoints_by_name(first: &Table) -> Result<BTreeMap<String, Vec<u64>>> {
    let whole = records(first)?.into_values().filter(|one| one.stage == Stage::Whole);
    Ok(whole.map(|one| (one.name, one.checkpoints)).collect())
}

/// A cut that is being made until this is dropped.
struct UnderWay<'a>(&'a Snapshots);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Snapshots {
    /// Reads what a table has records of.
    pub(crate) fn open(tablet: &Tablet) -> Result<Self> {
        Ok(Snapshots {
            all: Mutex::new(records(tablet.table())?),
            one: Mutex::new(()),
            under_way: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            deleted: Mutex::default(),
        })
    }

    /// Returns the next attempt to make a cut.
    pub(crate) fn next_cut(&self, epoch: u64) -> CutId {
        CutId { epoch, number: self.attempts.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    fn begin(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(self)
    }

    /// Returns all that can be read, and whether another one is being made.
    pub(crate) fn list(&self) -> (Vec<SnapshotEntry>, bool) {
        // In this order: one that is being made gets its record before it counts as made.
        let is_under_way = self.under_way.load(Ordering::SeqCst) > 0;
        let all = self.all.lock();
        let is_making = all.values().any(|record| record.stage == Stage::Making);
        let readable = all.iter().filter(|(_, record)| record.can_be_read());
        let entries = readable.map(|(number, record)| record.entry(*number)).collect();
        (entries, is_under_way || is_making)
    }

    /// Returns the checkpoints of one that can be read.
    pub(crate) fn tables(&self, number: u64) -> Option<SnapshotTables> {
        let all = self.all.lock();
        all.get(&number).filter(|record| record.can_be_read()).map(|record| record.tables(number))
    }

    /// Returns whether something has to be ended.
    pub(crate) fn has_unfinished(&self, now_ms: u64) -> bool {
        self.all.lock().values().any(|record| match record.stage {
            Stage::Kept { until_ms } => until_ms <= now_ms,
            Stage::Making | Stage::Ending => true,
            Stage::Whole => false,
        })
    }

    fn named(&self, name: &str) -> Option<(u64, Record)> {
        let all = self.all.lock();
        let is_it = |record: &Record| record.stage == Stage::Whole && record.name == name;
        all.iter().find(|(_, record)| is_it(record)).map(|(number, one)| (*number, one.clone()))
    }

    fn count(&self, counts: impl Fn(Stage) -> bool) -> usize {
        self.all.lock().values().filter(|record| counts(record.stage)).count()
    }
}
