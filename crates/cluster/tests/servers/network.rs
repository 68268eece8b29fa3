//! Processes that listen at addresses of this machine, with one storage. Here they are threads; tests
//! of the commands start real ones.

use crate::place::*;
use canopy_cluster::wire::{Address, ClientSecurity, ServerSecurity};
use canopy_cluster::{AsyncClient, Client, Error, Node, NodeSettings, Patience, Remote, Wait};
use canopy_model::Credentials;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Read, program};
use canopy_namespace::{EntryName, FileId, New, ROOT, Reply, system_clock};
use canopy_store::Environment;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

pub fn start(environment: &Environment) -> Node {
    let settings = NodeSettings {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        advertise: None,
        security: ServerSecurity::default(),
        to_others: ClientSecurity::default(),
        lease: Some(Duration::from_millis(300)),
        place: String::new(),
    };
    Node::start(environment, &system_clock(), &settings).unwrap()
}

pub fn connect(addresses: &[Address]) -> Client {
    let security = ClientSecurity::default();
    let remote = Remote::connect(addresses, security, Patience::CLIENT).unwrap();
    new_client_of(remote)
}

fn create_all(client: &Client, directory: FileId, names: &[String]) -> BTreeMap<String, FileId> {
    let made = names.iter().map(|name| {
        let made = create(client, directory, name, file_type::REGULAR).unwrap();
        (name.clone(), made.id)
    });
    made.collect()
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

fn assert_has(client: &Client, directory: FileId, files: &BTreeMap<String, FileId>) {
    let listed = list(client, directory);
    assert_eq!(listed.len(), files.len());
    for (name, id) in files {
        assert_eq!(lookup(client, directory, name).map(|inode| inode.id), Some(*id), "{name}");
    }
}

#[test]
fn two_processes_share_a_directory() {
    let environment = environment(4);
    let (one, other) = (start(&environment), start(&environment));
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while one.running().len() != 2 || other.running().len() != 2 {
        assert!(std::time::Instant::now() < deadline, "{:?} {:?}", one.running(), other.running());
        std::thread::sleep(Duration::from_millis(10));
    }
    let client = connect(one.addresses());
    let directory = create(&client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
    let files = create_all(&client, directory, &names("file", 800));
    let stranger = connect(other.addresses());
    assert_has(&stranger, directory, &files);
    let held = |node: &Node| node.process().partitions(directory).unwrap().len();
    assert!(held(&one) > 1 && held(&other) > 1);
    // Names that exist are refused, wherever they are.
    let again = create(&stranger, directory, "file1", file_type::REGULAR);
    assert!(matches!(again, Err(Error::Namespace(error)) if error.errno().raw_os_error() == 17));
    one.leave(Duration::from_secs(20)).unwrap();
    assert_has(&client, directory, &files);
    assert_eq!(other.running().len(), 4);
}

#[test]
fn a_process_that_dies_is_replaced() {
    let environment = environment(4);
    let (one, other) = (start(&environment), start(&environment));
    let addresses = [one.addresses(), other.addresses()].concat();
    let client = Arc::new(connect(&addresses));
    let directory = create(&client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
    let mut files = BTreeMap::new();
    std::thread::scope(|scope| {
        let creators: Vec<_> = (0..4)
            .map(|thread| {
                let client = &client;
                let names = names(&format!("file{thread}-"), 400);
                scope.spawn(move || create_all(client, directory, &names))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        drop(one);
        for creator in creators {
            files.extend(creator.join().unwrap());
        }
    });
    assert_eq!(files.len(), 1600);
    assert_has(&connect(other.addresses()), directory, &files);
}

#[test]
fn a_client_that_waits_names_the_server() {
    let environment = environment(2);
    let node = start(&environment);
    let address = node.addresses()[0].to_string();
    let patience = Patience { attempt: Duration::from_secs(30), whole: Duration::from_secs(60) };
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let own = heard.clone();
    let observer = Arc::new(move |wait: &Wait| own.lock().push(wait.to_string()));
    let security = ClientSecurity::default();
    let remote =
        Remote::connect_within(node.addresses(), security, patience, patience.whole, observer)
            .unwrap();
    let client = new_client_of(remote);
    create(&client, ROOT, "file", file_type::REGULAR).unwrap();
    drop(node);
    let again = std::thread::scope(|scope| {
        // All wait for one server.
        for _ in 0..3 {
            scope.spawn(|| assert!(lookup(&client, ROOT, "file").is_some()));
        }
        let begin = Instant::now();
        while heard.lock().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "nobody is notified");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(begin.elapsed() >= Duration::from_millis(4900), "{:?}", begin.elapsed());
        // Its successor has its address.
        let settings = NodeSettings {
            listen: vec![address.parse().unwrap()],
            security: ServerSecurity::default(),
            to_others: ClientSecurity::default(),
            advertise: None,
            lease: Some(Duration::from_millis(300)),
            place: String::new(),
        };
        let again = Node::start(&environment, &system_clock(), &settings).unwrap();
        while heard.lock().len() < 2 {
            assert!(begin.elapsed() < Duration::from_secs(60), "nobody is notified of the end");
            std::thread::sleep(Duration::from_millis(20));
        }
        again
    });
    // All have their answers.
    drop(again);
    let heard = heard.lock();
    assert!(
        heard[0].starts_with(&format!("server 0 ({address}) has not answered for ")),
        "{heard:?}"
    );
    assert!(heard[1].starts_with("server 0 answers again, after "), "{heard:?}");
    // A thread that notices the silence after another one got its answer says so again.
    assert!(heard.len() <= 6, "{heard:?}");
}

#[test]
fn a_signal_ends_a_wait_that_has_changed_nothing() {
    let environment = environment(2);
    let node = start(&environment);
    let address = node.addresses()[0].clone();
    let client = connect(std::slice::from_ref(&address));
    create(&client, ROOT, "file", file_type::REGULAR).unwrap();
    drop(node);
    let is_interrupted = |outcome: Result<Reply, Error>| match outcome {
        Err(Error::Namespace(error)) => error.errno() == Errno::INTR,
        other => panic!("{other:?}"),
    };
    let read = Operation::Read(Moment::Now, Read::Inode(ROOT));
    let unlink = Operation::Change(Change::Unlink(EntryName::new(ROOT, b"file")));
    for operation in [&read, &unlink] {
        let _work = program::work_for(1, |_| true);
        assert!(is_interrupted(execute(&client, operation)));
    }
    let settings = NodeSettings {
        listen: vec![address],
        security: ServerSecurity::default(),
        to_others: ClientSecurity::default(),
        advertise: None,
        lease: Some(Duration::from_millis(300)),
        place: String::new(),
    };
    let _again = Node::start(&environment, &system_clock(), &settings).unwrap();
    assert!(lookup(&client, ROOT, "file").is_some());
    // A change that was executed is not interrupted, and its reply is not lost.
    let _work = program::work_for(1, |_| true);
    execute(&client, &unlink).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    execute(&client, &read).unwrap();
}

/// Runs futures of which many wait at once, in this thread.
fn run_all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    struct Thread(std::thread::Thread);
    impl std::task::Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Thread(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut outcomes = Vec::from_iter(futures.iter().map(|_| None));
    while outcomes.iter().any(Option::is_none) {
        for (future, outcome) in futures.iter_mut().zip(&mut outcomes) {
            if outcome.is_none()
                && let Poll::Ready(ready) = std::pin::Pin::new(future).poll(&mut context)
            {
                *outcome = Some(ready);
            }
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    outcomes.into_iter().flatten().collect()
}

#[test]
fn operations_are_futures() {
    let environment = environment(4);
    let node = start(&environment);
    let security = ClientSecurity::default();
    let remote = Remote::connect(node.addresses(), security, Patience::CLIENT).unwrap();
    let client = Arc::new(new_client_of(remote.clone()));
    let directory = create(&client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
    let several = AsyncClient::new(client.clone(), 2).unwrap();
    let names = names("file", 2000);
    let create = |name: &String| {
        let new = Cow::Owned(New { mode: file_type::REGULAR | 0o600, ..New::default() });
        let name = EntryName::new(directory, name.as_bytes());
        let create = Operation::Change(Change::Create { name, new, holds: false });
        several.execute_for(Caller::Trusted, &create).unwrap()
    };
    let made = run_all(Vec::from_iter(names.iter().map(create)));
    let inode = |reply| match reply {
        Ok(Reply::Inode(inode)) => inode.id,
        other => panic!("{other:?}"),
    };
    let made = made.into_iter().map(inode);
    let files = BTreeMap::from_iter(names.iter().cloned().zip(made));
    assert_has(&client, directory, &files);
    // Those that fail, and those of users, have their own outcomes.
    let who = Credentials::new(1000, [1000]);
    let lookups = names.iter().take(600).enumerate().map(|(at, name)| {
        let name = if at % 3 == 0 { "nothing" } else { name };
        let lookup = Read::Lookup(EntryName::new(directory, name.as_bytes()));
        let caller = if at % 2 == 0 { Caller::User(&who) } else { Caller::Trusted };
        several.execute_for(caller, &Operation::Read(Moment::Now, lookup)).unwrap()
    });
    let lookups = Vec::from_iter(lookups);
    // Operations that were begun end.
    drop(several);
    for (at, outcome) in run_all(lookups).into_iter().enumerate() {
        match outcome {
            Ok(Reply::Inode(inode)) => assert_eq!(Some(&inode.id), files.get(&names[at])),
            Err(Error::Namespace(error)) if at % 3 == 0 => {
                assert_eq!(error.errno(), rustix::io::Errno::NOENT);
            }
            other => panic!("{at}: {other:?}"),
        }
    }
}
