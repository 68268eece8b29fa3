//! Messages that get lost, and processes that die before or after each of them: the limit is never
//! passed, and afterwards exactly the rest of it can be used.

use crate::place::{ADA, Fate, Place, check, file, inodes, list, rename, set, unlink, used, write};
use canopy_cluster::{Client, Error, Request, ServerRequest, ShareRequest};
use canopy_namespace::quota::Account;
use canopy_namespace::{FileId, RenameMode};
use canopy_partition::ServerId;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LIMIT: u64 = 9;

/// Returns whether a fault may happen at a message: those about limits, and those that move files.
fn is_of_interest(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Share(ShareRequest::Obtain(..))
            | Request::OfServer(
                ServerRequest::Share(_) | ServerRequest::Intent(..) | ServerRequest::HandOver(..),
            )
    )
}

/// Makes changes by which shares are granted, collected and moved. Some of them may fail.
fn change_some(place: &Place, client: &Client, directories: &[FileId]) {
    for round in 0..2 {
        for (number, directory) in directories.iter().enumerate() {
            let _ = made(client, *directory, &format!("{round}-{number}"));
        }
        let (from, to) = (directories[round], directories[round + 1]);
        let name = format!("{round}-{round}");
        let _ = rename(client, (from, &name), (to, "moved"), RenameMode::Replace);
        let _ = unlink(client, directories[2], &format!("{round}-2"));
    }
    let _ = place.split(ServerId(1), directories[1]);
    for number in 0..4 {
        let _ = made(client, directories[number % 3], &format!("last{number}"));
    }
}

/// Makes a file. Returns whether that is known to have succeeded, and fails where only a full
/// account may be the reason.
fn made(client: &Client, directory: FileId, name: &str) -> Result<(), ()> {
    let new = crate::place::create(client, directory, name, 0o100_644, ADA);
    match new {
        Ok(_) => Ok(()),
        Err(Error::Namespace(error)) if error.errno() == Errno::DQUOT => {
            // All servers have been asked.
            Err(())
        }
        Err(_) => Err(()),
    }
}

fn count(client: &Client, directories: &[FileId]) -> u64 {
    let files = directories.iter().flat_map(|directory| list(client, *directory));
    files.filter(|(_, inode)| inode.uid == ADA).count() as u64
}

/// Runs the changes with a fault at one message. Returns whether there was such a message.
fn run(at: u64, fate: impl Fn(ServerId) -> Fate + Send + 'static) -> bool {
    let place = Place::new(3);
    let directories = place.directories();
    let client = place.client();
    set(&client, Account::User(ADA), inodes(LIMIT)).unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let counted = seen.clone();
    place.set_faults(Some(Box::new(move |server, request| {
        if !is_of_interest(request) {
            return Fate::Arrives;
        }
        match counted.fetch_add(1, Ordering::Relaxed) == at {
            true => fate(server),
            false => Fate::Arrives,
        }
    })));
    change_some(&place, &client, &directories);
    place.set_faults(None);
    place.restart_dead();
    // A hand-over that was cut off is cleared up by the next owner.
    place.restart_all();
    let client = place.client();
    let before = count(&client, &directories);
    assert!(before <= LIMIT, "message {at}: {before} files");
    assert_eq!(used(&client, ADA).1, before, "message {at}");
    check(&client);
    // Nothing of the limit is lost, and none of it is there twice.
    for number in before..LIMIT {
        let directory = directories[number as usize % 3];
        let made = file(&client, directory, &format!("rest{number}"), ADA);
        assert!(made.is_ok(), "message {at}: {number} files, {made:?}");
    }
    for directory in &directories {
        assert_eq!(file(&client, *directory, "beyond", ADA), Err(Errno::DQUOT), "message {at}");
    }
    check(&client);
    seen.load(Ordering::Relaxed) > at
}

/// Runs the changes with a fault at each message, one after the other.
fn run_all(fate: impl Fn(ServerId) -> Fate + Clone + Send + 'static) {
    let long = std::env::var_os("CANOPY_LONG").is_some();
    let (mut at, step) = (0, if long { 1 } else { 3 });
    while run(at, fate.clone()) {
        at += step;
    }
    assert!(at > 10, "{at} messages");
}

#[test]
fn a_message_is_lost() {
    run_all(|_| Fate::Lost);
    run_all(|_| Fate::ReplyLost);
}

#[test]
fn the_server_that_is_asked_dies() {
    run_all(Fate::KillBefore);
    run_all(Fate::KillAfter);
}

#[test]
fn another_server_dies() {
    for victim in 0..3 {
        run_all(move |_| Fate::KillAfter(ServerId(victim)));
    }
}

#[test]
fn servers_die_while_clients_fill_an_account() {
    let place = Place::new(3);
    let directories = place.directories();
    let client = place.client();
    let limit = 150;
    set(&client, Account::User(ADA), inodes(limit)).unwrap();
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..3usize {
            let (place, directories, made) = (&place, &directories, &made);
            scope.spawn(move || {
                let client = place.client();
                let mut round = 0;
                while made.load(Ordering::Relaxed) < 2 * limit && round < 400 {
                    round += 1;
                    let directory = directories[(number + round) % 3];
                    let name = format!("of{number}-{round}");
                    match crate::place::create(&client, directory, &name, 0o100_644, ADA) {
                        Ok(_) => _ = made.fetch_add(1, Ordering::Relaxed),
                        Err(Error::Namespace(error)) if error.errno() == Errno::DQUOT => return,
                        // A server is dead.
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
        }
        let place = &place;
        scope.spawn(move || {
            for round in 0..12 {
                place.restart(ServerId(round % 3));
                std::thread::yield_now();
            }
        });
    });
    place.restart_dead();
    place.settle();
    let client = place.client();
    let there = count(&client, &directories);
    assert!(there <= limit, "{there}");
    check(&client);
    for number in there..limit {
        file(&client, directories[number as usize % 3], &format!("rest{number}"), ADA).unwrap();
    }
    assert_eq!(file(&client, directories[0], "beyond", ADA), Err(Errno::DQUOT));
    let id = list(&client, directories[1])[0].1.id;
    write(&client, id, 1000).unwrap();
    check(&client);
}
