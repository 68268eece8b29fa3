//! The read path: from paths that a user gives to batches of rows, and to sums of subtrees.
//!
//! | to change | read |
//! | --- | --- |
//! | the meaning of a user's path | `resolve`, on `links` and `locate`: finds every start |
//! | how a subtree becomes rows | `plan`, `cursor`, `listings`; `shard/lookup.rs` of the index |
//! | the order of directories | `depth_first` |
//! | conditions pushed down to columns | `conditions` |
//! | sums of subtrees | `totals`, `tree_totals`, `summaries` (by block), `fold` (along a tree) |
//! | links in the index (`find -L`, `-xtype`, `stat -L`, `du -D`, `ls`, reports) | `links`, `follow` |
//! | directories that cannot be listed, or are bound below themselves | `gaps` |
//! | sources in sources | `nested` |
//!
//! Invariants:
//!
//! - Readers never filter rows by permission: the kernel decides which files of the index they
//!   open.
//! - A column that was not read is an error where it is asked for, never a panic.
//! - Attributes that were not asked for are 0 ([`inode::InodeColumns`]).
//!
//! Not its job: output, arguments, SQL, and deciding who may see a row.

pub mod ages;
pub mod conditions;
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
