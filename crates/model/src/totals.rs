//! Sums over a set of entries: what `du` adds up.

/// Sums over the entries of one listing, one subtree or one shard. Hard links are counted as often
/// as they occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries that are not directories.
    pub entries: i64,
    /// Entries that are directories.
    pub dirs: i64,
    /// Sizes of the entries that are not directories, in bytes.
    pub bytes: i64,
    /// Sizes of the directories themselves, in bytes.
    pub dir_bytes: i64,
    /// Space taken by all of them, in units of 512 bytes.
    pub blocks: i64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.entries += other.entries;
        self.dirs += other.dirs;
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.dir_bytes = self.dir_bytes.wrapping_add(other.dir_bytes);
        self.blocks = self.blocks.wrapping_add(other.blocks);
    }
}

impl std::ops::SubAssign for Totals {
    fn sub_assign(&mut self, other: Self) {
        self.entries -= other.entries;
        self.dirs -= other.dirs;
        self.bytes = self.bytes.wrapping_sub(other.bytes);
        self.dir_bytes = self.dir_bytes.wrapping_sub(other.dir_bytes);
        self.blocks = self.blocks.wrapping_sub(other.blocks);
    }
}
