//! Reading snapshots: attributes, permissions of then and of now, and the end of a snapshot.

use crate::net::{
    Net, change, create, create_snapshot, delete_snapshot, errno, execute, list, lookup, rename,
    snapshots,
};
use canopy_cluster::{Client, Error};
use canopy_model::{Credentials, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Access, Caller, Change, Changer, Moment, Operation, Read, SnapshotsRequest,
};
use canopy_namespace::{EntryName, FileId, ROOT, Reply, SNAPSHOTS_MAX, SetAttributes, SetXattr};
use canopy_partition::ServerId;
use rustix::io::Errno;
use std::borrow::Cow;
use std::time::{Duration, Instant};

const DIRECTORY: u32 = file_type::DIRECTORY | 0o755;
const FILE: u32 = file_type::REGULAR | 0o644;

fn chmod(client: &Client, id: FileId, mode: u32) {
    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    change(client, Change::SetAttributes { id, set, changer: Changer::Privileged }).unwrap();
}

fn read(client: &Client, at: Moment, read: Read<'_>) -> Result<Reply, Error> {
    execute(client, &Operation::Read(at, read))
}

#[test]
fn a_snapshot_keeps_names_attributes_and_directories_that_split() {
    let net = Net::new(24);
    let client = net.client();
    let directory = create(&client, ROOT, "directory", DIRECTORY).unwrap().id;
    for number in 0..100 {
        create(&client, directory, &format!("old{number}"), FILE).unwrap();
    }
    let file = lookup(&client, Moment::Now, directory, "old7").unwrap().id;
    let xattr = |value: &'static [u8]| Change::SetXattr {
        id: file,
        name: b"user.note",
        value,
        how: SetXattr::Any,
        changer: Changer::Privileged,
    };
    change(&client, xattr(b"then")).unwrap();
    create_snapshot(&client, "s").unwrap();
    let at = Moment::Snapshot(snapshots(&client)["s"]);
    change(&client, xattr(b"now")).unwrap();
    chmod(&client, file, 0o600);
    rename(&client, (directory, "old7"), (ROOT, "moved")).unwrap();
    for number in 0..200 {
        create(&client, directory, &format!("new{number}"), FILE).unwrap();
    }
    rename(&client, (ROOT, "directory"), (ROOT, "renamed")).unwrap();
    net.settle();
    for server in net.servers() {
        net.restart(server);
    }
    let client = net.client();
    let mut names = Vec::from_iter(list(&client, at, directory).into_iter().map(|(name, _)| name));
    names.sort();
    let mut expected = Vec::from_iter((0..100).map(|number| format!("old{number}")));
    expected.sort();
    assert_eq!(names, expected);
    let then = lookup(&client, at, directory, "old7").unwrap();
    assert_eq!((then.id, then.mode & 0o777), (file, 0o644));
    let note = read(&client, at, Read::Xattr { id: file, name: b"user.note" });
    assert_eq!(note.unwrap(), Reply::Bytes(Some(b"then".to_vec())));
    assert_eq!(read(&client, at, Read::Parent(directory)).unwrap(), Reply::File(ROOT));
    assert!(lookup(&client, at, ROOT, "renamed").is_none());
    let whole = lookup(&client, at, ROOT, "directory").unwrap();
    assert_eq!((whole.id, whole.is_directory()), (directory, true));
    assert_eq!(list(&client, Moment::Now, directory).len(), 299);
}

#[test]
fn users_need_permissions_of_then_and_of_now() {
    let net = Net::new(1 << 20);
    let client = net.client();
    let open = create(&client, ROOT, "open", DIRECTORY).unwrap().id;
    let closed = create(&client, ROOT, "closed", file_type::DIRECTORY | 0o700).unwrap().id;
    let inner = create(&client, open, "inner", DIRECTORY).unwrap().id;
    create(&client, inner, "file", FILE).unwrap();
    create(&client, closed, "file", FILE).unwrap();
    create_snapshot(&client, "s").unwrap();
    let at = Moment::Snapshot(snapshots(&client)["s"]);
    let who = Credentials { uid: 4000, gids: vec![4000] };
    let look = |directory| {
        let lookup = Read::Lookup(EntryName::new(directory, b"file"));
        client.execute_for(Caller::User(&who), &Operation::Read(at, lookup))
    };
    let enter = |directory| {
        let enter = SnapshotsRequest::Enter(b"s", directory, Cow::Borrowed(&who));
        client.execute_for(Caller::User(&who), &Operation::Snapshots(enter))
    };
    let shown = |id| {
        let shown = Access::IsShown(0, id, Wanted::SEARCH, Cow::Borrowed(&who));
        execute(&client, &Operation::Access(shown)).unwrap() == Reply::Truth(true)
    };
    assert!(matches!(look(inner), Ok(Reply::Inode(_))));
    assert!(matches!(enter(inner), Ok(Reply::Entered(..))));
    assert!(shown(inner) && !shown(closed));
    assert_eq!(errno(look(closed)), Errno::ACCESS);
    // A directory opened later was closed then. One closed later stays hidden.
    chmod(&client, closed, 0o755);
    chmod(&client, open, 0o700);
    assert_eq!(errno(look(closed)), Errno::ACCESS);
    assert_eq!(errno(look(inner)), Errno::ACCESS);
    assert_eq!(errno(enter(inner)), Errno::ACCESS);
    assert!(!shown(inner));
    // A directory that is gone hides nothing.
    rename(&client, (open, "inner"), (ROOT, "inner")).unwrap();
    assert!(matches!(look(inner), Ok(Reply::Inode(_))));
    let others = Credentials { uid: 4001, gids: vec![4001] };
    let enter = SnapshotsRequest::Enter(b"s", inner, Cow::Borrowed(&others));
    let entered = client.execute_for(Caller::User(&who), &Operation::Snapshots(enter));
    assert_eq!(errno(entered), Errno::PERM);
    for request in
        [SnapshotsRequest::All, SnapshotsRequest::Create("t"), SnapshotsRequest::Delete("s")]
    {
        let done = client.execute_for(Caller::User(&who), &Operation::Snapshots(request));
        assert_eq!(errno(done), Errno::PERM);
    }
}

#[test]
fn a_deleted_snapshot_is_stale_and_its_checkpoints_go() {
    let net = Net::new(1 << 20);
    let client = net.client();
    create(&client, ROOT, "file", FILE).unwrap();
    create_snapshot(&client, "s").unwrap();
    assert_eq!(errno(create_snapshot(&client, "s")), Errno::EXIST);
    assert_eq!(errno(delete_snapshot(&client, "t")), Errno::NOENT);
    assert!(create_snapshot(&client, "no name").is_err());
    let (all, _) = client.snapshots().unwrap();
    let at = Moment::Snapshot(all[0].number);
    assert!(lookup(&client, at, ROOT, "file").is_some());
    // A server that is dead meanwhile does not matter.
    net.kill(ServerId(1));
    delete_snapshot(&client, "s").unwrap();
    net.restart(ServerId(1));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let file = Read::Lookup(EntryName::new(ROOT, b"file"));
        match read(&client, at, file) {
            Err(Error::Namespace(error)) if error.errno() == Errno::STALE => break,
            other => assert!(other.is_ok() && Instant::now() < deadline, "{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for server in net.servers() {
        assert_eq!(net.checkpoints(server), 0, "{server}");
    }
}

#[test]
fn there_are_so_many_snapshots_at_most() {
    let net = Net::new(1 << 20);
    let client = net.client();
    for number in 0..SNAPSHOTS_MAX {
        create_snapshot(&client, &format!("s{number}")).unwrap();
    }
    assert_eq!(errno(create_snapshot(&client, "more")), Errno::NOSPC);
    delete_snapshot(&client, "s7").unwrap();
    create_snapshot(&client, "more").unwrap();
}

#[test]
fn cuts_go_when_their_time_is_over() {
    let net = Net::new(1 << 20);
    let client = net.client();
    let cut = client.make_cut(Duration::from_secs(1)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !client.snapshots().unwrap().0.is_empty() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    let number = cut.tables.number;
    assert_eq!(errno(client.renew_cut(number, Duration::from_secs(1))), Errno::STALE);
    for server in net.servers() {
        assert_eq!(net.checkpoints(server), 0, "{server}");
    }
}
