//! Trees of directories with limits, on several servers.

use crate::place::{
    ADA, Place, check, create, execute, file, inodes, link, lookup, rename, unlink,
};
use canopy_cluster::{Client, Error};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Operation, QuotasRequest};
use canopy_namespace::quota::{Account, Limits, Quota};
use canopy_namespace::{EntryName, FileId, ROOT, RenameMode, Reply};
use canopy_partition::ServerId;
use rustix::io::Errno;

fn ask(client: &Client, quotas: QuotasRequest) -> Result<Reply, Error> {
    execute(client, &Operation::Quotas(quotas))
}

fn set_tree(client: &Client, directory: FileId, limits: Limits) -> Account {
    match ask(client, QuotasRequest::SetTree(directory, limits)) {
        Ok(Reply::Account(account)) => account,
        other => panic!("{other:?}"),
    }
}

fn of_tree(client: &Client, id: FileId) -> Option<Quota> {
    match ask(client, QuotasRequest::OfTree(id)) {
        Ok(Reply::Quotas(mut quotas)) => quotas.pop(),
        other => panic!("{other:?}"),
    }
}

fn usage(client: &Client, account: Account) -> u64 {
    crate::place::quota(client, account).usage.inodes
}

fn directory(client: &Client, parent: FileId, name: &str) -> FileId {
    create(client, parent, name, file_type::DIRECTORY | 0o777, 0).unwrap().id
}

fn is_refused<T: std::fmt::Debug>(done: Result<T, Error>, errno: Errno) {
    match done {
        Err(Error::Namespace(error)) => assert_eq!(error.errno(), errno),
        other => panic!("{other:?}"),
    }
}

#[test]
fn trees_are_counted_and_nothing_is_moved_into_them() {
    let place = Place::new(3);
    let client = place.client();
    let [top, outside] = [place.directory_at(0), place.directory_at(1)];
    let below = directory(&client, top, "below");
    let inner = directory(&client, below, "inner");
    for number in 0..6 {
        directory(&client, top, &format!("d{number}"));
        file(&client, below, &format!("f{number}"), ADA).unwrap();
    }
    let alone = file(&client, inner, "alone", ADA).unwrap();
    let stranger = file(&client, outside, "stranger", ADA).unwrap();
    // Names of the tree are on several servers, and get to more of them.
    assert!(place.split(ServerId(0), top).unwrap());
    let own = set_tree(&client, inner, Limits::default());
    let account = set_tree(&client, top, inodes(17));
    assert_ne!(own, account);
    assert_eq!((usage(&client, account), usage(&client, own)), (14, 2));
    check(&client);
    assert_eq!(of_tree(&client, alone), None);
    assert_eq!(of_tree(&client, below).unwrap().account, account);
    assert_eq!(of_tree(&client, stranger), None);
    // New files inherit the number on each server. The limit holds for the whole tree.
    file(&client, top, "15", ADA).unwrap();
    let deep = directory(&client, lookup(&client, top, "d3").unwrap().id, "deep");
    assert_eq!(file(&client, deep, "17", ADA).map(drop), Ok(()));
    for (parent, name) in [(deep, "a"), (top, "b"), (below, "c")] {
        assert_eq!(file(&client, parent, name, ADA), Err(Errno::DQUOT));
    }
    file(&client, inner, "not of it", ADA).unwrap();
    // Nothing gets into it from elsewhere.
    let replace = RenameMode::Replace;
    is_refused(rename(&client, (outside, "stranger"), (top, "x"), replace), Errno::XDEV);
    is_refused(rename(&client, (inner, "alone"), (below, "x"), replace), Errno::XDEV);
    is_refused(
        rename(&client, (top, "15"), (outside, "stranger"), RenameMode::Exchange),
        Errno::XDEV,
    );
    is_refused(link(&client, stranger, (top, "x")), Errno::XDEV);
    rename(&client, (top, "15"), (deep, "15"), replace).unwrap();
    // Files that leave the tree still count.
    rename(&client, (deep, "15"), (outside, "15"), replace).unwrap();
    assert_eq!(usage(&client, account), 17);
    rename(&client, (outside, "15"), (below, "back"), replace).unwrap();
    check(&client);
    place.restart_all();
    let client = place.client();
    assert_eq!(file(&client, deep, "a", ADA), Err(Errno::DQUOT));
    unlink(&client, below, "f0").unwrap();
    file(&client, deep, "a", ADA).unwrap();
    assert_eq!(ask(&client, QuotasRequest::RemoveTree(top)).unwrap(), Reply::Truth(true));
    assert_eq!(ask(&client, QuotasRequest::RemoveTree(top)).unwrap(), Reply::Truth(false));
    assert_eq!(lookup(&client, below, "f1").unwrap().project, 0);
    assert_ne!(lookup(&client, inner, "alone").unwrap().project, 0);
    assert_eq!(ask(&client, QuotasRequest::RemoveTree(inner)).unwrap(), Reply::Truth(true));
    check(&client);
}

#[test]
fn a_tree_ends_with_its_directory() {
    let place = Place::new(3);
    let client = place.client();
    let outside = place.directory_at(1);
    let tops = [place.directory_at(0), place.directory_at(2)];
    for top in tops {
        file(&client, top, "kept", ADA).unwrap();
    }
    let accounts = tops.map(|top| set_tree(&client, top, inodes(5)));
    for (top, name) in tops.into_iter().zip(["kept0", "kept1"]) {
        rename(&client, (top, "kept"), (outside, name), RenameMode::Replace).unwrap();
    }
    for (name, inode) in crate::place::list(&client, ROOT) {
        if tops.contains(&inode.id) {
            let name = EntryName::new(ROOT, name.as_bytes());
            crate::place::change(&client, Change::Rmdir(name)).unwrap();
        }
    }
    place.settle();
    // Files that were moved out are still counted to it.
    assert_eq!(accounts.map(|account| usage(&client, account)), [1, 1]);
    unlink(&client, outside, "kept0").unwrap();
    check(&client);
    let trees = || {
        let all = crate::place::quotas(&client).into_iter();
        Vec::from_iter(all.map(|quota| quota.account).filter(|one| matches!(one, Account::Tree(_))))
    };
    assert_eq!(trees(), [accounts[1]]);
    let Account::Tree(number) = accounts[1] else { panic!() };
    assert_eq!(
        ask(&client, QuotasRequest::RemoveTreeOfNumber(number)).unwrap(),
        Reply::Truth(true)
    );
    assert_eq!(trees(), []);
    assert_eq!(lookup(&client, outside, "kept1").unwrap().project, 0);
    is_refused(ask(&client, QuotasRequest::SetTree(tops[0], inodes(1))), Errno::NOENT);
}

#[test]
fn files_that_are_created_while_a_tree_is_made_belong_to_it() {
    let place = Place::new(3);
    let client = place.client();
    let top = place.directory_at(0);
    for number in 0..40 {
        let below = directory(&client, top, &format!("d{number}"));
        file(&client, below, "file", ADA).unwrap();
    }
    std::thread::scope(|scope| {
        for number in 0..3 {
            let place = &place;
            scope.spawn(move || {
                let client = place.client();
                for round in 0..40 {
                    let name = format!("d{}", (round * 7 + number) % 40);
                    let below = lookup(&client, top, &name).unwrap().id;
                    let made = directory(&client, below, &format!("of{number}-{round}"));
                    file(&client, made, "file", ADA).unwrap();
                }
            });
        }
        let account = set_tree(&client, top, Limits::default());
        assert!(usage(&client, account) >= 81);
    });
    place.settle();
    check(&client);
    let account = set_tree(&client, top, Limits::default());
    assert_eq!(usage(&client, account), 1 + 80 + 240);
    check(&client);
}
