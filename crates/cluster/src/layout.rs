//! Where directories and files belong: the server whose table gave out an id, and the servers of the
//! partitions of a directory.

use crate::error::Result;
use canopy_namespace::{EntryName, FileId, ROOT, table_of_block};
use canopy_partition::{PartitionId, Placement, ServerId, SplitPolicy};
use canopy_store::TableId;
use canopy_store::storage::Storage;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// The tables of all logical servers, and the rules by which they share directories.
pub(crate) struct Layout {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) tables: Vec<TableId>,
    pub(crate) policy: SplitPolicy,
    /// Servers by the blocks of ids that their tables have reserved.
    homes: Mutex<HashMap<u64, ServerId>>,
}

impl Layout {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        tables: Vec<TableId>,
        policy: SplitPolicy,
    ) -> Self {
        Layout { storage, tables, policy, homes: Mutex::default() }
    }

    pub(crate) fn server_count(&self) -> u32 {
        self.tables.len() as u32
    }

    /// Returns the server whose table has given out an id.
    pub(crate) fn home(&self, id: FileId) -> Result<ServerId> {
        if id == ROOT {
            return Ok(ServerId(0));
        }
        let block = id.block();
        if let Some(home) = self.homes.lock().get(&block.0) {
            return Ok(*home);
        }
        let table = table_of_block(&*self.storage, block)?;
        let number = table.and_then(|table| self.tables.iter().position(|one| *one == table));
        let Some(number) = number else {
            return Err(canopy_namespace::Error::from(Errno::NOENT).into());
        };
        let home = ServerId(number as u32);
        self.homes.lock().insert(block.0, home);
        Ok(home)
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerId> {
        (0..self.server_count()).map(ServerId)
    }

    /// Returns the server that a new directory of a name gets.
    pub(crate) fn home_for_new(&self, name: EntryName<'_>) -> ServerId {
        ServerId((name.hash() % u64::from(self.server_count().max(1))) as u32)
    }

    /// Returns where the partitions of a directory are.
    pub(crate) fn placement(&self, directory: FileId) -> Result<Placement> {
        placement(self.home(directory)?, self.server_count(), &self.policy)
    }

    /// Returns the server of a partition.
    pub(crate) fn server(&self, directory: FileId, partition: PartitionId) -> Result<ServerId> {
        Ok(self.placement(directory)?.server(partition))
    }
}

/// Returns where the partitions of a directory are, whose first one is on `home`.
pub(crate) fn placement(home: ServerId, servers: u32, policy: &SplitPolicy) -> Result<Placement> {
    let each = policy.partitions_per_server.max(1);
    let placement = Placement::new(home, servers, each);
    placement
        .ok_or_else(|| canopy_namespace::Error::Corrupt("the server of a directory".into()).into())
}
