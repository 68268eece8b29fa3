//! The index on disk: who may read what, in which files, and which of them are current.
//!
//! ```text
//! INDEX/
//!   lock                        proves that this is an index; held by the one writer (flock)
//!   journal                     what a writer is about to make or remove
//!   failures                    root only: sources that could not be indexed, or not all of them
//!   unfinished                  root only: a scan that was interrupted, and can go on
//!   unfinished-files            root only: the files of it
//!   workers/                    root only: a scan that several workers share
//!   CURRENT                     generation and time of publication, which older ones are kept, and
//!                               what is leaving; replaced by rename
//!   CURRENT.copy                root only: what CURRENT says, in case that it is damaged
//!   leaving-7                   root only: what no generation from 7 on needs
//!   catalog-7.bin               public: classes that anybody may try, and who has a list of others
//!   lists/u1000-7.bin           which classes may let uid 1000 in, for that user alone
//!   lists/g50-7.bin             the same for the members of group 50
//!   manifests-7.bin             root only: where the manifests of all classes are
//!   7-3-bundle.bin              root only: the manifests of some classes
//!   everyone/                   the class of everybody: its manifest and its shards
//!     manifest-7.bin
//!     7-2-page.bin              what is in shards: part of the manifest
//!     7-0-listings.parquet ...
//!     7-1-sealed.bin            what members of the class find behind gates if they know its path
//!     gated/                    shards that only a sealed record names
//!     table-NAME-7.parquet      rows of a derived table that are computed from this class alone
//!   classes/9f86d08.../         another class, behind a name that nobody can guess: the same files
//!     and/                      those of them who pass a second grant, in a class of two
//! ```
//!
//! Work starts at four places:
//!
//! - [`Writer`] takes listings in, one [`ShardWriter`] a thread, and publishes generations. Steps:
//!   `builder`, `encoder` (columns in `column`, files in `schema`), `writer/publishing.rs`.
//! - [`Index`] opens one generation: `manifest`, `bundles`, `pages`, `shard_record`, `packed`.
//! - [`Shard`] answers from the files of one shard: `shard/lookup.rs`, `shard/live.rs`.
//! - [`Checker`] reads all of an index; `writer/salvage.rs` and `writer/rebuild.rs` repair it.
//!
//! | subject | modules |
//! | --- | --- |
//! | access | `class_dirs`, `class_lists`, `names`, `safety` |
//! | gates | `sealed`, `sealed_rows`, `hidden`, `passages` |
//! | statistics and sums | `summaries`, `covers` |
//! | tables of the administrator | `own_tables`, `writer/tables.rs` |
//! | older generations | `retention` |
//! | scans that resume, are shared or fail | `unfinished`, `workers`, `failures` |
//! | safety of removal | `marker`, `journal`, `writer/cleaning.rs` |
//! | hostile or damaged files | `plain_file`, `parquet_file`, `block_file` |
//!
//! Invariants: every change of the disk goes through [`Disk`], after `journal` has recorded it. No
//! file that a reader can reach changes before `CURRENT` is renamed. `docs/format.md` defines every
//! byte.
//!
//! Not its job: where listings come from, and what is asked of them.

mod block_file;
mod builder;
mod bundles;
mod class_dirs;
mod class_lists;
pub mod column;
mod covers;
mod digest;
mod disk;
mod encoder;
mod error;
mod failures;
#[doc(hidden)]
pub mod fuzzing;
mod hidden;
mod journal;
mod listing_ordinal;
mod manifest;
mod marker;
mod names;
mod own_tables;
mod packed;
mod pages;
mod parquet_file;
mod passages;
mod plain_file;
mod reader;
mod retention;
mod room;
pub mod safety;
pub mod schema;
mod sealed;
mod sealed_rows;
mod shard;
mod shard_record;
mod source_id;
mod summaries;
mod thrift;
mod unfinished;
mod workers;
mod writer;

pub use canopy_model::ErrorKind;
pub use column::{Column, ColumnId, Columns};
pub use disk::{Disk, Faults};
pub use error::{Error, Result, parquet_write_error};
pub use failures::{Checked, Failure};
pub use listing_ordinal::{ListingOrdinal, ListingRange};
pub use manifest::{Configured, Layout, ScanRecord, SourceRecord};
pub use own_tables::{
    ColumnType, TableColumn, TableFile, TableFormat, TableKind, TableRead, TableRecord,
    TableWriter, WrittenRows, table_schema,
};
pub use reader::{Classes, Index};
pub use retention::{KeptGeneration, Moment, Retention};
pub use room::advice_when_full;
pub use schema::FileKind;
pub use sealed::{SealedInode, SealedRecord};
pub use shard::{Highs, RowRange, Shard, ShardRead, SumColumn, holds};
pub use shard_record::{Cover, FileRecord, HardLink, ShardRecord};
pub use source_id::SourceId;
pub use summaries::BlockSummary;
pub use unfinished::{RemainingDirectory, RemainingExtent, Unfinished, UnfinishedSource};
pub use workers::{Next, PartOutcome, ScanPart, SharedProgress, SharedScan, Worker};
pub use writer::{
    CheckReport, Checker, Compacted, Damage, Due, NewSource, Published, Remedy, Salvaged,
    SelectedDirectory, ShardWriter, Writer, WriterOptions, is_there,
};
