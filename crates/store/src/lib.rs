//! Tables of metadata records in sorted files that fork, merge and survive crashes. The engine
//! knows no file system: directories and names get their meaning from the caller.
//! `docs/engine.md` has the rules that keep every file that somebody needs.
//!
//! | to change | read |
//! | --- | --- |
//! | the state of a table, and changing it | `manifest`, `commit`, `landmarks` (finding it by names) |
//! | writing | `table.rs`, `batch`, `memtable`, `table/flushing.rs` (from memory into files) |
//! | memory of many tables, their threads | `budget`, `upkeep` |
//! | files from elsewhere | `ingestion` |
//! | the log, recovery | `log`, `segment`, `table/logging.rs` (shared syncs), `table/recovery.rs` |
//! | reading | `table/reading.rs`, `view`, `scan` (several sources as one), `checkpoint` (readers) |
//! | files of records | `sstable/mod.rs`: the format, and the file of each part |
//! | clones, deletion, removal of files | `fork`, `collect` |
//! | merging runs | `compaction` |
//! | differences between checkpoints; going back to one | `difference`; `table/revert.rs` |
//! | damaged files | `salvage`, `sstable/salvage.rs` (blocks) |
//! | numbers that no two tables get | `numbers` |
//! | storage, clocks, randomness | `storage`, `environment` |
//!
//! Invariants:
//!
//! - Storage, clocks and randomness come from outside (`Environment`), so that everything runs in a
//!   simulation.
//! - Clocks decide when something is given up, never whether that is safe.
//! - A file that was removed from a table's state is never referred to again (`docs/engine.md`, (1)
//!   and (2)).
//!
//! ```
//! use canopy_store::storage::MemoryStorage;
//! use canopy_store::{
//!     Batch, Durability, Environment, Key, Layout, Options, SstableCache, Table, create,
//! };
//! use std::sync::Arc;
//!
//! let environment = Environment::system(Arc::new(MemoryStorage::default()));
//! let id = create(&environment, Layout::default(), &Options::default())?;
//! let cache = SstableCache::new(&environment, 64 << 20);
//! let table = Table::open(&environment, id, cache, Options::default())?;
//! let (key, mut batch) = (Key::named(7, b"results.csv"), Batch::new());
//! batch.put(key.as_ref(), b"an inode")?;
//! table.write(&batch, Durability::Durable)?;
//! assert_eq!(table.get(key.as_ref())?, Some(b"an inode".to_vec()));
//! # Ok::<(), canopy_store::Error>(())
//! ```

mod batch;
mod budget;
mod checkpoint;
mod collect;
mod commit;
mod compaction;
mod difference;
mod environment;
mod error;
mod fork;
pub mod fuzzing;
mod ingestion;
mod key;
pub mod landmarks;
mod log;
pub mod manifest;
mod memtable;
mod merge;
mod names;
mod numbers;
mod output;
mod record;
mod runs;
mod salvage;
mod scan;
mod segment;
mod sorted;
pub mod sstable;
pub mod storage;
mod table;
mod upkeep;
mod view;

pub use batch::{BATCH_BYTES_MAX, Batch, Mutation};
pub use budget::MemtableBudget;
pub use canopy_model::ErrorKind;
pub use checkpoint::{
    Reader, checkpoint, inspect, inspect_version, is_flushed, keep, release, renew,
};
pub use collect::{Collected, collect, garbage};
pub use compaction::{compact, compact_all, compact_part};
pub use environment::{Clock, Environment, Random};
pub use error::{Contended, Error, Fenced, Invalid, RecordFault, Result};
pub use fork::{Base, clone, delete, restrict};
pub use ingestion::{Ingestion, IngestionPart};
pub use key::{Key, KeyRange, KeyRef, NAME_MAX, hash_of};
pub use merge::MergeOperator;
pub use names::{Object, ObjectKind, SstableName, TableId};
pub use numbers::{RunLayout, owner_of_numbers, reserve_numbers, reserved_numbers};
pub use record::{COLUMNS_MAX, Column, Layout, Op, Record, RecordRef, VALUE_MAX};
pub use runs::SstableCache;
pub use salvage::{Loss, Stale, damaged_sstables};
pub use scan::{Direction, Scan};
pub use segment::{SegmentInfo, SegmentKind, read_segment};
pub use table::{Durability, Mark, Options, Table, TableSnapshot, create};
pub use upkeep::{Upkeep, UpkeepThreads};
