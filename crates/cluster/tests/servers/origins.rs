//! Files that an import brings with all their attributes.

use crate::place::*;
use canopy_cluster::Error;
use canopy_model::Credentials;
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::operation::{Caller, Change, Moment, Operation, QuotasRequest, Read};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{EntryName, FileId, Inode, New, Origin, ROOT, Reply};
use rustix::io::Errno;
use std::borrow::Cow;

fn bring(
    client: &canopy_cluster::Client,
    caller: Caller<'_>,
    (directory, name): (FileId, &str),
    new: &New,
) -> Result<Inode, Errno> {
    let name = EntryName::new(directory, name.as_bytes());
    let create = Change::Create { name, new: Cow::Borrowed(new), holds: false };
    match client.execute_for(caller, &Operation::Change(create)) {
        Ok(Reply::Inode(inode)) => Ok(inode),
        Err(Error::Namespace(error)) => Err(error.errno()),
        other => panic!("{other:?}"),
    }
}

fn of(kind: u32, origin: Origin) -> New {
    New { mode: kind | 0o4640, uid: 7, gid: 8, origin: Some(Box::new(origin)), ..New::default() }
}

#[test]
fn files_have_the_attributes_of_their_origin() {
    let cluster = open(&environment(3));
    let client = &new_client(&cluster);
    let limits = Limits { inodes_hard: 2, ..Limits::default() };
    let set = Operation::Quotas(QuotasRequest::Set(Account::User(7), limits));
    let _: Reply = execute(client, &set).unwrap();
    let new = New { mode: file_type::DIRECTORY | 0o2777, gid: 9, ..New::default() };
    let directory = bring(client, Caller::Trusted, (ROOT, "d"), &new).unwrap().id;
    let xattrs = vec![(b"user.a".to_vec(), b"value".to_vec())];
    let times = Origin { mtime_ns: 1, ctime_ns: 2, atime_ns: 3, btime_ns: 4, ..Origin::default() };
    let origin = Origin { small: b"text".to_vec(), xattrs: xattrs.clone(), ..times.clone() };
    // More files than the limit lets the user have.
    for number in 0..20 {
        let name = format!("file{number}");
        let new = of(file_type::REGULAR, origin.clone());
        let made = bring(client, Caller::Trusted, (directory, &name), &new).unwrap();
        let found = lookup(client, directory, &name).unwrap();
        assert_eq!(made, found);
        let Inode { mode, uid, gid, size, .. } = found;
        // Neither the group nor the mode of the directory counts.
        assert_eq!((mode, uid, gid, size), (file_type::REGULAR | 0o4640, 7, 8, 4));
        let Inode { mtime_ns, ctime_ns, atime_ns, btime_ns, .. } = found;
        assert_eq!([mtime_ns, ctime_ns, atime_ns, btime_ns], [1, 2, 3, 4]);
        let read = Read::Xattr { id: found.id, name: b"user.a" };
        let read = execute(client, &Operation::Read(Moment::Now, read)).unwrap();
        assert_eq!(read, Reply::Bytes(Some(b"value".to_vec())));
    }
    let absent = Origin { absent: Some((77, 8)), ..times.clone() };
    let new = of(file_type::REGULAR, absent.clone());
    let made = bring(client, Caller::Trusted, (directory, "absent"), &new).unwrap();
    assert!(made.has(flag::ABSENT) && made.size == 77 && made.blocks == 8);
    // Usage is counted, and binds others.
    let full = create(client, directory, "more", file_type::REGULAR);
    assert!(matches!(full, Err(Error::Namespace(error)) if error.errno() == Errno::DQUOT));
    for (name, new, expected) in [
        (
            "large",
            of(file_type::REGULAR, Origin { small: vec![0; 1 << 16], ..times.clone() }),
            Errno::FBIG,
        ),
        ("fifo", of(file_type::FIFO, absent), Errno::INVAL),
        ("directory", of(file_type::DIRECTORY, Origin { xattrs, ..times.clone() }), Errno::INVAL),
        (
            "acl",
            of(
                file_type::REGULAR,
                Origin {
                    xattrs: vec![(b"system.posix_acl_access".to_vec(), b"odd".to_vec())],
                    ..times.clone()
                },
            ),
            Errno::INVAL,
        ),
    ] {
        let refused = bring(client, Caller::Trusted, (directory, name), &new);
        assert_eq!(refused, Err(expected), "{name}");
        assert_eq!(lookup(client, directory, name), None);
    }
    // Users bring nothing: they could give themselves times, and pass limits.
    let who = Credentials::new(7, [8]);
    let new = New { mode: file_type::REGULAR | 0o644, ..of(file_type::REGULAR, times) };
    let refused = bring(client, Caller::User(&who), (directory, "of-user"), &new);
    assert_eq!(refused, Err(Errno::PERM));
    cluster.process().settle();
    assert_sound(&*cluster, cluster.environment());
}
