//! Where inodes were last seen: the key of each one's record. Ids of a block are given one after the
//! other, and have slots one after the other. So files that were made together are found together, and
//! files that were made long before give way.

use crate::records::keys::FileId;
use canopy_store::Key;
use parking_lot::Mutex;
use std::sync::OnceLock;

/// Places that are remembered: some 13 MB, and their names.
const SLOTS: usize = 1 << 18;

/// An odd number whose multiples are far from each other among the slots: their golden section.
const BLOCK_FACTOR: u64 = 162_013;

/// Slots that are allocated together, once one of them is needed: 50 kB.
const PAGE_SLOTS: usize = 1 << 10;

/// The last place of a file that has the slot.
type Slot = Mutex<Option<(FileId, Key)>>;

/// Places of inodes. The tablets of a process may share them: no two files have one id, and a place
/// is only where to look first.
pub(crate) struct Places(Box<[OnceLock<Box<[Slot]>>]>);

impl Places {
    pub(crate) fn new() -> Self {
        Places((0..SLOTS / PAGE_SLOTS).map(|_| OnceLock::new()).collect())
    }

    /// Returns the number of a file's slot. Each block of ids begins elsewhere.
    fn slot_of(id: FileId) -> usize {
        let start = id.block().0.wrapping_mul(BLOCK_FACTOR);
        start.wrapping_add(id.0) as usize % SLOTS
    }

    /// Returns where a file was last seen, if that is remembered. It may not be there any more.
    pub(crate) fn get(&self, id: FileId) -> Option<Key> {
        let slot = Self::slot_of(id);
        let page = self.0[slot / PAGE_SLOTS].get()?;
        let slot = page[slot % PAGE_SLOTS].lock();
        slot.as_ref().filter(|(of, _)| *of == id).map(|(_, key)| key.clone())
    }

    /// Remembers where a file is.
    pub(crate) fn insert(&self, id: FileId, key: Key) {
        let slot = Self::slot_of(id);
        let page = self.0[slot / PAGE_SLOTS]
            .get_or_init(|| (0..PAGE_SLOTS).map(|_| Slot::default()).collect());
        // The old place is freed without the lock.
        let _before = page[slot % PAGE_SLOTS].lock().replace((id, key));
    }
}
