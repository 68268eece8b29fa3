//! Tables of metadata records in sorted files that fork, merge and survive crashes. The engine
//! knows no file system: what directories and names mean is the caller's. `docs/engine.md` has the
//! rules that keep every file that somebody needs.

mod error;
mod key;
mod record;
pub mod sstable;
pub mod storage;

pub use error::{Error, Result};
pub use key::{Key, KeyRange, KeyRef, NAME_MAX, hash_of};
pub use record::{COLUMNS_MAX, Column, Layout, Op, Record, RecordRef, VALUE_MAX};
