//! Errors of a cluster.

use crate::message::Partitions;
use canopy_model::Retry;
use canopy_namespace::FileId;
use canopy_namespace::operation::Target;
use canopy_namespace::quota::Shortage;
use canopy_partition::{IntentId, PartitionId, ServerId};
use std::borrow::Cow;

/// An error of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server has failed to execute an operation.
    #[error(transparent)]
    Namespace(#[from] canopy_namespace::Error),
    /// Another server holds what the request is about.
    #[error("{target} is on another server")]
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
    /// The process that was asked does not run the server.
    #[error("server {0} does not run here")]
    NotRunning(ServerId),
    /// A server did not answer. Whether it has executed the request is unknown.
    #[error("server {server} cannot be reached: {why}")]
    Unreachable {
        /// The server.
        server: ServerId,
        /// Reason.
        why: String,
    },
    /// No process of the cluster answers that is known. The text says why the last one does not.
    #[error("no process answers; the last one that was asked: {0}")]
    NoAnswer(String),
    /// A change of several servers has locked a name or a file. The request is tried again.
    #[error("{0} has locked a name or a file")]
    InDoubt(IntentId),
    /// The share of a server does not suffice for a change. The change is tried again with more.
    #[error("server {0} has no share left of an account")]
    Short(ServerId, Vec<Shortage>),
    /// The request has to wait, and its thread must not (`brief`). It can be executed again.
    #[error("the request has to wait")]
    WouldWait,
    /// A reply that does not fit the request.
    #[error("a reply of a server does not fit the request")]
    Unfit,
    /// The operation is not possible in a cluster yet.
    #[error("{0} is not possible on several servers yet")]
    NotYet(Cow<'static, str>),
    /// The server has as many sessions of clients as it may.
    #[error("the server has {0} sessions of clients, which is the limit")]
    TooManySessions(usize),
    /// The tables could not be brought to one moment. It may be possible later.
    #[error("no snapshot could be made: server {server} {why}; try again")]
    NoCut {
        /// The server.
        server: ServerId,
        /// Reason.
        why: &'static str,
    },
    /// The disk with the server's log is full. The request was executed, and is durable once there is
    /// room: it is tried again.
    #[error("server {0} cannot write its log: no space is left in its storage")]
    Full(ServerId),
    /// The namespace was restored to a snapshot since this client, or this process, was started.
    #[error(
        "the namespace was restored to a snapshot: unmount it and mount it again, and restart processes \
         that serve it"
    )]
    Restored,
    /// The restore of this snapshot has begun, and has not ended.
    #[error(
        "the restore of snapshot {0} has not ended: finish it with 'canopy ns snapshot restore NAMESPACE \
         {0}'"
    )]
    Unrestored(String),
    /// The session may have lost the locks at the server under which a change was made. They have to be
    /// restored first.
    #[error("locks at server {0} may be lost")]
    LocksLost(ServerId),
    /// A hand-over stopped: a server was busy, has gone, or a test has stopped it.
    #[error("the hand-over of {0} has stopped")]
    Stopped(PartitionId),
}

impl Error {
    /// Returns the error with the partition that the request was about, if a server did not answer.
    pub(crate) fn about(self, partition: PartitionId, directory: FileId) -> Self {
        match self {
            Error::NotRunning(server) => {
                let why =
                    format!("no process runs it; it has {partition} of directory {directory}");
                Error::Unreachable { server, why }
            }
            Error::Unreachable { server, why } => {
                let why = format!("{why}; it has {partition} of directory {directory}");
                Error::Unreachable { server, why }
            }
            other => other,
        }
    }

    /// Returns whether a server did not answer, or could not ask another one: the same request may
    /// succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Error::NotRunning(_)
            | Error::Unreachable { .. }
            | Error::NoAnswer(_)
            | Error::Full(_) => true,
            // A damaged record is an error of the file.
            Error::Namespace(canopy_namespace::Error::Posix(_)) => false,
            Error::Namespace(error) => error.kind().retry() == Retry::Elsewhere,
            _ => false,
        }
    }
}

impl From<canopy_store::Error> for Error {
    fn from(error: canopy_store::Error) -> Self {
        Error::Namespace(error.into())
    }
}

impl From<Error> for canopy_namespace::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Namespace(error) => error,
            Error::Short(_, short) => canopy_namespace::Error::Short(short),
            Error::Restored => canopy_namespace::Failure::stale(&error).into(),
            Error::NotYet(_) => canopy_namespace::Failure::unsupported(&error).into(),
            other => canopy_namespace::Failure::unavailable(&other).into(),
        }
    }
}

/// The result of a call of a cluster.
pub type Result<T> = std::result::Result<T, Error>;
