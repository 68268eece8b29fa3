//! How long the kernel may cache replies.

use canopy_namespace::{Execute, Inode};
use std::time::Duration;

/// How long the kernel may cache names and attributes that others change, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheTimes {
    /// Attributes of files, and names that do not exist.
    pub files: Duration,
    /// Those of directories.
    pub directories: Duration,
}

impl CacheTimes {
    /// Nothing is cached.
    pub const NOTHING: Self = CacheTimes { files: Duration::ZERO, directories: Duration::ZERO };

    /// Everything is cached for some time.
    pub(crate) fn all_for(time: Duration) -> Self {
        CacheTimes { files: time, directories: time }
    }

    /// Returns the time for a file with this inode. The time of a directory follows the lease of the
    /// namespace, if it has one.
    pub(crate) fn of(self, namespace: &dyn Execute, inode: &Inode) -> Duration {
        if !inode.is_directory() {
            return self.files;
        }
        let lease = namespace.cached_for(inode).unwrap_or(self.directories);
        self.directories.min(lease)
    }
}
