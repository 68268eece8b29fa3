//! Figure 7: how evenly the hashes of a directory lie on servers, if each has so many partitions.

use canopy_partition::{DirectoryMap, PartitionId, Placement, ServerId};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Returns the mean difference of shares from an even one, as a part of it.
fn deviation(shares: &[f64]) -> f64 {
    let even = 1.0 / shares.len() as f64;
    shares.iter().map(|share| (share - even).abs() / even).sum::<f64>() / shares.len() as f64
}

/// Returns the part of all hashes that a partition of a map holds.
fn share(map: &DirectoryMap, partition: PartitionId) -> f64 {
    0.5_f64.powi(map.depth(partition) as i32)
}

/// Returns the deviation with dense numbers of partitions, as Canopy splits.
fn dense(servers: u32, each: u32) -> f64 {
    let placement = Placement::new(ServerId(0), servers, each).unwrap();
    let mut map = DirectoryMap::default();
    while map.count() < (servers * each) as usize {
        // Any order of splits gives these partitions in the end.
        let all: Vec<PartitionId> = map.partitions().collect();
        for partition in all {
            let child = partition.child(map.depth(partition));
            if child.is_some_and(|child| placement.has_server(child, servers)) {
                map.split(partition);
            }
        }
    }
    let mut shares = vec![0.0; servers as usize];
    for partition in map.partitions() {
        shares[placement.server(partition).0 as usize] += share(&map, partition);
    }
    deviation(&shares)
}

/// Returns the deviation as the paper draws it: of the partitions of the last full level, a random
/// set has split. Partitions go to servers in turn. Mean of five selections.
fn random(servers: u32, each: u32, rng: &mut StdRng) -> f64 {
    let partitions = servers * each;
    let level = partitions.ilog2();
    let all: Vec<PartitionId> = (0..1 << level).filter_map(PartitionId::new).collect();
    let selections = (0..5).map(|_| {
        let mut map = DirectoryMap::default();
        all.iter().for_each(|one| map.learn(DirectoryMap::default().history(*one)));
        for one in all.sample(rng, (partitions - (1 << level)) as usize) {
            map.split(*one);
        }
        let mut shares = vec![0.0; servers as usize];
        for (at, partition) in map.partitions().enumerate() {
            shares[at % servers as usize] += share(&map, partition);
        }
        deviation(&shares)
    });
    selections.sum::<f64>() / 5.0
}

/// Returns the deviation of consistent hashing (Figure 7 (b)), mean of five selections.
fn consistent(servers: u32, each: u32, rng: &mut StdRng) -> f64 {
    let selections = (0..5).map(|_| {
        let mut points: Vec<(f64, usize)> =
            (0..servers * each).map(|at| (rng.random(), (at % servers) as usize)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut shares = vec![0.0; servers as usize];
        let first = points[0].0;
        for (at, (point, server)) in points.iter().enumerate() {
            let next = points.get(at + 1).map_or(1.0 + first, |next| next.0);
            shares[*server] += next - point;
        }
        deviation(&shares)
    });
    selections.sum::<f64>() / 5.0
}

#[test]
fn figure_7_partitions_balance_servers() {
    let mut rng = StdRng::seed_from_u64(7);
    println!("mean over 1 to 32 servers of the mean deviation from an even load");
    println!("partitions each   dense  random splits  consistent hashing");
    let mut means = Vec::new();
    for each in [1, 2, 4, 8, 16, 32, 64, 128] {
        let mut sums = [0.0; 3];
        for servers in 1..=32 {
            let ours = dense(servers, each);
            sums[0] += ours;
            sums[1] += random(servers, each, &mut rng);
            sums[2] += consistent(servers, each, &mut rng);
            let is_even = servers.is_power_of_two() && each.is_power_of_two();
            assert!(!is_even || ours < 1e-9, "{servers} servers with {each} partitions: {ours}");
        }
        let [dense, random, consistent] = sums.map(|sum| sum / 32.0);
        println!("{each:15}  {dense:6.4}  {random:13.4}  {consistent:18.4}");
        means.push((each, dense, random, consistent));
    }
    let of = |each| *means.iter().find(|mean| mean.0 == each).unwrap();
    // "Consistent hashing needs more than 128 partitions per server to match the variance that
    // GIGA+ achieves with 8."
    assert!(of(8).1 <= of(128).3 && of(8).2 <= of(128).3, "{means:?}");
    // More partitions never make the balance worse.
    assert!(means.is_sorted_by(|a, b| a.1 >= b.1), "{means:?}");
}
