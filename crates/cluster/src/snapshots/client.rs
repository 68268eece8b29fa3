//! Snapshots for clients. A client of a snapshot is a client as any other, whose requests go to servers
//! as they were: it finds partitions and files as they were then.

use super::keeping::posix;
use super::shown::Tree;
use super::{CutMade, CutRequest, SnapshotEntry, SnapshotTables};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::message::{PastRequest, Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use canopy_namespace::operation::{Access, Caller, Moment, Operation, SnapshotsRequest};
use canopy_namespace::{ChunkId, ObjectId, Reply};
use canopy_partition::{ServerId, SplitPolicy};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Snapshots that a client remembers.
const REMEMBERED: usize = 32;

/// Clients of snapshots, of a client of now.
#[derive(Default)]
pub(crate) struct SnapshotClients(Mutex<BTreeMap<u64, Arc<Client>>>);

/// Servers as a snapshot has them.
struct PastPeers {
    peers: Arc<dyn Peers>,
    number: u64,
    servers: u32,
}

impl Peers for PastPeers {
    fn ask(&self, server: ServerId, sender: Sender<'_>, request: &Request<'_>) -> Result<Response> {
        let past = match request {
            // The server of a block never changes.
            Request::HomeOf(_) => return self.peers.ask(server, sender, request),
            Request::Execute(operation) => PastRequest::Execute(operation.clone()),
            Request::List(page) => PastRequest::List(*page),
            Request::DirectoryAtServer(id) => PastRequest::DirectoryAtServer(*id),
            Request::NameOf(id) => PastRequest::NameOf(*id),
            Request::Parents(id) => PastRequest::Parents(*id),
            Request::Search(part) => PastRequest::Search(part.clone()),
            _ => return Err(Error::Unfit),
        };
        self.peers.ask(server, sender, &Request::Past(self.number, past))
    }

    fn server_count(&self) -> u32 {
        self.servers
    }

    fn policy(&self) -> SplitPolicy {
        self.peers.policy()
    }
}

impl Client {
    /// Executes an operation that concerns snapshots; none if it concerns the namespace of now alone.
    pub(crate) fn of_snapshots(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
    ) -> Option<Result<Reply>> {
        let at_zero = |operation| self.execute_at(caller, ServerId(0), operation);
        match operation {
            Operation::Read(Moment::Snapshot(number), read) => {
                let read = Operation::Read(Moment::Now, read.clone());
                Some(
                    self.past_for(caller, *number).and_then(|past| past.execute_for(caller, &read)),
                )
            }
            Operation::Access(Access::MayRead(Moment::Snapshot(number), id, who)) => {
                let access = Access::MayRead(Moment::Now, *id, who.clone());
                let read = Operation::Access(access);
                Some(
                    self.past_for(caller, *number).and_then(|past| past.execute_for(caller, &read)),
                )
            }
            Operation::Access(Access::IsShown(_, id, ..)) => {
                Some(self.home(*id).and_then(|server| self.execute_at(caller, server, operation)))
            }
            Operation::Access(Access::NeedsObject(chunk, object)) if !self.is_past() => {
                Some(self.needs_object_ever(caller, operation, *chunk, *object))
            }
            // A mount enters the root of a snapshot for nobody.
            Operation::Snapshots(SnapshotsRequest::Enter(name, directory, who)) => {
                let who = match (caller, self.own()) {
                    (Caller::Trusted, Some(own)) => Cow::Borrowed(own),
                    _ => who.clone(),
                };
                let enter = SnapshotsRequest::Enter(name, *directory, who);
                Some(at_zero(&Operation::Snapshots(enter)))
            }
            Operation::Snapshots(_) => Some(at_zero(operation)),
            _ => None,
        }
    }

    /// Returns a client of a snapshot, for somebody who is trusted. `STALE` if there is none.
    pub(crate) fn past(&self, number: u64) -> Result<Arc<Client>> {
        self.past_for(Caller::Trusted, number)
    }

    pub(crate) fn past_for(&self, caller: Caller<'_>, number: u64) -> Result<Arc<Client>> {
        if let Some(past) = self.pasts.0.lock().get(&number) {
            return Ok(past.clone());
        }
        let request = Request::Past(number, PastRequest::Servers);
        let Response::Count(servers) = self.ask(ServerId(0), self.reader(caller), &request)? else {
            return Err(Error::Unfit);
        };
        let servers = u32::try_from(servers).map_err(|_| Error::Unfit)?;
        let past = Arc::new(self.as_past(|peers| Arc::new(PastPeers { peers, number, servers })));
        let mut pasts = self.pasts.0.lock();
        if pasts.len() >= REMEMBERED {
            pasts.clear();
        }
        pasts.insert(number, past.clone());
        Ok(past)
    }

    /// Returns all files of now, or of the snapshot that this is a client of.
    pub(crate) fn tree(&self) -> Tree<'_> {
        Tree(self)
    }

    /// Returns whether records name an object, or a note is about it, in the tree of this client.
    pub(crate) fn needs_object(&self, chunk: ChunkId, object: ObjectId) -> Result<bool> {
        let operation = Operation::Access(Access::NeedsObject(chunk, object));
        match self.execute_on_file(Caller::Trusted, chunk.file, &operation) {
            Ok(Reply::Truth(is_needed)) => Ok(is_needed),
            Ok(_) => Err(Error::Unfit),
            Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks whether records of now or of a snapshot need an object: first those of now.
    fn needs_object_ever(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
        chunk: ChunkId,
        object: ObjectId,
    ) -> Result<Reply> {
        let now = self.execute_on_file(caller, chunk.file, operation);
        match &now {
            Ok(Reply::Truth(false)) => {}
            Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => {}
            _ => return now,
        }
        let (all, is_making) = self.snapshots()?;
        let is_needed = |one: &SnapshotEntry| match self.past(one.number) {
            Ok(past) => past.needs_object(chunk, object),
            Err(Error::Namespace(error)) if error.errno() == Errno::STALE => Ok(false),
            Err(error) => Err(error),
        };
        if is_making {
            return Ok(Reply::Truth(true));
        }
        for one in &all {
            if is_needed(one)? {
                return Ok(Reply::Truth(true));
            }
        }
        now
    }

    /// Returns the checkpoints of a snapshot or a cut. Only somebody who is trusted may ask.
    ///
    /// # Errors
    ///
    /// Fails with `STALE` if there is none, and as server 0 does.
    pub fn snapshot_tables(&self, number: u64) -> Result<SnapshotTables> {
        let request = Request::OfServer(ServerRequest::SnapshotTables(number));
        match self.ask(ServerId(0), self.reader(Caller::Trusted), &request)? {
            Response::SnapshotTables(tables) => tables.ok_or_else(|| posix(Errno::STALE)),
            _ => Err(Error::Unfit),
        }
    }

    /// Returns all snapshots and cuts, and whether another one is being made. Only somebody who is
    /// trusted may ask.
    ///
    /// # Errors
    ///
    /// Fails as server 0 does.
    pub fn snapshots(&self) -> Result<(Vec<SnapshotEntry>, bool)> {
        let request = Request::OfServer(ServerRequest::Snapshots);
        match self.ask(ServerId(0), self.reader(Caller::Trusted), &request)? {
            Response::Snapshots(all, is_making) => Ok((all, is_making)),
            _ => Err(Error::Unfit),
        }
    }

    /// Makes a cut: checkpoints of the tables of all servers at one moment. It is kept for `kept`, and
    /// longer if it is renewed. Only somebody who is trusted may do so.
    ///
    /// # Errors
    ///
    /// Fails if the servers do not come to rest, and as they do.
    pub fn make_cut(&self, kept: Duration) -> Result<CutMade> {
        match self.on_cut(CutRequest::Make(in_ms(kept)))? {
            Response::CutMade(made) => Ok(made),
            _ => Err(Error::Unfit),
        }
    }

    /// Keeps a cut for `kept` from now.
    ///
    /// # Errors
    ///
    /// Fails with `STALE` if it has gone, and as server 0 does.
    pub fn renew_cut(&self, number: u64, kept: Duration) -> Result<()> {
        self.on_cut(CutRequest::Renew(number, in_ms(kept)))?.done().map(drop)
    }

    /// Lets a cut go. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// Fails as server 0 does.
    pub fn release_cut(&self, number: u64) -> Result<bool> {
        self.on_cut(CutRequest::Release(number))?.done()
    }

    fn on_cut(&self, request: CutRequest) -> Result<Response> {
        let sender = self.reader(Caller::Trusted);
        self.ask(ServerId(0), sender, &Request::Cut(request))
    }
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
