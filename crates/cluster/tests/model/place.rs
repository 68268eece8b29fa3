//! A cluster of one process whose replies are durable, and its clients.

use crate::executor::Executor;
use canopy_cluster::contents::{ClusterNamespace, Memory};
use canopy_cluster::{
    Client, Error, Peers, Process, Request, Response, Sender, SessionId, create_cluster,
};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Operation};
use canopy_namespace::{EntryName, New, Ownership, ROOT, Reply, Settings, system_clock};
use canopy_partition::{ServerId, SplitPolicy};
use canopy_store::Environment;
use canopy_store::storage::MemoryStorage;
use parking_lot::RwLock;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Partitions split once they have some three entries.
const POLICY: SplitPolicy =
    SplitPolicy { entries_max: 2, variation_percent: 25, partitions_per_server: 4 };

fn settings() -> Settings {
    let settings = Settings::default().with_indexes(&["size", "name", "mtime"]).expect("indexes");
    Settings { chunk_bytes: 4096, inline_bytes_max: 1000, ..settings }
}

pub(crate) struct Place {
    environment: Environment,
    process: Arc<RwLock<Arc<Process>>>,
    count: u32,
}

/// Asks the servers of the process that runs now. What is answered outlasts a crash.
struct Durable {
    process: Arc<RwLock<Arc<Process>>>,
    count: u32,
}

impl Place {
    pub(crate) fn new(servers: u32) -> Self {
        let environment = Environment::system(Arc::new(MemoryStorage::default()));
        let (settings, clock) = (settings(), system_clock());
        create_cluster(&environment, &settings, Ownership::ROOT, servers, POLICY, &clock)
            .expect("a cluster");
        let process = Process::with_all_servers(&environment, &clock).expect("a process");
        Place { environment, process: Arc::new(RwLock::new(process)), count: servers }
    }

    /// Returns a client that knows nothing, whose paths begin at the root.
    pub(crate) fn client(&self) -> Executor {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let peers = Durable { process: self.process.clone(), count: self.count };
        let session = SessionId(NEXT.fetch_add(1, Ordering::Relaxed));
        let client = Arc::new(Client::new(Arc::new(peers), session));
        let memory = Memory { cache_bytes: 8192, ..Memory::default() };
        let namespace = ClusterNamespace::new(client, &self.environment, &settings(), memory);
        Executor { execute: Arc::new(namespace.expect("a client")), root: ROOT }
    }

    /// Returns a client whose paths begin at a new directory in the root.
    pub(crate) fn client_at(&self, name: &str) -> Executor {
        let client = self.client();
        let new = New { mode: file_type::DIRECTORY | 0o755, ..New::default() };
        let name = EntryName::new(ROOT, name.as_bytes());
        let create = Change::Create { name, new: Cow::Owned(new), holds: false };
        match client.execute.execute(&Operation::Change(create)) {
            Ok(Reply::Inode(inode)) => Executor { root: inode.id, ..client },
            other => panic!("{other:?}"),
        }
    }

    /// Opens all servers anew. Those before have died: what was not synced is lost.
    pub(crate) fn restart(&self) {
        let opened = Process::with_all_servers(&self.environment, &system_clock());
        *self.process.write() = opened.expect("a process");
    }

    /// Removes objects of chunks that nobody needs.
    pub(crate) fn collect(&self) {
        self.process.read().collect().expect("a collection");
    }

    /// Waits until nothing is left to be done.
    pub(crate) fn settle(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        let process = self.process.read().clone();
        while !process.is_at_rest().expect("records") {
            assert!(Instant::now() < end, "no rest: {:?}", process.take_failure());
            std::thread::yield_now();
        }
    }

    /// Returns whether partitions of a directory lie on other servers than its home.
    pub(crate) fn has_split(&self) -> bool {
        let partitions = self.process.read().partitions(ROOT).expect("partitions");
        partitions.iter().any(|(server, _)| *server != ServerId(0))
    }
}

impl Peers for Durable {
    fn ask(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response, Error> {
        let process = self.process.read().clone();
        let response = process.ask(server, sender, request);
        process.sync_server(server)?;
        response
    }

    fn server_count(&self) -> u32 {
        self.count
    }

    fn policy(&self) -> SplitPolicy {
        POLICY
    }
}
