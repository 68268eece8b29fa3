//! Rules that Linux has no call for: claims of operations, handles, quotas, snapshots, administration
//! and races.

use crate::new_namespace;
use canopy_model::{Credentials, Ownership, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Access, Administration, Caller, Change, Changer, Hold, Moment, Page, Query, QuotasRequest,
    Read, SnapshotsRequest,
};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{
    Clock, EntryName, Execute, FileId, Inode, Listing, Namespace, New, NoOpenFiles, Operation,
    ROOT, RenameMode, Reply, SetAttributes, SetTime, SetXattr, Settings, Tablet, TabletRange, acl,
    create_namespace, open_table, table_of,
};
use canopy_query::Expression;
use canopy_store::storage::MemoryStorage;
use canopy_store::{Environment, SstableCache};
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const ADA: u32 = 1001;
const BOB: u32 = 1002;

/// A namespace with a directory of Ada's, and what others may not see in it.
struct Place {
    namespace: Namespace,
    _directory: TempDir,
}

fn credentials(uid: u32) -> Credentials {
    Credentials::new(uid, [uid])
}

fn new(uid: u32, mode: u32) -> New {
    New { mode, uid, gid: uid, ..New::default() }
}

fn create(name: EntryName<'static>, uid: u32, mode: u32) -> Operation<'static> {
    Operation::Change(Change::Create { name, new: Cow::Owned(new(uid, mode)), holds: false })
}

fn set(id: FileId, set: SetAttributes) -> Operation<'static> {
    Operation::Change(Change::SetAttributes { id, set, changer: Changer::Privileged })
}

fn mode(id: FileId, mode: u32) -> Operation<'static> {
    set(id, SetAttributes { mode: Some(mode), ..SetAttributes::default() })
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        Place { namespace: new_namespace(&directory), _directory: directory }
    }

    fn by(&self, uid: u32, operation: &Operation<'_>) -> Result<Reply, Errno> {
        let who = credentials(uid);
        let outcome = self.namespace.execute_for(Caller::User(&who), operation);
        outcome.map_err(|error| error.errno())
    }

    fn made(&self, parent: FileId, name: &'static [u8], uid: u32, mode: u32) -> FileId {
        let made = self.namespace.create(parent, name, &new(uid, mode), false);
        made.expect("a file").id
    }
}

/// Operations that only root may, or that name somebody else.
fn privileged(id: FileId) -> Vec<Operation<'static>> {
    let root = || Cow::Owned(Credentials::new(0, [0]));
    let query = || Query {
        at: Moment::Now,
        base: ROOT,
        expression: Cow::Owned(Expression::And(Vec::new())),
        who: root(),
    };
    let own = Query { who: Cow::Owned(credentials(BOB)), ..query() };
    vec![
        Operation::Access(Access::Path(id)),
        Operation::Access(Access::MayRead(Moment::Now, id, root())),
        Operation::Access(Access::MayChange(id, root())),
        Operation::Access(Access::IsShown(0, id, Wanted::READ, root())),
        Operation::Hold(Hold::File(id)),
        Operation::Hold(Hold::Release(id, 1)),
        Operation::Quotas(QuotasRequest::All),
        Operation::Quotas(QuotasRequest::Of(Account::User(ADA))),
        Operation::Quotas(QuotasRequest::Of(Account::Group(ADA))),
        Operation::Quotas(QuotasRequest::Of(Account::Tree(1))),
        Operation::Quotas(QuotasRequest::Set(Account::User(BOB), Limits::default())),
        Operation::Quotas(QuotasRequest::SetTree(id, Limits::default())),
        Operation::Quotas(QuotasRequest::RemoveTree(id)),
        Operation::Quotas(QuotasRequest::RemoveTreeOfNumber(1)),
        Operation::Snapshots(SnapshotsRequest::All),
        Operation::Snapshots(SnapshotsRequest::Described),
        Operation::Snapshots(SnapshotsRequest::Enter(b"s", ROOT, root())),
        Operation::Snapshots(SnapshotsRequest::Create("t")),
        Operation::Snapshots(SnapshotsRequest::Delete("s")),
        Operation::Administration(Administration::SetIndexes(Vec::new())),
        Operation::Administration(Administration::Flush),
        Operation::Administration(Administration::Check { snapshot: None, reads_contents: true }),
        Operation::Administration(Administration::Repair { reads_contents: false }),
        Operation::Search(query(), 1),
        Operation::Explain(query(), false),
        Operation::Explain(own, true),
    ]
}

#[test]
fn what_is_roots_is_refused_to_users() {
    let place = Place::new();
    let directory = place.made(ROOT, b"d", ADA, file_type::DIRECTORY | 0o755);
    place.namespace.create_snapshot("s").expect("a snapshot");
    for operation in privileged(directory) {
        assert_eq!(place.by(BOB, &operation), Err(Errno::PERM), "{operation:?}");
    }
    for (uid, account) in [(BOB, Account::User(BOB)), (ADA, Account::Group(ADA))] {
        let usage = place.by(uid, &Operation::Quotas(QuotasRequest::Of(account)));
        assert!(usage.is_ok(), "{usage:?}");
    }
    let of_tree = Operation::Quotas(QuotasRequest::OfTree(directory));
    assert!(place.by(BOB, &of_tree).is_ok());
    place.by(ADA, &mode(directory, 0o711)).expect("a closed directory");
    assert_eq!(place.by(BOB, &of_tree), Err(Errno::ACCESS));
    for operation in privileged(directory) {
        // Root may ask for all of that; not everything is there.
        let refused = [Err(Errno::PERM), Err(Errno::ACCESS)];
        assert!(!refused.contains(&place.by(0, &operation)), "{operation:?}");
    }
}

#[test]
fn what_names_no_file_and_nobody_is_for_everyone() {
    let place = Place::new();
    use Administration::{Capacity, State, Time};
    for asked in [State, Time, Capacity, Administration::Settings] {
        let operation = Operation::Administration(asked);
        assert!(place.by(BOB, &operation).is_ok(), "{operation:?}");
    }
    let has = Operation::Snapshots(SnapshotsRequest::Has(1));
    assert_eq!(place.by(BOB, &has), Ok(Reply::Truth(false)));
}

/// Returns names that no attribute has in Linux, and the error for each.
fn impossible_xattrs() -> [(&'static [u8], Errno); 6] {
    [
        (b"", Errno::RANGE),
        (&const { [b'u'; 256] }, Errno::RANGE),
        (b"user.a\0trusted.evil", Errno::INVAL),
        (b"user.\0", Errno::INVAL),
        (b"trusted.a\0", Errno::INVAL),
        (b"system.posix_acl_access\0", Errno::INVAL),
    ]
}

#[test]
fn no_caller_makes_what_no_system_call_can() {
    let place = Place::new();
    let directory = place.made(ROOT, b"d", ADA, file_type::DIRECTORY | 0o755);
    let id = place.made(ROOT, b"f", ADA, file_type::REGULAR | 0o644);
    let (trusted, root, ada) = (Caller::Trusted, credentials(0), credentials(ADA));
    let execute = |caller, operation: &Operation<'_>| {
        place.namespace.execute_for(caller, operation).map_err(|error| error.errno())
    };
    for (number, caller) in [trusted, Caller::User(&root), Caller::User(&ada)].iter().enumerate() {
        let uid = caller_uid(*caller);
        for (name, errno) in impossible_xattrs() {
            let (how, changer) = (SetXattr::Any, Changer::Privileged);
            let set = Change::SetXattr { id, name, value: b"v", how, changer };
            assert_eq!(execute(*caller, &Operation::Change(set)), Err(errno), "{name:?}");
            let remove = Operation::Change(Change::RemoveXattr { id, name });
            assert_eq!(execute(*caller, &remove), Err(errno), "{name:?}");
            if !matches!(caller, Caller::Trusted) {
                let read = Operation::Read(Moment::Now, Read::Xattr { id, name });
                let outcome = execute(*caller, &read);
                assert_eq!(outcome, Err(errno), "{name:?}");
            }
        }
        let make = |kind, rdev, target: &[u8]| {
            let name = format!("{number} {kind} {rdev}").into_bytes();
            let file = New { rdev, target: target.to_vec(), ..new(uid, kind | 0o644) };
            let name = EntryName::new(directory, &name);
            let create = Change::Create { name, new: Cow::Borrowed(&file), holds: false };
            match execute(*caller, &Operation::Change(create))? {
                Reply::Inode(inode) => Ok(inode.rdev),
                other => panic!("{other:?}"),
            }
        };
        for target in [b"a\0b".as_slice(), b"\0", b"a\0"] {
            assert_eq!(make(file_type::SYMLINK, 0, target), Err(Errno::INVAL), "{target:?}");
        }
        assert_eq!(make(file_type::SYMLINK, 3, b"a"), Ok(0));
        for kind in [file_type::REGULAR, file_type::DIRECTORY, file_type::FIFO, file_type::SOCKET] {
            assert_eq!(make(kind, 77, b""), Ok(0), "{kind:o}");
        }
        if uid == 0 {
            assert_eq!(make(file_type::CHARACTER, 77, b""), Ok(77));
            assert_eq!(make(file_type::BLOCK, 77, b""), Ok(77));
        }
        let file = New { rdev: 77, ..new(uid, file_type::REGULAR | 0o644) };
        let nameless = Change::CreateNameless { directory, new: Cow::Borrowed(&file) };
        match execute(*caller, &Operation::Change(nameless)) {
            Ok(Reply::Inode(inode)) => assert_eq!(inode.rdev, 0),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(place.namespace.xattrs(id).expect("names"), Vec::<Vec<u8>>::new());
}

fn caller_uid(caller: Caller<'_>) -> u32 {
    match caller {
        Caller::Trusted => 0,
        Caller::User(who) => who.uid,
    }
}

#[test]
fn claims_of_operations_count_for_nothing() {
    let place = Place::new();
    let directory = place.made(ROOT, b"d", ADA, file_type::DIRECTORY | 0o777);
    let name = EntryName::new(directory, b"f");
    for (uid, gid) in [(0, 0), (ADA, ADA), (BOB, ADA), (ADA, BOB), (u32::MAX, BOB)] {
        let file = New { uid, gid, ..new(BOB, file_type::REGULAR | 0o4755) };
        let made = Change::Create { name, new: Cow::Borrowed(&file), holds: false };
        assert_eq!(place.by(BOB, &Operation::Change(made)), Err(Errno::PERM));
        let nameless = Change::CreateNameless { directory, new: Cow::Borrowed(&file) };
        assert_eq!(place.by(BOB, &Operation::Change(nameless)), Err(Errno::PERM));
    }
    let Ok(Reply::Inode(file)) = place.by(BOB, &create(name, BOB, file_type::REGULAR | 0o755))
    else {
        panic!("no file")
    };
    let (to, mode) = (EntryName::new(directory, b"g"), RenameMode::Replace);
    let whiteout = Change::Rename { from: name, to, mode, whiteout: Some(Ownership::ROOT) };
    assert_eq!(place.by(BOB, &Operation::Change(whiteout)), Err(Errno::PERM));
    for kind in [0, 0o050_000, 0o170_000] {
        let senseless = create(EntryName::new(directory, b"h"), BOB, kind | 0o644);
        assert_eq!(place.by(BOB, &senseless), Err(Errno::INVAL));
    }
    // The length is set by who says to be privileged, and is not: setuid goes.
    place.by(BOB, &self::mode(file.id, 0o4777)).expect("a mode");
    let cut = SetAttributes { size: Some(1), ..SetAttributes::default() };
    place.by(ADA, &set(file.id, cut)).expect("a length");
    assert_eq!(place.namespace.inode(file.id).expect("a file").mode & 0o7777, 0o777);
    let nobody = SetAttributes { uid: Some(u32::MAX), ..SetAttributes::default() };
    assert_eq!(place.by(0, &set(file.id, nobody)), Err(Errno::INVAL));
}

#[test]
fn users_pass_no_quota() {
    let place = Place::new();
    let directory = place.made(ROOT, b"d", ADA, file_type::DIRECTORY | 0o777);
    let limits = Limits { inodes_hard: 1, bytes_hard: 1000, ..Limits::default() };
    place.namespace.set_limits(Account::User(BOB), limits).expect("limits");
    let file = |name| create(EntryName::new(directory, name), BOB, file_type::REGULAR | 0o644);
    let Ok(Reply::Inode(made)) = place.by(BOB, &file(b"one")) else { panic!("no file") };
    assert_eq!(place.by(BOB, &file(b"two")), Err(Errno::DQUOT));
    let length = |size| set(made.id, SetAttributes { size: Some(size), ..Default::default() });
    // The operation claims to be privileged, whom no quota binds.
    assert_eq!(place.by(BOB, &length(3000)), Err(Errno::DQUOT));
    assert!(place.by(0, &length(3000)).is_ok(), "no quota binds root");
    let nameless =
        Change::CreateNameless { directory, new: Cow::Owned(new(BOB, file_type::REGULAR | 0o600)) };
    assert_eq!(place.by(BOB, &Operation::Change(nameless)), Err(Errno::DQUOT));
    let other = place.made(directory, b"other", ADA, file_type::REGULAR | 0o644);
    let given = SetAttributes { uid: Some(BOB), ..SetAttributes::default() };
    assert_eq!(place.by(ADA, &set(other, given.clone())), Err(Errno::PERM));
    assert!(place.by(0, &set(other, given)).is_ok(), "nor here");
}

#[test]
fn snapshots_need_the_permissions_of_then_and_of_now() {
    let place = Place::new();
    let then_closed = place.made(ROOT, b"then", ADA, file_type::DIRECTORY | 0o700);
    let now_closed = place.made(ROOT, b"now", ADA, file_type::DIRECTORY | 0o755);
    let known = place.made(ROOT, b"known", ADA, file_type::DIRECTORY | 0o744);
    for directory in [then_closed, now_closed, known] {
        let file = place.made(directory, b"f", ADA, file_type::REGULAR | 0o600);
        let namespace = &place.namespace;
        for name in [b"user.x".as_slice(), b"trusted.x"] {
            let how = SetXattr::Any;
            let keep = canopy_namespace::Privileges::Keep;
            namespace.set_xattr(file, name, b"v", how, keep).expect("an attribute");
        }
    }
    place.namespace.create_snapshot("s").expect("a snapshot");
    let enter = SnapshotsRequest::Enter(b"s", ROOT, Cow::Owned(credentials(BOB)));
    let Ok(Reply::Entered(number, _)) = place.by(BOB, &Operation::Snapshots(enter)) else {
        panic!("no snapshot")
    };
    place.by(ADA, &mode(then_closed, 0o755)).expect("a mode");
    place.by(ADA, &mode(now_closed, 0o700)).expect("a mode");
    let at = Moment::Snapshot(number);
    let name = |directory| EntryName::new(directory, b"f".as_slice());
    let page = |directory| Page { directory, after: 0, name: None, count_max: 9 };
    for directory in [then_closed, now_closed] {
        for read in
            [Read::Lookup(name(directory)), Read::Parent(directory), Read::List(page(directory))]
        {
            let operation = Operation::Read(at, read);
            assert_eq!(place.by(BOB, &operation), Err(Errno::ACCESS), "{operation:?}");
            assert!(place.by(ADA, &operation).is_ok(), "{operation:?}");
        }
    }
    let Ok(Reply::Entries(listed)) = place.by(BOB, &Operation::Read(at, Read::List(page(known))))
    else {
        panic!("no names")
    };
    let file = listed.iter().next().expect("a name").inode.clone();
    assert_eq!((file.mode, file.uid), (file_type::REGULAR, 0), "types alone");
    let xattr = |name| Operation::Read(at, Read::Xattr { id: file.id, name });
    assert_eq!(place.by(BOB, &xattr(b"user.x")), Err(Errno::ACCESS));
    assert_eq!(place.by(ADA, &xattr(b"trusted.x")), Ok(Reply::Bytes(None)));
    assert_eq!(place.by(ADA, &xattr(b"user.x")), Ok(Reply::Bytes(Some(b"v".to_vec()))));
    let names = place.by(BOB, &Operation::Read(at, Read::Xattrs(file.id)));
    assert_eq!(names, Ok(Reply::Names(vec![b"user.x".to_vec()])));
}

#[test]
fn a_damaged_acl_grants_nothing() {
    let place = Place::new();
    let file = place.made(ROOT, b"f", ADA, file_type::REGULAR | 0o660);
    let keep = canopy_namespace::Privileges::Keep;
    let namespace = &place.namespace;
    namespace.set_xattr(file, b"user.x", b"v", SetXattr::Any, keep).expect("an attribute");
    let mut batch = canopy_store::Batch::new();
    let key = canopy_namespace::keys::Space::Xattrs.of(file, acl::ACCESS.as_bytes());
    batch.put(key.as_ref(), b"none").expect("a record");
    namespace.table().write(&batch, canopy_store::Durability::Visible).expect("damage");
    let open = Operation::Access(Access::Open(file, Wanted::READ));
    let member = Credentials::new(BOB, [BOB, ADA]);
    let opened = namespace.execute_for(Caller::User(&member), &open);
    assert_eq!(opened.map_err(|error| error.errno()), Err(Errno::ACCESS));
    assert_eq!(place.by(ADA, &open), Ok(Reply::Done));
}

/// A tablet that holds everything, in memory. Its clock shows another time whenever it is asked, and
/// runs `meanwhile` before.
fn tablet(meanwhile: impl Fn() + Send + Sync + 'static) -> Tablet {
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    let now_ns = AtomicI64::new(1 << 60);
    let clock: Clock = Arc::new(move || {
        meanwhile();
        now_ns.fetch_add(1, Ordering::Relaxed)
    });
    create_namespace(&environment, &Settings::default(), Ownership::ROOT, &clock)
        .expect("a namespace");
    let id = table_of(&*environment.storage).expect("a table");
    let table = open_table(&environment, id, SstableCache::new(&environment, 1 << 20));
    let files = Arc::new(NoOpenFiles);
    Tablet::new(table.expect("a table"), TabletRange::All, clock, files).expect("a tablet")
}

/// Returns the files of a directory by their names.
fn listed(tablet: &Tablet, directory: FileId) -> Vec<(Vec<u8>, Inode)> {
    let mut files = Vec::new();
    let tell = |entry: canopy_namespace::Entry<'_>| {
        files.push((entry.name.to_vec(), entry.inode.clone()));
        true
    };
    tablet.list(&mut Listing::new(directory), 0, tell).expect("names");
    files
}

/// The clock is asked in the middle of a change: there, one that closes a directory waits until
/// others wait for it.
#[test]
fn a_change_that_waited_is_checked_when_its_turn_comes() {
    let (is_armed, (in_change, reached)) = (Arc::new(AtomicBool::new(false)), channel());
    let (go_on, may_go_on) = channel::<()>();
    let (gate, armed) = (Mutex::new((in_change, may_go_on)), is_armed.clone());
    let tablet = tablet(move || {
        if armed.swap(false, Ordering::AcqRel) {
            let gate = gate.lock().expect("a gate");
            gate.0.send(()).expect("somebody who waits");
            gate.1.recv().expect("somebody who waits");
        }
    });
    let (ada, bob) = (credentials(ADA), credentials(BOB));
    let by = |who: &Credentials, operation: &Operation<'_>| {
        tablet.execute_for(Caller::User(who), operation)
    };
    let directory = new(ADA, file_type::DIRECTORY | 0o777);
    let directory = tablet.create(ROOT, b"d", &directory, false).expect("a directory").id;
    let name = |name| EntryName::new(directory, name);
    let file = new(BOB, file_type::REGULAR | 0o644);
    let id = tablet.create(directory, b"f", &file, false).expect("a file").id;
    let (how, changer) = (SetXattr::Any, Changer::Privileged);
    let xattr = Change::SetXattr { id: directory, name: b"user.x", value: b"v", how, changer };
    let (from, to, mode) = (name(b"f"), name(b"n"), RenameMode::Replace);
    for change in [
        Change::Create { name: to, new: Cow::Borrowed(&file), holds: false },
        Change::CreateNameless { directory, new: Cow::Borrowed(&file) },
        Change::Link { id, name: to },
        Change::Rename { from, to, mode, whiteout: None },
        Change::Unlink(from),
        xattr,
    ] {
        by(&ada, &self::mode(directory, 0o777)).expect("an open directory");
        let operation = Operation::Change(change);
        is_armed.store(true, Ordering::Release);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| by(&ada, &self::mode(directory, 0o700)).expect("a closed directory"));
            reached.recv().expect("a change");
            let waiting = scope.spawn(|| by(&bob, &operation).map_err(|error| error.errno()));
            // A check that does not wait for its turn passes meanwhile.
            std::thread::sleep(Duration::from_millis(30));
            go_on.send(()).expect("a change");
            waiting.join().expect("an outcome")
        });
        assert_eq!(outcome, Err(Errno::ACCESS), "{operation:?}");
    }
}

/// Nobody gets what is put into a directory while it is closed, and nobody puts anything into it
/// then: no check is of another moment than what it is for.
#[test]
fn nothing_happens_between_a_check_and_what_it_is_for() {
    const ROUNDS: usize = 4000;
    let tablet = tablet(|| ());
    let (ada, bob) = (credentials(ADA), credentials(BOB));
    let by = |who: &Credentials, operation: &Operation<'_>| {
        tablet.execute_for(Caller::User(who), operation)
    };
    let open = |id, bits| match by(&ada, &mode(id, bits)) {
        Ok(Reply::Inode(inode)) => inode.ctime_ns,
        other => panic!("{other:?}"),
    };
    let directory = new(ADA, file_type::DIRECTORY | 0o777);
    let directory = tablet.create(ROOT, b"d", &directory, false).expect("a directory").id;
    let name = |name| EntryName::new(directory, name);
    let (secret, public, moved) = (name(b"s"), name(b"p"), name(b"q"));
    let is_over = AtomicBool::new(false);
    let goes_on = || !is_over.load(Ordering::Relaxed);
    let read = || {
        while goes_on() {
            let lookup = Operation::Read(Moment::Now, Read::Lookup(secret));
            assert!(by(&bob, &lookup).is_err(), "a secret");
            let page = Page { directory, after: 0, name: None, count_max: 9 };
            let list = Operation::Read(Moment::Now, Read::List(page));
            if let Ok(Reply::Entries(entries)) = by(&bob, &list) {
                assert!(entries.iter().all(|entry| entry.name != b"s"), "a secret");
            }
        }
    };
    let write = || {
        let rename =
            Change::Rename { from: public, to: moved, mode: RenameMode::Replace, whiteout: None };
        while goes_on() {
            let _ = by(&bob, &create(public, BOB, file_type::REGULAR | 0o644));
            let _ = by(&bob, &Operation::Change(rename.clone()));
            let _ = by(&bob, &Operation::Change(Change::Unlink(moved)));
        }
    };
    let mut made_meanwhile = Vec::new();
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(read)));
        (0..2).for_each(|_| drop(scope.spawn(write)));
        for _ in 0..ROUNDS {
            let closed_ns = open(directory, 0o700);
            by(&ada, &create(secret, ADA, file_type::REGULAR | 0o644)).expect("a secret");
            // Making a file sets this time, and so does renaming it.
            let is_new = |(name, inode): &(Vec<u8>, Inode)| {
                inode.ctime_ns > closed_ns && name != secret.name
            };
            made_meanwhile.extend(listed(&tablet, directory).into_iter().filter(is_new));
            by(&ada, &Operation::Change(Change::Unlink(secret))).expect("a secret");
            open(directory, 0o777);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(made_meanwhile.is_empty(), "{made_meanwhile:?}");
}

#[test]
fn times_of_access_are_for_readers() {
    let place = Place::new();
    let file = place.made(ROOT, b"f", ADA, file_type::REGULAR | 0o640);
    let touch = Operation::Change(Change::TouchAccess(file));
    assert_eq!(place.by(BOB, &touch), Err(Errno::ACCESS));
    assert!(place.by(ADA, &touch).is_ok());
    // A length with the time that goes with it takes the right to write alone.
    let (size, now) = (Some(3), Some(SetTime::Now));
    let cut = set(file, SetAttributes { size, mtime: now, ..SetAttributes::default() });
    assert_eq!(place.by(BOB, &cut), Err(Errno::ACCESS));
    place.by(ADA, &mode(file, 0o642)).expect("a mode");
    assert!(place.by(BOB, &cut).is_ok());
    let both = set(file, SetAttributes { size, atime: now, ..SetAttributes::default() });
    assert_eq!(place.by(BOB, &both), Err(Errno::PERM));
}
