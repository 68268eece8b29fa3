//! The logical servers that a process runs, and the work that they do beside requests: partitions
//! that have grown are split, and what a crash has left undone is done.

use crate::contents::collect_garbage;
use crate::error::{Error, Result};
use crate::handover::{self, HandOver, Step, Steps};
use crate::layout::Layout;
use crate::message::{MoveStep, Request, Response, Sender, ServerRequest};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::server::Server;
use crate::sessions::{self, SessionCounts, SessionSettings};
use crate::tables::tables_of;
use crate::tasks::{Task, Tasks};
use crate::upkeep::TableCare;
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_namespace::{Clock, FileId, NoOpenFiles, ProcessMemory, Tablet, TabletRange};
use canopy_partition::{PartitionId, ServerId, Split, SplitHistory, SplitPolicy};
use canopy_store::Environment;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of memory that the tables of a process take, unless its settings have another number.
const MEMORY_BYTES: u64 = 512 << 20;

/// Time after which the home of a directory without a name asks why.
const MAKING_PATIENCE: Duration = Duration::from_secs(10);

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
    pub(crate) care: TableCare,
    pub(crate) metrics: Arc<Metrics>,
    servers: RwLock<BTreeMap<ServerId, Arc<Server>>>,
    /// Asks the servers that other processes run, if there are any.
    others: Option<Arc<dyn Peers>>,
    tasks: Tasks,
    /// The last failure of work beside requests.
    failure: Mutex<Option<Error>>,
    pub(crate) settings: ProcessSettings,
    /// Held by who does what is due.
    ticking: Mutex<()>,
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
        Self::with_settings(environment, clock, ProcessSettings::default(), others)
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
        let settings = ProcessSettings { sessions, ..ProcessSettings::default() };
        Self::with_settings(environment, clock, settings, others)
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
        let (tables, policy) = tables_of(&*environment.storage)?;
        let process = Arc::new(Process {
            environment: environment.clone(),
            clock: clock.clone(),
            layout: Arc::new(Layout::new(environment.storage.clone(), tables, policy)),
            memory: ProcessMemory::new(environment, settings.memory_bytes),
            care: TableCare::default(),
            metrics: Arc::default(),
            servers: RwLock::default(),
            others,
            tasks: Tasks::default(),
            failure: Mutex::default(),
            settings,
            ticking: Mutex::new(()),
        });
        process.tasks.start(&process, Self::work)?;
        sessions::start_ticking(&process)?;
        Ok(process)
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
        Ok(())
    }

    fn open(&self, id: ServerId) -> Result<()> {
        let mut servers = self.servers.write();
        if servers.contains_key(&id) {
            return Ok(());
        }
        let table = self.layout.tables.get(id.0 as usize).ok_or(Error::NotRunning(id))?;
        let table = self.memory.open_table(*table)?;
        let range = TabletRange::Part([].into_iter().collect());
        let files = Arc::new(NoOpenFiles);
        let tablet =
            Tablet::sharing(&self.memory, table.clone(), range, self.clock.clone(), files)?;
        // Clients may hold files that have no name. A tick removes the others.
        tablet.keep_unheld(true);
        let sessions = self.settings.sessions.clone();
        let (layout, metrics) = (self.layout.clone(), self.metrics.clone());
        let server = Server::new(id, tablet, layout, sessions, metrics)?;
        servers.insert(id, Arc::new(server));
        self.care.begin(id, &table);
        self.metrics.server_starts.add(1);
        Ok(())
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

    /// Returns the servers that run here.
    pub fn running(&self) -> Vec<ServerId> {
        self.servers.read().keys().copied().collect()
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
        let began = Instant::now();
        let answer = self.answer_request(server, sender, request);
        // Another process may have the answer, and counts it then.
        if !matches!(answer, Err(Error::NotRunning(_))) {
            self.metrics.note(request, began, &answer);
        }
        answer
    }

    fn answer_request(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response> {
        if let Request::Split(directory, partition) = request {
            return self.split_for(server, sender, *directory, *partition);
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

    /// Like `sync_server`. While the disk is full, a request that changes nothing does not try again.
    pub(crate) fn sync_for(&self, server: ServerId, is_change: bool) -> Result<()> {
        let server = self.server(server)?;
        if !is_change && server.is_full.load(Ordering::Relaxed) {
            return Err(Error::Full(server.id));
        }
        let synced = server.tablet.table().sync();
        let is_full = synced.as_ref().is_err_and(canopy_store::Error::is_deferred);
        server.is_full.store(is_full, Ordering::Relaxed);
        if is_full { Err(Error::Full(server.id)) } else { Ok(synced?) }
    }

    /// Counts the entry of a change, and has its partition split if it has too many.
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
        let Some((history, count)) = server.count(directory, hash, by)? else { return Ok(()) };
        let partition = history.partition();
        if by > 0 && count > self.layout.policy.threshold(directory.0, partition) {
            self.tasks.add(Task::Split(server.id, directory, partition));
        }
        Ok(())
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
            Task::SettleMaking(server) => self
                .server(server)
                .and_then(|server| server.settle_making(self, MAKING_PATIENCE))
                .map(|_| true),
        };
        match done {
            Ok(is_done) => !is_done,
            Err(Error::NotRunning(_)) => false,
            // The entry that made a partition too large is there, whatever becomes of the split.
            Err(Error::Stopped(_)) => matches!(task, Task::Recover(_)),
            Err(error) => {
                self.note_failure(&format!("{task}"), error);
                true
            }
        }
    }

    /// Notes a failure of work beside requests. The log gets it unless it was the last one, too.
    pub(crate) fn note_failure(&self, what: &str, error: Error) {
        let mut failure = self.failure.lock();
        let is_known = failure.as_ref().is_some_and(|last| last.to_string() == error.to_string());
        if !is_known {
            tracing::warn!("{what}: {error}");
        }
        *failure = Some(error);
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
        let _one = self.ticking.lock();
        for id in self.running() {
            let Ok(server) = self.server(id) else { continue };
            if let Err(error) = server.end_holds().and_then(|()| server.end_silent_sessions()) {
                self.note_failure(&format!("server {id}"), error);
            }
            if server.making.has_named() {
                self.tasks.add(Task::ConfirmNames(id));
            }
            if server.making.has_unnamed(MAKING_PATIENCE, server.sessions.now()) {
                self.tasks.add(Task::SettleMaking(id));
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
        let history = giver.holdings(directory)?.history(partition);
        let Some(history) = history else { return Ok(false) };
        let placement = self.layout.placement(directory)?;
        let split = self.layout.policy.child(&placement, history, self.layout.server_count());
        let Some(Split { child, moves }) = split else { return Ok(false) };
        if !moves {
            let is_split =
                giver.record(directory, |holdings| holdings.split(partition).is_some())?;
            if is_split {
                self.metrics.splits.add(1);
                tracing::info!("server {server}: {partition} of {directory} split, with {child}");
            }
            self.tasks.add(Task::Split(server, directory, child));
            return Ok(is_split);
        }
        let receiver = placement.server(child);
        let attempt = giver.next_attempt();
        let hand_over =
            HandOver { giver: &giver, peers: self, receiver, directory, child, attempt };
        let began = Instant::now();
        let outcome = hand_over.run(steps);
        self.note_handover(&hand_over, began, &outcome);
        if outcome.is_err() {
            self.tasks.add(Task::Recover(server));
        }
        outcome.map(|_| true)
    }

    fn note_handover(&self, moved: &HandOver<'_>, began: Instant, outcome: &Result<u64>) {
        let HandOver { giver, receiver, directory, child, .. } = moved;
        let what = format!("server {}: {child} of {directory} to server {receiver}", giver.id);
        match outcome {
            Ok(entries) => {
                self.metrics.handovers.add(1);
                self.metrics.moved_entries.add(*entries);
                let time = began.elapsed().as_millis();
                tracing::info!("{what}: split, {entries} entries moved in {time} ms");
            }
            Err(error) => {
                self.metrics.stopped_handovers.add(1);
                tracing::debug!("{what}: {error}");
            }
        }
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
            removed += self.collect_at(id)?;
        }
        Ok(removed)
    }

    pub(crate) fn collect_at(&self, id: ServerId) -> Result<u64> {
        let server = self.server(id)?;
        let removed = collect_garbage(&server.tablet, &self.environment, self.memory.cache())?;
        self.metrics.removed_objects.add(removed);
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

    /// Returns the last failure of work beside requests, once.
    pub fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
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
        Request::OfServer(ServerRequest::Intent(..)) => true,
        Request::Execute(Operation::Change(change)) => {
            matches!(
                change,
                Change::Rename { .. } | Change::Link { .. } | Change::Unlink(_) | Change::Rmdir(_)
            )
        }
        _ => false,
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
