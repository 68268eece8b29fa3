//! The read path: from paths that a user gives to batches of rows, and to sums of subtrees.
//!
//! Not its job: output, arguments, SQL, and deciding who may see what. It reads the shards that
//! `canopy_index` could open, which are those that the kernel let the caller into.

pub mod ages;
pub mod contents;
pub mod contexts;
pub mod cursor;
pub mod depth_first;
mod error;
pub mod fold;
pub mod follow;
pub mod gaps;
pub mod inode;
pub mod links;
pub mod listings;
pub mod locate;
pub mod nested;
pub mod plan;
pub mod resolve;
pub mod summaries;
pub mod totals;
pub mod tree_totals;
pub mod work;

pub use error::{Error, Lost, Result};
pub use inode::Inode;
pub use locate::{Start, to_path};
pub use resolve::locate;
