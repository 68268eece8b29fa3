//! Many operations at once, files with much metadata, and more files than memory has room for.

use crate::network::{connect, start};
use crate::place::*;
use canopy_cluster::{
    Client, Error, HandOverStage, ListeningProcess, Process, ProcessSettings, SessionId,
    create_cluster,
};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Changer, Moment, Operation, Read};
use canopy_namespace::{
    EntryName, FileId, New, Ownership, ROOT, RenameMode, Reply, SetXattr, Settings, system_clock,
};
use canopy_partition::{PartitionId, ServerId, SplitPolicy};
use canopy_store::Environment;
use canopy_store::storage::MemoryStorage;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Extended attributes of a large file: 2.5 MB, more than a message of clients has.
const XATTRS: usize = 40;
const VALUE_BYTES: usize = 62 << 10;

fn value(number: usize) -> Vec<u8> {
    vec![number as u8; VALUE_BYTES]
}

fn set_xattrs(client: &Client, id: FileId) {
    for number in 0..XATTRS {
        let name = format!("user.{number}");
        let (value, how) = (value(number), SetXattr::Any);
        let changer = Changer::Privileged;
        let set = Change::SetXattr { id, name: name.as_bytes(), value: &value, how, changer };
        execute(client, &Operation::Change(set)).unwrap();
    }
}

fn assert_has_xattrs(client: &Client, id: FileId) {
    for number in 0..XATTRS {
        let name = format!("user.{number}");
        let read = Operation::Read(Moment::Now, Read::Xattr { id, name: name.as_bytes() });
        let reply = execute(client, &read).unwrap();
        assert_eq!(reply, Reply::Bytes(Some(value(number))), "{name}");
    }
}

#[test]
fn large_files_move_between_processes() {
    let environment = environment_of_large(4);
    let (one, other) = (start(&environment), start(&environment));
    let client = connect(&[one.addresses(), other.addresses()].concat());
    let mut files = BTreeMap::new();
    for number in 0..24 {
        let name = format!("file{number}");
        files.insert(name.clone(), create(&client, ROOT, &name, file_type::REGULAR).unwrap().id);
    }
    let large = Vec::from_iter(files.values().copied().step_by(8));
    large.iter().for_each(|id| set_xattrs(&client, *id));
    // By hand-overs, of all partitions that there can be.
    let splits = |node: &ListeningProcess| {
        for (_, history) in node.process().partitions(ROOT).unwrap() {
            let _ = node.process().split(ROOT, history.partition(), &mut |_: HandOverStage| true);
        }
    };
    node_of_root(&[&one, &other])
        .process()
        .split(ROOT, PartitionId::ZERO, &mut |_: HandOverStage| true)
        .unwrap();
    for _ in 0..4 {
        splits(&one);
        splits(&other);
    }
    let moved = [&one, &other].map(|node| node.process().metrics().moved_entries.get());
    assert!(moved.iter().sum::<u64>() >= 24 / 2, "{moved:?}");
    let stranger = connect(other.addresses());
    large.iter().for_each(|id| assert_has_xattrs(&stranger, *id));
    // And by renames, to directories on all servers.
    let mut name = EntryName::new(ROOT, b"file0");
    let names = Vec::from_iter((0..6).map(|number| format!("d{number}")));
    for directory in &names {
        let directory = create(&client, ROOT, directory, file_type::DIRECTORY).unwrap().id;
        let to = EntryName::new(directory, b"large");
        let (mode, whiteout) = (RenameMode::Replace, None);
        let rename = Change::Rename { from: name, to, mode, whiteout };
        execute(&client, &Operation::Change(rename)).unwrap();
        assert_has_xattrs(&stranger, files["file0"]);
        name = to;
    }
}

fn node_of_root<'a>(nodes: &[&'a ListeningProcess]) -> &'a ListeningProcess {
    nodes.iter().find(|node| node.running().contains(&ServerId(0))).unwrap()
}

#[test]
fn many_operations_are_executed_at_once() {
    let environment = environment(4);
    let (one, other) = (start(&environment), start(&environment));
    let client = connect(&[one.addresses(), other.addresses()].concat());
    let directory = create(&client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
    let names = Vec::from_iter((0..1500).map(|number| format!("file{number}")));
    let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
    let creates = names.iter().map(|name| {
        let name = EntryName::new(directory, name.as_bytes());
        Operation::Change(Change::Create { name, new: Cow::Borrowed(&new), holds: false })
    });
    let creates = Vec::from_iter(creates);
    let mut files = BTreeMap::new();
    for (name, reply) in names.iter().zip(client.execute_all(Caller::Trusted, &creates)) {
        let Ok(Reply::Inode(inode)) = reply else { panic!("{name}: {reply:?}") };
        files.insert(name.clone(), inode.id);
    }
    assert!(client.addressing_errors() > 0, "the directory has split meanwhile");
    // Each reply is that of its operation.
    let missing = EntryName::new(directory, b"missing");
    let mut reads = Vec::from_iter(names.iter().map(|name| {
        let name = EntryName::new(directory, name.as_bytes());
        Operation::Read(Moment::Now, Read::Lookup(name))
    }));
    reads.insert(700, Operation::Read(Moment::Now, Read::Lookup(missing)));
    reads.insert(800, Operation::Read(Moment::Now, Read::Inode(directory)));
    reads.push(creates[3].clone());
    let mut replies = client.execute_all(Caller::Trusted, &reads);
    assert!(fails(&replies.pop().unwrap(), Errno::EXIST));
    assert!(matches!(replies.remove(800), Ok(Reply::Inode(inode)) if inode.is_directory()));
    assert!(fails(&replies.remove(700), Errno::NOENT));
    for ((name, id), reply) in names.iter().map(|name| (name, files[name])).zip(replies) {
        assert!(matches!(&reply, Ok(Reply::Inode(inode)) if inode.id == id), "{name}: {reply:?}");
    }
    assert_eq!(list(&client, directory).len(), names.len());
    let metrics = node_of_root(&[&one, &other]).process().metrics();
    assert!(metrics.calls.get() > metrics.frames.get(), "calls share frames");
}

fn fails(reply: &Result<Reply, Error>, errno: Errno) -> bool {
    matches!(reply, Err(Error::Namespace(error)) if error.errno() == errno)
}

#[test]
fn tables_are_flushed_within_their_memory() {
    const MEMORY: u64 = 16 << 20;
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    let (settings, clock) = (Settings::default(), system_clock());
    let policy = SplitPolicy::default();
    create_cluster(&environment, &settings, Ownership::ROOT, 3, policy, &clock).unwrap();
    let of_process = ProcessSettings { memory_bytes: MEMORY, ..ProcessSettings::default() };
    let open = || {
        let process = Process::with_settings(&environment, &clock, of_process.clone(), None);
        let process = process.unwrap();
        process.open_all().unwrap();
        process.look_after().unwrap();
        process
    };
    let process = open();
    let client = Client::new(process.clone(), SessionId(1));
    let names = Vec::from_iter((0..40_000).map(|number| format!("file-{number:0>100}")));
    for name in &names {
        create(&client, ROOT, name, file_type::REGULAR).unwrap();
    }
    let used = || {
        let text = process.metrics_text();
        let line = text.lines().find_map(|one| one.strip_prefix("canopy_cluster_memtable_bytes "));
        line.unwrap().parse::<u64>().unwrap()
    };
    // Without flushes, they would stay.
    let begin = Instant::now();
    while used() > MEMORY / 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", used());
        std::thread::sleep(Duration::from_millis(10));
    }
    process.sync().unwrap();
    drop((client, process));
    let client = Client::new(open(), SessionId(2));
    for name in names.iter().step_by(97) {
        assert!(lookup(&client, ROOT, name).is_some(), "{name}");
    }
}

#[test]
fn limits_are_named() {
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    let made = |servers, partitions_per_server| {
        let policy = SplitPolicy { partitions_per_server, ..SplitPolicy::default() };
        let (settings, clock) = (Settings::default(), system_clock());
        let made =
            create_cluster(&environment, &settings, Ownership::ROOT, servers, policy, &clock);
        made.unwrap_err().to_string()
    };
    let refused = made(4097, 1);
    assert!(refused.contains("1 to 4096 logical servers, not 4097"), "{refused}");
    let refused = made(4096, 17);
    assert!(refused.contains("at most 65536 partitions"), "{refused}");
    assert_eq!(environment.storage.list("", "").unwrap().len(), 0);
}
