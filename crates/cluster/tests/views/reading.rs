//! Views of all tables.

use crate::place::{environment_of_large, execute, new_client, open, stat};
use crate::tree::{Changes, STEPS, listed, open_view, split, viewed};
use canopy_cluster::{ClusterView, Process, checkpoint_all, release_all, settle_stopped};
use canopy_namespace::inode::flag;
use canopy_namespace::operation::{Moment, Operation, Read};
use canopy_namespace::{FileId, ROOT, ReadView, Reply, system_clock};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Compares all that a view returns with the answers of clients.
fn check(cluster: &Arc<crate::place::Cluster>, view: &ReadView) {
    let (expected, found) = (listed(cluster), viewed(view));
    let differing = expected.iter().find(|(path, inode)| found.get(*path) != Some(inode));
    let differing = differing.map(|(path, inode)| (path, inode, found.get(path)));
    assert!(expected == found, "{} of {}: {differing:?}", found.len(), expected.len());
    assert_eq!(view.root().unwrap(), stat(cluster, ROOT));
    let client = new_client(cluster);
    let mut names: BTreeMap<FileId, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for (path, inode) in &expected {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap();
        names.entry(inode.id).or_default().insert(name.to_vec());
        assert_eq!(view.inode(inode.id).unwrap().as_ref(), Some(inode));
        let mut xattrs = Vec::new();
        view.xattrs(inode.id, |name, value| xattrs.push((name.to_vec(), value.to_vec()))).unwrap();
        assert_eq!(xattrs.is_empty(), !inode.has(flag::XATTRS), "{inode:?}");
        for (name, value) in xattrs {
            let read = Read::Xattr { id: inode.id, name: &name };
            let reply = execute(&client, &Operation::Read(Moment::Now, read));
            assert_eq!(reply.unwrap(), Reply::Bytes(Some(value)));
        }
    }
    for (id, names) in names {
        let found = view.names(id).unwrap().into_iter().map(|(_, name)| name);
        assert_eq!(found.collect::<BTreeSet<_>>(), names);
    }
}

#[test]
fn a_view_of_all_tables_has_what_clients_list() {
    for (servers, seed) in [(1, 1), (2, 2), (3, 3), (7, 4)] {
        let environment = environment_of_large(servers);
        let cluster = open(&environment);
        let mut changes = Changes::new(&cluster, seed);
        for _ in 0..3 {
            changes.make(300);
            for _ in 0..4 {
                changes.split(None);
            }
            cluster.process().settle();
            let view = open_view(&cluster, &environment);
            check(&cluster, &view.view);
            assert!(view.view.is_current(&environment).unwrap());
            release_all(&environment, &view.checkpoints);
        }
    }
}

#[test]
fn each_entry_is_there_once_in_each_state_of_a_hand_over() {
    for (number, step) in STEPS.into_iter().enumerate() {
        let environment = environment_of_large(3);
        let cluster = open(&environment);
        let mut changes = Changes::new(&cluster, 10 + number as u64);
        changes.make(200);
        let mut random = StdRng::seed_from_u64(number as u64);
        split(&cluster, ROOT, &mut random, None);
        cluster.process().settle();
        split(&cluster, ROOT, &mut random, Some(step));
        // Work beside requests ends the hand-over, so the tables are read at once.
        let view = open_view(&cluster, &environment);
        cluster.process().settle();
        let expected = listed(&cluster);
        let found = viewed(&view.view);
        assert!(found.keys().eq(expected.keys()), "{step:?}");
    }
}

#[test]
fn changed_directories_are_found() {
    let environment = environment_of_large(3);
    let cluster = open(&environment);
    let mut changes = Changes::new(&cluster, 5);
    changes.make(400);
    changes.split(None);
    cluster.process().settle();
    for round in 0..6 {
        let before = open_view(&cluster, &environment);
        let old = viewed(&before.view);
        changes.make(8);
        if round % 2 == 1 {
            changes.split(None);
        }
        cluster.process().settle();
        let now = open_view(&cluster, &environment);
        assert!(!before.view.is_current(&environment).unwrap());
        let kept = ClusterView::at(&environment, &before.checkpoints).unwrap().unwrap();
        assert_eq!(viewed(&kept), old);
        let changed = now.view.changed_directories(&kept, 10_000).unwrap().unwrap();
        let changed = BTreeSet::from_iter(changed);
        let new = viewed(&now.view);
        let above = |path: &[u8]| {
            let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            path[..end].to_vec()
        };
        for (path, inode) in old.iter().chain(&new) {
            let differs = old.get(path) != new.get(path);
            let parent = above(path);
            let is_there = parent.is_empty() || new.contains_key(&parent);
            if differs && is_there {
                assert!(changed.contains(&parent), "{path:?} {inode:?}");
            }
        }
    }
}

#[test]
fn tables_of_a_stopped_cluster_are_settled() {
    let environment = environment_of_large(3);
    let expected = {
        let cluster = open(&environment);
        let mut changes = Changes::new(&cluster, 6);
        changes.make(300);
        changes.split(Some(canopy_cluster::HandOverStage::Hold));
        cluster.process().sync().unwrap();
        let expected = listed(&cluster);
        cluster.kill();
        expected
    };
    let clock = system_clock();
    let settle = || settle_stopped(&environment, &clock);
    settle().unwrap();
    let view = ClusterView::open(&environment, || checkpoint_all(&environment, 60_000)).unwrap();
    assert!(viewed(&view.view).keys().eq(expected.keys()));
    // Nothing is left to be done, so nobody opens the tables again.
    let epochs = || -> Vec<u64> {
        let tables = canopy_cluster::cluster_tables(&*environment.storage).unwrap();
        let epoch = |table| canopy_store::inspect(&environment, table).unwrap().state.epoch;
        tables.into_iter().map(epoch).collect()
    };
    let before = epochs();
    settle().unwrap();
    assert_eq!(epochs(), before);
    drop(Process::with_all_servers(&environment, &clock).unwrap());
    assert_ne!(epochs(), before);
}
