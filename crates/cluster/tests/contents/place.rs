//! A cluster of one process, and clients that write files in it and die.

use bytes::Bytes;
use canopy_cluster::contents::{ClusterNamespace, Memory, Operations};
use canopy_cluster::{Client, Peers, Process, SessionId, create_cluster};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Changer, Moment, Operation, Read};
use canopy_namespace::{
    EntryName, Execute, Failure, FileContents, FileId, Inode, New, Ownership, Privileges, ROOT,
    Reply, Result, SetAttributes, Settings, system_clock,
};
use canopy_partition::SplitPolicy;
use canopy_store::storage::{Append, Created, Listed, MemoryStorage, Storage};
use canopy_store::{Environment, Error as StoreError};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const CHUNK: u64 = 4096;
pub(crate) const SMALL_MAX: usize = 1000;
const SERVERS: u32 = 3;

pub(crate) fn settings() -> Settings {
    let settings = Settings::default().with_indexes(&["size", "name"]).expect("indexes");
    Settings { chunk_bytes: CHUNK, inline_bytes_max: SMALL_MAX, ..settings }
}

/// A cluster of one process.
pub(crate) struct Place {
    pub(crate) environment: Environment,
    pub(crate) process: Arc<Process>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with_policy(SplitPolicy::default())
    }

    pub(crate) fn with_policy(policy: SplitPolicy) -> Self {
        let environment = Environment::system(Arc::new(MemoryStorage::default()));
        let clock = system_clock();
        create_cluster(&environment, &settings(), Ownership::ROOT, SERVERS, policy, &clock)
            .expect("a cluster");
        let process = Process::with_all_servers(&environment, &clock);
        Place { process: process.expect("a process"), environment }
    }

    pub(crate) fn operations(&self) -> Client {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let peers: Arc<dyn Peers> = self.process.clone();
        Client::new(peers, SessionId(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns a client with little memory.
    pub(crate) fn client(&self) -> User {
        let memory = Memory { cache_bytes: 20_000, file_bytes: 20_000, waiting_bytes: 40_000 };
        self.client_of(Arc::new(self.operations()), self.environment.clone(), memory)
    }

    /// Returns a client that dies before a step, or right after it, and has much memory.
    pub(crate) fn mortal(&self, life: &Arc<Life>) -> User {
        let operations = Mortal { of: self.operations(), life: life.clone() };
        let environment = mortal_environment(&self.environment, life);
        self.client_of(Arc::new(operations), environment, Memory::default())
    }

    /// Returns a client with much memory.
    pub(crate) fn rich_client(&self) -> User {
        self.client_with(Arc::new(self.operations()))
    }

    pub(crate) fn client_with(&self, operations: Arc<dyn Operations>) -> User {
        self.client_of(operations, self.environment.clone(), Memory::default())
    }

    /// Returns a client of another process.
    pub(crate) fn client_by(&self, process: Arc<Process>) -> User {
        let operations = Arc::new(Client::new(process, SessionId(u64::MAX)));
        self.client_of(operations, self.environment.clone(), Memory::default())
    }

    fn client_of(
        &self,
        operations: Arc<dyn Operations>,
        environment: Environment,
        memory: Memory,
    ) -> User {
        let contents = ClusterNamespace::new(operations, &environment, &settings(), memory);
        User(contents.expect("a client"))
    }

    /// Collects until so many objects of chunks are left. Files without a name go once clients had
    /// time to hold them again.
    pub(crate) fn collect_until(&self, left: impl Fn() -> usize) {
        let start = std::time::Instant::now();
        loop {
            self.process.collect().expect("collected");
            let objects = self.objects("contents/chunk/");
            if objects.len() == left() {
                return;
            }
            assert!(start.elapsed().as_secs() < 60, "{} are left: {objects:?}", left());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Returns the names of objects below a prefix.
    pub(crate) fn objects(&self, prefix: &str) -> Vec<String> {
        let listed = self.environment.storage.list(prefix, "").expect("a listing");
        listed.into_iter().map(|one| one.name).collect()
    }
}

/// A client.
pub(crate) struct User(pub(crate) ClusterNamespace);

impl User {
    pub(crate) fn execute(&self, operation: &Operation<'_>) -> Result<Reply> {
        self.0.execute_for(Caller::Trusted, operation)
    }

    pub(crate) fn create(&self, name: &str) -> Inode {
        let mode = file_type::REGULAR | 0o644;
        let new = New { mode, uid: 7, gid: 8, ..New::default() };
        let name = EntryName::new(ROOT, name.as_bytes());
        let create = Change::Create { name, new: Cow::Owned(new), holds: false };
        match self.execute(&Operation::Change(create)) {
            Ok(Reply::Inode(inode)) => inode,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn inode(&self, id: FileId) -> Inode {
        match self.execute(&Operation::Read(Moment::Now, Read::Inode(id))) {
            Ok(Reply::Inode(inode)) => inode,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn set(&self, id: FileId, set: SetAttributes) -> Result<Inode> {
        let changer = Changer::Privileged;
        match self.execute(&Operation::Change(Change::SetAttributes { id, set, changer }))? {
            Reply::Inode(inode) => Ok(inode),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn truncate(&self, id: FileId, size: u64) -> Result<Inode> {
        self.set(id, SetAttributes { size: Some(size), ..SetAttributes::default() })
    }

    pub(crate) fn write(&self, id: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.0.write_at(id, offset, bytes, Privileges::KeepBound)?;
        assert_eq!(written, bytes.len());
        Ok(())
    }

    pub(crate) fn read(&self, id: FileId, offset: u64, length: usize) -> Vec<u8> {
        self.0.read_at(id, offset, length, false).expect("contents")
    }

    /// Opens a file, reads all of it, and closes it.
    pub(crate) fn whole(&self, id: FileId) -> Vec<u8> {
        self.0.open(id).expect("a file");
        let bytes = self.read(id, 0, 1 << 22);
        self.0.close(id).expect("closed");
        bytes
    }

    /// Writes a file as a whole, and closes it.
    pub(crate) fn put(&self, id: FileId, bytes: &[u8]) {
        self.0.open(id).expect("a file");
        self.truncate(id, 0).expect("an empty file");
        self.write(id, 0, bytes).expect("written");
        self.0.close(id).expect("closed");
    }
}

/// Returns an environment whose user dies, or sleeps.
pub(crate) fn mortal_environment(environment: &Environment, life: &Arc<Life>) -> Environment {
    let storage = Mortal { of: environment.storage.clone(), life: life.clone() };
    Environment { storage: Arc::new(storage), ..environment.clone() }
}

/// Steps that somebody has left, and what happens then.
pub(crate) struct Life {
    steps: AtomicI64,
    end: End,
}

enum End {
    /// It dies, and the last step happens or not.
    Death { does_last: bool },
    /// It sleeps while something is done, and then lives on.
    Sleep(Mutex<Option<Box<dyn FnOnce() + Send>>>),
}

impl Life {
    pub(crate) fn new(steps: i64, does_last: bool) -> Arc<Self> {
        Arc::new(Life { steps: AtomicI64::new(steps), end: End::Death { does_last } })
    }

    /// Sleeps before a step, while something is done.
    pub(crate) fn sleeping(steps: i64, meanwhile: impl FnOnce() + Send + 'static) -> Arc<Self> {
        let end = End::Sleep(Mutex::new(Some(Box::new(meanwhile))));
        Arc::new(Life { steps: AtomicI64::new(steps), end })
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.steps.load(Ordering::Relaxed) < 0
    }

    /// Lets it live on.
    pub(crate) fn revive(&self) {
        self.steps.store(i64::MAX, Ordering::Relaxed);
    }

    /// Takes a step. `dead` is what a dead client gets from it.
    fn step<T, E>(
        &self,
        step: impl FnOnce() -> std::result::Result<T, E>,
        dead: impl FnOnce() -> E,
    ) -> std::result::Result<T, E> {
        match (self.steps.fetch_sub(1, Ordering::Relaxed), &self.end) {
            (1.., _) => step(),
            (_, End::Sleep(meanwhile)) => {
                if let Some(meanwhile) = meanwhile.lock().expect("no panic").take() {
                    meanwhile();
                }
                step()
            }
            (0, End::Death { does_last: true }) => {
                // Nobody hears of the outcome.
                let _ = step();
                Err(dead())
            }
            (_, End::Death { .. }) => Err(dead()),
        }
    }
}

/// Storage that a client reaches as long as it lives. Reading is not a step.
struct Mortal<T> {
    of: T,
    life: Arc<Life>,
}

impl Operations for Mortal<Client> {
    fn execute_for(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply> {
        let execute = || Operations::execute_for(&self.of, caller, operation);
        match operation {
            Operation::Change(_) => {
                self.life.step(execute, || Failure::unavailable(&"dead").into())
            }
            _ => execute(),
        }
    }
}

type Stored<T> = canopy_store::Result<T>;

fn dead() -> StoreError {
    StoreError::NotFound("the client is dead".into())
}

impl Storage for Mortal<Arc<dyn Storage>> {
    fn read_range(&self, name: &str, range: Range<u64>) -> Stored<Bytes> {
        self.of.read_range(name, range)
    }

    fn read(&self, name: &str) -> Stored<Bytes> {
        self.of.read(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Stored<Created> {
        self.life.step(|| self.of.create(name, bytes), dead)
    }

    fn list(&self, prefix: &str, after: &str) -> Stored<Vec<Listed>> {
        self.of.list(prefix, after)
    }

    fn remove(&self, name: &str) -> Stored<()> {
        self.life.step(|| self.of.remove(name), dead)
    }

    fn append_to(&self, name: &str) -> Stored<Option<Box<dyn Append>>> {
        self.of.append_to(name)
    }

    fn lock(&self, name: &str) -> Stored<Option<Box<dyn Send + Sync>>> {
        self.of.lock(name)
    }
}

/// Tells other threads of a test that it is over, also if it fails.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
