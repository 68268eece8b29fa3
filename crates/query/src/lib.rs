//! Answers find, du and SQL from an index, and exports it.
//!
//! `find` has the language of find(1), `du` adds up, `ls` shows single entries, `sql` is the tables
//! for DataFusion, which only this crate knows, `export` hands everything out as one data set,
//! `report` tells who and what takes how much. [`locate`] leads from a path that a user typed into
//! the index.
//!
//! Not its job: deciding who may see what. It reads the shards that `canopy_index` could open,
//! which are those that the kernel let the caller into.

mod columns;
mod contents;
mod cursor;
pub mod du;
mod error;
pub mod export;
pub mod find;
mod follow;
mod human;
mod links;
mod listings;
mod locate;
pub mod ls;
mod merge;
mod names;
mod printf;
mod quote;
pub mod report;
pub mod sql;
mod summaries;
mod times;
mod totals;
mod work;

pub use error::{Error, Result};
pub use human::{Number, SizeForm, human_size, whole_number};
pub use locate::{Inode, Start, locate, to_path};
pub use names::{group_name, user_name};
pub use quote::{Quoting, Style};
pub use times::TimeStyle;
