//! Servers with a process each, in one storage, with a clock that tests set. Messages between them
//! get lost, and processes die before or after them.

use canopy_cluster::{
    Client, Error, HandOverStage, Peers, Process, ProcessSettings, Request, Response, Sender,
    ServerRequest, SessionId, SessionSettings, create_cluster,
};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Caller, Change, Changer, Moment, Operation, Page, Piece, QuotasRequest, Read, WriteSmall,
    Writer,
};
use canopy_namespace::quota::{Account, Limits, Quota};
use canopy_namespace::{
    Clock, EntryName, FileId, Inode, New, Ownership, ROOT, RenameMode, Reply, SetAttributes,
    Settings,
};
use canopy_partition::{PartitionId, ServerId, SplitPolicy};
use canopy_store::Environment;
use canopy_store::storage::MemoryStorage;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub const POLICY: SplitPolicy =
    SplitPolicy { entries_max: 1 << 20, variation_percent: 25, partitions_per_server: 4 };

/// A user with limits.
pub const ADA: u32 = 1000;
pub const BOB: u32 = 1001;

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

/// Decides about messages of servers to servers.
pub type Faults = Box<dyn FnMut(ServerId, &Request<'_>) -> Fate + Send>;

pub struct Place {
    environment: Environment,
    pub clock: Clock,
    pub now_ns: Arc<AtomicI64>,
    policy: SplitPolicy,
    count: u32,
    processes: RwLock<BTreeMap<ServerId, Arc<Process>>>,
    faults: Mutex<Option<Faults>>,
    /// Messages of servers to servers, and those about limits among them.
    pub messages: AtomicU64,
    own: Weak<Place>,
}

impl Place {
    pub fn new(count: u32) -> Arc<Self> {
        Self::with_policy(count, POLICY)
    }

    pub fn with_policy(count: u32, policy: SplitPolicy) -> Arc<Self> {
        let now_ns = Arc::new(AtomicI64::new(1_700_000_000_000_000_000));
        let now = now_ns.clone();
        let clock: Clock = Arc::new(move || now.fetch_add(1000, Ordering::Relaxed));
        let environment = Environment::system(Arc::new(MemoryStorage::default()));
        let settings = Settings::default().with_indexes(&["size", "name"]).unwrap();
        create_cluster(&environment, &settings, Ownership::ROOT, count, policy, &clock).unwrap();
        let place = Arc::new_cyclic(|own| Place {
            environment,
            clock,
            now_ns,
            policy,
            count,
            processes: RwLock::default(),
            faults: Mutex::default(),
            messages: AtomicU64::new(0),
            own: own.clone(),
        });
        place.servers().for_each(|server| place.restart(server));
        place
    }

    pub fn servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.count).map(ServerId)
    }

    /// Fails unless records of all servers fit together, and the sums of usage fit the files.
    pub fn assert_sound(&self) {
        let line = Line { place: self.own.clone(), is_server: false };
        let storage = &*self.environment.storage;
        let faults = canopy_cluster::check::check(&line, storage, &|_| {}).unwrap();
        let faults = Vec::from_iter(faults.iter().map(ToString::to_string));
        assert!(faults.is_empty(), "{faults:#?}");
    }

    /// Kills the process of a server: what is only in its memory is lost. A thread of it that runs
    /// goes on, and does not know.
    pub fn kill(&self, server: ServerId) {
        self.processes.write().remove(&server);
    }

    /// Starts a new process for a server.
    pub fn restart(&self, server: ServerId) {
        self.kill(server);
        let others: Arc<dyn Peers> = Arc::new(Line { place: self.own.clone(), is_server: true });
        // Files that lose their last names go at once.
        let sessions = SessionSettings { grace: Duration::ZERO, ..SessionSettings::default() };
        let settings = ProcessSettings { sessions, ..ProcessSettings::default() };
        let process =
            Process::with_settings(&self.environment, &self.clock, settings, Some(others));
        let process = process.unwrap();
        process.start(server).unwrap();
        process.tick();
        self.processes.write().insert(server, process);
    }

    /// Starts a new process for a server, which has all that the one before has done.
    pub fn replace(&self, server: ServerId) {
        self.process(server).unwrap().sync().unwrap();
        self.restart(server);
        self.settle();
    }

    pub fn restart_dead(&self) {
        for server in self.servers() {
            if !self.processes.read().contains_key(&server) {
                self.restart(server);
            }
        }
    }

    pub fn restart_all(&self) {
        let processes = Vec::from_iter(self.processes.read().values().cloned());
        processes.iter().for_each(|process| process.sync().unwrap());
        drop(processes);
        self.servers().for_each(|server| self.restart(server));
        self.settle();
    }

    /// Splits the first partition of a directory, at its home.
    pub fn split(&self, home: ServerId, directory: FileId) -> Result<bool, Error> {
        let steps = &mut |_: HandOverStage| true;
        self.process(home)?.split(directory, PartitionId::ZERO, steps)
    }

    pub fn set_faults(&self, faults: Option<Faults>) {
        *self.faults.lock() = faults;
    }

    fn process(&self, server: ServerId) -> Result<Arc<Process>, Error> {
        let process = self.processes.read().get(&server).cloned();
        process.ok_or_else(|| unreachable(server))
    }

    fn fate(&self, server: ServerId, request: &Request<'_>) -> Fate {
        match self.faults.lock().as_mut() {
            Some(faults) => faults(server, request),
            None => Fate::Arrives,
        }
    }

    /// Does what is due, and waits until nothing is left to be done.
    pub fn settle(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let processes = Vec::from_iter(self.processes.read().values().cloned());
            processes.iter().for_each(|process| process.tick());
            processes.iter().for_each(|process| process.settle());
            if processes.iter().all(|process| process.is_at_rest().unwrap()) {
                return;
            }
            assert!(Instant::now() < end, "the servers do not come to rest");
            std::thread::yield_now();
        }
    }

    /// Does what is due twice: the second time, what servers have reported in the first.
    pub fn review(&self) {
        self.settle();
        self.settle();
    }

    /// Does what is due until something is so: what has failed is tried again later.
    pub fn wait_until(&self, is_so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < end, "it does not become so");
            self.settle();
        }
    }

    /// Returns a client that knows nothing, and does not try again where a server is dead.
    pub fn client(&self) -> Client {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let session = SessionId(NEXT.fetch_add(1, Ordering::Relaxed));
        let line = Line { place: self.own.clone(), is_server: false };
        Client::new(Arc::new(line), session).with_patience(Duration::ZERO)
    }

    /// Makes a directory of root, for everybody, whose home is this server.
    pub fn directory_at(&self, server: u32) -> FileId {
        let client = self.client();
        for number in 0.. {
            let name = format!("at{server}-{number}");
            let entry = EntryName::new(ROOT, name.as_bytes());
            if entry.hash() % u64::from(self.count) == u64::from(server)
                && lookup(&client, ROOT, &name).is_none()
            {
                let mode = file_type::DIRECTORY | 0o777;
                return create(&client, ROOT, &name, mode, 0).unwrap().id;
            }
        }
        unreachable!()
    }

    pub fn directories(&self) -> Vec<FileId> {
        (0..self.count).map(|server| self.directory_at(server)).collect()
    }
}

/// The servers, as a process or a client reaches them.
struct Line {
    place: Weak<Place>,
    is_server: bool,
}

impl Peers for Line {
    fn ask(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response, Error> {
        let place = self.place.upgrade().ok_or_else(|| unreachable(server))?;
        let fate = if self.is_server { place.fate(server, request) } else { Fate::Arrives };
        if self.is_server
            && matches!(request, Request::Share(_) | Request::OfServer(ServerRequest::Share(_)))
        {
            place.messages.fetch_add(1, Ordering::Relaxed);
        }
        match fate {
            Fate::Lost => return Err(unreachable(server)),
            Fate::KillBefore(victim) => place.kill(victim),
            _ => {}
        }
        let response = place.process(server)?.answer(server, sender, request);
        match fate {
            Fate::KillAfter(victim) => {
                place.kill(victim);
                Err(unreachable(server))
            }
            Fate::ReplyLost => Err(unreachable(server)),
            _ => response,
        }
    }

    fn server_count(&self) -> u32 {
        self.place.upgrade().map_or(0, |place| place.count)
    }

    fn policy(&self) -> SplitPolicy {
        self.place.upgrade().map_or(POLICY, |place| place.policy)
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

/// Makes a file; an error of the system if that is not possible.
pub fn file(client: &Client, directory: FileId, name: &str, uid: u32) -> Result<FileId, Errno> {
    match create(client, directory, name, file_type::REGULAR | 0o644, uid) {
        Ok(inode) => Ok(inode.id),
        Err(Error::Namespace(error)) => Err(error.errno()),
        Err(error) => panic!("{name}: {error:?}"),
    }
}

pub fn lookup(client: &Client, directory: FileId, name: &str) -> Option<Inode> {
    let lookup = Read::Lookup(EntryName::new(directory, name.as_bytes()));
    match execute(client, &Operation::Read(Moment::Now, lookup)) {
        Ok(Reply::Inode(inode)) => Some(inode),
        Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => None,
        other => panic!("{name}: {other:?}"),
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

pub fn rename(
    client: &Client,
    from: (FileId, &str),
    to: (FileId, &str),
    mode: RenameMode,
) -> Result<Reply, Error> {
    let from = EntryName::new(from.0, from.1.as_bytes());
    let to = EntryName::new(to.0, to.1.as_bytes());
    change(client, Change::Rename { from, to, mode, whiteout: None })
}

pub fn link(client: &Client, id: FileId, name: (FileId, &str)) -> Result<Reply, Error> {
    change(client, Change::Link { id, name: EntryName::new(name.0, name.1.as_bytes()) })
}

pub fn unlink(client: &Client, directory: FileId, name: &str) -> Result<Reply, Error> {
    change(client, Change::Unlink(EntryName::new(directory, name.as_bytes())))
}

/// Writes so many bytes into a small file, as somebody whom limits bind.
pub fn write(client: &Client, id: FileId, length: usize) -> Result<(), Errno> {
    let bytes = vec![b'x'; length];
    let pieces = vec![Piece { offset: 0, bytes: &bytes }];
    let write = WriteSmall { pieces, size_min: 0 };
    let written = change(client, Change::WriteSmall { id, write, writer: Writer::Unknown });
    match written {
        Ok(Reply::Written(Some(_))) => Ok(()),
        Err(Error::Namespace(error)) => Err(error.errno()),
        other => panic!("{other:?}"),
    }
}

/// Gives a file another owner.
pub fn chown(client: &Client, id: FileId, uid: u32, changer: Changer<'_>) -> Result<(), Errno> {
    let set = SetAttributes { uid: Some(uid), ..SetAttributes::default() };
    match change(client, Change::SetAttributes { id, set, changer }) {
        Ok(_) => Ok(()),
        Err(Error::Namespace(error)) => Err(error.errno()),
        Err(error) => panic!("{error:?}"),
    }
}

pub fn set(client: &Client, account: Account, limits: Limits) -> Result<Reply, Error> {
    execute(client, &Operation::Quotas(QuotasRequest::Set(account, limits)))
}

pub fn quotas(client: &Client) -> Vec<Quota> {
    match execute(client, &Operation::Quotas(QuotasRequest::All)) {
        Ok(Reply::Quotas(quotas)) => quotas,
        other => panic!("{other:?}"),
    }
}

/// Returns usage and limits of an account.
pub fn quota(client: &Client, account: Account) -> Quota {
    match execute(client, &Operation::Quotas(QuotasRequest::Of(account))) {
        Ok(Reply::Quotas(quotas)) => quotas[0],
        other => panic!("{other:?}"),
    }
}

/// Returns the bytes and files of a user.
pub fn used(client: &Client, uid: u32) -> (u64, u64) {
    let usage = quota(client, Account::User(uid)).usage;
    (usage.bytes, usage.inodes)
}

pub fn inodes(hard: u64) -> Limits {
    Limits { inodes_hard: hard, ..Limits::default() }
}

/// Checks that usage is that of the files that there are: bytes and files by account.
pub fn check(client: &Client) {
    let mut real: BTreeMap<Account, [u64; 2]> = BTreeMap::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut directories = vec![ROOT];
    let mut count = |inode: &Inode| {
        if seen.insert(inode.id) {
            let tree = (inode.project != 0).then_some(Account::Tree(inode.project));
            let owners = [Account::User(inode.uid), Account::Group(inode.gid)];
            for account in owners.into_iter().chain(tree) {
                let sums = real.entry(account).or_default();
                *sums = [sums[0] + inode.blocks * 512, sums[1] + 1];
            }
        }
    };
    let root = execute(client, &Operation::Read(Moment::Now, Read::Inode(ROOT)));
    let Ok(Reply::Inode(root)) = root else { panic!("{root:?}") };
    count(&root);
    while let Some(directory) = directories.pop() {
        for (_, inode) in list(client, directory) {
            count(&inode);
            if inode.is_directory() {
                directories.push(inode.id);
            }
        }
    }
    let told = quotas(client).into_iter().filter(|quota| quota.usage.inodes > 0);
    let told = told.map(|quota| (quota.account, [quota.usage.bytes, quota.usage.inodes]));
    assert_eq!(BTreeMap::from_iter(told), real);
}
