//! Where inodes were last seen: the key of each one's record. Ids are given one after the other, so
//! each has one slot, by its last bits: files that were made together are found together, and what
//! gives way is what was made long before.

use crate::records::keys::FileId;
use canopy_store::Key;
use parking_lot::Mutex;

/// Places that are remembered: some 13 MB, and their names.
const SLOTS: usize = 1 << 18;

pub(crate) struct Places(Box<[Mutex<Option<(FileId, Key)>>]>);

impl Places {
    pub(crate) fn new() -> Self {
        Places((0..SLOTS).map(|_| Mutex::default()).collect())
    }

    fn slot(&self, id: FileId) -> &Mutex<Option<(FileId, Key)>> {
        &self.0[id.0 as usize % SLOTS]
    }

    /// Returns where a file was last seen, if that is remembered. It may not be there any more.
    pub(crate) fn get(&self, id: FileId) -> Option<Key> {
        let slot = self.slot(id).lock();
        slot.as_ref().filter(|(of, _)| *of == id).map(|(_, key)| key.clone())
    }

    /// Remembers where a file is.
    pub(crate) fn insert(&self, id: FileId, key: Key) {
        // The old place is freed without the lock.
        let _before = self.slot(id).lock().replace((id, key));
    }
}
