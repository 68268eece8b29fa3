//! Locks of programs exclude other clients, through everything but the end of the session.

use crate::holds::{create_held, hold, open};
use crate::network::start;
use crate::place::{create, environment, execute, new_client_of, settings};
use crate::retries::Numbers;
use crate::site::{LOSSES, Loss, Site};
use canopy_cluster::contents::{ClusterNamespace, Memory, Operations};
use canopy_cluster::wire::{Address, ClientSecurity};
use canopy_cluster::{
    Client, ListeningProcess, LockAsk, LockRequest, Patience, Peers, Remote, Request, Response,
    Sender, SessionId,
};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Caller, Change, Changer, FileLock, FileLocks, LockKind, LockMode, LockOutcome, LockOwner,
    LockRange, Operation,
};
use canopy_namespace::{
    EntryName, Error, Execute, FileContents, FileId, Privileges, ROOT, RenameMode, Reply,
    SetAttributes,
};
use canopy_partition::ServerId;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use LockMode::{Exclusive, Shared};

fn lock(owner: u64, mode: LockMode, start: u64, end: u64) -> FileLock {
    let owner = LockOwner { kind: LockKind::Range, number: owner };
    FileLock { owner, mode, range: LockRange { start, end }, pid: 70, uid: 7 }
}

fn whole(owner: u64, mode: LockMode) -> FileLock {
    lock(owner, mode, 0, i64::MAX as u64)
}

fn set(client: &Client, id: FileId, wanted: &FileLock) -> LockOutcome {
    client.set_lock(id, wanted, false).unwrap()
}

fn free(client: &Client, id: FileId, lock: &FileLock) {
    client.unlock(id, lock.owner, lock.range).unwrap();
}

fn is_lost(client: &Client, id: FileId) -> bool {
    match Operations::check_locks(client, id) {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.errno(), Errno::IO);
            true
        }
    }
}

fn rename(client: &Client, from: (FileId, &str), to: (FileId, &str)) {
    let (from, to) =
        (EntryName::new(from.0, from.1.as_bytes()), EntryName::new(to.0, to.1.as_bytes()));
    let rename = Change::Rename { from, to, mode: RenameMode::Replace, whiteout: None };
    assert_eq!(execute(client, &Operation::Change(rename)).unwrap(), Reply::Done);
}

/// A client with contents.
fn contents_of(site: &Site, client: Arc<Client>) -> ClusterNamespace {
    let (environment, settings) = (site.environment(), settings());
    ClusterNamespace::new(client, environment, &settings, Memory::default()).unwrap()
}

/// Two clients that hold a file.
fn two(site: &Arc<Site>) -> (Client, Client, FileId) {
    let [one, other] = [7, 8].map(|session| site.client(session));
    let id = create_held(&one, "file", file_type::REGULAR);
    assert_eq!(hold(&other, "file").unwrap(), id);
    (one, other, id)
}

#[test]
fn locks_exclude_other_clients() {
    let site = open(2);
    let (one, other, id) = two(&site);
    assert_eq!(set(&one, id, &lock(1, Exclusive, 0, 9)), LockOutcome::Set);
    assert_eq!(set(&other, id, &lock(1, Shared, 5, 20)), LockOutcome::Refused);
    let found = other.test_lock(id, &lock(1, Shared, 5, 20)).unwrap();
    // The process is one of another machine.
    assert_eq!(found, Some(FileLock { pid: 0, ..lock(1, Exclusive, 0, 9) }));
    let found = one.test_lock(id, &lock(2, Shared, 5, 20)).unwrap();
    assert_eq!(found, Some(lock(1, Exclusive, 0, 9)));
    assert_eq!(set(&other, id, &lock(1, Shared, 10, 20)), LockOutcome::Set);
    // A lock shrinks from both sides.
    free(&one, id, &lock(1, Exclusive, 3, 4));
    assert_eq!(set(&other, id, &lock(1, Exclusive, 3, 4)), LockOutcome::Set);
    assert_eq!(set(&other, id, &lock(1, Exclusive, 4, 5)), LockOutcome::Refused);
    // flock(2) has locks of its own.
    let flock = |owner, mode| {
        let owner = LockOwner { kind: LockKind::Whole, number: owner };
        FileLock { owner, ..whole(0, mode) }
    };
    assert_eq!(set(&one, id, &flock(1, Shared)), LockOutcome::Set);
    assert_eq!(set(&other, id, &flock(1, Exclusive)), LockOutcome::Refused);
    assert_eq!(set(&other, id, &flock(1, Shared)), LockOutcome::Set);
    assert!(one.may_have_locks(id, flock(1, Shared).owner));
    for client in [&one, &other] {
        free(client, id, &whole(1, Shared));
        free(client, id, &flock(1, Shared));
        assert!(!client.may_have_locks(id, flock(1, Shared).owner));
    }
    assert_eq!((site.counts().locks, site.counts().waiting_locks), (0, 0));
}

#[test]
fn a_client_that_holds_no_file_has_no_lock() {
    let site = open(2);
    let (_one, _other, id) = two(&site);
    let stranger = site.client(9);
    let error = stranger.set_lock(id, &whole(1, Shared), false).unwrap_err();
    assert_eq!(error.errno(), Errno::BADF);
    assert_eq!(site.counts().locks, 0);
}

#[test]
fn locks_go_with_their_session() {
    let site = open(2);
    let (one, other, id) = two(&site);
    assert_eq!(set(&one, id, &lock(1, Exclusive, 0, 9)), LockOutcome::Set);
    site.pass(6);
    other.renew(Caller::Trusted);
    assert_eq!(set(&other, id, &lock(1, Shared, 0, 9)), LockOutcome::Refused);
    site.pass(6);
    assert_eq!(set(&other, id, &lock(1, Shared, 0, 9)), LockOutcome::Set);
    // The file may have changed: nobody goes on with it before the lock is given back.
    assert!(!is_lost(&one, id));
    one.renew(Caller::Trusted);
    assert!(is_lost(&one, id));
    let error = one.set_lock(id, &lock(2, Shared, 0, 0), false).unwrap_err();
    assert_eq!(error.errno(), Errno::IO);
    free(&one, id, &lock(1, Exclusive, 0, 4));
    assert!(is_lost(&one, id));
    free(&one, id, &lock(1, Exclusive, 5, 9));
    assert!(!is_lost(&one, id));
    assert_eq!(set(&one, id, &lock(1, Exclusive, 0, 9)), LockOutcome::Refused);
    other.end();
    assert_eq!(set(&one, id, &lock(1, Exclusive, 0, 9)), LockOutcome::Set);
    one.end();
    assert_eq!(site.counts().locks, 0);
}

/// A client that stands still longer than a lease has lost its locks, and may not know it yet. It once
/// wrote over bytes of the next owner of the lock.
#[test]
fn nothing_written_under_a_lost_lock_is_sent() {
    for is_large in [false, true] {
        let site = open(2);
        let clients = [7, 8].map(|session| Arc::new(site.client(session)));
        let id = create_held(&clients[0], "file", file_type::REGULAR);
        assert_eq!(hold(&clients[1], "file").unwrap(), id);
        let [one, other] = clients.clone().map(|client| contents_of(&site, client));
        let reports = Arc::new(Mutex::new(Vec::new()));
        let noted = reports.clone();
        one.report_losses(Box::new(move |id| noted.lock().push(id)));
        let length = if is_large { 100_000 } else { 100 };
        let write = |user: &ClusterNamespace, byte: u8| {
            user.write_at(id, 0, &vec![byte; length], Privileges::Keep)
        };
        [&one, &other].iter().for_each(|user| user.open(id).unwrap());
        let mine = whole(1, Exclusive);
        for ending in 0..5 {
            assert_eq!(one.set_lock(id, &mine, false).unwrap(), LockOutcome::Set);
            assert_eq!(write(&one, b'o').unwrap(), length);
            site.pass(6);
            clients[1].renew(Caller::Trusted);
            site.pass(6);
            assert_eq!(other.set_lock(id, &mine, false).unwrap(), LockOutcome::Set);
            assert_eq!(write(&other, b'n').unwrap(), length);
            other.sync_contents(id).unwrap();
            // It has not heard of a loss, so the server has to refuse it.
            let reported = reports.lock().len();
            let changer = Changer::Privileged;
            let set = SetAttributes { size: Some(3), ..SetAttributes::default() };
            let truncate = Operation::Change(Change::SetAttributes { id, set, changer });
            let done = match ending {
                0 => one.sync_contents(id),
                1 => one.publish(id),
                2 => one.unlock(id, mine.owner, mine.range),
                3 => one.flush(),
                _ => one.execute_for(Caller::Trusted, &truncate).map(drop),
            };
            assert_eq!(done.unwrap_err().errno(), Errno::IO, "{ending}");
            assert_eq!(reports.lock()[reported..], [id], "{ending}");
            // Each program gets to know it that syncs or closes the file before it is unlocked.
            for _ in 0..if ending == 2 { 0 } else { 2 } {
                assert_eq!(one.publish(id).unwrap_err().errno(), Errno::IO, "{ending}");
            }
            // A program that did not look at the outcome of unlocking gets to know it when it closes
            // the file.
            let unlocked = one.unlock(id, mine.owner, mine.range).map_err(|error| error.errno());
            assert_eq!(unlocked, Err(Errno::IO), "{ending}");
            let reported = one.publish(id).map_err(|error| error.errno());
            assert_eq!(reported, if ending == 2 { Err(Errno::IO) } else { Ok(()) }, "{ending}");
            one.publish(id).unwrap();
            other.unlock(id, mine.owner, mine.range).unwrap();
            for user in [&one, &other] {
                let found = user.read_at(id, 0, 2 * length, false).unwrap();
                assert!(
                    found == vec![b'n'; length],
                    "{ending}: {:?}",
                    &found[..found.len().min(9)]
                );
            }
        }
    }
}

#[test]
fn a_successor_waits_for_those_who_have_locks() {
    let site = open(2);
    let (one, other, id) = two(&site);
    assert_eq!(set(&one, id, &lock(1, Exclusive, 0, 9)), LockOutcome::Set);
    for _ in 0..3 {
        site.process().sync().unwrap();
        site.restart();
        thread::scope(|scope| {
            // It is answered once the time has passed in which locks are restored.
            let wanted = scope.spawn(|| set(&other, id, &lock(1, Shared, 0, 9)));
            one.renew(Caller::Trusted);
            site.pass(1);
            assert!(!wanted.is_finished());
            site.pass(2);
            assert_eq!(wanted.join().unwrap(), LockOutcome::Refused);
        });
        assert!(!is_lost(&one, id));
    }
    free(&one, id, &whole(1, Shared));
    assert_eq!(set(&other, id, &lock(1, Shared, 0, 9)), LockOutcome::Set);
}

#[test]
fn locks_that_are_restored_too_late_are_lost() {
    let site = open(2);
    let (one, other, id) = two(&site);
    assert_eq!(set(&one, id, &lock(1, Exclusive, 0, 9)), LockOutcome::Set);
    site.process().sync().unwrap();
    site.restart();
    site.pass(3);
    let last = lock(1, Exclusive, 9, 9);
    assert_eq!(set(&other, id, &last), LockOutcome::Set);
    free(&other, id, &last);
    // Nobody has a lock now, but somebody had.
    one.renew(Caller::Trusted);
    assert!(is_lost(&one, id));
    free(&one, id, &whole(1, Shared));
    assert_eq!(set(&one, id, &lock(1, Exclusive, 0, 9)), LockOutcome::Set);
}

#[test]
fn locks_go_along_with_their_files() {
    let site = open(3);
    let [one, other] = [7, 8].map(|session| site.client(session));
    let names = Vec::from_iter((0..20).map(|number| format!("file{number}")));
    let ids = names.iter().map(|name| create_held(&one, name, file_type::REGULAR));
    let ids = Vec::from_iter(ids);
    let mine = lock(1, Exclusive, 0, 9);
    for (id, name) in ids.iter().zip(&names) {
        assert_eq!(hold(&other, name).unwrap(), *id);
        assert_eq!(set(&one, *id, &mine), LockOutcome::Set);
    }
    let check = |why: &str| {
        for id in &ids {
            assert_eq!(set(&other, *id, &lock(1, Shared, 9, 9)), LockOutcome::Refused, "{why}");
            assert!(!is_lost(&one, *id), "{why}");
        }
        assert_eq!(site.counts().locks, ids.len(), "{why}");
    };
    site.hand_over();
    check("handed over");
    let directory = create(&other, ROOT, "directory", file_type::DIRECTORY).unwrap().id;
    for name in &names {
        rename(&other, (ROOT, name), (directory, name));
    }
    check("renamed");
    one.renew(Caller::Trusted);
    other.renew(Caller::Trusted);
    site.process().sync().unwrap();
    site.restart();
    one.renew(Caller::Trusted);
    other.renew(Caller::Trusted);
    site.pass(3);
    check("restarted");
    ids.iter().for_each(|id| free(&one, *id, &mine));
    assert_eq!(site.counts().locks, 0);
}

#[test]
fn an_old_request_sets_no_lock() {
    let site = open(1);
    let (one, other, id) = two(&site);
    let mine = lock(1, Exclusive, 0, 9);
    assert_eq!(set(&one, id, &mine), LockOutcome::Set);
    free(&one, id, &mine);
    let sender = Sender { caller: Caller::Trusted, session: SessionId(7), number: 0, life: None };
    for ticket in 0..10 {
        let request = Request::Lock(LockRequest { id, ticket, ask: LockAsk::Set(mine, false) });
        let _: Result<Response, _> = site.ask(site.servers().next().unwrap(), sender, &request);
        if site.counts().locks > 0 {
            // A newer one does: the last ticket of the client was smaller.
            assert!(ticket > 2, "{ticket}");
            return;
        }
    }
    assert_eq!(set(&other, id, &mine), LockOutcome::Set);
    panic!("no ticket was new");
}

/// Waits for a lock as a mount does.
fn wait_for(client: &Client, id: FileId, wanted: &FileLock) -> Result<(), Error> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "nobody gave the lock back");
        match client.set_lock(id, wanted, true)? {
            LockOutcome::Set => return Ok(()),
            LockOutcome::Waits => {}
            LockOutcome::Refused | LockOutcome::MayGo => panic!("it waits"),
        }
        let since = Instant::now();
        while !client.await_lock(id, wanted, Duration::from_millis(50))
            && since.elapsed() < Duration::from_secs(1)
        {}
    }
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn clients_get_locks_in_the_order_in_which_they_asked() {
    let site = open(2);
    let (one, other, id) = two(&site);
    let third = site.client(9);
    assert_eq!(hold(&third, "file").unwrap(), id);
    assert_eq!(set(&one, id, &whole(1, Shared)), LockOutcome::Set);
    let got = AtomicU64::new(0);
    thread::scope(|scope| {
        let wait = |client, mode, at| {
            let wanted = whole(1, mode);
            let got = &got;
            move || {
                wait_for(client, id, &wanted).unwrap();
                assert_eq!(got.fetch_add(1, Ordering::SeqCst), at);
                free(client, id, &wanted);
            }
        };
        scope.spawn(wait(&other, Exclusive, 0));
        wait_until("the first waits", || site.counts().waiting_locks == 1);
        // Nothing but the first one's turn is in its way.
        scope.spawn(wait(&third, Shared, 1));
        wait_until("both wait", || site.counts().waiting_locks == 2);
        free(&one, id, &whole(1, Shared));
    });
    assert_eq!(got.load(Ordering::SeqCst), 2);
    // A cancelled wait delays nobody.
    assert_eq!(set(&one, id, &whole(1, Shared)), LockOutcome::Set);
    assert_eq!(other.set_lock(id, &whole(1, Exclusive), true).unwrap(), LockOutcome::Waits);
    other.cancel_lock(id, &whole(1, Exclusive));
    wait_for(&third, id, &whole(1, Shared)).unwrap();
    assert_eq!(site.counts().waiting_locks, 0);
}

#[test]
fn clients_do_not_wait_for_each_other_in_a_circle() {
    let site = open(1);
    let (one, other, id) = two(&site);
    let second = create_held(&one, "second", file_type::REGULAR);
    assert_eq!(hold(&other, "second").unwrap(), second);
    assert_eq!(set(&one, id, &whole(1, Exclusive)), LockOutcome::Set);
    assert_eq!(set(&other, second, &whole(1, Exclusive)), LockOutcome::Set);
    let waits = one.set_lock(second, &whole(1, Exclusive), true).unwrap();
    assert_eq!(waits, LockOutcome::Waits);
    let error = other.set_lock(id, &whole(1, Exclusive), true).unwrap_err();
    assert_eq!(error.errno(), Errno::DEADLK);
    free(&other, second, &whole(1, Exclusive));
    wait_for(&one, second, &whole(1, Exclusive)).unwrap();
}

/// Locks that a client believes to hold: modes of some bytes by owner.
type Belief = [[Option<LockMode>; BYTES]; 2];

const BYTES: usize = 16;

fn conflicts(belief: &Belief, skip: Option<usize>, wanted: &FileLock) -> bool {
    let owners = belief.iter().enumerate().filter(|(owner, _)| Some(*owner) != skip);
    let LockRange { start, end } = wanted.range;
    let mut modes = owners.flat_map(|(_, bytes)| &bytes[start as usize..=end as usize]);
    modes.any(|mode| mode.is_some_and(|mode| [mode, wanted.mode].contains(&Exclusive)))
}

/// Random locks of two clients with two owners each, while messages are lost, servers die and names
/// move. A lock is set exactly if nobody has a conflicting one.
#[test]
fn locks_exclude_others_whatever_is_lost() {
    let (steps, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    for seed in 1..=6 {
        let site = open(3);
        let clients = [site.client(7), site.client(8)];
        let is_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_ended.load(Ordering::Relaxed) {
                    for client in clients.iter().chain(&clients) {
                        client.renew(Caller::Trusted);
                    }
                    site.pass(1);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            scope.spawn(|| {
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    play(&site, &clients, seed, &steps, &lost);
                }));
                is_ended.store(true, Ordering::Relaxed);
                outcome.unwrap();
            });
        });
    }
    let (steps, lost) = (steps.into_inner(), lost.into_inner());
    assert!(lost * 10 < steps, "{lost} of {steps} found locks lost");
}

fn play(site: &Arc<Site>, clients: &[Client; 2], seed: u64, steps: &AtomicU64, lost: &AtomicU64) {
    let numbers = &mut Numbers(seed * 0x9e37_79b9);
    let names = ["a", "b", "c"];
    let ids = names.map(|name| create_held(&clients[0], name, file_type::REGULAR));
    for name in names {
        hold(&clients[1], name).unwrap();
    }
    let mut beliefs: [[Belief; 3]; 2] = [[[[None; BYTES]; 2]; 3]; 2];
    for step in 0..120 {
        let losses = (0..numbers.below(3)).map(|_| match numbers.below(3) {
            0 => None,
            _ => Some(LOSSES[numbers.below(LOSSES.len())]),
        });
        // A server that dies takes some time.
        let losses = losses.filter(|loss| {
            let dies = [Loss::DiesBefore, Loss::DiesAfter, Loss::DiesDurable];
            step % 10 == 0 || !loss.is_some_and(|loss| dies.contains(&loss))
        });
        site.lose(Vec::from_iter(losses));
        let (at, file, owner) = (numbers.below(2), numbers.below(3), numbers.below(2));
        let (client, id) = (&clients[at], ids[file]);
        let start = numbers.below(BYTES);
        let end = (start + numbers.below(6)).min(BYTES - 1);
        let mode = if numbers.below(2) == 0 { Shared } else { Exclusive };
        let wanted = lock(owner as u64, mode, start as u64, end as u64);
        let why = format!("seed {seed}, step {step}: {at} {wanted:?}");
        steps.fetch_add(1, Ordering::Relaxed);
        if numbers.below(4) == 0 {
            client.unlock(id, wanted.owner, wanted.range).expect(&why);
            beliefs[at][file][owner][start..=end].fill(None);
            continue;
        }
        let outcome = client.set_lock(id, &wanted, false);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                assert_eq!(error.errno(), Errno::IO, "{why}");
                lost.fetch_add(1, Ordering::Relaxed);
                for owner in 0..2 {
                    client.unlock(id, lock(owner, Shared, 0, 0).owner, LockRange::ALL).unwrap();
                }
                beliefs[at][file] = Belief::default();
                continue;
            }
        };
        let is_refused = conflicts(&beliefs[at][file], Some(owner), &wanted)
            || conflicts(&beliefs[1 - at][file], None, &wanted);
        let mut is_set = outcome == LockOutcome::Set;
        if !is_set && !is_refused {
            // The server may have yet to hear that the other one has given a lock back, or lost it.
            site.lose_nothing_more();
            (0..2).for_each(|_| clients[1 - at].renew(Caller::Trusted));
            is_set = client.set_lock(id, &wanted, false).expect(&why) == LockOutcome::Set;
            assert!(is_set || is_lost(&clients[1 - at], id), "{why}: {outcome:?}, {beliefs:?}");
        } else if is_set == is_refused {
            // The other one has lost its locks, and knows.
            site.lose_nothing_more();
            (0..2).for_each(|_| clients[1 - at].renew(Caller::Trusted));
            assert!(is_lost(&clients[1 - at], id), "{why}: {outcome:?}, {beliefs:?}");
        }
        if is_set {
            beliefs[at][file][owner][start..=end].fill(Some(mode));
        }
    }
    site.lose_nothing_more();
}

fn connect(addresses: &[Address]) -> Arc<Client> {
    let security = ClientSecurity::default();
    let remote = Remote::connect(addresses, security, Patience::CLIENT).unwrap();
    let client = Arc::new(new_client_of(remote));
    client.keep_renewed().unwrap();
    client
}

/// Real processes and connections: locks pass on in milliseconds, and outlast a server.
#[test]
fn locks_pass_on_over_a_network() {
    let environment = environment(2);
    let (one, other) = (start(&environment), start(&environment));
    wait_until("both processes run a server", || {
        one.running().len() == 1 && other.running().len() == 1
    });
    let addresses = [one.addresses(), other.addresses()].concat();
    let clients = [connect(&addresses), connect(&addresses)];
    let id = create_held(&clients[0], "file", file_type::REGULAR);
    assert_eq!(hold(&clients[1], "file").unwrap(), id);
    let wanted = whole(1, Exclusive);
    let count = AtomicU64::new(0);
    let mut times = Vec::new();
    let waiting = || {
        let of = |node: &ListeningProcess| {
            let counts = node.running().into_iter().map(|id| node.process().session_counts(id));
            counts.map(|counts| counts.map_or(0, |counts| counts.waiting_locks)).sum::<usize>()
        };
        of(&one) + of(&other)
    };
    wait_for(&clients[0], id, &wanted).unwrap();
    for round in 0..10 {
        let (holder, waiter) = (&clients[round % 2], &clients[(round + 1) % 2]);
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                wait_for(waiter, id, &wanted).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                Instant::now()
            });
            wait_until("one waits", || waiting() == 1 || is_lost(holder, id));
            // A client that gets no time from the machine for seconds may lose its lock.
            assert!(count.load(Ordering::SeqCst) == round as u64 || is_lost(holder, id));
            let freed = Instant::now();
            free(holder, id, &wanted);
            times.push(waits.join().unwrap().saturating_duration_since(freed));
        });
    }
    times.sort_unstable();
    assert!(times[5] < Duration::from_millis(300), "{times:?}");
    println!("a lock passes on in {:?}", times[5]);
    // The second client waits while the server of the root dies: the first one keeps the lock.
    let (dies, _lives) = match one.running().contains(&ServerId(0)) {
        true => (one, other),
        false => (other, one),
    };
    drop(dies);
    let late = set(&clients[1], id, &wanted);
    assert_ne!(late == LockOutcome::Refused, is_lost(&clients[0], id));
    free(&clients[0], id, &wanted);
    wait_for(&clients[1], id, &wanted).unwrap();
}
