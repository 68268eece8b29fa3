//! Errors of a cluster.

use canopy_namespace::operation::Target;
use canopy_partition::SplitHistory;

/// An error of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server has failed to execute an operation.
    #[error(transparent)]
    Namespace(#[from] canopy_namespace::Error),
    /// Another server holds what the operation is about. The histories are those of all partitions
    /// of the directory that this server holds.
    #[error("{target} is on another server")]
    Elsewhere {
        /// Name or file of the operation.
        target: Target,
        /// Histories of the directory's partitions that the server holds.
        histories: Vec<SplitHistory>,
    },
    /// The operation is not possible in a cluster yet.
    #[error("{0} is not possible on several servers yet")]
    NotYet(&'static str),
    /// A hand-over stopped: a server was busy, has gone, or a test has stopped it.
    #[error("the hand-over of {0} has stopped")]
    Stopped(canopy_partition::PartitionId),
}

impl From<canopy_store::Error> for Error {
    fn from(error: canopy_store::Error) -> Self {
        Error::Namespace(error.into())
    }
}

/// The result of a call of a cluster.
pub type Result<T> = std::result::Result<T, Error>;
