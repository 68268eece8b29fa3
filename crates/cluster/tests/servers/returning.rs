//! Files that come back to a server that has given them away, and names that may come. Work beside
//! requests is done when the tests say so.

use crate::place::*;
use canopy_cluster::{
    Client, Error, HandOverMessage, HandOverStage, Pace, Process, Request, Response, Sender,
    ServerRequest, SessionId, SessionSettings,
};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Changer, Moment, Operation, Read};
use canopy_namespace::{
    DirectoryHalf, EntryName, FileId, Inode, MovedEntry, ROOT, RenameMode, Reply, SetXattr,
    system_clock,
};
use canopy_partition::{Attempt, PartitionId, Placement, ServerId};
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The home of the root, and the server that gets half of it.
const HOME: ServerId = ServerId(0);
const OTHER: ServerId = ServerId(1);

struct Slow(Instant);

impl Pace for Slow {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn pause(&self, longest: Duration) {
        thread::sleep(longest.min(Duration::from_millis(1)));
    }

    fn has_threads(&self) -> bool {
        false
    }
}

/// An attempt of the home to hand the upper half of the root over, whose messages come late.
struct Late {
    process: Arc<Process>,
    attempt: Attempt,
}

impl Late {
    fn new(process: &Arc<Process>) -> Self {
        // Older than those that run.
        Late { process: process.clone(), attempt: Attempt { epoch: 1, number: 0 } }
    }

    fn send(&self, step: HandOverMessage<'_>) -> Response {
        let child = PartitionId::new(1).unwrap();
        let step = ServerRequest::HandOver(ROOT, child, self.attempt, step);
        self.process.answer(OTHER, Sender::SERVER, &Request::OfServer(step)).unwrap()
    }

    /// Has the receiver record that the attempt begins.
    fn begin(&self, client: &Client) {
        let half = DirectoryHalf { inode: stat(client, ROOT), acls: vec![], version: 0, times: 0 };
        let placement = Placement::new(HOME, 2, POLICY.partitions_per_server).unwrap();
        self.send(HandOverMessage::Begin(Cow::Owned(half), placement));
    }

    /// Sends an entry of the root. Returns whether the receiver takes it.
    fn entry(&self, name: &str, inode: &Inode) -> bool {
        let entry =
            MovedEntry { inode: inode.clone(), ..MovedEntry::pointer(name.into(), inode.id) };
        self.send(HandOverMessage::Entries(Cow::Owned(vec![entry]))) == Response::Done(true)
    }
}

fn stat(client: &Client, id: FileId) -> Inode {
    match execute(client, &Operation::Read(Moment::Now, Read::Inode(id))) {
        Ok(Reply::Inode(inode)) => inode,
        other => panic!("{other:?}"),
    }
}

fn rename(client: &Client, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) {
    let rename = Change::Rename { from, to, mode, whiteout: None };
    execute(client, &Operation::Change(rename)).unwrap();
}

/// Two servers of a process without threads.
fn open() -> (Arc<Process>, Client) {
    let (environment, pace) = (environment_of_large(2), Arc::new(Slow(Instant::now())));
    let sessions = SessionSettings::default();
    let process = Process::simulated(&environment, &system_clock(), sessions, None, pace).unwrap();
    [HOME, OTHER].into_iter().for_each(|server| process.start(server).unwrap());
    work(&process);
    let client = new_client_of(process.clone());
    (process, client)
}

fn work(process: &Process) {
    while process.work_once(true) {}
}

/// Makes a file in the half of the root that goes to the other server when the root splits.
fn file(client: &Client) -> (String, FileId) {
    let half = PartitionId::new(1).unwrap().hashes(1);
    let goes = |name: &String| half.contains(&EntryName::new(ROOT, name.as_bytes()).hash());
    let name = (0..).map(|number| format!("file{number}")).find(goes).unwrap();
    let made = create(client, ROOT, &name, file_type::REGULAR).unwrap();
    (name, made.id)
}

/// Makes a directory at the home of the root.
fn directory(process: &Process, client: &Client) -> FileId {
    directory_at(process, client, HOME).1
}

/// Makes a directory at a server, with a name in the upper half of the root.
fn directory_at(process: &Process, client: &Client, server: ServerId) -> (String, FileId) {
    let home = |id| process.answer(HOME, reader(), &Request::HomeOf(id)).unwrap();
    let half = PartitionId::new(1).unwrap().hashes(1);
    let mut made = (0..).filter_map(|number| {
        let name = format!("directory{server}-{number}");
        let is_upper = half.contains(&EntryName::new(ROOT, name.as_bytes()).hash());
        is_upper.then(|| (create(client, ROOT, &name, file_type::DIRECTORY).unwrap().id, name))
    });
    made.find(|(id, _)| home(*id) == Response::HomeOf(server)).map(|(id, name)| (name, id)).unwrap()
}

fn reader() -> Sender<'static> {
    Sender { caller: Caller::Trusted, session: SessionId(1 << 40), number: 0, life: None }
}

fn xattr(client: &Client, id: FileId) -> Option<Vec<u8>> {
    let read = Operation::Read(Moment::Now, Read::Xattr { id, name: b"user.x" });
    match execute(client, &read) {
        Ok(Reply::Bytes(value)) => value,
        other => panic!("{other:?}"),
    }
}

fn set_xattr(client: &Client, id: FileId) {
    let changer = Changer::Privileged;
    let (name, value, how) = (&b"user.x"[..], &b"value"[..], SetXattr::Any);
    let set = Change::SetXattr { id, name, value, how, changer };
    execute(client, &Operation::Change(set)).unwrap();
}

/// Removing the copy of a file that came back removed the extended attributes and contents of the
/// file, and until then it was not found by its id.
#[test]
fn a_file_that_comes_back_keeps_its_records() {
    let (process, client) = open();
    let back = directory(&process, &client);
    let (name, id) = file(&client);
    set_xattr(&client, id);
    work(&process);
    let stopped = process
        .split(ROOT, PartitionId::ZERO, &mut |step: HandOverStage| step != HandOverStage::Remove);
    assert!(matches!(stopped, Err(Error::Stopped(_))), "{stopped:?}");
    let (from, to) = (EntryName::new(ROOT, name.as_bytes()), EntryName::new(back, b"file"));
    rename(&client, from, to, RenameMode::NoReplace);
    assert_eq!(xattr(&client, id).as_deref(), Some(&b"value"[..]));
    work(&process);
    assert!(process.is_at_rest().unwrap());
    let stranger = new_client_of(process.clone());
    assert_eq!(xattr(&stranger, id).as_deref(), Some(&b"value"[..]));
    assert_eq!(lookup(&stranger, back, "file").unwrap().id, id);
}

/// A server executed a copy of a request that it had refused, once the file had come to it by the
/// change itself.
#[test]
fn a_late_copy_of_a_link_is_not_executed() {
    let (process, client) = open();
    let (_, id) = file(&client);
    work(&process);
    assert!(process.split(ROOT, PartitionId::ZERO, &mut |_: HandOverStage| true).unwrap());
    let name = EntryName::new(ROOT, b"link");
    let link = Request::Execute(Operation::Change(Change::Link { id, name }));
    let sender = Sender { session: SessionId(1 << 41), number: 256, ..reader() };
    let refused = process.answer(HOME, sender, &link).unwrap_err();
    assert!(matches!(refused, Error::WrongServer { .. }), "{refused}");
    // It gathers the file and its names at the home of its id.
    process.answer(OTHER, sender, &link).unwrap();
    unlink(&client, ROOT, "link");
    let late = process.answer(HOME, sender, &link);
    assert!(lookup(&client, ROOT, "link").is_none(), "{late:?}");
    work(&process);
    assert!(process.is_at_rest().unwrap());
}

/// A server executed a copy of a request that it had refused with an error.
#[test]
fn a_late_copy_of_a_change_that_failed_fails() {
    let (process, client) = open();
    let name = EntryName::new(ROOT, b"file");
    let unlink = Request::Execute(Operation::Change(Change::Unlink(name)));
    let sender = Sender { session: SessionId(1 << 41), number: 256, ..reader() };
    let is_missing = || match process.answer(HOME, sender, &unlink) {
        Err(Error::Namespace(error)) => error.errno() == Errno::NOENT,
        _ => false,
    };
    assert!(is_missing());
    create(&client, ROOT, "file", file_type::REGULAR).unwrap();
    assert!(is_missing());
    assert!(lookup(&client, ROOT, "file").is_some());
}

/// A client took a name as missing that was just being handed over.
#[test]
fn refusals_differ_while_a_name_may_come() {
    let (process, client) = open();
    let (name, id) = file(&client);
    work(&process);
    let lookup = Read::Lookup(EntryName::new(ROOT, name.as_bytes()));
    let request = Request::Execute(Operation::Read(Moment::Now, lookup));
    let ask = || match process.answer(OTHER, reader(), &request) {
        Err(Error::WrongServer { changes, .. }) => changes,
        other => panic!("{other:?}"),
    };
    let mut refusals = Vec::new();
    let split = process.split(ROOT, PartitionId::ZERO, &mut |step: HandOverStage| {
        if step == HandOverStage::Give {
            refusals = vec![ask(), ask()];
        }
        true
    });
    assert!(split.unwrap());
    assert_ne!(refusals[0], refusals[1]);
    assert_eq!(crate::place::lookup(&client, ROOT, &name).unwrap().id, id);
}

/// A late entry of a hand-over overwrote the records of a file that had come by a rename, and they went
/// once the attempt was known to have ended.
#[test]
fn a_late_entry_does_not_touch_a_file_that_came_by_a_rename() {
    let (process, client) = open();
    let (_, there) = directory_at(&process, &client, OTHER);
    let (name, id) = file(&client);
    set_xattr(&client, id);
    let before = stat(&client, id);
    work(&process);
    let late = Late::new(&process);
    late.begin(&client);
    rename(
        &client,
        EntryName::new(ROOT, name.as_bytes()),
        EntryName::new(there, b"file"),
        RenameMode::NoReplace,
    );
    assert!(!late.entry(&name, &before));
    // The next split removes the remains of the attempt.
    assert!(process.split(ROOT, PartitionId::ZERO, &mut |_: HandOverStage| true).unwrap());
    work(&process);
    assert!(process.is_at_rest().unwrap());
    let stranger = new_client_of(process.clone());
    assert_eq!(xattr(&stranger, id).as_deref(), Some(&b"value"[..]));
    assert_eq!(lookup(&stranger, there, "file").unwrap().id, id);
}

/// The server that decides an exchange gets a file, too, and it may be the receiver.
#[test]
fn a_late_entry_does_not_touch_a_file_that_came_by_an_exchange() {
    let (process, client) = open();
    let (_, there) = directory_at(&process, &client, OTHER);
    let (name, id) = file(&client);
    set_xattr(&client, id);
    let before = stat(&client, id);
    create(&client, there, "own", file_type::REGULAR).unwrap();
    work(&process);
    let late = Late::new(&process);
    late.begin(&client);
    let own = EntryName::new(there, b"own");
    rename(&client, own, EntryName::new(ROOT, name.as_bytes()), RenameMode::Exchange);
    assert!(!late.entry(&name, &before));
    work(&process);
    let stranger = new_client_of(process.clone());
    assert_eq!(xattr(&stranger, id).as_deref(), Some(&b"value"[..]));
    assert_eq!(lookup(&stranger, there, "own").unwrap().id, id);
}

/// A file with several names is at the home of its id, and may be open without a name there.
#[test]
fn a_late_entry_does_not_touch_a_file_that_was_gathered() {
    let (process, client) = open();
    let (_, there) = directory_at(&process, &client, OTHER);
    // Its id is of the other server.
    let id = create(&client, there, "born", file_type::REGULAR).unwrap().id;
    set_xattr(&client, id);
    let half = PartitionId::new(1).unwrap().hashes(1);
    let is_upper = |name: &String| half.contains(&EntryName::new(ROOT, name.as_bytes()).hash());
    let name = (0..).map(|number| format!("name{number}")).find(is_upper).unwrap();
    let root = EntryName::new(ROOT, name.as_bytes());
    rename(&client, EntryName::new(there, b"born"), root, RenameMode::NoReplace);
    let before = stat(&client, id);
    work(&process);
    let late = Late::new(&process);
    late.begin(&client);
    let link = Change::Link { id, name: EntryName::new(there, b"link") };
    execute(&client, &Operation::Change(link)).unwrap();
    // Only the old name is left: that of the entry.
    unlink(&client, there, "link");
    assert!(!late.entry(&name, &before));
    work(&process);
    let stranger = new_client_of(process.clone());
    assert_eq!(xattr(&stranger, id).as_deref(), Some(&b"value"[..]));
    assert_eq!(lookup(&stranger, ROOT, &name).unwrap().id, id);
}

/// A late entry gave a directory its old name back at its home, for good.
#[test]
fn a_late_entry_does_not_name_a_directory() {
    let (process, client) = open();
    let (name, id) = directory_at(&process, &client, OTHER);
    let parent = directory(&process, &client);
    let half = Request::Execute(Operation::Read(
        Moment::Now,
        Read::Lookup(EntryName::new(ROOT, name.as_bytes())),
    ));
    let Response::Reply(Reply::Inode(before)) = process.answer(HOME, reader(), &half).unwrap()
    else {
        panic!()
    };
    work(&process);
    let late = Late::new(&process);
    late.begin(&client);
    rename(
        &client,
        EntryName::new(ROOT, name.as_bytes()),
        EntryName::new(parent, b"moved"),
        RenameMode::NoReplace,
    );
    assert!(!late.entry(&name, &before));
    work(&process);
    let found = execute(&client, &Operation::Read(Moment::Now, Read::Parent(id)));
    assert!(matches!(found, Ok(Reply::File(at)) if at == parent), "{found:?}");
    assert_eq!(
        process.answer(OTHER, reader(), &Request::NameOf(id)).unwrap(),
        Response::NameOf(Some((parent, b"moved".to_vec())))
    );
}
