//! Where inodes were last seen: the key of each one's record. Ids of a block are given one after
//! the other, and have slots one after the other. So files that were made together are found
//! together, and files that were made long before give way.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::keys::Block;

    #[test]
    fn pages_are_allocated_when_they_are_needed() {
        let places = Places::new();
        let allocated = || places.0.iter().filter(|page| page.get().is_some()).count();
        let id = |block, count| FileId::from_parts(Block(block), count);
        let key = |at: u64| Key::named(at, b"name");
        assert!(places.get(id(1, 7)).is_none());
        assert_eq!(allocated(), 0);
        for block in 0..20 {
            for count in 0..100 {
                places.insert(id(block, count), key(block * 1000 + u64::from(count)));
            }
        }
        // Files of each block lie together, and blocks far from each other.
        assert!((20..=40).contains(&allocated()), "{}", allocated());
        for block in 0..20 {
            for count in 0..100 {
                let found = places.get(id(block, count));
                assert_eq!(found, Some(key(block * 1000 + u64::from(count))));
            }
        }
        assert!(places.get(id(20, 0)).is_none());
        places.insert(id(0, SLOTS as u32), key(1));
        assert!(places.get(id(0, 0)).is_none(), "it gave way");
    }
}
