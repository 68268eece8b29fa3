//! Sums over a set of entries: what `du` adds up.
//!
//! Sizes are added in 128 bits: three sparse files of 2^63 - 1 bytes, which any user can make, are
//! more than 64 bits hold.

/// Sums over the entries of one listing, one subtree or one shard. Hard links are counted as often
/// as they occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries that are not directories.
    pub entries: i64,
    /// Entries that are directories.
    pub dirs: i64,
    /// Sizes of the entries that are not directories, in bytes.
    pub bytes: i128,
    /// Sizes of the directories themselves, in bytes.
    pub dir_bytes: i128,
    /// Space taken by all of them, in units of 512 bytes.
    pub blocks: i128,
}

impl Totals {
    /// Returns the sums of one entry that is not a directory.
    pub fn of_entry(size_bytes: i64, blocks: i64) -> Self {
        let (bytes, blocks) = (size_bytes.into(), blocks.into());
        Totals { entries: 1, bytes, blocks, ..Totals::default() }
    }

    /// Returns the sums of one directory by itself.
    pub fn of_directory(size_bytes: i64, blocks: i64) -> Self {
        let (dir_bytes, blocks) = (size_bytes.into(), blocks.into());
        Totals { dirs: 1, dir_bytes, blocks, ..Totals::default() }
    }

    /// Returns the space taken, in bytes.
    pub fn disk_bytes(&self) -> i128 {
        self.blocks.saturating_mul(512)
    }
}

/// Returns a number, or the greatest or least one that 64 bits hold.
pub fn clamped(number: i128) -> i64 {
    let bound = if number < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(number).unwrap_or(bound)
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.entries += other.entries;
        self.dirs += other.dirs;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.dir_bytes = self.dir_bytes.saturating_add(other.dir_bytes);
        self.blocks = self.blocks.saturating_add(other.blocks);
    }
}

impl std::ops::SubAssign for Totals {
    fn sub_assign(&mut self, other: Self) {
        self.entries -= other.entries;
        self.dirs -= other.dirs;
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.dir_bytes = self.dir_bytes.saturating_sub(other.dir_bytes);
        self.blocks = self.blocks.saturating_sub(other.blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_the_largest_files_are_exact() {
        let mut sum = Totals::default();
        (0..3).for_each(|_| sum += Totals::of_entry(i64::MAX, 8));
        assert_eq!((sum.entries, sum.bytes), (3, 27_670_116_110_564_327_421));
        sum -= Totals::of_entry(i64::MAX, 8);
        assert_eq!((sum.bytes, sum.disk_bytes()), (18_446_744_073_709_551_614, 8192));
        assert_eq!(
            [clamped(sum.bytes), clamped(-sum.bytes), clamped(-5)],
            [i64::MAX, i64::MIN, -5]
        );
    }
}
