//! Queries of clients.

use crate::place::{Cluster, environment_of_large, execute, new_client, open};
use crate::tree::{Changes, Paths, listed, open_view, split};
use canopy_cluster::{Client, Peers, Request, Sender};
use canopy_model::Credentials;
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::operation::{Administration, Caller, Change, Moment, Operation, Query, Read};
use canopy_namespace::{EntryName, FileId, Found, Inode, NamedInode, New, ROOT, Reply};
use canopy_partition::ServerId;
use canopy_query::{Component, Context, Expression, parse, system_zone};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const QUERIES: [&str; 14] = [
    "[type=f]",
    "[type=d]",
    "[name=n7.c]",
    "[name~n1*.rs]",
    "[name~n1* and type=d]",
    "[uid=7 and ext=txt]",
    "[size>0]",
    "[links>1]",
    "[links>1 and name~n2*]",
    "[path~n1*/*]",
    "[user.run=1]",
    "[user.run and type=d]",
    "[not uid=7]",
    "[name=n1.c or type=l]",
];

fn expression(query: &str) -> Expression {
    let nobody = |_: &str| None;
    let context = Context { now_ns: 0, zone: system_zone(), user: &nobody, group: &nobody };
    match parse(query.as_bytes(), &context) {
        Ok(Some(Component::Search(expression))) => expression,
        other => panic!("{query}: {other:?}"),
    }
}

fn search(client: &Client, base: FileId, query: &str, who: &Credentials) -> Vec<Found> {
    let (expression, mut found) = (expression(query), Vec::new());
    let query = Query::new(Moment::Now, base, &expression, who);
    let caller = if who.is_root() { Caller::Trusted } else { Caller::User(who) };
    client
        .search(caller, &query, &|_| (), &mut |one| {
            found.push(one);
            true
        })
        .unwrap();
    found
}

fn xattr(client: &Client, id: FileId, name: &[u8]) -> Option<Vec<u8>> {
    let read = Operation::Read(Moment::Now, Read::Xattr { id, name });
    match execute(client, &read) {
        Ok(Reply::Bytes(value)) => value,
        other => panic!("{other:?}"),
    }
}

/// Returns what a query has to find, by what is listed.
fn expected(client: &Client, paths: &Paths, query: &str, who: &Credentials) -> Paths {
    let expression = expression(query);
    let lets = |inode: &Inode, bits: u32| {
        let (uid, gid) = (inode.uid == who.uid, who.gids.contains(&inode.gid));
        let mine = if uid {
            inode.mode >> 6
        } else if gid {
            inode.mode >> 3
        } else {
            inode.mode
        };
        who.is_root() || mine & bits == bits
    };
    let Ok(Reply::Inode(base)) = execute(client, &Operation::Read(Moment::Now, Read::Inode(ROOT)))
    else {
        panic!("the root is gone");
    };
    let is_shown = |path: &[u8]| {
        if !lets(&base, 0o5) {
            return false;
        }
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        ends.map(|(end, _)| &paths[&path[..end]]).all(|directory| lets(directory, 0o5))
    };
    let matches = |path: &[u8], inode: &Inode| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap();
        let has = inode.has(flag::XATTRS) && lets(inode, 0o4);
        let xattr = |name: &[u8]| has.then(|| xattr(client, inode.id, name)).flatten();
        expression.matches(&NamedInode { inode, name, path, xattr: &xattr })
    };
    let all = paths.iter().filter(|(path, inode)| is_shown(path) && matches(path, inode));
    all.map(|(path, inode)| (path.clone(), inode.clone())).collect()
}

fn check(cluster: &Arc<Cluster>, indexes: &str) {
    let (paths, client) = (listed(cluster), new_client(cluster));
    for query in QUERIES {
        for who in [Credentials::new(0, [0]), Credentials::new(7, [7]), Credentials::new(9, [8])] {
            let found = search(&client, ROOT, query, &who);
            let count = found.len();
            let found = Paths::from_iter(found.into_iter().map(|one| (one.path, one.inode)));
            assert_eq!(count, found.len(), "{query} finds one twice");
            let expected = expected(&client, &paths, query, &who);
            let (missing, more) = (
                expected.iter().find(|(path, inode)| found.get(*path) != Some(inode)),
                found.iter().find(|(path, _)| !expected.contains_key(*path)),
            );
            let shown = (missing.map(|(path, inode)| (path, inode, found.get(path))), more);
            assert!(expected == found, "{query} of {} with {indexes}: {shown:?}", who.uid);
        }
    }
}

/// Has all servers keep these indexes, and waits until they serve.
fn set_indexes(cluster: &Arc<Cluster>, environment: &canopy_store::Environment, names: &str) {
    let set = Administration::SetIndexes(names.split(' ').collect());
    let client = new_client(cluster);
    assert_eq!(execute(&client, &Operation::Administration(set)).unwrap(), Reply::Done);
    let begin = Instant::now();
    while !open_view(cluster, environment).view.settings().building.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the indexes are not built");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn queries_find_what_clients_list() {
    for (servers, seed) in [(1, 1), (3, 2)] {
        let environment = environment_of_large(servers);
        let cluster = open(&environment);
        let mut changes = Changes::new(&cluster, seed);
        changes.make(250);
        for _ in 0..4 {
            changes.split(None);
        }
        changes.make(100);
        cluster.process().settle();
        check(&cluster, "size name");
        set_indexes(&cluster, &environment, "type uid name ext links user.run mtime");
        check(&cluster, "more");
        // Changes keep the new ones.
        changes.make(100);
        changes.split(None);
        cluster.process().settle();
        check(&cluster, "more, changed");
    }
}

#[test]
fn a_view_is_searched_by_indexes_of_all_tables() {
    let environment = environment_of_large(3);
    let cluster = open(&environment);
    let mut changes = Changes::new(&cluster, 8);
    changes.make(400);
    changes.split(None);
    set_indexes(&cluster, &environment, "type uid name ext links user.run mtime");
    changes.make(100);
    changes.split(None);
    cluster.process().settle();
    let (paths, client) = (listed(&cluster), new_client(&cluster));
    let view = open_view(&cluster, &environment);
    for query in QUERIES {
        let root = Credentials::new(0, [0]);
        let expected = expected(&client, &paths, query, &root);
        let mut found = Paths::new();
        let mut take = |one: Found| {
            assert_eq!(found.insert(one.path, one.inode), None, "{query} finds one twice");
            true
        };
        view.view.search(ROOT, &expression(query), &root, &mut take).unwrap();
        let missing = expected.iter().find(|(path, _)| !found.contains_key(*path));
        let count = (found.len(), expected.len());
        assert!(found == expected, "{query}: {count:?}: {missing:?}");
        let mut found = Paths::new();
        let by_index = view.view.search_by_index(ROOT, &expression(query), |one| {
            assert_eq!(found.insert(one.path, one.inode), None, "{query} finds one twice");
            true
        });
        let has_index = !["[size>0]", "[path~n1*/*]", "[not uid=7]"].contains(&query);
        if by_index.unwrap() {
            assert!(found == expected, "{query}: {} of {}", found.len(), expected.len());
        } else {
            assert!(!has_index, "{query}");
        }
    }
}

/// Makes files of which each has a name of its own.
fn make_files(client: &Client, directory: FileId, count: usize) -> BTreeSet<Vec<u8>> {
    let make = |number| {
        let name = format!("file{number}").into_bytes();
        let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
        let create = Change::Create {
            name: EntryName::new(directory, &name),
            new: Cow::Owned(new),
            holds: false,
        };
        execute(client, &Operation::Change(create)).unwrap();
        name
    };
    (0..count).map(make).collect()
}

#[test]
fn each_entry_is_found_once_while_partitions_move() {
    let environment = environment_of_large(4);
    let cluster = open(&environment);
    let client = new_client(&cluster);
    let names = make_files(&client, ROOT, 3000);
    let root = Credentials::new(0, [0]);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(1);
            while !is_done.load(Ordering::Relaxed) {
                split(&cluster, ROOT, &mut random, None);
            }
        });
        let mut searches = 0;
        // Until all have moved, and once more.
        let partitions = || cluster.process().partitions(ROOT).unwrap().len();
        let mut is_last = false;
        while !is_last {
            is_last = partitions() >= 16;
            for query in ["[type=f]", "[name~file*]"] {
                let mut found: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
                for one in search(&client, ROOT, query, &root) {
                    *found.entry(one.path).or_default() += 1;
                }
                searches += 1;
                assert!(
                    found.keys().eq(&names),
                    "{} of {} in {searches}",
                    found.len(),
                    names.len()
                );
                assert!(found.values().all(|count| *count == 1));
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn users_find_only_what_they_could_list() {
    let environment = environment_of_large(3);
    let cluster = open(&environment);
    let client = new_client(&cluster);
    let user = Credentials::new(7, [7]);
    let expression = expression("[type=f]");
    let query = Query::new(Moment::Now, ROOT, &expression, &user);
    let other = Credentials::new(8, [8]);
    let asked = client.execute_for(Caller::User(&other), &Operation::Search(query.clone(), 10));
    let errno = asked.map(drop).map_err(|error| canopy_namespace::Error::from(error).errno());
    assert_eq!(errno, Err(rustix::io::Errno::PERM), "the query of another user");
    // The number of candidates counts files that the user cannot see.
    let plan = client.execute_for(Caller::User(&user), &Operation::Explain(query.clone(), true));
    let Ok(Reply::Plan(plan)) = plan else { panic!("{plan:?}") };
    assert!(plan.looks_in.ends_with("of 3 servers") && plan.candidates.is_none(), "{plan:?}");
    let explain = Request::Execute(Operation::Explain(query, true));
    let sender = Sender { caller: Caller::User(&user), ..Sender::SERVER };
    let asked = cluster.ask(ServerId(0), sender, &explain);
    let errno = asked.map(drop).map_err(|error| canopy_namespace::Error::from(error).errno());
    assert_eq!(errno, Err(rustix::io::Errno::PERM));
}
