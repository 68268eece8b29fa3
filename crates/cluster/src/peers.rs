//! Asking logical servers, wherever they run.

use crate::error::Result;
use crate::message::{Request, Response, Sender};
use canopy_partition::{ServerId, SplitPolicy};

/// Carries requests to logical servers, in this process or in others, and waits for the replies.
pub trait Peers: Send + Sync {
    /// Asks a server.
    ///
    /// # Errors
    ///
    /// Fails as the server does, and with `Unreachable` or `NotRunning` if it did not answer.
    fn ask(&self, server: ServerId, sender: Sender<'_>, request: &Request<'_>) -> Result<Response>;

    /// Asks a server, and gives up soon if it does not answer. The default waits as long as `ask`.
    ///
    /// # Errors
    ///
    /// Fails as `ask` does.
    fn ask_briefly(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response> {
        self.ask(server, sender, request)
    }

    /// Returns the number of logical servers.
    fn server_count(&self) -> u32;

    /// Returns when partitions split, which decides where they are, too.
    fn policy(&self) -> SplitPolicy;
}
