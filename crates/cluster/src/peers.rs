//! Asking logical servers, wherever they run.

use crate::error::Result;
use crate::message::{Request, Response};
use canopy_namespace::operation::Caller;
use canopy_partition::{ServerId, SplitPolicy};

/// Carries requests to logical servers, in this process or in others, and waits for the replies.
pub trait Peers: Send + Sync {
    /// Asks a server for a caller.
    ///
    /// # Errors
    ///
    /// Fails as the server does, and with `Unreachable` or `NotRunning` if it did not answer.
    fn ask(&self, server: ServerId, caller: Caller<'_>, request: &Request<'_>) -> Result<Response>;

    /// Returns the number of logical servers.
    fn server_count(&self) -> u32;

    /// Returns when partitions split, which decides where they are, too.
    fn policy(&self) -> SplitPolicy;
}
