//! Events of daemons (`canopy watch`, mounts) for administrators, by `tracing`.
//!
//! - A library emits an event where an administrator can act on it: `tracing::warn!`, or a
//!   [`LimitedEvents`] where users can cause events.
//! - A program installs [`Lines`], which passes each event on as one line of text.
//!
//! `tracing-subscriber` would make `canopy` 100 KB larger; daemons need neither filters nor spans.
//!
//! Not its job: messages of commands to the user who runs them (`canopy_ingest::Observer`).

mod limited;
mod lines;

pub use limited::{EVENTS_MAX, LimitedEvents};
pub use lines::Lines;
pub use tracing::Level;
