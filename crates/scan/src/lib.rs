//! Walks a file system in parallel and hands over its listings, each with the class of those who
//! may see it.
//!
//! Every directory is opened relative to its parent's descriptor (openat, no symbolic link
//! followed), read with getdents64, and each entry looked at with statx relative to the directory:
//! no path is ever resolved twice, and what is renamed or replaced meanwhile can not lead the walk
//! elsewhere. The class of a listing comes from the descriptor that it was read from, and from
//! those of the directories above, which are looked at again before it is handed over. What takes
//! more than one system call to tell of an entry is read through one descriptor of its inode.
//!
//! `root` opens a source and computes who may reach it; `walk` is the walk, `walk::thread` what
//! each thread does in it, `entry` what it reads of each entry, `directory` a directory that was
//! opened with those above it, `handle` its descriptor, `moment` since when it is known to be as it
//! is, `batch` what was read and not handed over, `faults` what is counted;
//! `stealing` shares the walk among threads, `rate` limits how fast they go; `inode` and `xattrs`
//! talk to the kernel; `mounts` reads what is mounted, `rules` tells who decides there, `ids` whom
//! a user namespace does not know; `selection` says what is walked where most of a source is
//! known. The live search of `canopy_tools` uses `stealing`, `mounts` and [`look_at`] too.
//!
//! Not its job: what becomes of the listings.

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
pub use walk::{Others, Pauses, Subtree, scan};
pub use xattrs::FoundXattr;
