//! Clients create, rename and link while snapshots are made, and while directories split.

use crate::history::History;
use crate::net::{Net, create_snapshot, delete_snapshot, snapshots};
use canopy_namespace::operation::Moment;
use canopy_partition::ServerId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLIENTS: usize = 4;

/// Makes snapshots while clients change names, and while servers die if `they_die`.
fn run(seed: u64, count: usize, they_die: bool) {
    let net = Net::new(24);
    net.silence_the_dead();
    let history = History::new(&net, CLIENTS);
    let is_over = AtomicBool::new(false);
    let mut made = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (net, history, is_over) = (&net, &history, &is_over);
            scope.spawn(move || {
                let client = net.client();
                let mut random = StdRng::seed_from_u64(seed * 100 + number as u64);
                while !is_over.load(Ordering::Relaxed) {
                    history.step(number, &client, &mut random);
                }
            });
        }
        if they_die {
            let (net, is_over) = (&net, &is_over);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(random.random_range(20..200)));
                    net.restart(ServerId(random.random_range(0..3)));
                }
            });
        }
        // It gives up soon where servers die all the time.
        let client = net.client_for(Duration::from_secs(if they_die { 1 } else { 30 }));
        for number in 0..count {
            let (name, before) = (format!("s{number}"), history.now());
            let snapshot = create_snapshot(&client, &name);
            let after = history.now();
            match snapshot {
                Ok(info) => assert_eq!(info.name, name),
                Err(error) if they_die => drop(error),
                Err(error) => panic!("{error}"),
            }
            made.extend(snapshots_named(&client, &name).map(|found| (found, before, after)));
            std::thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    net.settle();
    assert!(they_die || made.len() == count);
    assert!(history.count() > 20 * CLIENTS, "{} changes", history.count());
    for server in net.servers() {
        net.restart(server);
    }
    for (number, before, after) in &made {
        history.check(&net.client(), Moment::Snapshot(*number), (*before, *after));
    }
    let (now, later) = (history.now(), history.now());
    history.check(&net.client(), Moment::Now, (now, later));
    let client = net.client();
    for name in snapshots(&client).keys() {
        delete_snapshot(&client, name).unwrap();
    }
    assert_eq!(snapshots(&client).len(), 0);
}

fn snapshots_named(client: &canopy_cluster::Client, name: &str) -> Option<u64> {
    let (all, _) = client.snapshots().ok()?;
    all.into_iter().find(|one| one.name.as_deref() == Some(name)).map(|one| one.number)
}

#[test]
fn snapshots_are_of_one_moment() {
    run(1, 12, false);
}

#[test]
fn snapshots_are_of_one_moment_while_servers_die() {
    run(2, 12, true);
}

#[test]
fn snapshots_are_of_one_moment_in_many_runs() {
    if std::env::var_os("CANOPY_LONG").is_none() {
        return;
    }
    for seed in 10..60 {
        run(seed, 20, seed % 2 == 0);
    }
}
