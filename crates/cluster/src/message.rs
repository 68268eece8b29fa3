//! Messages: what a logical server is asked, and what it replies.
//!
//! A request of a client may have its server ask other servers, also as a client. A [`ServerRequest`]
//! never does. Threads are divided by that (`envelope::RequestClass`).

use crate::check::DirectoryFact;
use crate::cuts::{CutId, CutMessage, CutReply};
use crate::error::Error;
use crate::holds::MovedHold;
use crate::intents::{IntentPart, PartOutcome};
use crate::locks::{LockReply, LockRequest};
use crate::quotas::{Obtained, ShareMessage, ShareReply, ShareRequest};
use crate::searching::{ArrivalMark, NameRange, SearchPart};
use crate::snapshots::{CutMade, CutRequest, SnapshotEntry, SnapshotTables};
use crate::tally::Tally;
use canopy_model::Credentials;
use canopy_namespace::operation::{Caller, Entries, Hold, LockOwner, Operation, Page, Target};
use canopy_namespace::quota::{Account, Notice, Quota, Shortage};
use canopy_namespace::{
    Ancestor, ChangeId, Cursor, DirectoryHalf, ExecutedRecord, Fact, FactPage, Failure, FileId,
    Found, Inode, Mend, MovedEntry, NewDirectory, OwnedName, Place, Reply,
};
use canopy_partition::{
    Age, Answer, Attempt, Begun, IntentId, PartitionId, Placement, Preparation, ServerId,
    SplitHistory, Verdict,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A client's session: a number that no other client has. 0 is that of servers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct SessionId(pub u64);

impl SessionId {
    /// The session of servers, which hold nothing.
    pub const SERVER: SessionId = SessionId(0);
}

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
    /// The life of the session at the server in which it has locks on the file of a change. The change
    /// is refused if the session has lost them since. None if no lock matters.
    pub life: Option<Life>,
}

impl Sender<'_> {
    /// A server of the namespace.
    pub const SERVER: Sender<'static> =
        Sender { caller: Caller::Trusted, session: SessionId::SERVER, number: 0, life: None };

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
    DirectoryAtServer(FileId),
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
    /// Lets files go that the session has held, each with all its holds up to a ticket. Returns those
    /// that are not here.
    Release(Vec<(FileId, u64)>),
    /// Searches what the server has.
    Search(SearchPart<'a>),
    /// Returns the names that the server came to hold since a moment.
    Arrivals(ArrivalMark),
    /// A request about cuts, to server 0.
    Cut(CutRequest),
    /// Reads from the server as the snapshot of a number has it.
    Past(u64, #[serde(borrow)] PastRequest<'a>),
    /// Returns the directories with names of a file, one for each name. Only somebody who is trusted
    /// may ask.
    Parents(FileId),
    /// Has the home of a directory give its attributes to all servers. Only somebody who is trusted may
    /// ask for it.
    PushAttributes(FileId),
    /// Returns the number of servers, by the newest list in storage. Any server knows.
    Servers,
    /// Concerns limits of accounts. Only somebody who is trusted, or root, may ask.
    Share(ShareRequest),
    /// Asks about locks on a file that the session holds, and changes them.
    Lock(LockRequest),
    /// Returns the session's waiting locks whose turn it is. Waits for one up to a second.
    AwaitLocks,
    /// Like `DirectoryAtServer`, to the home of a directory, for a session that remembers the reply
    /// while it has a lease.
    LeaseDirectory(FileId),
}

/// A request to a server as a snapshot has it. See [`Request`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PastRequest<'a> {
    /// Executes an operation that reads.
    Execute(#[serde(borrow)] Operation<'a>),
    /// Returns entries of one partition.
    List(#[serde(borrow)] Page<'a>),
    /// Returns what the server had of a directory.
    DirectoryAtServer(FileId),
    /// Returns a name of a file, and the directory that it was in.
    NameOf(FileId),
    /// Returns the directories with names of a file.
    Parents(FileId),
    /// Returns the number of servers then. Any server knows.
    Servers,
    /// Searches what the server had.
    Search(#[serde(borrow)] SearchPart<'a>),
}

/// Something that a search of a snapshot asks another server as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThenRequest {
    /// Like `ServerRequest::Ancestor`.
    Ancestor(FileId),
    /// Like `ServerRequest::DirectoryAtServer`.
    DirectoryAtServer(FileId),
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
    HandOver(FileId, PartitionId, Attempt, HandOverMessage<'a>),
    /// A message about a change that concerns several servers.
    Intent(IntentId, Box<IntentMessage<'a>>),
    /// To the home of a directory: returns what a search on another server has to know of it.
    Ancestor(FileId),
    /// Returns the server's part of a directory, as [`Request::DirectoryAtServer`] does.
    DirectoryAtServer(FileId),
    /// A round of a cut.
    Cut(CutId, CutMessage),
    /// To server 0: returns all snapshots.
    Snapshots,
    /// Returns sessions that have ended, above one or from the first on.
    EndedSessions(Option<u64>),
    /// Returns how many partitions and entries the server has.
    Tally,
    /// Returns the partitions of a directory that the server holds, with their numbers of entries.
    Counts(FileId),
    /// Begins a check: takes a snapshot of the table.
    BeginCheck,
    /// Returns facts of the snapshot of a check, from a place on or from the first.
    Facts(u64, Option<Place>),
    /// Returns directories with partitions here, behind one or from the first on.
    Directories(Option<FileId>),
    /// Returns what is known now of a file, with these names of it.
    FactsOf(FileId, Vec<(FileId, Vec<u8>)>),
    /// Returns changes of several servers that have not ended.
    Unfinished,
    /// Mends a fault that a check has found.
    Mend(Mend),
    /// Gives a file without a name one that the server holds: a pointer, or a directory's access half.
    Adopt(OwnedName, Box<Inode>),
    /// A message about limits of accounts.
    Share(ShareMessage),
    /// To server 0: returns the checkpoints of a snapshot.
    SnapshotTables(u64),
    /// To the home of a directory: a session changes its name. Nobody else gets a lease for some time.
    /// Returns the time in milliseconds until leases of others have ended.
    Recall(FileId, SessionId),
    /// To the home of a directory: the change of its name has ended.
    EndRecall(FileId, SessionId),
    /// Returns the directory that a name stands for, if it does.
    DirectoryAt(OwnedName),
    /// Answers as the server was in a snapshot.
    Then(u64, ThenRequest),
}

/// A message about an intent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum IntentMessage<'a> {
    /// To a participant: checks a part, for a user or somebody who is trusted, and prepares it.
    Prepare {
        /// The age of the change.
        age: Age,
        /// The user, if one has to be checked.
        who: Option<Cow<'a, Credentials>>,
        /// The part.
        part: Cow<'a, IntentPart>,
        /// Executed changes that the participant has to know once it has a file of the decider.
        executed: Vec<ExecutedRecord>,
        /// Number of executed changes of the participant, in an epoch of its table, that the decider has.
        has: (u64, u64),
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
    /// To a participant: executed changes that it has to know before it is asked to prepare a part.
    Executed(Vec<ExecutedRecord>),
}

/// A reply to a message about an intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum IntentReply {
    /// The part is prepared. The decider has to know these executed changes once it has a file of the
    /// participant.
    Prepared(Preparation, PartOutcome, Vec<ExecutedRecord>),
    /// The part was checked, and there is nothing to prepare.
    Checked(PartOutcome),
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
    /// Like `Ended`. The authority of limits has to know this of the participant.
    Freed(bool, Vec<Notice>),
    /// The decider has to know these executed changes before the part is prepared. Then it sends the
    /// part again, with this number, in this epoch, of those that it has.
    Executed(Vec<ExecutedRecord>, (u64, u64)),
}

/// Partitions of a directory that a server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitions {
    /// Histories of those that it holds.
    pub histories: Vec<SplitHistory>,
    /// The servers of all partitions; none if the directory was never split, as far as it knows.
    pub placement: Option<Placement>,
}

/// A step of the hand-over of a partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum HandOverMessage<'a> {
    /// To the receiver: an attempt begins. These are the attributes of the directory, and the servers
    /// of its partitions.
    Begin(Cow<'a, DirectoryHalf>, Placement),
    /// To the receiver: some entries.
    Entries(Cow<'a, [MovedEntry]>),
    /// To the receiver: changes that were executed, which clients may send again.
    Executed(Cow<'a, [ExecutedRecord]>),
    /// To the receiver: files that arrive and are held, with the sessions and tickets.
    Holds(Vec<MovedHold>),
    /// To the receiver: all entries were sent, as many as this. Whether it may split the partition by
    /// its size.
    Complete(u64, bool),
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
    DirectoryAtServer(Option<Inode>, Partitions),
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
    MkdirVerdict(MkdirVerdict),
    /// The reply to an operation that holds a file.
    Held(Reply, Life),
    /// The session was renewed. Of the files that it holds, the first ones were handed over, and the
    /// others have no name.
    Renewed(Life, Vec<FileId>, Vec<FileId>),
    /// Files are held again, or let go, but for these, which are not here.
    Reclaimed(Vec<FileId>, Life),
    /// Files that a search has found, where it goes on, and a moment before it.
    Found(Vec<Found>, Option<Cursor>, ArrivalMark),
    /// Names that a server came to hold, up to a moment; none if they are not known.
    Arrived(Option<Vec<NameRange>>, ArrivalMark),
    /// A directory; none if it is gone.
    Ancestor(Option<Box<Ancestor>>),
    /// The reply to a round of a cut.
    Cut(CutReply),
    /// A cut that was made.
    CutMade(CutMade),
    /// Snapshots and cuts, and whether another one is being made.
    Snapshots(Vec<SnapshotEntry>, bool),
    /// The checkpoints of a snapshot or a cut, if there is one.
    SnapshotTables(Option<SnapshotTables>),
    /// Files.
    Files(Vec<FileId>),
    /// A number of something.
    Count(u64),
    /// The number of servers that the one who answers knows of.
    Servers(u32),
    /// Sessions that have ended, and whether the server counts usage.
    Sessions(Vec<u64>, bool),
    /// Numbers of partitions and entries; none if they are not known yet.
    Tally(Option<Tally>),
    /// Partitions with their numbers of entries.
    Counts(Vec<(SplitHistory, u64)>),
    /// The number of a check that has begun.
    CheckBegun(u64),
    /// Facts of a snapshot.
    Facts(Box<FactPage>),
    /// Directories with partitions.
    Directories(Vec<DirectoryFact>),
    /// Facts of one file, and its partitions.
    FactsOf(Vec<Fact>, Option<Box<DirectoryFact>>),
    /// Descriptions of changes that have not ended.
    Unfinished(Vec<String>),
    /// The reply to a message about limits of accounts.
    Share(ShareReply),
    /// The reply of the authority to a server that needs more of an account.
    Obtained(Obtained),
    /// The share of the server does not suffice for this.
    Short(Vec<Shortage>),
    /// Usage and limits of some accounts, and the last one that was looked at, unless it was the last.
    Quotas(Vec<Quota>, Option<Account>),
    /// Trees, by number, with their directories.
    Trees(Vec<(u32, FileId)>),
    /// The reply to a request about locks.
    Lock(LockReply),
    /// Files and owners of locks that may be set now.
    Turns(Vec<(FileId, LockOwner)>),
    /// The home's part of a directory, its partitions, and whether the session has a lease.
    LeasedDirectory(Option<Inode>, Partitions, bool),
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
pub enum MkdirVerdict {
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
    WrongServer {
        /// Name or file of the request.
        target: Target,
        /// Partitions of the directory, as the server knows them.
        partitions: Partitions,
        /// Grows with each change of the partitions that the server holds.
        changes: u64,
        /// The number of servers that the server knows of.
        servers: u32,
    },
    /// The process does not run the server.
    NotRunning(ServerId),
    /// An operation that is not possible yet.
    NotYet(String),
    /// A hand-over that stopped.
    Stopped(PartitionId),
    /// Any other error.
    Failed(Failure),
    /// The namespace was restored to a snapshot since the sender was started.
    Restored,
    /// The session has lost the locks that a change needs.
    LocksLost(ServerId),
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        match error {
            Error::WrongServer { target, partitions, changes, servers } => Refusal::WrongServer {
                target: *target,
                partitions: partitions.clone(),
                changes: *changes,
                servers: *servers,
            },
            Error::NotRunning(server) => Refusal::NotRunning(*server),
            Error::NotYet(what) => Refusal::NotYet(what.to_string()),
            Error::Stopped(partition) => Refusal::Stopped(*partition),
            Error::Restored => Refusal::Restored,
            Error::LocksLost(server) => Refusal::LocksLost(*server),
            Error::Namespace(error) => Refusal::Failed(error.into()),
            Error::Short(_, short) => {
                Refusal::Failed((&canopy_namespace::Error::Short(short.clone())).into())
            }
            Error::Unreachable { .. }
            | Error::NoAnswer(_)
            | Error::Unfit
            | Error::WouldWait
            | Error::InDoubt(_)
            | Error::NoCut { .. }
            | Error::Unrestored(_)
            | Error::Full(_)
            | Error::TooManySessions(_) => Refusal::Failed(Failure::unavailable(error)),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::WrongServer { target, partitions, changes, servers } => {
                Error::WrongServer { target, partitions, changes, servers }
            }
            Refusal::NotRunning(server) => Error::NotRunning(server),
            Refusal::NotYet(what) => Error::NotYet(what.into()),
            Refusal::Stopped(partition) => Error::Stopped(partition),
            Refusal::Restored => Error::Restored,
            Refusal::LocksLost(server) => Error::LocksLost(server),
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
