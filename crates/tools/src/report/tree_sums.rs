//! Sums of the trees of directories, found by a hash of the path; those of several shards become
//! one.

use super::best::Place;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Inodes, bytes and blocks of 512 bytes.
pub(super) type Sums = [i64; 3];

/// What a directory's tree holds, or what one shard has of it.
pub(super) struct Tree {
    /// The halves of its key: a `u128` would take 8 bytes more for its alignment.
    pub(super) key: [u64; 2],
    pub(super) sums: Sums,
    /// Where its listing is; [`NOWHERE`] if it cannot be listed.
    pub(super) place: Place,
    /// The key of the directory that holds it, half of it; 0 for a start.
    pub(super) parent: u64,
}

pub(super) fn halves(key: u128) -> [u64; 2] {
    [(key >> 64) as u64, key as u64]
}

/// The place of what has none.
pub(super) const NOWHERE: Place = (u32::MAX, u32::MAX);

/// Trees are sorted by key in so many pieces.
const PIECES: usize = 256;

/// All trees.
pub(super) struct Trees(Vec<Vec<Tree>>);

impl Trees {
    pub(super) fn new() -> Self {
        Trees((0..PIECES).map(|_| Vec::new()).collect())
    }

    pub(super) fn push(&mut self, tree: Tree) {
        self.0[(tree.key[0] >> 56) as usize].push(tree);
    }

    pub(super) fn merge(&mut self, other: Trees) {
        for (piece, other) in self.0.iter_mut().zip(other.0) {
            if piece.is_empty() {
                *piece = other;
            } else {
                piece.reserve_exact(other.len());
                piece.extend(other);
            }
        }
    }

    /// Makes one of the trees that several shards have something of.
    pub(super) fn join(&mut self) {
        for piece in &mut self.0 {
            piece.sort_unstable_by_key(|tree| tree.key);
            piece.dedup_by(|later, first| {
                let same = later.key == first.key;
                if same {
                    add(&mut first.sums, &later.sums);
                    first.place = first.place.min(later.place);
                }
                same
            });
        }
    }

    /// Those that can be listed.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Tree> {
        self.0.iter().flatten().filter(|tree| tree.place != NOWHERE)
    }

    pub(super) fn get_mut(&mut self, key: u128) -> Option<&mut Tree> {
        let key = halves(key);
        let piece = &mut self.0[(key[0] >> 56) as usize];
        let at = piece.binary_search_by_key(&key, |tree| tree.key).ok()?;
        piece.get_mut(at)
    }
}

pub(super) fn add(sum: &mut Sums, more: &Sums) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
}

/// The key of a directory from that of the one that holds it.
pub(super) fn child_key(parent: u128, name: &str) -> u128 {
    static SECRETS: LazyLock<[RandomState; 2]> =
        LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    let [high, low] = [&SECRETS[0], &SECRETS[1]].map(|secret| secret.hash_one((parent, name)));
    u128::from(high) << 64 | u128::from(low)
}
