//! A cluster whose servers are in this process, and what tests ask of it.

use canopy_cluster::{
    Client, Error, HandOverHook, Peers, Process, Request, Response, Sender, SessionId,
    create_cluster,
};
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Page, Read};
use canopy_namespace::{
    EntryName, FileId, Inode, New, Ownership, ROOT, Reply, Settings, system_clock,
};
use canopy_partition::{PartitionId, ServerId, SplitPolicy};
use canopy_store::Environment;
use canopy_store::storage::MemoryStorage;
use parking_lot::RwLock;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const POLICY: SplitPolicy =
    SplitPolicy { entries_max: 64, variation_percent: 25, partitions_per_server: 4 };

pub fn environment(servers: u32) -> Environment {
    environment_with(servers, POLICY)
}

pub fn settings() -> Settings {
    let settings = Settings::default().with_indexes(&["size", "name"]).unwrap();
    Settings { chunk_bytes: 1 << 16, ..settings }
}

pub fn environment_with(servers: u32, policy: SplitPolicy) -> Environment {
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    create_cluster(&environment, &settings(), Ownership::ROOT, servers, policy, &system_clock())
        .unwrap();
    environment
}

/// All servers in one process, which dies with this. Clients live on.
pub struct Cluster {
    environment: Environment,
    process: RwLock<Option<Arc<Process>>>,
}

impl Cluster {
    pub fn open(environment: &Environment) -> Arc<Self> {
        let environment = environment.clone();
        let cluster = Cluster { environment, process: RwLock::default() };
        cluster.restart();
        Arc::new(cluster)
    }

    /// Opens all servers anew. Those before have died.
    pub fn restart(&self) {
        self.kill();
        let process = Process::with_all_servers(&self.environment, &system_clock()).unwrap();
        *self.process.write() = Some(process);
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    pub fn kill(&self) {
        *self.process.write() = None;
    }

    pub fn process(&self) -> Arc<Process> {
        self.process.read().clone().expect("a process")
    }

    pub fn split(
        &self,
        partition: PartitionId,
        steps: &mut dyn HandOverHook,
    ) -> Result<bool, Error> {
        self.process().split(ROOT, partition, steps)
    }
}

impl Peers for Cluster {
    fn ask(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response, Error> {
        self.process().ask(server, sender, request)
    }

    fn server_count(&self) -> u32 {
        self.process().server_count()
    }

    fn policy(&self) -> SplitPolicy {
        self.process().policy()
    }
}

pub fn open(environment: &Environment) -> Arc<Cluster> {
    Cluster::open(environment)
}

pub fn next_session() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns a client that knows nothing.
pub fn new_client(cluster: &Arc<Cluster>) -> Client {
    new_client_of(cluster.clone())
}

pub fn new_client_of(peers: Arc<dyn Peers>) -> Client {
    Client::new(peers, SessionId(next_session()))
}

pub fn execute(client: &Client, operation: &Operation<'_>) -> Result<Reply, Error> {
    client.execute_for(Caller::Trusted, operation)
}

pub fn create(client: &Client, directory: FileId, name: &str, kind: u32) -> Result<Inode, Error> {
    let new = New { mode: kind | 0o755, uid: 7, gid: 8, ..New::default() };
    let name = EntryName::new(directory, name.as_bytes());
    let create = Change::Create { name, new: Cow::Owned(new), holds: false };
    match execute(client, &Operation::Change(create))? {
        Reply::Inode(inode) => Ok(inode),
        other => panic!("{other:?}"),
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

pub fn list(client: &Client, directory: FileId) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), 0);
    loop {
        let page = Page { directory, after, name: None, count_max: 100 };
        let list = Operation::Read(Moment::Now, Read::List(page));
        let Ok(Reply::Entries(entries)) = execute(client, &list) else { panic!() };
        if entries.count() == 0 {
            return names;
        }
        for entry in entries.iter() {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            after = entry.cookie;
        }
    }
}

pub fn stat(cluster: &Arc<Cluster>, id: FileId) -> Inode {
    let stat = Operation::Read(Moment::Now, Read::Inode(id));
    match execute(&new_client(cluster), &stat) {
        Ok(Reply::Inode(inode)) => inode,
        other => panic!("{other:?}"),
    }
}

pub fn unlink(client: &Client, directory: FileId, name: &str) {
    let unlink = Change::Unlink(EntryName::new(directory, name.as_bytes()));
    let _: Reply = execute(client, &Operation::Change(unlink)).unwrap();
}

/// Checks that a directory has exactly these files, each in one place, and that nothing is left to be
/// done.
pub fn check(
    cluster: &Arc<Cluster>,
    client: &Client,
    directory: FileId,
    files: &BTreeMap<String, FileId>,
) {
    find(cluster, client, directory, files);
    assert!(cluster.process().is_at_rest().unwrap());
    assert_sound(&**cluster, cluster.environment());
}

/// Checks all records of all servers.
pub fn assert_sound(peers: &dyn Peers, environment: &Environment) {
    let faults = canopy_cluster::check::check(peers, &*environment.storage, &|_| {}).unwrap();
    let faults = Vec::from_iter(faults.iter().map(ToString::to_string));
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Finds these files, and no others, by a client that knows nothing and by one with a stale map.
pub fn find(
    cluster: &Arc<Cluster>,
    client: &Client,
    directory: FileId,
    files: &BTreeMap<String, FileId>,
) {
    let listed = list(&new_client(cluster), directory);
    let names = BTreeSet::from_iter(listed.iter());
    assert_eq!(names.len(), listed.len(), "a name is listed twice");
    assert!(names.into_iter().eq(files.keys()), "{} of {}", listed.len(), files.len());
    for (name, id) in files {
        let found = lookup(client, directory, name);
        assert_eq!(found.map(|inode| inode.id), Some(*id), "{name}");
        assert_eq!(stat(cluster, *id).id, *id, "{name} by its id");
    }
}

/// Makes a cluster whose partitions split only when a test says so.
pub fn environment_of_large(servers: u32) -> Environment {
    environment_with(servers, SplitPolicy { entries_max: 1 << 30, ..POLICY })
}

pub fn make(cluster: &Arc<Cluster>, count: usize, kind: u32) -> BTreeMap<String, FileId> {
    let client = &new_client(cluster);
    let one = |number| {
        let name = format!("file{number}");
        let made = create(client, ROOT, &name, kind).unwrap();
        (name, made.id)
    };
    (0..count).map(one).collect()
}
