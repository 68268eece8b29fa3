//! A client: it finds the servers of operations, and puts together answers of several.

mod by_id;

use crate::contents::Operations;
use crate::directories::Directories;
use crate::error::{Error, Result};
use crate::held::{ClientHolds, IsOpen};
use crate::holds::makes_held;
use crate::layout::KnownDirectory;
use crate::locks::ClientLocks;
use crate::message::{Partitions, Request, Response, Sender, SessionId};
use crate::pace::{Pace, system_pace};
use crate::peers::{Asked, Peers};
use crate::refusals::is_undecided;
use crate::slots::{Slot, Slots};
use crate::snapshots::SnapshotClients;
use crate::tries::{Tries, undecided};
use canopy_model::Credentials;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::{
    Access, Administration, Caller, Change, Entries, FileLocks, Moment, Operation, Page, Query,
    Read, SnapshotsRequest, Target,
};
use canopy_namespace::{
    Block, Entry, EntryName, FileId, Found, Inode, ROOT, Reply, cookie_before, hash_after,
};
use canopy_partition::{PartitionId, ServerId};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Directories and files of which a client remembers where they are.
const REMEMBERED: usize = 1 << 16;

/// Entries of a listing for which there is room at first.
const LISTED: u32 = 1 << 10;

/// A name leads to a file that is gone at most this often, one after the other.
const GONE_MAX: u32 = 1 << 10;

/// Time for which a request is sent again if nobody answers it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The sender of a request, with the slot of its number. It is in use until the request has ended.
pub(crate) struct Numbered<'a> {
    pub(crate) sender: Sender<'a>,
    _slot: Option<Slot<'a>>,
}

/// A client of the servers of a namespace. Its knowledge of partitions may be stale: servers correct
/// it. Calls come from any number of threads.
pub struct Client {
    pub(crate) peers: Arc<dyn Peers>,
    /// The user of requests that are of nobody, if servers do not trust this client.
    own: Option<Credentials>,
    session: SessionId,
    pub(crate) slots: Slots,
    pub(crate) held: ClientHolds,
    pub(crate) locks: ClientLocks,
    pub(crate) directories: Directories,
    /// Time for which a request is sent again if nobody answers it.
    patience: Duration,
    pace: Arc<dyn Pace>,
    pub(crate) maps: Mutex<HashMap<FileId, KnownDirectory>>,
    /// Servers whose tables gave out blocks of ids.
    homes: Mutex<HashMap<Block, ServerId>>,
    /// Names by which files were last seen: directory and hash.
    names: Mutex<HashMap<FileId, (FileId, u64)>>,
    addressing_errors: AtomicU64,
    searches: AtomicU64,
    /// The largest number of servers that any server has reported.
    servers: AtomicU32,
    /// Clients of snapshots.
    pub(crate) pasts: SnapshotClients,
    /// Whether this is a client of a snapshot.
    is_past: bool,
}

impl Client {
    /// Returns a client that knows nothing of directories so far. No other client that changes
    /// something may have the same session; those of snapshots do.
    pub fn new(peers: Arc<dyn Peers>, session: SessionId) -> Self {
        Client {
            session,
            slots: Slots::new(),
            held: ClientHolds::default(),
            locks: ClientLocks::default(),
            directories: Directories::default(),
            patience: PATIENCE,
            pace: system_pace(),
            peers,
            own: None,
            maps: Mutex::default(),
            homes: Mutex::default(),
            names: Mutex::default(),
            addressing_errors: AtomicU64::new(0),
            searches: AtomicU64::new(0),
            servers: AtomicU32::new(0),
            pasts: SnapshotClients::default(),
            is_past: false,
        }
    }

    /// Returns a client of a snapshot, whose servers `as_past` makes of those of now.
    pub(crate) fn as_past(&self, as_past: impl FnOnce(Arc<dyn Peers>) -> Arc<dyn Peers>) -> Self {
        let past = Client::new(as_past(self.peers.clone()), self.session);
        let (own, pace) = (self.own.clone(), self.pace.clone());
        Client { patience: self.patience, own, pace, is_past: true, ..past }
    }

    /// Returns whether this is a client of a snapshot.
    pub(crate) fn is_past(&self) -> bool {
        self.is_past
    }

    /// Returns the client with another time for which a request is sent again if nobody answers it.
    /// It has to be much shorter than servers keep replies ([`SessionSettings::kept`]).
    ///
    /// [`SessionSettings::kept`]: crate::SessionSettings::kept
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Client { patience, ..self }
    }

    /// Returns the client with another time and another way to wait.
    #[must_use]
    pub fn with_pace(self, pace: Arc<dyn Pace>) -> Self {
        Client { pace, ..self }
    }

    /// Returns the client with a user of its own, for one that servers do not trust: requests of nobody
    /// are that user's.
    #[must_use]
    pub fn speaking_for(self, own: Option<Credentials>) -> Self {
        Client { own, ..self }
    }

    /// Ends the client's session at all servers. A server that does not answer ends it later.
    pub fn end(&self) {
        let sender = self.reader(Caller::Trusted);
        let request = &Request::EndSession;
        let asked = self.servers().map(|server| Asked { server, sender, request });
        // Silent sessions end by themselves.
        let _ = self.peers.ask_all(&Vec::from_iter(asked));
    }

    /// Returns the number of requests that a server could not execute, since it does not hold the
    /// name.
    pub fn addressing_errors(&self) -> u64 {
        self.addressing_errors.load(Ordering::Relaxed)
    }

    /// Returns the number of operations on ids that none of the likely servers answered, so that all
    /// were asked.
    pub fn searches(&self) -> u64 {
        self.searches.load(Ordering::Relaxed)
    }

    /// Executes an operation for a caller, on the server where it belongs.
    ///
    /// # Errors
    ///
    /// Fails as the operation does, and with `NotYet` if it is not possible yet.
    pub fn execute_for(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply> {
        let mut until = None;
        loop {
            match self.execute_once(caller, operation) {
                // Removed files that this client still holds take room.
                Err(Error::Namespace(error))
                    if [Errno::NOSPC, Errno::DQUOT].contains(&error.errno())
                        && self.frees_removed(caller, &mut until) => {}
                done => return done,
            }
        }
    }

    fn execute_once(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply> {
        if let Some(reply) = self.of_snapshots(caller, operation) {
            return reply;
        }
        match operation {
            Operation::Hold(hold) => self.hold(caller, hold),
            Operation::Change(change) if makes_held(operation) => {
                self.make_held(caller, operation, change)
            }
            Operation::Read(Moment::Now, Read::List(page)) => self.list(caller, *page),
            // Callers who are trusted need no check, and only directories are known so.
            Operation::Read(Moment::Now, Read::Inode(id))
                if caller.user().is_none() && self.directories.has(*id) =>
            {
                self.directory(caller, *id).map(Reply::Inode)
            }
            Operation::Access(Access::Path(id)) => self.path(caller, *id).map(Reply::Bytes),
            // The server of the inode decides, and not that of the name.
            Operation::Change(Change::Link { id, .. }) => {
                self.execute_on_file(caller, *id, operation)
            }
            Operation::Quotas(quotas) => self.quotas(caller, quotas),
            Operation::Search(query, count_max) => {
                self.found(caller, query, *count_max).map(Reply::Found)
            }
            Operation::Explain(query, counts) => {
                self.explain(caller, query, *counts).map(Reply::Plan)
            }
            Operation::Administration(
                one @ (Administration::Flush | Administration::SetIndexes(_)),
            ) => self.administer(caller, one),
            Operation::Administration(Administration::Settings) => self.settings(caller),
            Operation::Change(Change::Unlink(name)) => {
                let reply = self.execute_on_name(caller, name.directory, name.hash(), operation)?;
                if let Reply::File(id) = &reply {
                    self.held.note_removal(*id);
                }
                Ok(reply)
            }
            _ => match operation.target() {
                Target::Name { directory, hash } => {
                    self.execute_on_name(caller, directory, hash, operation)
                }
                Target::File(id) => self.execute_on_file(caller, id, operation),
                Target::Anywhere => Err(Error::NotYet("a request about the namespace".into())),
            },
        }
    }

    /// Returns the settings of the namespace, which server 0 has.
    fn settings(&self, caller: Caller<'_>) -> Result<Reply> {
        let request = Request::Execute(Operation::Administration(Administration::Settings));
        match self.ask(ServerId(0), self.reader(caller), &request)? {
            Response::Reply(reply) => Ok(reply),
            _ => Err(Error::Unfit),
        }
    }

    /// Executes an operation on a name.
    fn execute_on_name(
        &self,
        caller: Caller<'_>,
        directory: FileId,
        hash: u64,
        operation: &Operation<'_>,
    ) -> Result<Reply> {
        let request = Request::Execute(operation.clone());
        let first = self.at(caller, directory, hash, &request)?;
        self.complete_named(caller, (directory, hash), operation, first)
    }

    /// Completes the reply of the server of a name with what lies elsewhere.
    pub(crate) fn complete_named(
        &self,
        caller: Caller<'_>,
        (directory, hash): (FileId, u64),
        operation: &Operation<'_>,
        first: Response,
    ) -> Result<Reply> {
        let (mut first, mut gone) = (Some(first), 0);
        let inode = loop {
            let response = match first.take() {
                Some(response) => response,
                None => {
                    let request = Request::Execute(operation.clone());
                    self.at(caller, directory, hash, &request)?
                }
            };
            let Response::Reply(reply) = response else { return Err(Error::Unfit) };
            let Reply::Inode(inode) = reply else { return Ok(reply) };
            if !inode.has(flag::LINKED) {
                break inode;
            }
            if let Some(inode) = self.linked(caller, inode.id)? {
                return Ok(Reply::Inode(inode));
            }
            // The file has lost this name since it was looked up.
            gone += 1;
            if gone > GONE_MAX {
                return Err(canopy_namespace::Error::from(Errno::IO).into());
            }
        };
        if !inode.is_directory() {
            self.remember(inode.id, directory, hash);
        }
        let is_new = matches!(operation, Operation::Change(Change::Create { .. }));
        let inode = if is_new { inode } else { self.whole(caller, inode)? };
        Ok(Reply::Inode(inode))
    }

    /// Returns the inode of a file with several names, from its home; none if it is gone.
    pub(crate) fn linked(&self, caller: Caller<'_>, id: FileId) -> Result<Option<Inode>> {
        let request = Request::Execute(Operation::Read(Moment::Now, Read::Inode(id)));
        match self.ask(self.home(id)?, self.reader(caller), &request) {
            Ok(Response::Reply(Reply::Inode(inode))) => Ok(Some(inode)),
            Err(Error::WrongServer { .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Err(Error::Unfit),
        }
    }

    pub(crate) fn remember(&self, id: FileId, directory: FileId, hash: u64) {
        let mut names = self.names.lock();
        if names.len() >= REMEMBERED {
            names.clear();
        }
        names.insert(id, (directory, hash));
    }

    fn at(
        &self,
        caller: Caller<'_>,
        directory: FileId,
        hash: u64,
        request: &Request<'_>,
    ) -> Result<Response> {
        Ok(self.at_server(caller, directory, hash, request)?.0)
    }

    /// Asks the server of a name, and those that its replies lead to. Returns which one it was.
    pub(crate) fn at_server(
        &self,
        caller: Caller<'_>,
        directory: FileId,
        hash: u64,
        request: &Request<'_>,
    ) -> Result<(Response, ServerId)> {
        let numbered = self.number(caller, request);
        self.at_server_by(numbered.sender, directory, hash, request)
    }

    /// Like `at_server`, with a number that the request has already.
    pub(crate) fn at_server_by(
        &self,
        sender: Sender<'_>,
        directory: FileId,
        hash: u64,
        request: &Request<'_>,
    ) -> Result<(Response, ServerId)> {
        let outcome = self.find_server(sender, directory, hash, request);
        self.note_outcome(request, &outcome);
        outcome
    }

    fn find_server(
        &self,
        sender: Sender<'_>,
        directory: FileId,
        hash: u64,
        request: &Request<'_>,
    ) -> Result<(Response, ServerId)> {
        let home = self.home(directory)?;
        let (mut refusals, mut tries) = (BTreeMap::new(), self.tries());
        loop {
            let (partition, server) = self.find(home, directory, hash);
            let (partitions, changes) = match self.ask(server, sender, request) {
                Err(Error::WrongServer { partitions, changes, .. }) => (partitions, changes),
                Err(error) => return Err(error.about(partition, directory)),
                Ok(response) => return Ok((response, server)),
            };
            let mut maps = self.maps.lock();
            let known = self.learn(&mut maps, directory, partitions);
            // A server that refuses twice, and in whose partitions nothing has changed, does not
            // have the directory.
            let is_same = known.find(home, hash) == (partition, server);
            drop(maps);
            self.directories.forget_moved(directory);
            if is_same && refusals.insert(server, changes) == Some(changes) {
                return Err(canopy_namespace::Error::from(Errno::NOENT).into());
            }
            if is_same && is_undecided(changes) && !tries.wait() {
                return Err(undecided(server).about(partition, directory));
            }
        }
    }

    /// Learns from a server that does not hold a name.
    pub(crate) fn learn<'a>(
        &self,
        maps: &'a mut HashMap<FileId, KnownDirectory>,
        directory: FileId,
        partitions: Partitions,
    ) -> &'a KnownDirectory {
        self.addressing_errors.fetch_add(1, Ordering::Relaxed);
        if maps.len() >= REMEMBERED {
            maps.clear();
        }
        let known = maps.entry(directory).or_default();
        known.learn(partitions);
        known
    }

    pub(crate) fn find(
        &self,
        home: ServerId,
        directory: FileId,
        hash: u64,
    ) -> (PartitionId, ServerId) {
        let maps = self.maps.lock();
        maps.get(&directory).map_or((PartitionId::ZERO, home), |known| known.find(home, hash))
    }

    /// Executes an operation on a file or a directory of which only the id is known.
    pub(crate) fn execute_on_file(
        &self,
        caller: Caller<'_>,
        id: FileId,
        operation: &Operation<'_>,
    ) -> Result<Reply> {
        let request = Request::Execute(operation.clone());
        let Response::Reply(reply) = self.ask_under_locks(caller, id, &request)? else {
            return Err(Error::Unfit);
        };
        match reply {
            Reply::Inode(inode) => self.whole(caller, inode).map(Reply::Inode),
            reply => Ok(reply),
        }
    }

    pub(crate) fn tries(&self) -> Tries<'_> {
        Tries::new(&*self.pace, self.patience)
    }

    /// Asks a server, and again while nobody answers. A change keeps its number, so it is executed
    /// once.
    pub(crate) fn ask(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response> {
        let mut tries = self.tries();
        loop {
            match self.peers.ask(server, sender, request) {
                Err(error) if error.is_passing() => {
                    if !tries.wait() {
                        return Err(error);
                    }
                }
                reply => {
                    if tries.has_waited() && self.holds_at(server) {
                        // It may be a successor, which waits for what is held.
                        let _ = self.renew_at(sender.caller, server);
                    }
                    return reply;
                }
            }
        }
    }

    /// Asks a server, and again while nobody answers.
    pub(crate) fn ask_patiently(
        &self,
        caller: Caller<'_>,
        server: ServerId,
        request: &Request<'_>,
    ) -> Result<Response> {
        self.ask(server, self.reader(caller), request)
    }

    /// Returns the user of requests that are of nobody; none if servers trust this client.
    pub(crate) fn own(&self) -> Option<&Credentials> {
        self.own.as_ref()
    }

    /// Returns whether servers check what this client asks.
    pub(crate) fn is_checked(&self) -> bool {
        self.own.is_some()
    }

    /// Has one server execute an operation.
    pub(crate) fn execute_at(
        &self,
        caller: Caller<'_>,
        server: ServerId,
        operation: &Operation<'_>,
    ) -> Result<Reply> {
        let request = Request::Execute(operation.clone());
        let numbered = self.number(caller, &request);
        match self.ask(server, numbered.sender, &request)? {
            Response::Reply(reply) => Ok(reply),
            _ => Err(Error::Unfit),
        }
    }

    /// Returns whether threads may be started.
    pub(crate) fn has_threads(&self) -> bool {
        self.pace.has_threads()
    }

    /// Asks a server once.
    pub(crate) fn ask_once(
        &self,
        caller: Caller<'_>,
        server: ServerId,
        request: &Request<'_>,
    ) -> Result<Response> {
        self.peers.ask(server, self.reader(caller), request)
    }

    /// Asks a server once, and gives up soon if it does not answer.
    pub(crate) fn ask_briefly(
        &self,
        caller: Caller<'_>,
        server: ServerId,
        request: &Request<'_>,
    ) -> Result<Response> {
        self.peers.ask_briefly(server, self.reader(caller), request)
    }

    /// Returns the sender of a request. One that changes something gets a number.
    fn number<'a>(&'a self, caller: Caller<'a>, request: &Request<'_>) -> Numbered<'a> {
        let is_change = matches!(
            request,
            Request::Execute(
                Operation::Change(_)
                    | Operation::Snapshots(
                        SnapshotsRequest::Create(_) | SnapshotsRequest::Delete(_)
                    )
            )
        );
        let slot = is_change.then(|| self.slots.take());
        let number = slot.as_ref().map_or(0, |slot| slot.number);
        Numbered { sender: Sender { number, ..self.reader(caller) }, _slot: slot }
    }

    /// Like `number`; none if all numbers of the session are in use.
    pub(crate) fn try_number<'a>(
        &'a self,
        caller: Caller<'a>,
        request: &Request<'_>,
    ) -> Option<Numbered<'a>> {
        let is_change = matches!(request, Request::Execute(Operation::Change(_)));
        let slot = if is_change { Some(self.slots.try_take()?) } else { None };
        let number = slot.as_ref().map_or(0, |slot| slot.number);
        Some(Numbered { sender: Sender { number, ..self.reader(caller) }, _slot: slot })
    }

    pub(crate) fn reader<'a>(&'a self, caller: Caller<'a>) -> Sender<'a> {
        let caller = match (caller, &self.own) {
            (Caller::Trusted, Some(own)) => Caller::User(own),
            _ => caller,
        };
        Sender { caller, session: self.session, number: 0, life: None }
    }

    /// Returns the time since some moment.
    pub(crate) fn now(&self) -> Duration {
        self.pace.now()
    }

    /// Lets others run for a time, or less.
    pub(crate) fn pause(&self, longest: Duration) {
        self.pace.pause(longest);
    }

    /// Returns the number of logical servers that are known.
    pub(crate) fn server_count(&self) -> u32 {
        match self.is_past {
            true => self.peers.server_count(),
            false => self.peers.server_count().max(self.servers.load(Ordering::Relaxed)),
        }
    }

    /// Returns the number of all logical servers, of which some may have been added just now.
    pub(crate) fn all_servers(&self) -> Result<u32> {
        if !self.is_past {
            let sender = self.reader(Caller::Trusted);
            let Response::Servers(all) = self.ask(ServerId(0), sender, &Request::Servers)? else {
                return Err(Error::Unfit);
            };
            self.servers.fetch_max(all, Ordering::Relaxed);
        }
        Ok(self.server_count())
    }

    fn servers(&self) -> impl Iterator<Item = ServerId> {
        (0..self.server_count()).map(ServerId)
    }

    /// Returns entries behind a cookie: as many as are asked for, unless there are fewer. They may be of
    /// several partitions.
    fn list(&self, caller: Caller<'_>, page: Page<'_>) -> Result<Reply> {
        let Page { directory, mut after, count_max, .. } = page;
        let mut name = page.name.map(<[u8]>::to_vec);
        let mut complete = Entries::with_capacity(count_max.min(LISTED) as usize);
        loop {
            let count = (complete.count() as u32).min(count_max);
            let count_max = count_max - count;
            let page = Page { directory, after, name: name.as_deref(), count_max };
            let listed = self.at(caller, directory, hash_after(after), &Request::List(page))?;
            let Response::Listed(entries, end) = listed else { return Err(Error::Unfit) };
            self.complete(caller, directory, &entries, &mut complete)?;
            let is_partition_over = entries.count() < count_max as usize;
            if complete.count() as u32 >= count + count_max {
                return Ok(Reply::Entries(complete));
            }
            (after, name) = match entries.iter().last() {
                Some(last) if !is_partition_over => (last.cookie, Some(last.name.to_vec())),
                _ => match end.checked_add(1) {
                    Some(next) => (cookie_before(next), None),
                    None => return Ok(Reply::Entries(complete)),
                },
            };
        }
    }

    /// Adds listed entries with the attributes of directories, which lie elsewhere.
    fn complete(
        &self,
        caller: Caller<'_>,
        directory: FileId,
        entries: &Entries,
        complete: &mut Entries,
    ) -> Result<()> {
        for mut entry in entries.iter() {
            let name = EntryName::new(directory, entry.name);
            let whole;
            if entry.inode.has(flag::LINKED) {
                let Some(found) = self.linked_entry(caller, name, entry.inode.id)? else {
                    continue;
                };
                whole = found;
                complete.push(Entry { inode: &whole, ..entry });
                continue;
            }
            self.remember(entry.inode.id, directory, name.hash());
            // A listing without the right to search shows no more than types and numbers.
            if entry.inode.has(flag::ACCESS_HALF) {
                whole = match self.whole(caller, entry.inode.clone()) {
                    Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => continue,
                    whole => whole?,
                };
                entry.inode = &whole;
            }
            complete.push(entry);
        }
        Ok(())
    }

    /// Returns the file of a listed name, which had several. If it is gone, the name may have another
    /// one by now.
    fn linked_entry(
        &self,
        caller: Caller<'_>,
        name: EntryName<'_>,
        id: FileId,
    ) -> Result<Option<Inode>> {
        if let Some(inode) = self.linked(caller, id)? {
            return Ok(Some(inode));
        }
        let lookup = Operation::Read(Moment::Now, Read::Lookup(name));
        match self.execute_on_name(caller, name.directory, name.hash(), &lookup) {
            Ok(Reply::Inode(inode)) => Ok(Some(inode)),
            Ok(_) => Err(Error::Unfit),
            Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of a file below the root; none if it has no name any more.
    fn path(&self, caller: Caller<'_>, id: FileId) -> Result<Option<Vec<u8>>> {
        let (mut names, mut id, mut seen) = (Vec::new(), id, BTreeSet::new());
        while id != ROOT {
            let Response::NameOf(name) = self.ask_for_id(caller, id, &Request::NameOf(id))? else {
                return Err(Error::Unfit);
            };
            // A directory that was moved meanwhile may lead in a circle.
            let Some((parent, name)) = name.filter(|_| seen.insert(id)) else { return Ok(None) };
            names.push(name);
            id = parent;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }

    /// Returns the server whose table has given out an id.
    pub(crate) fn home(&self, id: FileId) -> Result<ServerId> {
        if id == ROOT {
            return Ok(ServerId(0));
        }
        let block = id.block();
        if let Some(home) = self.homes.lock().get(&block) {
            return Ok(*home);
        }
        let ask = Request::HomeOf(id);
        let any = ServerId((block.0 % u64::from(self.peers.server_count().max(1))) as u32);
        let Response::HomeOf(home) = self.ask(any, self.reader(Caller::Trusted), &ask)? else {
            return Err(Error::Unfit);
        };
        self.homes.lock().insert(block, home);
        Ok(home)
    }
}

impl Operations for Client {
    fn execute_for(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
    ) -> canopy_namespace::Result<Reply> {
        Ok(Client::execute_for(self, caller, operation)?)
    }

    fn search(
        &self,
        query: &Query<'_>,
        pace: canopy_namespace::Pace<'_>,
        tell: &mut dyn FnMut(Found) -> bool,
    ) -> canopy_namespace::Result<()> {
        Ok(Client::search(self, Caller::Trusted, query, pace, tell)?)
    }

    fn session(&self) -> SessionId {
        self.session
    }

    fn locks(&self) -> Option<&dyn FileLocks> {
        Some(self)
    }

    fn check_locks(&self, id: FileId) -> canopy_namespace::Result<()> {
        Ok(Client::check_locks(self, id)?)
    }

    fn use_while_open(&self, is_open: IsOpen) {
        self.held.use_while_open(is_open);
    }

    fn cached_for(&self, directory: &Inode) -> Option<Duration> {
        Some(Client::cached_for(self, directory))
    }
}
