//! Copies of files that hand-overs have left here, and that come back.
//!
//! Records of a file beside that of its name are found by its id. So a file must not arrive under
//! another name while there is a copy of it in a partition that was given away, or that was offered:
//! both would have the same records, and those of the file would go with the copy.
//!
//! - Files that arrive by a change of several servers, and entries of a hand-over, are looked for
//!   first.
//! - A copy in a partition that was given away goes at once, with all of the partition: that may
//!   happen at any time.
//! - A copy in an offer whose end is not known stays, as its giver may have given it. The server asks
//!   for it beside requests. Meanwhile a change waits, and a hand-over stops, and is tried again.
//! - Entries of an attempt may come late: its giver has given up, and the file has come here by a
//!   change of several servers or with another partition. The receiver takes no entry of a file that
//!   is here otherwise, or that a change has locked ([`State::has_otherwise`]). That is safe:
//!   1. It looks and writes under the lock of the server's state. A change locks a file that arrives,
//!      under the same lock, before it looks for copies, and until its part is made. So either the
//!      change finds the copy and waits, or the entry finds the lock or the file.
//!   2. A file that arrives with another partition has the name of that offer, from its first entry on.
//!   3. A file that is here is not with the giver. So the attempt cannot become a hand-over, and
//!      refusing its entries costs nothing. This needs no memory of attempts, and outlasts a restart.

use crate::error::Result;
use crate::handover::ENTRIES;
use crate::intents::LockKey;
use crate::server::{Server, State};
use canopy_namespace::inode::flag;
use canopy_namespace::{EntryName, FileId, MovedEntry, Tablet};
use canopy_partition::{Holding, OfferState, PartitionId};
use std::sync::atomic::Ordering;

impl State {
    /// Returns the record of a partition that is not held and may have a copy of a name.
    fn copies_at(&self, directory: FileId, hash: u64) -> Option<(PartitionId, Holding)> {
        let mut records = self.holdings_of(directory)?.records();
        records.find(|(partition, holding)| {
            has_copies(*holding) && partition.hashes(partition.first_depth()).contains(&hash)
        })
    }

    /// Returns whether the file of one of these entries is here by another way than an offer of the
    /// directory, or may get here by a change whose end is not known.
    pub(crate) fn has_otherwise(
        &self,
        tablet: &Tablet,
        directory: FileId,
        entries: &[MovedEntry],
    ) -> Result<bool> {
        for entry in entries.iter().filter(|entry| !entry.inode.has(flag::LINKED)) {
            let file = LockKey::File(entry.inode.id);
            if self.intents.holder(&[file]).is_some() || tablet.has_otherwise(directory, entry)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Server {
    /// Removes copies of a file that is about to arrive. Returns whether none is left.
    pub(crate) fn clear_copies(&self, id: FileId) -> Result<bool> {
        self.clear_copies_beside(id, None)
    }

    /// Like `clear_copies`, for entries of a partition that is offered. Other copies are looked for only
    /// if there can be any.
    pub(crate) fn clear_copies_of(
        &self,
        entries: &[MovedEntry],
        directory: FileId,
        child: PartitionId,
    ) -> Result<bool> {
        let has_others = self.state.read().all_holdings().any(|(of, partition, holding)| {
            has_copies(holding) && (of, partition) != (directory, child)
        });
        let files = entries.iter().map(|entry| &entry.inode).filter(|inode| !inode.is_pointer());
        for id in files.filter(|_| has_others).map(|inode| inode.id) {
            if !self.clear_copies_beside(id, Some((directory, child)))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn clear_copies_beside(
        &self,
        id: FileId,
        arriving: Option<(FileId, PartitionId)>,
    ) -> Result<bool> {
        for (directory, name) in self.tablet.names(id)? {
            let hash = EntryName::new(directory, &name).hash();
            loop {
                let copies = self.state.read().copies_at(directory, hash);
                let Some((partition, holding)) = copies else { break };
                if arriving == Some((directory, partition)) {
                    break;
                }
                if let Holding::Offered { state, .. } = holding
                    && state != OfferState::Ended
                {
                    self.asks_for_offers.store(true, Ordering::Relaxed);
                    return Ok(false);
                }
                while !self.remove_some(directory, partition, holding, ENTRIES)? {}
            }
        }
        Ok(true)
    }
}

fn has_copies(holding: Holding) -> bool {
    match holding {
        Holding::Held { .. } => false,
        Holding::Offered { .. } => true,
        Holding::Given { is_removed, .. } => !is_removed,
    }
}
