//! Refusals of requests about names and files that a server does not hold: they contain what it knows,
//! so that clients find the server that does.
//!
//! A client that is refused twice by a server in which nothing has changed takes a name as missing
//! (`client`). So a refusal is *undecided*, and equal to no other, while the server may get the name or
//! the file by something whose end it does not know. Meanwhile no server may have it.

use crate::error::{Error, Result};
use crate::message::Partitions;
use crate::server::{Server, State};
use canopy_namespace::FileId;
use canopy_namespace::operation::Target;
use canopy_partition::Holdings;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of changes in undecided refusals: no server has made so many.
static UNDECIDED: AtomicU64 = AtomicU64::new(UNDECIDED_MIN);
const UNDECIDED_MIN: u64 = 1 << 63;

/// Returns whether a refusal with this number of changes is undecided.
pub(crate) fn is_undecided(changes: u64) -> bool {
    changes >= UNDECIDED_MIN
}

impl Server {
    /// Returns the error of an operation, with what the server knows of the directory if others hold
    /// it.
    pub(crate) fn refusal(&self, state: &State, error: canopy_namespace::Error) -> Error {
        let canopy_namespace::Error::NotHere(target) = error else { return error.into() };
        let partitions = match target {
            Target::Name { directory, .. } => state.partitions(directory),
            _ => Partitions::default(),
        };
        let changes = match self.awaits(state, target) {
            Ok(true) => UNDECIDED.fetch_add(1, Ordering::Relaxed),
            Ok(false) => state.changes,
            Err(error) => return error.into(),
        };
        Error::WrongServer { target, partitions, changes, servers: self.layout.server_count() }
    }

    /// Fails with what the server knows of a directory unless it holds names with this hash.
    pub(crate) fn check_held(&self, state: &State, directory: FileId, hash: u64) -> Result<()> {
        if self.tablet.holds(directory, hash)? {
            return Ok(());
        }
        let target = Target::Name { directory, hash };
        Err(self.refusal(state, canopy_namespace::Error::NotHere(target)))
    }

    /// Returns whether a name or a file may come here by a change of several servers or a hand-over
    /// whose end is not known.
    fn awaits(&self, state: &State, target: Target) -> canopy_namespace::Result<bool> {
        let name = match target {
            Target::Name { directory, hash } => Some((directory, hash)),
            Target::File(id) => self.tablet.name_of(id)?,
            Target::Anywhere => None,
        };
        let is_offered = |(directory, hash): (FileId, u64)| {
            let offers = state.holdings_of(directory).into_iter().flat_map(Holdings::unanswered);
            let mut offered = offers.map(|(child, _)| child.hashes(child.first_depth()));
            offered.any(|hashes| hashes.contains(&hash))
        };
        Ok(state.intents.awaits(target) || name.is_some_and(is_offered))
    }
}
