//! Walks a file system in parallel and hands over its listings, each with the class of users who
//! may see it.
//!
//! Every directory is opened relative to its parent's descriptor (openat, without following a
//! symbolic link). It is read with getdents64, and each entry with statx relative to the directory.
//! So no path is resolved twice, and a renamed or replaced directory cannot lead the walk
//! elsewhere.
//!
//! | to change | read |
//! | --- | --- |
//! | the walk as a whole, and interrupting it (`Pauses`) | `walk` |
//! | one thread of it | `walk::thread`, `walk::task`, `stealing`, `rate` |
//! | reading an entry | `entry`, `inode`, `xattrs` |
//! | changes during the walk | `directory`, `directory::looks`, `moment`, `walk::doubts`, `batch` |
//! | open descriptors | `handle` |
//! | mounted file systems, and who decides there | `mounts`, `rules`, `ids` |
//! | a source and who may reach it | `root` |
//! | partial scans | `selection`, `remaining`; parts that other workers list: [`Others`] |
//! | counts and errors | `faults` |
//!
//! Invariants:
//!
//! - The class of a listing comes from the descriptor that the listing was read from, and from
//!   those of the directories above. These are looked at again before the listing is handed over.
//! - A listing is visible only to users who had access both before and after it was read.
//! - Data of an entry that takes two system calls is read through one descriptor of its inode.
//! - An ACL that cannot be read counts as root only. So does a file system, unless it is known to
//!   leave access to the kernel, by mode and ACL (`rules`).
//!
//! The live search of `canopy_tools` uses `stealing`, `mounts` and [`look_at`] too.
//!
//! Not its job: file formats, and using the listings.

mod batch;
mod directory;
mod entry;
mod exclude;
mod faults;
mod handle;
mod ids;
mod inode;
mod moment;
mod mounts;
mod options;
mod rate;
mod remaining;
mod root;
mod rules;
mod selection;
mod stealing;
mod walk;
mod xattrs;

pub use exclude::{Excludes, InvalidGlob};
pub use faults::{Counts, Fault, ScanError, Step};
pub use handle::threads_max;
pub use inode::{look_at, look_at_open};
pub use mounts::{Mount, mounts, parse_mounts};
pub use options::ScanOptions;
pub use rate::RateLimit;
pub use remaining::{Extent, Left, Remaining};
pub use root::{Root, RootError};
pub use rules::{ClosedMount, MountRules, Rules};
pub use selection::{Known, Selection};
pub use stealing::{Stack, share};
pub use walk::{Others, Pauses, ScanContext, Subtree, scan};
pub use xattrs::FoundXattr;
