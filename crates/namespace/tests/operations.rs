//! Operations of all kinds on a namespace of this process, each as the message that it is between
//! servers: what arrives is what was sent, and so is the reply.

use canopy_model::{Credentials, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Access, Administration, Caller, Change, Changer, FOUND_MAX, Hold, Moment, Page, Query,
    QuotasRequest, Read, SnapshotsRequest,
};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{
    Contents, EntryName, Error, Execute, FileContents, FileId, Listing, Namespace, New, Operation,
    Ownership, Privileges, ROOT, RenameMode, Reply, Result, SetAttributes, SetXattr, Settings,
    create_namespace, system_clock,
};
use canopy_query::{Component, Context, Expression, parse};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;
use tempfile::TempDir;

struct Server {
    namespace: Namespace,
    _place: TempDir,
}

impl Server {
    fn new() -> Self {
        let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let storage = LocalStorage::new(place.path()).expect("a storage");
        let environment = Environment::system(Arc::new(storage));
        let settings = Settings::default();
        create_namespace(&environment, &settings, Ownership::ROOT, &system_clock())
            .expect("a namespace");
        let contents = Contents::new(&place.path().join("contents")).expect("a directory");
        let namespace = Namespace::open(&environment, contents, system_clock());
        Server { namespace: namespace.expect("a namespace"), _place: place }
    }

    fn execute(&self, operation: &Operation<'_>) -> Result<Reply> {
        let message = postcard::to_extend(operation, Vec::new()).expect("a message");
        let arrived: Operation<'_> = postcard::from_bytes(&message).expect("an operation");
        assert_eq!(arrived, *operation);
        let reply = self.namespace.execute(&arrived)?;
        let message = postcard::to_extend(&reply, Vec::new()).expect("a message");
        let arrived: Reply = postcard::from_bytes(&message).expect("a reply");
        assert_eq!(arrived, reply);
        Ok(arrived)
    }

    fn done(&self, operation: Operation<'_>) -> Reply {
        self.execute(&operation).unwrap_or_else(|error| panic!("{operation:?}: {error}"))
    }

    fn create(&self, name: EntryName<'_>, mode: u32) -> FileId {
        let new = Cow::Owned(New { mode, umask: 0o22, uid: 7, gid: 8, ..New::default() });
        match self.done(Operation::Change(Change::Create { name, new, holds: true })) {
            Reply::Inode(inode) => inode.id,
            other => panic!("{other:?}"),
        }
    }
}

fn expression(query: &str) -> Expression {
    let nobody = |_: &str| None;
    let zone = jiff::tz::TimeZone::UTC;
    let context = Context { now_ns: 0, zone, user: &nobody, group: &nobody };
    match parse(query.as_bytes(), &context) {
        Ok(Some(Component::Search(expression))) => expression,
        other => panic!("{query}: {other:?}"),
    }
}

#[test]
fn every_operation_is_a_message() {
    let server = Server::new();
    let directory = server.create(EntryName::new(ROOT, b"d"), file_type::DIRECTORY | 0o755);
    let name = EntryName::new(directory, b"\xff one");
    let id = server.create(name, file_type::REGULAR | 0o644);
    let who = || Cow::Owned(Credentials::new(7, [8, 9]));
    let change = |change| server.done(Operation::Change(change));
    change(Change::SetXattr {
        id,
        name: b"user.x",
        value: &[0, 255],
        how: SetXattr::Create,
        changer: Changer::Member(Cow::Owned(vec![8])),
    });
    let now = |read| server.done(Operation::Read(Moment::Now, read));
    let xattr = Read::Xattr { id, name: b"user.x" };
    assert_eq!(now(xattr.clone()), Reply::Bytes(Some(vec![0, 255])));
    assert_eq!(now(Read::Parent(directory)), Reply::File(ROOT));
    change(Change::TouchAccess(id));
    change(Change::Sync(directory));
    change(Change::CreateNameless {
        directory,
        new: Cow::Owned(New { mode: file_type::REGULAR | 0o600, ..New::default() }),
    });
    let access = |access| server.done(Operation::Access(access));
    assert_eq!(access(Access::Path(id)), Reply::Bytes(Some(b"d/\xff one".to_vec())));
    assert_eq!(access(Access::MayRead(Moment::Now, id, who())), Reply::Truth(true));
    assert_eq!(access(Access::MayChange(id, who())), Reply::Truth(true));
    access(Access::IsDue(id));
    let hold = |hold| server.done(Operation::Hold(hold));
    assert!(matches!(hold(Hold::Name(name)), Reply::Inode(inode) if inode.id == id));
    assert_eq!(hold(Hold::Release(id, 1)), Reply::Done);
    let quotas = |quotas| server.done(Operation::Quotas(quotas));
    let limits = Limits { inodes_hard: 100, ..Limits::default() };
    assert_eq!(quotas(QuotasRequest::Of(Account::User(7))), Reply::Quotas(Vec::new()));
    quotas(QuotasRequest::Set(Account::User(7), limits));
    quotas(QuotasRequest::SetTree(directory, limits));
    for asked in
        [QuotasRequest::All, QuotasRequest::Of(Account::User(7)), QuotasRequest::OfTree(id)]
    {
        assert!(matches!(quotas(asked), Reply::Quotas(found) if !found.is_empty()));
    }
    assert_eq!(quotas(QuotasRequest::RemoveTree(directory)), Reply::Truth(true));
    assert_eq!(quotas(QuotasRequest::RemoveTreeOfNumber(1)), Reply::Truth(false));
    let administer = |what| server.done(Operation::Administration(what));
    use Administration::{Capacity, Check, Flush, Repair, SetIndexes, State, Time};
    administer(SetIndexes(vec!["size", "user.x"]));
    let check = || Check { snapshot: None, reads_contents: true };
    let repair = Repair { reads_contents: false };
    for asked in [State, Time, Capacity, Administration::Settings, Flush, repair] {
        administer(asked);
    }
    assert_eq!(administer(check()), Reply::Lines(Vec::new()));
    for query in ["[size<1 and (name~*one or uid=9) and not user.y]", "[user.x or mtime<@5]"] {
        let expression = expression(query);
        let query = Query {
            at: Moment::Now,
            base: ROOT,
            expression: Cow::Borrowed(&expression),
            who: who(),
        };
        let found = server.done(Operation::Search(query.clone(), 10));
        assert!(matches!(found, Reply::Found(found) if found.len() == 1));
        assert!(matches!(server.done(Operation::Explain(query, true)), Reply::Plan(_)));
    }
}

#[test]
fn snapshots_are_read_by_the_same_operations() {
    let server = Server::new();
    let directory = server.create(EntryName::new(ROOT, b"d"), file_type::DIRECTORY | 0o755);
    let name = EntryName::new(directory, b"one");
    let id = server.create(name, file_type::REGULAR | 0o644);
    server.namespace.open(id).expect("a file");
    server.namespace.write_at(id, 0, b"then", Privileges::Keep).expect("a write");
    let snapshots = |asked| server.done(Operation::Snapshots(asked));
    snapshots(SnapshotsRequest::Create("s"));
    server.namespace.write_at(id, 0, b"now!", Privileges::Keep).expect("a write");
    server.done(Operation::Change(Change::SetAttributes {
        id,
        set: SetAttributes { mode: Some(0o600), ..SetAttributes::default() },
        changer: Changer::Privileged,
    }));
    let user = || Cow::Owned(Credentials::new(1000, [1000]));
    let Reply::Entered(number, inode) = snapshots(SnapshotsRequest::Enter(b"s", directory, user()))
    else {
        panic!("nothing entered")
    };
    assert_eq!(inode.id, directory);
    let then = Moment::Snapshot(number);
    for (at, mode) in [(Moment::Now, 0o600), (then, 0o644)] {
        let found = server.done(Operation::Read(at, Read::Lookup(name)));
        assert!(matches!(found, Reply::Inode(inode) if inode.mode & 0o777 == mode));
        let page = Page { directory, after: 0, name: None, count_max: 10 };
        let listed = server.done(Operation::Read(at, Read::List(page)));
        assert!(matches!(listed, Reply::Entries(entries) if entries.count() == 1));
    }
    let truth = |access| server.done(Operation::Access(access));
    assert_eq!(truth(Access::MayRead(then, id, user())), Reply::Truth(true));
    assert_eq!(truth(Access::MayRead(Moment::Now, id, user())), Reply::Truth(false));
    assert_eq!(truth(Access::IsShown(0, id, Wanted::READ, user())), Reply::Truth(false));
    let file = server.namespace.open_past_file(number, id).expect("a file");
    assert_eq!(server.namespace.read_past_at(file, 0, 100).expect("contents"), b"then");
    server.namespace.close_past_file(file);
    let closed = server.namespace.read_past_at(file, 0, 1);
    assert!(matches!(closed, Err(Error::Posix(Errno::BADF))));
    assert!(matches!(snapshots(SnapshotsRequest::All), Reply::Snapshots(all) if all.len() == 1));
    assert!(
        matches!(snapshots(SnapshotsRequest::Described), Reply::Text(text) if text.contains("\"s\""))
    );
    assert_eq!(snapshots(SnapshotsRequest::Has(number)), Reply::Truth(true));
    snapshots(SnapshotsRequest::Delete("s"));
    let gone = server.execute(&Operation::Read(then, Read::Inode(id)));
    assert!(matches!(gone, Err(Error::Posix(Errno::STALE))));
}

#[test]
fn listings_by_parts_have_every_name_once() {
    let server = Server::new();
    let directory = server.create(EntryName::new(ROOT, b"d"), file_type::DIRECTORY | 0o755);
    let names = Vec::from_iter((0..500).map(|at| format!("name{at}").into_bytes()));
    for name in &names {
        server.create(EntryName::new(directory, name), file_type::REGULAR | 0o644);
    }
    let execute: &dyn Execute = &server.namespace;
    for room in [1, 5, 16, 17, 100, 1000] {
        let (mut listing, mut after, mut found) = (Listing::new(directory), 0, Vec::new());
        loop {
            let mut left = room;
            let listed = execute.list_by_parts(Moment::Now, &mut listing, after, |entry| {
                let takes = left > 0;
                if takes {
                    left -= 1;
                    after = entry.cookie;
                    found.push(entry.name.to_vec());
                }
                takes
            });
            listed.expect("a part");
            if left == room {
                break;
            }
        }
        found.sort();
        let mut expected = names.clone();
        expected.sort();
        assert_eq!(found, expected, "{room}");
    }
}

#[test]
fn a_search_returns_no_more_than_is_asked_nor_than_a_user_gets() {
    let server = Server::new();
    let count = FOUND_MAX + 5;
    for at in 0..count {
        let name = format!("name{at}").into_bytes();
        server.create(EntryName::new(ROOT, &name), file_type::REGULAR | 0o644);
    }
    let expression = expression("[name~name*]");
    let who = Credentials::new(7, [8]);
    let found = |caller, count_max| {
        let query = Query::new(Moment::Now, ROOT, &expression, &who);
        let search = Operation::Search(query, count_max);
        match server.namespace.execute_for(caller, &search).expect("files") {
            Reply::Found(found) => found.len() as u64,
            other => panic!("{other:?}"),
        }
    };
    let root = Credentials::new(0, [0]);
    for (asked, of_user) in [(0, 0), (1, 1), (10, 10), (u64::MAX, FOUND_MAX)] {
        for user in [&who, &root] {
            assert_eq!(found(Caller::User(user), asked), of_user, "{asked}");
        }
        assert_eq!(found(Caller::Trusted, asked), asked.min(count), "{asked}");
    }
}

#[test]
fn senseless_messages_do_no_harm() {
    let server = Server::new();
    let directory = server.create(EntryName::new(ROOT, b"d"), file_type::DIRECTORY | 0o755);
    let name = EntryName::new(directory, b"one");
    let id = server.create(name, file_type::REGULAR | 0o644);
    let new = Cow::Owned(New { mode: file_type::REGULAR | 0o644, ..New::default() });
    let (mode, how, changer) = (RenameMode::Replace, SetXattr::Any, Changer::Privileged);
    let set = SetAttributes { mode: Some(0o600), size: Some(100), ..SetAttributes::default() };
    let who = Cow::Owned(Credentials::new(7, [8]));
    let page = Page { directory, after: 0, name: Some(b"one"), count_max: 7 };
    let sent = [
        Operation::Read(Moment::Now, Read::Lookup(name)),
        Operation::Read(Moment::Now, Read::Inode(id)),
        Operation::Read(Moment::Now, Read::List(page)),
        Operation::Access(Access::IsShown(0, id, Wanted::READ, who)),
        Operation::Hold(Hold::Name(name)),
        Operation::Change(Change::Create { name, new, holds: false }),
        Operation::Change(Change::Link { id, name: EntryName::new(ROOT, b"two") }),
        Operation::Change(Change::Unlink(name)),
        Operation::Change(Change::Rename {
            from: name,
            to: name,
            mode,
            whiteout: Some(Ownership { uid: 1, gid: 1 }),
        }),
        Operation::Change(Change::SetAttributes { id, set, changer: changer.clone() }),
        Operation::Change(Change::SetXattr { id, name: b"user.x", value: b"v", how, changer }),
    ];
    let sent = sent.map(|operation| postcard::to_extend(&operation, Vec::new()).expect("bytes"));
    let (mut random, mut executed) = (StdRng::seed_from_u64(1), 0);
    let user = Credentials::new(7, [8]);
    for _ in 0..30_000 {
        let mut message = sent.choose(&mut random).expect("a message").clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..message.len());
            message[at] = random.random();
        }
        message.truncate(random.random_range(1..2 * message.len()));
        let arrived: Operation<'_> = match postcard::from_bytes(&message) {
            // A request that concerns all files takes long.
            Ok(Operation::Administration(_) | Operation::Snapshots(_)) | Err(_) => continue,
            Ok(arrived) => arrived,
        };
        let _ = server.namespace.execute_for(Caller::User(&user), &arrived);
        let _ = server.namespace.execute(&arrived);
        executed += 1;
    }
    assert!(executed > 1000, "{executed}");
    let long = vec![b'a'; 100_000];
    let read = |read| server.namespace.execute(&Operation::Read(Moment::Now, read));
    assert!(read(Read::Lookup(EntryName::new(ROOT, &long))).is_err());
    let _ = read(Read::Xattr { id, name: &long });
    let faults = server.namespace.check(|_| {}).expect("a check");
    assert!(faults.is_empty(), "{faults:?}");
}
