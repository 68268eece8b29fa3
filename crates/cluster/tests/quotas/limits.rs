//! Limits that several servers enforce together.

use crate::place::{
    ADA, BOB, Place, change, check, chown, file, inodes, link, list, quota, quotas, rename, set,
    unlink, used, write,
};
use canopy_cluster::{Client, Error};
use canopy_model::Credentials;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Changer, Operation, QuotasRequest};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{EntryName, FileId, New, RenameMode, Reply};
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes files in directories, in turns, until the limit. Returns their number.
fn fill(client: &Client, directories: &[FileId], name: &str, uid: u32) -> u64 {
    for number in 0.. {
        let directory = directories[number % directories.len()];
        match file(client, directory, &format!("{name}{number}"), uid) {
            Ok(_) => {}
            Err(Errno::DQUOT) => return number as u64,
            Err(error) => panic!("{error}"),
        }
    }
    0
}

#[test]
fn a_limit_is_reached_exactly() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    file(&client, directories[1], "before", ADA).unwrap();
    set(&client, Account::User(ADA), inodes(40)).unwrap();
    assert_eq!(used(&client, ADA), (0, 1));
    assert_eq!(fill(&client, &directories, "a", ADA), 39);
    assert_eq!(used(&client, ADA), (0, 40));
    // Others are not concerned.
    file(&client, directories[0], "other", BOB).unwrap();
    // Room freed on one server can be used on another one at once.
    unlink(&client, directories[1], "before").unwrap();
    assert_eq!(file(&client, directories[2], "after", ADA).map(drop), Ok(()));
    assert_eq!(file(&client, directories[2], "beyond", ADA), Err(Errno::DQUOT));
    // Links are not counted, and renames take nothing.
    let id = list(&client, directories[0])[0].1.id;
    link(&client, id, (directories[1], "link")).unwrap();
    rename(&client, (directories[2], "after"), (directories[0], "moved"), RenameMode::Replace)
        .unwrap();
    check(&client);
    place.restart_all();
    let client = place.client();
    assert_eq!(file(&client, directories[2], "beyond", ADA), Err(Errno::DQUOT));
    unlink(&client, directories[0], "moved").unwrap();
    file(&client, directories[2], "beyond", ADA).unwrap();
    check(&client);
}

#[test]
fn clients_do_not_pass_a_limit_together() {
    let place = Place::new(3);
    let directories = place.directories();
    let client = place.client();
    let (limit, clients) = (300, 8);
    set(&client, Account::User(ADA), inodes(limit)).unwrap();
    set(&client, Account::Group(ADA), inodes(limit)).unwrap();
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..clients {
            let (place, directories, made) = (&place, &directories, &made);
            scope.spawn(move || {
                let client = place.client();
                let name = format!("of{number}-");
                // Each begins with another server.
                let mut own = directories.clone();
                own.rotate_left(number % directories.len());
                made.fetch_add(fill(&client, &own, &name, ADA), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(made.into_inner(), limit);
    assert_eq!(used(&client, ADA), (0, limit));
    place.settle();
    check(&client);
    // Far fewer messages than creates and refusals with all servers asked for each.
    let messages = place.messages.load(Ordering::Relaxed);
    println!("{messages} messages about limits for {limit} files of {clients} clients");
    assert!(messages < 3 * limit, "{messages}");
    // A full account costs one message for each refusal, or none.
    let before = place.messages.load(Ordering::Relaxed);
    for number in 0..50 {
        let name = format!("beyond{number}");
        assert_eq!(file(&client, directories[number % 3], &name, ADA), Err(Errno::DQUOT));
    }
    let messages = place.messages.load(Ordering::Relaxed) - before;
    assert!(messages <= 60, "{messages}");
}

/// A change sets room aside before it asks for more. It once waited for that room, which only it was to
/// use, for 5 s.
#[test]
fn a_change_that_needs_more_than_is_left_does_not_wait_for_itself() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    let limits = Limits { bytes_hard: 10_000, ..Limits::default() };
    set(&client, Account::User(ADA), limits).unwrap();
    let make = |number: usize| {
        file(&client, directories[number % 3], &format!("file{number}"), ADA).unwrap()
    };
    for number in 0..2 {
        write(&client, make(number), 4000).unwrap();
    }
    let before = place.messages.load(Ordering::Relaxed);
    for number in 2..8 {
        assert_eq!(write(&client, make(number), 4000), Err(Errno::DQUOT));
    }
    let messages = place.messages.load(Ordering::Relaxed) - before;
    assert!(messages <= 60, "{messages}");
    assert_eq!(used(&client, ADA), (8192, 8));
}

#[test]
fn clients_that_create_and_remove_at_a_limit_find_room() {
    let place = Place::new(3);
    let directories = place.directories();
    let client = place.client();
    set(&client, Account::User(ADA), inodes(4)).unwrap();
    // Each of four clients has one file at most: there is always room.
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (place, directories) = (&place, &directories);
            scope.spawn(move || {
                let client = place.client();
                for round in 0..60 {
                    let directory = directories[(number + round) % 3];
                    let name = format!("of{number}");
                    file(&client, directory, &name, ADA).unwrap();
                    unlink(&client, directory, &name).unwrap();
                }
            });
        }
    });
    assert_eq!(used(&client, ADA), (0, 0));
    assert_eq!(fill(&client, &directories, "x", ADA), 4);
}

#[test]
fn bytes_are_limited_and_nothing_is_written_without_room() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    let limits = Limits { bytes_hard: 8192, ..Limits::default() };
    set(&client, Account::User(ADA), limits).unwrap();
    let files = Vec::from_iter(
        directories.iter().map(|directory| file(&client, *directory, "file", ADA).unwrap()),
    );
    write(&client, files[0], 4096).unwrap();
    write(&client, files[1], 3000).unwrap();
    assert_eq!(used(&client, ADA), (4096 + 3072, 3));
    assert_eq!(write(&client, files[2], 1025), Err(Errno::DQUOT));
    assert_eq!(used(&client, ADA), (4096 + 3072, 3));
    write(&client, files[2], 1024).unwrap();
    assert_eq!(write(&client, files[1], 3073), Err(Errno::DQUOT));
    // A file is not given to somebody who has no room for it, but by root.
    let gift = file(&client, directories[0], "gift", BOB).unwrap();
    write(&client, gift, 100).unwrap();
    let bound = || Changer::Member(Cow::Owned(vec![]));
    assert_eq!(chown(&client, gift, ADA, bound()), Err(Errno::DQUOT));
    chown(&client, gift, ADA, Changer::Privileged).unwrap();
    assert_eq!(used(&client, ADA), (8192 + 512, 4));
    unlink(&client, directories[0], "file").unwrap();
    write(&client, files[2], 1025).unwrap();
    check(&client);
}

#[test]
fn limits_are_lowered_and_raised() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    set(&client, Account::User(ADA), inodes(100)).unwrap();
    for number in 0..12 {
        file(&client, directories[number % 3], &format!("{number}"), ADA).unwrap();
    }
    // Below what is used.
    set(&client, Account::User(ADA), inodes(10)).unwrap();
    assert_eq!(file(&client, directories[0], "x", ADA), Err(Errno::DQUOT));
    for number in 0..2 {
        unlink(&client, directories[number % 3], &format!("{number}")).unwrap();
        assert_eq!(file(&client, directories[1], "x", ADA), Err(Errno::DQUOT));
    }
    unlink(&client, directories[2], "2").unwrap();
    file(&client, directories[0], "x", ADA).unwrap();
    assert_eq!(file(&client, directories[1], "y", ADA), Err(Errno::DQUOT));
    set(&client, Account::User(ADA), inodes(11)).unwrap();
    file(&client, directories[1], "y", ADA).unwrap();
    assert_eq!(file(&client, directories[2], "z", ADA), Err(Errno::DQUOT));
    // Without limits, nothing is counted all the time.
    set(&client, Account::User(ADA), Limits::default()).unwrap();
    assert_eq!(fill_some(&client, &directories), 30);
    let all = quotas(&client);
    let ada = all.iter().find(|quota| quota.account == Account::User(ADA)).unwrap();
    assert_eq!((ada.usage.inodes, ada.limits.are_none()), (41, true));
    set(&client, Account::User(BOB), inodes(1)).unwrap();
    check(&client);
    set(&client, Account::User(ADA), inodes(42)).unwrap();
    file(&client, directories[0], "last", ADA).unwrap();
    assert_eq!(file(&client, directories[1], "beyond", ADA), Err(Errno::DQUOT));
}

fn fill_some(client: &Client, directories: &[FileId]) -> usize {
    let made = (0..30).map(|number| {
        file(client, directories[number % 3], &format!("some{number}"), ADA).unwrap()
    });
    made.count()
}

#[test]
fn a_soft_limit_holds_after_some_time() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    let limits = Limits { inodes_soft: 3, inodes_hard: 6, grace_s: 3600, ..Limits::default() };
    set(&client, Account::User(ADA), limits).unwrap();
    let make = |number: usize| file(&client, directories[number % 3], &number.to_string(), ADA);
    (0..3).for_each(|number| _ = make(number).unwrap());
    assert_eq!(quota(&client, Account::User(ADA)).usage.inodes_since_ns, 0);
    make(3).unwrap();
    let since_ns = quota(&client, Account::User(ADA)).usage.inodes_since_ns;
    assert!(since_ns > 1_700_000_000_000_000_000);
    place.now_ns.fetch_add(1800 * 1_000_000_000, Ordering::Relaxed);
    make(4).unwrap();
    assert_eq!(quota(&client, Account::User(ADA)).usage.inodes_since_ns, since_ns);
    place.now_ns.fetch_add(1801 * 1_000_000_000, Ordering::Relaxed);
    place.restart_all();
    assert_eq!(make(5), Err(Errno::DQUOT));
    // The time begins anew once less is used.
    unlink(&client, directories[0], "0").unwrap();
    assert_eq!(make(5), Err(Errno::DQUOT));
    unlink(&client, directories[1], "1").unwrap();
    place.wait_until(|| quota(&client, Account::User(ADA)).usage.inodes_since_ns == 0);
    (5..8).for_each(|number| _ = make(number).unwrap());
    // The hard limit holds at once.
    assert_eq!(make(8), Err(Errno::DQUOT));
    let since_ns = quota(&client, Account::User(ADA)).usage.inodes_since_ns;
    assert!(since_ns > 1_700_003_601_000_000_000);
    check(&client);
}

#[test]
fn users_whom_limits_do_not_bind_leave_no_room_for_others() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    set(&client, Account::User(ADA), inodes(20)).unwrap();
    // All servers have room.
    (0..3).for_each(|at| _ = file(&client, directories[at], "own", ADA).unwrap());
    for number in 0..20 {
        let id = file(&client, directories[0], &format!("gift{number}"), BOB).unwrap();
        chown(&client, id, ADA, Changer::Privileged).unwrap();
    }
    place.review();
    assert_eq!(used(&client, ADA).1, 23);
    for directory in directories.iter().copied() {
        assert_eq!(file(&client, directory, "more", ADA), Err(Errno::DQUOT));
        unlink(&client, directory, "own").unwrap();
    }
    assert_eq!(file(&client, directories[2], "more", ADA), Err(Errno::DQUOT));
    unlink(&client, directories[0], "gift0").unwrap();
    file(&client, directories[2], "more", ADA).unwrap();
    assert_eq!(file(&client, directories[1], "more", ADA), Err(Errno::DQUOT));
    check(&client);
}

#[test]
fn directories_count_where_their_homes_are() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    set(&client, Account::User(ADA), inodes(15)).unwrap();
    let make = |number: usize| {
        let mode = file_type::DIRECTORY | 0o755;
        let made = crate::place::create(&client, directories[0], &format!("d{number}"), mode, ADA);
        made.map(|inode| inode.id)
    };
    let made = Vec::from_iter((0..15).map(|number| make(number).unwrap()));
    let refused = make(15);
    let is_full =
        |error: &Error| matches!(error, Error::Namespace(error) if error.errno() == Errno::DQUOT);
    assert!(refused.as_ref().is_err_and(is_full), "{refused:?}");
    chown(&client, made[3], BOB, Changer::Privileged).unwrap();
    make(15).unwrap();
    place.settle();
    check(&client);
    for number in 0..16 {
        let name = format!("d{number}");
        let name = EntryName::new(directories[0], name.as_bytes());
        change(&client, Change::Rmdir(name)).unwrap();
    }
    assert_eq!(used(&client, ADA), (0, 0));
    check(&client);
}

#[test]
fn users_see_their_own_and_set_nothing() {
    let place = Place::new(2);
    let client = place.client();
    let ada = Credentials::new(ADA, [ADA]);
    let ask = |quotas| client.execute_for(Caller::User(&ada), &Operation::Quotas(quotas));
    set(&client, Account::User(BOB), inodes(7)).unwrap();
    let own = ask(QuotasRequest::Of(Account::User(ADA))).unwrap();
    assert!(matches!(own, Reply::Quotas(quotas) if quotas.len() == 1));
    for quotas in [
        QuotasRequest::All,
        QuotasRequest::Of(Account::User(BOB)),
        QuotasRequest::Set(Account::User(ADA), inodes(1)),
        QuotasRequest::SetTree(FileId(1), inodes(1)),
        QuotasRequest::RemoveTree(FileId(1)),
        QuotasRequest::RemoveTreeOfNumber(1),
    ] {
        match ask(quotas) {
            Err(Error::Namespace(error)) => assert_eq!(error.errno(), Errno::PERM, "{quotas:?}"),
            other => panic!("{quotas:?}: {other:?}"),
        }
    }
}

#[test]
fn files_are_counted_while_others_change_them() {
    let place = Place::new(3);
    let directories = place.directories();
    let client = place.client();
    for number in 0..600 {
        file(&client, directories[number % 3], &format!("old{number}"), ADA).unwrap();
    }
    let is_done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..3usize {
            let (place, directories, is_done) = (&place, &directories, &is_done);
            scope.spawn(move || {
                let client = place.client();
                for round in 0.. {
                    if is_done.load(Ordering::Relaxed) {
                        return;
                    }
                    let (from, to) = (directories[number], directories[(number + 1) % 3]);
                    let name = format!("of{number}-{round}");
                    file(&client, from, &name, ADA).unwrap();
                    rename(&client, (from, &name), (to, &name), RenameMode::Replace).unwrap();
                    let old = format!("old{}", number + 3 * (round % 200));
                    let _ = unlink(&client, from, &old);
                }
            });
        }
        for _ in 0..20 {
            set(&client, Account::User(BOB), inodes(7)).unwrap();
            set(&client, Account::User(BOB), Limits::default()).unwrap();
        }
        set(&client, Account::User(BOB), inodes(7)).unwrap();
        is_done.store(true, Ordering::Relaxed);
    });
    place.settle();
    check(&client);
}

#[test]
fn a_limit_that_is_set_while_a_server_is_down_fails() {
    let place = Place::new(3);
    let (client, directories) = (place.client(), place.directories());
    set(&client, Account::User(ADA), inodes(6)).unwrap();
    place.kill(canopy_partition::ServerId(2));
    let failed = set(&client, Account::User(ADA), inodes(3));
    assert!(matches!(&failed, Err(Error::Namespace(_) | Error::Unreachable { .. })), "{failed:?}");
    // Others create by what there is, until all that is left may be there.
    let mut made = 0;
    let refusal = loop {
        let new = New { mode: file_type::REGULAR | 0o644, uid: ADA, gid: ADA, ..New::default() };
        let name = format!("{made}");
        let name = EntryName::new(directories[made % 2], name.as_bytes());
        match change(&client, Change::Create { name, new: Cow::Owned(new), holds: false }) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(made <= 6);
    if let Error::Namespace(error) = &refusal {
        assert_ne!(error.errno(), Errno::DQUOT, "the other server may have room");
    }
    place.restart_dead();
    place.settle();
    let rest = fill(&client, &directories, "rest", ADA);
    assert_eq!(made as u64 + rest, 6);
    check(&client);
}
