//! How to walk, as the caller says.
//!
//! The longest path has 4,096 bytes by default, like a path in a system call. Shards store the full
//! path of each directory, and compression shortens it only while it fits into its window. A
//! directory takes 30 bytes with paths of 3.8 KB, 940 bytes at 10 KB, and 8.5 KB at 64 KB. Queries
//! that build such paths take gigabytes.

use crate::exclude::Excludes;
use crate::rate::RateLimit;
use canopy_model::Device;
use std::sync::Arc;

/// How to walk.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Whether to stay on the file system of the root.
    pub one_file_system: bool,
    /// Patterns of entries to leave out.
    pub excludes: Excludes,
    /// Directories whose contents are left out, as device and inode: the index itself.
    pub skipped: Vec<(Device, u64)>,
    /// Whether extended attributes are left out.
    pub no_xattrs: bool,
    /// Whether the listings are for the caller alone: then it does not matter who else is let in.
    pub one_reader: bool,
    /// Bytes of the longest path below the root, escaped, of a directory that is read.
    pub path_bytes_max: usize,
    /// Bytes of names, targets and extended attributes after which the listing of a directory is
    /// handed over and goes on as another part.
    pub part_bytes: usize,
    /// How many entries may be looked at per second.
    pub rate_limit: Option<Arc<RateLimit>>,
}

impl Default for ScanOptions {
    fn default() -> Self {
        ScanOptions {
            one_file_system: false,
            excludes: Excludes::default(),
            skipped: Vec::new(),
            no_xattrs: false,
            one_reader: false,
            path_bytes_max: 4096,
            part_bytes: 64 << 20,
            rate_limit: None,
        }
    }
}
