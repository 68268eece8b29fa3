//! Files that come back to a server that has given them away, and names that may come. Work beside
//! requests is done when the tests say so.

use crate::place::*;
use canopy_cluster::{
    Client, Error, Pace, Process, Request, Response, Sender, SessionId, SessionSettings, Step,
};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Changer, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, ROOT, RenameMode, Reply, SetXattr, system_clock};
use canopy_partition::{PartitionId, ServerId};
use rustix::io::Errno;
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
    let home = |id| process.answer(HOME, reader(), &Request::HomeOf(id)).unwrap();
    let mut made = (0..).map(|number| {
        create(client, ROOT, &format!("directory{number}"), file_type::DIRECTORY).unwrap().id
    });
    made.find(|id| home(*id) == Response::HomeOf(HOME)).unwrap()
}

fn reader() -> Sender<'static> {
    Sender { caller: Caller::Trusted, session: SessionId(1 << 40), number: 0 }
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
    let stopped = process.split(ROOT, PartitionId::ZERO, &mut |step: Step| step != Step::Remove);
    assert!(matches!(stopped, Err(Error::Stopped(_))), "{stopped:?}");
    let (from, to) = (EntryName::new(ROOT, name.as_bytes()), EntryName::new(back, b"file"));
    let rename = Change::Rename { from, to, mode: RenameMode::NoReplace, whiteout: None };
    execute(&client, &Operation::Change(rename)).unwrap();
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
    assert!(process.split(ROOT, PartitionId::ZERO, &mut |_: Step| true).unwrap());
    let name = EntryName::new(ROOT, b"link");
    let link = Request::Execute(Operation::Change(Change::Link { id, name }));
    let sender = Sender { session: SessionId(1 << 41), number: 256, ..reader() };
    let refused = process.answer(HOME, sender, &link).unwrap_err();
    assert!(matches!(refused, Error::Elsewhere { .. }), "{refused}");
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
        Err(Error::Elsewhere { changes, .. }) => changes,
        other => panic!("{other:?}"),
    };
    let mut refusals = Vec::new();
    let split = process.split(ROOT, PartitionId::ZERO, &mut |step: Step| {
        if step == Step::Give {
            refusals = vec![ask(), ask()];
        }
        true
    });
    assert!(split.unwrap());
    assert_ne!(refusals[0], refusals[1]);
    assert_eq!(crate::place::lookup(&client, ROOT, &name).unwrap().id, id);
}
