//! Walks a file system in parallel and hands over its listings, each with the class of those who
//! may see it.
//!
//! Every directory is opened relative to its parent's descriptor (openat, no symbolic link
//! followed), read with getdents64, and each entry looked at with statx relative to the directory:
//! no path is ever resolved twice, and what is renamed or replaced meanwhile can not lead the walk
//! elsewhere. The class of a listing comes from the descriptor that it was read from.
//!
//! `root` opens a source and computes who may reach it; `walk` is the walk; `stealing` shares it
//! among threads; `inode` and `xattrs` talk to the kernel; `mounts` reads what is mounted. The live
//! search of `canopy_tools` uses `stealing`, `mounts` and [`look_at`] too.
//!
//! Not its job: what becomes of the listings.

mod exclude;
mod inode;
mod mounts;
mod root;
mod stealing;
mod walk;
mod xattrs;

pub use exclude::{Excludes, InvalidGlob};
pub use inode::{look_at, look_at_open};
pub use mounts::{Mount, mounts, parse_mounts};
pub use root::{Root, RootError};
pub use stealing::{Stack, share};
pub use walk::{Counts, ScanError, ScanOptions, Step, scan};
pub use xattrs::FoundXattr;
