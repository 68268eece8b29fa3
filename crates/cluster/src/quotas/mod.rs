//! Quotas: each server enforces shares of limits, and server 0, the *authority*, hands them out.
//! The rules, and why the servers together never pass a limit, are in `canopy_partition`
//! (`shares`); here they meet usage, messages and threads.
//!
//! | to change | read |
//! | --- | --- |
//! | a server's share; a change that needs more | `holder` |
//! | limits, and what each server may use | `authority` |
//! | requests about quotas; sums over servers | `requests` |
//! | trees of directories, for clients | `trees` |
//!
//! - Each server counts the usage of its own files, from the first limit of the namespace to the
//!   end of the last one. Sums over servers are the usage of an account.
//! - A change that finds too little room fails with `Short`. Its server asks the authority, and
//!   executes it again. It fails with `EDQUOT` only if all servers together have too little.
//! - The authority asks all servers that may have room before it refuses. A server that it has
//!   collected from reports the first removal, before it replies to the client. So an account that
//!   is full costs one message for each change that is refused, however many servers there are.
//! - Room that a change has been granted is not collected before the change has used it. A change
//!   that finds nothing but such room waits for a moment, and tries again.
//! - Usage moves with files, in the same batches. Limits never refuse a move.
//! - Messages of the authority to servers wait for nobody, and no lock is held by who answers them.
//!
//! A server that is down keeps its share. Whoever needs room, when all that is left may be there,
//! waits for its successor. Setting a limit needs all servers.

mod authority;
mod holder;
mod requests;
mod trees;

use crate::error::Result;
use authority::Books;
use canopy_namespace::Tablet;
use canopy_namespace::quota::{Account, Notice, Share as RecordedShare, Shortage};
use canopy_partition::{Collected, Grant, Round, ServerId, Share, Terms};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use holder::Obtaining;

/// The server that knows all limits.
pub(crate) const AUTHORITY: ServerId = ServerId(0);

/// A message of the authority about an account, to a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ShareMessage {
    /// Gives room back, but for what changes are about to use. These kinds of amounts are limited.
    Collect(Account, Round, [bool; 2]),
    /// Takes a grant.
    Take(Account, Grant),
    /// Begins to count usage, or ends counting. Returns whether usage is counted.
    Count(bool),
    /// Returns usage of accounts behind one, some of them. Where nothing is counted, this reads all
    /// files.
    Used(Option<Account>),
    /// Returns the usage of an account.
    UsedBy(Account),
    /// To the authority: this is freed, or overdrawn, at a server.
    Notices(ServerId, Vec<Notice>),
}

/// A reply to such a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ShareReply {
    /// The collected room.
    Collected(Collected),
    /// The server has got a later message.
    Late,
    /// The server does not count usage, or not yet.
    CountsNothing,
    /// Whether it was done.
    Done(bool),
    /// Usage of accounts.
    Used(Vec<(Account, [i64; 2])>),
}

/// A request of a client or of a server that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ShareRequest {
    /// To the authority: a server needs more of an account.
    Obtain(ServerId, Shortage),
    /// To the authority: returns usage and limits of some accounts behind one.
    Quotas(Option<Account>),
    /// To the authority: returns all trees, by number, with their directories.
    Trees,
    /// Counts a file to a tree, or to none (0).
    SetProject(canopy_namespace::FileId, u32),
    /// Returns the files that are counted to a tree here.
    FilesOf(u32),
}

/// The authority's reply to a server that needs more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Obtained {
    /// The server gets this.
    Granted(Grant),
    /// No server has so much left.
    Refused,
    /// Some is left that other changes are about to use.
    Wait,
    /// Some is left on this server alone, for changes of its own, maybe for the one that asks.
    WaitForOwn,
}

/// State of a server for quotas.
pub(crate) struct ServerQuotas {
    /// Held by whoever asks for more of an account.
    asking: Mutex<HashMap<Account, Arc<Mutex<()>>>>,
    /// Held by whoever counts: the last failure and its moment, until the authority knows it.
    counting: Mutex<Option<(canopy_namespace::Error, Duration)>>,
    /// Sums of a server that does not count, while they are read page by page.
    counted: Mutex<Option<BTreeMap<Account, [i64; 2]>>>,
    /// Notices of other servers, which this one sends on before it replies to its client.
    relayed: Mutex<Vec<(ServerId, Vec<Notice>)>>,
    books: Books,
}

impl ServerQuotas {
    /// Reads what a table records.
    pub(crate) fn open(tablet: &Tablet) -> Result<Self> {
        Ok(ServerQuotas {
            asking: Mutex::default(),
            counting: Mutex::default(),
            counted: Mutex::default(),
            relayed: Mutex::default(),
            books: Books::open(tablet)?,
        })
    }
}

/// Returns a recorded share as the rules have it.
fn by_rules(share: RecordedShare) -> Share {
    let RecordedShare { round: [epoch, number], base, bound, is_open, until_ns } = share;
    Share { round: Round { epoch, number }, base, terms: Terms { bound, is_open, until_ns } }
}

/// Returns a share as it is recorded.
fn as_recorded(share: Share) -> RecordedShare {
    let Share { round: Round { epoch, number }, base, terms } = share;
    let Terms { bound, is_open, until_ns } = terms;
    RecordedShare { round: [epoch, number], base, bound, is_open, until_ns }
}
