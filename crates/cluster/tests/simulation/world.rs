//! Processes of a cluster, and a network that loses, repeats and delays what they and clients send.
//! The code of servers and clients is the real one, and so are the bytes of requests and replies.
//!
//! Membership is simulated: its own code has tests of its own (`membership`). A process answers while
//! its lease lasts by its own clock; others take its servers over once it has ended by theirs.

use crate::disk::{Disk, Machine};
use crate::scheduler::{HostId, Scheduler};
use canopy_cluster::{
    Error, Pace, Peers, Process, Refusal, Request, Response, Sender, SessionId, SessionSettings,
    add_tables, create_cluster,
};
use canopy_model::ErrorKind;
use canopy_namespace::operation::Caller;
use canopy_namespace::{Ownership, Settings};
use canopy_partition::{ServerId, SplitPolicy};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Partitions split once they have some ten entries.
pub const POLICY: SplitPolicy =
    SplitPolicy { entries_max: 8, variation_percent: 25, partitions_per_server: 2 };

/// Length of a lease.
const LEASE: Duration = Duration::from_millis(500);

/// Longest time until work beside requests begins, and until a process looks at its clock.
const REST: Duration = Duration::from_millis(20);
const TICK: Duration = Duration::from_millis(300);

/// Rates of clocks in thousandths: within a tenth of each other.
const RATES: [u64; 2] = [956, 1044];

/// How often messages get lost and so on, of 10,000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: u64,
    pub reply_lost: u64,
    pub twice: u64,
    /// Arrives after its sender has given up.
    pub late: u64,
    pub delayed: u64,
}

pub struct World {
    pub scheduler: Arc<Scheduler>,
    pub disk: Arc<Disk>,
    servers: AtomicU32,
    pub is_over: AtomicBool,
    pub state: Mutex<State>,
    /// Failures of the servers' own work, which are tried again.
    messages: AtomicU64,
    me: Weak<World>,
}

pub struct State {
    pub faults: Faults,
    pub hosts: Vec<Host>,
    /// Where each server runs by the map.
    pub map: Vec<Option<HostId>>,
    /// The former place of each.
    former: Vec<Option<HostId>>,
    /// Pairs of hosts that do not reach each other.
    pub cuts: BTreeSet<(HostId, HostId)>,
    /// Messages that will arrive though nobody waits for them.
    pub late: u64,
}

pub struct Host {
    pub machine: Arc<Machine>,
    /// None for a client, and after death.
    pub process: Option<Arc<Process>>,
    /// Rate of its clock, in thousandths.
    rate: u64,
    /// The thread that does its work beside requests, while there is none.
    worker: Option<u64>,
    /// The moment of its last renewal that others have seen.
    renewed_us: u64,
    /// The moment from which on its own lease lasts; none if it is not in the map.
    leased_us: Option<u64>,
    pub is_member: bool,
}

/// A message with a request, as it arrives.
#[derive(Clone)]
struct Message {
    server: ServerId,
    session: SessionId,
    number: u64,
    body: Arc<[u8]>,
    is_of_server: bool,
}

type Answer = Result<Response, Error>;

impl World {
    pub fn new(scheduler: &Arc<Scheduler>, servers: u32, has_ordered_listings: bool) -> Arc<Self> {
        let disk = Disk::new(has_ordered_listings);
        Arc::new_cyclic(|me| World {
            scheduler: scheduler.clone(),
            disk,
            servers: AtomicU32::new(servers),
            is_over: AtomicBool::new(false),
            state: Mutex::new(State {
                faults: Faults::default(),
                hosts: Vec::new(),
                map: vec![None; servers as usize],
                former: vec![None; servers as usize],
                cuts: BTreeSet::new(),
                late: 0,
            }),
            messages: AtomicU64::new(0),
            me: me.clone(),
        })
    }

    fn arc(&self) -> Arc<World> {
        self.me.upgrade().expect("the world")
    }

    pub fn message_count(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    pub fn has_ended(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn machine(&self, host: Option<HostId>) -> Arc<Machine> {
        Arc::new(Machine {
            scheduler: self.scheduler.clone(),
            disk: self.disk.clone(),
            host,
            is_cut_off: AtomicBool::new(false),
            off_ms: AtomicI64::new(0),
        })
    }

    /// Makes the tables.
    pub fn create(&self) {
        let settings = Settings::default().with_indexes(&["size", "name"]).expect("settings");
        let environment = self.machine(None).environment();
        let clock = self.wall_clock();
        create_cluster(
            &environment,
            &settings,
            Ownership::ROOT,
            self.server_count(),
            POLICY,
            &clock,
        )
        .expect("a cluster");
    }

    pub fn server_count(&self) -> u32 {
        self.servers.load(Ordering::Relaxed)
    }

    /// Adds a server. Processes and clients do not know of it.
    pub fn add_server(&self) {
        let environment = self.machine(None).environment();
        let count = add_tables(&environment, 1, &self.wall_clock()).expect("a table");
        self.scheduler.trace(|| format!("{count} servers"));
        let mut state = self.state.lock();
        state.map.push(None);
        state.former.push(None);
        self.servers.store(count, Ordering::Relaxed);
    }

    /// Returns the time that is written into files. It never stands still, so that two are not equal.
    fn wall_clock(&self) -> canopy_namespace::Clock {
        let scheduler = self.scheduler.clone();
        Arc::new(move || scheduler.now_us() as i64 * 1000)
    }

    pub fn add_host(&self) -> HostId {
        let mut state = self.state.lock();
        let id = state.hosts.len();
        let rate = RATES[0] + self.scheduler.below(RATES[1] - RATES[0] + 1);
        let now_us = self.scheduler.now_us();
        state.hosts.push(Host {
            machine: self.machine(Some(id)),
            process: None,
            worker: None,
            rate,
            renewed_us: now_us,
            leased_us: None,
            is_member: false,
        });
        id
    }

    /// Starts a process, which gets servers as others die.
    pub fn start_process(&self) -> HostId {
        let id = self.add_host();
        let world = self.arc();
        let machine = self.state.lock().hosts[id].machine.clone();
        let scheduler = self.scheduler.clone();
        let sessions = SessionSettings {
            clock: Arc::new(move || Duration::from_micros(scheduler.now_us())),
            lease: Duration::from_secs(120),
            grace: Duration::from_secs(30),
            ..SessionSettings::default()
        };
        let line: Arc<dyn Peers> = self.line(id);
        // It begins without faults: one that does not start tries again.
        let environment = machine.environment();
        let pace = Arc::new(Paced { scheduler: self.scheduler.clone() });
        let process =
            Process::simulated(&environment, &world.wall_clock(), sessions, Some(line), pace);
        let Ok(process) = process else {
            self.scheduler.kill(id);
            return id;
        };
        {
            let host = &mut self.state.lock().hosts[id];
            host.process = Some(process.clone());
            host.is_member = true;
            host.renewed_us = self.scheduler.now_us();
        }
        let (working, worker) = (world.clone(), process);
        self.scheduler.spawn(Some(id), move || world.be_member(id));
        self.scheduler.spawn(Some(id), move || {
            while !working.has_ended() {
                let retries = working.scheduler.chance(3000);
                if !worker.work_once(retries) {
                    worker.tick();
                    working.rest_worker(id, if worker.has_work() { REST } else { TICK });
                }
            }
        });
        id
    }

    /// Has the thread that does work beside requests wait for some.
    fn rest_worker(&self, host: HostId, longest: Duration) {
        self.state.lock().hosts[host].worker = Some(self.scheduler.me());
        self.scheduler.sleep_between(longest / 20, longest);
        self.state.lock().hosts[host].worker = None;
    }

    fn wake_worker(&self, host: HostId, process: &Process) {
        let worker = self.state.lock().hosts[host].worker.filter(|_| process.has_work());
        worker.into_iter().for_each(|worker| self.scheduler.wake_within(worker, REST));
    }

    /// Returns the way of a host to servers.
    pub fn line(&self, from: HostId) -> Arc<Line> {
        Arc::new(Line { world: self.me.clone(), from, servers: self.server_count() })
    }

    pub fn process(&self, host: HostId) -> Option<Arc<Process>> {
        self.state.lock().hosts.get(host)?.process.clone()
    }

    /// Returns the processes that live.
    pub fn living(&self) -> Vec<HostId> {
        let state = self.state.lock();
        let lives = |(id, host): (usize, &Host)| host.process.is_some().then_some(id);
        state.hosts.iter().enumerate().filter_map(lives).collect()
    }

    /// Kills a process.
    pub fn kill(&self, host: HostId) {
        self.scheduler.trace(|| format!("kill {host}"));
        self.scheduler.kill(host);
        let process = self.state.lock().hosts[host].process.take();
        drop(process);
    }

    /// Renews a lease, looks at the map, and does what it says.
    fn be_member(&self, me: HostId) {
        let rest = Duration::from_millis(150);
        while !self.has_ended() {
            self.scheduler.sleep_between(rest / 3, rest);
            let is_cut_off = {
                let state = self.state.lock();
                state.hosts[me].machine.is_cut_off.load(Ordering::Relaxed)
            };
            if is_cut_off {
                continue;
            }
            let renewed_us = self.scheduler.now_us();
            self.state.lock().hosts[me].renewed_us = renewed_us;
            if self.scheduler.chance(3000) {
                self.scheduler.yield_now();
            }
            let is_member = {
                let host = &mut self.state.lock().hosts[me];
                host.leased_us = host.is_member.then_some(renewed_us);
                host.is_member
            };
            if is_member {
                self.take_over(me);
                self.follow_map(me);
            } else {
                // Others have removed it: it stops, and joins again.
                let process = self.process(me);
                for server in process.iter().flat_map(|process| process.running()) {
                    let _ = process.as_ref().map(|process| process.stop(server));
                }
                let host = &mut self.state.lock().hosts[me];
                host.is_member = true;
                host.renewed_us = self.scheduler.now_us();
            }
        }
    }

    /// Removes members whose leases have ended, by the clock of this one, and gives their servers to
    /// others. Clocks of two processes differ by a tenth at most.
    fn take_over(&self, me: HostId) {
        let now_us = self.scheduler.now_us();
        let mut state = self.state.lock();
        let rate = state.hosts[me].rate;
        for host in &mut state.hosts {
            let silent_us = now_us.saturating_sub(host.renewed_us) * rate / 1000;
            if host.is_member && silent_us as u128 > LEASE.as_micros() * 11 / 10 {
                host.is_member = false;
            }
        }
        let members = (0..state.hosts.len()).filter(|id| state.hosts[*id].is_member);
        let members = Vec::from_iter(members);
        for server in 0..state.map.len() {
            let place = state.map[server];
            if place.is_none_or(|place| !members.contains(&place)) {
                let to = members[self.scheduler.below(members.len() as u64) as usize];
                state.former[server] = place;
                state.map[server] = Some(to);
                self.scheduler.trace(|| format!("server {server}: {place:?} to {to}"));
            }
        }
    }

    /// Starts and stops servers, as the map says.
    fn follow_map(&self, me: HostId) {
        let Some(process) = self.process(me) else { return };
        // It tries again if storage fails.
        let _ = process.learn_servers(self.server_count());
        let running = process.running();
        for server in (0..self.server_count()).map(ServerId) {
            let is_mine = self.state.lock().map[server.0 as usize] == Some(me);
            match (is_mine, running.contains(&server)) {
                (true, false) => {
                    let started = process.start(server);
                    self.scheduler.trace(|| format!("{me} starts {server}: {started:?}"));
                    self.wake_worker(me, &process);
                }
                // It has answered all that it was asked, durably.
                (false, true) => _ = process.stop(server),
                _ => {}
            }
        }
    }

    /// Moves a server to another process, as one does that leaves.
    pub fn move_server(&self, server: ServerId, to: HostId) {
        let at = server.0 as usize;
        let from = self.state.lock().map[at];
        let Some((from, process)) = from.and_then(|from| Some((from, self.process(from)?))) else {
            return;
        };
        let world = self.arc();
        self.scheduler.spawn(Some(from), move || {
            let stopped = process.stop(server);
            world.scheduler.trace(|| format!("{from} gives {server} to {to}: {stopped:?}"));
            let mut state = world.state.lock();
            if state.map[at] == Some(from) && state.hosts[to].is_member {
                state.former[at] = Some(from);
                state.map[at] = Some(to);
            }
        });
    }

    /// Returns whether a process may answer for a server, by its own clock.
    fn may_answer(&self, host: HostId) -> bool {
        let now_us = self.scheduler.now_us();
        let state = self.state.lock();
        let host = &state.hosts[host];
        let since_us = |leased_us: u64| now_us.saturating_sub(leased_us) * host.rate / 1000;
        host.leased_us.is_some_and(|leased| u128::from(since_us(leased)) < LEASE.as_micros())
    }

    /// Executes a request at a process, as `ListeningProcess` does.
    fn serve(&self, host: HostId, message: &Message) -> Answer {
        let server = message.server;
        let process = self.process(host).ok_or(Error::NotRunning(server))?;
        let request = postcard::from_bytes(&message.body).expect("a request");
        let caller = Caller::Trusted;
        let (session, number) = (message.session, message.number);
        let sender = Sender { caller, session, number, life: None };
        let epoch = process.epoch_of(server)?;
        let answer = process.answer(server, sender, &request);
        self.wake_worker(host, &process);
        let without_loss = |error: Error| match &error {
            Error::Namespace(canopy_namespace::Error::Store(store))
                if store.kind() == ErrorKind::Taken || process.has_failed(server) =>
            {
                let stopped = process.stop(server);
                self.scheduler.trace(|| format!("{host} loses {server}: {stopped:?}"));
                Error::NotRunning(server)
            }
            _ => error,
        };
        let answer = answer.map_err(without_loss);
        process.sync_epoch(server, epoch).map_err(without_loss)?;
        match self.may_answer(host) {
            true => answer,
            false => Err(Error::NotRunning(server)),
        }
    }

    /// Executes a request, and returns the reply as it arrives.
    fn serve_message(&self, host: HostId, message: &Message) -> Answer {
        let answer = self.serve(host, message).map_err(|error| Refusal::from(&error));
        let bytes = postcard::to_extend(&answer, Vec::new()).expect("a reply");
        let answer: Result<Response, Refusal> = postcard::from_bytes(&bytes).expect("a reply");
        answer.map_err(Error::from)
    }

    /// Has a copy of a message arrive later.
    fn send_late(&self, from: HostId, message: &Message) {
        let (world, message) = (self.arc(), message.clone());
        self.state.lock().late += 1;
        self.scheduler.spawn(None, move || {
            let most = Duration::from_millis([5, 50, 2_000][world.scheduler.below(3) as usize]);
            world.scheduler.sleep_between(Duration::ZERO, most);
            if let Some(target) = world.target(from, message.server) {
                world.scheduler.trace(|| format!("late at {target}"));
                let _ = world.execute_at(target, &message, Duration::from_secs(30));
            }
            world.state.lock().late -= 1;
        });
    }

    /// Returns the process that a sender believes to run a server.
    fn target(&self, from: HostId, server: ServerId) -> Option<HostId> {
        let is_stale = self.scheduler.chance(500);
        let state = self.state.lock();
        let at = server.0 as usize;
        let former = state.former[at].filter(|_| is_stale);
        let target = former.or(state.map[at])?;
        let is_cut = state.cuts.contains(&(from.min(target), from.max(target)));
        (!is_cut && state.hosts[target].process.is_some()).then_some(target)
    }

    /// Executes a message at a process, and waits for the reply. None if there is none in time.
    fn execute_at(&self, target: HostId, message: &Message, time: Duration) -> Option<Answer> {
        let scheduler = &self.scheduler;
        if message.is_of_server {
            // It waits for nobody.
            let is_awake = || !scheduler.is_paused(target);
            let steps = time.as_millis() as u64 / 20;
            let awake = (0..steps.max(1)).any(|_| {
                is_awake() || {
                    scheduler.sleep(Duration::from_millis(20));
                    false
                }
            });
            if !awake {
                return None;
            }
            let answer = scheduler.as_host(target, || self.serve_message(target, message));
            scheduler.check();
            return answer;
        }
        let reply = Arc::new(Mutex::new(None));
        let (world, message, replies) = (self.arc(), message.clone(), reply.clone());
        let asker = scheduler.me();
        scheduler.spawn(Some(target), move || {
            let answer = world.serve_message(target, &message);
            *replies.lock() = Some(answer);
            world.scheduler.wake(asker);
        });
        scheduler.wait_for(time, || reply.lock().is_some());
        let mut reply = reply.lock();
        reply.take()
    }

    fn send(&self, from: HostId, message: &Message, time: Duration) -> Answer {
        let scheduler = &self.scheduler;
        self.messages.fetch_add(1, Ordering::Relaxed);
        let unreachable = || Error::Unreachable { server: message.server, why: "lost".into() };
        let faults = self.state.lock().faults;
        if scheduler.chance(faults.delayed) {
            scheduler.sleep_between(Duration::ZERO, Duration::from_millis(8));
        } else {
            scheduler.yield_now();
        }
        if scheduler.chance(faults.twice) {
            self.send_late(from, message);
        }
        if scheduler.chance(faults.late) {
            self.send_late(from, message);
            scheduler.sleep(time);
            return Err(unreachable());
        }
        let Some(target) = self.target(from, message.server) else {
            scheduler.sleep_between(Duration::from_millis(1), Duration::from_millis(20));
            return Err(Error::NotRunning(message.server));
        };
        if scheduler.chance(faults.lost) {
            scheduler.sleep(time);
            return Err(unreachable());
        }
        let answer = self.execute_at(target, message, time);
        if scheduler.chance(faults.reply_lost) {
            scheduler.sleep(time);
            return Err(unreachable());
        }
        if scheduler.chance(5000) {
            scheduler.yield_now();
        }
        answer.unwrap_or_else(|| Err(unreachable()))
    }
}

/// The way of a host to servers, which sends again what nobody has answered, as `Remote` does.
pub struct Line {
    world: Weak<World>,
    from: HostId,
    servers: u32,
}

impl Peers for Line {
    fn ask(&self, server: ServerId, sender: Sender<'_>, request: &Request<'_>) -> Answer {
        let world = self.world.upgrade().ok_or(Error::NotRunning(server))?;
        let body = postcard::to_extend(request, Vec::new()).expect("a request");
        let is_of_server = matches!(request, Request::OfServer(_));
        let Sender { session, number, .. } = sender;
        let message = Message { server, session, number, body: body.into(), is_of_server };
        let time = Duration::from_millis([30, 300, 3000][world.scheduler.below(3) as usize]);
        let attempts = 1 + world.scheduler.below(3);
        let mut answer = Err(Error::NotRunning(server));
        for _ in 0..attempts {
            answer = world.send(self.from, &message, time);
            if !matches!(answer, Err(Error::Unreachable { .. } | Error::NotRunning(_))) {
                break;
            }
        }
        world.scheduler.trace(|| format!("{} asks {server} {request:?}: {answer:?}", self.from));
        answer
    }

    fn server_count(&self) -> u32 {
        self.servers
    }

    fn policy(&self) -> SplitPolicy {
        POLICY
    }
}

/// Time and waiting.
pub struct Paced {
    pub scheduler: Arc<Scheduler>,
}

impl Pace for Paced {
    fn now(&self) -> Duration {
        Duration::from_micros(self.scheduler.now_us())
    }

    fn pause(&self, longest: Duration) {
        self.scheduler.sleep_between(Duration::ZERO, longest);
    }

    fn has_threads(&self) -> bool {
        false
    }
}
