//! Where directories and files belong: the server whose table gave out an id, and the servers of the
//! partitions of a directory.
//!
//! Partition 0 of a directory is at its home, the server of its id's block. Servers of the others
//! follow from a [`Placement`], which contains the number of servers that existed when the directory
//! was about to split for the first time. The home records it before it offers the first partition,
//! and it never changes. Whoever gets a partition gets the placement first, so each server that
//! holds a partition other than 0 knows it, and replies with it to clients whose maps are stale.

use crate::error::Result;
use crate::message::Partitions;
use crate::tables::{TableList, is_newest, newest};
use canopy_namespace::{EntryName, FileId, ROOT, table_of_block};
use canopy_partition::{DirectoryMap, PartitionId, Placement, ServerId, SplitHistory, SplitPolicy};
use canopy_store::TableId;
use canopy_store::storage::Storage;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The tables of all logical servers, and the rules by which they share directories.
pub(crate) struct Layout {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) policy: SplitPolicy,
    /// The newest list of tables that is known here.
    list: RwLock<TableList>,
    /// Servers by the blocks of ids that their tables have reserved.
    homes: Mutex<HashMap<u64, ServerId>>,
}

impl Layout {
    /// Returns the layout of the cluster in a storage.
    pub(crate) fn open(storage: Arc<dyn Storage>) -> Result<Self> {
        let list = newest(&*storage, 1)?;
        let (policy, homes) = (list.policy, Mutex::default());
        Ok(Layout { storage, policy, list: RwLock::new(list), homes })
    }

    /// Returns the number of servers that are known here.
    pub(crate) fn server_count(&self) -> u32 {
        self.list.read().tables.len() as u32
    }

    /// Reads the list of tables again, unless it is known to have so many.
    pub(crate) fn learn(&self, servers: u32) -> Result<()> {
        if self.server_count() >= servers {
            return Ok(());
        }
        let known = self.list.read().version;
        let read = newest(&*self.storage, known)?;
        let mut list = self.list.write();
        if read.version > list.version {
            *list = read;
        }
        Ok(())
    }

    /// Reads the list of tables again if there is a newer one. Returns the number of servers.
    pub(crate) fn refresh(&self) -> Result<u32> {
        if is_newest(&*self.storage, self.list.read().version)? {
            return Ok(self.server_count());
        }
        self.learn(self.server_count() + 1)?;
        Ok(self.server_count())
    }

    /// Returns the tables of all servers that are known here, in order.
    pub(crate) fn tables(&self) -> Vec<TableId> {
        self.list.read().tables.clone()
    }

    /// Returns the table of a server; none if there is no such server.
    pub(crate) fn table(&self, server: ServerId) -> Result<Option<TableId>> {
        self.learn(server.0.saturating_add(1))?;
        Ok(self.list.read().tables.get(server.0 as usize).copied())
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
        let missing = || canopy_namespace::Error::from(Errno::NOENT);
        let table = table_of_block(&*self.storage, block)?.ok_or_else(missing)?;
        let mut home = self.server_of(table);
        if home.is_none() {
            // Its server may have been added since.
            self.learn(self.server_count() + 1)?;
            home = self.server_of(table);
        }
        let home = home.ok_or_else(missing)?;
        self.homes.lock().insert(block.0, home);
        Ok(home)
    }

    fn server_of(&self, table: TableId) -> Option<ServerId> {
        let list = self.list.read();
        let number = list.tables.iter().position(|one| *one == table)?;
        Some(ServerId(number as u32))
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.server_count()).map(ServerId)
    }

    /// Returns the server that a new directory of a name gets.
    pub(crate) fn home_for_new(&self, name: EntryName<'_>) -> ServerId {
        ServerId((name.hash() % u64::from(self.server_count().max(1))) as u32)
    }

    /// Returns the placement of a directory that is about to split for the first time: all servers
    /// that are known now get partitions in turn.
    pub(crate) fn new_placement(&self, directory: FileId) -> Result<Placement> {
        let each = self.policy.partitions_per_server.max(1);
        let home = self.home(directory)?;
        let placement = Placement::new(home, self.server_count(), each);
        let wrong = || canopy_namespace::Error::Corrupt("the server of a directory".into());
        Ok(placement.ok_or_else(wrong)?)
    }
}

/// Partitions of a directory that are known, and their servers.
#[derive(Clone, Default)]
pub(crate) struct KnownDirectory {
    map: DirectoryMap,
    placement: Option<Placement>,
}

impl KnownDirectory {
    /// Adds what a server knows.
    pub(crate) fn learn(&mut self, partitions: Partitions) {
        self.placement = self.placement.or(partitions.placement);
        partitions.histories.into_iter().for_each(|history| self.map.learn(history));
    }

    /// Adds what another one has.
    pub(crate) fn merge(&mut self, other: KnownDirectory) {
        self.placement = self.placement.or(other.placement);
        self.map.merge(&other.map);
    }

    /// Returns the partition that has a hash, and its server, as far as they are known. `home` is the
    /// server of partition 0.
    pub(crate) fn find(&self, home: ServerId, hash: u64) -> (PartitionId, ServerId) {
        let partition = self.map.find(hash);
        (partition, self.server(home, partition))
    }

    /// Returns the servers of the known partitions.
    pub(crate) fn servers(&self, home: ServerId) -> impl Iterator<Item = ServerId> {
        self.map.partitions().map(move |partition| self.server(home, partition))
    }

    /// Returns a server whose answer is of another moment than those of others: it named not all the
    /// partitions that it holds by now, or one that has split since. `held` has what servers named.
    pub(crate) fn outdated(
        &self,
        home: ServerId,
        held: &BTreeMap<ServerId, Vec<SplitHistory>>,
    ) -> Option<ServerId> {
        let mut partitions = self.map.partitions().map(|one| (one, self.server(home, one)));
        let outdated = partitions.find(|(partition, server)| {
            let history = self.map.history(*partition);
            held.get(server).is_some_and(|named| !named.contains(&history))
        });
        outdated.map(|(_, server)| server)
    }

    /// Returns whether no partition is known but the first one.
    pub(crate) fn is_unsplit(&self) -> bool {
        self.map.is_unsplit()
    }

    fn server(&self, home: ServerId, partition: PartitionId) -> ServerId {
        match self.placement {
            Some(placement) if partition != PartitionId::ZERO => placement.server(partition),
            _ => home,
        }
    }
}
