//! Requests about the whole namespace, as one server carries them out on its table.

use crate::error::{Error, Result};
use crate::server::Server;
use canopy_namespace::Reply;
use canopy_namespace::operation::{Administration, Caller};
use rustix::io::Errno;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Time after which a build of indexes that was interrupted begins again.
const PAUSE: Duration = Duration::from_secs(1);

impl Server {
    /// Carries out what concerns the namespace as a whole on this server's table. Only somebody who is
    /// trusted may ask for it, and root.
    pub(crate) fn administer(
        &self,
        caller: Caller<'_>,
        administration: &Administration<'_>,
    ) -> Result<Reply> {
        if caller.user().is_some_and(|who| !who.is_root()) {
            return Err(canopy_namespace::Error::from(Errno::PERM).into());
        }
        match administration {
            Administration::Flush => {
                self.tablet.flush_pending()?;
                self.tablet.table().flush()?;
                Ok(Reply::Done)
            }
            Administration::SetIndexes(names) => {
                self.tablet.set_indexes(names)?;
                Ok(Reply::Done)
            }
            _ => Err(Error::NotYet("a request about the namespace".into())),
        }
    }
}

/// Builds the indexes of a server's table that are not complete, in a thread of its own, until they
/// are or the server is stopped.
pub(crate) fn build_indexes(server: &Arc<Server>) -> Result<()> {
    if server.tablet.settings().building.is_empty() {
        return Ok(());
    }
    let weak = Arc::downgrade(server);
    let build = move || {
        // The process holds the server as long as it runs it.
        while let Some(server) = weak.upgrade() {
            let is_running = || Arc::strong_count(&server) > 1;
            if let Ok(true) = server.tablet.build_indexes(is_running) {
                return;
            }
            let is_stopped = !is_running();
            drop(server);
            if is_stopped {
                return;
            }
            thread::sleep(PAUSE);
        }
    };
    let started = thread::Builder::new().name("cluster-indexes".into()).spawn(build);
    let io = |source| canopy_namespace::Error::Io { what: "start a thread".into(), source };
    Ok(started.map(drop).map_err(io)?)
}
