//! Servers with a process each, in one storage. A test can do something before and after each round of
//! a cut.

use canopy_cluster::{
    Client, CutMessage, Error, Peers, Process, Refusal, Request, Response, Sender, ServerRequest,
    SessionId, create_cluster,
};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Caller, Change, Moment, Operation, Page, Read, SnapshotsRequest,
};
use canopy_namespace::{
    EntryName, FileId, Inode, New, Ownership, ROOT, RenameMode, Reply, Settings, SnapshotInfo,
    system_clock,
};
use canopy_partition::{ServerId, SplitPolicy};
use canopy_store::Environment;
use canopy_store::storage::MemoryStorage;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub const SERVERS: u32 = 3;

/// Bytes of a chunk.
pub const CHUNK: usize = 4096;

pub fn settings() -> Settings {
    Settings { chunk_bytes: CHUNK as u64, inline_bytes_max: 100, ..Settings::default() }
}

/// Place of a message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before the server gets it.
    Before,
    /// After the server has done it.
    After,
}

/// Does something at a round of a server. Returns whether the message goes on.
pub type Hook = Arc<dyn Fn(&Arc<Net>, ServerId, CutMessage, At) -> bool + Send + Sync>;

pub struct Net {
    pub environment: Environment,
    policy: SplitPolicy,
    processes: RwLock<BTreeMap<ServerId, Arc<Process>>>,
    hook: Mutex<Option<Hook>>,
    /// Whether each process lives.
    lives: Mutex<BTreeMap<ServerId, Arc<AtomicBool>>>,
    /// Whether dead processes still reach others.
    dead_talk: AtomicBool,
    own: Weak<Net>,
}

impl Net {
    /// Starts servers whose partitions split at about so many entries.
    pub fn new(entries_max: u64) -> Arc<Self> {
        let policy = SplitPolicy { entries_max, variation_percent: 25, partitions_per_server: 4 };
        let environment = Environment::system(Arc::new(MemoryStorage::default()));
        let settings = settings();
        let clock = system_clock();
        create_cluster(&environment, &settings, Ownership::ROOT, SERVERS, policy, &clock).unwrap();
        let net = Arc::new_cyclic(|own| Net {
            environment,
            policy,
            processes: RwLock::default(),
            hook: Mutex::default(),
            lives: Mutex::default(),
            dead_talk: AtomicBool::new(true),
            own: own.clone(),
        });
        net.servers().for_each(|server| net.restart(server));
        net
    }

    pub fn servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..SERVERS).map(ServerId)
    }

    /// Kills the process of a server: what is only in its memory is lost. A thread of it that runs
    /// goes on, and does not know.
    pub fn kill(&self, server: ServerId) {
        if let Some(lives) = self.lives.lock().remove(&server)
            && !self.dead_talk.load(Ordering::Relaxed)
        {
            lives.store(false, Ordering::Relaxed);
        }
        self.processes.write().remove(&server);
    }

    /// Starts a new process for a server.
    pub fn restart(&self, server: ServerId) {
        self.kill(server);
        let lives = Arc::new(AtomicBool::new(true));
        self.lives.lock().insert(server, lives.clone());
        let others: Arc<dyn Peers> = Arc::new(Line(self.own.clone(), lives));
        let process = Process::new(&self.environment, &system_clock(), Some(others)).unwrap();
        process.start(server).unwrap();
        self.processes.write().insert(server, process);
    }

    /// Has dead processes reach nobody from now on.
    pub fn silence_the_dead(&self) {
        self.dead_talk.store(false, Ordering::Relaxed);
    }

    pub fn set_hook(&self, hook: Option<Hook>) {
        *self.hook.lock() = hook;
    }

    pub fn process(&self, server: ServerId) -> Result<Arc<Process>, Error> {
        let process = self.processes.read().get(&server).cloned();
        process.ok_or_else(|| unreachable(server))
    }

    /// Makes everything outlast a crash.
    pub fn sync(&self) {
        let processes = Vec::from_iter(self.processes.read().values().cloned());
        processes.iter().for_each(|process| process.sync().unwrap());
    }

    /// Returns the number of checkpoints of a server's table.
    pub fn checkpoints(&self, server: ServerId) -> usize {
        let table = self.process(server).unwrap().table_of(server).unwrap();
        canopy_store::inspect(&self.environment, table).unwrap().state.checkpoints.len()
    }

    /// Waits until nothing is left to be done beside requests.
    pub fn settle(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let processes = Vec::from_iter(self.processes.read().values().cloned());
            if processes.iter().all(|process| process.is_at_rest().unwrap()) {
                return;
            }
            assert!(Instant::now() < end, "the servers do not come to rest");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns a client that knows nothing, and tries for so long where a server is dead.
    pub fn client_for(&self, patience: Duration) -> Client {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let session = SessionId(NEXT.fetch_add(1, Ordering::Relaxed));
        let lives = Arc::new(AtomicBool::new(true));
        Client::new(Arc::new(Line(self.own.clone(), lives)), session).with_patience(patience)
    }

    pub fn client(&self) -> Client {
        self.client_for(Duration::from_secs(30))
    }

    /// Makes a directory whose home is this server.
    pub fn directory_at(&self, server: u32) -> FileId {
        let client = self.client();
        let is_there = |name: &str| lookup(&client, Moment::Now, ROOT, name).is_some();
        let hash = |name: &String| EntryName::new(ROOT, name.as_bytes()).hash();
        let mut names = (0..).map(|number| format!("at{server}-{number}"));
        let is_it =
            |name: &String| hash(name) % u64::from(SERVERS) == u64::from(server) && !is_there(name);
        let name = names.find(is_it).unwrap();
        create(&client, ROOT, &name, file_type::DIRECTORY | 0o755).unwrap().id
    }
}

/// The net, as a process or a client reaches it while it lives.
struct Line(Weak<Net>, Arc<AtomicBool>);

impl Peers for Line {
    fn ask(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response, Error> {
        let net = self.0.upgrade().filter(|_| self.1.load(Ordering::Relaxed));
        let net = net.ok_or_else(|| unreachable(server))?;
        let hook = net.hook.lock().clone();
        let passes = |at| match (&hook, request) {
            (Some(hook), Request::OfServer(ServerRequest::Cut(_, step))) => {
                hook(&net, server, *step, at)
            }
            _ => true,
        };
        if !passes(At::Before) {
            return Err(unreachable(server));
        }
        let process = net.process(server)?;
        let response = process.answer(server, sender, request);
        // An answer outlasts a crash. One that has lost its table does not answer.
        let synced = process.sync_server(server).is_ok();
        match passes(At::After) && synced {
            // As it comes over a network.
            true => response.map_err(|error| Refusal::from(&error).into()),
            false => Err(unreachable(server)),
        }
    }

    fn server_count(&self) -> u32 {
        SERVERS
    }

    fn policy(&self) -> SplitPolicy {
        self.0.upgrade().expect("a net").policy
    }
}

fn unreachable(server: ServerId) -> Error {
    Error::Unreachable { server, why: "it is dead".into() }
}

pub fn execute(client: &Client, operation: &Operation<'_>) -> Result<Reply, Error> {
    client.execute_for(Caller::Trusted, operation)
}

pub fn change(client: &Client, change: Change<'_>) -> Result<Reply, Error> {
    execute(client, &Operation::Change(change))
}

pub fn create(client: &Client, directory: FileId, name: &str, mode: u32) -> Result<Inode, Error> {
    let new = New { mode, uid: 7, gid: 7, ..New::default() };
    let name = EntryName::new(directory, name.as_bytes());
    match change(client, Change::Create { name, new: Cow::Owned(new), holds: false })? {
        Reply::Inode(inode) => Ok(inode),
        other => panic!("{other:?}"),
    }
}

pub fn rename(client: &Client, from: (FileId, &str), to: (FileId, &str)) -> Result<Reply, Error> {
    let from = EntryName::new(from.0, from.1.as_bytes());
    let to = EntryName::new(to.0, to.1.as_bytes());
    change(client, Change::Rename { from, to, mode: RenameMode::Replace, whiteout: None })
}

pub fn link(client: &Client, id: FileId, name: (FileId, &str)) -> Result<Reply, Error> {
    change(client, Change::Link { id, name: EntryName::new(name.0, name.1.as_bytes()) })
}

/// Returns the inode of a name; none if there is no such name.
pub fn lookup(client: &Client, at: Moment, directory: FileId, name: &str) -> Option<Inode> {
    let lookup = Read::Lookup(EntryName::new(directory, name.as_bytes()));
    match execute(client, &Operation::Read(at, lookup)) {
        Ok(Reply::Inode(inode)) => Some(inode),
        Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => None,
        other => panic!("{name}: {other:?}"),
    }
}

pub fn list(client: &Client, at: Moment, directory: FileId) -> Vec<(String, Inode)> {
    let (mut names, mut after) = (Vec::new(), 0);
    loop {
        let page = Page { directory, after, name: None, count_max: 100 };
        let reply = execute(client, &Operation::Read(at, Read::List(page)));
        let Ok(Reply::Entries(entries)) = reply else { panic!("{at:?} {directory}: {reply:?}") };
        if entries.count() == 0 {
            return names;
        }
        for entry in entries.iter() {
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            names.push((name, entry.inode.clone()));
            after = entry.cookie;
        }
    }
}

pub fn create_snapshot(client: &Client, name: &str) -> Result<SnapshotInfo, Error> {
    match execute(client, &Operation::Snapshots(SnapshotsRequest::Create(name)))? {
        Reply::Snapshots(mut made) => Ok(made.pop().unwrap()),
        other => panic!("{other:?}"),
    }
}

pub fn delete_snapshot(client: &Client, name: &str) -> Result<Reply, Error> {
    execute(client, &Operation::Snapshots(SnapshotsRequest::Delete(name)))
}

/// Returns the numbers of all snapshots that have names.
pub fn snapshots(client: &Client) -> BTreeMap<String, u64> {
    let (all, is_making) = client.snapshots().unwrap();
    assert!(!is_making);
    all.into_iter().filter_map(|one| Some((one.name?, one.number))).collect()
}

/// Returns the error of the system that a request failed with.
pub fn errno<T: std::fmt::Debug>(result: Result<T, Error>) -> Errno {
    match result {
        Err(Error::Namespace(error)) => error.errno(),
        other => panic!("{other:?}"),
    }
}
