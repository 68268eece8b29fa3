//! Names of objects in storage; `docs/engine.md` lists them.

use crate::environment::Environment;
use crate::error::Result;
use crate::log::{END, FENCE, GROWN, SHARED, WHOLE};
use crate::storage::Storage;
use crate::{manifest, sstable};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The id of a table: random, and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u128);

impl TableId {
    /// Returns an id that no other table has.
    pub fn random(environment: &Environment) -> Self {
        let [high, low] = [(); 2].map(|()| u128::from(environment.random.next_u64()));
        TableId(high << 64 | low)
    }

    /// Returns the id that `text`, 32 hexadecimal digits, stands for.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| is_hex).map(TableId)
    }

    /// Returns what the names of all of the table's manifests begin with.
    pub(crate) fn manifests(self) -> String {
        format!("{self}/manifest/")
    }

    pub(crate) fn manifest(self, version: u64) -> String {
        format!("{self}/manifest/{version:020}")
    }

    pub(crate) fn sstables(self) -> String {
        format!("{self}/sst/")
    }

    pub(crate) fn sstable(self, name: SstableName) -> String {
        format!("{self}/sst/{:020}-{:010}", name.job, name.number)
    }

    pub(crate) fn segments(self) -> String {
        format!("{self}/log/")
    }

    pub(crate) fn segment(self, epoch: u64, number: u64) -> String {
        format!("{self}/log/{epoch:020}/{number:020}")
    }

    /// Returns the name of the object with the groups that count of a shared segment.
    pub(crate) fn log_end(self, epoch: u64, number: u64) -> String {
        format!("{}-end", self.segment(epoch, number))
    }

    /// Returns the prefix of the names of damaged objects that are kept aside.
    pub(crate) fn damaged(self) -> String {
        format!("{self}/damaged/")
    }

    pub(crate) fn lock(self) -> String {
        format!("{self}/lock")
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of an SSTable within its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SstableName {
    /// The job that made it.
    pub job: u64,
    /// Counts the job's SSTables.
    pub number: u32,
}

/// An object of a table, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// A version of its state.
    Manifest(u64),
    /// A file of records.
    Sstable(SstableName),
    /// A segment of a log, or a fence.
    Segment {
        /// The epoch that wrote the log.
        epoch: u64,
        /// Number of the segment, from 0.
        number: u64,
    },
    /// The groups that count of a segment that grew on storage of many machines.
    LogEnd {
        /// The epoch that wrote the log.
        epoch: u64,
        /// Number of the segment.
        number: u64,
    },
    /// Lock that the writer holds while it lives.
    Lock,
}

impl Object {
    /// Returns the table and the object that have this name; nothing if the engine gives no such
    /// name.
    pub fn parse(name: &str) -> Option<(TableId, Self)> {
        let (table, own) = name.split_once('/')?;
        let table = TableId::parse(table)?;
        let (kind, _) = own.split_once('/').unwrap_or((own, ""));
        let object = match kind {
            "manifest" => Object::Manifest(version_of(name)?),
            "sst" => Object::Sstable(sstable_of(name)?),
            "log" => match name.strip_suffix("-end") {
                Some(segment) => {
                    segment_of(segment).map(|(epoch, number)| Object::LogEnd { epoch, number })?
                }
                None => {
                    segment_of(name).map(|(epoch, number)| Object::Segment { epoch, number })?
                }
            },
            _ => Object::Lock,
        };
        (object.name(table) == name).then_some((table, object))
    }

    /// Returns the object's name in storage.
    pub fn name(self, table: TableId) -> String {
        match self {
            Object::Manifest(version) => table.manifest(version),
            Object::Sstable(name) => table.sstable(name),
            Object::Segment { epoch, number } => table.segment(epoch, number),
            Object::LogEnd { epoch, number } => table.log_end(epoch, number),
            Object::Lock => table.lock(),
        }
    }
}

/// Kind of an object, by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// See [`Object::Manifest`].
    Manifest,
    /// See [`Object::Sstable`].
    Sstable,
    /// See [`Object::Segment`].
    Segment,
}

impl ObjectKind {
    /// Finds out what an object of any name is, by two reads of a few bytes at its ends; nothing
    /// if it is neither.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if there is no such object, and as storage does.
    pub fn of(storage: &dyn Storage, name: &str) -> Result<Option<Self>> {
        let size_bytes = storage.size(name)?;
        let Some(end) = size_bytes.checked_sub(8) else { return Ok(None) };
        let (first, last) =
            (storage.read_range(name, 0..8)?, storage.read_range(name, end..size_bytes)?);
        let is_segment =
            || [WHOLE, GROWN, SHARED, END, FENCE].iter().any(|magic| first == magic[..]);
        Ok(match () {
            () if first == manifest::MAGIC[..] => Some(ObjectKind::Manifest),
            () if is_segment() => Some(ObjectKind::Segment),
            () if last == sstable::MAGIC[..] => Some(ObjectKind::Sstable),
            () => None,
        })
    }
}

/// Returns the version in the name of a manifest.
pub(crate) fn version_of(name: &str) -> Option<u64> {
    name.rsplit('/').next()?.parse().ok()
}

/// Returns whether `name`, of an object or a prefix, is below the SSTables of a table, or below what
/// its user calls chunks: names there are used once.
pub(crate) fn is_used_once(name: &str) -> bool {
    matches!(name.split('/').nth(1), Some("sst" | "chunk"))
}

/// Returns what the name of an object says of an SSTable.
pub(crate) fn sstable_of(name: &str) -> Option<SstableName> {
    let (job, number) = name.rsplit('/').next()?.split_once('-')?;
    Some(SstableName { job: job.parse().ok()?, number: number.parse().ok()? })
}

/// Returns the epoch and the number in the name of a segment.
pub(crate) fn segment_of(name: &str) -> Option<(u64, u64)> {
    let mut parts = name.rsplit('/');
    let number = parts.next()?.parse().ok()?;
    Some((parts.next()?.parse().ok()?, number))
}
