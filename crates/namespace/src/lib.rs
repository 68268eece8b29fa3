//! A file system's namespace as records of a table (Loris, section III-B): names, inodes, extended
//! attributes, small contents, and indexes of attributes that are always current.

pub mod acl;
pub mod attributes;
mod building;
mod bulk;
mod change;
mod check;
mod contents;
mod error;
mod files;
mod indexing;
pub mod inode;
pub mod keys;
mod listing;
mod namespace;
mod pending;
pub mod query;
mod search;
mod settings;
mod upkeep;
mod xattrs;

pub use bulk::Bulk;
pub use change::{New, Privileges, RenameMode, SetAttributes, SetTime};
pub use check::Fault;
pub use contents::{Contents, FILE_BYTES_MAX, Opened};
pub use error::{Error, Result};
pub use inode::Inode;
pub use keys::{FileId, ROOT};
pub use listing::{Entry, Listing};
pub use namespace::{Clock, NAME_BYTES_MAX, Namespace, create_namespace, system_clock};
pub use search::Found;
pub use settings::{FORMAT, Settings, table_of};
pub use upkeep::Upkeep;
pub use xattrs::{SetXattr, XATTR_BYTES_MAX};
