//! Servers that other processes run: requests go to the process that the newest known map names, and
//! again to its successor until there is an answer.
//!
//! All waits of a client for servers pass here. A signal to the program behind a request ends them
//! ([`program`]), with `EINTR`. A request that changes something is not interrupted any more once it
//! may have been executed.

use crate::envelope::{self, Envelope, Route};
use crate::error::{Error, Result};
use crate::handles::Marks;
use crate::message::{Request, Response, Sender, ServerRequest, SessionId};
use crate::peers::{Asked, Peers};
use crate::waits::{SilentServers, Wait, WaitObserver, WaitingRequest};
use crate::wire::{
    Address, BODY_MAX, ClientSecurity, Connections, Destination, Pending, Refusal, SHARED_MAX,
    Terms, WireError,
};
use bytes::Bytes;
use canopy_namespace::operation::{Hold, Operation, program};
use canopy_partition::{ServerId, SplitPolicy};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Time until a request is sent again that nobody has answered.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Time in which a process says where servers run.
const ROUTE_TIME: Duration = Duration::from_secs(2);

/// Time in which a further process says so, once one has answered: a dead process must not delay the
/// next question to the living ones.
const ROUTE_TIME_OF_MORE: Duration = Duration::from_millis(100);

/// Time without an answer after which the client asks whether another process runs the server. Each
/// further time is twice as long.
const LOOK_AFTER: Duration = Duration::from_millis(1500);

/// Time for an answer that is asked for again soon.
const BRIEF: Duration = Duration::from_secs(2);

/// Bytes that an answer may have.
const ROOM: u32 = SHARED_MAX as u32;

/// Bytes that an answer may have when many are sent at once. More are under way at once, then.
const ROOM_OF_MANY: u32 = Terms::ROOM;

/// Bytes that an answer of a server to another one may have.
const ROOM_MAX: u32 = BODY_MAX as u32;

/// Times for requests.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Time for one attempt.
    pub attempt: Duration,
    /// Time until it fails for good.
    pub whole: Duration,
}

impl Patience {
    /// Patience of clients: servers move to other processes within seconds.
    pub const CLIENT: Patience =
        Patience { attempt: Duration::from_secs(10), whole: Duration::from_secs(60) };
    /// Patience of servers with each other, while clients wait for them.
    pub const SERVER: Patience =
        Patience { attempt: Duration::from_secs(3), whole: Duration::from_secs(5) };
}

/// Returns addresses of processes from another source, such as the cluster map.
type FindProcesses = Box<dyn Fn() -> Vec<Address> + Send + Sync>;

/// The processes of a cluster, as a client or another process knows them.
pub struct Remote {
    connections: Connections,
    patience: Patience,
    route: RwLock<Arc<Route>>,
    /// The end of the last question to all processes. Locked while they are asked.
    asking: Mutex<Option<Instant>>,
    /// Requests that were sent so far.
    sent: AtomicU64,
    /// Addresses that the user gave.
    seeds: Vec<Address>,
    /// Finds processes once none that is known answers.
    elsewhere: OnceLock<FindProcesses>,
    /// Marks of ids that servers have given users.
    marks: Marks,
    waits: SilentServers,
    /// Number of restores of the namespace when this was connected (`restoring`).
    generation: OnceLock<u64>,
    /// Whether there was another one since.
    is_outdated: AtomicBool,
    /// Whether processes refuse this client, as the observer knows.
    is_refused: AtomicBool,
}

impl Remote {
    /// Returns the cluster of which some processes have these addresses. One of them has to answer.
    ///
    /// # Errors
    ///
    /// Fails with `NoAnswer` if none answers within the whole patience, and as the system does.
    pub fn connect(
        seeds: &[Address],
        security: ClientSecurity,
        patience: Patience,
    ) -> Result<Arc<Self>> {
        Self::connect_within(seeds, security, patience, patience.whole, Arc::new(|_| {}))
    }

    /// Like `connect`, with another time in which one has to answer, and an observer, which is notified
    /// of servers that do not answer for long.
    ///
    /// # Errors
    ///
    /// Fails as `connect` does; at once if all refuse this client.
    pub fn connect_within(
        seeds: &[Address],
        security: ClientSecurity,
        patience: Patience,
        limit: Duration,
        observer: WaitObserver,
    ) -> Result<Arc<Self>> {
        let remote = Self::new(seeds, security, patience, Route::default())?;
        remote.waits.observe(observer);
        let mut pauses = Pauses::new(Instant::now() + limit);
        let mut waiting = remote.waits.begin(None);
        loop {
            match remote.refresh() {
                Ok(()) => break waiting.answered(),
                Err(failed) if failed.is_final || !pauses.wait() => return Err(failed.error),
                Err(failed) => waiting.notice(None, &failed.error.to_string()),
            }
        }
        Ok(Arc::new(remote))
    }

    /// Has an observer notified of servers that do not answer for long, from now on.
    pub fn observe(&self, observer: WaitObserver) {
        self.waits.observe(observer);
    }

    /// Returns the processes that are known from a map.
    pub(crate) fn new(
        seeds: &[Address],
        security: ClientSecurity,
        patience: Patience,
        route: Route,
    ) -> Result<Self> {
        let io = |source| canopy_namespace::Error::Io { what: "start a client".into(), source };
        Ok(Remote {
            connections: Connections::new(security).map_err(io)?,
            patience,
            route: RwLock::new(Arc::new(route)),
            asking: Mutex::default(),
            sent: AtomicU64::new(0),
            seeds: seeds.to_vec(),
            elsewhere: OnceLock::new(),
            marks: Marks::default(),
            waits: SilentServers::default(),
            generation: OnceLock::new(),
            is_outdated: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        })
    }

    /// Returns where servers run, as far as it is known.
    pub fn route(&self) -> Arc<Route> {
        self.route.read().clone()
    }

    /// Returns the number of a new session, which only this client's identity can use.
    ///
    /// # Errors
    ///
    /// Fails with `NoAnswer` if no process answers, and with `Unfit`.
    pub fn begin_session(&self) -> Result<SessionId> {
        let known = self.route();
        let processes = known.processes.iter().filter_map(|address| address.parse().ok());
        let question = envelope::encode(&Envelope::Session);
        let mut failed = Error::Unfit;
        for address in processes.chain(self.seeds.iter().cloned()) {
            let terms = Terms::within(ROUTE_TIME).with_room(ROOM);
            match self.connections.call(&address, &question, terms) {
                Ok(answer) => return envelope::session(&answer).ok_or(Error::Unfit),
                Err(error) => failed = Error::NoAnswer(error.to_string()),
            }
        }
        Err(failed)
    }

    /// Returns the number of requests that were sent to servers.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Has processes be found by `elsewhere`, too, once none that is known answers. The first call counts.
    pub(crate) fn look(&self, elsewhere: impl Fn() -> Vec<Address> + Send + Sync + 'static) {
        let _ = self.elsewhere.set(Box::new(elsewhere));
    }

    /// Has requests be of a generation, unless this knows its own. Returns whether it is that one.
    pub(crate) fn set_generation(&self, generation: u64) -> bool {
        *self.generation.get_or_init(|| generation) == generation
    }

    /// Notes that the namespace was restored since this was connected: all requests fail from now on.
    fn outdate(&self) -> Error {
        if !self.is_outdated.swap(true, Ordering::Relaxed) {
            self.waits.notify(&Wait::Restored);
        }
        Error::Restored
    }

    fn request(&self, server: ServerId, sender: Sender<'_>, request: &Request<'_>) -> Vec<u8> {
        // Without a route, there is nobody to send it to.
        let generation = self.generation.get().copied().unwrap_or_default();
        envelope::request(generation, server, sender, request, self.marks.of(request))
    }

    /// Takes note of where servers run, unless something newer is known.
    pub(crate) fn learn(&self, route: Route) {
        let mut known = self.route.write();
        if route.version > known.version {
            *known = Arc::new(route);
        }
    }

    /// Asks the processes that are known where servers run. Waits for another thread that asks.
    fn refresh(&self) -> std::result::Result<(), Failed> {
        let before = self.route().version;
        let mut asking = loop {
            match self.asking.try_lock_for(PAUSE_MAX) {
                Some(asking) => break asking,
                None if program::is_interrupted() => return Ok(()),
                None => {}
            }
        };
        if self.route().version > before {
            return Ok(());
        }
        let asked = self.ask_everybody(before);
        *asking = Some(Instant::now());
        asked
    }

    /// Asks where servers run, unless another thread does so or has done so just now.
    fn refresh_if_due(&self) {
        let Some(mut asking) = self.asking.try_lock() else { return };
        if asking.is_none_or(|last| last.elapsed() >= LOOK_AFTER) {
            let _ = self.ask_everybody(self.route().version);
            *asking = Some(Instant::now());
        }
    }

    fn ask_everybody(&self, before: u64) -> std::result::Result<(), Failed> {
        let known = self.route();
        let processes = known.processes.iter().filter_map(|address| address.parse().ok());
        let mut asked = BTreeSet::new();
        let known = Vec::from_iter(processes.chain(self.seeds.iter().cloned()));
        let failed = match self.ask_for_route(&known, &mut asked, before) {
            Err(failed) if !failed.is_final => failed,
            asked => return asked,
        };
        // All processes may have moved.
        let Some(elsewhere) = self.elsewhere.get() else { return Err(failed) };
        match self.ask_for_route(&elsewhere(), &mut asked, before) {
            Err(_) => Err(failed),
            asked => asked,
        }
    }

    /// Asks processes that were not asked yet, until one knows a newer map. Those that are connected
    /// come first: a connection to a dead one is tried with pauses.
    fn ask_for_route(
        &self,
        addresses: &[Address],
        asked: &mut BTreeSet<String>,
        before: u64,
    ) -> std::result::Result<(), Failed> {
        let question = envelope::encode(&Envelope::Route);
        let (mut answered, mut is_final) = (false, true);
        let mut last = Error::NotRunning(ServerId(0));
        let all = addresses.iter().map(|address| self.connections.to(address));
        let (connected, others): (Vec<_>, Vec<_>) = all.partition(Destination::is_connected);
        for process in connected.into_iter().chain(others) {
            if !asked.insert(process.address().to_string()) {
                continue;
            }
            let time = if answered { ROUTE_TIME_OF_MORE } else { ROUTE_TIME };
            let pending = process.start(&question, Terms::within(time).with_room(ROOM));
            match wait(pending, true, Duration::MAX, &mut || Some(Duration::MAX)) {
                Ok(answer) => match envelope::route(&answer) {
                    // Another cluster may have got the address.
                    Some(route) if before > 0 && route.cluster != self.route().cluster => {
                        (last, is_final) = (Error::Unfit, false);
                    }
                    Some(route) if !self.set_generation(route.generation) => {
                        return Err(Failed { error: self.outdate(), is_final: true });
                    }
                    Some(route) if route.version > before => {
                        self.learn(route);
                        return Ok(());
                    }
                    Some(_) => answered = true,
                    None => return Err(Failed { error: Error::Unfit, is_final: true }),
                },
                Err(error) => {
                    is_final &= match &error {
                        WireError::Refused { refusal, .. } => is_final_refusal(refusal),
                        _ => false,
                    };
                    last = Error::NoAnswer(error.to_string());
                }
            }
        }
        if answered { Ok(()) } else { Err(Failed { error: last, is_final }) }
    }

    /// Learns the marks of the answer to a request, and returns the rest of it.
    fn learn_marks(
        &self,
        request: &Request<'_>,
        answer: Result<(Response, Option<Vec<u64>>)>,
    ) -> Result<Response> {
        let (response, marks) = answer?;
        marks.map_or(Ok(()), |marks| self.marks.learn(request, &response, &marks))?;
        Ok(response)
    }

    /// Has the observer know once that processes refuse this client.
    fn note_refusal(&self, error: &WireError) {
        if !self.is_refused.swap(true, Ordering::Relaxed) {
            self.waits.notify(&Wait::Refused(error.to_string()));
        }
    }

    fn call(
        &self,
        server: ServerId,
        request: &Request<'_>,
        body: &[u8],
        terms: Terms,
        waiting: &mut WaitingRequest<'_>,
    ) -> Attempt {
        if self.is_outdated.load(Ordering::Relaxed) {
            return Attempt::Final(Err(Error::Restored));
        }
        let route = self.route();
        let known = route.address(server);
        let Some(address) = known.and_then(|address| address.parse().ok()) else {
            return Attempt::Retry(Error::NotRunning(server));
        };
        self.sent.fetch_add(1, Ordering::Relaxed);
        let pending = self.connections.to(&address).start(body, terms);
        // A process that stands still takes no more requests, and another one may run the server.
        let mut pause = LOOK_AFTER;
        let first = pause.min(waiting.left());
        let mut look = || {
            waiting.notice(known, "");
            self.refresh_if_due();
            pause *= 2;
            let moved = self.route().address(server) != known;
            (!moved).then(|| pause.min(waiting.left()))
        };
        let answer = wait(pending, reads(request), first, &mut look);
        let answer = answer.map(|answer| envelope::answer(&answer));
        note_change(request, &answer);
        match answer {
            Ok(Err(error @ Error::NotRunning(_))) => Attempt::Retry(error),
            Ok(Err(Error::Restored)) => Attempt::Final(Err(self.outdate())),
            Ok(answer) => {
                if self.is_refused.load(Ordering::Relaxed) {
                    self.is_refused.store(false, Ordering::Relaxed);
                }
                Attempt::Final(self.learn_marks(request, answer))
            }
            Err(error) => match &error {
                WireError::Refused { refusal: Refusal::ReplyTooLarge, .. } => {
                    Attempt::TooLarge(unreachable(server, &error))
                }
                WireError::Refused { refusal, .. } if is_final_refusal(refusal) => {
                    if let Refusal::Denied(_) = refusal {
                        self.note_refusal(&error);
                    }
                    Attempt::Final(Err(unreachable(server, &error)))
                }
                _ => Attempt::Retry(unreachable(server, &error)),
            },
        }
    }
}

/// Why nobody has said where servers run.
struct Failed {
    error: Error,
    /// Whether another attempt would fail, too.
    is_final: bool,
}

/// Outcome of one attempt.
enum Attempt {
    Final(Result<Response>),
    /// The answer has more bytes than there is room for.
    TooLarge(Error),
    /// Another process may have the answer.
    Retry(Error),
}

fn is_final_refusal(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::TooLarge { .. } | Refusal::Version(_) | Refusal::Denied(_))
}

/// Returns whether a request that was executed does no more if it comes again.
fn is_repeatable(request: &Request<'_>) -> bool {
    matches!(request, Request::OfServer(ServerRequest::Intent(..)))
}

/// Returns whether a request changes nothing. A hold that nobody knows of ends with its session, or
/// once its file has no name.
fn reads(request: &Request<'_>) -> bool {
    match request {
        Request::Execute(operation) => !matches!(
            operation,
            Operation::Change(_)
                | Operation::Hold(_)
                | Operation::Quotas(_)
                | Operation::Snapshots(_)
                | Operation::Administration(_)
        ),
        Request::Hold(hold, _) => !matches!(hold, Hold::Release(..)),
        Request::List(_)
        | Request::DirectoryAtServer(_)
        | Request::LeaseDirectory(_)
        | Request::NameOf(_)
        | Request::Parents(_)
        | Request::HomeOf(_)
        | Request::Servers
        | Request::Search(_)
        | Request::Arrivals(_)
        | Request::Past(..) => true,
        _ => false,
    }
}

/// Notes that the program behind a request may have changed something, unless the request surely did
/// not.
fn note_change<T>(request: &Request<'_>, answer: &std::result::Result<Result<T>, WireError>) {
    let is_executed = match answer {
        Ok(Err(Error::NotRunning(_) | Error::WrongServer { .. })) => false,
        Ok(_) => true,
        Err(error) => !error.is_surely_not_executed(),
    };
    if is_executed && !reads(request) {
        program::note_change();
    }
}

/// Waits for an answer as `Pending::wait_with` does, or until a signal ends the wait of a program. A
/// call that changes something is abandoned only while it is not sent.
fn wait(
    pending: Pending,
    reads: bool,
    first: Duration,
    look: &mut dyn FnMut() -> Option<Duration>,
) -> std::result::Result<Bytes, WireError> {
    let Some(signals) = program::look_after() else {
        return pending.wait_with(first, &mut |_| look());
    };
    let mut due = Instant::now().checked_add(first);
    let next = |due: Option<Instant>| {
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        left.map_or(signals, |left| left.min(signals))
    };
    pending.wait_with(next(due), &mut |is_sent| {
        if (reads || !is_sent) && program::is_interrupted() {
            return None;
        }
        if due.is_some_and(|due| due <= Instant::now()) {
            due = Instant::now().checked_add(look()?);
        }
        Some(next(due))
    })
}

/// Fails if a signal has ended the wait of the program that this thread works for.
fn check_signals() -> Result<()> {
    match program::is_interrupted() {
        true => Err(canopy_namespace::Error::from(Errno::INTR).into()),
        false => Ok(()),
    }
}

fn unreachable(server: ServerId, error: &WireError) -> Error {
    Error::Unreachable { server, why: error.to_string() }
}

impl Peers for Remote {
    fn ask(&self, server: ServerId, sender: Sender<'_>, request: &Request<'_>) -> Result<Response> {
        let body = self.request(server, sender, request);
        let mut pauses = Pauses::new(Instant::now() + self.patience.whole);
        let mut waiting = self.waits.begin(Some(server));
        let mut room = ROOM;
        loop {
            check_signals()?;
            let version = self.route().version;
            let terms = Terms::within(self.patience.attempt).with_room(room);
            let error = match self.call(server, request, &body, terms, &mut waiting) {
                // Servers answer each other with whole files, and repeat what they did.
                Attempt::TooLarge(_) if room < ROOM_MAX && is_repeatable(request) => {
                    room = ROOM_MAX;
                    continue;
                }
                Attempt::Final(Err(error)) | Attempt::TooLarge(error) => {
                    waiting.answered();
                    return Err(error);
                }
                Attempt::Final(Ok(response)) => {
                    waiting.answered();
                    return Ok(response);
                }
                Attempt::Retry(error) => error,
            };
            if !pauses.wait() {
                return Err(error);
            }
            waiting.notice(self.route().address(server), &error.to_string());
            if self.route().version == version {
                // If nobody knows anything newer, the process may answer yet.
                let _ = self.refresh();
            }
        }
    }

    fn ask_briefly(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response> {
        check_signals()?;
        let body = self.request(server, sender, request);
        let version = self.route().version;
        let mut waiting = self.waits.begin(Some(server));
        let terms = Terms::within(BRIEF).with_room(ROOM);
        match self.call(server, request, &body, terms, &mut waiting) {
            Attempt::Final(answer) => {
                waiting.answered();
                return answer;
            }
            Attempt::TooLarge(error) => return Err(error),
            Attempt::Retry(_) if self.route().version == version => {
                // If nobody knows anything newer, the process may answer yet.
                let _ = self.refresh();
            }
            Attempt::Retry(_) => {}
        }
        let terms = Terms::within(BRIEF).with_room(ROOM);
        match self.call(server, request, &body, terms, &mut waiting) {
            Attempt::Final(answer) => answer,
            Attempt::Retry(error) | Attempt::TooLarge(error) => Err(error),
        }
    }

    fn ask_all(&self, asked: &[Asked<'_>]) -> Vec<Result<Response>> {
        let route = self.route();
        let terms = Terms::within(self.patience.attempt).with_room(ROOM_OF_MANY);
        // Requests to one process are begun together, so that they share frames.
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut answers =
            Vec::from_iter(asked.iter().map(|one| Err(Error::NotRunning(one.server))));
        for (at, one) in asked.iter().enumerate() {
            if let Some(address) = route.address(one.server) {
                places.entry(address).or_default().push(at);
            }
        }
        let mut begun = Vec::new();
        for (address, places) in places {
            let Ok(address) = address.parse() else { continue };
            let body = |at: &usize| {
                let Asked { server, sender, request } = asked[*at];
                self.request(server, sender, request)
            };
            let bodies = Vec::from_iter(places.iter().map(body));
            let bodies = bodies.iter().map(Vec::as_slice);
            let pending = self.connections.to(&address).start_all(bodies, terms);
            begun.extend(places.into_iter().zip(pending));
        }
        for (at, pending) in begun {
            let answer = pending.wait().map(|answer| envelope::answer(&answer));
            note_change(asked[at].request, &answer);
            answers[at] = match answer {
                Ok(answer) => self.learn_marks(asked[at].request, answer),
                Err(error) => Err(unreachable(asked[at].server, &error)),
            };
        }
        answers
    }

    fn server_count(&self) -> u32 {
        self.route().servers.len() as u32
    }

    fn policy(&self) -> SplitPolicy {
        self.route().policy
    }
}

/// Pauses that grow, until a deadline.
struct Pauses {
    next: Duration,
    deadline: Instant,
}

impl Pauses {
    fn new(deadline: Instant) -> Self {
        Pauses { next: PAUSE_MIN, deadline }
    }

    /// Waits until the next attempt. Returns false, at once, if the deadline is over.
    fn wait(&mut self) -> bool {
        if Instant::now() + self.next > self.deadline {
            return false;
        }
        thread::sleep(self.next);
        self.next = (2 * self.next).min(PAUSE_MAX);
        true
    }
}
