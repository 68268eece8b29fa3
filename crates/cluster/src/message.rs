//! Messages: what a logical server is asked, and what it replies.
//!
//! A request of a client may have its server ask other servers. A request of a server never does:
//! so no two servers wait for each other, however few threads they have.

use crate::error::Error;
use crate::intents::{Part, Seen};
use canopy_model::Credentials;
use canopy_namespace::operation::{Caller, Entries, Operation, Page, Target};
use canopy_namespace::{DirectoryHalf, Failure, FileId, Inode, MovedEntry, NewDirectory, Reply};
use canopy_partition::{
    Age, Answer, Attempt, Begun, IntentId, PartitionId, Preparation, ServerId, SplitHistory,
    Verdict,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A client's session: a number that no other client has. 0 is that of servers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct SessionId(pub u64);

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// Whose rights count.
    pub caller: Caller<'a>,
    /// The session that the request belongs to.
    pub session: SessionId,
    /// Number of a change in its session: a change that is sent again has the same number, and is
    /// executed once. 0 for a request that changes nothing.
    pub number: u64,
}

impl Sender<'_> {
    /// A server of the namespace.
    pub const SERVER: Sender<'static> =
        Sender { caller: Caller::Trusted, session: SessionId(0), number: 0 };
}

/// Something that a logical server is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Executes an operation on names or files that the server holds.
    Execute(#[serde(borrow)] Operation<'a>),
    /// Returns entries of one partition.
    List(#[serde(borrow)] Page<'a>),
    /// Returns what the server has of a directory: its part of the inode, and its partitions.
    Part(FileId),
    /// Returns a name of a file, and the directory that it is in.
    NameOf(FileId),
    /// Returns the server whose table gave out an id. Any server knows.
    HomeOf(FileId),
    /// A request of another server of the namespace.
    OfServer(ServerRequest<'a>),
}

/// Something that only servers ask each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ServerRequest<'a> {
    /// Makes the content half of a directory, and gives it an id.
    MakeDirectory(Cow<'a, NewDirectory>),
    /// Removes the content half of a directory that got no name.
    DropDirectory(FileId),
    /// Gives a server that may have partitions of a directory the attributes that it has got.
    SetHalf(Cow<'a, DirectoryHalf>),
    /// A step of a hand-over.
    HandOver(FileId, PartitionId, Attempt, MoveStep<'a>),
    /// A message about a change that concerns several servers.
    Intent(IntentId, IntentStep<'a>),
}

/// A message about an intent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum IntentStep<'a> {
    /// To a participant: checks a part, for a user or somebody who is trusted, and prepares it.
    Prepare {
        /// The age of the change.
        age: Age,
        /// The user, if one has to be checked.
        who: Option<Cow<'a, Credentials>>,
        /// The part.
        part: Cow<'a, Part>,
    },
    /// To the decider: has this preparation become a change?
    Ask {
        /// The server that has prepared it.
        participant: ServerId,
        /// The preparation.
        preparation: Preparation,
    },
    /// To a participant: the change has happened.
    Commit(Preparation),
    /// To a participant: it will not happen.
    Abort,
    /// To the home of a directory: returns the inode.
    Peek(FileId),
}

/// A reply to a message about an intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum IntentReply {
    /// The part is prepared.
    Prepared(Preparation, Seen),
    /// The part was checked, and there is nothing to prepare.
    Seen(Seen),
    /// Something is locked. The decider sends the part again later.
    Wait,
    /// An older change has locked something. The decider gives up what it has, and begins again.
    GiveUp,
    /// Fate of a preparation.
    Verdict(Verdict),
    /// Whether the participant has made its part, or dropped it.
    Ended(bool),
    /// An inode.
    Inode(Box<Inode>),
}

/// A step of the hand-over of a partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MoveStep<'a> {
    /// To the receiver: an attempt begins. These are the attributes of the directory.
    Begin(Cow<'a, DirectoryHalf>),
    /// To the receiver: some entries.
    Entries(Cow<'a, [MovedEntry]>),
    /// To the receiver: all entries were sent, as many as this.
    Complete(u64),
    /// To the receiver: the partition is its own.
    Hold,
    /// To the giver: has it given the partition in this attempt?
    Ask,
}

/// A reply to a request that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// The reply to an operation.
    Reply(Reply),
    /// Entries, and the last hash of the partition that they are from.
    Listed(Entries, u64),
    /// A server's part of a directory: of the inode, unless it has none, and its partitions.
    Part(Option<Inode>, Vec<SplitHistory>),
    /// A name and its directory; none if the file has no name.
    NameOf(Option<(FileId, Vec<u8>)>),
    /// A server.
    HomeOf(ServerId),
    /// A directory that was made, without a name so far.
    Made(Inode),
    /// Whether it was done.
    Done(bool),
    /// Whether an attempt may begin.
    Begun(Begun),
    /// State of an attempt.
    Answer(Answer),
    /// The reply to a message about an intent.
    Intent(IntentReply),
}

/// An error as a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Another server holds what the request is about.
    Elsewhere {
        /// Name or file of the request.
        target: Target,
        /// Histories of the directory's partitions that the server holds.
        histories: Vec<SplitHistory>,
        /// Grows with each change of the partitions that the server holds.
        changes: u64,
    },
    /// The process does not run the server.
    NotRunning(ServerId),
    /// An operation that is not possible yet.
    NotYet(String),
    /// A hand-over that stopped.
    Stopped(PartitionId),
    /// Any other error.
    Failed(Failure),
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        match error {
            Error::Elsewhere { target, histories, changes } => Refusal::Elsewhere {
                target: *target,
                histories: histories.clone(),
                changes: *changes,
            },
            Error::NotRunning(server) => Refusal::NotRunning(*server),
            Error::NotYet(what) => Refusal::NotYet(what.to_string()),
            Error::Stopped(partition) => Refusal::Stopped(*partition),
            Error::Namespace(error) => Refusal::Failed(error.into()),
            Error::Unreachable { .. } | Error::Unfit | Error::InDoubt(_) => {
                Refusal::Failed(Failure::unavailable(error))
            }
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Elsewhere { target, histories, changes } => {
                Error::Elsewhere { target, histories, changes }
            }
            Refusal::NotRunning(server) => Error::NotRunning(server),
            Refusal::NotYet(what) => Error::NotYet(what.into()),
            Refusal::Stopped(partition) => Error::Stopped(partition),
            Refusal::Failed(failure) => Error::Namespace(failure.into()),
        }
    }
}

impl Response {
    /// Returns whether something was done.
    pub(crate) fn done(self) -> Result<bool, Error> {
        match self {
            Response::Done(is_done) => Ok(is_done),
            _ => Err(Error::Unfit),
        }
    }
}
