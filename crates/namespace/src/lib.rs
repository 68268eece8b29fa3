//! A file system's namespace as records of a table (Loris, section III-B): names, inodes, extended
//! attributes, small contents, and indexes of attributes that are always current.
//!
//! | to change | read |
//! | --- | --- |
//! | where records lie | `keys`, `inode`, `attributes` (index entries), `settings` |
//! | an operation | `change`, `change/rename.rs`, `xattrs`, `acl`, `listing`; whole trees: `bulk` |
//! | contents of files | `files`, on `contents` and `object` (the two kinds) |
//! | contents in a bucket | `chunks/mod.rs`; `cache.rs`, `file.rs`, `flush.rs`, `collect.rs` |
//! | data that waits in memory, recovery | `pending`, `upkeep` |
//! | searching | `query` (language), `search` (planner), `indexing`, `building` (new indexes) |
//! | quotas | `quota`; `accounts.rs` (sums), `counting.rs`, `trees.rs`, `reservation.rs` there |
//! | reading at one moment | `view`; changes between two moments: `changed` |
//! | snapshots | `snapshots`, `kept` (objects), `past` (reading), `present` (access), `restore` |
//! | checking and repairing | `check`; `repair`, `repair/*.rs`; damaged files: `salvage` |
//!
//! Invariants:
//!
//! - Every change is one batch of the table, under one lock (`Namespace::writer`). Names, inodes,
//!   the name index and indexes of attributes agree in every prefix of the log.
//! - Only times and sizes wait in memory (`pending`).
//! - A change of inodes is a `quota::Transaction`, which contains its effect on the sums of owners.
//! - An object is removed only once the removal of its file outlasts a crash (`Space::Doomed`).
//! - Permissions are not checked here: the kernel checks them on mounts. A search returns only
//!   entries that its caller could list from the searched directory, by `canopy_model::Grant`.
//!
//! Decisions:
//!
//! - Names, inodes and indexes share one table; the paper keeps indexes in a tree of their own, to
//!   merge it less often. Here a search never meets stale entries. A change knows the old
//!   attributes, since it has read them anyway.
//! - Extended attributes and small contents are records by file id. A listing does not read past
//!   them, and a rename moves neither.
//! - Changes hold the lock for some 3 µs, a tenth of the kernel's time for a request. Readers take no
//!   lock.

pub mod acl;
pub mod attributes;
mod building;
mod bulk;
mod change;
mod changed;
mod check;
mod chunks;
mod contents;
mod error;
mod explain;
mod files;
mod indexing;
pub mod inode;
mod kept;
pub mod keys;
mod listing;
mod namespace;
mod object;
pub mod operation;
mod past;
mod pending;
mod places;
mod present;
pub mod query;
pub mod quota;
mod repair;
mod restore;
mod salvage;
mod search;
mod settings;
mod snapshots;
mod upkeep;
mod view;
mod xattrs;

pub use bulk::Bulk;
pub use change::{New, Privileges, RenameMode, SetAttributes, SetTime};
pub use check::Fault;
pub use chunks::CHUNK_BYTES;
pub use contents::{Contents, FILE_BYTES_MAX, Opened};
pub use error::{Error, Result};
pub use inode::Inode;
pub use keys::{EntryName, FileId, ROOT};
pub use listing::{Entry, Listing};
pub use namespace::{Clock, NAME_BYTES_MAX, Namespace, create_namespace, system_clock};
pub use operation::{Execute, FileContents, Operation, Reply};
pub use past::{Past, PastFile};
pub use present::Present;
pub use repair::{LOST_AND_FOUND, Repaired};
pub use salvage::salvage;
pub use search::{Found, Pace};
pub use settings::{FORMAT, Settings, table_of};
pub use snapshots::{SNAPSHOTS_MAX, SnapshotInfo, check_snapshot_name};
pub use upkeep::Upkeep;
pub use view::ReadView;
pub use xattrs::{LABEL, SetXattr, XATTR_BYTES_MAX};
