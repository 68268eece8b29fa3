//! A process of a cluster: it listens, runs the servers that the cluster map gives it, and answers
//! calls (`answering`).

mod answering;

use crate::envelope::{Envelope, Route};
use crate::error::{Error, Result};
use crate::executors::Executors;
use crate::handles::{HandleKey, Owner, maker_of};
use crate::membership::{
    ClusterMap, Hosting, MapProcess, Membership, MembershipError, MembershipSettings, ProcessId,
    ProcessStatus,
};
use crate::message::{Request, Response, Sender};
use crate::peers::Peers;
use crate::process::{Process, ProcessSettings};
use crate::remote::{Patience, Remote};
use crate::rights::{Allowed, Rights};
use crate::wire::{
    Address, BODY_MAX, Batch, Call, ClientSecurity, Grant, Limits, Listener, Peer, ServerSecurity,
    Service, Window,
};
use crate::workers::Workers;
use canopy_events::LimitedEvents;
use canopy_model::ErrorKind;
use canopy_namespace::Clock;
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_partition::ServerId;
use canopy_store::{Environment, Random};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Threads for clients at most: each may wait for other servers. There are as many for requests that
/// other processes make for their clients.
const CLIENT_THREADS: usize = 128;

/// Threads for servers at most. Their requests wait for nobody.
const SERVER_THREADS: usize = 32;

/// Returns the threads that one client can use at once.
fn client_share(is_trusted: bool) -> usize {
    if is_trusted { CLIENT_THREADS / 2 } else { CLIENT_THREADS / 8 }
}

/// Time until the servers of a process that starts have to run.
const START_TIME: Duration = Duration::from_secs(120);

/// Settings of a process.
#[derive(Clone)]
pub struct ListeningSettings {
    /// Addresses to listen at. Others find the process at the first one.
    pub listen: Vec<Address>,
    /// The address at which others find the process, if it is not the first one of these: behind a
    /// translation of addresses, say.
    pub advertise: Option<Address>,
    /// Requirements for those who connect.
    pub security: ServerSecurity,
    /// Requirements for other processes of the cluster.
    pub to_others: ClientSecurity,
    /// Length of a lease; a length that suits the storage if there is none.
    pub lease: Option<Duration>,
    /// Full name of the storage, by which clients find it.
    pub place: String,
}

/// A process of a cluster, which runs until it is dropped.
pub struct ListeningProcess {
    listener: Option<Listener>,
    inner: Arc<Inner>,
    addresses: Vec<Address>,
}

/// Why a process of a cluster did not start, or not end.
#[derive(Debug, thiserror::Error)]
pub enum ListeningError {
    /// It could not listen.
    #[error(transparent)]
    Listen(#[from] crate::wire::ListenError),
    /// It could not become a member.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The cluster could not be opened.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// There is no address.
    #[error("a process needs an address to listen at")]
    NoAddress,
}

struct Inner {
    process: Arc<Process>,
    others: Arc<Remote>,
    /// Name of the storage, for clients.
    place: String,
    rights: Rights,
    key: HandleKey,
    random: Arc<dyn Random>,
    membership: RwLock<Option<Arc<Membership>>>,
    /// Executes calls of clients, but for those that have to wait.
    brief: Executors<Peer, Vec<Call>>,
    /// Whether the log took long last, so that others should go on meanwhile.
    has_slow_log: AtomicBool,
    clients: Workers<Peer>,
    nested: Workers<Peer>,
    servers: Workers<Peer>,
    /// The newest map that is known.
    map: Mutex<Option<Arc<ClusterMap>>>,
    /// Refusals of what clients have asked for.
    refusals: LimitedEvents,
    me: Weak<Inner>,
}

impl ListeningProcess {
    /// Starts a process of the cluster in a storage, and returns once its servers run.
    ///
    /// # Errors
    ///
    /// Fails if it cannot listen or become a member, and as storage does.
    pub fn start(
        environment: &Environment,
        clock: &Clock,
        settings: &ListeningSettings,
    ) -> std::result::Result<Self, ListeningError> {
        Self::start_with(environment, clock, settings, ProcessSettings::default())
    }

    /// Like `start`, with settings of the process.
    ///
    /// # Errors
    ///
    /// Fails as `start` does.
    pub fn start_with(
        environment: &Environment,
        clock: &Clock,
        settings: &ListeningSettings,
        of_process: ProcessSettings,
    ) -> std::result::Result<Self, ListeningError> {
        let (patience, nowhere) = (Patience::SERVER, Route::default());
        let others = Remote::new(&[], settings.to_others.clone(), patience, nowhere)?;
        let others = Arc::new(others);
        let process = Process::with_settings(environment, clock, of_process, Some(others.clone()))?;
        others.set_generation(process.generation());
        process.look_after()?;
        let key = HandleKey::open(environment)?;
        let inner = Arc::new_cyclic(|me| Inner {
            process,
            others,
            place: settings.place.clone(),
            rights: Rights::default(),
            key,
            random: environment.random.clone(),
            membership: RwLock::default(),
            brief: brief_executors(me.clone()),
            has_slow_log: AtomicBool::new(false),
            clients: Workers::new("cluster-waiting", CLIENT_THREADS),
            nested: Workers::new("cluster-nested", CLIENT_THREADS),
            servers: Workers::new("cluster-server", SERVER_THREADS),
            map: Mutex::default(),
            refusals: LimitedEvents::default(),
            me: me.clone(),
        });
        let service: Arc<dyn Service> = inner.clone();
        let (security, limits) = (settings.security.clone(), Limits::default());
        let listener = Listener::start(&settings.listen, security, limits, service)?;
        let addresses = listener.addresses().to_vec();
        let own = settings.advertise.as_ref().or(addresses.first());
        let own = own.ok_or(ListeningError::NoAddress)?.to_string();
        let mut membership =
            MembershipSettings::new(inner.process.server_count(), &*environment.storage);
        membership.lease = settings.lease.unwrap_or(membership.lease);
        membership.has_certificate = settings.security.tls.is_some();
        let hosting: Arc<dyn Hosting> = inner.clone();
        let membership = Membership::join(environment, &own, membership, hosting)?;
        let membership = Arc::new(membership);
        let node = ListeningProcess { listener: Some(listener), inner, addresses };
        *node.inner.membership.write() = Some(membership.clone());
        membership.wait_until_serving(START_TIME)?;
        Ok(node)
    }

    /// Returns the addresses that it listens at, with the ports that the system has chosen.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the servers that run here.
    pub fn running(&self) -> Vec<ServerId> {
        self.inner.process.running()
    }

    /// Returns the number of logical servers of the cluster.
    pub fn server_count(&self) -> u32 {
        self.inner.process.server_count()
    }

    /// Returns the process with its servers.
    pub fn process(&self) -> &Arc<Process> {
        &self.inner.process
    }

    /// Returns all processes of the cluster.
    pub fn status(&self) -> Vec<ProcessStatus> {
        self.inner.membership().map(|membership| membership.status()).unwrap_or_default()
    }

    /// Returns numbers about this process, in the text format of Prometheus. They contain no names and
    /// no addresses.
    pub fn metrics(&self) -> String {
        self.inner.process.metrics_text()
    }

    /// Returns the length of leases; none before the first map is known.
    pub fn lease(&self) -> Option<Duration> {
        let map = self.inner.map.lock().clone();
        map?.processes.values().map(MapProcess::lease).max()
    }

    /// Returns why this process cannot run servers any more; none if it can.
    pub fn ended(&self) -> Option<ListeningError> {
        if self.inner.process.is_outdated() {
            return Some(Error::Restored.into());
        }
        self.inner.membership()?.ended().map(ListeningError::from)
    }

    /// Gives all servers to other processes, and ends. Without another process, nobody runs them
    /// afterwards.
    ///
    /// # Errors
    ///
    /// Fails with `TimedOut` if nobody has taken the servers over in time: others do once the lease
    /// ends.
    pub fn leave(mut self, limit: Duration) -> std::result::Result<(), ListeningError> {
        let deadline = Instant::now() + limit;
        let mut left = Ok(());
        if let Some(membership) = self.inner.membership() {
            // Servers answer until others have them. Whether that succeeds is found out again below.
            let _ = membership.depart(limit);
        }
        // The lock is not held meanwhile: the membership's threads take it.
        let membership = self.inner.membership.write().take();
        if let Some(mut membership) = membership {
            // A thread that answers a request has it for a moment.
            let membership = loop {
                match Arc::try_unwrap(membership) {
                    Ok(membership) => break membership,
                    Err(_) if Instant::now() > deadline => {
                        let what = "leave the cluster";
                        return Err(MembershipError::TimedOut { what, limit, cause: None }.into());
                    }
                    Err(shared) => membership = shared,
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            left = membership.leave(deadline.saturating_duration_since(Instant::now()));
        }
        if let Some(listener) = self.listener.take() {
            listener.stop(Duration::from_secs(1));
        }
        Ok(left?)
    }
}

impl Drop for ListeningProcess {
    /// Ends the process without notice: others take its servers over once its lease ends.
    fn drop(&mut self) {
        self.listener = None;
        drop(self.inner.membership.write().take());
    }
}

/// Returns the threads that execute brief calls.
fn brief_executors(inner: Weak<Inner>) -> Executors<Peer, Vec<Call>> {
    Executors::new("cluster-client", CLIENT_THREADS, move |taken, turn| match inner.upgrade() {
        Some(inner) => inner.answer_briefly(taken, turn),
        None => Vec::new(),
    })
}

impl Hosting for Inner {
    fn start(&self, server: ServerId) -> Result<()> {
        let started = self.process.start(server);
        self.size_executors();
        started
    }

    fn stop(&self, server: ServerId) {
        // Answered changes are on disk already.
        let _ = self.process.stop(server);
        self.size_executors();
    }

    fn map_changed(&self, map: Arc<ClusterMap>) {
        let before = self.map.lock().replace(map.clone());
        if let (Some(before), Some(membership)) = (before, self.membership()) {
            self.note_failovers(&before, &map, membership.process());
        }
        self.others.learn(self.route_of(&map));
        self.process.hear_of_servers(map.servers.len() as u32);
    }
}

impl Inner {
    /// Has a thread execute for each server that runs here, as far as there are processors.
    fn size_executors(&self) {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        self.brief.set_at_once(self.process.running().len().min(processors));
    }

    /// Counts servers that this process takes over from processes that have gone without notice.
    fn note_failovers(&self, before: &ClusterMap, map: &ClusterMap, me: ProcessId) {
        for (gone, process) in &before.processes {
            if map.processes.contains_key(gone) {
                continue;
            }
            let taken = before.servers_of(*gone).filter(|it| map.process_of(*it) == Some(me));
            let taken = taken.count() as u64;
            if taken > 0 {
                self.process.metrics().failovers.add(taken);
                let address = &process.address;
                tracing::warn!("{address} has died: this process takes over {taken} servers");
            }
        }
    }
}

impl Service for Inner {
    fn take(&self, batch: Batch) {
        if let Some(inner) = self.me.upgrade() {
            inner.take_batch(batch);
        }
    }

    fn grant(&self, peer: &Peer) -> std::result::Result<Grant, String> {
        Ok(match self.rights.may_be_server(peer) {
            // They send each other whole files, with the records of their chunks.
            true => Grant {
                is_exempt: true,
                body_max: BODY_MAX as u32,
                window: Window { bytes: 3 * BODY_MAX as u32, ..Grant::default().window },
                memory: 3 * BODY_MAX,
                ..Grant::default()
            },
            false => Grant::default(),
        })
    }
}

impl Inner {
    /// Returns where servers run by a map.
    fn route_of(&self, map: &ClusterMap) -> Route {
        let (process, mut processes, mut places) = (&self.process, Vec::new(), BTreeMap::new());
        for (id, one) in &map.processes {
            places.insert(*id, processes.len() as u32);
            processes.push(one.address.clone());
        }
        let servers = map.servers.iter().map(|one| places.get(&one.process?).copied());
        Route {
            version: map.version,
            processes,
            servers: servers.collect(),
            policy: process.policy(),
            cluster: process.cluster(),
            place: self.place.clone(),
            generation: process.generation(),
        }
    }

    fn membership(&self) -> Option<Arc<Membership>> {
        self.membership.read().clone()
    }

    /// Executes a request. Returns the marks of the ids in the response, if the caller needs some. Fails
    /// with `WouldWait` if it has to wait and must not.
    fn execute(
        &self,
        peer: &Peer,
        envelope: &Envelope<'_>,
        may_wait: bool,
    ) -> Result<(Response, Option<Vec<u64>>)> {
        let Envelope::Request { generation, server, claim, session, number, life, marks, request } =
            envelope
        else {
            return Err(Error::Unfit);
        };
        if *generation != self.process.generation() {
            return Err(Error::Restored);
        }
        let (session, number, life) = (*session, *number, *life);
        let owner = Owner::of(peer);
        if !self.rights.may_be_server(peer) {
            self.key.check_session(session, owner)?;
            maker_of(request).map_or(Ok(()), |maker| self.key.check_session(maker, owner))?;
        }
        let needs_marks = !self.rights.speaks_for_root(peer);
        if needs_marks {
            self.key.check(owner, request, marks)?;
        }
        let allowed = self.rights.caller(peer, claim).inspect_err(|_| {
            self.process.metrics().refusals.add(1);
            self.refusals.warn(&format!("{peer} may not act for {claim}"));
        })?;
        let caller = match &allowed {
            Allowed::Server => Caller::Trusted,
            Allowed::User(who) => Caller::User(who),
        };
        let sender = Sender { caller, session, number, life };
        let answer = self.process.answer_as(*server, sender, request, may_wait);
        let response = answer.map_err(|error| self.without_loss(*server, error))?;
        let marks = needs_marks.then(|| self.key.marks(owner, request, &response));
        Ok((response, marks))
    }

    /// Makes what a server has executed in an epoch outlast a crash. What is read from it is durable,
    /// too, then, unless the disk is full (`Full`).
    fn make_durable(&self, server: ServerId, epoch: u64, is_change: bool) -> Result<()> {
        let synced = self.process.sync_for(server, epoch, is_change);
        let synced = synced.map_err(|error| self.without_loss(server, error));
        if let Err(error) = &synced
            && !matches!(error, Error::Full(_))
        {
            return synced;
        }
        match self.membership() {
            Some(membership) if membership.may_answer(server) => synced,
            _ => Err(Error::NotRunning(server)),
        }
    }

    /// Returns the error for a sender. If another process has the table of a server, that one answers. A
    /// table that has failed, since storage did not answer, is opened again.
    fn without_loss(&self, server: ServerId, error: Error) -> Error {
        match &error {
            Error::Namespace(canopy_namespace::Error::Store(store))
                if store.kind() == ErrorKind::Taken || self.process.has_failed(server) =>
            {
                if let Some(membership) = self.membership() {
                    membership.lost(server);
                }
                Error::NotRunning(server)
            }
            _ => error,
        }
    }
}

/// Returns whether a request makes a change that has to outlast a crash. Times of access may be lost.
fn is_change(request: &Request<'_>) -> bool {
    match request {
        Request::Execute(operation) => !matches!(
            operation,
            Operation::Read(..)
                | Operation::Access(_)
                | Operation::Hold(_)
                | Operation::Change(Change::TouchAccess(_))
        ),
        Request::Split(..) | Request::OfServer(_) => true,
        _ => false,
    }
}
