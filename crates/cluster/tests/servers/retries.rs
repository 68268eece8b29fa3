//! Each change is executed once, whatever is lost on the way.

use crate::place::{create, execute, list, lookup};
use crate::site::{LOSSES, Loss, Site};
use canopy_cluster::{Client, Error, Peers, Request, Response, Sender, ServerRequest, SessionId};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Changer, Operation, WriteSmall, Writer};
use canopy_namespace::{
    DirectoryHalf, EntryName, FileId, Inode, New, NewDirectory, ROOT, RenameMode, Reply,
    SetAttributes,
};
use canopy_partition::{Attempt, ServerId};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers that follow from a seed.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

pub fn fails_with(error: &Error, errno: Errno) -> bool {
    matches!(error, Error::Namespace(error) if error.errno() == errno)
}

fn create_of(name: &[u8], kind: u32) -> Operation<'_> {
    let new = New { mode: kind | 0o755, ..New::default() };
    let name = EntryName::new(ROOT, name);
    Operation::Change(Change::Create { name, new: Cow::Owned(new), holds: false })
}

pub fn unlink(client: &Client, name: &str) -> Result<FileId, Error> {
    let unlink = Change::Unlink(EntryName::new(ROOT, name.as_bytes()));
    match execute(client, &Operation::Change(unlink))? {
        Reply::File(id) => Ok(id),
        other => panic!("{other:?}"),
    }
}

fn set_mode(client: &Client, id: FileId, mode: u32) -> Result<Inode, Error> {
    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    let set = Change::SetAttributes { id, set, changer: Changer::Privileged };
    match execute(client, &Operation::Change(set))? {
        Reply::Inode(inode) => Ok(inode),
        other => panic!("{other:?}"),
    }
}

/// Checks that the root has these files alone, and that no directory is left without a name.
fn check(site: &Arc<Site>, files: &BTreeMap<String, FileId>, why: &str) {
    let client = site.client(u64::MAX);
    let mut listed = list(&client, ROOT);
    listed.sort();
    assert!(listed.iter().eq(files.keys()), "{listed:?} instead of {files:?}, {why}");
    for (name, id) in files {
        assert_eq!(lookup(&client, ROOT, name).map(|inode| inode.id), Some(*id), "{why}, {name}");
    }
    site.pass(20);
    let failure = site.process().take_failure();
    assert!(site.process().is_at_rest().unwrap() && failure.is_none(), "{why}: {failure:?}");
}

#[test]
fn a_change_is_executed_once_after_any_loss() {
    for loss in LOSSES {
        for kind in [file_type::REGULAR, file_type::DIRECTORY] {
            let site = Site::open(3);
            let client = site.client(7);
            // So that the client knows where the root is.
            assert!(lookup(&client, ROOT, "none").is_none());
            let mut files = BTreeMap::new();
            for number in 0..8 {
                let name = format!("file{number}");
                site.lose([Some(loss)]);
                let made = create(&client, ROOT, &name, kind).unwrap();
                assert_eq!(lookup(&client, ROOT, &name).unwrap().id, made.id, "{loss:?}");
                files.insert(name, made.id);
            }
            if kind == file_type::REGULAR {
                site.lose([Some(loss)]);
                assert_eq!(unlink(&client, "file3").unwrap(), files.remove("file3").unwrap());
                assert!(fails_with(&unlink(&client, "file3").unwrap_err(), Errno::NOENT));
            }
            site.lose([Some(loss)]);
            let inode = set_mode(&client, files["file5"], 0o700).unwrap();
            assert_eq!((inode.id, inode.mode & 0o777), (files["file5"], 0o700));
            check(&site, &files, &format!("{loss:?} {kind:o}"));
        }
    }
}

#[test]
fn changes_are_executed_once_at_random() {
    for seed in 1..=12 {
        let numbers = &mut Numbers(seed * 0x9e37_79b9);
        let site = Site::open(3);
        let clients = [site.client(7), site.client(8)];
        let mut files = BTreeMap::new();
        for step in 0..60 {
            let losses = (0..numbers.below(4)).map(|_| match numbers.below(3) {
                0 => None,
                _ => Some(LOSSES[numbers.below(LOSSES.len())]),
            });
            site.lose(Vec::from_iter(losses));
            let client = &clients[numbers.below(2)];
            let name = format!("file{}", numbers.below(20));
            let why = format!("seed {seed}, step {step}, {name}");
            let is_directory = numbers.below(4) == 0;
            let kind = if is_directory { file_type::DIRECTORY } else { file_type::REGULAR };
            match (numbers.below(3), files.get(&name).copied()) {
                (0, Some((id, false))) => {
                    assert_eq!(unlink(client, &name).unwrap(), id, "{why}");
                    files.remove(&name);
                }
                (1, Some((id, _))) => {
                    let mode = numbers.below(0o1000) as u32;
                    let inode = set_mode(client, id, mode).expect(&why);
                    assert_eq!((inode.id, inode.mode & 0o777), (id, mode), "{why}");
                }
                (_, before) => {
                    let made = create(client, ROOT, &name, kind);
                    if before.is_some() {
                        assert!(fails_with(&made.unwrap_err(), Errno::EXIST), "{why}");
                    } else {
                        files.insert(name, (made.expect(&why).id, is_directory));
                    }
                }
            }
        }
        let files = files.into_iter().map(|(name, (id, _))| (name, id)).collect();
        check(&site, &files, &format!("seed {seed}"));
    }
}

#[test]
fn a_change_of_several_servers_is_executed_once() {
    for loss in LOSSES {
        let site = Site::open(3);
        let client = &site.client(7);
        let one = create(client, ROOT, "one", file_type::DIRECTORY).unwrap().id;
        let mut files = BTreeMap::from([("one".to_string(), one)]);
        for number in 0..4 {
            let name = format!("file{number}");
            let id = create(client, ROOT, &name, file_type::REGULAR).unwrap().id;
            let link = Change::Link { id, name: EntryName::new(one, name.as_bytes()) };
            site.lose([Some(loss)]);
            let linked = execute(client, &Operation::Change(link)).unwrap();
            let Reply::Inode(inode) = linked else { panic!("{linked:?}") };
            assert_eq!((inode.id, inode.nlink), (id, 2), "{loss:?}");
            let other = format!("other{number}");
            let from = EntryName::new(ROOT, name.as_bytes());
            let to = EntryName::new(ROOT, other.as_bytes());
            let mode = RenameMode::NoReplace;
            let rename = Operation::Change(Change::Rename { from, to, mode, whiteout: None });
            site.lose([Some(loss)]);
            assert_eq!(execute(client, &rename).unwrap(), Reply::Done, "{loss:?}");
            site.lose([Some(loss)]);
            let gone = Change::Unlink(EntryName::new(one, name.as_bytes()));
            let unlinked = execute(client, &Operation::Change(gone)).unwrap();
            assert_eq!(unlinked, Reply::File(id), "{loss:?}");
            assert_eq!(lookup(client, ROOT, &other).unwrap().nlink, 1, "{loss:?}");
            files.insert(other, id);
        }
        check(&site, &files, &format!("{loss:?}"));
    }
}

/// Sends a change as a client does.
fn send(
    site: &Site,
    server: ServerId,
    session: u64,
    number: u64,
    operation: &Operation<'_>,
) -> Result<Reply, Error> {
    let sender =
        Sender { caller: Caller::Trusted, session: SessionId(session), number, life: None };
    match site.ask(server, sender, &Request::Execute(operation.clone()))? {
        Response::Reply(reply) => Ok(reply),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sessions_do_not_share_numbers() {
    let site = Site::open(1);
    let home = ServerId(0);
    let (one, other) =
        (create_of(b"one", file_type::REGULAR), create_of(b"other", file_type::REGULAR));
    let first = send(&site, home, 1, 256, &one).unwrap();
    let second = send(&site, home, 2, 256, &other).unwrap();
    assert_ne!(first, second);
    site.process().sync().unwrap();
    site.restart();
    assert_eq!(send(&site, home, 1, 256, &one).unwrap(), first);
    assert_eq!(send(&site, home, 2, 256, &other).unwrap(), second);
    assert!(fails_with(&send(&site, home, 3, 256, &one).unwrap_err(), Errno::EXIST));
}

#[test]
fn a_late_copy_of_a_change_is_refused() {
    let site = Site::open(2);
    let home = ServerId(0);
    let remove = Operation::Change(Change::Unlink(EntryName::new(ROOT, b"file")));
    let make = create_of(b"file", file_type::REGULAR);
    let made = send(&site, home, 1, 256, &make).unwrap();
    send(&site, home, 1, 512, &remove).unwrap();
    // The client has used the slot again, so it has had the reply.
    for _ in 0..2 {
        assert!(send(&site, home, 1, 256, &make).unwrap_err().to_string().contains("before"));
        assert!(lookup(&site.client(9), ROOT, "file").is_none());
        site.process().sync().unwrap();
        site.restart();
    }
    // A server that gets names gets this knowledge, too.
    site.hand_over();
    for server in site.servers() {
        assert!(send(&site, server, 1, 256, &make).is_err());
    }
    // Another slot is another matter.
    let again = (0..2).find_map(|server| send(&site, ServerId(server), 1, 257, &make).ok());
    assert_ne!(again.unwrap(), made);
}

/// A rename of one name of a file to another one of it changes nothing. A copy that came once the other
/// name was gone did.
#[test]
fn a_late_copy_of_a_change_of_nothing_changes_nothing() {
    for servers in [1, 3] {
        let site = Site::open(servers);
        let client = site.client(9);
        let other = create(&client, ROOT, "other", file_type::DIRECTORY).unwrap().id;
        let mut number = 256;
        for name in (0..8).map(|number| format!("file{number}")) {
            let id = create(&client, ROOT, &name, file_type::REGULAR).unwrap().id;
            let to = EntryName::new(other, name.as_bytes());
            execute(&client, &Operation::Change(Change::Link { id, name: to })).unwrap();
            let from = EntryName::new(ROOT, name.as_bytes());
            let mode = RenameMode::Replace;
            let rename = Operation::Change(Change::Rename { from, to, mode, whiteout: None });
            let mut answers =
                site.servers().map(|home| (home, send(&site, home, 1, number, &rename)));
            let (home, reply) = answers.find(|(_, reply)| reply.is_ok()).unwrap();
            assert_eq!(reply.unwrap(), Reply::Done);
            execute(&client, &Operation::Change(Change::Unlink(to))).unwrap();
            for _ in 0..2 {
                assert_eq!(send(&site, home, 1, number, &rename).unwrap(), Reply::Done);
                assert_eq!(lookup(&client, ROOT, &name).unwrap().id, id, "{servers}");
                assert!(lookup(&client, other, &name).is_none(), "{servers}");
                site.process().sync().unwrap();
                site.restart();
            }
            number += 256;
        }
    }
}

/// A write that is too large for a record writes nothing: the client writes chunks then.
#[test]
fn a_write_of_nothing_is_answered_again() {
    let site = Site::open(1);
    let id = create(&site.client(9), ROOT, "file", file_type::REGULAR).unwrap().id;
    let write = WriteSmall { pieces: Vec::new(), size_min: 1 << 30 };
    let write = Operation::Change(Change::WriteSmall { id, write, writer: Writer::Privileged });
    for _ in 0..2 {
        assert_eq!(send(&site, ServerId(0), 1, 256, &write).unwrap(), Reply::Written(None));
    }
}

#[test]
fn copies_of_a_change_at_once_are_executed_once() {
    for kind in [file_type::REGULAR, file_type::DIRECTORY] {
        let site = Site::open(2);
        for number in 1..=50 {
            let name = format!("file{number}");
            let replies = std::thread::scope(|scope| {
                let send = || {
                    let create = create_of(name.as_bytes(), kind);
                    send(&site, ServerId(0), 1, 256 * number, &create).unwrap()
                };
                let threads = [scope.spawn(send), scope.spawn(send), scope.spawn(send)];
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
        }
        site.process().settle();
        let client = &site.client(9);
        let files = list(client, ROOT).into_iter();
        let files = files.map(|name| (name.clone(), lookup(client, ROOT, &name).unwrap().id));
        let files = BTreeMap::from_iter(files);
        assert_eq!(files.len(), 50);
        check(&site, &files, "copies");
    }
}

#[test]
fn halves_without_a_name_go() {
    let site = Site::open(2);
    let inode = Inode { mode: file_type::DIRECTORY | 0o755, nlink: 2, ..Inode::default() };
    let half = DirectoryHalf { inode, acls: Vec::new(), version: 0, times: 0 };
    let plan = NewDirectory { parent: ROOT, name: b"name".to_vec(), half };
    let make = |attempt| {
        let make = ServerRequest::MakeDirectory(Cow::Borrowed(&plan), ServerId(0), attempt);
        let made = site.ask(ServerId(1), Sender::SERVER, &Request::OfServer(make));
        let Response::Made(inode) = made.unwrap() else { panic!() };
        inode.id
    };
    let is_there = |id| {
        let part = site.ask(ServerId(1), Sender::SERVER, &Request::DirectoryAtServer(id)).unwrap();
        matches!(part, Response::DirectoryAtServer(Some(_), _))
    };
    // The server of the name has died in an attempt of its table's first owner.
    let epoch = 1;
    let id = make(Attempt { epoch, number: 1000 });
    assert!(is_there(id) && !site.process().is_at_rest().unwrap());
    // Not at once: the attempt may go on, and asking costs a message.
    site.pass(1);
    assert!(is_there(id));
    site.pass(10);
    assert!(!is_there(id) && site.process().is_at_rest().unwrap());
    // The home dies, too.
    let id = make(Attempt { epoch, number: 1001 });
    site.restart();
    assert!(!is_there(id) && site.process().is_at_rest().unwrap());
    // An owner that has been replaced does not know attempts of its successor.
    let id = make(Attempt { epoch: 1 << 40, number: 1 });
    site.pass(20);
    assert!(is_there(id) && !site.process().is_at_rest().unwrap());
}

#[test]
fn nothing_stays_of_sessions_that_have_ended() {
    let site = Site::open(3);
    let clients = [7, 8].map(|session| site.client(session));
    for number in 0..30 {
        for (of, client) in clients.iter().enumerate() {
            let kind = if number % 3 == 0 { file_type::DIRECTORY } else { file_type::REGULAR };
            create(client, ROOT, &format!("{of}-{number}"), kind).unwrap();
        }
    }
    site.hand_over();
    // Changes that do not overlap need one record at a server.
    let counts = site.counts();
    assert!(counts.sessions >= 4 && counts.changes == counts.sessions, "{counts:?}");
    let [one, other] = clients;
    one.end();
    assert_eq!(site.counts().sessions, counts.sessions / 2);
    // A silent session stays for a while: its client may retry.
    site.pass(600);
    assert_eq!(site.counts().sessions, counts.sessions / 2);
    create(&other, ROOT, "more", file_type::REGULAR).unwrap();
    site.pass(600);
    assert!(site.counts().sessions >= 1);
    site.pass(600);
    assert_eq!(site.counts().changes, 0);
    assert_eq!(site.counts().sessions, 0);
    site.process().sync().unwrap();
    site.restart();
    assert_eq!(site.counts().sessions, 0);
}

#[test]
fn a_client_gives_up_in_time() {
    let site = Site::open(1);
    let client = site.client(7).with_patience(std::time::Duration::from_millis(30));
    assert!(lookup(&client, ROOT, "none").is_none());
    site.lose([Some(Loss::Request); 100]);
    let error = create(&client, ROOT, "file", file_type::REGULAR).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}
