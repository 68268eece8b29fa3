//! A tablet's part in snapshots of a namespace on several servers: marks of its table, and records
//! of snapshots, which the tablet of one server has for all.

use crate::error::Result;
use crate::quota::Transaction;
use crate::records::keys::Space;
use crate::records::tablet::Tablet;
use canopy_store::{Direction, Durability, Mark, Table};

/// Returns the records of snapshots that a table has, each with its number.
///
/// # Errors
///
/// Fails as the table does.
pub fn snapshot_records(table: &Table) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut scan = table.scan(&Space::Snapshots.range(), Direction::Forward)?;
    let mut records = Vec::new();
    while let Some(record) = scan.next()? {
        records.push((record.key.hash, record.value.to_vec()));
    }
    Ok(records)
}

impl Tablet {
    /// Marks this moment of the table, with all that waits in memory. Writes nothing to storage:
    /// [`Table::flush_mark`](canopy_store::Table::flush_mark) makes the checkpoint, which goes after
    /// `lifetime_ms`.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table does.
    pub fn mark(&self, lifetime_ms: u64) -> Result<Mark> {
        let _writer = self.writer.lock();
        self.flush_all_inodes()?;
        Ok(self.table.mark(lifetime_ms)?)
    }

    /// Writes the record of a snapshot, or removes it, for good. Full storage has room for it: reading a
    /// table beside its server makes one.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn put_snapshot_record(&self, number: u64, record: Option<&[u8]>) -> Result<()> {
        let _writer = self.writer.lock();
        let key = Space::Snapshots.numbered(number, b"");
        let mut batch = Transaction::new();
        match record {
            Some(record) => batch.put(key.as_ref(), record)?,
            None => batch.delete(key.as_ref())?,
        }
        Ok(self.table.write_freeing(&batch, Durability::Durable)?)
    }
}
