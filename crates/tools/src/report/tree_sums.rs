//! Sums of the trees of directories, found by a hash of the path; those of several shards become
//! one.

use super::parts::RowId;
use canopy_read::fold::{Folded, Sum};
use canopy_read::locate::Start;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Inodes, bytes and blocks of 512 bytes.
pub(super) type Sums = [i128; 3];

/// Sums of a directory's tree, or of the part of it in one shard.
pub(super) struct TreeSum {
    /// The halves of its key: a `u128` would take 8 bytes more for its alignment.
    key: [u64; 2],
    /// Its sums: the lowest 64 bits of each, and what lies above those of bytes and blocks.
    low: [i64; 3],
    high: [i32; 2],
    /// Its listing; [`NOWHERE`] if it cannot be listed.
    pub(super) id: RowId,
    /// The key of the directory that holds it, half of it; 0 for a start.
    pub(super) parent: u64,
}

impl TreeSum {
    /// Returns the sums in it.
    pub(super) fn sums(&self) -> Sums {
        let high = [0, self.high[0], self.high[1]].map(|high| i128::from(high) << 64);
        std::array::from_fn(|at| high[at] + i128::from(self.low[at]))
    }

    /// Sets what it holds.
    pub(super) fn set_sums(&mut self, sums: &Sums) {
        (self.low, self.high) = packed(sums);
    }
}

/// Splits sums as [`TreeSum`] keeps them.
fn packed(sums: &Sums) -> ([i64; 3], [i32; 2]) {
    let low = sums.map(|sum| sum as i64);
    // As many files as there can be have less than 2^95 bytes.
    let high = |at: usize| ((sums[at] - i128::from(low[at])) >> 64) as i32;
    (low, [high(1), high(2)])
}

fn halves(key: u128) -> [u64; 2] {
    [(key >> 64) as u64, key as u64]
}

/// The id of what has no row.
const NOWHERE: RowId = RowId { part: u32::MAX, row: u32::MAX };

/// Trees are sorted by key in so many pieces.
const PIECES: usize = 256;

/// All trees.
pub(super) struct TreeSums(Vec<Vec<TreeSum>>);

impl Default for TreeSums {
    fn default() -> Self {
        TreeSums((0..PIECES).map(|_| Vec::new()).collect())
    }
}

impl TreeSums {
    /// Takes in a tree whose directory has been left.
    pub(super) fn push(&mut self, tree: Folded<'_, OpenTree>) {
        let OpenTree { key, parent, id, itself, .. } = *tree.own;
        let (key, mut sums) = (halves(key), tree.total.inside);
        add(&mut sums, &itself);
        let (low, high) = packed(&sums);
        self.0[(key[0] >> 56) as usize].push(TreeSum { key, low, high, id, parent });
    }

    /// Takes in the trees of another worker.
    pub(super) fn merge(&mut self, other: TreeSums) {
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
                    let mut sums = first.sums();
                    add(&mut sums, &later.sums());
                    first.set_sums(&sums);
                    first.id = first.id.min(later.id);
                }
                same
            });
        }
    }

    /// Gives those that can be listed.
    pub(super) fn listed(&self) -> impl Iterator<Item = &TreeSum> {
        self.0.iter().flatten().filter(|tree| tree.id != NOWHERE)
    }

    /// Finds a tree by its key, once they are joined.
    pub(super) fn get_mut(&mut self, key: u128) -> Option<&mut TreeSum> {
        let key = halves(key);
        let piece = &mut self.0[(key[0] >> 56) as usize];
        let at = piece.binary_search_by_key(&key, |tree| tree.key).ok()?;
        piece.get_mut(at)
    }
}

/// A directory on the way to the current one.
#[derive(Default)]
pub(super) struct OpenTree {
    key: u128,
    parent: u64,
    pub(super) id: RowId,
    /// Sums of the directory itself.
    pub(super) itself: Sums,
    /// Sums of its contents.
    pub(super) inside: Sums,
}

impl OpenTree {
    /// Begins at a start.
    pub(super) fn of_start(start: &Start) -> Self {
        OpenTree { key: start_key(start), id: NOWHERE, ..OpenTree::default() }
    }

    /// Begins at a directory in this one.
    pub(super) fn child(&self, name: &str) -> Self {
        let key = child_key(self.key, name);
        OpenTree { key, parent: self.key as u64, id: NOWHERE, ..OpenTree::default() }
    }
}

impl Sum for OpenTree {
    /// Adds what is in a directory; itself it is among what is in the one around it.
    fn add(&mut self, other: &Self) {
        add(&mut self.inside, &other.inside);
    }
}

/// Adds sums.
pub(super) fn add(sum: &mut Sums, more: &Sums) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
}

/// Gives the key of the tree of a start, which its address tells from others.
pub(super) fn start_key(start: &Start) -> u128 {
    child_key(std::ptr::from_ref(start).addr() as u128, "")
}

/// Gives the key of a directory from that of the one that holds it.
pub(super) fn child_key(parent: u128, name: &str) -> u128 {
    static SECRETS: LazyLock<[RandomState; 2]> =
        LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    let [high, low] = [&SECRETS[0], &SECRETS[1]].map(|secret| secret.hash_one((parent, name)));
    u128::from(high) << 64 | u128::from(low)
}
