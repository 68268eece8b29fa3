//! Contents of files in snapshots: chunks stay as long as a snapshot needs them, wherever their file
//! has gone.

use crate::net::{CHUNK, Net, create_snapshot, delete_snapshot, rename, settings, snapshots};
use canopy_cluster::contents::{Memory, collect_session, sessions};
use canopy_cluster::{Client, ClusterNamespace, Error};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_namespace::{EntryName, Execute, FileContents, FileId, New, Privileges, ROOT, Reply};
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn user(net: &Net) -> ClusterNamespace {
    let client = Arc::new(net.client());
    ClusterNamespace::new(client, &net.environment, &settings(), Memory::default()).unwrap()
}

fn create(user: &ClusterNamespace, name: &str) -> FileId {
    let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
    let name = EntryName::new(ROOT, name.as_bytes());
    let create = Change::Create { name, new: Cow::Owned(new), holds: false };
    match user.execute_for(Caller::Trusted, &Operation::Change(create)).unwrap() {
        Reply::Inode(inode) => inode.id,
        other => panic!("{other:?}"),
    }
}

fn write(user: &ClusterNamespace, id: FileId, bytes: &[u8]) {
    user.open(id).unwrap();
    assert_eq!(user.write_at(id, 0, bytes, Privileges::Keep).unwrap(), bytes.len());
    user.close(id).unwrap();
}

fn read_past(user: &ClusterNamespace, snapshot: u64, id: FileId) -> Result<Vec<u8>, Errno> {
    let handle = user.open_past_file(snapshot, id).map_err(|error| error.errno())?;
    let length = user.past_bytes(handle).unwrap();
    let read = user.read_past_at(handle, 0, length as usize + 10);
    let read = read.map_err(|error| error.errno());
    user.close_past_file(handle);
    assert!(user.past_bytes(handle).is_err());
    read
}

fn objects(net: &Net) -> usize {
    net.environment.storage.list("contents/chunk/", "").unwrap().len()
}

fn collect(net: &Net) {
    for server in net.servers() {
        net.process(server).unwrap().collect().unwrap();
    }
}

/// Collects until so many objects are left.
fn collect_until(net: &Net, left: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        collect(net);
        if objects(net) == left {
            return;
        }
        assert!(Instant::now() < deadline, "{} are left", objects(net));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Renames a file to the directory of another server.
fn move_to(client: &Client, from: (FileId, &str), to: FileId) -> Result<Reply, Error> {
    rename(client, from, (to, "file"))
}

#[test]
fn objects_stay_while_a_snapshot_needs_them() {
    let net = Net::new(1 << 20);
    let (client, user) = (net.client(), user(&net));
    let directories = Vec::from_iter((0..3).map(|server| net.directory_at(server)));
    let bytes = |seed: usize, length: usize| -> Vec<u8> {
        (0..length).map(|at| ((at * 31 + at / CHUNK) * (seed + 3)) as u8).collect()
    };
    let id = create(&user, "file");
    let small = create(&user, "small");
    let (one, two) = (bytes(1, 3 * CHUNK + 77), bytes(2, 5 * CHUNK));
    write(&user, id, &one);
    write(&user, small, b"small then");
    create_snapshot(&client, "one").unwrap();
    let first = snapshots(&client)["one"];
    let mut at = (ROOT, "file");
    // The file goes from server to server, and is written there.
    for (number, directory) in directories.iter().enumerate() {
        move_to(&client, at, *directory).unwrap();
        at = (*directory, "file");
        write(&user, id, &bytes(number + 10, 4 * CHUNK));
        collect(&net);
        assert_eq!(read_past(&user, first, id).unwrap(), one);
    }
    write(&user, small, &bytes(5, 2000));
    write(&user, id, &two);
    create_snapshot(&client, "two").unwrap();
    let second = snapshots(&client)["two"];
    // Objects made and replaced between the snapshots are removed. Only those of both are left.
    collect_until(&net, 4 + 5 + 1);
    let unlink = Change::Unlink(EntryName::new(at.0, at.1.as_bytes()));
    client.execute_for(Caller::Trusted, &Operation::Change(unlink)).unwrap();
    collect(&net);
    // The client dies, and its objects are collected.
    net.sync();
    for session in sessions(&*net.environment.storage).unwrap() {
        let process = net.process(canopy_partition::ServerId(0)).unwrap();
        let (environment, pace) = (&net.environment, &mut || ());
        let collected = collect_session(environment, &*process, &client, session, pace).unwrap();
        assert_eq!(collected.removed, 0);
    }
    for server in net.servers() {
        net.restart(server);
    }
    let reader = self::user(&net);
    assert_eq!(read_past(&reader, first, id).unwrap(), one);
    assert_eq!(read_past(&reader, second, id).unwrap(), two);
    assert_eq!(read_past(&reader, first, small).unwrap(), b"small then");
    assert_eq!(read_past(&reader, first, directories[0]), Err(Errno::ISDIR));
    delete_snapshot(&client, "one").unwrap();
    collect_until(&net, 5 + 1);
    assert_eq!(read_past(&reader, second, id).unwrap(), two);
    delete_snapshot(&client, "two").unwrap();
    collect_until(&net, 1);
}
