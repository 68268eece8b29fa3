//! Requests of users who may not write the index, to have a directory listed again that they may
//! list themselves.
//!
//! 1. A user connects to a socket in the directory of the index (`client`, `protocol`).
//! 2. The daemon starts a process that becomes that user for good (`canopy_as_user`). It alone
//!    talks to the user, and opens each directory, so that the kernel decides. It reports to the
//!    daemon which ones it could open (`checker`, `server`).
//! 3. Requests for followed directories wait in a queue in memory, users in turns, as long as the
//!    connection is there (`queue`).
//! 4. Some of them are listed again by path, as suspects are, and the users get answers.
//!
//! The daemon itself touches nothing that a user names, and takes no descriptor from one: closing
//! another user's descriptor can wait for as long as that user likes.
//!
//! - **A user sends a path, not a descriptor.** A descriptor proves as much, but its holder must
//!   close it, which can take forever (FUSE's `flush`, a socket that lingers). A process with the
//!   user's ids and groups proves that the user may list the path, and has nothing to lose.
//! - **The socket lies in the index.** So it needs no configuration, and nobody else can make one
//!   there. Each index has its own, and users who find the index find it. `/proc/self/fd` reaches
//!   it however long its path is.
//! - **Requests are listed apart from changes.** So each request is charged with its own cost, and
//!   a directory that takes too long is given up without losing a change.
//! - **A request compares listings by digest** and publishes nothing if nothing has changed. A
//!   batch of changes does not compare, since most directories in it have changed.

mod checker;
mod client;
mod protocol;
mod queue;
mod server;

pub use checker::CHECKER;
pub use client::{ask, is_listening};
pub use protocol::Answer;
pub use queue::{Counts, Failure, RequestedDirectory, Round, Share};
pub use server::Server;

pub(crate) use queue::{Cost, Queue, Slip};
