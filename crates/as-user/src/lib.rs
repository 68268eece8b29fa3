//! Processes that have become another user for good, so that the kernel decides what they may do:
//! how they are started and confined, how they are asked, and how many there are of each account.
//!
//! 1. A program names its services ([`Service`]). The first line of its `main` is
//!    [`serve_if_asked`].
//! 2. Its root process starts the same program again for a service ([`Process`], or a [`Pool`] for
//!    requests of many users), with a socket as standard input.
//! 3. That process becomes the user whom the first frame names, and only then runs the service.
//! 4. Requests and answers are frames on the socket (`frame`): any types that serde encodes.
//!
//! | to change | read |
//! | --- | --- |
//! | rights and limits of a process | `identity`, `service` |
//! | its start, its end, and its environment | `process` |
//! | requests and answers | `frame`, `channel` |
//! | processes that several requests share | `pool`, `session`, `turns` |
//! | limits by account | `room`, `seats`, `accounts` |
//!
//! Invariants:
//!
//! - No service runs before its process is the user, with all groups, without a way back.
//! - A process has no descriptors but its standard ones, and no variables but those of its service.
//! - Replies of a process are bounded by [`FRAME_BYTES_MAX`], decoded strictly, and believed for
//!   its user alone.
//! - A process that hangs, floods or dies costs the requests of its own account, and no others.
//! - Limits count accounts ([`Accounts`]), as a user can be each of the own subordinate uids.
//! - A process ends with the thread that has started it.
//!
//! Not its job: who the user is, and what a process does for that user.

mod accounts;
mod channel;
mod frame;
mod identity;
mod pool;
mod process;
mod room;
mod seats;
mod service;
mod session;
mod turns;

pub use accounts::{Accounts, subordinate_uids};
pub use channel::{Channel, Unanswered};
pub use frame::FRAME_BYTES_MAX;
pub use pool::{Pool, PoolLimits};
pub use process::Process;
pub use room::RoomLimits;
pub use seats::{Seat, Seats};
pub use service::{Service, serve_if_asked};
pub use session::Class;
