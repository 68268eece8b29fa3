//! A disk that is full: what has been stored can be read, and nothing else breaks.

use crate::network::{connect, start};
use crate::place::{POLICY, check, create, find, lookup, new_client, open, settings};
use bytes::Bytes;
use canopy_cluster::{Error, HandOverStage, create_cluster};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Operation, QuotasRequest};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{Ownership, ROOT, Settings, system_clock};
use canopy_partition::PartitionId;
use canopy_store::storage::{Append, Created, Listed, MemoryStorage, Storage};
use canopy_store::{Environment, Result};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Storage that a test fills up: then it takes names alone.
#[derive(Default)]
struct Disk {
    of: MemoryStorage,
    is_full: AtomicBool,
}

impl Storage for Disk {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.of.read_range(name, range)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.of.read(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        if self.is_full.load(Ordering::Relaxed) && !bytes.is_empty() {
            let source = std::io::Error::from(Errno::NOSPC);
            return Err(canopy_store::Error::Storage { object: name.into(), source });
        }
        self.of.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.of.list(prefix, after)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.of.remove(name)
    }

    fn append_to(&self, _name: &str) -> Result<Option<Box<dyn Append>>> {
        // Logs are whole objects, as in a directory that machines share.
        Ok(None)
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.of.lock(name)
    }
}

/// The disk is full from one step of a hand-over on, until it has ended or for this step alone.
#[test]
fn a_hand_over_on_a_full_disk_loses_no_name() {
    for is_short in [false, true] {
        let mut full_at = BTreeSet::new();
        for taken in 0.. {
            let disk = Arc::new(Disk::default());
            let environment = Environment::system(disk.clone());
            let clock = system_clock();
            create_cluster(&environment, &settings(), Ownership::ROOT, 2, POLICY, &clock).unwrap();
            let cluster = open(&environment);
            let client = &new_client(&cluster);
            let mut files = BTreeMap::new();
            for number in 0..40 {
                let name = format!("file{number}");
                let made = create(client, ROOT, &name, file_type::REGULAR).unwrap();
                files.insert(name, made.id);
            }
            cluster.process().sync().unwrap();
            let (mut seen, mut at) = (0, None);
            let _ = cluster.split(PartitionId::ZERO, &mut |step: HandOverStage| {
                let is_now = seen == taken || !is_short && seen > taken;
                disk.is_full.store(is_now, Ordering::Relaxed);
                at = at.or((seen == taken).then_some(step));
                seen += 1;
                true
            });
            disk.is_full.store(false, Ordering::Relaxed);
            let Some(at) = at else { break };
            full_at.insert(format!("{at:?}"));
            // Others who ask have the servers end it.
            find(&cluster, &new_client(&cluster), ROOT, &files);
            cluster.process().tick();
            cluster.process().settle();
            find(&cluster, client, ROOT, &files);
            cluster.process().sync().unwrap();
            cluster.restart();
            cluster.process().settle();
            find(&cluster, &new_client(&cluster), ROOT, &files);
            check(&cluster, client, ROOT, &files);
        }
        assert_eq!(full_at.len(), 7, "{full_at:?}");
    }
}

#[test]
fn a_full_disk_refuses_changes_alone() {
    let disk = Arc::new(Disk::default());
    let environment = Environment::system(disk.clone());
    let (settings, clock) = (Settings::default(), system_clock());
    create_cluster(&environment, &settings, Ownership::ROOT, 2, POLICY, &clock).unwrap();
    let node = start(&environment);
    let client = connect(node.addresses()).with_patience(Duration::from_secs(1));
    for number in 0..20 {
        create(&client, ROOT, &format!("file{number}"), file_type::REGULAR).unwrap();
    }
    disk.is_full.store(true, Ordering::Relaxed);
    // The first one was executed, and waits until it is durable. Later ones change nothing.
    let waiting = create(&client, ROOT, "waiting", file_type::REGULAR).unwrap_err();
    assert!(waiting.to_string().contains("no space is left"), "{waiting}");
    let is_refused = |name: &str| match create(&client, ROOT, name, file_type::REGULAR) {
        Err(Error::Namespace(error)) => error.errno() == Errno::NOSPC,
        _ => false,
    };
    assert!(is_refused("refused"));
    // Servers would have to count. Nobody waits for that in vain.
    let limits = Limits { inodes_hard: 1000, ..Limits::default() };
    let limit = Operation::Quotas(QuotasRequest::Set(Account::User(7), limits));
    match client.execute_for(Caller::Trusted, &limit) {
        Err(Error::Namespace(error)) => assert_eq!(error.errno(), Errno::NOSPC),
        other => panic!("{other:?}"),
    }
    // For longer than leases, which go on.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        for number in 0..20 {
            assert!(lookup(&client, ROOT, &format!("file{number}")).is_some());
        }
        assert!(is_refused("refused"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(lookup(&client, ROOT, "refused").is_none());
    assert_eq!(node.running().len(), 2);
    disk.is_full.store(false, Ordering::Relaxed);
    create(&client, ROOT, "again", file_type::REGULAR).unwrap();
    drop(node);
    let node = start(&environment);
    let client = connect(node.addresses());
    for name in ["file7", "waiting", "again"] {
        assert!(lookup(&client, ROOT, name).is_some(), "{name}");
    }
    assert!(lookup(&client, ROOT, "refused").is_none());
}
