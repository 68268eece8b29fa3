//! Ids of files of snapshots in few bits, as inode numbers have room for a snapshot and 46 bits.
//!
//! Most ids fit as they are: those of the first 131,072 blocks, which are 35 trillion. Later blocks
//! get numbers in the order in which this mount first shows them.

use canopy_namespace::{Block, Error, FileId};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;

/// Bits of a block in an id that is packed.
const BLOCK_BITS: u32 = 18;

/// How many bits an id takes.
pub(crate) const PACKED_BITS: u32 = BLOCK_BITS + Block::IDS.trailing_zeros();

/// Blocks from here on have numbers, and are this many at most.
const PLAIN_BLOCKS: u64 = 1 << (BLOCK_BITS - 1);

/// An id in 46 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackedId(pub(crate) u64);

/// The blocks that have numbers.
#[derive(Default)]
pub(crate) struct Blocks(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    blocks: Vec<Block>,
    numbers: HashMap<Block, u64>,
}

impl Blocks {
    /// Returns an id in few bits. `ENFILE` if this mount has shown too many blocks.
    pub(crate) fn pack(&self, id: FileId) -> Result<PackedId, Error> {
        if id.block().0 < PLAIN_BLOCKS {
            return Ok(PackedId(id.0));
        }
        let mut all = self.0.lock();
        let next = all.blocks.len() as u64;
        let number = match all.numbers.get(&id.block()) {
            Some(number) => *number,
            None if next == PLAIN_BLOCKS => return Err(Errno::NFILE.into()),
            None => {
                all.blocks.push(id.block());
                all.numbers.insert(id.block(), next);
                next
            }
        };
        Ok(PackedId(FileId::from_parts(Block(PLAIN_BLOCKS + number), id.count()).0))
    }

    /// Returns the id that was packed. `ESTALE` if this mount did not do that.
    pub(crate) fn unpack(&self, packed: PackedId) -> Result<FileId, Error> {
        let id = FileId(packed.0);
        let Some(number) = id.block().0.checked_sub(PLAIN_BLOCKS) else { return Ok(id) };
        let block = self.0.lock().blocks.get(number as usize).copied().ok_or(Errno::STALE)?;
        Ok(FileId::from_parts(block, id.count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_what_they_were() {
        let blocks = Blocks::default();
        let last = Block(Block::END.0 - 1);
        let mut packed = Vec::new();
        for block in [Block(0), Block(PLAIN_BLOCKS - 1), Block(PLAIN_BLOCKS), last, Block(1 << 20)]
        {
            for count in [0, 1, (Block::IDS - 1) as u32] {
                let id = FileId::from_parts(block, count);
                for _ in 0..2 {
                    let one = blocks.pack(id).expect("few blocks");
                    assert!(one.0 >> PACKED_BITS == 0, "{one:?} has too many bits");
                    assert_eq!(blocks.unpack(one).expect("a known block"), id);
                    packed.push(one);
                }
            }
        }
        packed.sort_unstable_by_key(|one| one.0);
        packed.dedup();
        assert_eq!(packed.len(), 15);
        let unknown = PackedId((PLAIN_BLOCKS + 3) << 28);
        assert_eq!(blocks.unpack(unknown).expect_err("nobody's").errno(), Errno::STALE);
    }

    #[test]
    fn blocks_beyond_a_number_are_refused() {
        let blocks = Blocks::default();
        let id = |number| FileId::from_parts(Block(PLAIN_BLOCKS + number), 7);
        for number in 0..PLAIN_BLOCKS {
            blocks.pack(id(number)).expect("room");
        }
        assert_eq!(blocks.pack(id(PLAIN_BLOCKS)).expect_err("full").errno(), Errno::NFILE);
        let known = blocks.pack(id(5)).expect("a known block");
        assert_eq!(blocks.unpack(known).expect("a known block"), id(5));
    }
}
