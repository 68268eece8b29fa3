//! Memory that the tablets of a process share, within one budget: memtables, cached blocks, open
//! SSTables, and places of inodes. Idle tablets take little of it.

use crate::error::Result;
use crate::records::places::Places;
use crate::records::tablet::options;
use canopy_store::{Environment, MemtableBudget, Options, SstableCache, Table, TableId};
use std::sync::Arc;

/// A budget of memory, and what lives within it. Open all tables of a storage with one.
pub struct ProcessMemory {
    environment: Environment,
    cache: Arc<SstableCache>,
    memtables: Arc<MemtableBudget>,
    places: Arc<Places>,
}

impl ProcessMemory {
    /// Returns a budget of `memory_bytes` for the tables of a storage: half for memtables, half for
    /// blocks and SSTables that are open. Places of inodes take some 13 MB and their names besides.
    pub fn new(environment: &Environment, memory_bytes: u64) -> Self {
        let half = memory_bytes / 2;
        ProcessMemory {
            environment: environment.clone(),
            cache: SstableCache::new(environment, half),
            memtables: MemtableBudget::new(half),
            places: Arc::new(Places::new()),
        }
    }

    /// Opens a table of a namespace.
    ///
    /// # Errors
    ///
    /// Fails with `Store` if another process has it, and as storage does.
    pub fn open_table(&self, id: TableId) -> Result<Arc<Table>> {
        let options = Options { budget: Some(self.memtables.clone()), ..options() };
        let table = Table::open(&self.environment, id, self.cache.clone(), options)?;
        Ok(Arc::new(table))
    }

    /// Returns where the SSTables of the tables are open.
    pub fn cache(&self) -> &Arc<SstableCache> {
        &self.cache
    }

    /// Returns the budget of the memtables.
    pub fn memtables(&self) -> &Arc<MemtableBudget> {
        &self.memtables
    }

    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }
}
