//! Users at servers: what they guess, and what they use up. This needs root, and a process of its own:
//! it becomes other users for a while.

use canopy_cluster::wire::{Address, ClientSecurity, ServerSecurity};
use canopy_cluster::{
    Client, Error, ListeningProcess, ListeningSettings, LockAsk, LockRequest, Patience, Peers,
    Remote, Request, Response, Sender, SessionId, create_cluster,
};
use canopy_model::{Credentials, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Access, Caller, Change, FileLock, FileLocks, Hold, LockKind, LockMode, LockOutcome, LockOwner,
    LockRange, Moment, Operation, Page, PutChunks, Read, Writer,
};
use canopy_namespace::{
    EntryName, FileId, Inode, New, Ownership, ROOT, Reply, Settings, system_clock,
};
use canopy_partition::{ServerId, SplitPolicy};
use canopy_store::Environment;
use canopy_store::storage::MemoryStorage;
use nix::unistd::{Uid, geteuid, seteuid};
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

const ONE: u32 = 1234;
const OTHER: u32 = 1235;
const NOBODY: u32 = 65_534;

fn start() -> ListeningProcess {
    start_process(&storage())
}

fn storage() -> Environment {
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    let (settings, policy) = (Settings::default(), SplitPolicy::default());
    create_cluster(&environment, &settings, Ownership::ROOT, 2, policy, &system_clock()).unwrap();
    environment
}

fn start_process(environment: &Environment) -> ListeningProcess {
    let settings = ListeningSettings {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        security: ServerSecurity::default(),
        to_others: ClientSecurity::default(),
        advertise: None,
        lease: Some(Duration::from_millis(300)),
        place: String::new(),
    };
    ListeningProcess::start(environment, &system_clock(), &settings).unwrap()
}

/// Connects as a user, who is asked for the connection alone.
fn connect(addresses: &[Address], uid: u32) -> Arc<Remote> {
    seteuid(Uid::from_raw(uid)).unwrap();
    let security = ClientSecurity { tls: None, trusted_uids: Some(vec![0, uid]) };
    let remote = Remote::connect(addresses, security, Patience::CLIENT);
    seteuid(Uid::from_raw(0)).unwrap();
    remote.unwrap()
}

fn client(remote: &Arc<Remote>, uid: u32) -> Client {
    let session = remote.begin_session().unwrap();
    Client::new(remote.clone(), session).speaking_for(Some(Credentials::new(uid, [])))
}

fn create(client: &Client, uid: u32, directory: FileId, name: &str, mode: u32) -> FileId {
    let new = Cow::Owned(New { mode, uid, gid: uid, ..New::default() });
    let name = EntryName::new(directory, name.as_bytes());
    let create = Operation::Change(Change::Create { name, new, holds: true });
    match client.execute_for(Caller::Trusted, &create).unwrap() {
        Reply::Inode(inode) => inode.id,
        other => panic!("{other:?}"),
    }
}

fn execute(client: &Client, operation: &Operation<'_>) -> Result<Reply, Errno> {
    match client.execute_for(Caller::Trusted, operation) {
        Ok(reply) => Ok(reply),
        Err(Error::Namespace(error)) => Err(error.errno()),
        Err(error) => panic!("{error}"),
    }
}

fn read(read: Read<'_>) -> Operation<'_> {
    Operation::Read(Moment::Now, read)
}

fn lookup(client: &Client, directory: FileId, name: &str) -> Result<Inode, Errno> {
    match execute(client, &read(Read::Lookup(EntryName::new(directory, name.as_bytes()))))? {
        Reply::Inode(inode) => Ok(inode),
        other => panic!("{other:?}"),
    }
}

const DIRECTORY: u32 = file_type::DIRECTORY;
const REGULAR: u32 = file_type::REGULAR;

#[test]
fn users_get_no_further_than_their_names() {
    assert!(geteuid().is_root(), "becoming other users needs root");
    let node = start();
    let addresses = node.addresses();
    let root = connect(addresses, 0);
    let root = client(&root, 0).speaking_for(None);
    let closed = create(&root, 0, ROOT, "closed", DIRECTORY | 0o700);
    let inside = create(&root, 0, closed, "inside", DIRECTORY | 0o777);
    let file = create(&root, 0, inside, "file", REGULAR | 0o666);
    let listed = create(&root, 0, ROOT, "listed", DIRECTORY | 0o744);
    let below = create(&root, 0, listed, "below", DIRECTORY | 0o777);
    let public = create(&root, 0, ROOT, "public", DIRECTORY | 0o777);
    let shared = create(&root, 0, public, "shared", REGULAR | 0o644);
    let [one, other] = [ONE, OTHER].map(|uid| connect(addresses, uid));
    let user = client(&one, ONE);

    // An id from a look-up can be used, and look-ups go on from it.
    assert_eq!(lookup(&user, ROOT, "public").unwrap().id, public);
    assert_eq!(lookup(&user, public, "shared").unwrap().id, shared);
    assert!(execute(&user, &read(Read::Inode(shared))).is_ok());
    let own = create(&root, ONE, public, "own", REGULAR | 0o600);
    assert_eq!(execute(&user, &read(Read::Inode(own))).unwrap_err(), Errno::ACCESS);
    assert_eq!(lookup(&user, public, "own").unwrap().id, own);
    assert!(execute(&user, &read(Read::Inode(own))).is_ok());
    // A guessed id cannot, whatever the file's own permissions are.
    assert_eq!(lookup(&user, closed, "inside").unwrap_err(), Errno::ACCESS);
    list_below(&user, listed, below);
    for id in [inside, file, below] {
        let guessed = EntryName::new(id, b"file");
        let page = Page { directory: id, after: 0, name: None, count_max: 9 };
        let new = Cow::Owned(New { mode: REGULAR | 0o600, uid: ONE, ..New::default() });
        for operation in [
            read(Read::Inode(id)),
            read(Read::Lookup(guessed)),
            read(Read::List(page)),
            read(Read::Parent(id)),
            Operation::Hold(Hold::File(id)),
            Operation::Hold(Hold::Name(guessed)),
            Operation::Change(Change::Create { name: guessed, new, holds: false }),
            Operation::Change(Change::Unlink(guessed)),
            Operation::Change(Change::Link { id, name: EntryName::new(public, b"link") }),
            Operation::Change(Change::Link { id: own, name: guessed }),
        ] {
            assert_eq!(execute(&user, &operation).unwrap_err(), Errno::ACCESS, "{operation:?}");
        }
    }
    // Another user's client has not looked it up.
    let stranger = client(&other, OTHER);
    assert_eq!(execute(&stranger, &read(Read::Inode(own))).unwrap_err(), Errno::ACCESS);
    assert_eq!(lookup(&stranger, ROOT, "public").unwrap().id, public);
    assert_eq!(lookup(&stranger, public, "own").unwrap().id, own);
    lock_as_users(&user, &stranger, public, own, shared);
    lock_as_nobody(node.addresses(), own);
    restore_no_locks(&other, own);
    share_no_session(&node, &one, &other, own);
    begin_many_sessions(&node, &one, &other);
}

/// A listing without the right to search leads nowhere.
fn list_below(user: &Client, listed: FileId, below: FileId) {
    assert_eq!(lookup(user, ROOT, "listed").unwrap().id, listed);
    let page = Page { directory: listed, after: 0, name: None, count_max: 9 };
    let Reply::Entries(entries) = execute(user, &read(Read::List(page))).unwrap() else { panic!() };
    let found = Vec::from_iter(entries.iter().map(|entry| (entry.name.to_vec(), entry.inode.id)));
    assert_eq!(found, [(b"below".to_vec(), below)]);
}

fn lock(mode: LockMode) -> FileLock {
    let owner = LockOwner { kind: LockKind::Range, number: 1 };
    FileLock { owner, mode, range: LockRange::ALL, pid: 1, uid: 0 }
}

/// Users lock what they may open, and what they use up is theirs.
fn lock_as_users(user: &Client, stranger: &Client, public: FileId, own: FileId, shared: FileId) {
    let hold = |client: &Client, name: &str| {
        let name = EntryName::new(public, name.as_bytes());
        execute(client, &Operation::Hold(Hold::Name(name))).unwrap();
    };
    hold(user, "shared");
    hold(user, "own");
    hold(stranger, "shared");
    hold(stranger, "own");
    let set = |client: &Client, id, mode| client.set_lock(id, &lock(mode), false);
    let is_denied = |set: canopy_namespace::Result<LockOutcome>| {
        assert_eq!(set.unwrap_err().errno(), Errno::ACCESS);
    };
    is_denied(set(stranger, own, LockMode::Shared));
    is_denied(set(stranger, shared, LockMode::Exclusive));
    assert_eq!(set(stranger, shared, LockMode::Shared).unwrap(), LockOutcome::Set);
    assert_eq!(set(user, shared, LockMode::Shared).unwrap(), LockOutcome::Set);
    assert_eq!(set(user, own, LockMode::Exclusive).unwrap(), LockOutcome::Set);
    // One who has all locks that a user may have on a file keeps nobody else from having one.
    let at = |number: u64| FileLock {
        range: LockRange { start: 2 * number, end: 2 * number },
        ..lock(LockMode::Shared)
    };
    stranger.unlock(shared, lock(LockMode::Shared).owner, LockRange::ALL).unwrap();
    let refused =
        (0..10_000).find_map(|number| stranger.set_lock(shared, &at(number), false).err());
    assert_eq!(refused.unwrap().errno(), Errno::NOLCK);
    user.unlock(shared, lock(LockMode::Shared).owner, LockRange::ALL).unwrap();
    assert_eq!(set(user, shared, LockMode::Shared).unwrap(), LockOutcome::Set);
}

/// The user of the number that systems give to unknown users is a user like others.
fn lock_as_nobody(addresses: &[Address], own: FileId) {
    let nobody = client(&connect(addresses, NOBODY), NOBODY);
    let public = lookup(&nobody, ROOT, "public").unwrap().id;
    assert_eq!(lookup(&nobody, public, "own").unwrap().id, own);
    let name = EntryName::new(public, b"own");
    execute(&nobody, &Operation::Hold(Hold::Name(name))).unwrap();
    let set = nobody.set_lock(own, &lock(LockMode::Shared), false);
    assert_eq!(set.unwrap_err().errno(), Errno::ACCESS);
}

/// Locks that a user may not set cannot be restored either.
fn restore_no_locks(other: &Remote, own: FileId) {
    let ask = LockAsk::Restore(vec![lock(LockMode::Shared)]);
    let restore = Request::Lock(LockRequest { id: own, ticket: 1, ask });
    let who = Credentials::new(OTHER, []);
    let session = other.begin_session().unwrap();
    let sender = Sender { caller: Caller::User(&who), session, number: 0, life: None };
    let is_denied = |server: u32| match other.ask(ServerId(server), sender, &restore) {
        Err(Error::Namespace(error)) => error.errno() == Errno::ACCESS,
        _ => false,
    };
    assert!((0..2).any(is_denied));
}

/// A session is used by those alone for whom it was begun.
fn share_no_session(node: &ListeningProcess, one: &Remote, other: &Remote, own: FileId) {
    let session = one.begin_session().unwrap();
    let ask = |remote: &Remote, session, uid, request: &Request<'_>| {
        let who = Credentials::new(uid, []);
        let sender = Sender { caller: Caller::User(&who), session, number: 0, life: None };
        match remote.ask(ServerId(0), sender, request) {
            Ok(_) => None,
            Err(Error::Namespace(error)) => Some(error.errno()),
            Err(error) => panic!("{error}"),
        }
    };
    let renew = Request::Renew(Vec::new());
    let set = LockAsk::Set(lock(LockMode::Shared), false);
    let lock = Request::Lock(LockRequest { id: own, ticket: 1 << 40, ask: set });
    assert_eq!(ask(one, session, ONE, &renew), None);
    for request in [&renew, &lock, &Request::EndSession, &Request::AwaitLocks] {
        assert_eq!(ask(other, session, OTHER, request), Some(Errno::PERM), "{request:?}");
    }
    share_no_objects(other, session, own);
    // Nor is there one that nobody has begun.
    assert_eq!(ask(other, SessionId(7), OTHER, &renew), Some(Errno::PERM));
    assert_eq!(ask(other, other.begin_session().unwrap(), OTHER, &renew), None);
    assert_eq!(node.running().len(), 2);
}

/// A user had records name objects of another user's session, and of none.
fn share_no_objects(other: &Remote, session: SessionId, file: FileId) {
    let own = other.begin_session().unwrap();
    let who = Credentials::new(OTHER, []);
    let put = |maker: SessionId| {
        let chunks = Cow::Owned(Vec::new());
        let put = PutChunks { session: maker.0, small: None, chunks, size_min: 0 };
        let change =
            Change::PutChunks { id: file, put, writer: Writer::Member(Cow::Owned(vec![])) };
        let sender = Sender { caller: Caller::User(&who), session: own, number: 0, life: None };
        let request = Request::Execute(Operation::Change(change));
        match other.ask(ServerId(0), sender, &request).unwrap_err() {
            Error::Namespace(error) => error.errno(),
            error => panic!("{error}"),
        }
    };
    assert_eq!([put(session), put(SessionId(7))], [Errno::PERM; 2]);
    // The namespace has no chunks, which is found out later.
    assert_eq!(put(own), Errno::INVAL);
}

/// A user with very many sessions keeps nobody else from beginning one.
fn begin_many_sessions(node: &ListeningProcess, one: &Remote, other: &Remote) {
    let renew = |remote: &Remote, uid| {
        let who = Credentials::new(uid, []);
        let session = remote.begin_session().unwrap();
        let sender = Sender { caller: Caller::User(&who), session, number: 0, life: None };
        remote.ask(ServerId(0), sender, &Request::Renew(Vec::new()))
    };
    let begun = (0..10_000).take_while(|_| renew(one, ONE).is_ok()).count();
    assert!((4000..4100).contains(&begun), "{begun}");
    assert!(matches!(renew(other, OTHER), Ok(Response::Renewed(..))));
    let counts = node.process().session_counts(ServerId(0)).unwrap();
    assert!(counts.sessions < 4200, "{counts:?}");
}

/// Requests that have a server ask another one, which has as many of them. No process has so many
/// threads.
#[test]
fn processes_with_many_requests_do_not_wait_for_each_other() {
    const CALLS: usize = 400;
    assert!(geteuid().is_root(), "becoming other users needs root");
    let storage = storage();
    let nodes = [start_process(&storage), start_process(&storage)];
    while nodes.iter().any(|node| node.running().len() != 1) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let addresses = nodes.each_ref().map(|node| node.addresses()[0].clone());
    let machine = connect(&addresses, 0);
    let root = client(&machine, 0).speaking_for(None);
    let mut chains = Vec::new();
    for number in 0..8 {
        let mut chain = vec![(ROOT, format!("chain{number}"))];
        for _ in 0..4 {
            let (parent, name) = chain.last().unwrap().clone();
            let id = create(&root, 0, parent, &name, DIRECTORY | 0o755);
            chain.push((id, "below".to_owned()));
        }
        chains.push(chain);
    }
    let is_shown = |client: &Client, id, uid| {
        let who = Credentials::new(uid, []);
        let access = Access::IsShown(0, id, Wanted::SEARCH, Cow::Owned(who));
        execute(client, &Operation::Access(access))
    };
    let user = Arc::new(client(&machine, ONE));
    let stranger = client(&machine, OTHER);
    std::thread::scope(|scope| {
        let calls = Vec::from_iter((0..CALLS).map(|number| {
            let (chain, user) = (&chains[number % chains.len()], user.clone());
            scope.spawn(move || is_shown(&user, chain.last().unwrap().0, ONE))
        }));
        lookup(&stranger, ROOT, "chain0").unwrap();
        for call in calls {
            assert_eq!(call.join().unwrap(), Ok(Reply::Truth(true)));
        }
    });
}
