//! Clients that remember directories while they have leases, and others that change them.

use crate::network::{connect, start};
use crate::place::*;
use canopy_cluster::{Client, Error, Peers, Request, Response, Sender};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Changer, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, Inode, ROOT, RenameMode, Reply, SetAttributes, SetTime};
use canopy_partition::{ServerId, SplitPolicy};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Time after a rename in which nobody else gets a lease, and a little more.
const AFTER_RENAME: Duration = Duration::from_millis(1100);

/// Longest time for which clients may remember anything.
const LONGEST: Duration = Duration::from_secs(3600);

/// The way of one client to the servers, which counts its requests and can be cut.
struct Way {
    cluster: Arc<Cluster>,
    count: AtomicU64,
    is_cut: AtomicBool,
    /// Runs before the next request for a lease.
    before_lease: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Runs after that request. Then its lease is refused.
    after_lease: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Way {
    fn new(cluster: &Arc<Cluster>) -> (Arc<Self>, Client) {
        let (count, is_cut) = (AtomicU64::new(0), AtomicBool::new(false));
        let (before_lease, after_lease) = (Mutex::default(), Mutex::default());
        let way =
            Arc::new(Way { cluster: cluster.clone(), count, is_cut, before_lease, after_lease });
        let client = new_client_of(way.clone()).with_patience(Duration::from_millis(50));
        client.cache_directories(LONGEST);
        (way, client)
    }

    /// Returns the number of requests that some work sends.
    fn requests<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let before = self.count.load(Ordering::Relaxed);
        let done = work();
        (done, self.count.load(Ordering::Relaxed) - before)
    }
}

impl Peers for Way {
    fn ask(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response, Error> {
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.is_cut.load(Ordering::Relaxed) {
            return Err(Error::Unreachable { server, why: "the way is cut".into() });
        }
        let is_lease = matches!(request, Request::LeaseDirectory(_));
        let work = if is_lease { self.before_lease.lock().take() } else { None };
        if let Some(work) = work {
            work();
        }
        let mut response = self.cluster.ask(server, sender, request)?;
        if let Response::LeasedDirectory(_, _, is_granted) = &mut response {
            let work = self.after_lease.lock().take();
            if let Some(work) = work {
                *is_granted = false;
                work();
            }
        }
        Ok(response)
    }

    fn server_count(&self) -> u32 {
        self.cluster.server_count()
    }

    fn policy(&self) -> SplitPolicy {
        self.cluster.policy()
    }
}

fn inode(client: &Client, id: FileId) -> Result<Inode, Error> {
    match execute(client, &Operation::Read(Moment::Now, Read::Inode(id)))? {
        Reply::Inode(inode) => Ok(inode),
        other => panic!("{other:?}"),
    }
}

fn mode(client: &Client, id: FileId) -> u32 {
    inode(client, id).unwrap().mode & 0o777
}

fn set_mode(client: &Client, id: FileId, mode: u32) {
    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    let set = Change::SetAttributes { id, set, changer: Changer::Privileged };
    execute(client, &Operation::Change(set)).unwrap();
}

fn new_directory(client: &Client, name: &str) -> FileId {
    create(client, ROOT, name, file_type::DIRECTORY).unwrap().id
}

#[test]
fn own_changes_are_known_without_a_question() {
    let cluster = open(&environment(3));
    let (way, client) = Way::new(&cluster);
    let directory = new_directory(&client, "d");
    inode(&client, directory).unwrap();
    for number in 0..50 {
        let name = format!("file{number}");
        let made = create(&client, directory, &name, file_type::REGULAR).unwrap();
        // A lease may end, and then all servers are asked once.
        let (shown, requests) = way.requests(|| inode(&client, directory).unwrap());
        assert!(requests == 0 || requests == 1, "{requests}");
        assert_eq!(shown.mtime_ns, made.ctime_ns);
    }
    unlink(&client, directory, "file7");
    let (shown, requests) = way.requests(|| inode(&client, directory).unwrap());
    assert_eq!((requests, shown.mtime_ns), (1, stat(&cluster, directory).mtime_ns));
    let below = create(&client, directory, "below", file_type::DIRECTORY).unwrap();
    assert_eq!(inode(&client, directory).unwrap().nlink, 3);
    let rmdir = Change::Rmdir(EntryName::new(directory, b"below"));
    execute(&client, &Operation::Change(rmdir)).unwrap();
    assert_eq!(inode(&client, directory).unwrap().nlink, 2);
    // It may stay for a while, without a name.
    assert_eq!(inode(&client, below.id).map_or(0, |gone| gone.nlink), 0);
    set_mode(&client, directory, 0o711);
    assert_eq!(mode(&client, directory), 0o711);
}

#[test]
fn attributes_of_a_split_directory_are_those_of_all_servers() {
    let cluster = open(&environment(3));
    let (way, client) = Way::new(&cluster);
    let directory = new_directory(&client, "d");
    for number in 0..300 {
        create(&client, directory, &format!("file{number}"), file_type::REGULAR).unwrap();
    }
    cluster.process().settle();
    assert!(cluster.process().partitions(directory).unwrap().len() >= 6);
    let mut free = 0;
    for number in 0..100 {
        let name = format!("more{number}");
        let made = create(&client, directory, &name, file_type::REGULAR).unwrap();
        let (shown, requests) = way.requests(|| inode(&client, directory).unwrap());
        free += u32::from(requests == 0);
        assert!(shown.mtime_ns >= made.ctime_ns);
        let all = stat(&cluster, directory);
        assert_eq!((shown.mtime_ns, shown.nlink), (all.mtime_ns, all.nlink));
    }
    assert!(free > 50, "{free}");
}

#[test]
fn a_change_waits_for_leases_of_other_clients_alone() {
    let cluster = open(&environment(3));
    let ((_, one), (way, other)) = (Way::new(&cluster), Way::new(&cluster));
    let directory = new_directory(&one, "d");
    let waits = || cluster.process().metrics().lease_waits.get();
    mode(&one, directory);
    set_mode(&one, directory, 0o701);
    assert_eq!(waits(), 0);
    for mode_set in [0o702, 0o703] {
        mode(&other, directory);
        set_mode(&one, directory, mode_set);
        assert_eq!(mode(&other, directory), mode_set);
    }
    assert_eq!(waits(), 2);
    // Nor do times and names in it.
    mode(&other, directory);
    create(&one, directory, "file", file_type::REGULAR).unwrap();
    let set = SetAttributes { mtime: Some(SetTime::To(5)), ..SetAttributes::default() };
    let set = Change::SetAttributes { id: directory, set, changer: Changer::Privileged };
    execute(&one, &Operation::Change(set)).unwrap();
    assert_eq!(waits(), 2);
    let (_, requests) = way.requests(|| mode(&other, directory));
    assert!(requests <= 1);
}

#[test]
fn a_client_that_is_cut_off_shows_nothing_old() {
    let cluster = open(&environment(3));
    let ((_, one), (way, cut)) = (Way::new(&cluster), Way::new(&cluster));
    let directory = new_directory(&one, "d");
    set_mode(&one, directory, 0o700);
    assert_eq!(mode(&cut, directory), 0o700);
    way.is_cut.store(true, Ordering::Relaxed);
    assert_eq!(mode(&cut, directory), 0o700);
    set_mode(&one, directory, 0o755);
    assert!(matches!(inode(&cut, directory), Err(Error::Unreachable { .. })));
    way.is_cut.store(false, Ordering::Relaxed);
    assert_eq!(mode(&cut, directory), 0o755);
}

#[test]
fn a_rename_waits_for_leases_of_the_directory() {
    let cluster = open(&environment(3));
    let ((_, one), (_, other)) = (Way::new(&cluster), Way::new(&cluster));
    let waits = || cluster.process().metrics().lease_waits.get();
    // Names and homes are on several servers.
    for number in 0..6 {
        let (from, to) = (format!("from{number}"), format!("to{number}"));
        let directory = new_directory(&one, &from);
        mode(&one, directory);
        let rename = |from: &str, to: &str, mode: RenameMode| {
            let [from, to] = [from, to].map(|name| EntryName::new(ROOT, name.as_bytes()));
            let rename = Change::Rename { from, to, mode, whiteout: None };
            execute(&one, &Operation::Change(rename)).unwrap();
        };
        let before = waits();
        rename(&from, &to, RenameMode::Replace);
        assert_eq!(waits(), before);
        if number < 2 {
            std::thread::sleep(AFTER_RENAME);
            mode(&other, directory);
            rename(&to, &from, RenameMode::Replace);
            assert_eq!(waits(), before + 1);
        }
    }
    std::thread::sleep(AFTER_RENAME);
    let ids = ["to2", "to3"].map(|name| lookup(&one, ROOT, name).unwrap().id);
    for id in ids {
        mode(&other, id);
    }
    let before = waits();
    let [from, to] = ["to2", "to3"].map(|name| EntryName::new(ROOT, name.as_bytes()));
    let exchange = Change::Rename { from, to, mode: RenameMode::Exchange, whiteout: None };
    execute(&one, &Operation::Change(exchange)).unwrap();
    assert_eq!(waits(), before + 1);
    std::thread::sleep(AFTER_RENAME);
    mode(&other, ids[1]);
    let rmdir = Change::Rmdir(EntryName::new(ROOT, b"to2"));
    execute(&one, &Operation::Change(rmdir)).unwrap();
    assert_eq!(waits(), before + 2);
}

/// A lease that was granted just after a rename once let a client cache the old name.
#[test]
fn a_name_that_changes_after_it_was_looked_up_is_not_cached() {
    let cluster = open(&environment(3));
    let ((_, one), (way, other)) = (Way::new(&cluster), Way::new(&cluster));
    let one = Arc::new(one);
    for number in 0..6 {
        let (from, to) = (format!("from{number}"), format!("to{number}"));
        new_directory(&one, &from);
        let (changer, old) = (one.clone(), from.clone());
        *way.before_lease.lock() = Some(Box::new(move || {
            let [from, to] = [&old, &to].map(|name| EntryName::new(ROOT, name.as_bytes()));
            let rename = Change::Rename { from, to, mode: RenameMode::Replace, whiteout: None };
            execute(&changer, &Operation::Change(rename)).unwrap();
        }));
        let found = lookup(&other, ROOT, &from).unwrap();
        assert!(way.before_lease.lock().is_none());
        assert_eq!(other.cached_for(&found), Duration::ZERO);
        assert!(lookup(&other, ROOT, &from).is_none());
    }
    std::thread::sleep(AFTER_RENAME);
    let found = lookup(&other, ROOT, "to3").unwrap();
    assert!(other.cached_for(&found) > Duration::ZERO);
}

/// Answers of a thread that was slow once replaced later ones of another thread, and counted as known for
/// the lease of these.
#[test]
fn an_answer_from_before_a_change_counts_for_no_later_lease() {
    let cluster = open(&environment(1));
    let (_, one) = Way::new(&cluster);
    let (way, other) = Way::new(&cluster);
    let other = Arc::new(other);
    let directory = new_directory(&one, "d");
    set_mode(&one, directory, 0o700);
    let another_thread = other.clone();
    *way.after_lease.lock() = Some(Box::new(move || {
        set_mode(&one, directory, 0o755);
        assert_eq!(mode(&another_thread, directory), 0o755);
    }));
    let old = inode(&other, directory).unwrap();
    assert!(way.after_lease.lock().is_none());
    assert_eq!(old.mode & 0o777, 0o700, "the change was made after this answer");
    assert_eq!(mode(&other, directory), 0o755);
    assert_eq!(other.cached_for(&old), Duration::ZERO);
}

/// Has a thread end, whatever happens.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Nobody who looks after a change was acknowledged sees what was before, also if the process that has
/// granted leases dies.
#[test]
fn acknowledged_modes_are_seen_while_processes_die() {
    let environment = environment(2);
    let mut nodes = vec![start(&environment), start(&environment)];
    let addresses = nodes.iter().flat_map(|node| node.addresses().to_vec());
    let (reader, writer) = {
        let addresses = Vec::from_iter(addresses);
        (connect(&addresses), connect(&addresses))
    };
    reader.cache_directories(LONGEST);
    let directory = new_directory(&writer, "d");
    set_mode(&writer, directory, 0);
    let (acknowledged, ends) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _end = End(&ends);
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                let least = acknowledged.load(Ordering::SeqCst);
                let seen = mode(&reader, directory);
                assert!(seen >= least, "{seen} after {least}");
                // Others need the processor, too.
                std::thread::yield_now();
            }
        });
        for step in 1..=4 {
            if step == 2 {
                drop(nodes.remove(0));
            }
            set_mode(&writer, directory, step);
            acknowledged.store(step, Ordering::SeqCst);
            mode(&reader, directory);
        }
    });
}
