//! Walks a file system in parallel and hands over its listings, each with the class of those who may see it.
//!
//! Every directory is opened relative to its parent's descriptor (openat, no symbolic link followed), read with
//! getdents64, and each entry looked at with statx relative to the directory: no path is ever resolved twice,
//! and what is renamed or replaced meanwhile can not lead the walk elsewhere. The class of a listing comes from
//! the descriptor that it was read from.
//!
//! `root` opens a source and computes who may reach it; `walk` is the walk; `inode` and `xattrs` talk to the kernel.
//!
//! Not its job: what becomes of the listings.

mod exclude;
mod inode;
mod root;
mod walk;
mod xattrs;

pub use exclude::{Excludes, InvalidGlob};
pub use root::{Root, RootError};
pub use walk::{Counts, ScanError, ScanOptions, Step, scan};
pub use xattrs::Found as FoundXattr;
