//! Holds that arrive with a partition, until it is known whether the partition stays.
//!
//! The giver sends them before it gives. If it never gives, the files are not here, and their clients
//! let them go at the giver. So the receiver drops what has arrived once an attempt has ended, or
//! another one begins. A hold that a client has renewed meanwhile, or of a file that came here by another
//! way, stays.

use crate::error::Result;
use crate::holds::MovedHold;
use crate::message::SessionId;
use crate::server::Server;
use canopy_namespace::FileId;
use canopy_partition::{Attempt, PartitionId};
use parking_lot::Mutex;
use std::collections::HashMap;

type Hold = (SessionId, FileId, u64);

/// Holds by the partitions that they arrived with.
#[derive(Default)]
pub(crate) struct ArrivedHolds(Mutex<HashMap<(FileId, PartitionId), (Attempt, Vec<Hold>)>>);

impl Server {
    /// Takes holds that arrive in an attempt.
    pub(crate) fn take_arriving_holds(
        &self,
        directory: FileId,
        child: PartitionId,
        attempt: Attempt,
        holds: &[MovedHold],
    ) -> Result<()> {
        self.drop_arrived_holds(directory, child, |before| before < attempt)?;
        {
            let mut arrivals = self.arrived_holds.0.lock();
            let arrived = arrivals.entry((directory, child)).or_insert((attempt, Vec::new()));
            // A message of an older attempt may come late.
            if arrived.0 != attempt {
                return Ok(());
            }
            arrived.1.extend(holds.iter().map(|hold| (hold.session, hold.id, hold.ticket)));
        }
        self.take_holds(holds)
    }

    /// Notes that a partition stays here, with the holds that arrived.
    pub(crate) fn keep_arrived_holds(&self, directory: FileId, child: PartitionId) {
        self.arrived_holds.0.lock().remove(&(directory, child));
    }

    /// Drops holds that arrived with a partition in an attempt that has ended.
    pub(crate) fn drop_arrived_holds(
        &self,
        directory: FileId,
        child: PartitionId,
        has_ended: impl FnOnce(Attempt) -> bool,
    ) -> Result<()> {
        let key = (directory, child);
        let dropped = {
            let mut arrivals = self.arrived_holds.0.lock();
            match arrivals.get(&key) {
                Some((attempt, _)) if has_ended(*attempt) => arrivals.remove(&key),
                _ => return Ok(()),
            }
        };
        for hold in dropped.into_iter().flat_map(|(_, holds)| holds) {
            self.drop_hold(hold)?;
        }
        Ok(())
    }
}
