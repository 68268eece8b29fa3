//! A namespace on several servers (GIGA+): each has a table of its own, and large directories are
//! spread over them.
//!
//! So far all servers are in one process, and no command uses them. They create, look up, list,
//! split directories and hand partitions over. Renames between servers, removal of directories,
//! changes of their attributes, holding files, quotas, snapshots and queries are refused ([`Error::NotYet`]).
//!
//! | to change | read |
//! | --- | --- |
//! | what servers are asked, and reply | `message` |
//! | an operation at its server; directories | `answer`, `making` |
//! | retries of changes; sessions of clients | `sessions`, `slots` |
//! | files that stay without a name | `holds` (server), `held` (client) |
//! | partitions of a server, and whom it lets wait | `server` |
//! | how a partition moves from one server to another | `handover`; rules: `canopy_partition` |
//! | rename, link, unlink of one of several names | `intents`; rules: `canopy_partition` |
//! | servers of a process; work beside requests | `process`, `tasks` |
//! | a process that listens and executes what arrives | `node`, `workers`; callers: `rights` |
//! | servers of other processes | `remote`; bytes of messages: `envelope`; connections: `wire` |
//! | finding the server of a name or a file | `client`, `layout` |
//! | processes, and which of them runs each server | `membership` |
//! | tables and the list of servers | `tables` |
//! | contents of files, for clients | `contents` |
//! | a namespace with servers, as a mount sees it | `namespace` |
//! | keys and certificates | `certificates` |
//! | connections between processes | [`wire`] |
//!
//! Invariants:
//!
//! - A tablet holds the ranges of hashes of the partitions that its server's records say it holds
//!   (`canopy_partition::Holdings`), from the batch that records it.
//! - A change of a name waits while its partition is handed over. Reads do not wait.
//! - A change of several servers is seen on all of them from one moment on (`intents`).
//! - A directory has its access half with its name, and its content half with partition 0, whose
//!   server follows from the block of the directory's id.

mod answer;
mod arrivals;
mod bulk;
pub mod certificates;
mod client;
pub mod contents;
mod envelope;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod held;
mod holds;
mod intents;
mod layout;
mod making;
pub mod membership;
mod message;
mod metrics;
mod namespace;
mod node;
mod peers;
mod process;
mod remote;
mod rights;
mod server;
mod sessions;
mod slots;
mod tables;
mod tasks;
mod upkeep;
mod waits;
pub mod wire;
mod workers;

pub use client::Client;
pub use contents::ClusterNamespace;
pub use envelope::Route;
pub use error::{Error, Result};
pub use handover::{Step, Steps};
pub use intents::{Arriving, Holds, Moving, Part, Seen};
pub use message::{
    Fate, IntentReply, IntentStep, Life, MoveStep, Refusal, Request, Response, Sender,
    ServerRequest, SessionId,
};
pub use metrics::{Counter, Metrics};
pub use node::{Node, NodeError, NodeSettings};
pub use peers::{Asked, Peers};
pub use process::{Process, ProcessSettings};
pub use remote::{Patience, Remote};
pub use sessions::{SessionCounts, SessionSettings, SteadyClock, steady_clock};
pub use tables::{SERVERS_MAX, create_cluster, has_cluster};
pub use waits::{Wait, WaitObserver};
