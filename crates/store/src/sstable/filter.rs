//! The split-block Bloom filter of Parquet (parquet-format, BloomFilter.md). A key's bits lie in
//! one cache line, and any bytes make a valid filter, so nothing of it needs validation. Written
//! here since it is these few lines: Parquet's own crate would bring all of Arrow to the engine.

use crate::key::{KeyRef, hash_of};

const SALTS: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// Bytes of a block of the filter.
pub(super) const BLOCK_BYTES: usize = 32;

/// Eight words, little endian.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// A block that no key passes.
pub(crate) static EMPTY: Block = [0; BLOCK_BYTES];

/// Some 1 of 110 absent keys passes.
const BITS_PER_KEY: usize = 10;

/// Returns what the filter knows of a key: xxh3 of directory, hash and xxh3 of the name.
pub(crate) fn fingerprint(key: KeyRef<'_>) -> u64 {
    fingerprint_of(key, hash_of(key.name))
}

/// Like `fingerprint`, for the `name_hash` of the key's name.
pub(super) fn fingerprint_of(key: KeyRef<'_>, name_hash: u64) -> u64 {
    let mut bytes = [0; 24];
    for (part, number) in bytes.chunks_exact_mut(8).zip([key.directory, key.hash, name_hash]) {
        part.copy_from_slice(&number.to_le_bytes());
    }
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// A filter in memory. An empty one takes none, and nothing passes.
#[derive(Default)]
pub(crate) struct Filter(Vec<Block>);

impl Filter {
    /// Returns a filter for about so many keys; more of them only make it worse.
    pub(crate) fn for_keys(count: usize) -> Self {
        Filter(vec![EMPTY; (count * BITS_PER_KEY).div_ceil(BLOCK_BYTES * 8)])
    }

    /// Lets a fingerprint pass.
    pub(crate) fn add(&mut self, fingerprint: u64) {
        let at = block_of(fingerprint, self.0.len());
        let Some(block) = self.0.get_mut(at) else { return };
        for (word, mask) in block.as_chunks_mut::<4>().0.iter_mut().zip(masks(fingerprint)) {
            *word = (u32::from_le_bytes(*word) | mask).to_le_bytes();
        }
    }

    /// Returns whether a fingerprint passes: surely if it was added.
    pub(crate) fn may_have(&self, fingerprint: u64) -> bool {
        may_have(self.0.as_flattened(), fingerprint)
    }
}

/// Returns the bytes of the filter that `fingerprints` pass.
pub(super) fn build(fingerprints: &[u64]) -> Vec<u8> {
    let mut filter = Filter::for_keys(fingerprints.len());
    fingerprints.iter().for_each(|fingerprint| filter.add(*fingerprint));
    filter.0.into_flattened()
}

/// Returns whether a key may be among those that the filter was built of.
pub(super) fn may_have(filter: &[u8], fingerprint: u64) -> bool {
    block(filter, fingerprint).is_some_and(|block| passes(block, fingerprint))
}

/// Returns the block for a fingerprint; none if the filter is empty.
pub(super) fn block(filter: &[u8], fingerprint: u64) -> Option<&Block> {
    let (blocks, _) = filter.as_chunks();
    blocks.get(block_of(fingerprint, blocks.len()))
}

/// Returns whether a fingerprint passes a block.
pub(crate) fn passes(block: &Block, fingerprint: u64) -> bool {
    let words = block.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    words.zip(masks(fingerprint)).fold(0, |missing, (word, mask)| missing | (!word & mask)) == 0
}

fn block_of(fingerprint: u64, blocks: usize) -> usize {
    (((fingerprint >> 32) * blocks as u64) >> 32) as usize
}

fn masks(fingerprint: u64) -> [u32; 8] {
    SALTS.map(|salt| 1 << ((fingerprint as u32).wrapping_mul(salt) >> 27))
}
