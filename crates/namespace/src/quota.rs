//! Quotas: what users, groups and trees of directories use, and what they may.
//!
//! Usage is counted from the first limit on: the sums are records, and a change of what somebody
//! uses has the new sums in its batch, so they agree with the inodes in every prefix of the log.
//! While there is no limit, nothing is counted and nothing costs anything.
//!
//! ```text
//! usage    bytes u64, inodes u64, since when each is beyond its soft limit i64, i64
//! limits   bytes soft u64, hard u64, inodes soft u64, hard u64, grace in seconds u64,
//!          the directory of a tree u64
//! ```
//!
//! Numbers are little endian; a limit of 0 is none. Bytes are those of blocks, as du(1) counts them.
//!
//! A create in a namespace without limits writes two records fewer.
//!
//! A namespace of several tables has no limits in its tables, but shares of them (`shares`).

mod accounts;
mod counting;
mod reservation;
mod shares;
mod trees;

pub(crate) use accounts::{Accounts, Sums, Transaction};
pub(crate) use reservation::Reservation;
pub use shares::{LedgerRecord, Notice, Pledge, Share, Shortage};

use crate::error::{Error, Result};
use crate::records::inode::Inode;
use crate::records::keys::{FileId, Space};
use canopy_store::Key;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How long a soft limit may be passed unless something else is said.
pub const GRACE_S: u64 = 7 * 24 * 3600;

/// The bytes of a block.
const BLOCK_BYTES: u64 = 512;

/// A user, group or tree for which usage is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Account {
    /// The files that belong to a user.
    User(u32),
    /// The files that belong to a group.
    Group(u32),
    /// The files of a tree of directories, by its project number.
    Tree(u32),
}

/// Usage of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Space of contents.
    pub bytes: u64,
    /// How many files there are, of whatever kind.
    pub inodes: u64,
    /// Since when the bytes are more than the soft limit, in nanoseconds since 1970; 0 if they are
    /// not.
    pub bytes_since_ns: i64,
    /// The same of inodes.
    pub inodes_since_ns: i64,
}

/// Limits of an account. 0 means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes that may be passed for some time.
    pub bytes_soft: u64,
    /// Bytes that may not be passed.
    pub bytes_hard: u64,
    /// Files that may be passed for some time.
    pub inodes_soft: u64,
    /// Files that may not be passed.
    pub inodes_hard: u64,
    /// For how many seconds the soft limits may be passed.
    pub grace_s: u64,
    /// The topmost directory, of a tree; 0 else.
    pub directory: FileId,
}

/// An account with all that is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The account.
    pub account: Account,
    /// Its usage.
    pub usage: Usage,
    /// Its limits.
    pub limits: Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bytes_soft: 0,
            bytes_hard: 0,
            inodes_soft: 0,
            inodes_hard: 0,
            grace_s: GRACE_S,
            directory: FileId::NONE,
        }
    }
}

impl Limits {
    /// Returns whether there is no limit.
    pub fn are_none(&self) -> bool {
        [self.bytes_soft, self.bytes_hard, self.inodes_soft, self.inodes_hard] == [0; 4]
    }

    fn encode(&self) -> Vec<u8> {
        let numbers = [
            self.bytes_soft,
            self.bytes_hard,
            self.inodes_soft,
            self.inodes_hard,
            self.grace_s,
            self.directory.0,
        ];
        numbers.map(u64::to_le_bytes).concat()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self> {
        let [bytes_soft, bytes_hard, inodes_soft, inodes_hard, grace_s, directory] =
            numbers(value, "limits")?;
        let directory = FileId(directory);
        Ok(Limits { bytes_soft, bytes_hard, inodes_soft, inodes_hard, grace_s, directory })
    }
}

impl Usage {
    fn encode(&self) -> Vec<u8> {
        let since = [self.bytes_since_ns as u64, self.inodes_since_ns as u64];
        [self.bytes, self.inodes, since[0], since[1]].map(u64::to_le_bytes).concat()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self> {
        let [bytes, inodes, bytes_since, inodes_since] = numbers(value, "usage")?;
        let (bytes_since_ns, inodes_since_ns) = (bytes_since as i64, inodes_since as i64);
        Ok(Usage { bytes, inodes, bytes_since_ns, inodes_since_ns })
    }
}

/// Reads a record that has so many numbers.
fn numbers<const N: usize>(value: &[u8], what: &str) -> Result<[u64; N]> {
    if value.len() != N * 8 {
        return Err(Error::corrupt(format!("a record of {what} has {} bytes", value.len())));
    }
    let mut read = [0; N];
    for (number, bytes) in read.iter_mut().zip(value.chunks_exact(8)) {
        *number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    }
    Ok(read)
}

impl Account {
    /// Returns what an inode is counted for.
    pub(crate) fn of(inode: &Inode) -> impl Iterator<Item = Account> {
        let tree = (inode.project != 0).then_some(Account::Tree(inode.project));
        [Account::User(inode.uid), Account::Group(inode.gid)].into_iter().chain(tree)
    }

    /// Returns the key of a record of the account.
    pub(crate) fn key(self, space: Space) -> Key {
        let (kind, id) = match self {
            Account::User(uid) => (0, uid),
            Account::Group(gid) => (1, gid),
            Account::Tree(project) => (2, project),
        };
        space.numbered(kind << 32 | u64::from(id), b"")
    }

    /// Reads of which account a record is by the second part of its key.
    pub(crate) fn parse(hash: u64) -> Result<Self> {
        let id = hash as u32;
        match hash >> 32 {
            0 => Ok(Account::User(id)),
            1 => Ok(Account::Group(id)),
            2 => Ok(Account::Tree(id)),
            kind => Err(Error::corrupt(format!("a quota of kind {kind}"))),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Account::User(uid) => write!(f, "user {uid}"),
            Account::Group(gid) => write!(f, "group {gid}"),
            Account::Tree(project) => write!(f, "tree {project}"),
        }
    }
}
