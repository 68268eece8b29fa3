//! A file system's namespace as records of a table (Loris, section III-B): names, inodes, extended
//! attributes, small contents, and indexes of attributes that are always current.

pub mod attributes;
mod error;
pub mod inode;
pub mod keys;
pub mod query;

pub use error::{Error, Result};
pub use inode::Inode;
pub use keys::{FileId, ROOT};
