//! Making the checksums of a damaged file right, so that fuzzers get to what they protect.

use super::footer::{Sections, seal};
use super::index::{Index, crc_place};

/// Makes the checksums right that can be found: of the tail and of the blocks that its index has.
pub(crate) fn repair(bytes: &mut [u8]) {
    let Some(tail) = seal(bytes) else { return };
    let Ok(sections) = Sections::read(&bytes[tail..], bytes.len() as u64) else { return };
    let start = tail + sections.range_deletes.len();
    let Ok(index) = Index::read(sections.index, sections.data_bytes) else { return };
    for block in 0..index.len() {
        let range = index.range(block);
        let crc = crc32fast::hash(&bytes[range.start as usize..range.end as usize]);
        let place = start + crc_place(index.len(), block);
        bytes[place..place + 4].copy_from_slice(&crc.to_le_bytes());
    }
    seal(bytes);
}
