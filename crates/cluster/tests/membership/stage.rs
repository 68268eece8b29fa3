//! A cluster whose processes and storage misbehave on demand.

use canopy_cluster::membership::{
    ClusterMap, Hosting, Membership, MembershipError, MembershipSettings, ProcessId, ProcessState,
    newest_map,
};
use canopy_partition::ServerId;
use canopy_store::storage::{Append, Created, Listed, Storage};
use canopy_store::{
    Batch, Durability, Environment, Error, Key, Layout, Options, Result, SstableCache, Table,
    TableId, create,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Normal = 0,
    /// Every storage call waits, before it takes effect or after it.
    Paused = 1,
    /// Every storage call fails.
    CutOff = 2,
    /// Its calls fail for ever.
    Dead = 3,
}

/// Faults of storage that all processes have, and the writes that were acknowledged.
#[derive(Default)]
struct Weather {
    /// The state of a random generator; 0 while nothing fails.
    chance: AtomicU64,
    acknowledged: Mutex<BTreeSet<(u32, String)>>,
    refusals: AtomicU32,
    starts: AtomicU32,
    tables: Mutex<Vec<TableId>>,
}

/// Storage as one process sees it.
struct Gate {
    inner: Arc<dyn Storage>,
    pace: AtomicU8,
    weather: Arc<Weather>,
    /// Calls for objects of the membership: `create`, `list`, `size`, `remove`.
    calls: [AtomicU64; 4],
}

impl Gate {
    fn count(&self, call: usize, name: &str) {
        if name.starts_with("cluster/") {
            self.calls[call].fetch_add(1, Ordering::SeqCst);
        }
    }

    fn pass(&self, name: &str) -> Result<()> {
        loop {
            match self.pace.load(Ordering::SeqCst) {
                0 => return Ok(()),
                1 => std::thread::sleep(Duration::from_millis(1)),
                _ => return Err(Error::storage(name, io::Error::other("cut off"))),
            }
        }
    }

    /// Returns a number below `count`, 0 if nothing fails now.
    fn chance(&self, count: u64) -> u64 {
        let next = |state: u64| {
            let next = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state != 0).then_some(next | 1)
        };
        let chance = &self.weather.chance;
        match chance.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) {
            Ok(state) => (state >> 33) % count,
            Err(_) => 0,
        }
    }

    /// Passes the gate, does something, and passes the gate again.
    fn through<T>(&self, name: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.pass(name)?;
        let done = call();
        self.pass(name)?;
        done
    }
}

impl Storage for Gate {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<bytes::Bytes> {
        self.through(name, || self.inner.read_range(name, range))
    }

    fn read(&self, name: &str) -> Result<bytes::Bytes> {
        self.through(name, || self.inner.read(name))
    }

    fn size(&self, name: &str) -> Result<u64> {
        self.count(2, name);
        self.through(name, || self.inner.size(name))
    }

    fn create(&self, name: &str, bytes: bytes::Bytes) -> Result<Created> {
        self.count(0, name);
        let failed = || Err(Error::storage(name, io::Error::other("no answer")));
        let fails = self.chance(40);
        // Tables retry, but not for ever: only the objects of the membership fail.
        if name.starts_with("cluster/") && (1..=3).contains(&fails) {
            let inner = self.inner.clone();
            let (own, wait) = (name.to_owned(), Duration::from_millis(self.chance(400)));
            match fails {
                1 => {}
                2 => drop(self.inner.create(name, bytes)),
                // It takes effect later.
                _ => drop(std::thread::spawn(move || {
                    std::thread::sleep(wait);
                    let _ = inner.create(&own, bytes);
                })),
            }
            return failed();
        }
        self.through(name, || self.inner.create(name, bytes))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.count(1, prefix);
        self.through(prefix, || self.inner.list(prefix, after))
    }

    fn has_ordered_listings(&self) -> bool {
        self.inner.has_ordered_listings()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.count(3, name);
        self.through(name, || self.inner.remove(name))
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        self.through(name, || self.inner.append_to(name))
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.through(name, || self.inner.lock(name))
    }
}

/// The servers of one process, each with its table, to which a thread writes.
struct Host {
    address: String,
    environment: Environment,
    weather: Arc<Weather>,
    tables: Mutex<BTreeMap<ServerId, Arc<Table>>>,
    membership: OnceLock<Weak<Membership>>,
    is_closed: AtomicBool,
}

impl Hosting for Host {
    fn start(&self, server: ServerId) -> canopy_cluster::Result<()> {
        self.weather.starts.fetch_add(1, Ordering::SeqCst);
        let less = |left: u32| left.checked_sub(1);
        let refusals = &self.weather.refusals;
        if refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(Error::storage("a table", io::Error::other("refused")).into());
        }
        let table = self.weather.tables.lock().unwrap()[server.0 as usize];
        let cache = SstableCache::new(&self.environment, 1 << 20);
        let table = Table::open(&self.environment, table, cache, Options::default())?;
        let before = self.tables.lock().unwrap().insert(server, Arc::new(table));
        assert!(before.is_none(), "server {server} was started twice");
        Ok(())
    }

    fn stop(&self, server: ServerId) {
        let table = self.tables.lock().unwrap().remove(&server).expect("it was started");
        let _ = table.sync();
    }

    fn map_changed(&self, map: Arc<ClusterMap>) {
        assert!(map.version > 0);
    }
}

impl Host {
    /// Writes to all servers until the process ends.
    fn keep_writing(&self) {
        for number in 0u64.. {
            if self.is_closed.load(Ordering::SeqCst) {
                return;
            }
            let tables = self.tables.lock().unwrap().clone();
            for (server, table) in tables {
                let name = format!("{} {number} {:p}", self.address, self);
                let key = Key::named(7, name.as_bytes());
                let mut batch = Batch::new();
                batch.put(key.as_ref(), b"").unwrap();
                if table.write(&batch, Durability::Durable).is_ok() {
                    self.weather.acknowledged.lock().unwrap().insert((server.0, name));
                    continue;
                }
                let is_current = |one: &Arc<Table>| Arc::ptr_eq(one, &table);
                let is_running = self.tables.lock().unwrap().get(&server).is_some_and(is_current);
                if let Some(membership) = self.membership.get().and_then(Weak::upgrade)
                    && is_running
                {
                    membership.lost(server);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

struct Running {
    gate: Arc<Gate>,
    host: Arc<Host>,
    membership: Arc<Membership>,
    writer: std::thread::JoinHandle<()>,
}

/// Processes that share a storage.
pub struct Cluster {
    open: Box<dyn Fn() -> Arc<dyn Storage>>,
    storage: Arc<dyn Storage>,
    settings: MembershipSettings,
    weather: Arc<Weather>,
    processes: BTreeMap<String, Running>,
    /// Threads of processes that were killed.
    dead: Vec<std::thread::JoinHandle<()>>,
}

impl Cluster {
    pub fn new(servers: u32, lease: Duration, open: Box<dyn Fn() -> Arc<dyn Storage>>) -> Self {
        let mut cluster = Cluster {
            storage: open(),
            open,
            settings: MembershipSettings { servers: 0, lease, has_certificate: false },
            weather: Arc::default(),
            processes: BTreeMap::new(),
            dead: Vec::new(),
        };
        cluster.add_tables(servers);
        cluster
    }

    pub fn environment(&self) -> Environment {
        Environment::system(self.storage.clone())
    }

    pub fn add_tables(&mut self, count: u32) {
        for _ in 0..count {
            let table = create(&self.environment(), Layout::default(), &Options::default());
            self.weather.tables.lock().unwrap().push(table.unwrap());
            self.settings.servers += 1;
        }
    }

    pub fn map(&self) -> Option<ClusterMap> {
        newest_map(&*self.storage, 0).unwrap()
    }

    /// Has processes that start from now on have leases of this length.
    pub fn set_lease(&mut self, lease: Duration) {
        self.settings.lease = lease;
    }

    pub fn lease_ms(&self) -> u64 {
        self.settings.lease.as_millis() as u64
    }

    pub fn objects(&self, prefix: &str) -> usize {
        self.storage.list(prefix, "").unwrap().len()
    }

    pub fn fail_randomly(&self, seed: u64) {
        self.weather.chance.store(seed | 1, Ordering::SeqCst);
    }

    pub fn stop_failing(&self) {
        self.weather.chance.store(0, Ordering::SeqCst);
        // Late creations happen by then.
        std::thread::sleep(Duration::from_millis(400));
    }

    pub fn refuse_starts(&self, count: u32) {
        self.weather.refusals.store(count, Ordering::SeqCst);
    }

    pub fn starts(&self) -> u32 {
        self.weather.starts.load(Ordering::SeqCst)
    }

    /// Counts processes that run under another id than that of their start.
    pub fn takeovers(&self) -> usize {
        let map = self.map().unwrap_or_default();
        self.processes
            .values()
            .filter(|one| !map.processes.contains_key(&one.membership.process()))
            .count()
    }

    pub fn is_started(&self, address: &str) -> bool {
        self.processes.contains_key(address)
    }

    pub fn start(&mut self, address: &str) {
        self.try_start(address).unwrap();
    }

    pub fn try_start(&mut self, address: &str) -> std::result::Result<(), MembershipError> {
        let weather = self.weather.clone();
        let (inner, calls) = ((self.open)(), Default::default());
        let gate = Gate { inner, pace: AtomicU8::new(0), weather: weather.clone(), calls };
        let gate = Arc::new(gate);
        let environment = Environment::system(gate.clone());
        let host = Arc::new(Host {
            address: address.into(),
            environment: environment.clone(),
            weather,
            tables: Mutex::default(),
            membership: OnceLock::new(),
            is_closed: AtomicBool::new(false),
        });
        let joined = Membership::join(&environment, address, self.settings, host.clone());
        let membership = Arc::new(joined?);
        host.membership.set(Arc::downgrade(&membership)).unwrap();
        let writing = host.clone();
        let writer = std::thread::spawn(move || writing.keep_writing());
        let running = Running { gate, host, membership, writer };
        assert!(self.processes.insert(address.into(), running).is_none());
        Ok(())
    }

    pub fn pace(&self, address: &str, pace: Pace) {
        self.processes[address].gate.pace.store(pace as u8, Ordering::SeqCst);
    }

    /// Kills a process: nothing of it reaches storage any more.
    pub fn kill(&mut self, address: &str) {
        let running = self.processes.remove(address).unwrap();
        running.gate.pace.store(Pace::Dead as u8, Ordering::SeqCst);
        running.host.is_closed.store(true, Ordering::SeqCst);
        self.dead.push(running.writer);
    }

    pub fn leave(&mut self, address: &str) {
        let (left, writer) = self.left(address);
        left.unwrap();
        writer.join().unwrap();
    }

    /// Has a process leave, as far as storage allows.
    pub fn try_leave(&mut self, address: &str) {
        self.pace(address, Pace::Normal);
        let (_, writer) = self.left(address);
        self.dead.push(writer);
    }

    fn left(
        &mut self,
        address: &str,
    ) -> (std::result::Result<(), MembershipError>, std::thread::JoinHandle<()>) {
        let Running { gate, host, membership, writer } = self.processes.remove(address).unwrap();
        let mut shared = membership;
        // The writer holds it now and then.
        let membership = loop {
            match Arc::try_unwrap(shared) {
                Ok(membership) => break membership,
                Err(other) => shared = other,
            }
        };
        let left = membership.leave(LIMIT);
        host.is_closed.store(true, Ordering::SeqCst);
        gate.pace.store(Pace::Dead as u8, Ordering::SeqCst);
        (left, writer)
    }

    pub fn membership(&self, address: &str) -> &Membership {
        &self.processes[address].membership
    }

    pub fn calls(&self, address: &str) -> [u64; 4] {
        let calls = &self.processes[address].gate.calls;
        std::array::from_fn(|at| calls[at].load(Ordering::SeqCst))
    }

    pub fn process(&self, address: &str) -> ProcessId {
        self.membership(address).process()
    }

    pub fn running(&self, address: &str) -> Vec<ServerId> {
        self.processes[address].host.tables.lock().unwrap().keys().copied().collect()
    }

    /// Returns the addresses of the map's processes that serve.
    pub fn addresses(&self) -> Vec<String> {
        let map = self.map().unwrap_or_default();
        let serving = map.processes.values().filter(|one| one.state == ProcessState::Serving);
        let mut addresses = Vec::from_iter(serving.map(|one| one.address.clone()));
        addresses.sort();
        addresses
    }

    pub fn open_from_outside(&self, server: usize) {
        let environment = self.environment();
        let table = self.weather.tables.lock().unwrap()[server];
        let cache = SstableCache::new(&environment, 1 << 20);
        Table::open(&environment, table, cache, Options::default()).unwrap();
    }

    pub fn wait_until(&self, what: &str, holds: impl Fn(&Cluster) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !holds(self) {
            if Instant::now() > deadline {
                for (address, one) in &self.processes {
                    let (running, failures) = (self.running(address), one.membership.failures());
                    println!("{address}: {running:?} {failures:?} {:?}", one.membership.ended());
                }
                panic!("not so: {what}; {:?}", self.map());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until each server runs on the living process that the map gives it to, and nowhere else,
    /// and takes a write there.
    pub fn wait_for_rest(&self) {
        self.wait_until("the cluster comes to rest", |cluster| {
            let Some(map) = cluster.map() else { return false };
            let are_known = cluster.processes.values().all(|one| {
                let id = one.membership.process();
                map.processes.get(&id).is_some_and(|one| one.state != ProcessState::Joining)
                    && map.servers_of(id).eq(cluster.running(&one.host.address))
            });
            are_known
                && map.processes.len() == cluster.processes.len()
                && map.servers.iter().all(|one| one.process.is_some())
                && cluster.takes_writes()
        });
    }

    fn takes_writes(&self) -> bool {
        let hosts = self.processes.values().map(|one| &one.host);
        let tables = hosts.flat_map(|host| host.tables.lock().unwrap().clone().into_values());
        tables.into_iter().all(|table| {
            let mut batch = Batch::new();
            batch.put(Key::named(8, b"rest").as_ref(), b"").unwrap();
            table.write(&batch, Durability::Durable).is_ok()
        })
    }

    /// Ends all processes, and checks that every acknowledged write is there.
    pub fn check_writes(&mut self) {
        for address in Vec::from_iter(self.processes.keys().cloned()) {
            self.kill(&address);
        }
        for writer in self.dead.drain(..) {
            writer.join().unwrap();
        }
        let environment = self.environment();
        let cache = SstableCache::new(&environment, 1 << 20);
        let tables = self.weather.tables.lock().unwrap().clone();
        let open = |id| Table::open(&environment, id, cache.clone(), Options::default()).unwrap();
        let tables = Vec::from_iter(tables.into_iter().map(open));
        let acknowledged = self.weather.acknowledged.lock().unwrap();
        assert!(!acknowledged.is_empty(), "somebody wrote something");
        for (server, name) in acknowledged.iter() {
            let found = tables[*server as usize].get(Key::named(7, name.as_bytes()).as_ref());
            assert!(found.unwrap().is_some(), "{name:?} is lost on server {server}");
        }
    }
}
