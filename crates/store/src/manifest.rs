//! Manifests: the state of a table, one version an object.
//!
//! ```text
//! "CANOPYM1"   8 bytes
//! crc          u32, little endian, CRC-32 of what follows
//! body         Manifest in Postcard's encoding
//! ```

use crate::error::{Error, Fenced, Invalid, Result};
use crate::key::{Key, KeyRange};
use crate::names::{SstableName, TableId};
use crate::record::Layout;
use crate::sstable::SstableInfo;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub(crate) const MAGIC: &[u8; 8] = b"CANOPYM1";

/// A manifest has the nonces of so many versions before it.
pub(crate) const NONCES: usize = 16;

/// One version of a table's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version.
    pub version: Version,
    /// The nonces of the versions before, the last one first.
    pub nonces_before: Vec<u64>,
    /// The state.
    pub state: State,
}

/// The state of a table. `docs/engine.md` says who may change what, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Whether the table is there yet, and still.
    pub phase: Phase,
    /// The columns of its values.
    pub layout: Layout,
    /// The name of its merge operator; empty if it has none.
    pub merge_operator: String,
    /// The keys that belong to it.
    pub range: KeyRange,
    /// Counts who opened it for writing.
    pub epoch: u64,
    /// The logs that are not all in SSTables, oldest first.
    pub log: Vec<LogStart>,
    /// The id of the next job.
    pub next_job: u64,
    /// Open leases to create SSTables.
    pub jobs: Vec<WriteLease>,
    /// Its records, newest first.
    pub runs: Vec<Run>,
    /// The tables that it began with.
    pub parents: Vec<Parent>,
    /// The id of the next checkpoint.
    pub next_checkpoint: u64,
    /// Versions that must stay readable.
    pub checkpoints: Vec<Checkpoint>,
}

/// Whether a table is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not yet; anybody may give it up from then on.
    Creating {
        /// Milliseconds since 1970.
        deadline_ms: u64,
    },
    /// It can be opened.
    Live,
    /// Not any more.
    Deleted,
}

/// Where the log of an epoch begins to matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStart {
    /// The epoch that wrote the log.
    pub epoch: u64,
    /// The first segment with changes that are in no SSTable.
    pub segment: u64,
}

/// A permission to create SSTables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteLease {
    /// Never used again.
    pub id: u64,
    /// Purpose of the lease.
    pub kind: LeaseKind,
    /// Milliseconds since 1970, from when on anybody may close it; a writer's has none.
    pub deadline_ms: Option<u64>,
}

/// The purpose of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseKind {
    /// Flushes of the writer.
    Writer,
    /// Files from elsewhere become a run.
    Ingestion,
    /// Runs next to each other become one: those that hold these SSTables.
    Compaction(Vec<SstableId>),
}

/// An SSTable of any table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SstableId {
    /// The table that owns the SSTable.
    pub table: TableId,
    /// Its name in that table.
    pub name: SstableName,
}

/// SSTables whose keys do not overlap, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The SSTables.
    pub sstables: Vec<SstableRef>,
}

/// An SSTable as a part of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SstableRef {
    /// The SSTable's name and table.
    pub id: SstableId,
    /// Its sizes and counts.
    pub info: SstableInfo,
    /// The keys of it that count, all of them in its own range.
    pub range: KeyRange,
}

/// A table that another one began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The table.
    pub table: TableId,
    /// The checkpoint that is held there.
    pub checkpoint: u64,
}

/// One version of a table's manifest, and no other: somebody who slept may write one of the same
/// number once it was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Counts the versions from 1.
    pub number: u64,
    /// Random.
    pub nonce: u64,
}

/// A version that must stay readable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Never used again in this table.
    pub id: u64,
    /// The version.
    pub version: Version,
    /// How long.
    pub hold: Hold,
}

/// How long a checkpoint is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// Until it is released.
    Forever,
    /// Until a time in milliseconds since 1970, for a reader.
    Until(u64),
    /// Until that time, unless the clone that begins with it confirms it before.
    Pending {
        /// The clone.
        clone: TableId,
        /// Milliseconds since 1970.
        deadline_ms: u64,
    },
    /// As long as the clone refers to it.
    Confirmed {
        /// The clone.
        clone: TableId,
    },
}

impl Manifest {
    /// The bytes before what is checked.
    pub(crate) const HEAD: usize = 12;

    /// Returns the object's bytes.
    pub(crate) fn encode(&self) -> Result<Bytes> {
        let head = [&MAGIC[..], &[0; 4]].concat();
        let mut bytes = postcard::to_extend(self, head).map_err(Invalid::StateEncoding)?;
        let crc = crc32fast::hash(&bytes[Self::HEAD..]);
        bytes[8..Self::HEAD].copy_from_slice(&crc.to_le_bytes());
        Ok(bytes.into())
    }

    /// Returns the manifest whose bytes these are. `name` is for errors: bytes that are none are
    /// corrupt.
    ///
    /// # Errors
    ///
    /// Fails with `Corrupt` if the bytes are not a manifest.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        let Some((head, body)) = bytes.split_at_checked(Self::HEAD) else {
            return Err(Error::corrupt(name, "too short for a manifest"));
        };
        if head[..8] != *MAGIC {
            return Err(Error::corrupt(name, "not a manifest that this version knows"));
        }
        if head[8..] != crc32fast::hash(body).to_le_bytes() {
            return Err(Error::corrupt(name, "its checksum is wrong"));
        }
        let manifest: Self = postcard::from_bytes(body)
            .map_err(|error| Error::corrupt(name, format!("not a manifest: {error}")))?;
        if manifest.version.number > u64::MAX / 2 {
            return Err(Error::corrupt(name, "a count is impossibly large"));
        }
        match manifest.state.unsound() {
            Some(what) => Err(Error::corrupt(name, what)),
            None => Ok(manifest),
        }
    }
}

impl Run {
    /// Returns the run without the keys outside of `range`.
    pub(crate) fn within(mut self, range: &KeyRange) -> Self {
        for sstable in &mut self.sstables {
            sstable.range = sstable.range.intersection(range);
        }
        self.sstables.retain(|sstable| !sstable.range.is_empty());
        self
    }

    /// Returns the run without the keys of `range`. SSTables without other keys are gone.
    pub(crate) fn without(self, range: &KeyRange) -> Self {
        let before = KeyRange { start: Key::default(), end: Some(range.start.clone()) };
        let after = range.end.clone().map(|start| KeyRange { start, end: None });
        let parts = |one: SstableRef| {
            let outside = [Some(&before), after.as_ref()].into_iter().flatten();
            let ranges = outside.map(|outside| one.range.intersection(outside));
            let ranges = ranges.filter(|range| !range.intersection(&one.info.span).is_empty());
            Vec::from_iter(ranges.map(|range| SstableRef { range, ..one.clone() }))
        };
        Run { sstables: self.sstables.into_iter().flat_map(parts).collect() }
    }

    /// Returns the sizes of the SSTables together.
    pub fn size_bytes(&self) -> u64 {
        self.sstables.iter().map(|sstable| sstable.info.size_bytes).sum()
    }

    /// Returns the number of records of the SSTables, of all kinds.
    pub(crate) fn records(&self) -> u64 {
        self.sstables.iter().map(|sstable| sstable.info.records).sum()
    }

    /// Returns the number of records of the SSTables that are deletes.
    pub(crate) fn deletes(&self) -> u64 {
        self.sstables.iter().map(|sstable| sstable.info.deletes).sum()
    }
}

impl State {
    /// Returns the bytes of the SSTables of all runs.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.runs.iter().map(Run::size_bytes).sum()
    }

    /// Returns what is wrong with a state that somebody else wrote.
    fn unsound(&self) -> Option<&'static str> {
        let in_order = |run: &Run| {
            run.sstables.windows(2).all(|pair| {
                pair[0].range.end.as_ref().is_some_and(|end| *end <= pair[1].range.start)
            })
        };
        let has_keys = |run: &Run| run.sstables.iter().all(|one| !one.range.is_empty());
        // So that counting on never ends.
        let counts = [self.epoch, self.next_job, self.next_checkpoint];
        let is_too_much = counts.into_iter().any(|count| count > u64::MAX / 2);
        match () {
            () if is_too_much => Some("a count is impossibly large"),
            () if !self.layout.is_sound() => Some("the layout of its values is wrong"),
            () if !self.runs.iter().all(in_order) => Some("SSTables of a run overlap"),
            () if !self.runs.iter().all(has_keys) => Some("an SSTable counts for no key"),
            () => None,
        }
    }

    /// Returns every SSTable that the runs refer to.
    pub fn sstables(&self) -> impl Iterator<Item = &SstableRef> {
        self.runs.iter().flat_map(|run| &run.sstables)
    }

    /// Returns the job of this id, if it is open.
    pub fn job(&self, id: u64) -> Option<&WriteLease> {
        self.jobs.iter().find(|job| job.id == id)
    }

    /// Opens a job and returns its id.
    pub(crate) fn open_job(&mut self, kind: LeaseKind, deadline_ms: Option<u64>) -> u64 {
        let id = self.next_job;
        self.next_job += 1;
        self.jobs.push(WriteLease { id, kind, deadline_ms });
        id
    }

    /// Gives an open job another deadline; an error if somebody closed it.
    pub(crate) fn renew_job(&mut self, id: u64, deadline_ms: u64) -> Result<()> {
        let job = self.jobs.iter_mut().find(|job| job.id == id);
        let job = job.ok_or_else(|| Self::job_closed(id))?;
        job.deadline_ms = Some(deadline_ms);
        Ok(())
    }

    fn job_closed(job: u64) -> Error {
        Fenced::JobClosed(job).into()
    }

    /// Closes a job; an error if somebody closed it before.
    pub(crate) fn close_job(&mut self, id: u64) -> Result<()> {
        let before = self.jobs.len();
        self.jobs.retain(|job| job.id != id);
        match self.jobs.len() < before {
            true => Ok(()),
            false => Err(Self::job_closed(id)),
        }
    }

    /// Returns an error unless the table can be used.
    pub(crate) fn check_live(&self, table: TableId) -> Result<()> {
        match self.phase {
            Phase::Live => Ok(()),
            Phase::Creating { .. } => Err(Invalid::Unmade(table).into()),
            Phase::Deleted => Err(Error::NotFound(format!("table {table} (deleted)"))),
        }
    }

    /// Makes a checkpoint of `version` and returns its id.
    pub(crate) fn add_checkpoint(&mut self, version: Version, hold: Hold) -> u64 {
        let id = self.next_checkpoint;
        self.next_checkpoint += 1;
        self.checkpoints.push(Checkpoint { id, version, hold });
        id
    }
}
