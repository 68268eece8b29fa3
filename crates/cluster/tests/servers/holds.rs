//! Files that are held stay without a name, through everything but the end of the session.

use crate::place::{create, execute, lookup};
use crate::retries::{Numbers, fails_with, unlink};
use crate::site::{LOSSES, Site};
use canopy_cluster::{Client, Error, HandOverStage, Peers, Request, Response, Sender, SessionId};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Hold, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, New, ROOT, Reply};
use canopy_partition::{PartitionId, ServerId};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

fn inode_of(reply: Reply) -> FileId {
    match reply {
        Reply::Inode(inode) => inode.id,
        other => panic!("{other:?}"),
    }
}

pub fn create_held(client: &Client, name: &str, kind: u32) -> FileId {
    let new = Cow::Owned(New { mode: kind | 0o755, ..New::default() });
    let name = EntryName::new(ROOT, name.as_bytes());
    let create = Operation::Change(Change::Create { name, new, holds: true });
    inode_of(execute(client, &create).unwrap())
}

fn create_nameless(client: &Client, directory: FileId) -> FileId {
    let new = Cow::Owned(New { mode: file_type::REGULAR | 0o600, ..New::default() });
    let create = Operation::Change(Change::CreateNameless { directory, new });
    inode_of(execute(client, &create).unwrap())
}

pub fn hold(client: &Client, name: &str) -> Result<FileId, Error> {
    let name = EntryName::new(ROOT, name.as_bytes());
    execute(client, &Operation::Hold(Hold::Name(name))).map(inode_of)
}

fn release(client: &Client, id: FileId, times: u64) {
    let reply = execute(client, &Operation::Hold(Hold::Release(id, times))).unwrap();
    assert_eq!(reply, Reply::Done);
}

fn is_there(site: &Arc<Site>, id: FileId) -> bool {
    let read = Operation::Read(Moment::Now, Read::Inode(id));
    match execute(&site.client(u64::MAX), &read) {
        Ok(_) => true,
        Err(error) => {
            assert!(fails_with(&error, Errno::NOENT), "{error}");
            false
        }
    }
}

/// Opens a site, and lets the time pass in which nothing without a name goes.
pub fn open(servers: u32) -> Arc<Site> {
    let site = Site::open(servers);
    site.pass(3);
    site
}

#[test]
fn a_file_goes_with_the_last_holder() {
    let site = open(2);
    let [one, other] = [7, 8].map(|session| site.client(session));
    let id = create_held(&one, "file", file_type::REGULAR);
    for _ in 0..2 {
        assert_eq!(hold(&other, "file").unwrap(), id);
    }
    assert_eq!(unlink(&one, "file").unwrap(), id);
    assert!(lookup(&one, ROOT, "file").is_none());
    release(&one, id, 1);
    release(&other, id, 1);
    assert!(is_there(&site, id));
    // Nothing is left to release for this one, and what the other has is not its own.
    release(&one, id, 5);
    assert!(is_there(&site, id));
    release(&other, id, 1);
    assert!(!is_there(&site, id));
    assert_eq!(site.counts().holds, 0);
    assert!(fails_with(&hold(&one, "file").unwrap_err(), Errno::NOENT));
}

#[test]
fn a_session_cannot_release_what_another_holds() {
    let site = open(1);
    let one = site.client(7);
    let id = create_held(&one, "file", file_type::REGULAR);
    unlink(&one, "file").unwrap();
    for session in [8, 9] {
        let sender =
            Sender { caller: Caller::Trusted, session: SessionId(session), number: 0, life: None };
        let release = Request::Hold(Hold::Release(id, 1000), u64::MAX);
        let released = site.ask(ServerId(0), sender, &release).unwrap();
        assert!(matches!(released, Response::Held(Reply::Done, _)));
    }
    assert!(is_there(&site, id));
    release(&one, id, 1);
    assert!(!is_there(&site, id));
}

#[test]
fn directories_are_held_at_their_homes() {
    let site = open(3);
    let client = site.client(7);
    for number in 0..6 {
        let name = format!("d{number}");
        let id = create_held(&client, &name, file_type::DIRECTORY);
        assert_eq!(hold(&client, &name).unwrap(), id);
        assert_eq!(site.counts().holds, 1);
        release(&client, id, 1);
        assert_eq!(site.counts().holds, 1);
        release(&client, id, 1);
        assert_eq!(site.counts().holds, 0);
    }
}

#[test]
fn silent_sessions_lose_what_they_hold() {
    let site = open(2);
    let [one, other] = [7, 8].map(|session| site.client(session));
    let directory = create(&one, ROOT, "directory", file_type::DIRECTORY).unwrap().id;
    let lost = [create_held(&one, "file", file_type::REGULAR), create_nameless(&one, directory)];
    let kept = create_nameless(&other, ROOT);
    unlink(&one, "file").unwrap();
    site.pass(6);
    other.renew(Caller::Trusted);
    assert!(lost.iter().all(|id| is_there(&site, *id)));
    site.pass(6);
    assert!(!lost.iter().any(|id| is_there(&site, *id)));
    assert!(is_there(&site, kept));
    // Files that still have a name are held again by the next renewal.
    let named = create_held(&one, "named", file_type::REGULAR);
    other.renew(Caller::Trusted);
    site.pass(9);
    other.renew(Caller::Trusted);
    site.pass(9);
    one.renew(Caller::Trusted);
    unlink(&other, "named").unwrap();
    assert!(is_there(&site, named));
    one.end();
    assert!(!is_there(&site, named));
    other.end();
    assert!(!is_there(&site, kept));
    assert_eq!(site.counts().holds, 0);
}

#[test]
fn a_successor_waits_for_those_who_hold_files() {
    let site = open(2);
    let [one, other] = [7, 8].map(|session| site.client(session));
    let held = [create_held(&one, "file", file_type::REGULAR), create_nameless(&one, ROOT)];
    let lost = [create_held(&other, "other", file_type::REGULAR), create_nameless(&other, ROOT)];
    let late = create_held(&one, "late", file_type::REGULAR);
    for name in ["file", "other"] {
        unlink(&one, name).unwrap();
    }
    for _ in 0..3 {
        site.process().sync().unwrap();
        site.restart();
        // It loses its last name before its holder has come back.
        let _ = unlink(&other, "late");
        one.renew(Caller::Trusted);
        site.pass(1);
        site.pass(2);
        assert!(held.iter().chain([&late]).all(|id| is_there(&site, *id)));
        assert!(!lost.iter().any(|id| is_there(&site, *id)));
        site.pass(3);
        assert!(held.iter().all(|id| is_there(&site, *id)));
    }
    for id in held.into_iter().chain([late]) {
        release(&one, id, 1);
        assert!(!is_there(&site, id));
    }
}

#[test]
fn holds_go_along_when_names_are_handed_over() {
    let site = open(2);
    let client = site.client(7);
    let names = Vec::from_iter((0..20).map(|number| format!("file{number}")));
    let ids = names.iter().map(|name| create_held(&client, name, file_type::REGULAR));
    let ids = Vec::from_iter(ids);
    site.hand_over();
    assert_eq!(site.counts().holds, ids.len());
    let other = site.client(9);
    for name in &names[..10] {
        unlink(&other, name).unwrap();
    }
    assert!(ids.iter().all(|id| is_there(&site, *id)));
    client.renew(Caller::Trusted);
    // Both servers die. The client knows what was where.
    site.process().sync().unwrap();
    site.restart();
    client.renew(Caller::Trusted);
    site.pass(3);
    assert_eq!(site.counts().holds, ids.len());
    assert!(ids.iter().all(|id| is_there(&site, *id)));
    for (at, id) in ids.iter().enumerate() {
        release(&client, *id, 1);
        assert_eq!(is_there(&site, *id), at >= 10);
    }
    assert_eq!(site.counts().holds, 0);
}

/// Checks what is there against what clients hold, at random, with losses.
#[test]
fn holds_are_exact_whatever_is_lost() {
    for seed in 1..=12 {
        let numbers = &mut Numbers(seed * 0x9e37_79b9);
        let site = open(3);
        let clients = [site.client(7), site.client(8)];
        let mut held: [HashMap<FileId, u64>; 2] = Default::default();
        let mut names: BTreeMap<String, FileId> = BTreeMap::new();
        let mut all = Vec::new();
        for step in 0..100 {
            let losses = (0..numbers.below(3)).map(|_| match numbers.below(3) {
                0 => None,
                _ => Some(LOSSES[numbers.below(LOSSES.len())]),
            });
            site.lose(Vec::from_iter(losses));
            let at = numbers.below(2);
            let client = &clients[at];
            let name = format!("file{}", numbers.below(6));
            let why = format!("seed {seed}, step {step}, {name}");
            match (numbers.below(6), names.get(&name).copied()) {
                (0, Some(id)) => {
                    assert_eq!(unlink(client, &name).expect(&why), id, "{why}");
                    names.remove(&name);
                }
                (1 | 2, Some(id)) => {
                    assert_eq!(hold(client, &name).expect(&why), id, "{why}");
                    *held[at].entry(id).or_default() += 1;
                }
                (3 | 4, _) => {
                    let count = held[at].len();
                    let some = held[at].keys().copied().nth(numbers.below(count.max(1)));
                    let Some(id) = some else { continue };
                    release(client, id, 1);
                    let count = held[at].get_mut(&id).unwrap();
                    *count -= 1;
                    if *count == 0 {
                        held[at].remove(&id);
                    }
                }
                (5, _) => {
                    // Servers may have died: clients come back in time.
                    site.lose_nothing_more();
                    clients.iter().for_each(|client| client.renew(Caller::Trusted));
                    clients.iter().for_each(|client| client.renew(Caller::Trusted));
                    site.pass(3);
                }
                (_, None) => {
                    let id = create_held(client, &name, file_type::REGULAR);
                    held[at].insert(id, 1);
                    names.insert(name, id);
                    all.push(id);
                }
                _ => {}
            }
            for id in held.iter().flat_map(HashMap::keys) {
                assert!(is_there(&site, *id), "{why}: {id}");
            }
        }
        site.lose_nothing_more();
        for (client, held) in clients.iter().zip(&held) {
            held.iter().for_each(|(id, times)| release(client, *id, *times));
        }
        for _ in 0..2 {
            clients.iter().for_each(|client| client.renew(Caller::Trusted));
            site.pass(3);
        }
        let left = all.iter().filter(|id| !names.values().any(|named| named == *id));
        for id in left {
            assert!(!is_there(&site, *id), "seed {seed}: {id} is left");
        }
        assert_eq!(site.counts().holds, 0, "seed {seed}");
        assert!(site.process().take_failure().is_none());
    }
}

#[test]
fn threads_of_a_client_hold_and_release_one_file() {
    let site = open(2);
    let client = &site.client(7);
    let other = &site.client(8);
    for _ in 0..20 {
        let id = create_held(other, "file", file_type::REGULAR);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..30 {
                        let held = hold(client, "file").unwrap();
                        assert!(is_there(&site, held));
                        release(client, held, 1);
                    }
                });
            }
        });
        let held = hold(client, "file").unwrap();
        unlink(other, "file").unwrap();
        release(other, id, 1);
        assert!(is_there(&site, held));
        release(client, held, 1);
        assert!(!is_there(&site, held));
        assert_eq!(site.counts().holds, 0);
    }
}

#[test]
fn releases_may_wait_for_a_renewal() {
    let site = open(3);
    let client = Arc::new(site.client(7));
    client.keep_renewed().unwrap();
    let names = Vec::from_iter((0..60).map(|number| format!("file{number}")));
    let ids =
        Vec::from_iter(names.iter().map(|name| create_held(&client, name, file_type::REGULAR)));
    for name in &names[..30] {
        unlink(&client, name).unwrap();
    }
    // Half of the files get to another server, with what holds them.
    site.hand_over();
    assert_eq!(site.counts().holds, 60);
    ids.iter().for_each(|id| release(&client, *id, 1));
    let begun = std::time::Instant::now();
    while site.counts().holds > 0 {
        assert!(begun.elapsed().as_secs() < 20, "{} are held", site.counts().holds);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!ids[..30].iter().any(|id| is_there(&site, *id)));
    assert!(ids[30..].iter().all(|id| is_there(&site, *id)));
}

#[test]
fn holds_of_a_partition_that_stays_are_not_left_elsewhere() {
    let site = open(2);
    let client = site.client(7);
    let files = Vec::from_iter(
        (0..20).map(|number| create_held(&client, &format!("file{number}"), file_type::REGULAR)),
    );
    let process = site.process();
    assert_eq!(site.counts().holds, 20);
    // The receiver has them, and the giver does not give.
    let stops = &mut |step: HandOverStage| step != HandOverStage::Give;
    process.split(ROOT, PartitionId::ZERO, stops).unwrap_err();
    let (giver, receiver) = (ServerId(0), ServerId(1));
    let holds = |server| process.session_counts(server).unwrap().holds;
    assert!(holds(receiver) > 0);
    assert_eq!(holds(giver), 20);
    // The work beside requests finds out that the attempt has ended.
    process.start(receiver).unwrap();
    process.settle();
    assert_eq!((holds(giver), holds(receiver)), (20, 0));
    // Another attempt takes them along.
    process.split(ROOT, PartitionId::ZERO, &mut |_: HandOverStage| true).unwrap();
    process.settle();
    assert!(holds(receiver) > 0);
    assert_eq!(site.counts().holds, 20);
    files.iter().for_each(|id| release(&client, *id, 1));
    assert_eq!(site.counts().holds, 0);
}
