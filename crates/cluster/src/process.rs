//! The logical servers that a process runs, and the work that they do beside requests: partitions
//! that have grown are split, and what a crash has left undone is done.

use crate::client::Client;
use crate::contents::collect_garbage;
use crate::cuts::CutStep;
use crate::error::{Error, Result};
use crate::handover::{self, HandOver, Step, Steps};
use crate::layout::Layout;
use crate::message::{MoveStep, Request, Response, Sender, ServerRequest, SessionId};
use crate::pace::Pace;
use crate::peers::Peers;
use crate::server::Server;
use crate::sessions::{self, SessionCounts, SessionSettings};
use crate::snapshots::PastServers;
use crate::tables::tables_of;
use crate::tasks::{Task, Tasks};
use canopy_namespace::operation::{Caller, Change, Operation, Target};
use canopy_namespace::{
    Clock, FileId, NoOpenFiles, Tablet, TabletRange, open_table, open_table_at,
};
use canopy_partition::{PartitionId, ServerId, Split, SplitHistory, SplitPolicy};
use canopy_store::{Environment, SstableCache, Table, TableId};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bytes of SSTables' blocks that stay in memory, of all servers together.
const CACHE_BYTES: u64 = 256 << 20;

/// Time after which the home of a directory without a name asks why.
const MAKING_PATIENCE: Duration = Duration::from_secs(10);

/// Time after which a server asks again about partitions that it was offered. A giver whose table
/// another process has opened may have sent them, and nobody gives them then.
const OFFER_PATIENCE: Duration = Duration::from_secs(5);

/// The logical servers of a namespace that this process runs.
pub struct Process {
    environment: Environment,
    clock: Clock,
    layout: Arc<Layout>,
    cache: Arc<SstableCache>,
    servers: RwLock<BTreeMap<ServerId, Arc<Server>>>,
    /// Asks the servers that other processes run, if there are any.
    others: Option<Arc<dyn Peers>>,
    tasks: Tasks,
    /// The last failure of work beside requests.
    failure: Mutex<Option<Error>>,
    sessions: SessionSettings,
    /// Servers as snapshots have them.
    past_servers: PastServers,
    /// Reads on behalf of servers here, wherever what they need is.
    client: Client,
    /// Time and waiting of a simulation, if there is one.
    pace: Option<Arc<dyn Pace>>,
    /// Held by who does what is due: the moment when servers last asked about offers.
    ticking: Mutex<Duration>,
}

impl Process {
    /// Returns a process that runs no server so far. `others` asks the servers that other processes
    /// run.
    ///
    /// # Errors
    ///
    /// Fails if the storage has no cluster, and as storage does.
    pub fn new(
        environment: &Environment,
        clock: &Clock,
        others: Option<Arc<dyn Peers>>,
    ) -> Result<Arc<Self>> {
        Self::with_sessions(environment, clock, SessionSettings::default(), others)
    }

    /// Like `new`, with other limits of sessions.
    ///
    /// # Errors
    ///
    /// Fails as `new` does.
    pub fn with_sessions(
        environment: &Environment,
        clock: &Clock,
        sessions: SessionSettings,
        others: Option<Arc<dyn Peers>>,
    ) -> Result<Arc<Self>> {
        let process = Self::build(environment, clock, sessions, others, None)?;
        process.tasks.start(&process, Self::work)?;
        sessions::start_ticking(&process)?;
        Ok(process)
    }

    /// Like `with_sessions`, in a simulation: no thread is started. The caller does the work beside
    /// requests by [`work_once`](Self::work_once) and [`tick`](Self::tick), and `pace` decides who
    /// waits.
    ///
    /// # Errors
    ///
    /// Fails as `new` does.
    pub fn simulated(
        environment: &Environment,
        clock: &Clock,
        sessions: SessionSettings,
        others: Option<Arc<dyn Peers>>,
        pace: Arc<dyn Pace>,
    ) -> Result<Arc<Self>> {
        Self::build(environment, clock, sessions, others, Some(pace))
    }

    fn build(
        environment: &Environment,
        clock: &Clock,
        sessions: SessionSettings,
        others: Option<Arc<dyn Peers>>,
        pace: Option<Arc<dyn Pace>>,
    ) -> Result<Arc<Self>> {
        let (tables, policy) = tables_of(&*environment.storage)?;
        let pace_of_client = pace.clone();
        let client = |peers: Own| {
            let client = Client::new(Arc::new(peers), SessionId(0));
            match pace_of_client {
                Some(pace) => client.with_pace(pace),
                None => client,
            }
        };
        Ok(Arc::new_cyclic(|me| Process {
            client: client(Own(me.clone(), tables.len() as u32, policy)),
            past_servers: PastServers::default(),
            environment: environment.clone(),
            clock: clock.clone(),
            layout: Arc::new(Layout::new(environment.storage.clone(), tables, policy)),
            cache: SstableCache::new(environment, CACHE_BYTES),
            servers: RwLock::default(),
            others,
            tasks: Tasks::default(),
            failure: Mutex::default(),
            sessions,
            pace,
            ticking: Mutex::default(),
        }))
    }

    /// Returns a process that runs all servers, and has done what a crash has left undone.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn with_all_servers(environment: &Environment, clock: &Clock) -> Result<Arc<Self>> {
        let process = Self::new(environment, clock, None)?;
        process.open_all()?;
        Ok(process)
    }

    /// Opens all servers, and does what a crash has left undone.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn open_all(&self) -> Result<()> {
        for server in self.layout.servers() {
            self.open(server)?;
        }
        for server in self.running() {
            self.recover(server)?;
            self.tasks.add(Task::EndSnapshots(server));
        }
        Ok(())
    }

    /// Opens a server's table, which ends the writes of any other process that has it, and runs the
    /// server. Does nothing if it runs already.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn start(&self, server: ServerId) -> Result<()> {
        self.open(server)?;
        self.tasks.add(Task::Recover(server));
        self.tasks.add(Task::EndSnapshots(server));
        Ok(())
    }

    fn open(&self, id: ServerId) -> Result<()> {
        let mut servers = self.servers.write();
        if servers.contains_key(&id) {
            return Ok(());
        }
        let table = open_table(&self.environment, self.table_of(id)?, self.cache.clone())?;
        servers.insert(id, Arc::new(self.server_with(id, table)?));
        Ok(())
    }

    /// Opens the table of a server as it was at a checkpoint, to be read alone.
    pub(crate) fn open_past_server(&self, id: ServerId, checkpoint: u64) -> Result<Server> {
        let (table, cache) = (self.table_of(id)?, self.cache.clone());
        self.server_with(id, open_table_at(&self.environment, table, checkpoint, cache)?)
    }

    fn server_with(&self, id: ServerId, table: Arc<Table>) -> Result<Server> {
        let range = TabletRange::Part([].into_iter().collect());
        let tablet = Tablet::new(table, range, self.clock.clone(), Arc::new(NoOpenFiles))?;
        // Clients may hold files that have no name. A tick removes the others.
        tablet.keep_unheld(true);
        let (sessions, pace) = (self.sessions.clone(), self.pace.clone());
        Server::new(id, tablet, self.layout.clone(), sessions, pace)
    }

    /// Stops a server: requests are refused from now on, and everything outlasts a crash once this
    /// returns.
    ///
    /// # Errors
    ///
    /// Fails as the table does. The server has stopped then, too.
    pub fn stop(&self, server: ServerId) -> Result<()> {
        let stopped = self.servers.write().remove(&server);
        let Some(server) = stopped else { return Ok(()) };
        server.tablet.flush_pending()?;
        server.tablet.table().sync()?;
        Ok(())
    }

    /// Returns the servers that run here.
    pub fn running(&self) -> Vec<ServerId> {
        self.servers.read().keys().copied().collect()
    }

    /// Returns the id of the cluster: that of its first table.
    pub(crate) fn cluster(&self) -> String {
        self.layout.tables.first().map(|table| table.to_string()).unwrap_or_default()
    }

    pub(crate) fn server(&self, id: ServerId) -> Result<Arc<Server>> {
        self.servers.read().get(&id).cloned().ok_or(Error::NotRunning(id))
    }

    /// Answers a request to a server that runs here.
    ///
    /// # Errors
    ///
    /// Fails with `NotRunning` if the server does not run here, with `Elsewhere` if another one has
    /// to answer, and as the operation does.
    pub fn answer(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response> {
        if let Request::Split(directory, partition) = request {
            return self.split_for(server, sender, *directory, *partition);
        }
        if let Some(answer) = self.answer_on_all(server, sender, request) {
            return answer;
        }
        let server = self.server(server)?;
        let answered = server.answer(self, sender, request);
        if concerns_several(request) && server.has_doubts() {
            self.tasks.add(Task::Doubts(server.id));
        }
        let answered = answered?;
        if let Request::OfServer(ServerRequest::HandOver(directory, child, _, MoveStep::Hold)) =
            request
        {
            // A partition may arrive with too many entries.
            self.tasks.add(Task::Split(server.id, *directory, *child));
        }
        if let Request::Execute(Operation::Change(change)) = request
            && answered.is_first
        {
            self.note(&server, change)?;
        }
        Ok(answered.response)
    }

    /// Splits a partition for somebody who has asked for it.
    fn split_for(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        directory: FileId,
        partition: PartitionId,
    ) -> Result<Response> {
        match sender.caller {
            Caller::Trusted => {
                let steps = &mut |_: Step| true;
                self.split_at(server, directory, partition, steps).map(Response::Done)
            }
            Caller::User(_) => Err(canopy_namespace::Error::from(Errno::PERM).into()),
        }
    }

    /// Makes all changes that a server has made so far outlast a crash.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `NotRunning` if the server does not run here.
    pub fn sync_server(&self, server: ServerId) -> Result<()> {
        Ok(self.server(server)?.tablet.table().sync()?)
    }

    /// Returns the epoch of the table of a server that runs here.
    ///
    /// # Errors
    ///
    /// Fails with `NotRunning` if the server does not run here.
    pub fn epoch_of(&self, server: ServerId) -> Result<u64> {
        Ok(self.server(server)?.epoch())
    }

    /// Like `sync_server`, for changes that were made in an epoch of the table. Whether a change
    /// outlasts a crash is only known to the owner of the table that has made it: the server may have
    /// been stopped and started again since.
    ///
    /// # Errors
    ///
    /// Fails with `NotRunning` if the server does not run here, or has another epoch, and as the
    /// table does.
    pub fn sync_epoch(&self, server: ServerId, epoch: u64) -> Result<()> {
        let running = self.server(server)?;
        match running.epoch() == epoch {
            true => Ok(running.tablet.table().sync()?),
            false => Err(Error::NotRunning(server)),
        }
    }

    /// Counts the entry of a change, and has its partition split if it has too many.
    fn note(&self, server: &Server, change: &Change<'_>) -> Result<()> {
        let by = match change {
            Change::Create { .. } => 1,
            Change::Unlink(_) | Change::Rmdir(_) => -1,
            _ => return Ok(()),
        };
        let Target::Name { directory, hash } = Operation::Change(change.clone()).target() else {
            return Ok(());
        };
        if server.making.has_named() {
            self.tasks.add(Task::ConfirmNames(server.id));
        }
        let Some((history, count)) = server.count(directory, hash, by)? else { return Ok(()) };
        let partition = history.partition();
        if by > 0 && count > self.layout.policy.threshold(directory.0, partition) {
            self.tasks.add(Task::Split(server.id, directory, partition));
        }
        Ok(())
    }

    /// Does a piece of work beside requests, in a simulation; with `retries` also one that has failed.
    /// Returns whether there was any.
    pub fn work_once(&self, retries: bool) -> bool {
        let Some(task) = self.tasks.take(retries) else { return false };
        if self.work(task) {
            self.tasks.fail(task);
        }
        true
    }

    /// Does a piece of work beside requests. Returns whether it has to be done again later.
    fn work(&self, task: Task) -> bool {
        let done = match task {
            Task::Split(server, directory, partition) => {
                self.split_while_large(server, directory, partition).map(|()| true)
            }
            Task::Recover(server) => self.recover(server),
            Task::Doubts(server) => self.clear_doubts(server),
            Task::ConfirmNames(server) => {
                self.server(server).and_then(|server| server.confirm_names(self)).map(|()| true)
            }
            Task::EndSnapshots(server) => self
                .server(server)
                .and_then(|server| self.end_unfinished_snapshots(&server))
                .map(|()| true),
            Task::SettleMaking(server) => self
                .server(server)
                .and_then(|server| server.settle_making(self, MAKING_PATIENCE))
                .map(|_| true),
            Task::Offers(server) => self
                .server(server)
                .and_then(|server| handover::ask_all(&server, self))
                .map(|()| true),
        };
        match done {
            Ok(is_done) => !is_done,
            // Another server that does not run may do so later.
            Err(Error::NotRunning(server)) if server == task.server() => false,
            // The entry that made a partition too large is there, whatever becomes of the split.
            Err(Error::Stopped(_)) => matches!(task, Task::Recover(_)),
            Err(error) => {
                *self.failure.lock() = Some(error);
                true
            }
        }
    }

    /// Splits a partition until it has few enough entries, or there is no server for another half.
    fn split_while_large(
        &self,
        server: ServerId,
        directory: FileId,
        partition: PartitionId,
    ) -> Result<()> {
        let entries_max = self.layout.policy.threshold(directory.0, partition);
        while self.server(server)?.count_of(directory, partition)? > entries_max
            && self.split_at(server, directory, partition, &mut |_: Step| true)?
        {}
        Ok(())
    }

    /// Does what a crash has left undone at a server. Returns whether all is done.
    fn recover(&self, server: ServerId) -> Result<bool> {
        let server = self.server(server)?;
        for directory in server.pending_attributes()? {
            server.push_attributes(self, directory)?;
        }
        let is_clear = server.clear_doubts(self)?;
        let is_settled = server.settle_making(self, Duration::ZERO)?;
        server.confirm_names(self)?;
        Ok(handover::recover(&server, self)? && is_settled && is_clear)
    }

    /// Finds out about changes of several servers that have not ended. Returns whether all have.
    fn clear_doubts(&self, server: ServerId) -> Result<bool> {
        self.server(server)?.clear_doubts(self)
    }

    /// Does what is due by the clock: holds and sessions of silent clients end. A thread of the process calls
    /// it a few times in a second.
    pub fn tick(&self) {
        let mut asked = self.ticking.lock();
        let now = (self.sessions.clock)();
        let asks = now.saturating_sub(*asked) >= OFFER_PATIENCE;
        if asks {
            *asked = now;
        }
        for id in self.running() {
            let Ok(server) = self.server(id) else { continue };
            if let Err(error) = server.end_holds().and_then(|()| server.end_silent_sessions()) {
                *self.failure.lock() = Some(error);
            }
            if server.making.has_named() {
                self.tasks.add(Task::ConfirmNames(id));
            }
            if asks && server.has_offers(None) {
                self.tasks.add(Task::Offers(id));
            }
            if server.making.has_unnamed(MAKING_PATIENCE, server.sessions.now()) {
                self.tasks.add(Task::SettleMaking(id));
            }
            server.cuts.end_old_pause(server.sessions.now());
            if server.snapshots.has_unfinished(self.environment.clock.now_ms()) {
                self.tasks.add(Task::EndSnapshots(id));
            }
        }
    }

    /// Splits a partition of a directory, which a server here holds, if there is a server for its
    /// upper half. Returns whether it did.
    ///
    /// # Errors
    ///
    /// Fails with `Stopped` if the hand-over did not come to its end, and as the tablets do.
    pub fn split(
        &self,
        directory: FileId,
        partition: PartitionId,
        steps: &mut dyn Steps,
    ) -> Result<bool> {
        let server = self.layout.server(directory, partition)?;
        self.split_at(server, directory, partition, steps)
    }

    fn split_at(
        &self,
        server: ServerId,
        directory: FileId,
        partition: PartitionId,
        steps: &mut dyn Steps,
    ) -> Result<bool> {
        let giver = self.server(server)?;
        if giver.has_removed(directory)? {
            return Ok(false);
        }
        let history = giver.holdings(directory)?.history(partition);
        let Some(history) = history else { return Ok(false) };
        let placement = self.layout.placement(directory)?;
        let split = self.layout.policy.child(&placement, history, self.layout.server_count());
        let Some(Split { child, moves }) = split else { return Ok(false) };
        if !moves {
            let is_split =
                giver.record(directory, |holdings| holdings.split(partition).is_some())?;
            self.tasks.add(Task::Split(server, directory, child));
            return Ok(is_split);
        }
        let receiver = placement.server(child);
        let attempt = giver.next_attempt();
        let hand_over =
            HandOver { giver: &giver, peers: self, receiver, directory, child, attempt };
        let outcome = hand_over.run(steps);
        if outcome.is_err() {
            self.tasks.add(Task::Recover(server));
        }
        outcome.map(|()| true)
    }

    /// Returns the partitions of a directory, by the word of the servers that run here.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn partitions(&self, directory: FileId) -> Result<Vec<(ServerId, SplitHistory)>> {
        let mut found = Vec::new();
        for id in self.running() {
            let histories = self.server(id)?.histories(directory)?;
            found.extend(histories.into_iter().map(|history| (id, history)));
        }
        Ok(found)
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
            removed += collect_garbage(&server.tablet, &self.environment, &self.cache, &is_needed)?;
        }
        Ok(removed)
    }

    /// Makes everything so far outlast a crash.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn sync(&self) -> Result<()> {
        for id in self.running() {
            let server = self.server(id)?;
            server.tablet.flush_pending()?;
            server.tablet.table().sync()?;
        }
        Ok(())
    }

    /// Returns how much a server that runs here keeps for sessions of clients.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `NotRunning` if the server does not run here.
    pub fn session_counts(&self, server: ServerId) -> Result<SessionCounts> {
        self.server(server)?.session_counts()
    }

    /// Waits until no work beside requests is left, but for what has to be tried again.
    pub fn settle(&self) {
        self.tasks.settle();
    }

    /// Returns whether the table of a server that runs here takes no changes any more: another process
    /// has it, or storage has failed.
    pub fn has_failed(&self, server: ServerId) -> bool {
        self.server(server).is_ok_and(|server| server.tablet.table().has_ended())
    }

    /// Returns the last failure of work beside requests, once.
    pub fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    /// Returns the table of a server, which another process may run.
    ///
    /// # Errors
    ///
    /// Fails with `NotRunning` if there is no such server.
    pub fn table_of(&self, server: ServerId) -> Result<TableId> {
        let table = self.layout.tables.get(server.0 as usize).copied();
        table.ok_or(Error::NotRunning(server))
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn past_servers(&self) -> &PastServers {
        &self.past_servers
    }

    /// Returns the time of the clock of sessions.
    pub(crate) fn steady_now(&self) -> Duration {
        (self.sessions.clock)()
    }

    /// Returns whether no hand-over, no making of a directory and no change of several servers is
    /// unfinished at the servers that run here.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn is_at_rest(&self) -> Result<bool> {
        for id in self.running() {
            let server = self.server(id)?;
            if !server.has_no_intents() || !server.making.is_at_rest() {
                return Ok(false);
            }
            for directory in server.directories() {
                if !handover::is_at_rest(&server, directory)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Returns whether a request may leave something to be found out.
fn concerns_several(request: &Request<'_>) -> bool {
    match request {
        Request::OfServer(ServerRequest::Intent(..) | ServerRequest::Cut(_, CutStep::Rest)) => true,
        Request::Execute(Operation::Change(change)) => {
            matches!(
                change,
                Change::Rename { .. } | Change::Link { .. } | Change::Unlink(_) | Change::Rmdir(_)
            )
        }
        _ => false,
    }
}

/// The servers of a namespace, as the process itself reaches them: its number of servers and rules, too.
struct Own(Weak<Process>, u32, SplitPolicy);

impl Peers for Own {
    fn ask(&self, server: ServerId, sender: Sender<'_>, request: &Request<'_>) -> Result<Response> {
        self.0.upgrade().ok_or(Error::NotRunning(server))?.ask(server, sender, request)
    }

    fn server_count(&self) -> u32 {
        self.1
    }

    fn policy(&self) -> SplitPolicy {
        self.2
    }
}

impl Peers for Process {
    fn ask(&self, server: ServerId, sender: Sender<'_>, request: &Request<'_>) -> Result<Response> {
        match (self.answer(server, sender, request), &self.others) {
            (Err(Error::NotRunning(_)), Some(others)) => others.ask(server, sender, request),
            (answer, _) => answer,
        }
    }

    fn server_count(&self) -> u32 {
        self.layout.server_count()
    }

    fn policy(&self) -> SplitPolicy {
        self.layout.policy
    }
}
