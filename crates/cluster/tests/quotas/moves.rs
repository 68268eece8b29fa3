//! Usage moves with files, and limits never refuse a move.

use crate::place::{
    ADA, BOB, POLICY, Place, check, file, inodes, link, list, lookup, quota, rename, set, unlink,
    used, write,
};
use canopy_namespace::RenameMode;
use canopy_namespace::quota::{Account, Limits};
use canopy_partition::{ServerId, SplitPolicy};
use rustix::io::Errno;
use std::time::Duration;

#[test]
fn files_that_move_to_other_servers_count_there() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    set(&client, Account::User(ADA), inodes(12)).unwrap();
    for number in 0..12 {
        let id = file(&client, directories[0], &format!("{number}"), ADA).unwrap();
        write(&client, id, 100 * number + 1).unwrap();
    }
    let whole = used(&client, ADA);
    // Between servers, although there is no room, and in exchange.
    for number in 0..8 {
        let name = format!("{number}");
        let to = directories[1 + number % 2];
        rename(&client, (directories[0], &name), (to, &name), RenameMode::Replace).unwrap();
    }
    rename(&client, (directories[1], "0"), (directories[2], "1"), RenameMode::Exchange).unwrap();
    assert_eq!(used(&client, ADA), whole);
    check(&client);
    // The old server has no more room for that, and neither has the new one.
    for directory in &directories {
        assert_eq!(file(&client, *directory, "more", ADA), Err(Errno::DQUOT));
    }
    // A second name, by which files move to their homes, and one that is replaced.
    let id = lookup(&client, directories[1], "2").unwrap().id;
    link(&client, id, (directories[2], "link")).unwrap();
    rename(&client, (directories[2], "3"), (directories[1], "4"), RenameMode::Replace).unwrap();
    assert_eq!(used(&client, ADA).1, 11);
    unlink(&client, directories[1], "2").unwrap();
    unlink(&client, directories[2], "link").unwrap();
    assert_eq!(used(&client, ADA).1, 10);
    for directory in &directories[..2] {
        file(&client, *directory, "more", ADA).unwrap();
    }
    assert_eq!(file(&client, directories[2], "beyond", ADA), Err(Errno::DQUOT));
    place.restart_all();
    let client = place.client();
    assert_eq!(used(&client, ADA).1, 12);
    check(&client);
}

#[test]
fn partitions_that_are_handed_over_take_their_usage_along() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    for number in 0..50 {
        file(&client, directories[0], &format!("{number}"), ADA).unwrap();
    }
    // Some before anything is counted, and some afterwards.
    assert!(place.split(ServerId(0), directories[0]).unwrap());
    set(&client, Account::User(ADA), inodes(60)).unwrap();
    assert_eq!(used(&client, ADA), (0, 50));
    for number in 0..5 {
        file(&client, directories[number % 3], &format!("more{number}"), ADA).unwrap();
    }
    assert!(place.split(ServerId(0), directories[0]).unwrap());
    place.settle();
    assert_eq!(used(&client, ADA), (0, 55));
    check(&client);
    for number in 0..5 {
        file(&client, directories[number % 3], &format!("last{number}"), ADA).unwrap();
    }
    assert_eq!(file(&client, directories[0], "beyond", ADA), Err(Errno::DQUOT));
    place.restart_all();
    let client = place.client();
    check(&client);
    assert_eq!(file(&client, directories[0], "beyond", ADA), Err(Errno::DQUOT));
}

#[test]
fn a_directory_splits_while_clients_fill_it() {
    let policy = SplitPolicy { entries_max: 24, ..POLICY };
    let place = Place::with_policy(3, policy);
    let client = place.client();
    let directory = place.directory_at(1);
    let limit = 400;
    set(&client, Account::User(ADA), inodes(limit)).unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let place = &place;
            scope.spawn(move || {
                // A server that is being given a partition has the client wait.
                let client = place.client().with_patience(Duration::from_secs(20));
                for round in 0.. {
                    match file(&client, directory, &format!("of{number}-{round}"), ADA) {
                        Ok(_) => {}
                        Err(Errno::DQUOT) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    place.settle();
    assert_eq!(list(&client, directory).len() as u64, limit);
    assert_eq!(quota(&client, Account::User(ADA)).usage.inodes, limit);
    check(&client);
    place.assert_sound();
    place.restart_all();
    let client = place.client();
    check(&client);
    for (name, _) in list(&client, directory).iter().take(7) {
        unlink(&client, directory, name).unwrap();
    }
    let made =
        (0..).take_while(|number| file(&client, directory, &format!("new{number}"), ADA).is_ok());
    assert_eq!(made.count(), 7);
    // Others were not limited.
    file(&client, directory, "other", BOB).unwrap();
    set(&client, Account::User(ADA), Limits::default()).unwrap();
    file(&client, directory, "beyond", ADA).unwrap();
}
