//! Checking a snapshot: the tables at its checkpoints, which this process opens to read them alone.

use super::{Fault, Progress, Reads, run};
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::process::Process;
use crate::server::Server;
use crate::snapshots::SnapshotTables;
use canopy_namespace::Clock;
use canopy_partition::{ServerId, SplitPolicy};
use canopy_store::Environment;
use std::sync::Arc;

/// Checks a snapshot like [`check`](super::check), and with `reads_contents` like
/// [`check_contents`](super::check_contents). The servers of now go on.
///
/// # Errors
///
/// Fails with `Store` if the snapshot is deleted meanwhile, and as the tables and storage do.
pub fn check_snapshot(
    environment: &Environment,
    clock: &Clock,
    tables: &SnapshotTables,
    reads_contents: bool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Fault>> {
    let process = Process::new(environment, clock, None)?;
    let numbered = (0..).map(ServerId).zip(&tables.checkpoints);
    let servers = numbered.map(|(id, checkpoint)| process.open_past_server(id, *checkpoint));
    let servers = servers.collect::<Result<_>>()?;
    let past = Past { process, servers };
    let reads = if reads_contents { Reads::All } else { Reads::Some(Default::default()) };
    run(&past, &*environment.storage, &reads, progress).map(|(faults, _)| faults)
}

/// Servers as they were.
struct Past {
    process: Arc<Process>,
    servers: Vec<Server>,
}

impl Peers for Past {
    fn ask(&self, server: ServerId, _: Sender<'_>, request: &Request<'_>) -> Result<Response> {
        let of_server = match request {
            Request::HomeOf(id) => return self.process.layout().home(*id).map(Response::HomeOf),
            Request::OfServer(request) => request,
            _ => return Err(Error::Unfit),
        };
        match of_server {
            // There is one: objects that no record of it names may be of others.
            ServerRequest::Snapshots => Ok(Response::Snapshots(Vec::new(), true)),
            request => {
                let server = self.servers.get(server.0 as usize);
                server.ok_or(Error::Unfit)?.answer_check(request)
            }
        }
    }

    fn server_count(&self) -> u32 {
        self.servers.len() as u32
    }

    fn policy(&self) -> SplitPolicy {
        self.process.policy()
    }
}
