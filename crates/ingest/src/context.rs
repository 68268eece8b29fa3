//! The values that every verb gets from its caller.

use crate::{Cancel, Observer, Silent};
use canopy_index::{Index, TableKind, TableRecord, Writer, WriterOptions};
use canopy_scan::MountRules;
use canopy_site::Site;
use std::fmt::Display;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The values that every verb gets from its caller. A copy refers to the same values.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The configuration.
    pub site: &'a Site,
    /// Receives messages and shows progress.
    pub observer: &'a dyn Observer,
    /// Asks the run to end.
    pub cancel: &'a Cancel,
    /// Returns the time, in nanoseconds since 1970.
    pub clock: fn() -> i64,
    /// Computes derived tables anew. Without it, an index that has some is not written:
    /// [`NeedsDerivedTables`].
    pub derived: Option<&'a dyn DerivedTables>,
}

impl<'a> Context<'a> {
    /// Returns a context that reports nothing, with the system's clock and without derived tables.
    pub fn new(site: &'a Site, cancel: &'a Cancel) -> Self {
        Context { site, observer: &Silent, cancel, clock: now_ns, derived: None }
    }

    pub(crate) fn warn(&self, text: impl Display) {
        self.observer.warn(&text);
    }

    pub(crate) fn note(&self, text: impl Display) {
        self.observer.note(&text);
    }

    /// Returns the rules for mounts below a source.
    pub(crate) fn mount_rules(&self, no_prune: bool) -> MountRules {
        MountRules::new(self.site.settings.trust_fs.clone().unwrap_or_default(), no_prune)
    }

    /// Checks whether this context can write an index. A caller does so before it starts threads, if
    /// another program writes the index instead.
    ///
    /// # Errors
    ///
    /// [`NeedsDerivedTables`] where derived tables cannot be computed.
    pub fn check_derived_tables(&self, location: &Path) -> Result<(), NeedsDerivedTables> {
        let is_derived = |table: &TableRecord| matches!(table.kind, TableKind::Derived { .. });
        let has_tables = |index: Index| index.tables().iter().any(is_derived);
        match self.derived.is_none() && Index::open(location).is_ok_and(has_tables) {
            true => Err(NeedsDerivedTables),
            false => Ok(()),
        }
    }

    /// Opens an index for writing.
    ///
    /// # Errors
    ///
    /// [`NeedsDerivedTables`] where derived tables cannot be computed, and errors of the index.
    pub fn open_writer(&self, location: &Path, options: WriterOptions) -> anyhow::Result<Writer> {
        let writer = Writer::open(location, options)?;
        if self.derived.is_none() && writer.has_derived_tables() {
            return Err(NeedsDerivedTables.into());
        }
        Ok(writer)
    }
}

/// Computes tables that are derived from the entries of an index.
pub trait DerivedTables: Sync {
    /// Computes anew the parts of derived tables that changes affect, for the generation that the
    /// writer publishes next. Returns whether all of them could be computed.
    ///
    /// # Errors
    ///
    /// If the index cannot be read or written.
    fn refresh(&self, writer: &mut Writer, threads: usize) -> anyhow::Result<bool>;
}

/// The index has derived tables, and the [`Context`] has nothing to compute them anew.
#[derive(Debug, thiserror::Error)]
#[error("the index has derived tables, which cannot be computed anew here")]
pub struct NeedsDerivedTables;

/// Returns the system's time, in nanoseconds since 1970.
pub fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
