//! Names are found while directories split, and whatever step of a hand-over is the last one before a
//! crash.

use crate::place::*;
use canopy_cluster::{Error, HandOverStage, create_cluster};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Changer, Operation};
use canopy_namespace::{FileId, Ownership, ROOT, Reply, SetXattr, Settings, system_clock};
use canopy_partition::PartitionId;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

#[test]
fn names_are_found_while_directories_split() {
    let environment = environment(3);
    let cluster = open(&environment);
    let client = &new_client(&cluster);
    let directory = create(client, ROOT, "big", file_type::DIRECTORY).unwrap();
    assert_eq!(lookup(client, ROOT, "big").unwrap(), stat(&cluster, directory.id));
    let stale = new_client(&cluster);
    assert!(lookup(&stale, directory.id, "none").is_none());
    let mut files = BTreeMap::new();
    for number in 0..2000 {
        let name = format!("file{number}");
        let kind = if number % 10 == 0 { file_type::DIRECTORY } else { file_type::REGULAR };
        let made = create(client, directory.id, &name, kind).unwrap();
        files.insert(name, made.id);
        if number % 5 == 4 {
            let gone = format!("file{}", number - 1);
            unlink(client, directory.id, &gone);
            files.remove(&gone);
        }
    }
    cluster.process().settle();
    // As many as three servers get of a directory, all of them used.
    let partitions = cluster.process().partitions(directory.id).unwrap();
    assert_eq!(partitions.len(), 12, "{partitions:?}");
    let servers = BTreeSet::from_iter(partitions.iter().map(|(server, _)| *server));
    assert_eq!(servers.len(), 3);
    assert_eq!(stat(&cluster, directory.id).nlink, 2 + 200);
    assert!(client.addressing_errors() <= 30, "{}", client.addressing_errors());
    check(&cluster, &stale, directory.id, &files);
    let error = create(client, directory.id, "file0", file_type::REGULAR).unwrap_err();
    assert!(matches!(error, Error::Namespace(error) if error.errno() == Errno::EXIST));
    let error = create(client, directory.id, "file10", file_type::DIRECTORY).unwrap_err();
    assert!(matches!(error, Error::Namespace(error) if error.errno() == Errno::EXIST));
    cluster.process().sync().unwrap();
    cluster.restart();
    check(&cluster, &new_client(&cluster), directory.id, &files);
    assert_eq!(stat(&cluster, directory.id).nlink, 2 + 200);
}

#[test]
fn a_hand_over_may_stop_anywhere() {
    stop_anywhere(false);
}

#[test]
fn servers_may_die_anywhere_in_a_hand_over() {
    stop_anywhere(true);
}

/// Stops a hand-over before each of its steps. Then both servers die, or go on.
fn stop_anywhere(die: bool) {
    let mut stopped_at = BTreeSet::new();
    for taken in 0.. {
        let environment = environment(2);
        let cluster = open(&environment);
        let client = &new_client(&cluster);
        let mut files = BTreeMap::new();
        for number in 0..40 {
            let name = format!("file{number}");
            let made = create(client, ROOT, &name, file_type::REGULAR).unwrap();
            files.insert(name, made.id);
        }
        cluster.process().sync().unwrap();
        let mut left = taken;
        let mut last = None;
        let outcome = cluster.split(PartitionId::ZERO, &mut |step: HandOverStage| {
            let goes_on = left > 0;
            left -= i32::from(goes_on);
            last = Some(step);
            goes_on
        });
        // Without a crash, whoever asks for a name gets it, too.
        find(&cluster, client, ROOT, &files);
        find(&cluster, &new_client(&cluster), ROOT, &files);
        if die {
            cluster.restart();
            check(&cluster, &new_client(&cluster), ROOT, &files);
        }
        // Once the giver has given, the partition is the receiver's, whatever happened.
        let step = last.unwrap();
        let is_given = outcome.is_ok()
            || matches!(step, HandOverStage::Hold | HandOverStage::Confirm | HandOverStage::Remove);
        assert_eq!(
            cluster.process().partitions(ROOT).unwrap().len(),
            1 + usize::from(is_given),
            "{step:?}"
        );
        if !is_given {
            assert!(cluster.split(PartitionId::ZERO, &mut |_: HandOverStage| true).unwrap());
        }
        find(&cluster, client, ROOT, &files);
        cluster.restart();
        check(&cluster, client, ROOT, &files);
        if outcome.is_ok() {
            break;
        }
        stopped_at.insert(format!("{step:?}"));
    }
    assert_eq!(stopped_at.len(), 7, "{stopped_at:?}");
}

#[test]
fn clients_create_at_once() {
    let environment = environment(4);
    let cluster = open(&environment);
    let names = |thread: usize| (0..600).map(move |number| format!("{thread}-{number}"));
    let made: Vec<BTreeMap<String, FileId>> = std::thread::scope(|scope| {
        let create_all = |thread| {
            let client = new_client(&cluster);
            let one = |name: String| {
                let made = create(&client, ROOT, &name, file_type::REGULAR).unwrap();
                (name, made.id)
            };
            names(thread).map(one).collect()
        };
        let threads: Vec<_> =
            (0..4).map(|thread| scope.spawn(move || create_all(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let files: BTreeMap<_, _> = made.into_iter().flatten().collect();
    assert_eq!(files.len(), 2400);
    assert_eq!(BTreeSet::from_iter(files.values()).len(), 2400, "an id was given twice");
    cluster.process().settle();
    assert!(cluster.process().take_failure().is_none());
    assert!(cluster.process().partitions(ROOT).unwrap().len() > 8);
    check(&cluster, &new_client(&cluster), ROOT, &files);
}

#[test]
fn copies_are_removed_by_one_at_a_time() {
    let cluster = open(&environment_of_large(3));
    let files = make(&cluster, 400, file_type::REGULAR);
    let (stopped, wait_until_stopped) = mpsc::channel();
    let (go_on, wait_until_told) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let cluster = &cluster;
        scope.spawn(move || {
            let mut removals = 0;
            let mut steps = |step: HandOverStage| {
                removals += usize::from(step == HandOverStage::Remove);
                if step == HandOverStage::Remove && removals == 2 {
                    stopped.send(()).unwrap();
                    wait_until_told.recv().unwrap();
                }
                true
            };
            cluster.split(PartitionId::ZERO, &mut steps).unwrap();
        });
        wait_until_stopped.recv().unwrap();
        // The upper half of partition 1 comes back to the server that still removes its copies.
        let one = PartitionId::new(1).unwrap();
        assert!(cluster.split(one, &mut |_: HandOverStage| true).unwrap());
        go_on.send(()).unwrap();
    });
    check(&cluster, &new_client(&cluster), ROOT, &files);
}

#[test]
fn directories_keep_their_times_when_their_names_move() {
    let cluster = open(&environment_of_large(2));
    let directories = make(&cluster, 40, file_type::DIRECTORY);
    for id in directories.values() {
        create(&new_client(&cluster), *id, "file", file_type::REGULAR).unwrap();
    }
    let times = || directories.values().map(|id| stat(&cluster, *id).mtime_ns).collect::<Vec<_>>();
    let before = times();
    assert!(cluster.split(PartitionId::ZERO, &mut |_: HandOverStage| true).unwrap());
    assert_eq!(times(), before);
}

#[test]
fn large_entries_move_in_small_batches() {
    let cluster = open(&environment_of_large(2));
    let files = make(&cluster, 60, file_type::REGULAR);
    let value = vec![7; 65_536];
    for id in files.values() {
        for number in 0..40 {
            let name = format!("user.a{number}");
            let (name, changer) = (name.as_bytes(), Changer::Privileged);
            let set =
                Change::SetXattr { id: *id, name, value: &value, how: SetXattr::Any, changer };
            let _: Reply = execute(&new_client(&cluster), &Operation::Change(set)).unwrap();
        }
    }
    assert!(cluster.split(PartitionId::ZERO, &mut |_: HandOverStage| true).unwrap());
    check(&cluster, &new_client(&cluster), ROOT, &files);
}

#[test]
fn a_directory_has_its_contents_wherever_its_name_is() {
    let cluster = open(&environment_of_large(3));
    make(&cluster, 30, file_type::DIRECTORY);
    // This writes the logs of some servers, and then all of them die.
    assert!(cluster.split(PartitionId::ZERO, &mut |_: HandOverStage| true).unwrap());
    cluster.restart();
    for name in list(&new_client(&cluster), ROOT) {
        assert!(lookup(&new_client(&cluster), ROOT, &name).is_some(), "{name}");
    }
}

#[test]
fn a_second_cluster_is_refused_and_leaves_nothing() {
    let environment = environment(3);
    let objects = || environment.storage.list("", "").unwrap().len();
    let before = objects();
    let settings = Settings::default();
    let again =
        create_cluster(&environment, &settings, Ownership::ROOT, 3, POLICY, &system_clock());
    assert!(again.unwrap_err().to_string().contains("there is a cluster already"));
    assert_eq!(objects(), before);
}
