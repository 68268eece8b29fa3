//! Asking logical servers, wherever they run.

use crate::error::Result;
use crate::message::{Request, Response, Sender};
use canopy_partition::{ServerId, SplitPolicy};

/// A request to a server.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The server.
    pub server: ServerId,
    /// The sender.
    pub sender: Sender<'a>,
    /// The request.
    pub request: &'a Request<'a>,
}

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

    /// Asks servers at once: each request once, without a retry. Returns the answers in the order of
    /// the requests.
    fn ask_all(&self, asked: &[Asked<'_>]) -> Vec<Result<Response>> {
        let ask = |one: &Asked<'_>| self.ask(one.server, one.sender, one.request);
        asked.iter().map(ask).collect()
    }

    /// Returns the number of logical servers.
    fn server_count(&self) -> u32;

    /// Returns when partitions split, which decides where they are, too.
    fn policy(&self) -> SplitPolicy;
}
