//! Requests about files of which only the ids are known: finding the server that has one.

use super::Client;
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender};
use crate::refusals::is_undecided;
use crate::tries::undecided;
use canopy_namespace::FileId;
use canopy_namespace::operation::Caller;
use canopy_partition::ServerId;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time for which a request is sent again that has to fail soon.
const SOON: Duration = Duration::from_secs(1);

/// Pause between two tries of such a request.
const SOON_PAUSE: Duration = Duration::from_millis(250);

impl Client {
    pub(crate) fn ask_for_id(
        &self,
        caller: Caller<'_>,
        id: FileId,
        request: &Request<'_>,
    ) -> Result<Response> {
        Ok(self.ask_for_id_with_server(caller, id, request)?.0)
    }

    /// Asks the server where a file was last seen, that of its id's block, and all others. Returns
    /// which one it was.
    pub(crate) fn ask_for_id_with_server(
        &self,
        caller: Caller<'_>,
        id: FileId,
        request: &Request<'_>,
    ) -> Result<(Response, ServerId)> {
        let outcome = self.find_file(caller, id, request);
        self.note_outcome(request, &outcome);
        outcome
    }

    fn find_file(
        &self,
        caller: Caller<'_>,
        id: FileId,
        request: &Request<'_>,
    ) -> Result<(Response, ServerId)> {
        let likely = self.likely_servers(id)?;
        let numbered = self.number(caller, request);
        let ask = |server| {
            let life = self.life_of_locks(server, id, request)?;
            self.ask(server, Sender { life, ..numbered.sender }, request)
        };
        for server in likely {
            match ask(server) {
                Err(Error::WrongServer { .. }) => {}
                reply => return Ok((reply?, server)),
            }
        }
        self.searches.fetch_add(1, Ordering::Relaxed);
        // The file may move while servers are asked. If nothing has changed between two rounds, no
        // server has it.
        let (mut before, mut tries) = (None, self.tries());
        loop {
            let (mut changes, mut server) = (Vec::new(), ServerId(0));
            while server.0 < self.server_count() {
                match ask(server) {
                    Err(Error::WrongServer { changes: of_server, servers, .. }) => {
                        // The file may be on one that was added: who gave it knows that one.
                        self.servers.fetch_max(servers, Ordering::Relaxed);
                        changes.push(of_server);
                    }
                    reply => return Ok((reply?, server)),
                }
                server.0 += 1;
            }
            if before.as_ref() == Some(&changes) {
                return Err(canopy_namespace::Error::from(Errno::NOENT).into());
            }
            let undecided_at = changes.iter().position(|changes| is_undecided(*changes));
            if let Some(at) = undecided_at
                && !tries.wait()
            {
                return Err(undecided(ServerId(at as u32)));
            }
            before = Some(changes);
        }
    }

    /// Like `ask_for_id`, for a request that changes nothing. Fails soon if a likely server does not
    /// answer. If none of these has the file, it asks all.
    pub(crate) fn ask_for_id_briefly(
        &self,
        caller: Caller<'_>,
        id: FileId,
        request: &Request<'_>,
    ) -> Result<Response> {
        let since = self.pace.now();
        loop {
            let mut failed = None;
            for server in self.likely_servers(id)? {
                match self.ask_briefly(caller, server, request) {
                    Err(Error::WrongServer { .. }) => {}
                    Err(error) if error.is_passing() => failed = Some(error),
                    reply => return reply,
                }
            }
            match failed {
                // It is on a server that others know.
                None => return self.ask_for_id(caller, id, request),
                Some(error) if self.pace.now().saturating_sub(since) >= SOON => return Err(error),
                Some(_) => self.pace.pause(SOON_PAUSE),
            }
        }
    }

    /// Returns the server where a file was last seen, and that of its id's block.
    fn likely_servers(&self, id: FileId) -> Result<impl Iterator<Item = ServerId>> {
        let home = self.home(id)?;
        let name = self.names.lock().get(&id).copied();
        let seen = match name {
            Some((directory, hash)) => {
                let home = self.home(directory)?;
                Some(self.find(home, directory, hash).1)
            }
            None => None,
        };
        let home = Some(home).filter(|home| seen != Some(*home));
        Ok(seen.into_iter().chain(home))
    }
}
