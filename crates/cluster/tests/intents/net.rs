//! Servers with a process each, in one storage, and a net between them: messages of intents get lost,
//! and processes die before or after them.

use canopy_cluster::{
    Client, Error, HandOverHook, IntentMessage, Peers, Process, Request, Response, Sender,
    ServerRequest, SessionId, create_cluster,
};
use canopy_model::ErrorKind;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Page, Read};
use canopy_namespace::{
    EntryName, FileId, Inode, New, Ownership, ROOT, RenameMode, Reply, Settings, system_clock,
};
use canopy_partition::{PartitionId, ServerId, SplitPolicy};
use canopy_store::Environment;
use canopy_store::storage::MemoryStorage;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub const POLICY: SplitPolicy =
    SplitPolicy { entries_max: 1 << 20, variation_percent: 25, partitions_per_server: 4 };

/// Fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    /// It does not arrive.
    Lost,
    /// Its reply does not.
    ReplyLost,
    /// The process of this server dies before it arrives.
    KillBefore(ServerId),
    /// The process of this server dies before its reply arrives.
    KillAfter(ServerId),
}

pub type Faults = Box<dyn FnMut(ServerId, &IntentMessage<'_>) -> Fate + Send>;

pub struct Net {
    environment: Environment,
    policy: SplitPolicy,
    count: u32,
    processes: RwLock<BTreeMap<ServerId, Arc<Process>>>,
    faults: Mutex<Option<Faults>>,
    /// Held for reading by messages with which a server dies.
    deaths: RwLock<()>,
    own: Weak<Net>,
}

impl Net {
    pub fn new(count: u32, policy: SplitPolicy) -> Arc<Self> {
        let environment = Environment::system(Arc::new(MemoryStorage::default()));
        let settings = Settings::default().with_indexes(&["size", "name"]).unwrap();
        let clock = system_clock();
        create_cluster(&environment, &settings, Ownership::ROOT, count, policy, &clock).unwrap();
        let net = Arc::new_cyclic(|own| Net {
            environment,
            policy,
            count,
            processes: RwLock::default(),
            faults: Mutex::default(),
            deaths: RwLock::default(),
            own: own.clone(),
        });
        net.servers().for_each(|server| net.restart(server));
        net
    }

    pub fn servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.count).map(ServerId)
    }

    /// Kills the process of a server: what is only in its memory is lost. A thread of it that runs
    /// goes on, and does not know.
    pub fn kill(&self, server: ServerId) {
        self.processes.write().remove(&server);
    }

    /// Starts a new process for a server.
    pub fn restart(&self, server: ServerId) {
        self.kill(server);
        let others: Arc<dyn Peers> = Arc::new(Line(self.own.clone()));
        let clock = system_clock();
        let process = Process::new(&self.environment, &clock, Some(others)).unwrap();
        process.start(server).unwrap();
        self.processes.write().insert(server, process);
    }

    /// Splits the first partition of a directory, at its home.
    pub fn split(
        &self,
        home: ServerId,
        directory: FileId,
        steps: &mut dyn HandOverHook,
    ) -> Result<bool, Error> {
        self.process(home)?.split(directory, PartitionId::ZERO, steps)
    }

    /// Sets the fates of messages from now on. Servers that earlier messages kill have died by then.
    pub fn set_faults(&self, faults: Option<Faults>) {
        *self.faults.lock() = faults;
        drop(self.deaths.write());
    }

    fn process(&self, server: ServerId) -> Result<Arc<Process>, Error> {
        let process = self.processes.read().get(&server).cloned();
        process.ok_or_else(|| unreachable(server))
    }

    /// Returns the fate of a message, and a guard if a server dies with it.
    fn fate(
        &self,
        server: ServerId,
        request: &Request<'_>,
    ) -> (Fate, Option<RwLockReadGuard<'_, ()>>) {
        let Request::OfServer(ServerRequest::Intent(_, step)) = request else {
            return (Fate::Arrives, None);
        };
        let mut faults = self.faults.lock();
        let fate = faults.as_mut().map_or(Fate::Arrives, |faults| faults(server, step));
        let kills = matches!(fate, Fate::KillBefore(_) | Fate::KillAfter(_));
        (fate, kills.then(|| self.deaths.read()))
    }

    /// Makes everything outlast a crash.
    pub fn sync(&self) {
        let processes = Vec::from_iter(self.processes.read().values().cloned());
        processes.iter().for_each(|process| process.sync().unwrap());
    }

    /// Waits until nothing of any change is left to be done.
    pub fn settle(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let processes = Vec::from_iter(self.processes.read().values().cloned());
            if processes.iter().all(|process| process.is_at_rest().unwrap()) {
                return;
            }
            assert!(Instant::now() < end, "the servers do not come to rest");
            std::thread::yield_now();
        }
    }

    /// Checks all records of all servers, which live.
    pub fn assert_sound(&self) {
        let line = Line(self.own.clone());
        let storage = &*self.environment.storage;
        let faults = canopy_cluster::check::check(&line, storage, &|_| {}).unwrap();
        let faults = Vec::from_iter(faults.iter().map(ToString::to_string));
        assert!(faults.is_empty(), "{faults:#?}");
    }

    /// Returns a client that knows nothing, and does not try again where a server is dead.
    pub fn client(&self) -> Client {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let session = SessionId(NEXT.fetch_add(1, Ordering::Relaxed));
        Client::new(Arc::new(Line(self.own.clone())), session).with_patience(Duration::ZERO)
    }

    /// Returns the way to the servers.
    pub fn peers(&self) -> Arc<dyn Peers> {
        Arc::new(Line(self.own.clone()))
    }

    /// Makes a directory whose home is this server.
    pub fn directory_at(&self, server: u32, mode: u32, uid: u32) -> FileId {
        let client = self.client();
        for number in 0.. {
            let name = format!("at{server}-{number}");
            let entry = EntryName::new(ROOT, name.as_bytes());
            if entry.hash() % u64::from(self.count) == u64::from(server)
                && lookup(&client, ROOT, &name).is_none()
            {
                return create(&client, ROOT, &name, file_type::DIRECTORY | mode, uid).unwrap().id;
            }
        }
        unreachable!()
    }
}

/// The net, as a process reaches it.
struct Line(Weak<Net>);

impl Line {
    fn net(&self, server: ServerId) -> Result<Arc<Net>, Error> {
        self.0.upgrade().ok_or_else(|| unreachable(server))
    }
}

impl Peers for Line {
    fn ask(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response, Error> {
        let net = self.net(server)?;
        let (fate, _death) = net.fate(server, request);
        match fate {
            Fate::Lost => return Err(unreachable(server)),
            Fate::KillBefore(victim) => net.kill(victim),
            _ => {}
        }
        let response = net.process(server)?.answer(server, sender, request);
        match fate {
            Fate::KillAfter(victim) => {
                net.kill(victim);
                Err(unreachable(server))
            }
            Fate::ReplyLost => Err(unreachable(server)),
            _ => response,
        }
    }

    fn server_count(&self) -> u32 {
        self.0.upgrade().map_or(0, |net| net.count)
    }

    fn policy(&self) -> SplitPolicy {
        self.0.upgrade().map_or(POLICY, |net| net.policy)
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

pub fn create(
    client: &Client,
    directory: FileId,
    name: &str,
    mode: u32,
    uid: u32,
) -> Result<Inode, Error> {
    let new = New { mode, uid, gid: uid, ..New::default() };
    let name = EntryName::new(directory, name.as_bytes());
    match change(client, Change::Create { name, new: Cow::Owned(new), holds: false })? {
        Reply::Inode(inode) => Ok(inode),
        other => panic!("{other:?}"),
    }
}

pub fn file(client: &Client, directory: FileId, name: &str) -> FileId {
    create(client, directory, name, file_type::REGULAR | 0o644, 7).unwrap().id
}

/// Returns the inode of a name; none if there is no such name. Tries again while servers are dead.
pub fn lookup(client: &Client, directory: FileId, name: &str) -> Option<Inode> {
    let lookup = Read::Lookup(EntryName::new(directory, name.as_bytes()));
    loop {
        match execute(client, &Operation::Read(Moment::Now, lookup.clone())) {
            Ok(Reply::Inode(inode)) => return Some(inode),
            Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => return None,
            Err(Error::Unreachable { .. } | Error::NotRunning(_)) => std::thread::yield_now(),
            // A process that does not know that it is dead may answer, too.
            Err(Error::Namespace(error))
                if [ErrorKind::Unavailable, ErrorKind::Taken].contains(&error.kind()) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
}

pub fn list(client: &Client, directory: FileId) -> Vec<(String, Inode)> {
    let (mut names, mut after) = (Vec::new(), 0);
    loop {
        let page = Page { directory, after, name: None, count_max: 100 };
        let reply = execute(client, &Operation::Read(Moment::Now, Read::List(page)));
        let Ok(Reply::Entries(entries)) = reply else { panic!("{reply:?}") };
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

pub type Name<'a> = (FileId, &'a str);

pub fn rename(
    client: &Client,
    from: Name<'_>,
    to: Name<'_>,
    mode: RenameMode,
) -> Result<Reply, Error> {
    let from = EntryName::new(from.0, from.1.as_bytes());
    let to = EntryName::new(to.0, to.1.as_bytes());
    change(client, Change::Rename { from, to, mode, whiteout: None })
}

pub fn link(client: &Client, id: FileId, name: Name<'_>) -> Result<Reply, Error> {
    change(client, Change::Link { id, name: EntryName::new(name.0, name.1.as_bytes()) })
}

pub fn unlink(client: &Client, name: Name<'_>) -> Result<Reply, Error> {
    change(client, Change::Unlink(EntryName::new(name.0, name.1.as_bytes())))
}

pub fn rmdir(client: &Client, name: Name<'_>) -> Result<Reply, Error> {
    change(client, Change::Rmdir(EntryName::new(name.0, name.1.as_bytes())))
}
