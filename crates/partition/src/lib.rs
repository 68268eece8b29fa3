//! Partitions of a directory: the rules by which a directory grows over servers, and by which
//! clients find the server of a name. Source: GIGA+ (Patil and Gibson, FAST 2011), sections 3 and 4.
//!
//! Names are placed by their hashes. A directory begins as partition 0, which holds all hashes. A
//! partition `i` of depth `r` splits: its upper half becomes partition `i + 2^r`, and both have
//! depth `r + 1`. Each server decides alone, and knows only the splits of its own partitions
//! ([`SplitHistory`]). A client keeps a [`DirectoryMap`] that may be stale; a server that does not
//! hold a name replies with the split histories that it knows.
//!
//! | question | answered by |
//! | --- | --- |
//! | Which hashes does a partition hold? | [`PartitionId::hashes`] |
//! | Which partition holds a hash? | [`DirectoryMap::find`] |
//! | Which server holds a partition? | [`Placement::server`] |
//! | Does a partition split, and into which? | [`SplitPolicy::child`] |
//! | How does a partition move to its server? | [`Holdings`] |
//! | How does a change of several servers happen at once? | [`Decisions`], [`Preparations`] |
//! | How do servers share the limit of an account? | [`Ledger`], [`Share`] |
//!
//! Invariants:
//!
//! - In a map, a partition exists only with all that must exist before it: its parent, and earlier
//!   children of that parent. So maps merge in any order, and each hash is in exactly one partition.
//! - A stale map reaches the partition of a hash in at most log2(P) corrections, for P partitions.
//! - A partition of a name is one range of hashes, and so one range of keys of the directory.
//! - At any moment at most one server holds a hash, and an entry is only visible there (`handover`).
//! - A change of several servers is seen on all of them from one moment on (`intents`).
//! - Servers together use no more of an account than its limit (`shares`).
//!
//! `docs/cluster-figures.md` shows how evenly and how exactly names reach their servers.
//!
//! Not its job: I/O, clocks, and carrying messages and entries (`cluster`).

mod handover;
mod intents;
mod map;
mod partition;
mod placement;
mod policy;
mod shares;

pub use handover::{Answer, Attempt, Begun, Holding, Holdings, OfferState};
pub use intents::{Age, Decisions, IntentId, Locked, Locks, Preparation, Preparations, Verdict};
pub use map::{DirectoryMap, SplitHistory, enumerate};
pub use partition::{DEPTH_MAX, PARTITIONS_MAX, PartitionId};
pub use placement::{Placement, ServerId};
pub use policy::{Split, SplitPolicy};
pub use shares::{Amounts, Bounds, Collected, Grant, Ledger, Round, Share, Terms, UNLIMITED};
