//! Fills an index. No other crate makes sources of it. Commands, the daemon, workers and servers call it.
//!
//! | verb | in |
//! | --- | --- |
//! | [`scan`]: trees and namespaces become sources | `scan/` |
//! | [`plan`](plan::plan): what a scan would do | `plan` |
//! | [`update`](update::update): single directories are listed again | `update/` |
//! | [`follow`](follow::follow): what has changed in a namespace | `follow` |
//! | [`import`](import::import): listings that other scanners wrote | `import` |
//! | [`share`]: several processes scan one tree | `share` |
//! | [`compact`](compact::compact): files of the index are rewritten | `compact` |
//! | [`repair`](repair::repair): damaged files and lost sources | `repair` |
//! | [`edit`](edit::edit): sources are removed and renamed, tables are changed | `edit` |
//! | [`daemon`]: an index follows its sources | `daemon/` |
//!
//! A caller passes a [`Context`], which is made of values: the [`Site`](canopy_site::Site), an
//! [`Observer`], a [`Cancel`] and a clock. Two scans may run in one process at once
//! (`examples/twice.rs`). All verbs block. None ends the process or changes its limits: a program
//! calls [`raise_file_limit`] once.
//!
//! Errors are those of `anyhow`: their chains name paths and causes of several libraries.
//! [`Interrupted`] and [`NeedsDerivedTables`] are the two that callers look for.

mod cancel;
pub mod compact;
mod context;
pub mod daemon;
pub mod edit;
mod faults;
pub mod follow;
mod held;
pub mod import;
mod known;
mod listing;
mod observer;
pub mod plan;
mod publishing;
pub mod repair;
pub mod scan;
pub mod share;
mod sinks;
mod sources;
pub mod update;

pub use cancel::{Cancel, Interrupted};
pub use context::{Context, DerivedTables, NeedsDerivedTables, now_ns};
pub use faults::{Faults, check_outside};
pub use held::{Held, count, count_of};
pub use listing::{COPIED_ROWS_MAX, path_bytes_max, raise_file_limit};
pub use observer::{Observer, Progress, Silent, with_progress};
pub use publishing::{end_if_cancelled, publish, warn_of};
pub use sinks::{Shards, Stopped};
pub use sources::{Followed, ListingSource, Namespaces, SourceRun};
