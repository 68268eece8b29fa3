//! Messages: what a logical server is asked, and what it replies.
//!
//! A request of a client may have its server ask other servers. A request of a server never does:
//! so no two servers wait for each other, however few threads they have.

use crate::error::Error;
use crate::intents::{Part, Seen};
use canopy_model::Credentials;
use canopy_namespace::operation::{Caller, Entries, Hold, Operation, Page, Target};
use canopy_namespace::{
    ChangeId, DirectoryHalf, ExecutedRecord, Failure, FileId, Inode, MovedEntry, NewDirectory,
    Reply,
};
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
    /// The caller, who needs the rights.
    pub caller: Caller<'a>,
    /// The session that the request belongs to.
    pub session: SessionId,
    /// Number of a change in its session ([`ChangeId::number`]): a change that is sent again has the
    /// same number, and is executed once. 0 for a request that changes nothing.
    pub number: u64,
}

impl Sender<'_> {
    /// A server of the namespace.
    pub const SERVER: Sender<'static> =
        Sender { caller: Caller::Trusted, session: SessionId(0), number: 0 };

    /// Returns the change of the session that the request is; none if it has no number.
    pub(crate) fn change(&self) -> Option<ChangeId> {
        let Sender { session: SessionId(session), number, .. } = *self;
        (session != 0 && number != 0).then_some(ChangeId { session, number })
    }
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
    /// Splits a partition of a directory that the server holds, whatever its size, if there is a server
    /// for its upper half. Only somebody who is trusted may ask for it.
    Split(FileId, PartitionId),
    /// Holds a file in the sender's session, or lets it go, with a ticket. A release concerns all
    /// holds with tickets up to its own.
    Hold(#[serde(borrow)] Hold<'a>, u64),
    /// Holds files again that the session has held at a server before.
    Reclaim(Vec<FileId>, u64),
    /// Renews the sender's session. It knows that these files were handed over.
    Renew(Vec<FileId>),
    /// Ends the sender's session: it sends none of its changes again.
    EndSession,
    /// A request of another server of the namespace.
    OfServer(ServerRequest<'a>),
}

/// Something that only servers ask each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ServerRequest<'a> {
    /// Makes the content half of a directory, and gives it an id, in an attempt of the server that
    /// gives it the name.
    MakeDirectory(Cow<'a, NewDirectory>, ServerId, Attempt),
    /// Removes the content half of a directory that got no name.
    DropDirectory(FileId),
    /// Has a home know that these directories got their names.
    Named(Vec<FileId>),
    /// Returns what became of an attempt to make a directory.
    FateOf(FileId, Attempt),
    /// Gives a server that has partitions of a directory, or gets one, the attributes that it has got.
    /// The server replies with the partitions that it knows.
    SetHalf(Cow<'a, DirectoryHalf>),
    /// Notes for good that a session of a client has ended: records get none of its objects any
    /// more.
    EndSession(u64),
    /// A step of a hand-over.
    HandOver(FileId, PartitionId, Attempt, MoveStep<'a>),
    /// A message about a change that concerns several servers.
    Intent(IntentId, Box<IntentStep<'a>>),
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
    /// To the home of a directory: returns the directory above it.
    Above {
        /// The directory.
        directory: FileId,
        /// The age of the change that asks.
        age: Age,
    },
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
    /// The directory above one.
    Above(FileId),
}

/// A step of the hand-over of a partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MoveStep<'a> {
    /// To the receiver: an attempt begins. These are the attributes of the directory.
    Begin(Cow<'a, DirectoryHalf>),
    /// To the receiver: some entries.
    Entries(Cow<'a, [MovedEntry]>),
    /// To the receiver: changes that were executed, which clients may send again.
    Executed(Cow<'a, [ExecutedRecord]>),
    /// To the receiver: files that arrive and are held, with the sessions and tickets.
    Holds(Vec<(SessionId, FileId, u64)>),
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
    /// State of an attempt to make a directory.
    Fate(Fate),
    /// The reply to an operation that holds a file.
    Held(Reply, Life),
    /// The session was renewed. These files that it holds were handed over.
    Renewed(Life, Vec<FileId>),
    /// Files are held again, but for these, which are not here.
    Reclaimed(Vec<FileId>, Life),
}

/// The life of a session at a server. If it is another one, the session has lost what it held there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Epoch of the server's table.
    pub epoch: u64,
    /// Counts sessions, and their losses, in this epoch.
    pub number: u64,
}

/// State of an attempt to make a directory, by the word of an owner of the table with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// The directory got its name.
    Named,
    /// It may get its name.
    Pending,
    /// It has no name and gets none, unless the home was notified that it has one.
    Ended,
    /// The attempt is that of a later owner, so the one who answers has been replaced.
    Unknown,
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
            Error::Unreachable { .. }
            | Error::Unfit
            | Error::InDoubt(_)
            | Error::Full(_)
            | Error::TooManySessions(_) => Refusal::Failed(Failure::unavailable(error)),
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
