//! Directories whose making is not known to be complete.
//!
//! The home of a new directory makes the content half first, and then the tablet of the name gives
//! it the name. Between the two, either may die. So each of them leaves a record in the batch of its
//! part (`Space::Making`): the home that the name may be missing, and the tablet of the name that
//! the home may not know that it is there. The home forgets first, then the other one. So a half
//! has no name, and gets none, if the attempt has ended and the tablet of the name has no record.
//!
//! An attempt is the caller's ([`cluster`](crate::Tablet::create_content_half) knows how long it
//! goes on).

use crate::error::{Error, Result};
use crate::quota::Transaction;
use crate::records::keys::{FileId, Space};
use crate::records::tablet::Tablet;
use canopy_store::{Direction, Durability, Key};

/// The end of the key of a directory that was given its name here.
const NAMED: &[u8] = b"named";

/// The state of directories that a tablet makes, as its table records it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Making {
    /// Content halves that may have no name, with the attempts to make them.
    pub halves: Vec<(FileId, Vec<u8>)>,
    /// Directories that were given their names here, which their homes may not know.
    pub named: Vec<FileId>,
}

impl Tablet {
    /// Returns the directories that are being made.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a key is damaged.
    pub fn making(&self) -> Result<Making> {
        let mut scan = self.table.scan(&Space::Making.range(), Direction::Forward)?;
        let mut making = Making::default();
        while let Some(record) = scan.next()? {
            let id = FileId(record.key.hash);
            match record.key.name {
                b"" => making.halves.push((id, record.value.to_vec())),
                NAMED => making.named.push(id),
                _ => return Err(Error::corrupt("the key of a directory that is being made")),
            }
        }
        Ok(making)
    }

    /// Returns whether the tablet gave a directory its name, which its home may not know.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn has_named(&self, id: FileId) -> Result<bool> {
        Ok(self.table.get(named(id).as_ref())?.is_some())
    }

    /// Home: records, for good, that these directories have their names.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn finish_making(&self, ids: &[FileId]) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::freeing();
        for id in ids {
            batch.delete(half(*id).as_ref())?;
        }
        Ok(self.table.write_freeing(&batch, Durability::Durable)?)
    }

    /// Tablet of names: forgets that these directories were given names here, as their homes know it.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn forget_named(&self, ids: &[FileId]) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::freeing();
        for id in ids {
            batch.delete(named(*id).as_ref())?;
        }
        Ok(self.table.write_freeing(&batch, Durability::Visible)?)
    }

    /// Home: removes the content half of a directory that has no name and gets none, unless it is
    /// known to have one.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn remove_unnamed(&self, id: FileId) -> Result<()> {
        let _writer = self.writer.lock();
        match self.table.get(half(id).as_ref())?.is_some() {
            true => self.remove_content_half(id),
            false => Ok(()),
        }
    }
}

/// Adds to `batch` that a content half may have no name.
pub(super) fn put_half(batch: &mut Transaction, id: FileId, attempt: &[u8]) -> Result<()> {
    Ok(batch.put(half(id).as_ref(), attempt)?)
}

/// Adds to `batch` that a content half goes.
pub(super) fn drop_half(batch: &mut Transaction, id: FileId) -> Result<()> {
    Ok(batch.delete(half(id).as_ref())?)
}

/// Adds to `batch` that a directory gets its name.
pub(super) fn put_named(batch: &mut Transaction, id: FileId) -> Result<()> {
    Ok(batch.put(named(id).as_ref(), b"")?)
}

fn half(id: FileId) -> Key {
    Space::Making.of(id, b"")
}

fn named(id: FileId) -> Key {
    Space::Making.of(id, NAMED)
}
