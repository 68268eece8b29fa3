//! Servers as they were: a checkpoint of a table, opened to be read alone, behind the same code that
//! answers reads of now. Each server answers for its own table. It asks server 0 which snapshots there
//! are, and trusts the reply for [`TRUST`].
//!
//! A user needs permissions of then, which the server as it was checks, and those of now (`shown`).

use super::keeping::posix;
use super::{SnapshotTables, shown};
use crate::contents::collect_garbage;
use crate::error::{Error, Result};
use crate::message::{PastRequest, Request, Response, Sender, ServerRequest, ThenRequest};
use crate::peers::Peers;
use crate::process::Process;
use crate::server::Server;
use canopy_namespace::operation::{Access, Moment, Operation, Read};
use canopy_namespace::{ChunkId, ObjectId};
use canopy_partition::{ServerId, SplitPolicy};
use canopy_store::ErrorKind;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Time for which a reply of server 0 is trusted: a snapshot that was deleted can be read for so long.
const TRUST: Duration = Duration::from_secs(1);

/// Servers as they were that a process has open at most.
const OPEN_MAX: usize = 128;

/// Servers as they were, of a process.
#[derive(Default)]
pub(crate) struct PastServers {
    known: Mutex<Option<(Duration, Arc<Known>)>>,
    /// Checkpoints of snapshots. They never change.
    tables: Mutex<BTreeMap<u64, Arc<SnapshotTables>>>,
    /// The one used last is the last.
    open: Mutex<Vec<(ServerId, u64, Arc<Server>)>>,
}

/// Snapshots by the word of server 0.
pub(crate) struct Known {
    numbers: BTreeSet<u64>,
    /// Whether another one is being made.
    is_making: bool,
}

impl Process {
    /// Asks server 0 for all snapshots.
    fn ask_for_snapshots(&self) -> Result<Arc<Known>> {
        let request = Request::OfServer(ServerRequest::Snapshots);
        let Response::Snapshots(all, is_making) =
            self.ask(ServerId(0), Sender::SERVER, &request)?
        else {
            return Err(Error::Unfit);
        };
        let numbers = all.into_iter().map(|one| one.number).collect();
        let known = Arc::new(Known { numbers, is_making });
        let pasts = self.past_servers();
        *pasts.known.lock() = Some((self.steady_now(), known.clone()));
        pasts.tables.lock().retain(|number, _| known.numbers.contains(number));
        pasts.open.lock().retain(|(_, number, _)| known.numbers.contains(number));
        Ok(known)
    }

    /// Returns the checkpoints of a snapshot. `STALE` if there is none.
    fn tables_of_snapshot(&self, number: u64) -> Result<Arc<SnapshotTables>> {
        let pasts = self.past_servers();
        let known = pasts.known.lock().clone();
        let fresh = known.filter(|(at, _)| self.steady_now().saturating_sub(*at) < TRUST);
        let known = match fresh {
            // One that was made since has a greater number.
            Some((_, known)) if known.numbers.last().is_some_and(|last| *last >= number) => known,
            _ => self.ask_for_snapshots()?,
        };
        if !known.numbers.contains(&number) {
            return Err(posix(Errno::STALE));
        }
        if let Some(tables) = pasts.tables.lock().get(&number) {
            return Ok(tables.clone());
        }
        let request = Request::OfServer(ServerRequest::SnapshotTables(number));
        match self.ask(ServerId(0), Sender::SERVER, &request)? {
            Response::SnapshotTables(Some(tables)) => {
                let tables = Arc::new(tables);
                pasts.tables.lock().insert(number, tables.clone());
                Ok(tables)
            }
            Response::SnapshotTables(None) => Err(posix(Errno::STALE)),
            _ => Err(Error::Unfit),
        }
    }

    /// Returns a server that runs here as it was. `STALE` if there is no such snapshot.
    fn past_server(&self, id: ServerId, number: u64) -> Result<Arc<Server>> {
        // Only where the server of now runs, too: so few processes have it open.
        self.server(id)?;
        let tables = self.tables_of_snapshot(number)?;
        let checkpoint = tables.checkpoints.get(id.0 as usize).copied();
        let checkpoint = checkpoint.ok_or_else(|| posix(Errno::STALE))?;
        let is_it = |(server, of, _): &(ServerId, u64, Arc<Server>)| *server == id && *of == number;
        {
            let mut open = self.past_servers().open.lock();
            if let Some(at) = open.iter().position(is_it) {
                let found = open.remove(at);
                open.push(found.clone());
                return Ok(found.2);
            }
        }
        let opened = Arc::new(self.open_past_server(id, checkpoint).map_err(as_stale)?);
        let mut open = self.past_servers().open.lock();
        open.retain(|one| !is_it(one));
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        open.push((id, number, opened.clone()));
        Ok(opened)
    }

    /// Answers a request for a server as it was.
    pub(crate) fn answer_past(
        &self,
        id: ServerId,
        sender: Sender<'_>,
        number: u64,
        request: &PastRequest<'_>,
    ) -> Result<Response> {
        if matches!(request, PastRequest::Servers) {
            let count = self.tables_of_snapshot(number)?.checkpoints.len();
            return Ok(Response::Count(count as u64));
        }
        let past = self.past_server(id, number)?;
        let request = match request {
            PastRequest::Execute(operation) if is_read(operation) => {
                Request::Execute(operation.clone())
            }
            PastRequest::List(page) => Request::List(*page),
            PastRequest::DirectoryAtServer(file) => Request::DirectoryAtServer(*file),
            PastRequest::NameOf(file) => Request::NameOf(*file),
            PastRequest::Parents(file) => Request::Parents(*file),
            PastRequest::Search(part) => {
                let (others, client) = (OthersThen { process: self, number }, self.client());
                let found = past.search(&others, sender.caller, part, Some(&client.tree()));
                return found.map_err(as_stale);
            }
            PastRequest::Execute(_) | PastRequest::Servers => return Err(Error::Unfit),
        };
        let is_searched = match sender.caller.user().filter(|who| !who.is_root()) {
            Some(who) => shown::check(&self.client().tree(), who, &request)?,
            None => true,
        };
        let others = OthersThen { process: self, number };
        let answered = past.dispatch(&others, sender, &request).map_err(as_stale)?;
        Ok(match answered.response {
            Response::Listed(entries, end) if !is_searched => {
                Response::Listed(shown::without_attributes(entries), end)
            }
            response => response,
        })
    }

    /// Answers a server that searches a snapshot. Waits for server 0 at most, which waits for nobody to
    /// answer that.
    pub(crate) fn answer_then(
        &self,
        id: ServerId,
        number: u64,
        request: ThenRequest,
    ) -> Result<Response> {
        let past = self.past_server(id, number)?;
        let answered = match request {
            ThenRequest::Ancestor(file) => past.ancestor(file),
            ThenRequest::DirectoryAtServer(file) => past.part(file),
        };
        answered.map_err(as_stale)
    }

    /// Removes the objects of chunks that the tables of the servers here need no more. Returns how
    /// many.
    ///
    /// # Errors
    ///
    /// Fails as storage and the tables do.
    pub fn collect(&self) -> Result<u64> {
        let mut removed = 0;
        for id in self.running() {
            match self.collect_at(id) {
                Err(Error::NotRunning(server)) if server == id => {}
                collected => removed += collected?,
            }
        }
        Ok(removed)
    }

    /// Like `collect`, for one server.
    pub(crate) fn collect_at(&self, id: ServerId) -> Result<u64> {
        let server = self.server(id)?;
        // Server 0 is asked once, after the notes are in the table.
        let known = OnceCell::new();
        let is_needed = |chunk, object| {
            let known = match known.get() {
                Some(known) => known,
                None => {
                    let asked = self.ask_for_snapshots()?;
                    known.get_or_init(|| asked)
                }
            };
            Ok(self.is_needed_by_snapshots(id, known, chunk, object))
        };
        let (environment, cache) = (self.environment(), self.cache());
        let removed = collect_garbage(&server.tablet, environment, cache, &is_needed)?;
        self.metrics.removed_objects.add(removed);
        Ok(removed)
    }

    /// Returns whether a snapshot needs an object that a table of this process no longer names. The
    /// table's own checkpoints do not name it.
    fn is_needed_by_snapshots(
        &self,
        server: ServerId,
        known: &Known,
        chunk: ChunkId,
        object: ObjectId,
    ) -> bool {
        if known.is_making {
            return true;
        }
        known.numbers.iter().any(|number| {
            let has = |past: Arc<Server>| Ok(past.tablet.has_file(chunk.file)?);
            match self.past_server(server, *number).and_then(has) {
                // Its own checkpoint has the file, without the object.
                Ok(true) => false,
                // If that cannot be known now, it is asked again later.
                _ => self
                    .client()
                    .past(*number)
                    .and_then(|past| past.needs_object(chunk, object))
                    .unwrap_or(true),
            }
        })
    }
}

/// The other servers, as a server as it was asks them.
struct OthersThen<'a> {
    process: &'a Process,
    number: u64,
}

impl Peers for OthersThen<'_> {
    fn ask(&self, server: ServerId, sender: Sender<'_>, request: &Request<'_>) -> Result<Response> {
        let then = match request {
            Request::OfServer(ServerRequest::Ancestor(id)) => ThenRequest::Ancestor(*id),
            Request::OfServer(ServerRequest::DirectoryAtServer(id)) => {
                ThenRequest::DirectoryAtServer(*id)
            }
            _ => return Err(Error::Unfit),
        };
        let then = ServerRequest::Then(self.number, then);
        self.process.ask(server, sender, &Request::OfServer(then))
    }

    fn server_count(&self) -> u32 {
        self.process.server_count()
    }

    fn policy(&self) -> SplitPolicy {
        self.process.policy()
    }
}

/// Returns whether an operation reads one tree, or asks about permissions in it.
fn is_read(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Read(Moment::Now, read) => !matches!(read, Read::List(_)),
        Operation::Access(Access::MayRead(Moment::Now, ..) | Access::NeedsObject(..)) => true,
        Operation::Explain(..) => true,
        _ => false,
    }
}

/// Returns the error of a snapshot that was deleted while it was read.
fn as_stale(error: Error) -> Error {
    match &error {
        Error::Namespace(canopy_namespace::Error::Store(store))
            if store.kind() == ErrorKind::NotFound =>
        {
            posix(Errno::STALE)
        }
        _ => error,
    }
}
