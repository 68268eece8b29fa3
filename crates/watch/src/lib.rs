//! Follows changes in file systems, and finds the directories that must be listed again.
//!
//! | to change | read |
//! | --- | --- |
//! | which directories a change makes suspect | `territory`, the only place that decides |
//! | changes from the kernel | `fanotify`, `inotify`; paths of handles: `handles` |
//! | changes from a file or pipe | `events` |
//! | changes from Lustre | `lustre/mod.rs`; `record.rs` (a line), `order.rs` (gaps), `mount.rs` there |
//! | batches and their pace | `intake`; `suspects` keeps them bounded and without duplicates |
//! | state that outlives the process | `journal` |
//! | requests of users | `requests/mod.rs`: the steps; `queue.rs` there: limits for each user |
//! | `canopy watch --status` | `status` |
//!
//! Each source of changes runs in a thread of its own.
//!
//! Invariants:
//!
//! - Anything uncertain makes more suspect, up to a whole tree, and never less.
//! - Marks are set before the walk that they add to. A suspect is removed before its directory is
//!   listed. So a change that the listing missed is reported later.
//! - A change log is cleared only of records that a durable generation contains.
//! - The daemon touches no path from a user's request and reads nothing from a user's connection. It
//!   is never the last to close one that may hold descriptors (`requests/checker.rs`).
//!
//! Not its job: reading or writing an index. The caller updates the index by suspects.

mod error;
mod events;
mod fanotify;
mod handles;
mod inotify;
mod intake;
mod journal;
pub mod lustre;
mod mounts;
mod recent;
pub mod requests;
pub mod status;
mod suspects;
mod sys;
mod territory;

pub use error::{Error, Result};
pub use events::EventFeed;
pub use fanotify::{Fanotify, Unfollowed};
pub use handles::Unresolved;
pub use inotify::Inotify;
pub use intake::{Batch, EventCounts, Intake, IntakeState, Pacing, Scope, SourceState, Work};
pub use journal::{Journal, Position, Recovered};
pub use suspects::{Added, Suspect, Suspects, is_at_or_below};
pub use territory::{ChangeEvent, Territory, What};
