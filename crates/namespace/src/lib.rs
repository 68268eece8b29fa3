//! A file system's namespace as records of a table (Loris, section III-B): names, inodes, extended
//! attributes, small contents, and indexes of attributes that are always current.
//!
//! | to change | read |
//! | --- | --- |
//! | requests to a namespace | `operation`; `operation/`: `execute`, `tablet`, `ask` (methods) |
//! | ids of new files | `records/ids` |
//! | a table, its lock, its range; newer data in memory | `records/`: `tablet`, `range` |
//! | memory that the tablets of a process share | `memory` |
//! | names and inodes as they are | `records/`: `reading`; `names` |
//! | what users may do | `operation/rights` (table); `records/`: `permissions`, `access` |
//! | where records lie | `records/`: `keys`, `inode`, `attributes` (index entries); `settings` |
//! | an operation's effect | `records/`: `change`, `change/rename.rs`, `xattrs`, `acl`, `listing` |
//! | entries that move to another tablet; directories in two halves | `records/moving` |
//! | changes that concern several tablets | `records/prepared` |
//! | indexes of attributes; new ones | `records/indexing`; `maintenance/building` |
//! | contents, as far as records depend on them | `records/open_files`; `contents/records` |
//! | whole trees at once; data that waits in memory | `records/bulk`, `records/pending` |
//! | reading at one moment; of several tables; changes between two moments | `records/`: `view`, `joined`, `changed` |
//! | a tablet's part in snapshots of several servers | `records/moments` |
//! | contents of files | `contents/files`, on `contents` and `contents/object` (the two kinds) |
//! | contents in a bucket | `contents/chunks/mod.rs`; `cache`, `file`, `flush`, `collect` there |
//! | searching | `search` (planner), `search/`: `candidates` (ranges of indexes); one of several tables: `sight`, `part`, `cursor` |
//! | quotas | `quota`; `quota/`: `accounts` (sums), `counting`, `trees`, `reservation`, `shares` |
//! | snapshots | `snapshot/`: `snapshots`, `kept` (objects), `past`, `present`, `restore` |
//! | checking and repairing | `maintenance/`: `check`; `repair`; damaged files: `salvage` |
//! | work beside operations; after a crash | `maintenance/`: `upkeep`, `settling`; `recovery` |
//!
//! Invariants:
//!
//! - Every change is one batch of the table, under one lock (`Tablet::writer`). Names, inodes,
//!   the name index and indexes of attributes agree in every prefix of the log.
//! - A tablet refuses an operation on names that it does not hold before it changes anything. A
//!   namespace of one process has one tablet, which holds all names.
//! - A tablet asks about contents through `OpenFiles` alone. It knows no snapshot and no query.
//! - No two files of a storage ever have one id, whatever is cloned (`records/ids`).
//! - Only times and sizes wait in memory (`records::pending`).
//! - A change of inodes is a `quota::Transaction`, which contains its effect on the sums of owners.
//! - An object is removed only once the removal of its file outlasts a crash (`Space::Doomed`).
//! - An operation of a user (`Caller::User`) is checked with the lock and in the view in which it
//!   is executed; `canopy_model::Grant` decides. Lengths, times of access and usage of trees are
//!   checked just before. The kernel has checked those of mounts. A search returns only entries
//!   that its caller could list from the searched directory.
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

mod clock;
mod contents;
mod error;
pub mod fuzzing;
mod maintenance;
mod memory;
mod names;
mod namespace;
pub mod operation;
pub mod quota;
mod records;
mod search;
mod settings;
mod snapshot;

pub use canopy_model::Ownership;
pub use contents::chunks::{CHUNK_BYTES, ChunkId, Entered, Gate, ObjectId, Stored};
pub use contents::{Contents, Extent, FILE_BYTES_MAX, Opened};
pub use error::{Error, Failure, Result};
pub use maintenance::check::Fault;
pub use maintenance::facts::{CheckedTable, Fact, FactPage, InodeFact, NameKind, Place};
pub use maintenance::mend::Mend;
pub use maintenance::repair::{LOST_AND_FOUND, Repaired};
pub use maintenance::salvage::salvage;
pub use maintenance::upkeep::Upkeep;
pub use memory::ProcessMemory;
pub use namespace::{
    Clock, Namespace, create_added_table, create_namespace, create_table, system_clock,
};
pub use operation::{Execute, FileContents, Operation, Reply};
pub use records::bulk::Bulk;
pub use records::change::{New, Origin, Privileges, RenameMode, SetAttributes, SetTime};
pub use records::executed::{ChangeId, ExecutedPage, ExecutedRecord, Running};
pub use records::ids::table_of_block;
pub use records::inode::Inode;
pub use records::joined::SplitParts;
pub use records::keys::{Block, EntryName, FileId, NAME_BYTES_MAX, ROOT};
pub use records::listing::{Entry, Listing, cookie_before, hash_after};
pub use records::making::Making;
pub use records::moments::snapshot_records;
pub use records::moving::{
    DirectoryHalf, HALF_STATE, HalfState, MovedEntry, MovedRanges, NewDirectory, PLACEMENT,
    PartitionRecord, WHOLE,
};
pub use records::open_files::{NoOpenFiles, OpenFiles};
pub use records::permissions::Caller;
pub use records::prepared::{
    Arrival, Arrived, Effect, IntentRecord, IntentRole, OwnedName, check_rename_names,
};
pub use records::range::{SplitDirectories, TabletRange};
pub use records::tablet::{Tablet, open_table, open_table_at};
pub use records::view::ReadView;
pub use records::xattrs::{LABEL, SetXattr, XATTR_BYTES_MAX};
pub use records::{acl, attributes, inode, keys};
pub use search::candidates::{Candidates, Source};
pub use search::cursor::Cursor;
pub use search::sight::{Ancestor, Elsewhere, PartView};
pub use search::{Found, NamedInode, Pace};
pub use settings::{FORMAT, Settings, origin_of, table_of};
pub use snapshot::past::{Past, PastFile};
pub use snapshot::present::{FileTree, Present};
pub use snapshot::restore::{empty_table, restore_table};
pub use snapshot::snapshots::{SNAPSHOTS_MAX, SnapshotInfo, check_snapshot_name};
