//! The logical servers that a process runs: opening and closing them, and their answers. The work that
//! they do beside requests is in `work`, and splits of partitions in `splitting`.

mod splitting;
mod work;

use crate::administration::build_indexes;
use crate::answer::Answered;
use crate::client::Client;
use crate::contents::adopt_ended;
use crate::cuts::CutMessage;
use crate::error::{Error, Result};
use crate::handover;
use crate::layout::Layout;
use crate::locks::{Account, LockWaiters};
use crate::message::{HandOverMessage, Request, Response, Sender, ServerRequest, SessionId};
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::peers::Peers;
use crate::quotas::{ShareMessage, ShareReply};
use crate::restoring;
use crate::server::Server;
use crate::sessions::{self, SessionCounts, SessionSettings};
use crate::snapshots::PastServers;
use crate::tasks::{Task, Tasks};
use crate::upkeep::TableMaintenance;
use canopy_namespace::operation::{Administration, Caller, Change, Operation};
use canopy_namespace::{Clock, NoOpenFiles, ProcessMemory, Tablet, TabletRange, open_table_at};
use canopy_partition::{ServerId, SplitPolicy};
use canopy_store::{Environment, SstableCache, Table, TableId};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Bytes of memory that the tables of a process take, unless its settings have another number.
const MEMORY_BYTES: u64 = 512 << 20;

/// Time for which servers are asked again on behalf of one here.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for which a request waits for locks of programs.
const LOCK_WAIT: Duration = Duration::from_millis(900);

/// Settings of a process.
#[derive(Clone)]
pub struct ProcessSettings {
    /// Limits of sessions of clients.
    pub sessions: SessionSettings,
    /// Bytes of memory that the tables of all its servers take together: half for changes that are not
    /// in SSTables yet, half for blocks that were read.
    pub memory_bytes: u64,
    /// Time in which a client that writes contents has made no object, after which its session is
    /// ended, and what it left is removed.
    pub abandoned: Duration,
}

impl Default for ProcessSettings {
    fn default() -> Self {
        ProcessSettings {
            sessions: SessionSettings::default(),
            memory_bytes: MEMORY_BYTES,
            abandoned: Duration::from_secs(3600),
        }
    }
}

/// The logical servers of a namespace that this process runs.
pub struct Process {
    pub(crate) environment: Environment,
    clock: Clock,
    layout: Arc<Layout>,
    pub(crate) memory: ProcessMemory,
    pub(crate) care: TableMaintenance,
    pub(crate) metrics: Arc<Metrics>,
    servers: RwLock<BTreeMap<ServerId, Arc<Server>>>,
    /// Asks the servers that other processes run, if there are any.
    others: Option<Arc<dyn Peers>>,
    tasks: Tasks,
    /// The last failure of work beside requests.
    failure: Mutex<Option<Error>>,
    pub(crate) settings: ProcessSettings,
    /// Servers as snapshots have them.
    past_servers: PastServers,
    /// Reads on behalf of servers here, wherever what they need is.
    client: Client,
    /// Time and waiting of a simulation, if there is one.
    pace: Option<Arc<dyn Pace>>,
    /// Held by who does what is due: the moment when servers last asked about offers.
    ticking: Mutex<Duration>,
    /// Threads that wait for locks of programs.
    waits: LockWaiters,
    /// Number of restores when this process was started (`restoring`).
    generation: u64,
    /// Whether another one has begun since.
    is_outdated: AtomicBool,
}

impl Process {
    /// Returns a process that runs no server so far. `others` asks the servers that other processes
    /// run.
    ///
    /// # Errors
    ///
    /// Fails if the storage has no cluster, with `Unrestored` if a restore has not ended, and as storage
    /// does.
    pub fn new(
        environment: &Environment,
        clock: &Clock,
        others: Option<Arc<dyn Peers>>,
    ) -> Result<Arc<Self>> {
        Self::with_settings(environment, clock, ProcessSettings::default(), others)
    }

    /// Like `new`, with other settings.
    ///
    /// # Errors
    ///
    /// Fails as `new` does.
    pub fn with_settings(
        environment: &Environment,
        clock: &Clock,
        settings: ProcessSettings,
        others: Option<Arc<dyn Peers>>,
    ) -> Result<Arc<Self>> {
        let process = Self::build(environment, clock, settings, others, None)?;
        process.tasks.start(&process, Self::work)?;
        sessions::start_ticking(&process)?;
        Ok(process)
    }

    /// Like `with_settings`, in a simulation: no thread is started. The caller does the work beside
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
        let settings = ProcessSettings { sessions, ..ProcessSettings::default() };
        Self::build(environment, clock, settings, others, Some(pace))
    }

    fn build(
        environment: &Environment,
        clock: &Clock,
        settings: ProcessSettings,
        others: Option<Arc<dyn Peers>>,
        pace: Option<Arc<dyn Pace>>,
    ) -> Result<Arc<Self>> {
        let generation = restoring::generation(&*environment.storage)?;
        let layout = Arc::new(Layout::open(environment.storage.clone())?);
        let pace_of_client = pace.clone();
        let client = |peers: Own| {
            let client = Client::new(Arc::new(peers), SessionId::SERVER).with_patience(PATIENCE);
            match pace_of_client {
                Some(pace) => client.with_pace(pace),
                None => client,
            }
        };
        Ok(Arc::new_cyclic(|me| Process {
            client: client(Own(me.clone(), layout.clone())),
            past_servers: PastServers::default(),
            environment: environment.clone(),
            clock: clock.clone(),
            layout,
            memory: ProcessMemory::new(environment, settings.memory_bytes),
            care: TableMaintenance::default(),
            metrics: Arc::default(),
            servers: RwLock::default(),
            others,
            tasks: Tasks::default(),
            failure: Mutex::default(),
            settings,
            pace,
            ticking: Mutex::default(),
            waits: LockWaiters::default(),
            generation,
            is_outdated: AtomicBool::new(false),
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
            self.open(server, false)?;
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
        self.open(server, true)?;
        self.tasks.add(Task::Recover(server));
        self.tasks.add(Task::EndSnapshots(server));
        Ok(())
    }

    /// Opens a server's table. Another process may have had it until now.
    fn open(&self, id: ServerId, is_takeover: bool) -> Result<()> {
        if self.servers.read().contains_key(&id) {
            return Ok(());
        }
        let table = self.memory.open_table(self.table_of(id)?)?;
        // After the opening: a restore that begins later opens the table, too.
        if restoring::is_outdated(&*self.environment.storage, self.generation)? {
            self.is_outdated.store(true, Ordering::Relaxed);
            return Err(Error::Restored);
        }
        let server = Arc::new(self.server_with(id, table)?);
        if server.tablet.is_new()? {
            adopt_ended(&server.tablet, self)?;
        }
        if is_takeover {
            server.leases.wait_for_predecessor(server.now());
        }
        self.servers.write().insert(id, server.clone());
        self.care.begin(id, server.tablet.table());
        self.metrics.server_starts.add(1);
        build_indexes(&server)
    }

    /// Opens the table of a server as it was at a checkpoint, to be read alone.
    pub(crate) fn open_past_server(&self, id: ServerId, checkpoint: u64) -> Result<Server> {
        let (table, cache) = (self.table_of(id)?, self.memory.cache().clone());
        self.server_with(id, open_table_at(&self.environment, table, checkpoint, cache)?)
    }

    fn server_with(&self, id: ServerId, table: Arc<Table>) -> Result<Server> {
        let range = TabletRange::Part([].into_iter().collect());
        let files = Arc::new(NoOpenFiles);
        let tablet =
            Tablet::sharing(&self.memory, table.clone(), range, self.clock.clone(), files)?;
        // Clients may hold files that have no name. A tick removes the others.
        tablet.keep_unheld(true);
        let (sessions, pace) = (self.settings.sessions.clone(), self.pace.clone());
        Server::new(id, tablet, self.layout.clone(), sessions, self.metrics.clone(), pace)
    }

    /// Stops a server: requests are refused from now on, and everything outlasts a crash once this
    /// returns.
    ///
    /// # Errors
    ///
    /// Fails as the table does. The server has stopped then, too.
    pub fn stop(&self, server: ServerId) -> Result<()> {
        let stopped = self.servers.write().remove(&server);
        self.care.end(server);
        let Some(server) = stopped else { return Ok(()) };
        server.tablet.flush_pending()?;
        server.tablet.table().sync()?;
        Ok(())
    }

    /// Learns of servers that were added: of at least so many in all.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and if the list of tables is damaged.
    pub fn learn_servers(&self, servers: u32) -> Result<()> {
        self.layout.learn(servers)
    }

    /// Has this process learn beside requests that there are at least so many servers.
    pub(crate) fn hear_of_servers(&self, servers: u32) {
        if servers > self.layout.server_count() {
            self.tasks.add(Task::Learn(servers));
        }
    }

    /// Returns the servers that run here.
    pub fn running(&self) -> Vec<ServerId> {
        self.servers.read().keys().copied().collect()
    }

    /// Returns the number of restores when this process was started.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns whether a restore was found to have begun since then. The process is of no use any more.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Returns the id of the cluster: that of its first table.
    pub(crate) fn cluster(&self) -> String {
        self.layout.tables().first().map(|table| table.to_string()).unwrap_or_default()
    }

    pub(crate) fn server(&self, id: ServerId) -> Result<Arc<Server>> {
        self.servers.read().get(&id).cloned().ok_or(Error::NotRunning(id))
    }

    /// Answers a request to a server that runs here.
    ///
    /// # Errors
    ///
    /// Fails with `NotRunning` if the server does not run here, with `WrongServer` if another one has
    /// to answer, and as the operation does.
    pub fn answer(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response> {
        self.answer_as(server, sender, request, true)
    }

    /// Like `answer`. Unless it `may_wait`, a request that has to wait fails with `WouldWait`, and notices
    /// to the authority of limits are left to the caller ([`send_notices`](Self::send_notices)).
    pub(crate) fn answer_as(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
        may_wait: bool,
    ) -> Result<Response> {
        let began = Instant::now();
        let answer = self.answer_request(server, sender, request, may_wait);
        // Another process may have the answer, and counts it then.
        if !matches!(answer, Err(Error::NotRunning(_) | Error::WouldWait)) {
            self.metrics.note(request, began, &answer);
        }
        answer
    }

    fn answer_request(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
        may_wait: bool,
    ) -> Result<Response> {
        match request {
            Request::Split(directory, partition) => {
                return self.split_for(server, sender, *directory, *partition);
            }
            Request::AwaitLocks => return self.await_locks(server, sender),
            _ => {}
        }
        if let Some(answer) = self.answer_on_all(server, sender, request) {
            return answer;
        }
        let server = self.server(server)?;
        if let (Request::OfServer(ServerRequest::Tally), Caller::Trusted) = (request, sender.caller)
        {
            return server.tally().map(Response::Tally);
        }
        if let (Request::OfServer(ServerRequest::Then(number, then)), Caller::Trusted) =
            (request, sender.caller)
        {
            return self.answer_then(server.id, *number, *then);
        }
        let answered = server.answer(self, sender, request, may_wait);
        if may_wait {
            self.report(&server, request, &answered);
        }
        if concerns_several(request) && server.has_doubts() {
            self.tasks.add(Task::Doubts(server.id));
        }
        if server.asks_for_offers.swap(false, Ordering::Relaxed) {
            self.tasks.add(Task::Offers(server.id));
        }
        for (directory, partition) in server.growth.take_oversized() {
            self.tasks.add(Task::Split(server.id, directory, partition));
        }
        let answered = answered?;
        if let Request::OfServer(ServerRequest::HandOver(
            directory,
            child,
            _,
            HandOverMessage::Hold,
        )) = request
        {
            // A partition may arrive with too many entries.
            self.tasks.add(Task::Split(server.id, *directory, *child));
        }
        if let Request::Execute(Operation::Administration(Administration::SetIndexes(_))) = request
        {
            build_indexes(&server)?;
        }
        if let Request::Execute(Operation::Change(change)) = request
            && answered.is_first
        {
            self.note(&server, change)?;
        }
        Ok(answered.response)
    }

    /// Has the authority of limits know what a request has freed or overdrawn: before the reply, unless
    /// the request must not wait.
    fn report(&self, server: &Arc<Server>, request: &Request<'_>, answered: &Result<Answered>) {
        if server.has_notices()
            && (matches!(request, Request::OfServer(_)) || server.send_notices(self).is_err())
        {
            self.tasks.add(Task::Limits(server.id));
        }
        let counts = Response::Share(ShareReply::Done(false));
        if let Request::OfServer(ServerRequest::Share(ShareMessage::Count(true))) = request
            && answered.as_ref().is_ok_and(|answered| answered.response == counts)
        {
            let server = server.clone();
            // The authority asks again until the server counts, or has failed to.
            let count = move || server.count_usage();
            let _ = std::thread::Builder::new().name("cluster-quotas".into()).spawn(count);
        }
    }

    /// Returns whether the authority of limits has to know something before a server replies.
    pub(crate) fn has_notices(&self, server: ServerId) -> bool {
        self.server(server).is_ok_and(|server| server.has_notices())
    }

    /// Has the authority of limits know what a server has noticed: now, or later if it does not answer.
    pub(crate) fn send_notices(&self, server: ServerId) {
        if self.server(server).is_ok_and(|server| server.send_notices(self).is_err()) {
            self.tasks.add(Task::Limits(server));
        }
    }

    /// Returns locks of a session that may be set now, and waits for one if there is room to wait.
    fn await_locks(&self, server: ServerId, sender: Sender<'_>) -> Result<Response> {
        let waiting = self.waits.begin(Account::of(&sender));
        let limit = if waiting.is_some() { LOCK_WAIT } else { Duration::ZERO };
        Ok(self.server(server)?.await_locks(sender.session, limit))
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
        self.sync_for(server, epoch, true)
    }

    /// Like `sync_epoch`. While the disk is full, a request that changes nothing does not try again.
    pub(crate) fn sync_for(&self, server: ServerId, epoch: u64, is_change: bool) -> Result<()> {
        let server = self.server(server)?;
        if server.epoch() != epoch {
            return Err(Error::NotRunning(server.id));
        }
        if !is_change && server.is_full.load(Ordering::Relaxed) {
            return Err(Error::Full(server.id));
        }
        let synced = server.tablet.table().sync();
        let is_full = synced.as_ref().is_err_and(canopy_store::Error::is_deferred);
        server.is_full.store(is_full, Ordering::Relaxed);
        if is_full { Err(Error::Full(server.id)) } else { Ok(synced?) }
    }

    /// Counts the entry of a change.
    fn note(&self, server: &Server, change: &Change<'_>) -> Result<()> {
        let (name, by) = match change {
            Change::Create { name, .. } => (name, 1),
            Change::Unlink(name) | Change::Rmdir(name) => (name, -1),
            _ => return Ok(()),
        };
        let (directory, hash) = (name.directory, name.hash());
        if server.making.has_named() {
            self.tasks.add(Task::ConfirmNames(server.id));
        }
        server.count(directory, hash, by)
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

    /// Has the files of the tables of all servers here take what is only in memory and in logs.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn flush(&self) -> Result<()> {
        for id in self.running() {
            let server = self.server(id)?;
            server.tablet.flush_pending()?;
            server.tablet.table().flush()?;
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
        self.layout.table(server)?.ok_or(Error::NotRunning(server))
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(crate) fn cache(&self) -> &Arc<SstableCache> {
        self.memory.cache()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn past_servers(&self) -> &PastServers {
        &self.past_servers
    }

    /// Returns the time of the clock of sessions.
    pub(crate) fn steady_now(&self) -> Duration {
        (self.settings.sessions.clock)()
    }

    /// Returns whether no hand-over, no making of a directory and no change of several servers is
    /// unfinished at the servers that run here.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn is_at_rest(&self) -> Result<bool> {
        Ok(self.unfinished()?.is_none())
    }

    /// Returns a description of unfinished work at a server that runs here.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn unfinished(&self) -> Result<Option<String>> {
        for id in self.running() {
            let server = self.server(id)?;
            if !server.has_no_intents() {
                return Ok(Some(format!("server {id}: a change of several servers")));
            }
            if !server.making.is_at_rest() {
                return Ok(Some(format!("server {id}: the making of a directory")));
            }
            for directory in server.directories() {
                if !handover::is_at_rest(&server, directory)? {
                    let holdings = server.holdings(directory)?;
                    let records = Vec::from_iter(holdings.records());
                    return Ok(Some(format!("server {id}: directory {directory}: {records:?}")));
                }
            }
        }
        Ok(None)
    }
}

/// Returns whether a request may leave something to be found out.
fn concerns_several(request: &Request<'_>) -> bool {
    match request {
        Request::OfServer(ServerRequest::Intent(..) | ServerRequest::Cut(_, CutMessage::Rest)) => {
            true
        }
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
struct Own(Weak<Process>, Arc<Layout>);

impl Peers for Own {
    fn ask(&self, server: ServerId, sender: Sender<'_>, request: &Request<'_>) -> Result<Response> {
        self.0.upgrade().ok_or(Error::NotRunning(server))?.ask(server, sender, request)
    }

    fn server_count(&self) -> u32 {
        self.1.server_count()
    }

    fn policy(&self) -> SplitPolicy {
        self.1.policy
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
