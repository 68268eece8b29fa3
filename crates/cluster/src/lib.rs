//! A namespace on several servers (GIGA+): each has a table of its own, and large directories are
//! spread over them.
//!
//! Processes run servers (`listening`), and clients reach them over the network (`connection`).
//! `docs/cluster.md` describes the whole for administrators, and `docs/SEMANTICS.md` what is promised.
//!
//! | to change | read |
//! | --- | --- |
//! | what servers are asked, and reply | `message` |
//! | an operation at its server; directories | `answer`, `mkdir` |
//! | retries of changes; sessions of clients | `sessions`, `slots` |
//! | files that stay without a name | `holds` (server), `held` (client) |
//! | locks of programs: flock, fcntl | `locks` |
//! | leases of directories for clients; what clients remember of them | `leases`; `directories` |
//! | partitions of a server, and whom it lets wait | `server`; refusals: `refusals` |
//! | how a partition moves from one server to another | `handover`; rules: `canopy_partition` |
//! | copies that hand-overs leave | `copies` |
//! | rename, link, unlink of one of several names | `intents`; rules: `canopy_partition` |
//! | servers of a process; work beside requests | `process`, `tasks` |
//! | when partitions split, and the split; numbers of entries | `growth`, `process/splitting`; `tally` |
//! | splits by hand | `spreading` |
//! | time and waiting, which a simulation decides | `pace` |
//! | a process that listens; callers | `listening`; `rights` |
//! | which thread answers a call, and how they are made durable | `listening/answering`; `executors`, `workers`, `turns`; `brief` |
//! | ids and sessions that users cannot guess or share | `handles` |
//! | servers of other processes | `remote`; bytes of messages: `envelope`; connections: `wire` |
//! | finding the server of a name or a file | `client`, `client/by_id`, `layout`; pauses: `tries` |
//! | operations as futures | `futures` |
//! | queries | `searching` |
//! | limits of users, groups and trees | `quotas`; rules: `canopy_partition` |
//! | reaching a running cluster, for a mount or a command | `connection`, `security` |
//! | the tables of all servers at one moment; snapshots | `cuts`, `snapshots` |
//! | restoring a snapshot | `restoring` |
//! | processes, and which of them runs each server | `membership` |
//! | tables and the list of servers; servers that are added | `tables` |
//! | the servers of a directory, recorded at its first split | `layout`, `placements` |
//! | requests to all servers; about the namespace as a whole | `all_servers`, `administration` |
//! | reading all tables beside their servers | `view`; if no process runs: `offline_recovery` |
//! | contents of files, for clients | `contents` |
//! | a namespace with servers, as a mount sees it | `namespace` |
//! | checking and repairing all servers | [`check`] |
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

mod administration;
mod all_servers;
mod answer;
mod arrivals;
mod brief;
mod bulk;
pub mod certificates;
pub mod check;
mod client;
mod connection;
pub mod contents;
mod copies;
mod cuts;
mod directories;
mod envelope;
mod error;
mod executors;
mod futures;
#[doc(hidden)]
pub mod fuzzing;
mod growth;
mod handles;
mod handover;
mod held;
mod holds;
mod intents;
mod layout;
mod leases;
mod listening;
mod locks;
pub mod membership;
mod message;
mod metrics;
mod mkdir;
mod namespace;
mod offline_recovery;
mod pace;
mod peers;
mod placements;
mod process;
mod quotas;
mod refusals;
mod remote;
mod restoring;
mod rights;
mod searching;
mod security;
mod server;
mod sessions;
mod slots;
mod snapshots;
mod spreading;
mod tables;
mod tally;
mod tasks;
mod tries;
mod turns;
mod upkeep;
mod view;
mod waits;
pub mod wire;
mod workers;

pub use client::Client;
pub use connection::{Connection, ConnectionError, Speaker, addresses_of, name_of};
pub use contents::{ClusterNamespace, UnknownStorage};
pub use cuts::{CutId, CutMessage, CutReply};
pub use envelope::Route;
pub use error::{Error, Result};
pub use futures::{AsyncClient, Execution};
pub use handover::{HandOverHook, HandOverStage};
pub use holds::MovedHold;
pub use intents::{Arriving, Holds, IntentPart, MovingFile, PartOutcome};
pub use listening::{ListeningError, ListeningProcess, ListeningSettings};
pub use locks::{LastRequest, LockAsk, LockReply, LockRequest};
pub use message::{
    HandOverMessage, IntentMessage, IntentReply, Life, MkdirVerdict, Partitions, PastRequest,
    Refusal, Request, Response, Sender, ServerRequest, SessionId, ThenRequest,
};
pub use metrics::{Counter, Metrics};
pub use offline_recovery::settle_stopped;
pub use pace::Pace;
pub use peers::{Asked, Peers};
pub use process::{Process, ProcessSettings};
pub use quotas::{Obtained, ShareMessage, ShareReply, ShareRequest};
pub use remote::{Patience, Remote};
pub use restoring::{RestoreError, check_restored, restore_cluster, unfinished_restore};
pub use searching::{ArrivalMark, NameRange, SearchPart};
pub use security::Security;
pub use sessions::{SessionCounts, SessionSettings, SteadyClock, steady_clock};
pub use snapshots::{CutMade, CutRequest, SnapshotEntry, SnapshotTables};
pub use spreading::{HeldPartition, partitions, partitions_of, placement, split, spread};
pub use tables::{SERVERS_MAX, add_tables, count_tables, create_cluster, has_cluster};
pub use tally::Tally;
pub use view::{ClusterView, checkpoint_all, cluster_tables, release_all};
pub use waits::{Wait, WaitObserver};
