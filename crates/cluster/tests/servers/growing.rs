//! Servers that are added to a cluster, while processes and clients know the old list.

use crate::place::*;
use canopy_cluster::{
    Client, Error, HandOverStage, Peers, Process, Request, Response, Sender, ServerRequest,
    SessionId, add_tables, count_tables,
};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Caller, Change, Changer, Moment, Operation, Read, SnapshotsRequest,
};
use canopy_namespace::{EntryName, FileId, ROOT, RenameMode, Reply, SetAttributes, system_clock};
use canopy_partition::{PartitionId, ServerId, SplitPolicy};
use canopy_store::Environment;
use parking_lot::RwLock;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Servers with a process each. Processes know the servers that they were opened with, and those that
/// they learn of.
struct Servers {
    environment: Environment,
    processes: RwLock<BTreeMap<ServerId, Arc<Process>>>,
    own: Weak<Servers>,
}

/// The servers, as a process or a client reaches them that knows of fewer.
struct Line(Weak<Servers>, u32);

impl Servers {
    fn open(count: u32, policy: SplitPolicy) -> Arc<Self> {
        let environment = environment_with(count, policy);
        let servers = Arc::new_cyclic(|own| Servers {
            environment,
            processes: RwLock::default(),
            own: own.clone(),
        });
        (0..count).for_each(|server| servers.restart(server));
        servers
    }

    fn restart(&self, server: u32) {
        self.processes.write().remove(&ServerId(server));
        let others: Arc<dyn Peers> = Arc::new(Line(self.own.clone(), server + 1));
        let process = Process::new(&self.environment, &system_clock(), Some(others)).unwrap();
        process.start(ServerId(server)).unwrap();
        self.processes.write().insert(ServerId(server), process);
    }

    /// Adds servers. No process that runs knows of them.
    fn add(&self, count: u32) -> u32 {
        let before = count_tables(&*self.environment.storage).unwrap();
        let all = add_tables(&self.environment, count, &system_clock()).unwrap();
        assert_eq!(all, before + count);
        (before..all).for_each(|server| self.restart(server));
        all
    }

    fn process(&self, server: u32) -> Arc<Process> {
        self.processes.read()[&ServerId(server)].clone()
    }

    /// A client that knows of so many servers.
    fn client(&self, servers: u32) -> Client {
        Client::new(Arc::new(Line(self.own.clone(), servers)), SessionId(next_session()))
    }

    fn settle(&self) {
        let processes = Vec::from_iter(self.processes.read().values().cloned());
        processes.iter().for_each(|process| process.settle());
    }

    fn ask(&self, server: u32, request: ServerRequest<'_>) -> Response {
        let request = Request::OfServer(request);
        self.process(server).answer(ServerId(server), Sender::SERVER, &request).unwrap()
    }

    /// Splits partitions until there is no server for another one, by processes that know all.
    fn balance(&self, directory: FileId, servers: u32) {
        let processes = Vec::from_iter(self.processes.read().values().cloned());
        let split = |process: &Arc<Process>| {
            process.learn_servers(servers).unwrap();
            let held = process.partitions(directory).unwrap();
            held.iter().any(|(_, history)| {
                process.split(directory, history.partition(), &mut |_: HandOverStage| true).unwrap()
            })
        };
        while processes.iter().filter(|process| split(process)).count() > 0 {}
        self.settle();
    }

    /// Returns the server of each name of a directory.
    fn places(&self, directory: FileId, names: impl Iterator<Item = String>) -> Vec<ServerId> {
        let mut held = Vec::new();
        for process in self.processes.read().values() {
            held.extend(process.partitions(directory).unwrap());
        }
        let place = |name: String| {
            let hash = EntryName::new(directory, name.as_bytes()).hash();
            let mut of = held.iter().filter(|(_, history)| history.holds(hash));
            let server = of.next().unwrap().0;
            assert!(of.next().is_none(), "{name} is at two servers");
            server
        };
        names.map(place).collect()
    }
}

impl Peers for Line {
    fn ask(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response, Error> {
        let process = self.0.upgrade().and_then(|all| all.processes.read().get(&server).cloned());
        process.ok_or(Error::NotRunning(server))?.answer(server, sender, request)
    }

    fn server_count(&self) -> u32 {
        self.1
    }

    fn policy(&self) -> SplitPolicy {
        POLICY
    }
}

fn name(number: usize) -> String {
    format!("file{number}")
}

fn fill(client: &Client, directory: FileId, count: usize) -> BTreeMap<String, FileId> {
    let one = |number| {
        let made = create(client, directory, &name(number), file_type::REGULAR).unwrap();
        (name(number), made.id)
    };
    (0..count).map(one).collect()
}

/// Finds these files, and no others, by a client that knows nothing and by one that is stale.
fn assert_has(
    servers: &Servers,
    stale: &Client,
    directory: FileId,
    files: &BTreeMap<String, FileId>,
) {
    let all = servers.processes.read().len() as u32;
    for client in [stale, &servers.client(1), &servers.client(all)] {
        let listed = list(client, directory);
        assert_eq!(listed.len(), files.len());
        assert!(BTreeSet::from_iter(listed.iter()).into_iter().eq(files.keys()));
        for (name, id) in files {
            assert_eq!(lookup(client, directory, name).map(|inode| inode.id), Some(*id), "{name}");
        }
    }
}

#[test]
fn an_added_server_gets_no_more_than_its_share() {
    for count in [4, 5] {
        let servers = Servers::open(count, POLICY);
        let client = servers.client(count);
        let directory = create(&client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
        let files = fill(&client, directory, 1500);
        servers.settle();
        servers.balance(directory, count);
        let before = servers.places(directory, files.keys().cloned());
        let all = servers.add(1);
        assert_has(&servers, &client, directory, &files);
        assert_eq!(servers.places(directory, files.keys().cloned()), before, "nothing moves yet");
        servers.balance(directory, all);
        let after = servers.places(directory, files.keys().cloned());
        let moved = before.iter().zip(&after).filter(|(one, other)| one != other);
        let moved = Vec::from_iter(moved.map(|(_, to)| *to));
        assert!(moved.iter().all(|to| *to == ServerId(count)), "only to the new one");
        let share = files.len() / all as usize;
        assert!(moved.len() > share / 4 && moved.len() <= share, "{} of {share}", moved.len());
        assert_has(&servers, &client, directory, &files);
        for (name, id) in &files {
            // By its id alone, a client finds a file that has moved to a server it has not heard of.
            let stat = Operation::Read(Moment::Now, Read::Inode(*id));
            assert!(execute(&servers.client(count), &stat).is_ok(), "{name}");
        }
        // All of it outlasts a crash.
        servers.processes.read().values().for_each(|process| process.sync().unwrap());
        (0..all).for_each(|server| servers.restart(server));
        assert_has(&servers, &client, directory, &files);
    }
}

#[test]
fn directories_use_added_servers_as_they_grow() {
    let servers = Servers::open(2, POLICY);
    let client = servers.client(2);
    let directory = create(&client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
    let mut files = fill(&client, directory, 1200);
    servers.settle();
    let all = servers.add(2);
    let processes = Vec::from_iter(servers.processes.read().values().cloned());
    processes.iter().for_each(|process| process.learn_servers(all).unwrap());
    // Homes of new directories are on all servers at once.
    let homes = (0..40).map(|number| {
        let made = create(&client, ROOT, &format!("d{number}"), file_type::DIRECTORY).unwrap();
        let home = Request::HomeOf(made.id);
        match servers.process(0).answer(ServerId(0), Sender::SERVER, &home).unwrap() {
            Response::HomeOf(home) => home,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(BTreeSet::from_iter(homes).len(), 4);
    for number in 1200..1500 {
        let made = create(&client, directory, &name(number), file_type::REGULAR).unwrap();
        files.insert(name(number), made.id);
    }
    servers.settle();
    let used = servers.places(directory, files.keys().cloned());
    assert_eq!(BTreeSet::from_iter(used).len(), 4, "partitions split when they are used");
    assert_has(&servers, &client, directory, &files);
}

/// Makes a directory whose home is server 0, and has its process not know of server 2, which holds
/// names of it.
fn with_stale_home() -> (Arc<Servers>, Client, FileId, BTreeMap<String, FileId>) {
    let servers = Servers::open(2, SplitPolicy { partitions_per_server: 1, ..POLICY });
    let client = servers.client(2);
    let is_first = |number: &usize| {
        let made = format!("d{number}");
        EntryName::new(ROOT, made.as_bytes()).hash().is_multiple_of(2)
    };
    let number = (0..).find(is_first).unwrap();
    let made = create(&client, ROOT, &format!("d{number}"), file_type::DIRECTORY).unwrap();
    let files = fill(&client, made.id, 200);
    servers.settle();
    let all = servers.add(1);
    // Partition 1 is at server 1, and its upper half goes to server 2. But first partition 2 does.
    let process = servers.process(1);
    process.learn_servers(all).unwrap();
    let one = PartitionId::new(1).unwrap();
    let has_split = process.split(made.id, one, &mut |_: HandOverStage| true).unwrap();
    assert!(!has_split, "partition 3 has no server yet");
    let all = servers.add(1);
    process.learn_servers(all).unwrap();
    assert!(process.split(made.id, one, &mut |_: HandOverStage| true).unwrap());
    assert_eq!(servers.process(3).partitions(made.id).unwrap().len(), 1);
    assert_eq!(servers.process(0).server_count(), 2);
    (servers, client, made.id, files)
}

#[test]
fn attributes_reach_servers_that_their_home_has_not_heard_of() {
    let (servers, client, directory, files) = with_stale_home();
    assert_eq!(files.len(), 200);
    let set = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    let change = Change::SetAttributes { id: directory, set, changer: Changer::Privileged };
    execute(&client, &Operation::Change(change)).unwrap();
    for server in [0, 1, 3] {
        let part = Request::DirectoryAtServer(directory);
        let answer = servers.process(server).answer(ServerId(server), Sender::SERVER, &part);
        let Ok(Response::DirectoryAtServer(Some(inode), _)) = answer else {
            panic!("{server}: {answer:?}")
        };
        assert_eq!(inode.mode & 0o7777, 0o700, "server {server}");
    }
}

#[test]
fn directories_are_removed_from_servers_that_their_home_has_not_heard_of() {
    let (servers, client, directory, files) = with_stale_home();
    let parent = list(&client, ROOT).into_iter().find(|name| name.starts_with('d')).unwrap();
    let rmdir = || {
        let rmdir = Change::Rmdir(EntryName::new(ROOT, parent.as_bytes()));
        execute(&client, &Operation::Change(rmdir))
    };
    let at_new = |name: &&String| {
        servers.places(directory, std::iter::once((*name).clone())) == [ServerId(3)]
    };
    let last = files.keys().find(at_new).unwrap().clone();
    files.keys().filter(|name| **name != last).for_each(|name| unlink(&client, directory, name));
    let refused = rmdir();
    assert!(
        matches!(&refused, Err(Error::Namespace(error)) if error.errno() == Errno::NOTEMPTY),
        "{refused:?}"
    );
    unlink(&client, directory, &last);
    rmdir().unwrap();
    let again = create(&client, directory, &last, file_type::REGULAR);
    assert!(matches!(&again, Err(Error::Namespace(error)) if error.errno() == Errno::NOENT));
}

#[test]
fn snapshots_contain_servers_that_the_first_one_has_not_heard_of() {
    let (servers, client, directory, files) = with_stale_home();
    let create = SnapshotsRequest::Create("then");
    execute(&client, &Operation::Snapshots(create)).unwrap();
    let number = client.snapshots().unwrap().0[0].number;
    assert_eq!(client.snapshot_tables(number).unwrap().checkpoints.len(), 4);
    files.keys().for_each(|name| unlink(&client, directory, name));
    assert!(list(&servers.client(4), directory).is_empty());
    for (name, id) in &files {
        let lookup = Read::Lookup(EntryName::new(directory, name.as_bytes()));
        let then = Operation::Read(Moment::Snapshot(number), lookup);
        match execute(&client, &then) {
            Ok(Reply::Inode(inode)) => assert_eq!(inode.id, *id, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn added_tables_know_the_sessions_that_have_ended() {
    let servers = Servers::open(2, POLICY);
    for session in 100..120 {
        for server in 0..2 {
            servers.ask(server, ServerRequest::EndSession(session));
        }
    }
    servers.add(1);
    let Response::Sessions(known, false) = servers.ask(2, ServerRequest::EndedSessions(Some(109)))
    else {
        panic!()
    };
    assert_eq!(known, Vec::from_iter(110..120));
}

#[test]
fn an_added_server_waits_for_notes_of_the_first() {
    let servers = Servers::open(1, POLICY);
    add_tables(&servers.environment, 1, &system_clock()).unwrap();
    servers.ask(0, ServerRequest::EndSession(7));
    let first = servers.processes.write().remove(&ServerId(0)).unwrap();
    let others: Arc<dyn Peers> = Arc::new(Line(servers.own.clone(), 2));
    let process = Process::new(&servers.environment, &system_clock(), Some(others)).unwrap();
    // It does not run without them.
    assert!(matches!(process.start(ServerId(1)), Err(Error::NotRunning(_))));
    assert!(process.running().is_empty());
    servers.processes.write().insert(ServerId(0), first);
    process.start(ServerId(1)).unwrap();
    assert_eq!(process.running(), [ServerId(1)]);
}

#[test]
fn additions_at_once_all_happen() {
    let environment = environment(1);
    let added = std::thread::scope(|scope| {
        let add = || add_tables(&environment, 2, &system_clock()).unwrap();
        let all = Vec::from_iter((0..4).map(|_| scope.spawn(add)));
        Vec::from_iter(all.into_iter().map(|one| one.join().unwrap()))
    });
    assert_eq!(BTreeSet::from_iter(added), BTreeSet::from([3, 5, 7, 9]));
    assert_eq!(count_tables(&*environment.storage).unwrap(), 9);
    let cluster = open(&environment);
    assert_eq!(cluster.process().running().len(), 9);
    let too_many = add_tables(&environment, 4090, &system_clock()).unwrap_err();
    assert!(too_many.to_string().contains("1 to 4096 logical servers, not 4099"), "{too_many}");
}

#[test]
fn names_that_collide_split_once() {
    let cluster = open(&environment(4));
    let client = &new_client(&cluster);
    let directory = create(client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
    let collides = |name: &String| EntryName::new(directory, name.as_bytes()).hash() >> 60 == 15;
    let mut names = (0..).map(name).filter(collides);
    let files = names.by_ref().take(150).map(|name| {
        let made = create(client, directory, &name, file_type::REGULAR).unwrap();
        (name, made.id)
    });
    let files = BTreeMap::from_iter(files);
    cluster.process().settle();
    assert_eq!(cluster.process().partitions(directory).unwrap().len(), 2);
    check(&cluster, client, directory, &files);
    // A restart does not forget it.
    cluster.restart();
    create(client, directory, &names.next().unwrap(), file_type::REGULAR).unwrap();
    cluster.process().settle();
    assert_eq!(cluster.process().partitions(directory).unwrap().len(), 2);
    // Somebody who asks for it gets more.
    let one = PartitionId::new(1).unwrap();
    assert!(cluster.process().split(directory, one, &mut |_: HandOverStage| true).unwrap());
}

#[test]
fn renames_and_links_split_directories() {
    for links in [false, true] {
        let cluster = open(&environment(2));
        let client = &new_client(&cluster);
        let directory = create(client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
        let other = create(client, ROOT, "other", file_type::DIRECTORY).unwrap().id;
        let file = create(client, other, "file", file_type::REGULAR).unwrap().id;
        for number in 0..200 {
            let name = name(number);
            let to = EntryName::new(directory, name.as_bytes());
            let change = match links {
                true => Change::Link { id: file, name: to },
                false => {
                    create(client, other, "moved", file_type::REGULAR).unwrap();
                    let from = EntryName::new(other, b"moved");
                    let mode = RenameMode::NoReplace;
                    Change::Rename { from, to, mode, whiteout: None }
                }
            };
            client.execute_for(Caller::Trusted, &Operation::Change(change)).unwrap();
        }
        cluster.process().settle();
        let partitions = cluster.process().partitions(directory).unwrap();
        assert!(partitions.len() >= 4, "links: {links}: {partitions:?}");
        assert_eq!(list(client, directory).len(), 200);
    }
}

#[test]
fn servers_count_their_entries() {
    let servers = Servers::open(2, POLICY);
    let client = servers.client(2);
    let directory = create(&client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
    fill(&client, directory, 700);
    servers.balance(directory, 2);
    let counted = || {
        let (mut partitions, mut entries) = (0, 0);
        for server in 0..2 {
            let Response::Tally(Some(tally)) = servers.ask(server, ServerRequest::Tally) else {
                panic!("server {server} has not counted")
            };
            partitions += tally.partitions;
            entries += tally.entries;
        }
        (partitions, entries)
    };
    let held = || {
        let processes = Vec::from_iter(servers.processes.read().values().cloned());
        let held = processes.iter().map(|process| process.partitions(directory).unwrap().len());
        held.sum::<usize>() as u64
    };
    // A partition may split once more, between the counts of two servers.
    let begun = Instant::now();
    while counted() != (held(), 701) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}, {}", counted(), held());
        std::thread::sleep(Duration::from_millis(20));
    }
    let counts =
        (0..2).flat_map(|server| match servers.ask(server, ServerRequest::Counts(directory)) {
            Response::Counts(counts) => counts,
            other => panic!("{other:?}"),
        });
    assert_eq!(counts.map(|(_, entries)| entries).sum::<u64>(), 700);
}
