//! Directories whose attributes several servers have.

use crate::place::*;
use canopy_cluster::{Client, Error};
use canopy_model::{Acl, AclEntry, AclTag, Credentials};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Access, Caller, Change, Changer, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, Inode, New, ROOT, Reply, SetAttributes, SetXattr, acl};
use canopy_partition::PartitionId;
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;

const USER: u32 = 1001;

fn user() -> Credentials {
    Credentials { uid: USER, gids: vec![USER] }
}

/// Returns the number of the error of a call; 0 if there is none.
fn errno<T>(result: Result<T, Error>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => canopy_namespace::Error::from(error).errno().raw_os_error(),
    }
}

fn create_as(client: &Client, directory: FileId, name: &str, kind: u32) -> Result<Inode, Error> {
    let new = New { mode: kind | 0o640, uid: USER, gid: USER, ..New::default() };
    let name = EntryName::new(directory, name.as_bytes());
    let create = Change::Create { name, new: Cow::Owned(new), holds: false };
    match client.execute_for(Caller::User(&user()), &Operation::Change(create))? {
        Reply::Inode(inode) => Ok(inode),
        other => panic!("{other:?}"),
    }
}

fn set(client: &Client, id: FileId, set: SetAttributes) -> Result<Inode, Error> {
    let set = Change::SetAttributes { id, set, changer: Changer::Privileged };
    match execute(client, &Operation::Change(set))? {
        Reply::Inode(inode) => Ok(inode),
        other => panic!("{other:?}"),
    }
}

fn set_mode(client: &Client, id: FileId, mode: u32) -> Result<Inode, Error> {
    set(client, id, SetAttributes { mode: Some(mode), ..SetAttributes::default() })
}

fn set_acl(client: &Client, id: FileId, name: &str, entries: Vec<AclEntry>) {
    let value = Acl { entries }.encode();
    let (name, changer) = (name.as_bytes(), Changer::Privileged);
    let set = Change::SetXattr { id, name, value: &value, how: SetXattr::Any, changer };
    let reply = execute(client, &Operation::Change(set)).unwrap();
    assert_eq!(reply, Reply::Done);
}

fn acl_of(client: &Client, id: FileId, name: &str) -> Option<Vec<u8>> {
    let read = Read::Xattr { id, name: name.as_bytes() };
    match execute(client, &Operation::Read(Moment::Now, read)).unwrap() {
        Reply::Bytes(value) => value,
        other => panic!("{other:?}"),
    }
}

fn entry(tag: AclTag, permissions: u16) -> AclEntry {
    AclEntry { tag, permissions }
}

/// Returns a directory of the root with partitions on all servers.
fn split_directory(cluster: &Arc<Cluster>, client: &Client) -> FileId {
    let directory = create(client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
    for number in 0..300 {
        create(client, directory, &format!("file{number}"), file_type::REGULAR).unwrap();
    }
    cluster.process().settle();
    assert!(cluster.process().partitions(directory).unwrap().len() >= 6);
    directory
}

/// Creates as a user under many names, so that all partitions are asked, and returns the errors.
fn errors_of_creates(client: &Client, directory: FileId, prefix: &str) -> Vec<i32> {
    let create = |number| {
        let name = format!("{prefix}{number}");
        errno(create_as(client, directory, &name, file_type::REGULAR))
    };
    let mut errors: Vec<i32> = (0..60).map(create).collect();
    errors.sort_unstable();
    errors.dedup();
    errors
}

#[test]
fn a_mode_reaches_all_partitions() {
    let cluster = open(&environment(3));
    let client = &new_client(&cluster);
    let directory = split_directory(&cluster, client);
    assert_eq!(errors_of_creates(client, directory, "a"), [Errno::ACCESS.raw_os_error()]);
    let changed = set_mode(client, directory, 0o777).unwrap();
    assert_eq!(changed.mode & 0o7777, 0o777);
    assert_eq!(stat(&cluster, directory).mode & 0o7777, 0o777);
    assert_eq!(errors_of_creates(client, directory, "b"), [0]);
    // The sticky bit keeps files of others, wherever they are.
    set_mode(client, directory, 0o1777).unwrap();
    let unlink = |name: String| {
        let unlink = Change::Unlink(EntryName::new(directory, name.as_bytes()));
        errno(client.execute_for(Caller::User(&user()), &Operation::Change(unlink)))
    };
    assert!((0..60).all(|number| unlink(format!("file{number}")) == Errno::PERM.raw_os_error()));
    assert!((0..60).all(|number| unlink(format!("b{number}")) == 0));
    let closed = set_mode(client, directory, 0o700).unwrap();
    assert_eq!(errors_of_creates(client, directory, "c"), [Errno::ACCESS.raw_os_error()]);
    assert!(closed.ctime_ns >= changed.ctime_ns);
    cluster.restart();
    assert_eq!(errors_of_creates(client, directory, "d"), [Errno::ACCESS.raw_os_error()]);
    assert_eq!(stat(&cluster, directory).mode & 0o7777, 0o700);
}

#[test]
fn an_acl_reaches_all_partitions() {
    let cluster = open(&environment(3));
    let client = &new_client(&cluster);
    let directory = split_directory(&cluster, client);
    let of_user = |permissions| {
        vec![
            entry(AclTag::Owner, 7),
            entry(AclTag::User(USER), permissions),
            entry(AclTag::OwningGroup, 0),
            entry(AclTag::Mask, 7),
            entry(AclTag::Other, 0),
        ]
    };
    set_acl(client, directory, acl::ACCESS, of_user(7));
    assert_eq!(errors_of_creates(client, directory, "a"), [0]);
    set_acl(client, directory, acl::ACCESS, of_user(5));
    assert_eq!(errors_of_creates(client, directory, "b"), [Errno::ACCESS.raw_os_error()]);
    set_acl(client, directory, acl::ACCESS, of_user(7));
    set_acl(client, directory, acl::DEFAULT, of_user(6));
    // Files of all partitions inherit, and directories, whose home is any server.
    for number in 0..60 {
        for kind in [file_type::REGULAR, file_type::DIRECTORY] {
            let name = format!("heir{number}-{kind}");
            let made = create_as(client, directory, &name, kind).unwrap();
            assert!(acl_of(client, made.id, acl::ACCESS).is_some(), "{name}");
            let is_directory = kind == file_type::DIRECTORY;
            assert_eq!(acl_of(client, made.id, acl::DEFAULT).is_some(), is_directory, "{name}");
        }
    }
    let remove = Change::RemoveXattr { id: directory, name: acl::DEFAULT.as_bytes() };
    execute(client, &Operation::Change(remove)).unwrap();
    for number in 0..60 {
        let made = create_as(client, directory, &format!("none{number}"), file_type::REGULAR);
        assert!(acl_of(client, made.unwrap().id, acl::ACCESS).is_none());
    }
}

#[test]
fn new_partitions_have_the_newest_attributes() {
    let cluster = open(&environment_of_large(3));
    let client = &new_client(&cluster);
    let files = make(&cluster, 200, file_type::REGULAR);
    // An attempt that does not come to its end leaves attributes with the receiver.
    let mut steps = 0;
    let stopped = cluster.split(PartitionId::ZERO, &mut |_| {
        steps += 1;
        steps < 3
    });
    assert!(stopped.is_err());
    set_mode(client, ROOT, 0o777).unwrap();
    assert!(cluster.split(PartitionId::ZERO, &mut |_| true).unwrap());
    assert_eq!(errors_of_creates(client, ROOT, "a"), [0]);
    set_mode(client, ROOT, 0o755).unwrap();
    assert!(cluster.split(PartitionId::ZERO, &mut |_| true).unwrap());
    assert!(cluster.split(PartitionId::new(1).unwrap(), &mut |_| true).unwrap());
    assert_eq!(errors_of_creates(client, ROOT, "b"), [Errno::ACCESS.raw_os_error()]);
    assert_eq!(files.len(), 200);
}

#[test]
fn only_servers_with_partitions_get_attributes() {
    let cluster = open(&environment_of_large(64));
    let client = &new_client(&cluster);
    make(&cluster, 100, file_type::REGULAR);
    for _ in 0..3 {
        assert!(cluster.split(PartitionId::ZERO, &mut |_| true).unwrap());
    }
    assert!(cluster.split(PartitionId::new(1).unwrap(), &mut |_| true).unwrap());
    let process = cluster.process();
    process.settle();
    let before = process.metrics().request_count();
    set_mode(client, ROOT, 0o700).unwrap();
    let requests = process.metrics().request_count() - before;
    // The change, and P1, P2, P3 and P4. The client asks all five for the attributes that it shows.
    assert!((5..=11).contains(&requests), "{requests}");
    assert_eq!(errors_of_creates(client, ROOT, "a"), [Errno::ACCESS.raw_os_error()]);
}

#[test]
fn paths_lead_through_all_servers() {
    let cluster = open(&environment(3));
    let client = &new_client(&cluster);
    let (mut directory, mut path) = (ROOT, String::new());
    for depth in 0..10 {
        let name = format!("level{depth}");
        directory = create(client, directory, &name, file_type::DIRECTORY).unwrap().id;
        path = if path.is_empty() { name } else { format!("{path}/{name}") };
        for number in 0..80 {
            create(client, directory, &format!("file{number}"), file_type::REGULAR).unwrap();
        }
    }
    cluster.process().settle();
    let file = lookup(client, directory, "file7").unwrap();
    for (id, path) in [(directory, path.clone()), (file.id, format!("{path}/file7"))] {
        let asked = Operation::Access(Access::Path(id));
        let found = execute(&new_client(&cluster), &asked).unwrap();
        assert_eq!(found, Reply::Bytes(Some(path.into_bytes())));
    }
    let parent = Operation::Read(Moment::Now, Read::Parent(directory));
    let Reply::File(parent) = execute(client, &parent).unwrap() else { panic!() };
    let ninth = lookup(client, parent, "level9").unwrap();
    assert_eq!(ninth.id, directory);
    // Users do not get to know paths.
    let asked = Operation::Access(Access::Path(directory));
    assert_eq!(errno(client.execute_for(Caller::User(&user()), &asked)), 1);
}
