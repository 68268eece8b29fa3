//! Tables of metadata records in sorted files that fork, merge and survive crashes. The
//! engine knows no file system: what directories and names mean is the caller's. `docs/engine.md`
//! has the rules that keep every file that somebody needs.
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
mod log;
pub mod manifest;
mod memtable;
mod merge;
mod names;
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
pub use canopy_model::ErrorKind;
pub use checkpoint::{
    Reader, checkpoint, inspect, inspect_version, is_flushed, keep, release, renew,
};
pub use collect::{Collected, collect, garbage};
pub use compaction::{compact, compact_all};
pub use environment::{Clock, Environment, Random};
pub use error::{Contended, Error, Fenced, Invalid, RecordFault, Result};
pub use fork::{Base, clone, delete, restrict};
pub use ingestion::{Ingestion, IngestionPart};
pub use key::{Key, KeyRange, KeyRef, NAME_MAX, hash_of};
pub use merge::MergeOperator;
pub use names::{Object, ObjectKind, SstableName, TableId};
pub use record::{COLUMNS_MAX, Column, Layout, Op, Record, RecordRef, VALUE_MAX};
pub use runs::SstableCache;
pub use salvage::{Loss, Stale, damaged_sstables};
pub use scan::{Direction, Scan};
pub use segment::{SegmentInfo, SegmentKind, read_segment};
pub use table::{Durability, Options, Table, TableSnapshot, create};
pub use upkeep::Upkeep;
