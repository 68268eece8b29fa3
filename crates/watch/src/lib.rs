//! Follows what changes in file systems: which directories are to be looked at again.
//!
//! `fanotify` and `inotify` hear of changes from the kernel, `events` reads them from a file or a
//! pipe, `lustre` from the change logs of Lustre; each runs in a thread of its own. `territory` says
//! what a change makes suspect, `suspects` keeps that bounded and without duplicates, `journal` on
//! disk. All of it comes together in `intake`, which gives batches out, and what users ask for
//! (`requests`); `status` tells how it goes.
//!
//! The rule that everything here keeps: whatever is not known for sure makes more suspect, up to a
//! whole tree, and never less.
//!
//! Not its job: what an index is, and what becomes of suspects.

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
